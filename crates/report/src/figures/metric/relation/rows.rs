//! The ratio of two levels of a factor in every cell: of published values, and of pairs of trials.

use clearstream_schema::{published::Relation, record::Published};
use clearstream_stats::{PairedRatio, paired_ratio};
use serde_json::Value;

use super::super::view::{MetricCell, View, canonical, number};
use crate::{
    digest::ExperimentDigest,
    format::{level_of, significant},
    measured::MetricName,
};

/// A cell without its level of the factor.
pub(super) struct Row {
    /// Its other levels.
    pub(super) label: String,
    /// Numbers of these, for the order.
    order: Vec<f64>,
    pub(super) theirs: Option<Theirs>,
    pub(super) ours: Option<Ours>,
}

/// What was published of it.
pub(super) struct Theirs {
    pub(super) ratio: f64,
    /// The two values in their unit, as printed.
    pub(super) values: String,
    pub(super) sources: Vec<String>,
}

/// What was measured of it.
pub(super) struct Ours {
    /// Of pairs of one repetition.
    pub(super) ratio: PairedRatio,
    /// Medians of both levels, with their unit.
    pub(super) values: String,
}

/// All cells of a metric.
pub(super) struct Rows<'a> {
    pub(super) metric: &'a MetricName,
    /// Ours may have come from a client's cache.
    pub(super) is_cached: bool,
    /// In the order of their levels.
    pub(super) rows: Vec<Row>,
}

/// Rows of every metric that the experiment draws.
pub(super) fn of<'a>(experiment: &'a ExperimentDigest, relation: &Relation) -> Vec<Rows<'a>> {
    let metrics = experiment.drawn_metrics();
    let all = metrics.into_iter().map(|metric| of_metric(experiment, relation, metric));
    all.filter(|rows| !rows.rows.is_empty()).collect()
}

fn of_metric<'a>(experiment: &'a ExperimentDigest, relation: &Relation, metric: &'a MetricName) -> Rows<'a> {
    let view = View::of(metric, &[(experiment, &experiment.measured)], None);
    let mut used: Vec<&Published> = Vec::new();
    let mut rows = Vec::new();
    let key = |cell: &MetricCell<'_>| -> Vec<(String, String)> {
        let others = cell.cell.factors.iter().filter(|(name, _)| **name != relation.factor);
        others.map(|(name, level)| (name.clone(), canonical(level))).collect()
    };
    let is_at = |cell: &&MetricCell<'_>, level: &Value| {
        cell.cell.factors.get(&relation.factor).is_some_and(|own| canonical(own) == canonical(level))
    };
    let cells = |level| view.cells.iter().filter(move |cell| is_at(cell, level));
    let mut keys: Vec<Vec<(String, String)>> =
        cells(&relation.level).chain(cells(&relation.over)).map(key).collect();
    keys.sort();
    keys.dedup();
    for of_row in keys {
        let ends =
            [&relation.level, &relation.over].map(|level| cells(level).find(|cell| key(cell) == of_row));
        let ([Some(any), ..] | [_, Some(any)]) = ends else { continue };
        let theirs = [&relation.level, &relation.over].map(|level| {
            published(&view, relation, level).find(|(one, _)| is_of_row(&view, one, any, &relation.factor))
        });
        used.extend(theirs.iter().flatten().map(|(one, _)| *one));
        rows.push(Row {
            label: label(any.cell.factors.iter().filter(|(name, _)| **name != relation.factor)),
            order: order(any.cell.factors.iter().filter(|(name, _)| **name != relation.factor)),
            theirs: theirs_of(theirs),
            ours: ours_of(&view, ends),
        });
    }
    rows.extend(without_cell(&view, relation, &used));
    rows.sort_by(|one, other| one.order.partial_cmp(&other.order).unwrap_or(core::cmp::Ordering::Equal));
    Rows { metric, is_cached: view.cells.iter().any(|cell| cell.is_cached), rows }
}

/// Published pairs of which no cell was measured.
fn without_cell(view: &View<'_>, relation: &Relation, used: &[&Published]) -> Vec<Row> {
    let is_used = |one: &Published| used.iter().any(|known| std::ptr::eq(*known, one));
    let others = |one: &Published| -> Vec<(String, Value)> {
        let fixed = &view.sources[0].experiment.fixed;
        let is_told = |name: &String| *name != relation.factor && !fixed.contains_key(name);
        let named = one.factors.iter().filter(|(name, _)| is_told(name));
        named.map(|(name, level)| (name.clone(), level.clone())).collect()
    };
    let left = |level| published(view, relation, level).filter(|(one, _)| !is_used(one)).collect::<Vec<_>>();
    let over = left(&relation.over);
    let row = |(one, value): (&'_ Published, f64)| {
        let levels = others(one);
        let other = over.iter().find(|(other, _)| others(other) == levels)?;
        Some(Row {
            label: label(levels.iter().map(|(name, level)| (name, level))),
            order: order(levels.iter().map(|(name, level)| (name, level))),
            theirs: theirs_of([Some((one, value)), Some(*other)]),
            ours: None,
        })
    };
    left(&relation.level).into_iter().filter_map(row).collect()
}

/// Published values of the metric at a level of the factor, in the metric's unit.
fn published<'v>(
    view: &'v View<'_>,
    relation: &'v Relation,
    level: &'v Value,
) -> impl Iterator<Item = (&'v Published, f64)> {
    view.sources[0].experiment.spec.published.iter().filter_map(move |one| {
        let (low, high) = one.range(&view.metric.name, view.metric.unit);
        let (low, high) = (low.or(high)?, high.or(low)?);
        let own = one.factors.get(&relation.factor)?;
        (canonical(own) == canonical(level)).then_some((one, (low + high) / 2.0))
    })
}

/// All levels but that of the factor are the cell's, or fixed options.
fn is_of_row(view: &View<'_>, published: &Published, cell: &MetricCell<'_>, factor: &str) -> bool {
    view.is_of(published, cell, Some(factor))
}

fn theirs_of([of, over]: [Option<(&Published, f64)>; 2]) -> Option<Theirs> {
    let ((of, value), (over, base)) = (of?, over?);
    let printed = |one: &Published| one.high.or(one.low).unwrap_or_default();
    let mut sources = vec![of.source.clone(), over.source.clone()];
    sources.dedup();
    Some(Theirs {
        ratio: value / base,
        values: format!("{} / {} {}", printed(of), printed(over), of.unit),
        sources,
    })
    .filter(|theirs| theirs.ratio.is_finite() && theirs.ratio > 0.0)
}

fn ours_of(view: &View<'_>, [of, over]: [Option<&MetricCell<'_>>; 2]) -> Option<Ours> {
    let (of, over) = (of?, over?);
    let measured = view.sources[0].measured;
    let (values, bases) =
        (measured.by_repetition(of.cell, view.metric), measured.by_repetition(over.cell, view.metric));
    let pairs: Vec<(f64, f64)> =
        bases.iter().filter_map(|(repetition, base)| Some((*base, *values.get(repetition)?))).collect();
    let unit = |value: f64| view.metric.unit.text(value);
    Some(Ours {
        ratio: paired_ratio(&pairs)?,
        values: quotient(&unit(of.estimate.median), &unit(over.estimate.median)),
    })
}

/// `4764 / 177163 1/s`: the unit once where both have the same.
fn quotient(of: &str, over: &str) -> String {
    match (of.split_once(' '), over.split_once(' ')) {
        (Some((value, unit)), Some((_, same))) if unit == same => format!("{value} / {over}"),
        _ => format!("{of} / {over}"),
    }
}

fn label<'a>(levels: impl Iterator<Item = (&'a String, &'a Value)>) -> String {
    levels.map(|(name, level)| level_of(name, level)).collect::<Vec<_>>().join(", ")
}

/// Numbers of levels; a list of hosts counts its hosts.
fn order<'a>(levels: impl Iterator<Item = (&'a String, &'a Value)>) -> Vec<f64> {
    levels
        .map(|(_, level)| {
            let listed = || level.as_str().map_or(0.0, |text| text.split(',').count() as f64);
            number(level).unwrap_or_else(listed)
        })
        .collect()
}

impl Ours {
    /// `4.20 (3.90 to 4.60)`; of one pair the ratio alone.
    pub(super) fn text(&self) -> String {
        let value = significant(self.ratio.value);
        match self.ratio.count {
            0 | 1 => value,
            _ => format!("{value} ({} to {})", significant(self.ratio.low), significant(self.ratio.high)),
        }
    }
}
