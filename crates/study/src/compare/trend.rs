//! A metric per cell over runs, and where its level changed.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::JsonSchema;
use clearstream_stats::{LEAST_SERIES, change_points, median};
use serde::Serialize;
use serde_json::Value;

use super::{CompareError, Compared, runs::Run};

/// Seed of the permutations: the same runs have the same changes.
const SEED: u64 = 1;

/// A metric over runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Trend {
    /// Runs, the oldest first.
    pub runs: Vec<TrendRun>,
    /// Fewest runs of which a change can be claimed.
    pub least_run_count: usize,
    /// Cells in the order of the newest record that has them.
    pub cells: Vec<TrendCell>,
}

/// A run of a trend.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrendRun {
    /// Its name.
    pub run: String,
    /// Start of its first trial, RFC 3339.
    pub started: String,
}

/// One cell over the runs.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrendCell {
    /// Experiment.
    pub experiment: String,
    /// Level of each factor.
    pub factors: BTreeMap<String, Value>,
    /// Metric and its unit.
    #[serde(flatten)]
    pub metric: Compared,
    /// Median of the trials of each run that has the cell.
    pub points: Vec<TrendPoint>,
    /// Median of the runs since the last change.
    pub level: f64,
    /// Changes, the oldest first.
    pub changes: Vec<TrendChange>,
}

/// The value of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct TrendPoint {
    /// Index of the run in `runs`.
    pub run: usize,
    /// Median of its trials.
    pub value: f64,
}

/// A change of the level.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrendChange {
    /// Index in `runs` of the first run after it.
    pub run: usize,
    /// Median of the runs since the change before.
    pub before: f64,
    /// Median of the runs until the next change.
    pub after: f64,
    /// Probability by chance (largest Mann-Whitney statistic of all splits, by permutations).
    pub probability_ratio: f64,
}

/// The trend of a metric over runs of one study, each workload's headline when absent.
///
/// # Errors
/// When a record cannot be read, or none has the metric.
pub fn trend(readers: &[Reader], metric: Option<&str>) -> Result<Trend, CompareError> {
    let mut runs = readers.iter().map(|reader| Run::read(reader, metric)).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by_key(|run| run.span);
    let mut cells: Vec<TrendCell> = Vec::new();
    for cell in runs.iter().rev().flat_map(|run| &run.cells) {
        let known = |other: &TrendCell| {
            (&other.experiment, &other.metric, &other.factors)
                == (&cell.experiment, &cell.metric, &cell.factors)
        };
        if cells.iter().any(known) {
            continue;
        }
        let value = |(index, run): (usize, &Run)| {
            run.cell(cell).map(|found| TrendPoint { run: index, value: found.value })
        };
        let points: Vec<TrendPoint> = runs.iter().enumerate().filter_map(value).collect();
        let (changes, level) = changes(&points);
        cells.push(TrendCell {
            experiment: cell.experiment.clone(),
            factors: cell.factors.clone(),
            metric: cell.metric.clone(),
            points,
            level,
            changes,
        });
    }
    let runs =
        runs.into_iter().map(|run| TrendRun { started: run.span.0.to_string(), run: run.id }).collect();
    Ok(Trend { runs, least_run_count: LEAST_SERIES, cells })
}

fn changes(points: &[TrendPoint]) -> (Vec<TrendChange>, f64) {
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let found = change_points(&values, SEED);
    let ends: Vec<usize> =
        std::iter::once(0).chain(found.iter().map(|one| one.index)).chain([values.len()]).collect();
    let levels: Vec<f64> = ends.windows(2).filter_map(|ends| median(&values[ends[0]..ends[1]])).collect();
    let change = |(index, one): (usize, &clearstream_stats::ChangePoint)| TrendChange {
        run: points[one.index].run,
        before: levels[index],
        after: levels[index + 1],
        probability_ratio: one.probability_ratio,
    };
    (found.iter().enumerate().map(change).collect(), levels.last().copied().unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_the_medians_of_both_sides_and_the_run_after_it() {
        // The cell is missing in the first two runs.
        let value = |run: usize| TrendPoint { run, value: if run < 9 { 10.0 } else { 8.0 } };
        let points: Vec<TrendPoint> = (2..16).map(value).collect();
        let (changes, level) = changes(&points);
        assert_eq!((changes.len(), level), (1, 8.0));
        assert_eq!((changes[0].run, changes[0].before, changes[0].after), (9, 10.0, 8.0));
        assert_eq!(super::changes(&points[..9]).0, [], "nine runs are too few");
    }
}
