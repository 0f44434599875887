//! Streaming I/O by many ranks, with IOR's model and terms: every rank has blocks of transfers in one shared
//! file, or in a file of its own; phases begin together; the time of a phase is that of its last rank, from
//! open to close.
//!
//! Ranks are of one agent ([`crate::StorageAgent`]), a process of its own: a file system that does not
//! respond stops it, and never the controller ([`RankBenchmark::at_agent`]).

mod check;
mod engine;
mod files;
mod kept;
mod layout;
mod memory;
mod mix;
mod pattern;
mod phase;
mod point;
mod prepared;
mod share;
mod transfer;
mod workload;

use std::{path::Path, sync::atomic::AtomicBool, time::Duration};

use clearstream_control::{Peer, PeerError};
use clearstream_ranks::World;
use clearstream_schema::{
    control::FailureKind,
    failure::Classified,
    human,
    notice::Notice,
    outcome::Outcome,
    storage::{
        StreamBackend, StreamConfig, StreamPhase, StreamPoint, StreamReorder, StreamSummary,
        stream_statistics,
    },
};

use crate::{
    CommonOptions, RankBenchmark, RankSummary, StorageError,
    agent::memory,
    calls::{Benchmark, Measured, StorageStarted},
    clock::late_rank,
    controller::{Driven, Ran, drive, remains},
    folder::{STREAM_PREFIX, clear_left_over},
    guard::Guard,
    job::{self, JobOptions, JobPlace},
    live::{Live, OnLive},
    mount::Mount,
    test_folder::{TestFolder, failed_with, with_remains},
};
use check::check;
use engine::Test;
pub(crate) use memory::need;
pub(crate) use prepared::Prepared;

pub use workload::StorageStream;

impl RankBenchmark for StorageStream {
    type Point = StreamPoint;
    type Summary = StreamSummary;

    fn at_agent(
        agent: &mut Peer,
        config: &StreamConfig,
        timeout: Duration,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(&StreamPoint),
        on_live: OnLive<'_>,
    ) -> Result<Ran<StreamSummary>, StorageError> {
        check(config).map_err(StorageError::Invalid)?;
        let folder = folder_name(config);
        let mut points = Vec::new();
        let benchmark = Benchmark::Stream { folder: folder.clone(), config: config.clone() };
        let mut on_measured = |measured| {
            if let Measured::Stream(point) = measured {
                on_point(&point);
                points.push(*point);
            }
        };
        let driven = drive(agent, benchmark, timeout, stop, &mut on_measured, on_live);
        let Driven { started, is_finished, ended, error } = driven.map_err(|error| match error {
            // Nothing was written.
            StorageError::Peer(PeerError::Refused { .. }) => error,
            error => with_kept(error, config, &folder),
        })?;
        let error = error.map(|error| with_kept(error, config, &folder));
        Ran::of(points.is_empty(), error, |failure| {
            let is_whole = is_finished && failure.is_none();
            let kept_folder = config.keep.then_some(folder);
            let summary = summary(config, &started, points, is_whole, ended.notices);
            StreamSummary { kept_folder, failure, ..summary }
        })
    }

    fn as_job(
        place: JobPlace<'_>,
        config: &StreamConfig,
        timeout: Duration,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(&StreamPoint),
        on_live: OnLive<'_>,
    ) -> Result<Ran<StreamSummary>, StorageError> {
        check(config).map_err(StorageError::Invalid)?;
        let options = JobOptions {
            verb: "stream",
            directories: vec![&config.directory],
            hosts: config.hosts.as_deref().unwrap_or_default(),
            tasks: config.tasks,
            mpirun: config.mpirun.as_deref(),
        };
        let mut points = Vec::new();
        // A name that this controller knows also when the ranks cannot report it.
        let folder = folder_name(config);
        let of_ranks = match config.keep {
            true => StreamConfig { name: Some(folder.clone()), ..config.clone() },
            false => config.clone(),
        };
        let mut on_points = |point: StreamPoint| {
            on_point(&point);
            points.push(point);
        };
        let found = job::run(place, &options, &of_ranks, timeout, stop, &mut on_points, on_live);
        let (found, error) = match found {
            Ok(found) => (found, None),
            // What a rank reports has it, where there are files.
            Err(StorageError::Failed(failure))
                if failure.kind == FailureKind::Connection && !failure.message.contains(&folder) =>
            {
                (None, Some(with_kept(StorageError::Failed(failure), config, &folder)))
            }
            Err(error) => (None, Some(error)),
        };
        if let Some(found) = &found {
            let found: &StreamSummary = found;
            job::check_ranks(found.requested.tasks, config.rank_count())?;
        }
        let of_result = found.as_ref().and_then(|found| found.failure.clone()).map(StorageError::Failed);
        Ran::of(points.is_empty(), error.or(of_result), |failure| {
            let stopped = || {
                let started = StorageStarted::of(Mount::unknown(), Vec::new());
                summary(config, &started, points, false, Vec::new())
            };
            StreamSummary { requested: config.clone(), failure, ..found.unwrap_or_else(stopped) }
        })
    }

    fn as_rank(
        world: &mut dyn World,
        config: &StreamConfig,
        stop: &AtomicBool,
        guard: &mut Guard,
        live: &Live,
        on_point: &mut dyn FnMut(&StreamPoint),
    ) -> Result<Option<Ran<StreamSummary>>, StorageError> {
        let tasks = u32::try_from(world.size()).unwrap_or(u32::MAX);
        let config = StreamConfig { tasks, ..config.clone() };
        check(&config).map_err(StorageError::Invalid)?;
        let left_over = (world.rank() == 0).then(|| clear_left_over([&config.directory])).flatten();
        let folder = prepared::enter_together(world, &config)?;
        folder.watch(Some(guard));
        let name = folder.folder.path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut found = ranks_part(world, &config, &folder, (stop, live), on_point);
        if let Ok(Some(ran)) = &mut found {
            ran.found.notices.extend(left_over);
            ran.error =
                ran.error.take().map(|error| with_kept(error, &config, name.as_deref().unwrap_or_default()));
            ran.found.failure = ran.error.as_ref().map(StorageError::to_failure);
        }
        found.map_err(|error| with_kept(error, &config, name.as_deref().unwrap_or_default()))
    }

    fn common(config: &StreamConfig) -> CommonOptions<'_> {
        CommonOptions {
            directory: &config.directory,
            hosts: config.hosts.as_deref(),
            mpi_library: config.mpi_library.as_deref(),
            iterations: config.iterations,
        }
    }

    fn once_in(config: &StreamConfig, directory: &str) -> StreamConfig {
        StreamConfig { directory: directory.to_owned(), iterations: 1, ..config.clone() }
    }
}

impl RankSummary for StreamSummary {
    fn is_complete(&self) -> bool {
        self.complete
    }

    fn notices(&self) -> &[Notice] {
        &self.notices
    }

    fn file_system(&self) -> &str {
        &self.file_system
    }

    fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        self.outcome()
    }
}

/// What a rank does in the folder.
fn ranks_part(
    world: &mut dyn World,
    config: &StreamConfig,
    folder: &TestFolder,
    (stop, live): (&AtomicBool, &Live),
    on_point: &mut dyn FnMut(&StreamPoint),
) -> Result<Option<Ran<StreamSummary>>, StorageError> {
    let mut points = Vec::new();
    let is_first = world.rank() == 0;
    let mut test = match Test::new(world, config, &folder.folder, stop, live) {
        Ok(test) => test,
        Err(error) => {
            // The folder is empty.
            let left = if is_first { folder.leave() } else { Ok(()) };
            return Err(match StorageError::from(error) {
                StorageError::Failed(failure) => StorageError::Failed(failed_with(failure, left)),
                error => error,
            });
        }
    };
    let result = test.run(&mut |point| {
        on_point(&point);
        points.push(point);
    });
    let (hosts, mut notices) = (test.hosts.clone(), test.notices());
    if world.rank() != 0 {
        return result.map(|()| None).map_err(StorageError::from);
    }
    let error = match (result.map_err(StorageError::from), folder.leave()) {
        (Ok(()), left) => {
            let (failure, others) = with_remains(None, left);
            notices.extend(others.map(remains));
            failure.map(StorageError::Failed)
        }
        (Err(StorageError::Failed(failure)), left) => Some(StorageError::Failed(failed_with(failure, left))),
        (Err(error), _) => Some(error),
    };
    let started = StorageStarted {
        memory_bytes: memory(),
        ..StorageStarted::of(Mount::of(Path::new(&config.directory)), hosts)
    };
    let name = folder.folder.path.file_name().map(|name| name.to_string_lossy().into_owned());
    let kept_folder = name.filter(|_| config.keep);
    let ran = Ran::of(points.is_empty(), error, |failure| {
        let is_whole = failure.is_none();
        StreamSummary { kept_folder, failure, ..summary(config, &started, points, is_whole, notices) }
    })?;
    Ok(Some(ran))
}

/// A failure of a test, with where its files are when they were to be kept.
fn with_kept(error: StorageError, config: &StreamConfig, folder: &str) -> StorageError {
    error.with_kept(&config.directory, config.keep.then_some(folder))
}

fn summary(
    config: &StreamConfig,
    started: &StorageStarted,
    points: Vec<StreamPoint>,
    is_finished: bool,
    more: Vec<Notice>,
) -> StreamSummary {
    let expected = config.phases().len() * config.iterations as usize;
    let mut notices = notices(config, started, &points);
    notices.extend(started.left_over.clone());
    notices.extend(more);
    StreamSummary {
        complete: is_finished && points.len() == expected,
        failure: None,
        host: started.hosts.first().cloned(),
        file_system: started.mount.name.clone(),
        kept_folder: None,
        statistics: stream_statistics(&points),
        points,
        notices,
        requested: config.clone(),
    }
}

/// Name of the folder: a new one, unless it was chosen. One that is to stay is not taken for one that is left over.
fn folder_name(config: &StreamConfig) -> String {
    let prefix = if config.keep { "clearstream-kept-" } else { STREAM_PREFIX };
    config.name.clone().unwrap_or_else(|| format!("{prefix}{:016x}", rand::random::<u64>()))
}

fn notices(config: &StreamConfig, started: &StorageStarted, points: &[StreamPoint]) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |id: &str, message: String| notices.push(Notice { id: id.to_owned(), message });
    let is_mixed = points.iter().any(|point| point.phase == StreamPhase::Mixed);
    let is_read = points.iter().any(|point| point.phase.reads());
    let reads_own = is_mixed
        || (0..config.iterations).any(|iteration| share::reads_own_host(config, &started.hosts, iteration));
    let avoids_nothing = is_read && reads_own && config.reorder != StreamReorder::None;
    if avoids_nothing {
        add(
            "reorder-within-host",
            "some ranks read what their own host wrote: the order of reading avoids no cache there"
                .to_owned(),
        );
    }
    let most = points.iter().map(|point| point.bytes).max().unwrap_or(0);
    let is_memory = started.mount.is_memory();
    let may_be_cached = is_read && reads_own && !config.direct && most < started.memory_bytes && !is_memory;
    if may_be_cached && !config.drop_caches {
        add(
            "read-may-be-cached",
            format!(
                "the {} read back may come from the page cache of this client, which has {} of memory: --direct or \
                 --drop-caches goes past it",
                human::bytes(most),
                human::bytes(started.memory_bytes)
            ),
        );
    }
    if config.verify {
        add(
            "verified",
            "contents were generated and checked within the measured time: compare rates only with those of other \
             verified runs"
                .to_owned(),
        );
    }
    if config.backend == StreamBackend::Mmap {
        add(
            "mapped",
            "operation times are of memory: the kernel reads and writes the pages when it sees fit"
                .to_owned(),
        );
    }
    let is_written = points.iter().any(|point| point.phase.writes());
    if is_written && !config.fsync && !config.fsync_per_write && !config.direct && !is_memory {
        add(
            "write-may-be-cached",
            "writing ended in the page cache of this client: --fsync includes the time until the data is stored"
                .to_owned(),
        );
    }
    let phases = points.iter().map(|point| {
        let spans: Vec<_> = point.ranks.iter().map(|rank| rank.span).collect();
        (format!("{} of iteration {}", point.phase.name(), point.iteration), point.total_ns, spans)
    });
    notices.extend(late_rank(phases));
    notices.extend(started.mount.notices(config.drop_caches));
    notices
}
