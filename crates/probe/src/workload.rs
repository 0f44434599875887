//! The workload `probe`: delay and path MTU between a connecting and a listening host.

use std::sync::atomic::AtomicBool;

use clearstream_control::Services;
use clearstream_output::Paint;
use clearstream_schema::{
    TimeSpan,
    outcome::{MetricKind, Outcome},
    probe::{ProbeConfig, ProbeDirection, ProbeSummary},
    study::Figure,
};
use clearstream_workload::{Context, HostSet, TrialError, Verb, Workload};

use crate::{ProbeAgent, round_trips, run, table};

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

    fn figure(&self) -> Figure {
        Figure::Delay
    }

    fn time(&self, config: &ProbeConfig) -> TimeSpan {
        // UDP and TCP in sequence, from both sides.
        TimeSpan(config.interval.0.saturating_mul(u64::from(config.count)).saturating_mul(4))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_seconds(2)
    }

    fn metrics(&self, _: &ProbeConfig) -> Vec<MetricKind> {
        ProbeConfig::metrics()
    }

    fn serve(&self, services: Services) -> Services {
        services.with(ProbeAgent::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &ProbeConfig) -> Result<Outcome, TrialError> {
        let summary = run_on(context.hosts, config, context.stop)?;
        Ok(summary.outcome()?)
    }
}

impl Verb for Probe {
    type Document = ProbeSummary;

    const DOCUMENT: (&'static str, u32) = ("clearstream.probe", 1);
    const ABOUT: &'static str = "Measure delay, loss, path MTU and hops to another host, in both directions";

    fn table(&self, document: &ProbeSummary, paint: Paint) -> String {
        table::summary(document, paint)
    }
}

/// Probes between the client and the server of a set of hosts, as [`run`].
///
/// # Errors
/// As [`run`], and a set without these hosts.
pub fn run_on(
    hosts: &mut HostSet<'_>,
    config: &ProbeConfig,
    stop: &AtomicBool,
) -> Result<ProbeSummary, TrialError> {
    let (client, server) = hosts.client_and_server()?;
    let address = server.known_address()?;
    Ok(run(client.peer, server.peer, client.address, address, config, stop)?)
}

/// UDP round trips between the client and the server of a set of hosts, as
/// [`round_trips`].
///
/// # Errors
/// As [`round_trips`], and a set without these hosts.
pub fn round_trips_on(
    hosts: &mut HostSet<'_>,
    config: &ProbeConfig,
    stop: &AtomicBool,
) -> Result<ProbeDirection, TrialError> {
    let (client, server) = hosts.client_and_server()?;
    let address = server.known_address()?;
    Ok(round_trips(client.peer, server.peer, address, config, stop)?)
}
