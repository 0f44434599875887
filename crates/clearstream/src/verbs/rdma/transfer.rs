//! `clearstream rdma send`, `write` and `read`

use std::time::{Duration, Instant};

use clearstream_schema::{
    ByteCount,
    rdma::{RdmaConfig, RdmaOperation, RdmaSummary},
};
use serde::Serialize;

use super::{Target, TargetArgs};
use crate::{
    exit::CommandError,
    interrupt,
    output::{self, Paint, progress::Progress, rdma},
    rdma::{
        RdmaError,
        agreement::Shape,
        near::{self, Event},
        perftest::{self, Program},
        rping,
    },
};

/// Measure bandwidth or latency of one operation.
#[derive(Debug, clap::Args)]
pub struct TransferArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    config: RdmaConfig,
    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// `--json`.
#[derive(Debug, Serialize)]
struct RdmaDocument<'a> {
    schema: &'static str,
    version: u32,
    summary: &'a RdmaSummary,
}

impl TransferArgs {
    /// Does it.
    pub fn run(self, operation: RdmaOperation) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        // What makes no sense is refused before a far end is started for it.
        Shape::of(&self.config, operation)?;
        let mut config = self.config;
        let port = if config.perftest {
            let program = Program { operation, latency: config.latency };
            config = perftest::client::settled(program, &config)?;
            perftest::PORT
        } else {
            rping::PORT
        };
        let Target { address, cookie, _own } = self.target.find(port)?;
        let mut view = View::new(operation, &config, self.json);
        let mut watch = |event: Event<'_>| view.show(&event);
        let summary = if config.perftest {
            perftest::client::run(address, operation, &config, &stop, &mut watch)
        } else {
            let cookie = cookie.unwrap_or_else(rand::random);
            near::run(address, cookie, operation, &config, &stop, &mut watch)
        };
        let summary = view.finish(summary)?;
        if self.json {
            let document = RdmaDocument { schema: "clearstream.rdma", version: 1, summary: &summary };
            output::json(&document, true)?;
        } else {
            output::line(&rdma::ending(&summary, Paint::for_stdout()))?;
        }
        if summary.results.iter().any(|result| result.verified == Some(false)) {
            return Err(RdmaError::Mismatch("what arrived is not what was sent".to_owned()).into());
        }
        if summary.complete { Ok(()) } else { Err(RdmaError::Stopped.into()) }
    }
}

/// What the person sees while the test runs.
struct View<'a> {
    operation: RdmaOperation,
    config: &'a RdmaConfig,
    json: bool,
    progress: Option<Progress>,
    started: Instant,
    /// Where a time was asked for.
    expected: Option<Duration>,
    done: usize,
    failed: Option<std::io::Error>,
}

/// Tests that take longer than this show how far they are.
const UNREMARKABLE: Duration = Duration::from_secs(2);

impl<'a> View<'a> {
    fn new(operation: RdmaOperation, config: &'a RdmaConfig, json: bool) -> Self {
        let each = config.warm_up.to_std() + config.duration.to_std();
        let all = each * u32::try_from(config.size.0.len()).unwrap_or(u32::MAX);
        let expected = config.iterations.is_none().then_some(all);
        let (progress, started) = (None, Instant::now());
        Self { operation, config, json, progress, started, expected, done: 0, failed: None }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Ready(effective) => self.line(&format!(
                "{}\n{}",
                rdma::settings(self.operation, self.config, effective),
                rdma::heading(self.config)
            )),
            Event::Size(result) => {
                self.done += 1;
                self.line(&rdma::row(self.config, result));
            }
            Event::Going(size) => self.go_on(*size),
        }
    }

    /// A line above the bar.
    fn line(&mut self, text: &str) {
        if self.json {
            return;
        }
        let written = match &self.progress {
            Some(progress) => progress.beside(|| output::line(text)),
            None => output::line(text),
        };
        if let Err(error) = written {
            self.failed.get_or_insert(error);
        }
    }

    fn go_on(&mut self, size: ByteCount) {
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
            let what = format!("messages of {}", output::quantity::bytes(size.0));
            self.progress.get_or_insert_with(|| Progress::start(left)).update(left, &what);
        }
    }

    /// The bar goes away; what could not be shown is an error.
    fn finish(self, summary: Result<RdmaSummary, RdmaError>) -> Result<RdmaSummary, CommandError> {
        match self.failed {
            Some(error) => Err(error.into()),
            None => Ok(summary?),
        }
    }
}
