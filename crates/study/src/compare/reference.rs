//! A run against a reference: for CI and cron, which need a decision of one run.
//!
//! Two runs cannot show how much runs differ by themselves. So a cell is worse only where its median is worse than
//! the reference's by more than a tolerance, beyond the trials of the reference, and, where there are earlier good
//! runs, beyond the values of all of these.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{
    CompareError, Compared, Verdict,
    runs::{Run, RunCell},
};

/// A run against its reference.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ReferenceCheck {
    /// The checked run.
    pub run: String,
    /// The reference; absent for the first run of its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Good runs before it, whose values are possible by themselves.
    pub good_runs: Vec<String>,
    /// Smallest change that counts, as a share.
    pub tolerance_ratio: f64,
    /// Cells of either run.
    pub cells: Vec<CheckedCell>,
    /// Trials of the run that could not be run.
    pub failed_trial_count: usize,
    /// The run ended, no trial failed, no cell is worse, and none is missing.
    pub passed: bool,
}

/// A cell of the run.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CheckedCell {
    /// Experiment.
    pub experiment: String,
    /// Level of each factor.
    pub factors: BTreeMap<String, Value>,
    /// Metric and its unit.
    #[serde(flatten)]
    pub metric: Compared,
    /// Median of the reference's trials; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_median: Option<f64>,
    /// Least and largest of the reference's trials and the medians of the good runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Median of the run's trials; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median: Option<f64>,
    /// `unknown`: one of the runs does not have it.
    pub verdict: Verdict,
}

/// Checks a run. `good` are earlier good runs of the same study.
///
/// # Errors
/// When a record cannot be read, or has no such metric.
pub fn check_against(
    run: &Reader,
    reference: Option<&Reader>,
    good: &[Reader],
    metric: Option<&str>,
    tolerance_ratio: f64,
) -> Result<ReferenceCheck, CompareError> {
    let of = |reader: &Reader| Run::read(reader, metric);
    let (checked, reference) = (of(run)?, reference.map(of).transpose()?);
    let good = good.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    let known = |cell: &RunCell| reference.as_ref().and_then(|reference| reference.cell(cell));
    let of_reference = reference.iter().flat_map(|reference| &reference.cells);
    let both = of_reference.chain(checked.cells.iter().filter(|cell| known(cell).is_none()));
    let cells: Vec<CheckedCell> = both
        .map(|cell| {
            let good: Vec<&RunCell> = good.iter().filter_map(|run| run.cell(cell)).collect();
            decided(cell, checked.cell(cell), known(cell), &good, tolerance_ratio)
        })
        .collect();
    let mut failed_trial_count = 0;
    for trial in run.trials()? {
        failed_trial_count += usize::from(trial?.outcome.measured().is_none());
    }
    let is_missing = |cell: &CheckedCell| cell.median.is_none();
    let is_bad =
        cells.is_empty() || cells.iter().any(|cell| cell.verdict == Verdict::Worse || is_missing(cell));
    Ok(ReferenceCheck {
        passed: !is_bad && failed_trial_count == 0 && run.run().ended.is_some(),
        run: checked.id,
        reference: reference.as_ref().map(|run| run.id.clone()),
        good_runs: good.into_iter().map(|run| run.id).collect(),
        tolerance_ratio,
        failed_trial_count,
        cells,
    })
}

fn decided(
    cell: &RunCell,
    checked: Option<&RunCell>,
    reference: Option<&RunCell>,
    good: &[&RunCell],
    tolerance_ratio: f64,
) -> CheckedCell {
    let range = reference.map(|reference| {
        let values = good.iter().map(|cell| cell.value);
        values.fold(reference.range, |[low, high], value| [low.min(value), high.max(value)])
    });
    let verdict = match (checked, reference, range) {
        (Some(checked), Some(reference), Some([low, high])) => {
            let is_beyond = (checked.value - reference.value).abs() > tolerance_ratio * reference.value.abs();
            let is_less = checked.value < low;
            if !is_beyond || (!is_less && checked.value <= high) {
                Verdict::Same
            } else if is_less == cell.metric.less_is_better {
                Verdict::Better
            } else {
                Verdict::Worse
            }
        }
        _ => Verdict::Unknown,
    };
    CheckedCell {
        experiment: cell.experiment.clone(),
        factors: cell.factors.clone(),
        metric: cell.metric.clone(),
        reference_median: reference.map(|cell| cell.value),
        range,
        median: checked.map(|cell| cell.value),
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::outcome::Unit;

    use super::*;

    fn cell(value: f64, range: [f64; 2], less_is_better: bool) -> RunCell {
        let metric = Compared { name: "goodput".to_owned(), unit: Unit::BitsPerSecond, less_is_better };
        RunCell {
            experiment: "flow".to_owned(),
            factors: BTreeMap::new(),
            metric,
            value,
            range,
            trial_count: 3,
            delay_line_limited_count: 0,
        }
    }

    fn verdict(value: f64, good: &[f64], less_is_better: bool) -> Verdict {
        let reference = cell(100.0, [95.0, 104.0], less_is_better);
        let good: Vec<RunCell> = good.iter().map(|value| cell(*value, [*value; 2], less_is_better)).collect();
        let good: Vec<&RunCell> = good.iter().collect();
        let checked = cell(value, [value; 2], less_is_better);
        decided(&reference, Some(&checked), Some(&reference), &good, 0.05).verdict
    }

    #[test]
    fn worse_is_beyond_the_tolerance_the_trials_and_the_good_runs() {
        assert_eq!(verdict(80.0, &[], false), Verdict::Worse);
        assert_eq!(verdict(120.0, &[], false), Verdict::Better);
        assert_eq!(verdict(80.0, &[], true), Verdict::Better);
        assert_eq!(verdict(120.0, &[], true), Verdict::Worse);
        assert_eq!(verdict(95.0, &[], false), Verdict::Same, "the tolerance");
        assert_eq!(verdict(80.0, &[79.0, 99.0], false), Verdict::Same, "a good run was as slow");
        assert_eq!(verdict(80.0, &[81.0], false), Verdict::Worse);
    }

    #[test]
    fn a_cell_of_one_run_only_is_unknown() {
        let one = cell(1.0, [1.0; 2], false);
        assert_eq!(decided(&one, None, Some(&one), &[], 0.05).verdict, Verdict::Unknown);
        let new = decided(&one, Some(&one), None, &[], 0.05);
        assert_eq!((new.verdict, new.range), (Verdict::Unknown, None));
    }
}
