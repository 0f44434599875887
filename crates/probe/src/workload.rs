//! The workload `probe`: delay and path MTU between the host that connects and
//! the one that listens.

use clearstream_schema::{TimeSpan, outcome::Outcome, probe::ProbeConfig};
use clearstream_workload::{Context, TrialError, Workload};

use crate::run;

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Probe;

impl Workload for Probe {
    type Config = ProbeConfig;

    fn name(&self) -> &'static str {
        "probe"
    }

    fn title(&self) -> &'static str {
        "Delay, loss and path MTU, one packet at a time"
    }

    fn time(&self, config: &ProbeConfig) -> TimeSpan {
        // UDP and TCP one after the other, from both sides.
        TimeSpan(config.interval.0.saturating_mul(u64::from(config.count)).saturating_mul(4))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_seconds(2)
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &ProbeConfig) -> Result<Outcome, TrialError> {
        let (client, server) = context.hosts.client_and_server()?;
        let address =
            server.address.ok_or_else(|| TrialError::internal("the server's address is not known"))?;
        let summary = run(client.peer, server.peer, client.address, address, config, context.stop)?;
        Ok(summary.outcome()?)
    }
}
