//! Streaming I/O by many ranks, with IOR's model and terms: every rank has blocks of transfers in one shared
//! file, or in a file of its own; phases begin together; the time of a phase is that of its last rank, from
//! open to close.
//!
//! Ranks are of one agent ([`StreamAgent`], [`calls`]), a process of its own: a file system that does not
//! respond stops it, and never the controller ([`run`]).

mod agent;
pub mod calls;
mod check;
mod engine;
mod layout;
mod pattern;
mod transfer;
mod workload;

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError};
use clearstream_schema::{
    control::Failure,
    flow::Notice,
    human,
    storage::{
        StreamBackend, StreamConfig, StreamPhase, StreamPoint, StreamReorder, StreamSummary,
        stream_statistics,
    },
};

pub use agent::StreamAgent;
use calls::{StreamEnded, StreamFinished, StreamMeasured, StreamRun, StreamStarted, StreamStop};
use check::check;
pub use workload::StorageStream;

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of an agent to stop and remove its files.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The configuration is invalid; nothing was started.
    #[error("{0}")]
    Invalid(Failure),
    /// The agent rejected a call, or was lost.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A rank failed.
    #[error("{0}")]
    Failed(Failure),
    /// The agent did not end within its time: the file system does not respond.
    #[error(
        "{directory} does not respond: the test was not done after {} s and could not be stopped; its folder {folder} \
         remains", .timeout.as_secs()
    )]
    Silent {
        /// The directory.
        directory: String,
        /// Folder of the test.
        folder: String,
        /// Time given.
        timeout: Duration,
    },
}

/// Runs a test at an agent. When `stop` is set or `timeout` is over, the points are those until then.
///
/// # Errors
/// [`StorageError`].
pub fn run(
    agent: &mut Peer,
    config: &StreamConfig,
    timeout: Duration,
    stop: &AtomicBool,
    on_point: &mut dyn FnMut(&StreamPoint),
) -> Result<StreamSummary, StorageError> {
    check(config).map_err(StorageError::Invalid)?;
    let test = rand::random();
    let folder =
        config.name.clone().unwrap_or_else(|| format!("clearstream-stream-{:016x}", rand::random::<u64>()));
    let started: StreamStarted =
        agent.call(&StreamRun { test, folder: folder.clone(), config: config.clone() })?;
    let deadline = Instant::now() + timeout;
    let mut points = Vec::new();
    let mut take = |point: StreamPoint| {
        on_point(&point);
        points.push(point);
    };
    let is_finished = loop {
        if let Some(event) = agent.next_event(POLL_INTERVAL)? {
            if let Some(StreamMeasured { test: of, point }) = event.read()?
                && of == test
            {
                take(point);
            }
            if event.read()?.is_some_and(|StreamFinished { test: of }| of == test) {
                break true;
            }
        }
        if stop.load(Relaxed) || Instant::now() >= deadline {
            break false;
        }
    };
    let ended = end(agent, test, timeout, config, &folder)?;
    if let Some(failure) = ended.failure.filter(|_| is_finished) {
        return Err(StorageError::Failed(failure));
    }
    let expected = config.phases().len() * config.iterations as usize;
    let mut notices = notices(config, &started, &points);
    notices.extend(ended.remains.map(|message| Notice { id: "folder-remains".to_owned(), message }));
    Ok(StreamSummary {
        complete: is_finished && points.len() == expected,
        host: started.hosts.first().cloned(),
        file_system: started.file_system,
        kept_folder: config.keep.then_some(folder),
        statistics: stream_statistics(&points),
        points,
        notices,
        requested: config.clone(),
    })
}

/// Ends the test, within a bounded time.
fn end(
    agent: &mut Peer,
    test: u64,
    timeout: Duration,
    config: &StreamConfig,
    folder: &str,
) -> Result<StreamEnded, StorageError> {
    let (is_late, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let deadline = Instant::now() + STOP_TIMEOUT;
    let ended = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) && Instant::now() < deadline {
                thread::sleep(POLL_INTERVAL / 10);
            }
            is_late.store(true, Relaxed);
        });
        let ended = agent.call_unless(&StreamStop { test }, &is_late);
        is_done.store(true, Relaxed);
        ended
    });
    ended.map_err(|error| match error {
        PeerError::Stopped { .. } => {
            StorageError::Silent { directory: config.directory.clone(), folder: folder.to_owned(), timeout }
        }
        error => error.into(),
    })
}

fn notices(config: &StreamConfig, started: &StreamStarted, points: &[StreamPoint]) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |id: &str, message: String| notices.push(Notice { id: id.to_owned(), message });
    let is_read = points.iter().any(|point| point.phase == StreamPhase::Read);
    let reads_own = (0..config.iterations)
        .any(|iteration| engine::reads_own_host(config.reorder, &started.hosts, iteration));
    if is_read && reads_own && config.reorder != StreamReorder::None {
        add(
            "reorder-within-host",
            "ranks read what their own host wrote, since they are all on one, or in turns on several: the order of \
             reading avoids no cache"
                .to_owned(),
        );
    }
    let most = points.iter().map(|point| point.bytes).max().unwrap_or(0);
    if is_read && reads_own && !config.direct && !config.drop_caches && most < started.memory_bytes {
        add(
            "read-may-be-cached",
            format!(
                "the {} read back may come from the page cache of this client, which has {} of memory: --direct or \
                 --drop-caches shows the file system",
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
    let is_written = points.iter().any(|point| point.phase == StreamPhase::Write);
    if is_written && !config.fsync && !config.direct {
        add(
            "write-may-be-cached",
            "writing ended in the page cache of this client: --fsync includes the time until the data is stored"
                .to_owned(),
        );
    }
    notices
}
