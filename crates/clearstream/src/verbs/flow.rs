//! `clearstream flow`

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use clearstream_flow::FlowEvent;
use clearstream_lab::limit;
use clearstream_schema::{
    flow::{FlowConfig, FlowSummary, Interval},
    lab::DelayLineStats,
    place::SteeringReport,
};
use serde::Serialize;

use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{self, Format, Paint, flow, progress::Progress},
    steer::Steering,
};

/// Measure bulk goodput to another host.
#[derive(Debug, clap::Args)]
pub struct FlowArgs {
    /// The other host: as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing
    host: Option<String>,
    #[command(flatten)]
    path: PathArgs,
    #[command(flatten)]
    config: FlowConfig,
    /// Print one JSON document at the end
    #[arg(long, conflicts_with = "json_stream")]
    json: bool,
    /// Print a JSON line per event, as it happens
    #[arg(long)]
    json_stream: bool,
}

/// Name of the document of `--json`.
const FLOW_SCHEMA: &str = "clearstream.flow";

/// `--json`: everything in one document.
#[derive(Debug, Serialize)]
struct FlowDocument<'a> {
    schema: &'static str,
    version: u32,
    summary: &'a FlowSummary,
    intervals: &'a [Interval],
    #[serde(skip_serializing_if = "Option::is_none")]
    steering: Option<&'a SteeringReport>,
    /// What the lab's delay lines did during the test.
    #[serde(skip_serializing_if = "<[DelayLineStats]>::is_empty")]
    delay_lines: &'a [DelayLineStats],
}

/// `--json-stream`: one line each.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum StreamLine<'a> {
    Interval { interval: &'a Interval },
    Summary { schema: &'static str, version: u32, summary: &'a FlowSummary },
}

impl FlowArgs {
    /// Does it.
    pub fn run(self) -> Result<(), CommandError> {
        let format = match (self.json, self.json_stream) {
            (true, _) => Format::Json,
            (_, true) => Format::JsonStream,
            _ => Format::Human,
        };
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.as_deref(), &self.path)?;
        let mut hosts = ends.hosts()?;
        let (mut steering, config) = if self.config.steer {
            let (steering, config) = Steering::prepare(&mut hosts, &self.config)?;
            (Some(steering), config)
        } else {
            (None, self.config.clone())
        };
        let mut view = View::new(format, &config);
        hosts.reset_delay_lines()?;
        let result = clearstream_flow::run_on(&mut hosts, &config, &stop, &mut |event| {
            if let (Some(steering), FlowEvent::Interval(interval)) = (&mut steering, &event) {
                steering.watch(interval);
            }
            view.show(event);
        });
        let mut summary = match result {
            Ok(summary) => summary,
            Err(error) => {
                if let Some(partial) = error.partial() {
                    view.finish(partial, None)?;
                }
                return Err(error.into());
            }
        };
        let steered = steering.and_then(|steering| steering.conclude(&self.config, &mut summary));
        view.delay_lines = hosts.delay_lines()?;
        summary.notices.extend(limit::notice(&view.delay_lines));
        view.finish(&summary, steered.as_ref())?;
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted("the figures are of the time until then".to_owned()));
        }
        if flow::misses_samples(&summary) {
            return Err(CommandError::Partial(
                "an agent stood still: samples are missing, see above".to_owned(),
            ));
        }
        Ok(())
    }
}

/// What the person sees while the test runs.
struct View {
    format: Format,
    paint: Paint,
    config: FlowConfig,
    intervals: Vec<Interval>,
    delay_lines: Vec<DelayLineStats>,
    progress: Progress,
    started: Instant,
    expected: Duration,
    failed: Option<std::io::Error>,
}

impl View {
    fn new(format: Format, config: &FlowConfig) -> Self {
        let expected = config.warm_up.to_std() + config.duration.to_std();
        Self {
            format,
            paint: Paint::for_stdout(),
            config: config.clone(),
            intervals: Vec::new(),
            delay_lines: Vec::new(),
            progress: Progress::start(expected),
            started: Instant::now(),
            expected,
            failed: None,
        }
    }

    fn show(&mut self, event: FlowEvent) {
        let written = match (event, self.format) {
            (FlowEvent::Ready { client, server }, Format::Human) => {
                output::line(&flow::settings(&self.config, &client, &server))
                    .and_then(|()| output::line(flow::INTERVAL_HEADING))
            }
            (FlowEvent::Interval(interval), format) => {
                let written = match format {
                    Format::Human => output::line(&flow::interval(&interval)),
                    Format::JsonStream => output::json(&StreamLine::Interval { interval: &interval }, false),
                    Format::Json => {
                        self.intervals.push(interval);
                        Ok(())
                    }
                };
                if format != Format::Human {
                    self.progress.update(self.expected.saturating_sub(self.started.elapsed()), "flow test");
                }
                written
            }
            _ => Ok(()),
        };
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    fn finish(
        &mut self,
        summary: &FlowSummary,
        steering: Option<&SteeringReport>,
    ) -> Result<(), CommandError> {
        if let Some(error) = self.failed.take() {
            return Err(error.into());
        }
        match self.format {
            Format::Human => output::line(&flow::summary(summary, self.paint)),
            Format::Json => output::json(
                &FlowDocument {
                    schema: FLOW_SCHEMA,
                    version: 1,
                    summary,
                    intervals: &self.intervals,
                    steering,
                    delay_lines: &self.delay_lines,
                },
                true,
            ),
            Format::JsonStream => {
                output::json(&StreamLine::Summary { schema: FLOW_SCHEMA, version: 1, summary }, false)
            }
        }?;
        Ok(())
    }
}
