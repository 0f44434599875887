//! `clearstream rdma send`, `write` and `read`

use std::time::{Duration, Instant};

use clearstream_rdma::{
    Event, RdmaError,
    perftest::{self, Program},
    rping,
};
use clearstream_schema::{
    ByteCount,
    rdma::{RdmaConfig, RdmaOperation, RdmaSummary},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{Target, TargetArgs};
use crate::{
    exit::CommandError,
    interrupt,
    output::{self, Output, Paint, rdma},
};

/// Measure bandwidth or latency of one operation.
#[derive(Debug, clap::Args)]
pub struct TransferArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    config: RdmaConfig,
}

/// Sizes that were measured.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RdmaDocument<'a> {
    /// The result.
    summary: &'a RdmaSummary,
}

impl TransferArgs {
    /// Does it.
    pub fn run(self, operation: RdmaOperation, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        // Invalid options are rejected before a server is started for them.
        clearstream_rdma::validate(&self.config, operation)?;
        let mut config = self.config;
        let port = if config.perftest {
            let program = Program { operation, latency: config.latency };
            config = perftest::settle(program, &config)?;
            perftest::PORT
        } else {
            rping::PORT
        };
        let Target { address, cookie, _agent } = self.target.find(port)?;
        let mut view = View::new(operation, &config, out);
        let mut watch = |event: Event<'_>| view.show(&event);
        let summary = if config.perftest {
            perftest::measure(address, operation, &config, &stop, &mut watch)
        } else {
            let cookie = cookie.unwrap_or_else(rand::random);
            clearstream_rdma::measure(address, cookie, operation, &config, &stop, &mut watch)
        };
        let summary = summary?;
        out.result(&RdmaDocument { summary: &summary }, || rdma::ending(&summary, Paint::for_stdout()))?;
        if summary.results.iter().any(|result| result.verified == Some(false)) {
            return Err(RdmaError::Mismatch("what arrived is not what was sent".to_owned()).into());
        }
        if summary.complete { Ok(()) } else { Err(RdmaError::Stopped.into()) }
    }
}

/// What is reported while the test runs.
struct View<'a> {
    operation: RdmaOperation,
    config: &'a RdmaConfig,
    out: &'a Output,
    started: Instant,
    /// Where a time was asked for.
    expected: Option<Duration>,
    done: usize,
}

/// Tests that take longer than this show how far they are.
const UNREMARKABLE: Duration = Duration::from_secs(2);

impl<'a> View<'a> {
    fn new(operation: RdmaOperation, config: &'a RdmaConfig, out: &'a Output) -> Self {
        let each = config.warm_up.to_std() + config.duration.to_std();
        let all = each * u32::try_from(config.size.0.len()).unwrap_or(u32::MAX);
        let expected = config.iterations.is_none().then_some(all);
        Self { operation, config, out, started: Instant::now(), expected, done: 0 }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Ready(effective) => {
                let text = || {
                    let settings = rdma::settings(self.operation, self.config, effective);
                    format!("{settings}\n{}", rdma::heading(self.config))
                };
                self.out.state("ready", serde_json::to_value(effective).ok(), || Some(text()));
            }
            Event::Size(result) => {
                self.done += 1;
                self.out.interval(result, || Some(rdma::row(self.config, result)));
            }
            Event::Progress(size) => self.advance(*size),
        }
    }

    fn advance(&self, size: ByteCount) {
        let elapsed = self.started.elapsed();
        let left = match self.expected {
            Some(expected) => expected.saturating_sub(elapsed),
            // Counted messages: the sizes to come take as long as those that
            // are done.
            None if self.done > 0 => {
                let to_come = (self.config.size.0.len() - self.done) as f64;
                elapsed.mul_f64(to_come / self.done as f64)
            }
            None => return,
        };
        if elapsed + left > UNREMARKABLE {
            self.out.progress(left, &format!("messages of {}", output::quantity::bytes(size.0)));
        }
    }
}
