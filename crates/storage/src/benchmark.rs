//! The two benchmarks of ranks, streams and metadata, as whoever runs them sees them: at an agent, whose threads are the
//! ranks, as a job of MPI, or as one rank of such a job.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_control::Peer;
use clearstream_ranks::World;
use clearstream_schema::{notice::Notice, outcome::Outcome};
use clearstream_workload::{Context, Sample, Samples, TrialError, Workload};
use serde::Serialize;

use crate::{JobPlace, Live, OnLive, Ran, StorageError, guard::Guard, trial};

/// A benchmark of ranks.
pub trait RankBenchmark: Workload + Default {
    /// What is measured of one phase.
    type Point: Serialize;
    /// The document.
    type Summary: RankSummary;

    /// Runs it at an agent. When `stop` is set or `timeout` is over, the points are those until then.
    ///
    /// # Errors
    /// [`StorageError`].
    fn at_agent(
        agent: &mut Peer,
        config: &Self::Config,
        timeout: Duration,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(&Self::Point),
        on_live: OnLive<'_>,
    ) -> Result<Ran<Self::Summary>, StorageError>;

    /// Runs it by ranks on the hosts of the options, processes of an MPI job, as [`Self::at_agent`].
    ///
    /// # Errors
    /// [`StorageError`].
    fn as_job(
        place: JobPlace<'_>,
        config: &Self::Config,
        timeout: Duration,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(&Self::Point),
        on_live: OnLive<'_>,
    ) -> Result<Ran<Self::Summary>, StorageError>;

    /// One process of an MPI job as a rank; every rank calls it with the same configuration. Rank 0 has the result, and
    /// `on_point` sees each point there.
    ///
    /// # Errors
    /// [`StorageError`]: the same one at every rank, unless a rank was lost.
    fn as_rank(
        world: &mut dyn World,
        config: &Self::Config,
        stop: &AtomicBool,
        guard: &mut Guard,
        live: &Live,
        on_point: &mut dyn FnMut(&Self::Point),
    ) -> Result<Option<Ran<Self::Summary>>, StorageError>;

    /// The options that both have.
    fn common(config: &Self::Config) -> CommonOptions<'_>;

    /// The options of one iteration in another directory.
    fn once_in(config: &Self::Config, directory: &str) -> Self::Config;
}

/// Options of both benchmarks.
#[derive(Debug, Clone, Copy)]
pub struct CommonOptions<'a> {
    /// The directory, of several the first.
    pub directory: &'a str,
    /// Hosts of an MPI job.
    pub hosts: Option<&'a str>,
    /// The ranks' library.
    pub mpi_library: Option<&'a str>,
    /// How often all phases run.
    pub iterations: u32,
}

/// What the documents of both say.
pub trait RankSummary {
    /// Whether all phases ran to their end.
    fn is_complete(&self) -> bool;

    /// What limits what the numbers mean.
    fn notices(&self) -> &[Notice];

    /// Name of the file system.
    fn file_system(&self) -> &str;

    /// As a result of a trial.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    fn outcome(&self) -> Result<Outcome, serde_json::Error>;
}

/// Runs a trial, of a configuration with the whole path of its directory.
pub(crate) fn trial<B: RankBenchmark>(
    benchmark: &B,
    context: &mut Context<'_, '_>,
    (config, place): (&B::Config, &trial::Place),
    sample: impl Fn(&B::Point) -> Result<Sample, serde_json::Error>,
) -> Result<Outcome, TrialError> {
    let timeout = trial::timeout(benchmark.time(config));
    let mut samples = Samples::of(&mut *context.on_event);
    let mut on_point = |point: &B::Point| samples.add(sample(point));
    let found = if B::common(config).hosts.is_some() {
        let job = JobPlace { lab: context.hosts.lab(), program: context.hosts.program() };
        B::as_job(job, config, timeout, context.stop, &mut on_point, &|_| ())
    } else {
        let agent = trial::agent(context.hosts, place)?;
        B::at_agent(agent, config, timeout, context.stop, &mut on_point, &|_| ())
    };
    samples.end(found?.whole()?.outcome()?)
}
