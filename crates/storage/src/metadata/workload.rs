//! Workload `storage-metadata`: rates of operations on names, at the client.

use clearstream_schema::{
    TimeSpan,
    control::Failure,
    outcome::{MetricKind, Outcome},
    storage::metadata::{MetadataConfig, MetadataPhase},
};
use clearstream_workload::{CLIENT, Context, Sample, TrialError, Workload};

use super::check;
use crate::{benchmark::trial, trial};

/// The workload.
#[derive(Debug, Clone, Copy, Default)]
pub struct StorageMetadataWorkload;

/// Rate assumed for an operation, until a study has measured it.
const ASSUMED_PER_SECOND: u64 = 2000;

impl Workload for StorageMetadataWorkload {
    type Config = MetadataConfig;

    fn name(&self) -> &'static str {
        "storage-metadata"
    }

    fn title(&self) -> &'static str {
        "Storage: operations on files and directories (mdtest's model)"
    }

    fn check(&self, config: &MetadataConfig) -> Result<(), Failure> {
        trial::check(config.operations.as_deref())?;
        check(config)
    }

    fn time(&self, config: &MetadataConfig) -> TimeSpan {
        let kinds = config.kinds().len() as u64;
        let items = config.items_per_directory.unwrap_or(config.items).saturating_mul(config.rank_count());
        let operations = items.saturating_mul(5 * kinds * u64::from(config.iterations));
        TimeSpan(operations.saturating_mul(1_000_000_000 / ASSUMED_PER_SECOND))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_millis(100)
    }

    fn metrics(&self, config: &MetadataConfig) -> Vec<MetricKind> {
        config.metrics()
    }

    fn receivers(&self, _: &MetadataConfig) -> Vec<&'static str> {
        vec![CLIENT]
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &MetadataConfig) -> Result<Outcome, TrialError> {
        let place = trial::place(context.hosts, &config.directory, config.hosts.as_deref())?;
        let job = config.hosts.as_deref();
        let more = config.more_directories.iter();
        let more = more.map(|directory| Ok(trial::place(context.hosts, directory, job)?.directory));
        let more_directories = more.collect::<Result<_, TrialError>>()?;
        let config =
            MetadataConfig { directory: place.directory.clone(), more_directories, ..config.clone() };
        trial(self, context, (&config, &place), |phase: &MetadataPhase| Sample::new(phase, None))
    }
}
