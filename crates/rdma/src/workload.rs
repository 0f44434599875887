//! Workloads `rdma` and `verbs-calls`: an RDMA test between the connecting and
//! the listening host, and the costs of verbs calls on the connecting host.

use clearstream_control::Services;
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    failure::Classified,
    outcome::{MetricKind, Outcome},
    rdma::{RdmaOperation, RdmaOptions},
    study::Figure,
};
use clearstream_workload::{
    CLIENT, Context, Event, Placement, SERVER, Sample, Samples, TrialError, Workload,
};

use crate::{
    RdmaAgent, VerbsCall, VerbsConfig, VerbsSample, VerbsSummary, calls::Progress, controller::Agents,
    error::AgentError, negotiation, verbs,
};

/// Workload `rdma`: bandwidth or latency of one operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rdma;

/// Workload `verbs-calls`: costs of calls of the verbs interface.
#[derive(Debug, Clone, Copy, Default)]
pub struct VerbsCalls;

/// Rate assumed for the time estimate of a number of messages.
const ASSUMED_BYTES_PER_SECOND: u64 = 500_000_000;
/// Time assumed for a message of a latency test, or of a small one.
const ASSUMED_MESSAGE_NS: u64 = 20_000;
/// Time assumed for a sample of most verbs calls, and of one that connects.
const ASSUMED_CALL_NS: u64 = 50_000;
const ASSUMED_CONNECT_NS: u64 = 1_000_000;

impl Workload for Rdma {
    type Config = RdmaOptions;

    fn name(&self) -> &'static str {
        "rdma"
    }

    fn title(&self) -> &'static str {
        "RDMA Send, Write or Read over TCP: bandwidth or latency"
    }

    fn check(&self, options: &RdmaOptions) -> Result<(), Failure> {
        let config = &options.config;
        negotiation::validate(config, options.operation).map_err(|error| error.to_failure())?;
        if config.perftest || config.rx_depth.is_some() {
            let message = "both ends are clearstream here: leave `perftest` and `rx-depth` out".to_owned();
            return Err(Failure { kind: FailureKind::Invalid, message });
        }
        Ok(())
    }

    fn time(&self, options: &RdmaOptions) -> TimeSpan {
        let config = &options.config;
        let measured = |size: u64| match config.iterations {
            Some(count) => {
                let bytes = size.saturating_mul(1_000_000_000 / ASSUMED_BYTES_PER_SECOND);
                let count = count.saturating_mul(config.queue_pairs.into());
                count.saturating_mul(bytes.max(ASSUMED_MESSAGE_NS))
            }
            None => config.duration.0,
        };
        let each = |size: u64| measured(size).saturating_add(config.warm_up.0);
        TimeSpan(config.size.0.iter().map(|size| each(size.0)).fold(0, u64::saturating_add))
    }

    fn overhead(&self) -> TimeSpan {
        // Listener, connections and memory at both sides, measured on loopback
        // with two cores.
        TimeSpan::from_millis(100)
    }

    fn metrics(&self, options: &RdmaOptions) -> Vec<MetricKind> {
        options.config.metrics()
    }

    fn placement(&self, options: &RdmaOptions, option: &str) -> Option<Placement> {
        let role = match option {
            "core" => CLIENT,
            "remote-core" => SERVER,
            _ => return None,
        };
        Some(Placement { roles: vec![role], receives: self.receivers(options).contains(&role) })
    }

    fn receivers(&self, options: &RdmaOptions) -> Vec<&'static str> {
        match options.operation {
            _ if options.config.both_ways || options.config.latency => vec![CLIENT, SERVER],
            RdmaOperation::Read => vec![CLIENT],
            RdmaOperation::Send | RdmaOperation::Write => vec![SERVER],
        }
    }

    fn serve(&self, services: Services) -> Services {
        services.with(RdmaAgent::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, options: &RdmaOptions) -> Result<Outcome, TrialError> {
        let stop = context.stop;
        let (mut events, latency) = (Samples::of(&mut *context.on_event), options.config.latency);
        let mut samples = Vec::new();
        let mut on_progress = |progress: &Progress| {
            let Progress::Sample(sample) = progress else { return };
            events.add(Sample::new(sample, sample.headline(latency)));
            samples.push(sample.clone());
        };
        let mut agents = Agents::of(context.hosts)?;
        let summary = agents.measure(options.operation, &options.config, stop, &mut on_progress)?;
        if let Some(message) = summary.difference() {
            let message = message.to_owned();
            return Err(Failure { kind: FailureKind::Connection, message }.into());
        }
        summary.notices.iter().cloned().for_each(|notice| events.notice(notice));
        events.end(summary.outcome(&samples)?)
    }
}

impl Workload for VerbsCalls {
    type Config = VerbsConfig;

    fn name(&self) -> &'static str {
        "verbs-calls"
    }

    fn title(&self) -> &'static str {
        "Time of single calls of the verbs interface"
    }

    fn figure(&self) -> Figure {
        Figure::Bars
    }

    // Different calls do different things: their times are not comparable.
    fn compares(&self) -> bool {
        false
    }

    fn check(&self, config: &VerbsConfig) -> Result<(), Failure> {
        verbs::validate(config).map_err(|error| error.to_failure())
    }

    fn time(&self, config: &VerbsConfig) -> TimeSpan {
        let each = match config.call {
            VerbsCall::Connect => ASSUMED_CONNECT_NS,
            _ => ASSUMED_CALL_NS,
        };
        TimeSpan(u64::from(config.count.saturating_add(config.warm_up_count)).saturating_mul(each))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_millis(20)
    }

    fn metrics(&self, _: &VerbsConfig) -> Vec<MetricKind> {
        VerbsSummary::metrics()
    }

    fn placement(&self, _: &VerbsConfig, option: &str) -> Option<Placement> {
        (option == "core").then(|| Placement { roles: vec![CLIENT], receives: false })
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &VerbsConfig) -> Result<Outcome, TrialError> {
        let summary = Agents::of(context.hosts)?.time_verbs(config, context.stop)?;
        let sample = VerbsSample { times_ns: summary.times_ns.clone() };
        (context.on_event)(Event::Sample(Sample::new(&sample, None)?));
        Ok(summary.outcome()?)
    }
}

impl From<AgentError> for TrialError {
    fn from(error: AgentError) -> Self {
        match error {
            AgentError::Peer(error) => error.into(),
            AgentError::Failed { name, failure } => {
                Failure { kind: failure.kind, message: format!("{name}: {}", failure.message) }.into()
            }
            AgentError::Stopped => Self::stopped(error.to_string()),
        }
    }
}
