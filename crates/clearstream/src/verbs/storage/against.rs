//! Two directories in turns: in each iteration both, in an order that alternates, so that what changes with time changes
//! both.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_schema::{
    notice::Notice,
    outcome::Outcome,
    storage::comparison::{StorageComparedMetric, StorageComparison, StorageRatio},
};
use clearstream_stats::paired_ratio;
use serde::Serialize;

use crate::{
    exit::CommandError,
    output::{Output, Unwritten},
};

/// The second directory.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct AgainstArgs {
    /// Compare with this directory: iterations on both in turns, and the ratio DIR2 / DIR with its interval
    #[arg(long, value_name = "DIR2", conflicts_with = "mpi")]
    pub(super) against: Option<PathBuf>,
}

/// One iteration on one directory.
pub(super) struct Turn {
    pub(super) outcome: Outcome,
    pub(super) file_system: String,
}

/// Measures both directories `iterations` times; `measure` gets the place of the directory and the time that is left.
/// What failed ends it: the comparison is of the iterations before, where there are any.
pub(super) fn in_turns(
    (workload, requested): (&str, &impl Serialize),
    directories: [String; 2],
    (iterations, timeout): (u32, Duration),
    stop: &AtomicBool,
    out: &Output,
    mut measure: impl FnMut(usize, Duration) -> Result<Turn, CommandError>,
) -> Result<(StorageComparison, Option<CommandError>), CommandError> {
    let begun = Instant::now();
    let mut turns: [Vec<Outcome>; 2] = [Vec::new(), Vec::new()];
    let mut file_systems = [String::new(), String::new()];
    let (mut complete, mut error) = (true, None);
    let orders = (0..iterations).flat_map(|iteration| if iteration % 2 == 0 { [0, 1] } else { [1, 0] });
    for (done, place) in (0_u32..).zip(orders) {
        let passed = begun.elapsed();
        let left = passed.checked_div(done).unwrap_or_default().saturating_mul(2 * iterations - done);
        out.progress(left, &format!("iteration {} of {iterations}: {}", done / 2 + 1, directories[place]));
        let turn = match measure(place, timeout.saturating_sub(passed)) {
            Ok(turn) => turn,
            Err(failed) if turns.iter().all(Vec::is_empty) => return Err(failed),
            Err(failed) => {
                (complete, error) = (false, Some(failed));
                break;
            }
        };
        file_systems[place] = turn.file_system;
        if !turn.outcome.complete || stop.load(Relaxed) {
            complete = false;
            break;
        }
        turns[place].push(turn.outcome);
    }
    let found = StorageComparison {
        workload: workload.to_owned(),
        requested: clearstream_schema::json::to_value(requested).map_err(Unwritten::from)?,
        directories,
        file_systems,
        complete,
        metrics: compared(&turns),
        notices: notices(&turns),
    };
    Ok((found, error))
}

/// Values of both by metric, and the ratios of those that have a partner.
fn compared([first, second]: &[Vec<Outcome>; 2]) -> Vec<StorageComparedMetric> {
    let metrics = first.first().map(|outcome| outcome.metrics.as_slice()).unwrap_or_default();
    let of = |outcomes: &[Outcome], name: &str| -> Vec<f64> {
        outcomes.iter().filter_map(|outcome| Some(outcome.metric(name)?.value)).collect()
    };
    let row = |metric: &clearstream_schema::outcome::Metric| {
        let (first, second) = (of(first, &metric.name), of(second, &metric.name));
        let pairs: Vec<(f64, f64)> = first.iter().copied().zip(second.iter().copied()).collect();
        let ratio = paired_ratio(&pairs).map(|found| StorageRatio {
            value: found.value,
            low: found.low,
            high: found.high,
            confidence_ratio: found.confidence_ratio,
            pair_count: found.count as u64,
        });
        StorageComparedMetric {
            name: metric.name.clone(),
            unit: metric.unit,
            better: metric.better,
            first,
            second,
            ratio,
        }
    };
    metrics.iter().map(row).collect()
}

/// Each once.
fn notices(turns: &[Vec<Outcome>; 2]) -> Vec<Notice> {
    let mut all: Vec<Notice> = Vec::new();
    for notice in turns.iter().flatten().flat_map(|outcome| &outcome.notices) {
        if !all.iter().any(|known| known.id == notice.id) {
            all.push(notice.clone());
        }
    }
    all
}
