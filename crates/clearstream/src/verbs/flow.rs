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
use schemars::JsonSchema;
use serde::Serialize;

use super::compat::CompatArgs;
use crate::{
    chosen_settings::{self, CoreChoice, FlowChoice},
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, flow},
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
    compat: CompatArgs,
    #[command(flatten)]
    config: FlowConfig,
    /// Who chooses cores where no list names them
    #[arg(long, value_enum, default_value_t = CoreChoice::default(), conflicts_with_all = ["sender_cores", "receiver_cores"])]
    cores: CoreChoice,
}

/// A flow test as a whole.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FlowDocument<'a> {
    /// The result.
    summary: &'a FlowSummary,
    /// Every interval in order; absent at the end of a stream, which had them before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intervals: Option<&'a [Interval]>,
    /// Settings that were chosen because the command line left them open; absent where none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    choice: Option<&'a FlowChoice>,
    /// Where steered flows landed; absent where none were steered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steering: Option<&'a SteeringReport>,
    /// What the lab's delay lines did during the test.
    #[serde(default, skip_serializing_if = "<[DelayLineStats]>::is_empty")]
    delay_lines: &'a [DelayLineStats],
}

impl FlowArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if self.compat.is_requested() {
            return self.compat.run(self.host.as_deref(), &self.config, out);
        }
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.as_deref(), &self.path)?;
        let mut hosts = ends.hosts()?;
        let (mut steering, config) = if self.config.steer {
            let (steering, config) = Steering::prepare(&mut hosts, &self.config)?;
            (Some(steering), config)
        } else {
            (None, self.config.clone())
        };
        let choice = chosen_settings::choose(&mut hosts, &config, self.cores, &stop)?;
        let requested = config;
        let config = choice.as_ref().map_or_else(|| requested.clone(), |choice| choice.applied(&requested));
        let mut view = View::new(out, &config);
        view.chosen(choice);
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
        summary.requested = requested;
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

/// What is reported while the test runs.
struct View<'a> {
    out: &'a Output,
    config: FlowConfig,
    intervals: Vec<Interval>,
    delay_lines: Vec<DelayLineStats>,
    choice: Option<FlowChoice>,
    started: Instant,
    expected: Duration,
}

impl<'a> View<'a> {
    fn new(out: &'a Output, config: &FlowConfig) -> Self {
        Self {
            out,
            config: config.clone(),
            intervals: Vec::new(),
            delay_lines: Vec::new(),
            choice: None,
            started: Instant::now(),
            expected: config.warm_up.to_std() + config.duration.to_std(),
        }
    }

    /// Says which settings were chosen.
    fn chosen(&mut self, choice: Option<FlowChoice>) {
        if let Some(choice) = &choice {
            let detail = || serde_json::json!(choice);
            self.out.state("chosen", self.out.is_stream().then(detail), || Some(choice.text()));
        }
        self.choice = choice;
    }

    fn show(&mut self, event: FlowEvent) {
        match event {
            FlowEvent::Ready { client, server } => {
                let detail = || serde_json::json!({ "client": client, "server": server });
                let text = || {
                    let settings = flow::settings(&self.config, &client, &server);
                    format!("{settings}\n{}", flow::INTERVAL_HEADING)
                };
                self.out.state("ready", self.out.is_stream().then(detail), || Some(text()));
            }
            FlowEvent::Interval(interval) => {
                self.out.interval(&interval, || Some(flow::interval(&interval)));
                // People see rows instead.
                if !self.out.is_human() {
                    self.out.progress(self.expected.saturating_sub(self.started.elapsed()), "flow test");
                }
                // A stream has them already, and a long test makes many.
                if !self.out.is_human() && !self.out.is_stream() {
                    self.intervals.push(interval);
                }
            }
            // People find it in the summary.
            FlowEvent::Notice(notice) if self.out.is_stream() => self.out.notice(&notice),
            FlowEvent::Notice(_) => {}
        }
    }

    fn finish(&self, summary: &FlowSummary, steering: Option<&SteeringReport>) -> Result<(), CommandError> {
        let intervals = (!self.out.is_stream()).then_some(&self.intervals[..]);
        let choice = self.choice.as_ref();
        let document = FlowDocument { summary, intervals, choice, steering, delay_lines: &self.delay_lines };
        Ok(self.out.result(&document, || flow::summary(summary, Paint::for_stdout()))?)
    }
}
