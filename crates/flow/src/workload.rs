//! The workload `flow`: one flow test between a connecting and a listening host.

use std::sync::atomic::AtomicBool;

use clearstream_control::Services;
use clearstream_schema::{
    TimeSpan,
    control::Failure,
    flow::{Direction, FlowConfig, FlowSummary, Interval},
    outcome::{Metric, MetricKind, Outcome, Unit},
    study::Figure,
};
use clearstream_workload::{
    CLIENT, Context, HostSet, Placement, SERVER, Sample, Samples, TrialError, Workload,
};

use crate::{FlowAgent, FlowError, FlowEvent, Open, check, run, schedule::Schedule};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flow;

/// Rate assumed for the time estimate of a flow limited by bytes.
const ASSUMED_BYTES_PER_SECOND: u64 = 1_250_000_000;

/// Roles of the hosts that send, and of those that receive.
fn roles(direction: Direction) -> (Vec<&'static str>, Vec<&'static str>) {
    match direction {
        Direction::Forward => (vec![CLIENT], vec![SERVER]),
        Direction::Reverse => (vec![SERVER], vec![CLIENT]),
        Direction::Both => (vec![CLIENT, SERVER], vec![CLIENT, SERVER]),
    }
}

impl Workload for Flow {
    type Config = FlowConfig;

    fn name(&self) -> &'static str {
        "flow"
    }

    fn title(&self) -> &'static str {
        "Bulk TCP or UDP flows"
    }

    fn figure(&self) -> Figure {
        Figure::Throughput
    }

    fn check(&self, config: &FlowConfig) -> Result<(), Failure> {
        check::check(config)
    }

    fn time(&self, config: &FlowConfig) -> TimeSpan {
        let measured = match config.bytes {
            Some(bytes) => bytes
                .0
                .saturating_mul(u64::from(config.flows))
                .div_ceil(ASSUMED_BYTES_PER_SECOND)
                .saturating_mul(1_000_000_000),
            None => config.duration.0,
        };
        TimeSpan(config.warm_up.0.saturating_add(measured))
    }

    fn overhead(&self) -> TimeSpan {
        // Sockets, threads and replies, measured on loopback with two cores.
        TimeSpan::from_millis(700)
    }

    fn metrics(&self, config: &FlowConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn placement(&self, config: &FlowConfig, option: &str) -> Option<Placement> {
        let (senders, receivers) = roles(config.direction);
        match option {
            "sender-cores" => Some(Placement { roles: senders, receives: false }),
            "receiver-cores" => Some(Placement { roles: receivers, receives: true }),
            _ => None,
        }
    }

    fn receivers(&self, config: &FlowConfig) -> Vec<&'static str> {
        roles(config.direction).1
    }

    fn serve(&self, services: Services) -> Services {
        services.with(FlowAgent::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &FlowConfig) -> Result<Outcome, TrialError> {
        let (schedule, mut samples) = (Schedule::new(config), Samples::of(&mut *context.on_event));
        let result = run_on(context.hosts, config, context.stop, &mut |event| match event {
            FlowEvent::Interval(interval) => {
                let goodput = Metric::higher("goodput", Unit::BitsPerSecond, interval.goodput_bps);
                let headline = (!interval.warm_up).then_some(goodput);
                let end = end_of(&interval, config, schedule);
                samples.add(Sample::new(&interval, headline).map(|sample| sample.ending_at(end)));
            }
            FlowEvent::Notice(notice) => samples.notice(notice),
            FlowEvent::Ready { .. } => {}
        });
        samples.end(result?.outcome()?)
    }
}

/// End of an interval: as scheduled, which is the same in every repetition. Threads wake up a
/// little later. What ends much earlier was cut short.
fn end_of(interval: &Interval, config: &FlowConfig, schedule: Schedule) -> u64 {
    let measured = interval.client.end_ns.max(interval.server.end_ns);
    let scheduled =
        schedule.end_of(interval.index).map(|end| u64::try_from(end.as_nanos()).unwrap_or(u64::MAX));
    scheduled.filter(|scheduled| measured + config.interval.0 / 10 >= *scheduled).unwrap_or(measured)
}

/// Runs one flow test between the client and the server of a set of hosts, as [`run`]; its warm-up tries nothing.
///
/// # Errors
/// As [`run`], and [`FlowError::Invalid`] for a set without these hosts.
pub fn run_on(
    hosts: &mut HostSet<'_>,
    config: &FlowConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(FlowEvent),
) -> Result<FlowSummary, FlowError> {
    run_adapting(hosts, config, Open::default(), stop, on_event)
}

/// As [`run_on`], with a warm-up that tries what is open.
///
/// # Errors
/// As [`run_on`].
pub fn run_adapting(
    hosts: &mut HostSet<'_>,
    config: &FlowConfig,
    open: Open,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(FlowEvent),
) -> Result<FlowSummary, FlowError> {
    let (client, server) = hosts.client_and_server().map_err(|error| FlowError::Invalid(error.failure))?;
    let address = server.known_address().map_err(|error| FlowError::Invalid(error.failure))?;
    run(client.peer, server.peer, address, config, open, stop, on_event)
}

/// Results up to an interruption are in its samples already.
impl From<FlowError> for TrialError {
    fn from(error: FlowError) -> Self {
        match error {
            FlowError::Invalid(failure) => failure.into(),
            FlowError::Peer(error) => error.into(),
            FlowError::PeerLost { source, .. } => Self::lost(source.to_string()),
            FlowError::Failed { name, failure, .. } => {
                Failure { kind: failure.kind, message: format!("{name}: {}", failure.message) }.into()
            }
        }
    }
}
