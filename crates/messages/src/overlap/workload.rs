//! Workload `overlap`: bandwidth and availability by interval of work, at the
//! connecting host.

use std::sync::atomic::AtomicBool;

use crate::overlap::{OverlapConfig, OverlapPoint, OverlapSummary, OverlapTransport};
use clearstream_control::Services;
use clearstream_output::Paint;
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    human,
    outcome::{Metric, MetricKind, Outcome, Unit},
    rdma::RdmaProgress,
};
use clearstream_workload::{
    CLIENT, Context, HostSet, Placement, SERVER, Sample, Samples, TrialError, Verb, Workload,
    two_sided::{self, TwoSidedAgent},
};

use super::{Sides, check::check, mpi, table};
use crate::refuse_options_of_mpi;

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct Overlap;

/// Time assumed for an iteration of work, times a thousand.
const ASSUMED_ITERATION_PS: u64 = 1500;
/// Rate assumed for the messages of a cycle.
const ASSUMED_BYTES_PER_SECOND: u64 = 1_250_000_000;
/// Cycles of long work, and twice as much for its warm-up and the work alone.
const LONG_CYCLES: u64 = 4;

impl Workload for Overlap {
    type Config = OverlapConfig;

    fn name(&self) -> &'static str {
        "overlap"
    }

    fn title(&self) -> &'static str {
        "Overlap of work and messages: bandwidth by availability of the core"
    }

    fn check(&self, config: &OverlapConfig) -> Result<(), Failure> {
        check(config)
    }

    fn time(&self, config: &OverlapConfig) -> TimeSpan {
        let window_ns = config.size.0.saturating_mul(2 * u64::from(config.window)).saturating_mul(1_000_000)
            / (ASSUMED_BYTES_PER_SECOND / 1000);
        let of_work = |work: u64| {
            let work_ns = work.saturating_mul(ASSUMED_ITERATION_PS) / 1000;
            let cycle_ns = work_ns.saturating_add(window_ns);
            let measured = match config.iterations {
                Some(iterations) => iterations.saturating_mul(cycle_ns),
                None => config.duration.0.max(LONG_CYCLES.saturating_mul(work_ns)),
            };
            // The work alone takes no longer than the work beside messages.
            measured.saturating_mul(2).saturating_add(config.warm_up.0).saturating_add(work_ns)
        };
        TimeSpan(config.work_counts().into_iter().map(of_work).fold(0, u64::saturating_add))
    }

    fn overhead(&self) -> TimeSpan {
        // Two agents, their threads and connections.
        TimeSpan::from_millis(300)
    }

    fn metrics(&self, config: &OverlapConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn placement(&self, _: &OverlapConfig, option: &str) -> Option<Placement> {
        match option {
            "client-core" => Some(Placement { roles: vec![CLIENT], receives: true }),
            "server-core" => Some(Placement { roles: vec![SERVER], receives: true }),
            _ => None,
        }
    }

    fn receivers(&self, _: &OverlapConfig) -> Vec<&'static str> {
        vec![CLIENT, SERVER]
    }

    fn serve(&self, services: Services) -> Services {
        services.with(TwoSidedAgent::<Sides>::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &OverlapConfig) -> Result<Outcome, TrialError> {
        check(config)?;
        let mut samples = Samples::of(&mut *context.on_event);
        let is_single = config.work_counts().len() == 1;
        let mut on_point = |point: &OverlapPoint| {
            // Bandwidths of different work are no series over time.
            let headline =
                is_single.then(|| Metric::higher("bandwidth", Unit::BitsPerSecond, point.bandwidth_bps));
            let part = human::count(point.work_count, "iteration");
            samples.add(Sample::new(point, headline).map(|sample| sample.named(part)));
        };
        let outcome = match config.transport.is_mpi() {
            true => mpi::run_on(context.hosts, config, context.stop, &mut on_point),
            false => between_agents(context.hosts, config, context.stop, &mut on_point),
        }?;
        samples.end(outcome)
    }
}

impl Verb for Overlap {
    type Document = OverlapSummary;

    const DOCUMENT: (&'static str, u32) = ("clearstream.overlap", 1);
    const ABOUT: &'static str =
        "Measure how much of a core stays free for work while messages move, by transport";

    fn check_effect(&self, config: &OverlapConfig) -> Result<(), Failure> {
        if config.transport != OverlapTransport::Iwarp && config.progress != RdmaProgress::default() {
            return Err(Failure::new(
                FailureKind::Invalid,
                "--progress is of this program's own queue pairs: leave it out, or write --transport iwarp",
            ));
        }
        let of_mpi = [("--mpirun", config.mpirun.is_some()), ("--mpi-library", config.mpi_library.is_some())];
        refuse_options_of_mpi(config.transport.is_mpi(), of_mpi)
    }

    fn table(&self, document: &OverlapSummary, paint: Paint) -> String {
        table::summary(document, paint)
    }
}

/// Measures between the agents of client and server.
fn between_agents(
    hosts: &mut HostSet<'_>,
    config: &OverlapConfig,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&OverlapPoint),
) -> Result<Outcome, TrialError> {
    let collected = two_sided::measure::<Sides>(hosts, config, mpi::point_timeout(config), stop, on_point)?;
    let mut notices = collected.notices();
    notices.extend(super::notices::notices(config, &collected.points));
    let summary = OverlapSummary {
        complete: collected.is_finished && collected.points.len() == config.work_counts().len(),
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
    fn the_time_is_that_of_every_interval_twice_and_its_warm_up() {
        let short = OverlapConfig { work: "1-100".parse().unwrap(), ..OverlapConfig::default() };
        // Seven intervals, 200 ms of messages and of work, 20 ms of warm-up; the work itself is nothing.
        let time = Workload::time(&Overlap, &short);
        assert!(time >= TimeSpan::from_millis(7 * 420) && time < TimeSpan::from_millis(7 * 421), "{time}");
        // Four cycles of 1.5 s, twice, and one in the warm-up.
        let long = OverlapConfig { work: "1e9".parse().unwrap(), ..OverlapConfig::default() };
        assert_eq!(Workload::time(&Overlap, &long), TimeSpan::from_millis(13_520));
        // Two windows of 16 messages of 100 KiB take 2.6 ms at 10 Gb/s.
        let counted = OverlapConfig { iterations: Some(100), work: "1".parse().unwrap(), ..short };
        let time = Workload::time(&Overlap, &counted);
        assert!(time > TimeSpan::from_millis(520) && time < TimeSpan::from_millis(560), "{time}");
        let endless = OverlapConfig { iterations: Some(u64::MAX), ..counted };
        assert_eq!(Workload::time(&Overlap, &endless), TimeSpan(u64::MAX));
    }

    #[test]
    fn cores_are_those_of_one_side() {
        let roles = |option: &str| {
            Workload::placement(&Overlap, &OverlapConfig::default(), option).map(|found| found.roles)
        };
        assert_eq!(roles("client-core"), Some(vec![CLIENT]));
        assert_eq!(roles("server-core"), Some(vec![SERVER]));
        assert_eq!(roles("window"), None);
    }
}
