//! `--web` and `--metrics`: samples as a page, and as metrics.

use clearstream_dashboard::{Content, Dashboard, DashboardError, LiveMetrics};
use clearstream_schema::live::LiveSample;
use serde_json::json;

use super::{LiveArgs, sources::Sources};
use crate::{exit::CommandError, output::Unwritten};

/// Servers of a command.
#[derive(Default)]
pub(super) struct Served {
    page: Option<Dashboard>,
    metrics: Option<(LiveMetrics, Dashboard)>,
}

impl Served {
    /// Starts what was requested.
    pub(super) fn start(args: &LiveArgs, sources: &Sources) -> Result<Self, CommandError> {
        let title = format!("live: {}", sources.names().join(", "));
        let page = args.web.map(|address| Dashboard::start(address, Content::Live { title })).transpose()?;
        let metrics = args.metrics.map(|address| {
            let metrics = LiveMetrics::default();
            let server = Dashboard::start(address, Content::Metrics(metrics.exposition()))?;
            Ok::<_, DashboardError>((metrics, server))
        });
        Ok(Self { page, metrics: metrics.transpose()? })
    }

    /// Names and links.
    pub(super) fn links(&self) -> Vec<(&'static str, String)> {
        let page = self.page.as_ref().map(|page| ("page", page.link()));
        let metrics = self.metrics.as_ref();
        let metrics = metrics.map(|(_, server)| ("metrics", format!("http://{}/metrics", server.address())));
        page.into_iter().chain(metrics).collect()
    }

    /// Shows a sample.
    pub(super) fn add(&self, sample: &LiveSample) -> Result<(), CommandError> {
        if let Some(page) = &self.page {
            page.publish("sample", &clearstream_schema::json::to_string(sample).map_err(Unwritten::from)?);
        }
        if let Some((metrics, _)) = &self.metrics {
            metrics.add(sample);
        }
        Ok(())
    }

    /// Shows that a host does not respond.
    pub(super) fn lose(&self, host: &str, reason: &str) {
        if let Some(page) = &self.page {
            let time = jiff::Timestamp::now().to_string();
            page.publish("lost", &json!({ "host": host, "time": time, "reason": reason }).to_string());
        }
        if let Some((metrics, _)) = &self.metrics {
            metrics.lose(host);
        }
    }
}
