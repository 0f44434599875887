//! Trials of any workload as (factor, metric, series): what every figure of a
//! metric is drawn of, whichever workload measured it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use clearstream_schema::outcome::{Better, Metric, Outcome, Series, Unit};
use serde_json::Value;

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
    pub(crate) factors: Factors,
    /// The receiver discarded in the kernel: its figures are labelled so.
    pub(crate) discard: bool,
    /// Metrics that in some trial may have come from a client's cache.
    cached: BTreeSet<String>,
    pub(crate) trials: Vec<MeasuredTrial>,
}

/// Facts of a trial beside its metrics.
#[derive(Debug, Default)]
pub(crate) struct TrialFacts {
    pub(crate) repetition: u32,
    pub(crate) discard: bool,
    /// Metrics that may have come from a client's cache.
    pub(crate) cached: Vec<String>,
    pub(crate) keep_series: bool,
}

/// A trial, reduced to its numbers.
#[derive(Debug)]
pub(crate) struct MeasuredTrial {
    pub(crate) complete: bool,
    pub(crate) repetition: u32,
    /// By the places of [`Measured::metrics`], NaN where it has none: thousands of trials have
    /// no names of their own.
    values: Box<[f64]>,
    /// Metrics over time or size, where a figure may need them.
    pub(crate) series: Vec<Series>,
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
        let cell = self
            .cells
            .entry(cell)
            .or_insert_with(|| MeasuredCell { factors: Arc::clone(factors), ..MeasuredCell::default() });
        cell.discard |= facts.discard;
        cell.cached.extend(facts.cached);
        cell.trials.push(MeasuredTrial {
            complete: outcome.complete,
            repetition: facts.repetition,
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
                series: Vec::new(),
            };
            let trials = (0..).zip(values).map(trial).collect();
            let (factors, cached) = (Arc::clone(&cell.factors), cell.cached.clone());
            MeasuredCell { factors, discard: cell.discard, cached, trials }
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

    /// A metric in the trials of a cell that count.
    pub(crate) fn values(&self, cell: &MeasuredCell, metric: &MetricName) -> Vec<f64> {
        let Some(place) = self.metrics.iter().position(|known| known == metric) else { return Vec::new() };
        let value = |trial: &MeasuredTrial| trial.values.get(place).copied().filter(|value| !value.is_nan());
        cell.counted().filter_map(value).collect()
    }

    /// As [`Self::values`], by repetition: what is compared in pairs.
    pub(crate) fn by_repetition(&self, cell: &MeasuredCell, metric: &MetricName) -> BTreeMap<u32, f64> {
        let place = self.metrics.iter().position(|known| known == metric);
        let value = |trial: &MeasuredTrial| {
            let value = trial.values.get(place?).copied().filter(|value| !value.is_nan())?;
            Some((trial.repetition, value))
        };
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
                        MeasuredCell {
                            factors: Arc::new(factors),
                            discard: cell.discard,
                            cached: cell.cached.clone(),
                            trials: Vec::new(),
                        }
                    });
                    point.trials.push(MeasuredTrial {
                        complete: trial.complete,
                        repetition: trial.repetition,
                        values: Box::new([*y]),
                        series: Vec::new(),
                    });
                }
            }
        }
        expanded
    }
}

impl MeasuredTrial {
    fn series_of(&self, metric: &MetricName) -> Option<&Series> {
        self.series.iter().find(|one| one.name == metric.name && one.y.unit == metric.unit)
    }
}

impl MeasuredCell {
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
            .map(|cell| (cell.factors["availability"].clone(), expanded.values(cell, &metric)))
            .collect();
        // The medians of 0.1 and 0.2, and of 0.7 and 0.8.
        assert_eq!(cells, [("15.0 %".into(), vec![9e9, 8e9]), ("75.0 %".into(), vec![5e9, 4e9])]);
    }
}
