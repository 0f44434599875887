//! The rate that bounds the model of a window curve: that of the lab's link, else
//! of the slower interface on the path, else the highest goodput measured.

use clearstream_schema::host::{HostReport, Nic};

use crate::{
    digest::{Digest, ExperimentDigest},
    format::rate,
    link,
};

/// A rate and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct PathRate {
    pub(crate) bps: f64,
    /// As text.
    pub(super) source: String,
    /// The highest goodput measured, so that the curve always reaches it.
    pub(super) measured: bool,
}

impl PathRate {
    pub(super) fn of(digest: &Digest, experiment: &ExperimentDigest, highest_bps: f64) -> Self {
        let lab = lab_rate_bps(digest, experiment).map(|bps| Self {
            bps,
            source: "the lab link's rate".to_owned(),
            measured: false,
        });
        lab.or_else(|| Self::of_interfaces(digest, experiment)).unwrap_or_else(|| Self {
            bps: highest_bps,
            source: "the highest goodput measured".to_owned(),
            measured: true,
        })
    }

    /// Goodput that the slower of both interfaces can carry; `None` unless the line rates
    /// of both are known.
    fn of_interfaces(digest: &Digest, experiment: &ExperimentDigest) -> Option<Self> {
        if digest.run.lab.is_some() || digest.one_machine() {
            return None;
        }
        let [client, server] = &experiment.path_interfaces;
        let nics = [nic(digest.client(), client.as_deref())?, nic(digest.server(), server.as_deref())?];
        let [one, other] = nics.map(|nic| Some((nic.goodput_max_bps()?, nic)));
        let (bps, slower) = [one?, other?].into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
        let source = format!(
            "what the slower interface of both hosts carries of payload ({}: {} at MTU {})",
            slower.name,
            rate(slower.line_rate_bps()? as f64),
            slower.mtu_bytes.map_or_else(|| "1500 (assumed)".to_owned(), |mtu| mtu.to_string()),
        );
        Some(Self { bps, source, measured: false })
    }
}

/// Rate of the lab link that was measured over, else the lowest of the lab's links.
fn lab_rate_bps(digest: &Digest, experiment: &ExperimentDigest) -> Option<f64> {
    let lab = digest.run.lab.as_ref()?;
    if let Some(link) = link::of(lab, experiment).filter(|_| experiment.server_address().is_some()) {
        return link.rate.map(|rate| rate.0 as f64);
    }
    lab.links.iter().filter_map(|link| link.rate).map(|rate| rate.0 as f64).min_by(f64::total_cmp)
}

/// The interface that carried the data; without samples the only card that is up.
fn nic<'a>(host: &'a HostReport, carried: Option<&str>) -> Option<&'a Nic> {
    if let Some(name) = carried {
        return host.nics.iter().find(|nic| nic.name == name);
    }
    let up = |nic: &&Nic| nic.pci_address.is_some() && nic.operational_state.as_deref() == Some("up");
    let mut cards = host.nics.iter().filter(up);
    cards.next().filter(|_| cards.next().is_none())
}
