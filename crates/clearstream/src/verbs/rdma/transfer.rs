//! `clearstream rdma send`, `write` and `read`

use std::{
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use clearstream_rdma::{
    Agents, Event, RdmaError,
    calls::Progress,
    perftest::{self, Program},
    rping,
};
use clearstream_schema::{
    ByteCount,
    rdma::{RDMA_SUMMARY_SCHEMA, RdmaConfig, RdmaOperation, RdmaSummary},
};
use serde::Serialize;

use super::{Target, TargetArgs};
use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{self, Paint, progress, rdma},
};

/// Measure bandwidth or latency of one operation.
#[derive(Debug, clap::Args)]
pub struct TransferArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Start both ends by agents: here, and on this host as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing
    #[arg(long, value_name = "HOST", conflicts_with_all = ["TargetArgs", "lab", "perftest"])]
    to: Option<String>,
    #[command(flatten)]
    path: PathArgs,
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
        // Invalid options are rejected before a server is started for them.
        clearstream_rdma::validate(&self.config, operation)?;
        let named = self.target.host.is_some() || self.target.local || self.config.perftest;
        if self.path.lab.is_some() && named {
            return Err(CommandError::usage(
                "--lab excludes a host, --local and --perftest: its hosts are both ends",
            ));
        }
        let summary = if self.to.is_some() || self.path.lab.is_some() {
            self.between_agents(operation, &stop)?
        } else {
            self.in_process(operation, &stop)?
        };
        if self.json {
            let document = RdmaDocument { schema: RDMA_SUMMARY_SCHEMA, version: 1, summary: &summary };
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

impl TransferArgs {
    /// Both ends are agents, as those of a study's workload `rdma`.
    fn between_agents(
        &self,
        operation: RdmaOperation,
        stop: &AtomicBool,
    ) -> Result<RdmaSummary, CommandError> {
        let mut ends = Endpoints::open(self.to.as_deref(), &self.path)?;
        let mut agents = Agents {
            client: &mut ends.client,
            server: &mut ends.server,
            client_address: ends.client_address,
            server_address: ends.server_address,
        };
        let mut view = View::new(operation, &self.config, self.json);
        let mut watch = |progress: &Progress| {
            if let Some(event) = progress.event() {
                view.show(&event);
            }
        };
        let summary = agents.measure(operation, &self.config, stop, &mut watch);
        view.finish(summary)
    }

    /// This process is the client of a server that listens, of ours or of perftest.
    fn in_process(&self, operation: RdmaOperation, stop: &AtomicBool) -> Result<RdmaSummary, CommandError> {
        if self.path.address.is_some() || self.path.pairing.is_some() || !self.path.ssh_options.is_empty() {
            return Err(CommandError::usage(
                "--address, --pairing and --ssh-option are about agents: name the host with --to",
            ));
        }
        let mut config = self.config.clone();
        let port = if config.perftest {
            let program = Program { operation, latency: config.latency };
            config = perftest::settle(program, &config)?;
            perftest::PORT
        } else {
            rping::PORT
        };
        let Target { address, cookie, _agent } = self.target.find(port)?;
        let mut view = View::new(operation, &config, self.json);
        let mut watch = |event: Event<'_>| view.show(&event);
        let summary = if config.perftest {
            perftest::measure(address, operation, &config, stop, &mut watch)
        } else {
            let cookie = cookie.unwrap_or_else(rand::random);
            clearstream_rdma::measure(address, cookie, operation, &config, stop, &mut watch)
        };
        view.finish(summary)
    }
}

/// What the person sees while the test runs.
struct View<'a> {
    operation: RdmaOperation,
    config: &'a RdmaConfig,
    json: bool,
    progress: Option<progress::Progress>,
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
            Event::Sample(sample) => self.advance(ByteCount(sample.size_bytes)),
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

    fn advance(&mut self, size: ByteCount) {
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
            self.progress.get_or_insert_with(|| progress::Progress::start(left)).update(left, &what);
        }
    }

    /// The bar goes away; what could not be shown is an error.
    fn finish<E: Into<CommandError>>(
        self,
        summary: Result<RdmaSummary, E>,
    ) -> Result<RdmaSummary, CommandError> {
        match self.failed {
            Some(error) => Err(error.into()),
            None => summary.map_err(Into::into),
        }
    }
}
