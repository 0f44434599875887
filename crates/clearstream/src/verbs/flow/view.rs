//! What is reported while a test runs.

use std::time::{Duration, Instant};

use clearstream_flow::FlowEvent;
use clearstream_schema::flow::{FlowConfig, FlowSummary, Interval};

use super::document::Measured;
use crate::output::{
    Output,
    flow::{self, Ends, IntervalTable},
};

/// Shows the events of one test and keeps its intervals for the document.
pub(super) struct View<'a> {
    out: &'a Output,
    config: FlowConfig,
    ends: &'a Ends,
    shows_settings: bool,
    table: Option<IntervalTable>,
    intervals: Vec<Interval>,
    started: Instant,
    expected: Duration,
}

impl<'a> View<'a> {
    /// `shows_settings`: people see them once, and not before every repetition.
    pub(super) fn new(out: &'a Output, config: &FlowConfig, ends: &'a Ends, shows_settings: bool) -> Self {
        Self {
            out,
            config: config.clone(),
            ends,
            shows_settings,
            table: None,
            intervals: Vec::new(),
            started: Instant::now(),
            expected: config.warm_up.to_std() + config.duration.to_std(),
        }
    }

    /// The test begins, with this configuration.
    pub(super) fn start(&mut self, config: &FlowConfig) {
        self.config = config.clone();
        self.started = Instant::now();
    }

    pub(super) fn show(&mut self, event: FlowEvent) {
        match event {
            FlowEvent::Ready { client, server } => {
                let detail = || serde_json::json!({ "client": client, "server": server });
                let table = IntervalTable::new(&self.config, &client, &server);
                let text = || {
                    let heading = table.heading();
                    match self.shows_settings {
                        true => {
                            let settings = flow::settings(&self.config, self.ends, &client, &server);
                            format!("{settings}\n\n{heading}")
                        }
                        false => heading,
                    }
                };
                self.out.state("ready", self.out.is_stream().then(detail), || Some(text()));
                self.table = Some(table);
            }
            FlowEvent::Interval(interval) => {
                self.out.interval(&interval, || self.table.map(|table| table.rows(&interval)));
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

    /// The test with the intervals that were seen.
    pub(super) fn measured(&mut self, summary: FlowSummary) -> Measured {
        Measured {
            summary,
            intervals: std::mem::take(&mut self.intervals),
            steering: None,
            delay_lines: Vec::new(),
            latency: None,
        }
    }
}
