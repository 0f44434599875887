//! Differences between two levels of one record, or between the runs of two sides.
//!
//! Both are measured in pairs. Two levels of a factor are compared within a
//! repetition, all other factors equal: the trials of a repetition were made in
//! a random order of their own, so that nothing but the level differs between the
//! sides. Of whole runs, each is one value per cell, and pairs are runs that
//! followed one another in time: the trials of one run share what the machine
//! did in that hour, so that many of them prove no more than one.
//!
//! A difference counts when the signed-rank test over the pairs shows that
//! chance does not explain it (adjusted for the number of cells tested), the
//! 95 % interval of the ratio excludes none, and the ratio is beyond a practical
//! threshold. Nothing changed when the whole 95 % interval lies within the
//! threshold. Anything else is unknown, with the reason.

mod delay_line;
mod levels;
mod reference;
mod runs;
mod trend;
mod values;

use std::collections::BTreeMap;

use clearstream_schema::{
    JsonSchema,
    control::FailureKind,
    failure::Classified,
    notice::Notice,
    outcome::{Better, Metric, Unit},
};
use clearstream_stats::{
    LEAST_PAIRS, PairedRatio, false_discovery_adjusted, least_probability, paired_ratio,
};
use serde::Serialize;
use serde_json::Value;

pub use levels::compare_levels;
pub use reference::{CheckedCell, ReferenceCheck, check_against};
pub use runs::compare_runs;
pub use trend::{Trend, TrendCell, TrendChange, TrendPoint, TrendRun, trend};

/// A claim needs less: stricter than the 5 % of an interval, since cells and the
/// effect over all of them are tested together.
const SIGNIFICANCE: f64 = 0.04;
const CONFIDENCE: f64 = 0.95;

/// The metric that is compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Compared {
    /// Its name.
    #[serde(rename = "metric")]
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Less is better.
    #[serde(skip)]
    pub less_is_better: bool,
}

impl From<&Metric> for Compared {
    fn from(metric: &Metric) -> Self {
        Self { name: metric.name.clone(), unit: metric.unit, less_is_better: metric.better == Better::Lower }
    }
}

/// Result for a cell or an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The second side is better.
    Better,
    /// The second side is worse.
    Worse,
    /// No difference that matters.
    Same,
    /// Too few or too scattered pairs to decide.
    Unknown,
}

/// Meaning of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Trials of one repetition of one run.
    Repetitions,
    /// Runs that followed one another.
    Runs,
}

/// One cell of both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct CellComparison {
    /// Experiment.
    pub experiment: String,
    /// Level of each factor but the compared one.
    pub factors: BTreeMap<String, Value>,
    /// Compared metric and its unit.
    #[serde(flatten)]
    pub metric: Compared,
    /// Values of the first side: trials, or runs.
    pub base_count: usize,
    /// Values of the second.
    pub changed_count: usize,
    /// Pairs of them.
    pub pair_count: usize,
    /// Trials of the first side in which a delay line of the lab, not the path, was the
    /// limit: their values are of the machine.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub base_delay_line_limited_count: usize,
    /// Those of the second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub changed_delay_line_limited_count: usize,
    /// Median of the first side.
    pub base_median: f64,
    /// Median of the second.
    pub changed_median: f64,
    /// Pairs with a zero, which have no ratio.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub zero_pair_count: usize,
    /// Typical ratio of the pairs (Hodges-Lehmann); of the medians where there is no
    /// pair; absent where the first side's median is zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub median_ratio: Option<f64>,
    /// Low end of its interval; absent with fewer than two pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_ratio: Option<f64>,
    /// High end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_ratio: Option<f64>,
    /// Confidence of the interval: below six pairs it is their range, and this less than 0.95.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence_ratio: Option<f64>,
    /// Probability of such pairs by chance (signed-rank test).
    pub probability_ratio: f64,
    /// The same, adjusted for the number of cells compared.
    pub adjusted_probability_ratio: f64,
    /// Result.
    pub verdict: Verdict,
    /// Reason for an unknown verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl CellComparison {
    /// Every value of both sides that is in a pair is zero, and there are enough of them.
    fn is_zero_throughout(&self) -> bool {
        let enough = self.pair_count >= LEAST_PAIRS && self.zero_pair_count == self.pair_count;
        enough && self.base_median == 0.0 && self.changed_median == 0.0
    }

    /// A delay line of the lab limited trials of the cell: it compares the machine, not the path.
    pub fn is_delay_line_limited(&self) -> bool {
        self.base_delay_line_limited_count + self.changed_delay_line_limited_count > 0
    }
}

/// All cells of an experiment together.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct EffectComparison {
    /// Experiment.
    pub experiment: String,
    /// Compared metric.
    #[serde(flatten)]
    pub metric: Compared,
    /// Pairs over all cells.
    pub pair_count: usize,
    /// The factor that the effect depends on: then there is no single figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depends_on: Option<DependsOn>,
    /// The effect over all cells; absent where it depends on a factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<LevelEffect>,
    /// Its probability by chance, adjusted together with those of the cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adjusted_probability_ratio: Option<f64>,
    /// Result.
    pub verdict: Verdict,
    /// Reason for an unknown verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An interaction: the effect at each level of another factor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DependsOn {
    /// The other factor.
    pub factor: String,
    /// Probability of effects that differ so much by chance, adjusted for the number of factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probability_ratio: Option<f64>,
    /// The effect at each of its levels.
    pub levels: Vec<LevelEffect>,
}

/// An effect, over all cells or at one level of another factor.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct LevelEffect {
    /// The level; absent over all cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Pairs.
    pub pair_count: usize,
    /// Typical ratio, second side over first.
    pub ratio: f64,
    /// Low end of its interval.
    pub low_ratio: f64,
    /// High end.
    pub high_ratio: f64,
    /// Confidence of the interval.
    pub confidence_ratio: f64,
    /// Probability of such pairs by chance.
    pub probability_ratio: f64,
}

/// Two sides of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// First side: run and level, or runs.
    pub base: String,
    /// Second side.
    pub changed: String,
    /// Meaning of a pair.
    pub pairing: Pairing,
    /// Smallest change that matters, as a share.
    pub practical_ratio: f64,
    /// All cells of each experiment together; only between levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectComparison>,
    /// Cells that both sides have, in the order of the first record.
    pub cells: Vec<CellComparison>,
    /// Cells with values on one side only.
    pub unmatched_count: usize,
    /// Limits of the comparison, and remedies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// Reason for a failed comparison.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// A record could not be read.
    #[error(transparent)]
    Record(#[from] clearstream_record::RecordError),
    /// Neither FACTOR=LEVEL nor a run.
    #[error("\"{text}\" is no level: write FACTOR=LEVEL, as in flows=2, twice for the same factor")]
    Level {
        /// As written.
        text: String,
    },
    /// The run has no such metric.
    #[error("{run} has no metric \"{metric}\"{suggestion}; it has {known}")]
    UnknownMetric {
        /// The run.
        run: String,
        /// As written.
        metric: String,
        /// Suggested name.
        suggestion: String,
        /// Metrics of its trials.
        known: String,
    },
    /// The run has no such level.
    #[error("{run} has no {factor}={level}; it has {known}")]
    UnknownLevel {
        /// The run.
        run: String,
        /// The factor.
        factor: String,
        /// The level.
        level: String,
        /// Levels of the factor, or factors with several levels.
        known: String,
    },
}

impl Classified for CompareError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Record(error) => error.failure_kind(),
            Self::Level { .. } => FailureKind::Invalid,
            Self::UnknownMetric { .. } | Self::UnknownLevel { .. } => FailureKind::Name,
        }
    }
}

/// Values of the pairs of one cell.
pub(super) struct CellPairs<'a> {
    pub(super) experiment: &'a str,
    pub(super) factors: BTreeMap<String, Value>,
    pub(super) metric: Compared,
    pub(super) base: Vec<f64>,
    pub(super) changed: Vec<f64>,
    pub(super) pairs: Vec<(f64, f64)>,
    /// Trials of each side that a delay line limited.
    pub(super) delay_line_limited: [usize; 2],
}

impl CellPairs<'_> {
    /// All fields but the verdict, which needs all cells.
    pub(super) fn compared(self) -> Option<CellComparison> {
        let (base_median, changed_median) =
            (clearstream_stats::median(&self.base)?, clearstream_stats::median(&self.changed)?);
        let zero_pairs = self.pairs.iter().filter(|(base, changed)| *base == 0.0 || *changed == 0.0).count();
        // A ratio of the other pairs alone would be one of a selection.
        let found = if zero_pairs == 0 { paired_ratio(&self.pairs) } else { None };
        let of_medians = (base_median != 0.0).then(|| changed_median / base_median);
        let interval = found.filter(|found| found.count >= 2);
        Some(CellComparison {
            experiment: self.experiment.to_owned(),
            factors: self.factors,
            metric: self.metric,
            base_count: self.base.len(),
            changed_count: self.changed.len(),
            pair_count: self.pairs.len(),
            base_delay_line_limited_count: self.delay_line_limited[0],
            changed_delay_line_limited_count: self.delay_line_limited[1],
            base_median,
            changed_median,
            zero_pair_count: zero_pairs,
            median_ratio: found.map(|found| found.value).or(of_medians),
            low_ratio: interval.map(|found| found.low),
            high_ratio: interval.map(|found| found.high),
            confidence_ratio: interval.map(|found| found.confidence_ratio),
            probability_ratio: found.map_or(1.0, |found| found.probability_ratio),
            adjusted_probability_ratio: 1.0,
            verdict: Verdict::Unknown,
            reason: None,
        })
    }
}

/// Probabilities of the cells and of the other decisions, adjusted
/// together: whatever is claimed, by chance nothing is in 95 % of comparisons.
pub(super) fn adjusted(cells: &[CellComparison], others: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = cells.iter().map(|cell| cell.probability_ratio).collect();
    all.extend(others);
    false_discovery_adjusted(&all)
}

/// Decides about each cell by its adjusted probability.
pub(super) fn decide(cells: &mut [CellComparison], adjusted: &[f64], practical_ratio: f64, pair: &str) {
    let count = cells.len();
    for (cell, adjusted) in cells.iter_mut().zip(adjusted.iter().copied()) {
        cell.adjusted_probability_ratio = adjusted;
        let interval = cell.low_ratio.zip(cell.high_ratio);
        let is_95 = cell.confidence_ratio.is_some_and(|confidence| confidence >= CONFIDENCE);
        let ratio = (cell.median_ratio.unwrap_or(f64::NAN), interval.filter(|_| is_95), adjusted);
        cell.verdict = if cell.is_zero_throughout() {
            Verdict::Same
        } else {
            verdict(&cell.metric, ratio, practical_ratio)
        };
        cell.reason = (cell.verdict == Verdict::Unknown).then(|| {
            if cell.zero_pair_count > 0 {
                format!("{} of {} pairs have a zero, and no ratio", cell.zero_pair_count, cell.pair_count)
            } else if cell.pair_count < LEAST_PAIRS {
                too_few(cell.pair_count, pair)
            } else if cell.probability_ratio < SIGNIFICANCE && adjusted >= SIGNIFICANCE {
                format!("of {count} cells tested, one such may be chance")
            } else {
                "the pairs scatter too much".to_owned()
            }
        });
    }
}

/// Better, worse, the same or unknown.
pub(super) fn verdict(
    metric: &Compared,
    (ratio, interval, probability): (f64, Option<(f64, f64)>, f64),
    practical_ratio: f64,
) -> Verdict {
    let within = |ratio: f64| (ratio - 1.0).abs() <= practical_ratio;
    let more_is_better = !metric.less_is_better;
    let Some((low, high)) = interval else { return Verdict::Unknown };
    if within(low) && within(high) {
        return Verdict::Same;
    }
    if probability < SIGNIFICANCE && (low > 1.0 || high < 1.0) && !within(ratio) {
        return if (ratio > 1.0) == more_is_better { Verdict::Better } else { Verdict::Worse };
    }
    Verdict::Unknown
}

/// Reason why too few pairs decide nothing.
pub(super) fn too_few(count: usize, pair: &str) -> String {
    let (s, have) = if count == 1 { ("", "has") } else { ("s", "have") };
    if count == 0 {
        return format!("no pair of {pair}");
    }
    format!(
        "{count} pair{s} of {pair} {have} a probability by chance of {} at least; {LEAST_PAIRS} are needed",
        least_probability(count)
    )
}

impl LevelEffect {
    pub(super) fn of(level: Option<String>, found: &PairedRatio) -> Self {
        Self {
            level,
            pair_count: found.count,
            ratio: found.value,
            low_ratio: found.low,
            high_ratio: found.high,
            confidence_ratio: found.confidence_ratio,
            probability_ratio: found.probability_ratio,
        }
    }
}
