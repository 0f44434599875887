//! Workload `storage-stream`: bandwidth of writing and reading at the client.

use clearstream_schema::{
    TimeSpan,
    control::Failure,
    outcome::{Metric, MetricKind, Outcome, Unit},
    storage::{StreamConfig, StreamPhase, StreamPoint, bandwidth_name},
};
use clearstream_workload::{CLIENT, Context, Sample, TrialError, Workload};

use super::check::check;
use crate::{benchmark::trial, trial};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct StorageStream;

/// Rate assumed for a file system, until a study has measured it.
const ASSUMED_BYTES_PER_SECOND: u64 = 500_000_000;

impl Workload for StorageStream {
    type Config = StreamConfig;

    fn name(&self) -> &'static str {
        "storage-stream"
    }

    fn title(&self) -> &'static str {
        "Storage: streaming to and from files (IOR's model)"
    }

    fn check(&self, config: &StreamConfig) -> Result<(), Failure> {
        trial::check(config.operations.as_deref())?;
        check(config)
    }

    fn time(&self, config: &StreamConfig) -> TimeSpan {
        let bytes = u128::from(config.transfer_count())
            * u128::from(config.transfer.0)
            * u128::from(config.rank_count());
        let whole_ns =
            u64::try_from(bytes * 1_000_000_000 / u128::from(ASSUMED_BYTES_PER_SECOND)).unwrap_or(u64::MAX);
        let of_phase = |phase: &StreamPhase| match (phase, config.stonewall) {
            (StreamPhase::Write | StreamPhase::Mixed, Some(stonewall)) => whole_ns.min(stonewall.0),
            // What was written in that time is read faster, mostly.
            (StreamPhase::Read, Some(stonewall)) => whole_ns.min(stonewall.0),
            (_, None) => whole_ns,
        };
        let of_iteration = config
            .phases()
            .iter()
            .map(|phase| of_phase(phase).saturating_add(config.pause.0))
            .fold(0, u64::saturating_add);
        TimeSpan(of_iteration.saturating_mul(u64::from(config.iterations)))
    }

    fn overhead(&self) -> TimeSpan {
        // The folder, the ranks, and the removal of the files.
        TimeSpan::from_millis(100)
    }

    fn metrics(&self, config: &StreamConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn receivers(&self, _: &StreamConfig) -> Vec<&'static str> {
        vec![CLIENT]
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &StreamConfig) -> Result<Outcome, TrialError> {
        let place = trial::place(context.hosts, &config.directory, config.hosts.as_deref())?;
        let config = StreamConfig { directory: place.directory.clone(), ..config.clone() };
        trial(self, context, (&config, &place), |point: &StreamPoint| {
            let name = bandwidth_name(point.phase);
            let is_headline = config.metrics().first().is_some_and(|kind| kind.name == name);
            let headline =
                is_headline.then(|| Metric::higher(name, Unit::BytesPerSecond, point.bandwidth_bps / 8.0));
            Sample::new(point, headline)
        })
    }
}
