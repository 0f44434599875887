//! `clearstream rdma send`, `write` and `read`, verbs of their own: the peer may be a program of perftest or rping, with no agent.

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
use clearstream_schema::JsonSchema;
use clearstream_schema::{
    ByteCount,
    rdma::{RdmaConfig, RdmaOperation, RdmaSummary},
};
use serde::Serialize;

use super::{Target, TargetArgs};
use crate::{
    endpoints::{Endpoints, PathArgs},
    exit::CommandError,
    interrupt,
    output::{self, Output, Paint, rdma},
};

/// Measure bandwidth or latency of one operation.
#[derive(Debug, clap::Args)]
pub struct TransferArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The other host: as ssh knows it, `localhost`, or ADDRESS[:PORT] with --pairing. No server has to
    /// run there: agents start both ends
    #[arg(long, value_name = "HOST", conflicts_with_all = ["host", "local", "lab", "perftest"])]
    to: Option<String>,
    #[command(flatten)]
    path: PathArgs,
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
    /// Runs it.
    pub fn run(self, operation: RdmaOperation, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        // Invalid options are rejected before a server is started for them.
        clearstream_rdma::validate(&self.config, operation)?;
        let named = self.target.host.is_some() || self.target.local || self.config.perftest;
        if (self.path.lab.is_some() || self.path.hosts.is_some()) && named {
            return Err(CommandError::usage(
                "--lab and --hosts exclude a host, --local and --perftest: they name both ends",
            ));
        }
        let summary = if self.to.is_some() || self.path.lab.is_some() || self.path.hosts.is_some() {
            self.between_agents(operation, &stop, out)?
        } else {
            self.in_process(operation, &stop, out)?
        };
        out.result(&RdmaDocument { summary: &summary }, || rdma::ending(&summary, Paint::for_stdout()))?;
        if let Some(difference) = summary.difference() {
            return Err(RdmaError::Mismatch(difference.to_owned()).into());
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
        out: &Output,
    ) -> Result<RdmaSummary, CommandError> {
        let mut ends = Endpoints::open(self.to.as_deref(), &self.path)?;
        out.set_hosts(ends.identities());
        let mut hosts = ends.hosts()?;
        let mut agents = Agents { port: self.target.port, ..Agents::of(&mut hosts)? };
        let mut view = View::new(operation, &self.config, out);
        let mut watch = |progress: &Progress| {
            if let Some(event) = progress.event() {
                view.show(&event);
            }
        };
        Ok(agents.measure(operation, &self.config, stop, &mut watch)?)
    }

    /// This process is the client of a server that listens, of ours or of perftest.
    fn in_process(
        &self,
        operation: RdmaOperation,
        stop: &AtomicBool,
        out: &Output,
    ) -> Result<RdmaSummary, CommandError> {
        if self.path.address.is_some() || self.path.pairing.is_some() || !self.path.ssh_options.is_empty() {
            return Err(CommandError::usage(
                "--address, --pairing and --ssh-option need an agent: name the host with --to",
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
        let Target { address, cookie, _agent } = self.target.find(port, self.path.family)?;
        let mut view = View::new(operation, &config, out);
        let mut watch = |event: Event<'_>| view.show(&event);
        let summary = if config.perftest {
            perftest::measure(address, operation, &config, stop, &mut watch)
        } else {
            let cookie = cookie.unwrap_or_else(rand::random);
            clearstream_rdma::measure(address, cookie, operation, &config, stop, &mut watch)
        };
        Ok(summary?)
    }
}

/// Output while the test runs.
struct View<'a> {
    operation: RdmaOperation,
    config: &'a RdmaConfig,
    out: &'a Output,
    started: Instant,
    /// Where a time was requested.
    expected: Option<Duration>,
    done: usize,
}

/// Duration from which on tests show their progress.
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
                self.out.state("ready", clearstream_schema::json::to_value(effective).ok(), || Some(text()));
            }
            Event::Size(result) => {
                self.done += 1;
                let row = || Some(rdma::row(self.config, result));
                self.out.state("size-measured", clearstream_schema::json::to_value(result).ok(), row);
            }
            Event::Sample(sample) => {
                self.out.interval(sample, || None);
                self.advance(ByteCount(sample.size_bytes));
            }
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
