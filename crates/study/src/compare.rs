//! Two records, the same cells: did anything change?
//!
//! A cell counts as changed only when two things hold: a permutation test over
//! its trials says that chance does not explain the difference (adjusted for
//! the number of cells that were looked at), and the ratio of the medians is
//! beyond a practical threshold. It counts as the same only when the whole
//! interval of the ratio lies within the threshold. Everything else is not
//! known, and said to be so.

use std::collections::BTreeMap;

use clearstream_record::{Reader, RecordError};
use clearstream_schema::{
    probe::ProbeSummary,
    record::{TrialDocument, TrialOutcome},
};
use clearstream_stats::{false_discovery_adjusted, median, permutation_test, ratio_interval};
use serde::Serialize;
use serde_json::Value;

/// Differences of medians below this share are of no practical interest:
/// machines drift by more within an hour.
pub const PRACTICAL_RATIO: f64 = 0.05;
const SIGNIFICANCE: f64 = 0.05;

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Goodput, bits per second; more is better.
    GoodputBps,
    /// Median round-trip time of UDP from the first side, nanoseconds; less is better.
    RoundTripNs,
}

/// What came out for a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second record is better.
    Better,
    /// The second record is worse.
    Worse,
    /// No difference that matters.
    Same,
    /// Too few or too scattered values to tell.
    Unknown,
}

/// One cell of both records.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CellComparison {
    /// Experiment.
    pub experiment: String,
    /// Level of each factor.
    pub factors: BTreeMap<String, Value>,
    /// What is compared, and its unit.
    pub metric: Metric,
    /// Values in the first record.
    pub base_count: usize,
    /// Values in the second.
    pub changed_count: usize,
    /// Median of the first record.
    pub base_median: f64,
    /// Median of the second.
    pub changed_median: f64,
    /// Second median over first.
    pub median_ratio: f64,
    /// Low end of the ratio's 95 % bootstrap interval; absent with fewer than two values in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_ratio: Option<f64>,
    /// High end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_ratio: Option<f64>,
    /// Probability of such a difference by chance (permutation test).
    pub probability_ratio: f64,
    /// The same, adjusted for the number of cells compared.
    pub adjusted_probability_ratio: f64,
    /// What came out.
    pub verdict: Verdict,
}

/// Two records beside each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// First run.
    pub base: String,
    /// Second run.
    pub changed: String,
    /// Smallest change of a median that matters, as a share.
    pub practical_ratio: f64,
    /// Cells that both have, in the order of the first record.
    pub cells: Vec<CellComparison>,
    /// Cells with values in one record only.
    pub unmatched_count: usize,
}

type Key = (String, String, Metric);

/// One record's values, by cell, in the order of the study.
#[derive(Debug, Default)]
struct Cells {
    order: Vec<(Key, BTreeMap<String, Value>)>,
    values: BTreeMap<Key, Vec<f64>>,
}

/// Compares the cells that two records have in common. `practical_ratio` is
/// the smallest change that matters ([`PRACTICAL_RATIO`] if nothing else is known).
///
/// # Errors
/// When a record cannot be read.
pub fn compare(base: &Reader, changed: &Reader, practical_ratio: f64) -> Result<Comparison, RecordError> {
    let (one, other) = (Cells::read(base)?, Cells::read(changed)?);
    let seed = base.run().seed;
    let mut cells: Vec<CellComparison> = one
        .order
        .iter()
        .filter_map(|(key, factors)| {
            let changed = other.values.get(key)?;
            compare_cell(key, factors, &one.values[key], changed, seed)
        })
        .collect();
    let probabilities: Vec<f64> = cells.iter().map(|cell| cell.probability_ratio).collect();
    for (cell, adjusted) in cells.iter_mut().zip(false_discovery_adjusted(&probabilities)) {
        cell.adjusted_probability_ratio = adjusted;
        cell.verdict = verdict(cell, practical_ratio);
    }
    let matched = cells.len();
    Ok(Comparison {
        base: base.run().id.clone(),
        changed: changed.run().id.clone(),
        practical_ratio,
        cells,
        unmatched_count: one.order.len() + other.order.len() - 2 * matched,
    })
}

impl Cells {
    /// Trials are streamed; only one number of each is kept.
    fn read(reader: &Reader) -> Result<Self, RecordError> {
        let mut cells = Self::default();
        for trial in reader.trials()? {
            let trial = trial?;
            if let Some((metric, value)) = value(&trial) {
                let factors = serde_json::to_string(&trial.factors).unwrap_or_default();
                let key = (trial.experiment, factors, metric);
                let values = cells.values.entry(key.clone()).or_default();
                if values.is_empty() {
                    cells.order.push((key, trial.factors));
                }
                values.push(value);
            }
        }
        let place =
            |name: &str| reader.run().study.experiments.iter().position(|experiment| experiment.name == name);
        cells.order.sort_by_cached_key(|(key, _)| (place(&key.0), key.1.clone()));
        Ok(cells)
    }
}

fn value(trial: &TrialDocument) -> Option<(Metric, f64)> {
    match &trial.outcome {
        TrialOutcome::Flow(summary) => summary.complete.then_some((Metric::GoodputBps, summary.goodput_bps)),
        TrialOutcome::Probe(summary) => Some((Metric::RoundTripNs, round_trip(summary)?)),
        // A gap is a matter of retransmission times: medians of cells say little.
        TrialOutcome::Gateways(_) | TrialOutcome::Inspect | TrialOutcome::Failed(_) => None,
    }
}

fn round_trip(summary: &ProbeSummary) -> Option<f64> {
    Some(summary.directions.first()?.udp.as_ref()?.p50_ns as f64)
}

fn compare_cell(
    key: &Key,
    factors: &BTreeMap<String, Value>,
    base: &[f64],
    changed: &[f64],
    seed: u64,
) -> Option<CellComparison> {
    let (base_median, changed_median) = (median(base)?, median(changed)?);
    let interval = ratio_interval(base, changed, seed);
    Some(CellComparison {
        experiment: key.0.clone(),
        factors: factors.clone(),
        metric: key.2,
        base_count: base.len(),
        changed_count: changed.len(),
        base_median,
        changed_median,
        median_ratio: changed_median / base_median,
        low_ratio: interval.map(|interval| interval.low),
        high_ratio: interval.map(|interval| interval.high),
        probability_ratio: permutation_test(base, changed, seed)?,
        adjusted_probability_ratio: 1.0,
        verdict: Verdict::Unknown,
    })
}

fn verdict(cell: &CellComparison, practical_ratio: f64) -> Verdict {
    let within = |ratio: f64| (ratio - 1.0).abs() <= practical_ratio;
    let more_is_better = cell.metric == Metric::GoodputBps;
    if cell.adjusted_probability_ratio < SIGNIFICANCE && !within(cell.median_ratio) {
        return if (cell.median_ratio > 1.0) == more_is_better { Verdict::Better } else { Verdict::Worse };
    }
    match (cell.low_ratio, cell.high_ratio) {
        // Two values each are their own whole range: that is no evidence of sameness.
        (Some(low), Some(high))
            if within(low) && within(high) && cell.base_count.min(cell.changed_count) >= 3 =>
        {
            Verdict::Same
        }
        _ => Verdict::Unknown,
    }
}
