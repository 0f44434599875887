//! Streaming I/O by many ranks, with IOR's model and terms: every rank has blocks of transfers in one shared
//! file, or in a file of its own; phases begin together; the time of a phase is that of its last rank, from
//! open to close.
//!
//! Ranks are of one agent ([`crate::StorageAgent`]), a process of its own: a file system that does not
//! respond stops it, and never the controller ([`run`]).

mod check;
mod engine;
mod layout;
mod pattern;
mod prepared;
mod transfer;
mod workload;

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_control::Peer;
use clearstream_schema::{
    flow::Notice,
    human,
    storage::{
        StreamBackend, StreamConfig, StreamPhase, StreamPoint, StreamReorder, StreamSummary,
        stream_statistics,
    },
};

use crate::{
    StorageError,
    calls::{Benchmark, Measured, StorageStarted},
    controller::{Driven, drive},
};
use check::check;
pub(crate) use prepared::Prepared;
pub use workload::StorageStream;

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
    let new_name = || format!("clearstream-stream-{:016x}", rand::random::<u64>());
    let folder = config.name.clone().unwrap_or_else(new_name);
    let mut points = Vec::new();
    let benchmark = Benchmark::Stream { folder: folder.clone(), config: config.clone() };
    let Driven { started, is_finished, ended } = drive(agent, benchmark, timeout, stop, &mut |measured| {
        if let Measured::Stream(point) = measured {
            on_point(&point);
            points.push(*point);
        }
    })?;
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

fn notices(config: &StreamConfig, started: &StorageStarted, points: &[StreamPoint]) -> Vec<Notice> {
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
