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
use serde::{Deserialize, Serialize};

use super::{
    MetadataError, file_error,
    folder::{Contents, Items, RENAMED},
    tree::Tree,
};
use crate::{
    clock::{self, Clocks, Spans, Times},
    latency::{Latency, LatencyCounts},
};

/// What a phase is to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) config: &'a MetadataConfig,
    pub(super) tree: Tree,
    pub(super) stop: &'a AtomicBool,
    pub(super) iteration: u32,
    pub(super) kind: MetadataKind,
    pub(super) operation: MetadataOperation,
    /// Rank whose items these are.
    pub(super) owner: usize,
    /// Its items, or directories of the tree.
    pub(super) limit: u64,
}

/// Result of a phase at one rank.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RankPhase {
    pub(super) operations: u64,
    /// The item that could not be created is somebody else's.
    pub(super) is_foreign: bool,
    /// Items when the stonewall's time was over, and the time since the begin.
    at_wall: Option<(u64, u64)>,
    latency: LatencyCounts,
    pub(super) failure: Option<Failure>,
    /// The run has to end.
    pub(super) is_over: bool,
}

/// Runs it; all ranks call it together. When they worked is known at rank 0.
pub(super) fn run(
    world: &mut dyn World,
    clocks: &Clocks,
    folder: &Items,
    task: Task<'_>,
) -> Result<(RankPhase, Option<Spans>), MetadataError> {
    let Task { config, kind, operation, .. } = task;
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
    let (begin, start) = (clock::now(), Instant::now());
    let stonewall = config.stonewall.filter(|_| operation == MetadataOperation::Create);
    let stonewall = stonewall.filter(|_| kind != MetadataKind::Tree).map(|time| start + time.to_std());
    let mut now = start;
    let (mut limit, mut stonewall) = (task.limit, stonewall);
    while result.failure.is_none() {
        let is_walled = stonewall.is_some_and(|end| now >= end) || result.operations >= limit;
        if is_over() || is_walled {
            // Those that are behind go on to the number of the fastest rank.
            if stonewall.take().is_none() || !config.wear_out {
                break;
            }
            result.at_wall = Some((result.operations, nanoseconds(start.elapsed())));
            let most = world.reduce(&[result.operations], u64::max)?;
            limit = most.first().copied().unwrap_or(0).min(task.limit);
            continue;
        }
        let name = name(task, result.operations);
        contents.prepare();
        let before = Instant::now();
        let done = match kind {
            MetadataKind::Tree if operation == MetadataOperation::Create => folder.make(&name),
            MetadataKind::Tree => folder.remove_directory(&name),
            _ => folder.operate(kind, operation, &name, &mut contents),
        };
        now = Instant::now();
        if let Err(error) = done {
            result.is_foreign = error.kind() == io::ErrorKind::AlreadyExists;
            let what = format!("{} the {}", operation.name(), kind.name());
            let failure = file_error(&what, &folder.path().join(name), &error);
            let message = format!("{}{}", failure.message, folder.0.hint(&error));
            result.failure = Some(Failure { message, ..failure });
            break;
        }
        latency.add((now - before).max(Duration::from_nanos(1)));
        result.operations += 1;
    }
    let times = Times { begin, end: clock::now() };
    if stonewall.is_some() && config.wear_out {
        // One that failed; the others wait for its number.
        world.reduce(&[0], u64::max)?;
    }
    let spans = clocks.end(world, &begun, (result.operations > 0).then_some(times))?;
    // A folder that is out of reach was measured by its descriptor alone.
    result.failure = result
        .failure
        .or_else(|| folder.missing().map(|message| Failure { kind: FailureKind::File, message }));
    result.is_over = is_over();
    result.latency = latency.counts();
    Ok((result, spans))
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn name(task: Task<'_>, number: u64) -> String {
    let Task { config, tree, iteration, kind, operation, owner, limit, .. } = task;
    match (kind, operation) {
        // Directories below are removed first.
        (MetadataKind::Tree, MetadataOperation::Remove) => {
            tree.directory(iteration, owner, limit - 1 - number)
        }
        (MetadataKind::Tree, _) => tree.directory(iteration, owner, number),
        (_, MetadataOperation::Remove) if config.has_phase(MetadataOperation::Rename) => {
            tree.item(iteration, owner, kind, number) + RENAMED
        }
        _ => tree.item(iteration, owner, kind, number),
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
