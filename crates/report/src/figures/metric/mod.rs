//! Figures of any metric against any factor: what is drawn of workloads that
//! have no figure of their own, and for the kinds `curve`, `bars` and `table`.

mod bars;
mod curve;

use std::collections::BTreeMap;

use clearstream_schema::{
    ByteCount,
    outcome::{Better, Metric, Unit},
    record::Published,
    study::Figure as Kind,
};
use serde_json::Value;

use crate::{
    digest::{ExperimentDigest, MeasuredTrial},
    estimate::Estimate,
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    format::{level, level_of},
};

/// A cell: its levels and its values of one metric.
struct MetricCell<'a> {
    factors: &'a BTreeMap<String, Value>,
    values: Vec<f64>,
    estimate: Estimate,
}

/// One metric of an experiment.
struct View<'a> {
    experiment: &'a ExperimentDigest,
    metric: &'a Metric,
    cells: Vec<MetricCell<'a>>,
    /// Factors with several levels.
    varying: Vec<String>,
}

/// The chosen metric as its kind says, and a table of all metrics.
pub(crate) fn figures(experiment: &ExperimentDigest) -> Vec<Figure> {
    let Some(mut view) = View::of(experiment, &experiment.measured) else { return Vec::new() };
    let cells_vary = view.varying.clone();
    let mut curve = match experiment.spec.figure {
        Kind::Bars | Kind::Table => None,
        _ => view.numeric_factor(),
    };
    let expanded = over_series(experiment, view.metric);
    if experiment.spec.figure == Kind::Curve
        && curve.is_none()
        && let Some(over) = View::of(experiment, &expanded)
    {
        curve = over.numeric_factor();
        view = over;
    }
    let id = identifier(&[&experiment.spec.name, &view.metric.name]);
    let (title, finding) = (view.title(curve.as_deref()), view.finding());
    let drawings = draw_both(&id, &title, &finding, |size| match &curve {
        Some(factor) => curve::draw(&view, factor, size),
        None => bars::draw(&view, size),
    });
    let legend = match &curve {
        Some(factor) => view.curve_legend(factor),
        None => vec![LegendItem::new("dot s0", "one trial")],
    };
    let theirs = view.published().map(|(published, ..)| {
        LegendItem::new("theirs", format!("published: {}, {}", published.label, published.source))
    });
    vec![Figure {
        drawings,
        notes: Vec::new(),
        legend: legend.into_iter().chain(theirs).collect(),
        table: table(experiment, &cells_vary),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    }]
}

impl<'a> View<'a> {
    fn of(experiment: &'a ExperimentDigest, trials: &'a [MeasuredTrial]) -> Option<Self> {
        let complete = |trial: &&MeasuredTrial| trial.complete;
        let trials: Vec<&MeasuredTrial> = trials.iter().filter(complete).collect();
        let named = experiment.spec.metric.as_deref();
        let pick = |trial: &&'a MeasuredTrial| match named {
            Some(name) => trial.metrics.iter().find(|metric| metric.name == name),
            None => trial.metrics.first(),
        };
        let metric = trials.iter().find_map(pick)?;
        let mut cells: BTreeMap<u32, (&BTreeMap<String, Value>, Vec<f64>)> = BTreeMap::new();
        for trial in &trials {
            let value = trial.metrics.iter().find(|other| other.name == metric.name);
            let cell = cells.entry(trial.cell).or_insert_with(|| (&trial.factors, Vec::new()));
            cell.1.extend(value.map(|metric| metric.value));
        }
        let cells: Vec<MetricCell<'a>> = cells
            .into_values()
            .filter_map(|(factors, values)| {
                Some(MetricCell { factors, estimate: Estimate::of(&values)?, values })
            })
            .collect();
        let varying = varying(cells.iter().map(|cell| cell.factors));
        Some(Self { experiment, metric, cells, varying })
    }

    /// The factor that is drawn along the horizontal axis: all its levels are
    /// numbers, and it has most of them.
    fn numeric_factor(&self) -> Option<String> {
        let levels = |name: &String| -> Option<usize> {
            let all: Option<Vec<f64>> =
                self.cells.iter().map(|cell| number(cell.factors.get(name)?)).collect();
            let mut all = all?;
            all.sort_by(f64::total_cmp);
            all.dedup();
            (all.len() > 2).then_some(all.len())
        };
        let counted = self.varying.iter().filter_map(|name| Some((levels(name)?, name)));
        counted.max_by_key(|(count, _)| *count).map(|(_, name)| name.clone())
    }

    /// Cells by the levels of all factors but one, in order of that one.
    fn lines(&self, factor: &str) -> Vec<(String, Vec<(f64, &MetricCell<'a>)>)> {
        let mut lines: Vec<(String, Vec<(f64, &MetricCell<'a>)>)> = Vec::new();
        for cell in &self.cells {
            let Some(x) = cell.factors.get(factor).and_then(number) else { continue };
            let label = self.label(cell, Some(factor));
            match lines.iter_mut().find(|(known, _)| *known == label) {
                Some((_, points)) => points.push((x, cell)),
                None => lines.push((label, vec![(x, cell)])),
            }
        }
        for (_, points) in &mut lines {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
        }
        lines
    }

    fn label(&self, cell: &MetricCell<'_>, without: Option<&str>) -> String {
        let names = self.varying.iter().filter(|name| Some(name.as_str()) != without);
        let parts: Vec<String> =
            names.filter_map(|name| Some(level_of(name, cell.factors.get(name)?))).collect();
        if parts.is_empty() { "all trials".to_owned() } else { parts.join(", ") }
    }

    /// Published values of this metric, in its unit.
    fn published(&self) -> impl Iterator<Item = (&'a Published, f64, f64)> {
        self.experiment.spec.published.iter().filter_map(|published| {
            let (low, high) = published.range(&self.metric.name, self.metric.unit);
            Some((published, low.or(high)?, high.or(low)?))
        })
    }

    /// Title of an axis: the quantity with its unit, where it has one.
    fn axis(&self, unit: &str) -> String {
        let metric = self.metric.name.replace('-', " ");
        if unit.is_empty() { metric } else { format!("{metric}, {unit}") }
    }

    fn title(&self, factor: Option<&str>) -> String {
        let metric = self.metric.name.replace('-', " ");
        match factor {
            Some(factor) => {
                format!("{}: {metric} against {}", self.experiment.spec.title, factor.replace('-', " "))
            }
            None => format!("{}: {metric} of each cell", self.experiment.spec.title),
        }
    }

    /// The best cell, said to be chosen.
    fn finding(&self) -> String {
        let value = |cell: &&MetricCell<'_>| cell.estimate.median;
        let order = |one: &&MetricCell<'_>, other: &&MetricCell<'_>| value(one).total_cmp(&value(other));
        let best = match self.metric.better {
            Better::Higher => self.cells.iter().max_by(order),
            Better::Lower => self.cells.iter().min_by(order),
        };
        let Some(best) = best else { return "Nothing was measured to its end.".to_owned() };
        let unit = |value: f64| self.metric.unit.text(value);
        let word = if self.metric.better == Better::Higher { "Highest" } else { "Lowest" };
        let chosen = match self.cells.len() {
            1 => String::new(),
            count => format!("; {} of {count} cells, chosen after measuring", word.to_lowercase()),
        };
        format!(
            "{word} {}: {} with {} ({}){chosen}.",
            self.metric.name.replace('-', " "),
            unit(best.estimate.median),
            self.label(best, None),
            best.estimate.how_sure(unit)
        )
    }

    fn curve_legend(&self, factor: &str) -> Vec<LegendItem> {
        let lines = self.lines(factor);
        let class = |index: usize| format!("dot {}", super::series_class(index));
        let named = lines.into_iter().enumerate();
        named.map(|(index, (label, _))| LegendItem::new(class(index), label)).collect()
    }
}

/// A trial per point of the metric's series, whose axis becomes a factor: what a
/// curve is drawn of where one trial measures all sizes.
fn over_series(experiment: &ExperimentDigest, metric: &Metric) -> Vec<MeasuredTrial> {
    let mut cells = BTreeMap::new();
    let mut points = Vec::new();
    for trial in experiment.measured.iter().filter(|trial| trial.complete) {
        let Some(series) = trial.series.as_ref().filter(|series| series.name == metric.name) else {
            continue;
        };
        for (x, y) in &series.points {
            let next = u32::try_from(cells.len()).unwrap_or(u32::MAX);
            let cell = *cells.entry((trial.cell, x.to_bits())).or_insert(next);
            let level = match series.x.unit {
                Unit::Bytes => Value::from(ByteCount(*x as u64).to_string()),
                _ => Value::from(*x),
            };
            let mut factors = trial.factors.clone();
            factors.insert(series.x.name.clone(), level);
            let metrics = vec![Metric { value: *y, ..metric.clone() }];
            points.push(MeasuredTrial { cell, factors, complete: true, metrics, series: None });
        }
    }
    points
}

/// Factors with more than one level.
fn varying<'a>(cells: impl Iterator<Item = &'a BTreeMap<String, Value>>) -> Vec<String> {
    let mut levels: BTreeMap<&String, Vec<&Value>> = BTreeMap::new();
    for (name, value) in cells.flatten() {
        let seen = levels.entry(name).or_default();
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    levels.into_iter().filter(|(_, seen)| seen.len() > 1).map(|(name, _)| name.clone()).collect()
}

/// A level as a number: `4`, `"64KiB"`.
fn number(value: &Value) -> Option<f64> {
    let text = value.as_str();
    value.as_f64().or_else(|| text?.parse::<ByteCount>().ok().map(|bytes| bytes.0 as f64))
}

/// A metric's value in a unit that all values of an axis share.
fn scaled(unit: Unit, highest: f64) -> (&'static str, f64) {
    unit.scale_for(highest)
}

fn table(experiment: &ExperimentDigest, varying: &[String]) -> Table {
    let mut metrics: Vec<&Metric> = Vec::new();
    for metric in experiment.measured.iter().flat_map(|trial| &trial.metrics) {
        if !metrics.iter().any(|known| known.name == metric.name) {
            metrics.push(metric);
        }
    }
    let heads: Vec<String> = varying
        .iter()
        .cloned()
        .chain(["#n".to_owned()])
        .chain(metrics.iter().map(|metric| format!("#{}", metric.name.replace('-', " "))))
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new("Median of every metric", &heads);
    let mut cells: BTreeMap<u32, Vec<&MeasuredTrial>> = BTreeMap::new();
    for trial in experiment.measured.iter().filter(|trial| trial.complete) {
        cells.entry(trial.cell).or_default().push(trial);
    }
    for trials in cells.values() {
        let factors = &trials[0].factors;
        let levels = varying.iter().map(|name| factors.get(name).map(level).unwrap_or_default());
        let medians = metrics.iter().map(|metric| {
            let of = |trial: &&&MeasuredTrial| {
                trial.metrics.iter().find(|other| other.name == metric.name).map(|found| found.value)
            };
            let values: Vec<f64> = trials.iter().filter_map(|trial| of(&trial)).collect();
            Estimate::of(&values).map_or_else(|| "\u{2013}".to_owned(), |one| metric.unit.text(one.median))
        });
        table.push(levels.chain([trials.len().to_string()]).chain(medians).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbers_where_people_write_numbers() {
        assert_eq!(number(&4.into()), Some(4.0));
        assert_eq!(number(&"64KiB".into()), Some(65_536.0));
        assert_eq!(number(&"inline".into()), None);
    }
}
