//! The cells of a figure of a metric: those of an experiment and of its reference experiment.

use std::collections::BTreeMap;

use clearstream_schema::{BitRate, ByteCount, TimeSpan, record::Published};
use serde_json::Value;

use crate::{
    digest::ExperimentDigest,
    estimate::Estimate,
    figures::series_class,
    format::level,
    measured::{Measured, MeasuredCell, MetricName},
};

/// A cell: its levels and its values of the metric.
pub(super) struct MetricCell<'a> {
    pub(super) cell: &'a MeasuredCell,
    /// Place in [`View::sources`].
    pub(super) source: usize,
    pub(super) values: Vec<f64>,
    pub(super) estimate: Estimate,
    /// The values may have come from a client's cache.
    pub(super) is_cached: bool,
}

/// An experiment of the figure.
pub(super) struct Source<'a> {
    pub(super) experiment: &'a ExperimentDigest,
    /// Metric of its cells.
    pub(super) measured: &'a Measured,
    /// Factors with several levels.
    pub(super) varying: Vec<String>,
}

/// One metric of an experiment and of its reference experiment.
pub(super) struct View<'a> {
    pub(super) metric: &'a MetricName,
    /// The experiment itself, then its reference.
    pub(super) sources: Vec<Source<'a>>,
    pub(super) cells: Vec<MetricCell<'a>>,
    /// The factor along the horizontal axis of a curve.
    pub(super) axis: Option<String>,
    /// Cells of the reference that lie outside the levels of the axis.
    pub(super) outside_count: usize,
}

impl<'a> View<'a> {
    /// A view of experiments with what their cells are drawn of; a curve over `axis`, else bars.
    pub(super) fn of(
        metric: &'a MetricName,
        shown: &[(&'a ExperimentDigest, &'a Measured)],
        axis: Option<String>,
    ) -> Self {
        let mut view = Self { metric, sources: Vec::new(), cells: Vec::new(), axis, outside_count: 0 };
        for (source, &(experiment, measured)) in shown.iter().enumerate() {
            let cells = cells(measured, metric, source);
            let varying = varying(cells.iter().map(|cell| &*cell.cell.factors));
            view.sources.push(Source { experiment, measured, varying });
            view.cells.extend(cells);
        }
        view.cut_to_axis();
        view
    }

    /// Leaves out what the other experiment has beyond the levels of this one: it has a figure
    /// of its own, and the axis shows where both can be compared.
    fn cut_to_axis(&mut self) {
        let Some(axis) = self.axis.clone() else { return };
        let x = |cell: &MetricCell<'_>| cell.cell.factors.get(&axis).and_then(number);
        let own = self.cells.iter().filter(|cell| cell.source == 0).filter_map(x);
        let (low, high) = own.fold((f64::INFINITY, 0.0f64), |(l, h), x| (l.min(x), h.max(x)));
        let before = self.cells.len();
        self.cells.retain(|cell| x(cell).is_none_or(|x| (low..=high).contains(&x)));
        self.outside_count = before - self.cells.len();
    }

    /// Cells by the levels of all factors but that of the axis, in the order of that one.
    pub(super) fn lines(&self) -> Vec<(String, Vec<(f64, &MetricCell<'a>)>)> {
        let mut lines: Vec<(String, Vec<(f64, &MetricCell<'a>)>)> = Vec::new();
        for cell in &self.cells {
            let Some(x) = self.axis.as_ref().and_then(|axis| cell.cell.factors.get(axis)).and_then(number)
            else {
                continue;
            };
            let label = self.label(cell, self.axis.as_deref());
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

    /// The levels by which a cell differs from others, after its experiment's title where there are two.
    pub(super) fn label(&self, cell: &MetricCell<'_>, without: Option<&str>) -> String {
        let mut levels = self.levels(cell, without);
        if cell.is_cached && !self.all_cached() && !levels.is_empty() {
            levels.push_str(" *");
        }
        let title = &self.sources[cell.source].experiment.spec.title;
        match (self.sources.len() > 1, levels.is_empty()) {
            (true, true) => title.clone(),
            (true, false) => format!("{title}: {levels}"),
            (false, true) => "all trials".to_owned(),
            (false, false) => levels,
        }
    }

    /// The levels by which a cell differs from others of its experiment; may be empty.
    pub(super) fn levels(&self, cell: &MetricCell<'_>, without: Option<&str>) -> String {
        let source = &self.sources[cell.source];
        let names = source.varying.iter().filter(|name| Some(name.as_str()) != without);
        let mut parts = cell.cell.levels(names);
        parts.extend(cell.cell.mark().map(str::to_owned));
        parts.join(", ")
    }

    /// Every value of the figure may have come from a client's cache.
    pub(super) fn all_cached(&self) -> bool {
        !self.cells.is_empty() && self.cells.iter().all(|cell| cell.is_cached)
    }

    /// The metric as people say it; `*` where all of it may have come from a client's cache.
    pub(super) fn spoken(&self) -> String {
        let mark = if self.all_cached() { "*" } else { "" };
        format!("{}{mark}", self.metric.name.replace('-', " "))
    }

    /// Colour of what a row shows.
    pub(super) fn class(&self, cell: &MetricCell<'_>) -> String {
        if self.sources.len() > 1 { series_class(cell.source) } else { "s0".to_owned() }
    }

    /// A level of a cell, also of an option that all cells of its experiment have.
    pub(super) fn level(&self, cell: &'a MetricCell<'_>, name: &str) -> Option<&'a Value> {
        cell.cell.factors.get(name).or(self.sources[cell.source].experiment.fixed.get(name))
    }

    /// Whether a published value is of this cell, whatever its level of one factor.
    pub(super) fn is_of(&self, published: &Published, cell: &MetricCell<'_>, without: Option<&str>) -> bool {
        let agrees = |(name, value): (&String, &Value)| {
            Some(name.as_str()) == without
                || self.level(cell, name).is_some_and(|found| canonical(found) == canonical(value))
        };
        cell.source == 0 && published.factors.iter().all(agrees)
    }

    /// Published values of this metric, in its unit, that are of a drawn cell or line.
    pub(super) fn published(&self) -> Vec<(&'a Published, f64, f64)> {
        let Some(source) = self.sources.first() else { return Vec::new() };
        let drawn = |published: &Published| {
            self.cells.iter().any(|cell| self.is_of(published, cell, self.axis.as_deref()))
        };
        let all = source.experiment.spec.published.iter().filter(|published| drawn(published));
        all.filter_map(|published| {
            let (low, high) = published.range(&self.metric.name, self.metric.unit);
            Some((published, low.or(high)?, high.or(low)?))
        })
        .collect()
    }

    /// Each cell of this experiment with those of the other whose levels agree with it: of every
    /// factor that both have. Cells without one are drawn alone.
    pub(super) fn pairs(&self) -> Vec<(Option<&MetricCell<'a>>, Option<&MetricCell<'a>>)> {
        let shared = self.shared_factors();
        let key = |cell: &MetricCell<'_>| -> Vec<String> {
            shared.iter().filter_map(|name| self.level(cell, name)).map(canonical).collect()
        };
        let (own, others): (Vec<_>, Vec<_>) = self.cells.iter().partition(|cell| cell.source == 0);
        let mut by_levels: BTreeMap<Vec<String>, (Vec<&MetricCell<'a>>, bool)> = BTreeMap::new();
        for other in others {
            by_levels.entry(key(other)).or_default().0.push(other);
        }
        let mut pairs = Vec::new();
        for cell in own {
            match by_levels.get_mut(&key(cell)) {
                Some((agreeing, met)) => {
                    *met = true;
                    pairs.extend(agreeing.iter().map(|other| (Some(cell), Some(*other))));
                }
                None => pairs.push((Some(cell), None)),
            }
        }
        let alone = by_levels.into_values().filter(|(_, met)| !met).flat_map(|(others, _)| others);
        pairs.extend(alone.map(|other| (None, Some(other))));
        pairs
    }

    /// Factors of either experiment that all cells of both have a level of.
    fn shared_factors(&self) -> Vec<&String> {
        let mut names: Vec<&String> = self.sources.iter().flat_map(|source| &source.varying).collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.cells.iter().all(|cell| self.level(cell, name).is_some()));
        names
    }
}

/// Cells of one experiment that have the metric.
fn cells<'a>(measured: &'a Measured, metric: &MetricName, source: usize) -> Vec<MetricCell<'a>> {
    let of = |cell: &'a MeasuredCell| {
        let values = measured.cell_of(cell, metric)?.values();
        let (estimate, is_cached) = (Estimate::of(&values)?, cell.is_cached(metric));
        Some(MetricCell { cell, source, estimate, is_cached, values })
    };
    measured.cells().filter_map(of).collect()
}

/// The factor that is drawn along the horizontal axis: all its levels are
/// numbers, and it has most of them.
pub(super) fn numeric_factor(measured: &Measured, metric: &MetricName) -> Option<String> {
    let cells = cells(measured, metric, 0);
    let levels = |name: &String| -> Option<usize> {
        let all: Option<Vec<f64>> = cells.iter().map(|cell| number(cell.cell.factors.get(name)?)).collect();
        let mut all = all?;
        all.sort_by(f64::total_cmp);
        all.dedup();
        (all.len() > 2).then_some(all.len())
    };
    let names = varying(cells.iter().map(|cell| &*cell.cell.factors));
    let counted = names.into_iter().filter_map(|name| Some((levels(&name)?, name)));
    counted.max_by_key(|(count, _)| *count).map(|(_, name)| name)
}

/// Every cell has a number as its level of this factor.
pub(super) fn has_numbers(measured: &Measured, factor: &str) -> bool {
    measured.cells().all(|cell| cell.factors.get(factor).and_then(number).is_some())
}

/// Factors with more than one level.
fn varying<'a>(cells: impl Iterator<Item = &'a BTreeMap<String, Value>>) -> Vec<String> {
    let mut first: BTreeMap<&String, (&Value, bool)> = BTreeMap::new();
    for (name, value) in cells.flatten() {
        let (known, varies) = first.entry(name).or_insert((value, false));
        *varies |= *known != value;
    }
    first.into_iter().filter(|(_, (_, varies))| *varies).map(|(name, _)| name.clone()).collect()
}

/// A level as a number: `4`, `"64KiB"` in bytes, `"17ms"` in nanoseconds, `"40 %"` as 0.4, `"1Gb/s"` in bits per second.
pub(super) fn number(value: &Value) -> Option<f64> {
    let text = value.as_str();
    let bytes = || text?.parse::<ByteCount>().ok().map(|bytes| bytes.0 as f64);
    value
        .as_f64()
        .or_else(bytes)
        .or_else(|| text.and_then(nanoseconds))
        .or_else(|| text.and_then(ratio))
        .or_else(|| text.and_then(bits_per_second))
}

/// A level that is a rate.
pub(super) fn bits_per_second(text: &str) -> Option<f64> {
    text.parse::<BitRate>().ok().filter(|_| text.ends_with("b/s")).map(|rate| rate.0 as f64)
}

/// A level that is a share: `40.2 %`.
pub(super) fn ratio(text: &str) -> Option<f64> {
    text.strip_suffix('%')?.trim_end().parse::<f64>().ok().map(|percent| percent / 100.0)
}

/// A level that is a time with its unit.
pub(super) fn nanoseconds(text: &str) -> Option<f64> {
    let is_size = text.parse::<ByteCount>().is_ok();
    text.parse::<TimeSpan>().ok().filter(|_| !is_size).map(|time| time.0 as f64)
}

/// A level in one spelling: `"64KiB"` and `65536` are the same.
pub(super) fn canonical(value: &Value) -> String {
    number(value).map_or_else(|| level(value), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbers_where_people_write_numbers() {
        assert_eq!(number(&4.into()), Some(4.0));
        assert_eq!(number(&"64KiB".into()), Some(65_536.0));
        assert_eq!(number(&"17ms".into()), Some(17e6));
        assert_eq!(number(&"100Mb/s".into()), Some(1e8));
        assert_eq!(number(&"40.5 %".into()), Some(0.405));
        assert_eq!(number(&"inline".into()), None);
        assert_eq!(canonical(&"64KiB".into()), canonical(&65_536.into()));
        assert_ne!(canonical(&"inline".into()), canonical(&"offloaded".into()));
    }
}
