//! Workload `message`: latency or bandwidth by message size between the
//! connecting and the listening host.

use std::sync::atomic::AtomicBool;

use crate::message::{MessageConfig, MessageKind, MessagePoint, MessageSummary};
use clearstream_control::Services;
use clearstream_output::Paint;
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    human,
    outcome::{Metric, MetricKind, Outcome, Unit},
};
use clearstream_workload::{
    CLIENT, Context, HostSet, Placement, SERVER, Sample, Samples, TrialError, Verb, Workload,
    two_sided::{self, TwoSidedAgent},
};

use super::{Sides, check::check, formats, mpi, table};
use crate::refuse_options_of_mpi;

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message;

/// Time assumed for a round trip, in addition to that of its bytes.
const ASSUMED_ROUND_TRIP_NS: u64 = 100_000;
/// Rate assumed for the time estimate of a number of iterations.
const ASSUMED_BYTES_PER_SECOND: u64 = 1_250_000_000;

impl Workload for Message {
    type Config = MessageConfig;

    fn name(&self) -> &'static str {
        "message"
    }

    fn title(&self) -> &'static str {
        "Latency and bandwidth of messages over TCP or MPI, by size"
    }

    fn check(&self, config: &MessageConfig) -> Result<(), Failure> {
        check(config)
    }

    fn time(&self, config: &MessageConfig) -> TimeSpan {
        let messages = match config.kind {
            MessageKind::PingPong => 2,
            MessageKind::Stream => u64::from(config.window),
            MessageKind::Bidirectional => 2 * u64::from(config.window),
        };
        let of_size = |bytes: u64| match config.iterations {
            None => config.duration.0,
            Some(iterations) => {
                let transfer = u128::from(bytes) * u128::from(messages) * 1_000_000_000
                    / u128::from(ASSUMED_BYTES_PER_SECOND);
                let transfer = u64::try_from(transfer).unwrap_or(u64::MAX);
                iterations.saturating_mul(transfer.saturating_add(ASSUMED_ROUND_TRIP_NS))
            }
        };
        let sizes = config.message_sizes();
        let all = sizes.iter().map(|size| of_size(size.bytes).saturating_add(config.warm_up.0));
        TimeSpan(all.fold(0, u64::saturating_add))
    }

    fn overhead(&self) -> TimeSpan {
        // Two agents, two threads and a connection.
        TimeSpan::from_millis(300)
    }

    fn metrics(&self, config: &MessageConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn placement(&self, _: &MessageConfig, option: &str) -> Option<Placement> {
        match option {
            "client-core" => Some(Placement { roles: vec![CLIENT], receives: true }),
            "server-core" => Some(Placement { roles: vec![SERVER], receives: true }),
            _ => None,
        }
    }

    fn receivers(&self, config: &MessageConfig) -> Vec<&'static str> {
        match config.kind {
            MessageKind::Stream => vec![SERVER],
            MessageKind::PingPong | MessageKind::Bidirectional => vec![CLIENT, SERVER],
        }
    }

    fn serve(&self, services: Services) -> Services {
        services.with(TwoSidedAgent::<Sides>::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &MessageConfig) -> Result<Outcome, TrialError> {
        check(config)?;
        let mut samples = Samples::of(&mut *context.on_event);
        let mut on_point = |point: &MessagePoint| {
            // Latencies of different sizes are no series over time.
            let latency = point.latency.as_ref().filter(|_| config.size.is_some() && !point.is_perturbed);
            let headline = latency.map(|it| Metric::lower("latency", Unit::Nanoseconds, it.p50_ns as f64));
            let part = human::count(point.size_bytes, "byte");
            samples.add(Sample::new(point, headline).map(|sample| sample.named(part)));
        };
        let outcome = match config.transport.is_mpi() {
            true => mpi::run_on(context.hosts, config, context.stop, &mut on_point),
            false => between_agents(context.hosts, config, context.stop, &mut on_point),
        }?;
        samples.end(outcome)
    }
}

impl Verb for Message {
    type Document = MessageSummary;

    const DOCUMENT: (&'static str, u32) = ("clearstream.message", 1);
    const ABOUT: &'static str =
        "Measure latency and bandwidth of messages over TCP or MPI to another host, by message size";

    fn check_effect(&self, config: &MessageConfig) -> Result<(), Failure> {
        if config.kind == MessageKind::PingPong && config.window != MessageConfig::default().window {
            return Err(Failure::new(
                FailureKind::Invalid,
                "--window is for streams of messages: a ping-pong has one in flight; leave it out, or write \
                 --kind stream",
            ));
        }
        let of_mpi = [("--mpirun", config.mpirun.is_some()), ("--mpi-library", config.mpi_library.is_some())];
        refuse_options_of_mpi(config.transport.is_mpi(), of_mpi)
    }

    fn table(&self, document: &MessageSummary, paint: Paint) -> String {
        table::summary(document, paint)
    }

    fn formats(&self) -> &'static [(&'static str, &'static str)] {
        &formats::FORMATS
    }

    fn formatted(&self, document: &MessageSummary, format: &str) -> String {
        formats::text(document, format)
    }
}

/// Measures between the agents of client and server.
fn between_agents(
    hosts: &mut HostSet<'_>,
    config: &MessageConfig,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&MessagePoint),
) -> Result<Outcome, TrialError> {
    let collected = two_sided::measure::<Sides>(hosts, config, mpi::size_timeout(config), stop, on_point)?;
    let mut notices = collected.notices();
    notices.extend(super::notices::notices(config, &collected.points));
    let summary = MessageSummary {
        complete: collected.is_finished && collected.points.len() == config.message_sizes().len(),
        client: collected.client.report,
        server: collected.server.report,
        mpi: None,
        points: collected.points,
        notices,
        requested: config.clone(),
    };
    two_sided::outcome(summary.outcome()?, collected.broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_every_size() {
        let range = MessageConfig { sizes: "1B-16B".parse().unwrap(), ..MessageConfig::default() };
        // Ten sizes with their perturbations, 200 ms and 20 ms of warm-up each.
        assert_eq!(Workload::time(&Message, &range), TimeSpan::from_millis(2200));
        let counted = MessageConfig { iterations: Some(100), ..range };
        let time = Workload::time(&Message, &counted);
        assert!(time > TimeSpan::from_millis(300) && time < TimeSpan::from_millis(400), "{time}");
        let endless = MessageConfig { iterations: Some(u64::MAX), ..counted };
        assert_eq!(Workload::time(&Message, &endless), TimeSpan(u64::MAX));
    }

    #[test]
    fn cores_are_those_of_one_side() {
        let roles = |option: &str| {
            Workload::placement(&Message, &MessageConfig::default(), option).map(|found| found.roles)
        };
        assert_eq!(roles("client-core"), Some(vec![CLIENT]));
        assert_eq!(roles("server-core"), Some(vec![SERVER]));
        assert_eq!(roles("window"), None);
    }
}
