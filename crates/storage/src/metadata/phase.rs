//! One rank's part of one phase, and the figures of all ranks.

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use clearstream_ranks::World;
use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::{
        StorageStatistics,
        metadata::{
            MetadataConfig, MetadataKind, MetadataOperation, MetadataPhase, MetadataStonewall,
            MetadataSummary,
        },
    },
};
use quanta::Instant;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::{
    MetadataError, file_error,
    folder::{Contents, Items, Places, named},
    tree::Tree,
};
use crate::{
    clock::{self, Clocks, Spans, Times},
    kept::Piece,
    latency::{Latency, LatencyCounts},
    live::{Count, LivePhase},
    operations_log::{Operation, Record, Records},
};

/// What a phase is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    /// Where this rank counts.
    pub(super) live: Count<'a>,
    pub(super) config: &'a MetadataConfig,
    pub(super) tree: Tree,
    pub(super) stop: &'a AtomicBool,
    pub(super) iteration: u32,
    /// Number in the names of the trees.
    pub(super) tree_iteration: u32,
    /// Of items that an earlier run left.
    pub(super) is_earlier: bool,
    pub(super) kind: MetadataKind,
    pub(super) operation: MetadataOperation,
    pub(super) places: &'a Places,
    /// Items of this rank, or directories of the tree.
    pub(super) pieces: &'a [Piece],
}

/// Result of a phase at one rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RankPhase {
    pub(super) operations: u64,
    /// Items that are done with: operations, and directories that stay because others have files in them.
    pub(super) done: u64,
    /// The item whose creation failed is there.
    pub(super) is_partial: bool,
    /// Items when the stonewall's time was over, and the time since the begin.
    at_wall: Option<(u64, u64)>,
    latency: LatencyCounts,
    pub(super) failure: Option<Failure>,
    /// The run has to end.
    pub(super) is_over: bool,
}

/// A phase that is about to begin, of so many operations of all ranks, for those who look on.
pub(super) fn live(
    config: &MetadataConfig,
    (kind, operation): (MetadataKind, MetadataOperation),
    iteration: u32,
    expected: u64,
) -> LivePhase {
    let bytes_each = match (kind, operation) {
        (MetadataKind::File, MetadataOperation::Create) => config.write_bytes.0,
        (MetadataKind::File, MetadataOperation::Read) => config.read_bytes.0,
        _ => 0,
    };
    let is_walled = operation == MetadataOperation::Create && kind != MetadataKind::Tree;
    LivePhase {
        name: format!("{} {}", kind.name(), operation.name()),
        iteration,
        expected,
        bytes_each,
        stonewall: config.stonewall.filter(|_| is_walled).map(|time| time.to_std()),
    }
}

/// Runs it; all ranks call it together. When they worked is known at rank 0.
pub(super) fn run(
    world: &mut dyn World,
    clocks: &Clocks,
    task: Task<'_>,
    records: &mut Option<Records>,
) -> Result<(RankPhase, Option<Spans>), MetadataError> {
    let Task { config, kind, operation, places, .. } = task;
    let bytes = match operation {
        MetadataOperation::Create => config.write_bytes.0,
        _ => config.read_bytes.0,
    };
    let mut latency = Latency::default();
    let room = Contents::new(config, operation, usize::try_from(bytes).unwrap_or(usize::MAX));
    let (mut contents, failure) = match room {
        Ok(contents) => (contents, None),
        Err(error) => (
            Contents::Read(Vec::new()),
            Some(Failure::of_file(&format!("hold {bytes} bytes of an item"), &error)),
        ),
    };
    let mut result = RankPhase { failure, ..RankPhase::default() };
    let is_over = || task.stop.load(Relaxed);
    let begun = clocks.begin(world)?;
    records.iter_mut().for_each(Records::begin);
    let (begin, start) = (clock::now(), Instant::now());
    let stonewall = config.stonewall.filter(|_| operation == MetadataOperation::Create);
    let stonewall = stonewall.filter(|_| kind != MetadataKind::Tree).map(|time| start + time.to_std());
    let mut now = start;
    let all: u64 = task.pieces.iter().map(|piece| piece.count).sum();
    let (mut limit, mut stonewall) = (all, stonewall);
    let all_of = |(file, piece): (usize, &Piece)| {
        let piece = *piece;
        (0..piece.count).map(move |number| (file, piece, number))
    };
    let mut items = task.pieces.iter().enumerate().flat_map(all_of);
    while result.failure.is_none() {
        let is_walled = stonewall.is_some_and(|end| now >= end) || result.done >= limit;
        if is_over() || is_walled {
            // Those that are behind go on to the number of the fastest rank.
            if stonewall.take().is_none() || !config.wear_out {
                break;
            }
            result.at_wall = Some((result.operations, nanoseconds(start.elapsed())));
            let most = world.reduce(&[result.operations], u64::max)?;
            limit = most.first().copied().unwrap_or(0).min(all);
            continue;
        }
        let Some((file, piece, number)) = items.next() else { break };
        let (name, folder) = (name(task, piece, number), places.of(piece.owner));
        contents.prepare();
        let before = Instant::now();
        let done = match kind {
            MetadataKind::Tree if operation == MetadataOperation::Create => folder.make(&name),
            MetadataKind::Tree => folder.remove_directory(&name),
            _ => folder.operate(kind, operation, &name, &mut contents),
        };
        now = Instant::now();
        match done {
            Ok(()) => {
                latency.add((now - before).max(Duration::from_nanos(1)));
                if let Some(records) = records {
                    records.add(record(task, (file, number), (before, now)));
                }
                result.operations += 1;
                task.live.set(result.operations);
            }
            Err(error) if stays(task, &error) => {}
            Err(error) => {
                // It failed behind its creation, unless it is somebody else's.
                result.is_partial = operation == MetadataOperation::Create
                    && error.kind() != io::ErrorKind::AlreadyExists
                    && folder.has(&name).unwrap_or(true);
                let what = format!("{} the {}", operation.name(), kind.name());
                let failure = file_error(&what, &folder.path().join(name), &error);
                let message = format!("{}{}", failure.message, folder.0.folder.hint(&error));
                result.failure = Some(Failure { message, ..failure });
                break;
            }
        }
        result.done += 1;
    }
    let times = Times { begin, end: clock::now() };
    records.iter_mut().for_each(Records::end);
    if stonewall.is_some() && config.wear_out {
        // One that failed; the others wait for its number.
        world.reduce(&[0], u64::max)?;
    }
    let spans = clocks.end(world, &begun, (result.operations > 0).then_some(times))?;
    // A folder that is out of reach was measured by its descriptor alone.
    let missing = || places.0.iter().find_map(Items::missing);
    result.failure =
        result.failure.or_else(|| missing().map(|message| Failure { kind: FailureKind::File, message }));
    result.is_over = is_over();
    result.latency = latency.counts();
    Ok((result, spans))
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Of an item, by its piece and its place in that.
fn record(task: Task<'_>, (piece, place): (usize, u64), (begin, end): (Instant, Instant)) -> Record {
    let is_file = task.kind == MetadataKind::File;
    let (operation, bytes) = match task.operation {
        MetadataOperation::Create => (Operation::Create, task.config.write_bytes.0),
        MetadataOperation::Stat => (Operation::Stat, 0),
        MetadataOperation::Read => (Operation::Read, task.config.read_bytes.0),
        MetadataOperation::Rename => (Operation::Rename, 0),
        MetadataOperation::Remove => (Operation::Remove, 0),
    };
    let bytes = if is_file { u32::try_from(bytes).unwrap_or(u32::MAX) } else { 0 };
    Record { begin, end, place, file: u32::try_from(piece).unwrap_or(u32::MAX), bytes, operation }
}

/// Path of an item, from the directory; the whole path where there are several.
pub(super) fn shown(task: Task<'_>, record: &Record) -> String {
    let Some(piece) = task.pieces.get(record.file as usize) else { return String::new() };
    let (items, name) = (task.places.of(piece.owner), name(task, *piece, record.place));
    match task.places.0.len() {
        1 => format!("{}/{name}", items.0.folder.name),
        _ => items.path().join(name).display().to_string(),
    }
}

/// Whether removing a directory may leave it: others have files in it, or, of an earlier run, have put something in its
/// place, or it is gone.
fn stays(task: Task<'_>, error: &io::Error) -> bool {
    let is_directory = task.kind != MetadataKind::File && task.operation == MetadataOperation::Remove;
    let is_tree = task.is_earlier && task.kind == MetadataKind::Tree;
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        // rmdir(2) has either code.
        Some(Errno::NOTEMPTY | Errno::EXIST) => is_directory,
        Some(Errno::NOENT | Errno::NOTDIR) => is_directory && is_tree,
        _ => false,
    }
}

fn name(task: Task<'_>, piece: Piece, number: u64) -> String {
    let Task { tree, tree_iteration, kind, operation, .. } = task;
    match (kind, operation) {
        // Directories below are removed first.
        (MetadataKind::Tree, MetadataOperation::Remove) => {
            tree.directory(tree_iteration, piece.owner, piece.first + piece.count - 1 - number)
        }
        (MetadataKind::Tree, _) => tree.directory(tree_iteration, piece.owner, piece.first + number),
        _ => named(tree.item(tree_iteration, piece.owner, kind, piece.first + number), piece.is_renamed),
    }
}

/// Figures of all ranks.
pub(super) fn figures(task: Task<'_>, ranks: &[RankPhase], spans: Spans) -> MetadataPhase {
    let operation_count = ranks.iter().map(|rank| rank.operations).sum();
    let total_ns = spans.total_ns;
    let walls: Option<Vec<(u64, u64)>> = ranks.iter().map(|rank| rank.at_wall).collect();
    let stonewall = walls.filter(|walls| !walls.is_empty()).and_then(|walls| {
        let operation_count = walls.iter().map(|(count, _)| count).sum();
        let ends = walls.iter().zip(&spans.ranks).map(|((_, since), span)| span.begin_ns + since);
        let time_ns = ends.max()?.max(1);
        let operations_per_second = operation_count as f64 * 1e9 / time_ns as f64;
        Some(MetadataStonewall { operation_count, time_ns, operations_per_second })
    });
    MetadataPhase {
        iteration: task.iteration,
        kind: task.kind,
        operation: task.operation,
        operation_count,
        total_ns,
        clock: spans.clock,
        stonewall,
        operations_per_second: operation_count as f64 * 1e9 / total_ns.max(1) as f64,
        latency: Latency::of(ranks.iter().map(|rank| &rank.latency)),
        client_cache: None,
        rank_counts: ranks.iter().map(|rank| rank.operations).collect(),
        rank_spans: spans.ranks,
    }
}

/// Rates over iterations, in the order of the phases.
pub(super) fn summary(phases: &[MetadataPhase]) -> Vec<MetadataSummary> {
    let first = phases.iter().filter(|phase| phase.iteration == 0);
    let of = |first: &MetadataPhase| {
        let same = phases.iter().filter(|it| it.kind == first.kind && it.operation == first.operation);
        let rates: Vec<f64> = same.map(|phase| phase.operations_per_second).collect();
        Some(MetadataSummary {
            kind: first.kind,
            operation: first.operation,
            operations_per_second: StorageStatistics::of(&rates)?,
            client_cache: first.client_cache,
        })
    };
    first.filter_map(of).collect()
}
