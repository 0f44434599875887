//! Trials of any workload as (factor, metric, series, setting): what every figure of a
//! metric is drawn of, whichever workload measured it.

use core::ops::Deref;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use clearstream_schema::outcome::{Better, Metric, Outcome, Series, Unit};
use serde_json::Value;

use crate::{cell_settings::CellSettings, delay_lines::LineShare, estimate::Estimate, format::level_of};

/// Levels of a cell's factors: one copy for all that is kept of its trials.
pub(crate) type Factors = Arc<BTreeMap<String, Value>>;

/// Definition of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricName {
    pub(crate) name: String,
    pub(crate) unit: Unit,
    pub(crate) better: Better,
}

/// All measured trials of an experiment.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// In the order in which trials have them: the headline first.
    metrics: Vec<MetricName>,
    /// By the number of the cell.
    cells: BTreeMap<u32, MeasuredCell>,
}

/// Trials with the same levels.
#[derive(Debug, Default)]
pub(crate) struct MeasuredCell {
    pub(crate) number: u32,
    pub(crate) factors: Factors,
    pub(crate) settings: CellSettings,
    /// Metrics that in some trial may have come from a client's cache.
    cached: BTreeSet<String>,
    pub(crate) trials: Vec<MeasuredTrial>,
}

/// Facts of a trial beside its outcome.
#[derive(Debug, Default)]
pub(crate) struct TrialFacts {
    pub(crate) trial: u32,
    pub(crate) repetition: u32,
    pub(crate) samples: Option<String>,
    pub(crate) steady: Option<bool>,
    pub(crate) line: Option<LineShare>,
    /// Metrics that may have come from a client's cache.
    pub(crate) cached: Vec<String>,
    pub(crate) keep_series: bool,
}

/// A trial, reduced to its numbers.
#[derive(Debug, Default)]
pub(crate) struct MeasuredTrial {
    pub(crate) trial: u32,
    pub(crate) complete: bool,
    pub(crate) repetition: u32,
    /// Name of its samples file.
    pub(crate) samples: Option<String>,
    /// Steady after the warm-up; absent where it was too short to decide.
    pub(crate) steady: Option<bool>,
    /// Counters of the lab's delay lines in this trial.
    pub(crate) line: Option<LineShare>,
    /// By the places of [`Measured::metrics`], NaN where it has none: thousands of trials have
    /// no names of their own.
    values: Box<[f64]>,
    /// Metrics over time or size, where a figure may need them.
    pub(crate) series: Vec<Series>,
}

/// A cell with one of its metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellMetric<'a> {
    measured: &'a Measured,
    cell: &'a MeasuredCell,
    place: usize,
}

impl Measured {
    /// Adds a trial; nothing of one without metrics.
    pub(crate) fn add(&mut self, (cell, factors): (u32, &Factors), outcome: &Outcome, facts: TrialFacts) {
        if outcome.metrics.is_empty() {
            return;
        }
        let placed: Vec<(usize, f64)> =
            outcome.metrics.iter().map(|metric| (self.place(metric), metric.value)).collect();
        let mut values = vec![f64::NAN; self.metrics.len()];
        placed.into_iter().for_each(|(place, value)| values[place] = value);
        let series = if facts.keep_series { outcome.series.clone() } else { Vec::new() };
        let cell = self.cells.entry(cell).or_insert_with(|| MeasuredCell {
            number: cell,
            factors: Arc::clone(factors),
            ..MeasuredCell::default()
        });
        cell.settings.add(&outcome.settings);
        cell.cached.extend(facts.cached);
        cell.trials.push(MeasuredTrial {
            trial: facts.trial,
            complete: outcome.complete,
            repetition: facts.repetition,
            samples: facts.samples,
            steady: facts.steady,
            line: facts.line,
            values: values.into_boxed_slice(),
            series,
        });
    }

    /// What is computed of the trials of other cells.
    pub(crate) fn of_one_metric<'a>(
        metric: MetricName,
        cells: impl Iterator<Item = (&'a MeasuredCell, Vec<f64>)>,
    ) -> Self {
        let computed = |(cell, values): (&MeasuredCell, Vec<f64>)| {
            let trial = |(repetition, value)| MeasuredTrial {
                complete: true,
                repetition,
                values: Box::new([value]),
                ..MeasuredTrial::default()
            };
            MeasuredCell { trials: (0..).zip(values).map(trial).collect(), ..cell.without_trials() }
        };
        Self { metrics: vec![metric], cells: (0..).zip(cells.map(computed)).collect() }
    }

    fn place(&mut self, metric: &Metric) -> usize {
        let same = |known: &MetricName| known.name == metric.name && known.unit == metric.unit;
        self.metrics.iter().position(same).unwrap_or_else(|| {
            let Metric { name, unit, better, .. } = metric.clone();
            self.metrics.push(MetricName { name, unit, better });
            self.metrics.len() - 1
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(crate) fn metrics(&self) -> &[MetricName] {
        &self.metrics
    }

    /// The metric of this name, the headline without one.
    pub(crate) fn metric(&self, named: Option<&str>) -> Option<&MetricName> {
        match named {
            Some(name) => self.metrics.iter().find(|metric| metric.name == name),
            None => self.metrics.first(),
        }
    }

    pub(crate) fn cells(&self) -> impl Iterator<Item = &MeasuredCell> {
        self.cells.values()
    }

    /// The cells that have this metric in some trial; none where no trial has it.
    pub(crate) fn of_metric(&self, name: &str) -> Vec<CellMetric<'_>> {
        let Some(place) = self.metrics.iter().position(|known| known.name == name) else { return Vec::new() };
        let of = |cell| CellMetric { measured: self, cell, place };
        let has_value = |one: &CellMetric<'_>| one.trials.iter().any(|trial| trial.value(place).is_some());
        self.cells().map(of).filter(has_value).collect()
    }

    /// A metric of one trial.
    pub(crate) fn of_trial(&self, number: u32, name: &str) -> Option<f64> {
        let place = self.metrics.iter().position(|known| known.name == name)?;
        let mut trials = self.cells().flat_map(|cell| &cell.trials);
        trials.find(|trial| trial.trial == number)?.value(place)
    }

    /// One of its cells with this metric; nothing where no trial has it.
    pub(crate) fn cell_of<'a>(
        &'a self,
        cell: &'a MeasuredCell,
        metric: &MetricName,
    ) -> Option<CellMetric<'a>> {
        let place = self.metrics.iter().position(|known| known == metric)?;
        Some(CellMetric { measured: self, cell, place })
    }

    /// A metric in the trials of a cell that count, by repetition: what is compared in pairs.
    pub(crate) fn by_repetition(&self, cell: &MeasuredCell, metric: &MetricName) -> BTreeMap<u32, f64> {
        let place = self.metrics.iter().position(|known| known == metric);
        let value = |trial: &MeasuredTrial| Some((trial.repetition, trial.value(place?)?));
        cell.counted().filter_map(value).collect()
    }

    /// A trial per point of the metric's series, whose axis becomes a factor: what a
    /// curve is drawn of where one trial measures all sizes.
    pub(crate) fn over_series(&self, metric: &MetricName) -> Self {
        let mut numbers = BTreeMap::new();
        let mut expanded = Self { metrics: vec![metric.clone()], cells: BTreeMap::new() };
        for (number, cell) in &self.cells {
            for trial in cell.counted() {
                let Some(series) = trial.series_of(metric) else { continue };
                for (index, (x, y)) in series.points.iter().enumerate() {
                    let x = &match series.x.unit {
                        // Measured as well, and so no two trials have the same: their points are
                        // joined in order.
                        Unit::Ratio => {
                            let of_all = cell
                                .counted()
                                .filter_map(|one| Some(one.series_of(metric)?.points.get(index)?.0));
                            clearstream_stats::median(&of_all.collect::<Vec<_>>()).unwrap_or(*x)
                        }
                        _ => *x,
                    };
                    let next = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
                    let place = *numbers.entry((*number, x.to_bits())).or_insert(next);
                    let point = expanded.cells.entry(place).or_insert_with(|| {
                        let mut factors = BTreeMap::clone(&cell.factors);
                        factors.insert(series.x.name.clone(), level(series.x.unit, *x));
                        MeasuredCell { factors: Arc::new(factors), ..cell.without_trials() }
                    });
                    point.trials.push(MeasuredTrial {
                        complete: trial.complete,
                        repetition: trial.repetition,
                        values: Box::new([*y]),
                        ..MeasuredTrial::default()
                    });
                }
            }
        }
        expanded
    }
}

impl Deref for CellMetric<'_> {
    type Target = MeasuredCell;

    fn deref(&self) -> &MeasuredCell {
        self.cell
    }
}

impl<'a> CellMetric<'a> {
    /// In the trials that count.
    pub(crate) fn values(&self) -> Vec<f64> {
        self.cell.counted().filter_map(|trial| trial.value(self.place)).collect()
    }

    /// Median of the trials that count, with its interval.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        Estimate::of(&self.values())
    }

    /// In each complete trial by its repetition: input of paired comparisons.
    pub(crate) fn by_repetition(&self) -> BTreeMap<u32, f64> {
        let complete = self.cell.trials.iter().filter(|trial| trial.complete);
        complete.filter_map(|trial| Some((trial.repetition, trial.value(self.place)?))).collect()
    }

    /// The trial nearest to the median, and its value.
    pub(crate) fn typical(&self) -> Option<(&'a MeasuredTrial, f64)> {
        let median = self.estimate()?.median;
        let with_value = |trial: &'a MeasuredTrial| Some((trial, trial.value(self.place)?));
        let distance = |one: &(&MeasuredTrial, f64)| (one.1 - median).abs();
        let all = self.cell.trials.iter().filter_map(with_value);
        all.min_by(|one, other| distance(one).total_cmp(&distance(other)))
    }

    /// Another metric in all its trials, also in those that ended early.
    pub(crate) fn of_all_trials(&self, name: &str) -> Vec<f64> {
        let place = self.measured.metrics.iter().position(|known| known.name == name);
        self.cell.trials.iter().filter_map(|trial| trial.value(place?)).collect()
    }
}

impl MeasuredTrial {
    /// The metric at a place of [`Measured::metrics`].
    fn value(&self, place: usize) -> Option<f64> {
        self.values.get(place).copied().filter(|value| !value.is_nan())
    }

    fn series_of(&self, metric: &MetricName) -> Option<&Series> {
        self.series.iter().find(|one| one.name == metric.name && one.y.unit == metric.unit)
    }
}

impl MeasuredCell {
    /// The same cell, for trials that are computed.
    fn without_trials(&self) -> Self {
        Self {
            number: self.number,
            factors: Arc::clone(&self.factors),
            settings: self.settings.clone(),
            cached: self.cached.clone(),
            trials: Vec::new(),
        }
    }

    /// Its levels of these factors, as text; may be empty.
    pub(crate) fn levels<'a>(&self, factors: impl IntoIterator<Item = &'a String>) -> Vec<String> {
        let level = |name: &String| Some(level_of(name, self.factors.get(name)?));
        factors.into_iter().filter_map(level).collect()
    }

    /// Its levels of the factors that vary, and what every label of it says.
    pub(crate) fn label(&self, factors: &[String]) -> String {
        let mut parts = self.levels(factors);
        if parts.is_empty() {
            parts.push("all trials".to_owned());
        }
        parts.extend(self.mark().map(str::to_owned));
        parts.join(", ")
    }

    /// What every label of it says beside its levels.
    pub(crate) fn mark(&self) -> Option<&'static str> {
        self.settings.discards().then_some("discard")
    }

    /// Whether values of this metric may have come from a client's cache.
    pub(crate) fn is_cached(&self, metric: &MetricName) -> bool {
        self.cached.contains(&metric.name)
    }

    /// Complete trials; all of them when none is complete.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &MeasuredTrial> {
        let any = self.trials.iter().any(|trial| trial.complete);
        self.trials.iter().filter(move |trial| trial.complete || !any)
    }
}

/// A point of an axis as a level of a factor.
fn level(unit: Unit, x: f64) -> Value {
    match unit {
        Unit::Bytes => Value::from(clearstream_schema::ByteCount(x as u64).to_string()),
        Unit::Nanoseconds => Value::from(clearstream_schema::TimeSpan(x as u64).to_string()),
        Unit::Ratio => Value::from(unit.text(x)),
        _ => Value::from(x),
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::outcome::Axis;

    use super::*;

    /// A trial whose bandwidth is over a measured share.
    fn outcome(points: &[(f64, f64)]) -> Outcome {
        let series = Series {
            name: "bandwidth".to_owned(),
            x: Axis::new("availability", Unit::Ratio),
            y: Axis::new("bandwidth", Unit::BitsPerSecond),
            points: points.to_vec(),
        };
        let metric = Metric::higher("bandwidth", Unit::BitsPerSecond, points[0].1);
        Outcome { series: vec![series], ..Outcome::of([metric]) }
    }

    #[test]
    fn points_over_a_measured_share_are_joined_in_order() {
        let mut measured = Measured::default();
        for points in [[(0.1, 9e9), (0.7, 5e9)], [(0.2, 8e9), (0.8, 4e9)]] {
            let facts = TrialFacts { keep_series: true, ..TrialFacts::default() };
            measured.add((0, &Factors::default()), &outcome(&points), facts);
        }
        let metric = measured.metric(None).unwrap().clone();
        let expanded = measured.over_series(&metric);
        let cells: Vec<(Value, Vec<f64>)> = expanded
            .cells()
            .map(|cell| {
                (cell.factors["availability"].clone(), expanded.cell_of(cell, &metric).unwrap().values())
            })
            .collect();
        // The medians of 0.1 and 0.2, and of 0.7 and 0.8.
        assert_eq!(cells, [("15.0 %".into(), vec![9e9, 8e9]), ("75.0 %".into(), vec![5e9, 4e9])]);
    }
}
