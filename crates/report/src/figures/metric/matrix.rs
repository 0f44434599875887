//! A metric over two factors as a heat map: a column per level of the one, a row
//! per level of the other, one figure per combination of the factors beyond them.

use std::collections::BTreeMap;

use clearstream_schema::human;
use serde_json::Value;

use super::{
    scaled,
    view::{MetricCell, Source, View, number},
};
use crate::{
    digest::ExperimentDigest,
    figure::{Figure, LegendItem, Table, draw_both, identifier},
    figures::heat::{HeatCell, HeatMap},
    format::{count, significant},
    measured::MetricName,
};

const ABSENT: &str = "\u{2013}";

/// Cells with the same levels but for two factors.
struct Matrix<'v, 'a> {
    view: &'v View<'a>,
    /// Factors along the top and down the side.
    across: &'v str,
    down: &'v str,
    columns: Vec<String>,
    rows: Vec<String>,
    /// By (row, column).
    cells: BTreeMap<(usize, usize), &'v MetricCell<'a>>,
}

/// Heat maps; none where fewer than two factors have several levels.
pub(super) fn figures(experiment: &ExperimentDigest, metric: &MetricName) -> Vec<Figure> {
    let whole = View::of(metric, &[(experiment, &experiment.measured)], None);
    let Some((across, down)) = axes(&whole) else { return Vec::new() };
    let varying = &whole.sources[0].varying;
    let mut groups: Vec<(String, View<'_>)> = Vec::new();
    for cell in whole.cells {
        let label = others(varying, &cell, (&across, &down));
        match groups.iter_mut().find(|(known, _)| *known == label) {
            Some((_, view)) => view.cells.push(cell),
            None => {
                let source = Source { experiment, measured: &experiment.measured, varying: varying.clone() };
                let (sources, cells) = (vec![source], vec![cell]);
                groups.push((label, View { metric, sources, cells, axis: None, outside_count: 0 }));
            }
        }
    }
    let drawn = |(index, (label, view)): (usize, &(String, View<'_>))| {
        figure(&Matrix::of(view, &across, &down), index, label)
    };
    groups.iter().enumerate().map(drawn).collect()
}

/// The two factors with the most levels, the one with more of them along the top.
fn axes(view: &View<'_>) -> Option<(String, String)> {
    let mut factors: Vec<(usize, &String)> =
        view.sources[0].varying.iter().map(|name| (levels(&view.cells, name).len(), name)).collect();
    factors.sort_by_key(|(count, name)| (std::cmp::Reverse(*count), *name));
    let [(_, across), (_, down), ..] = factors.as_slice() else { return None };
    Some(((*across).clone(), (*down).clone()))
}

/// Levels of a factor: ascending where all are numbers, else in the order of the cells.
fn levels<'c>(cells: &'c [MetricCell<'_>], factor: &str) -> Vec<&'c Value> {
    let mut found: Vec<&Value> = Vec::new();
    for level in cells.iter().filter_map(|cell| cell.cell.factors.get(factor)) {
        if !found.contains(&level) {
            found.push(level);
        }
    }
    if found.iter().all(|level| number(level).is_some()) {
        found.sort_by(|one, other| {
            number(one).partial_cmp(&number(other)).unwrap_or(std::cmp::Ordering::Equal)
        });
    }
    found
}

/// The levels of a cell's other factors.
fn others(varying: &[String], cell: &MetricCell<'_>, (across, down): (&str, &str)) -> String {
    let names = varying.iter().filter(|name| *name != across && *name != down);
    let mut parts = cell.cell.levels(names);
    parts.extend(cell.cell.mark().map(str::to_owned));
    parts.join(", ")
}

impl<'v, 'a> Matrix<'v, 'a> {
    fn of(view: &'v View<'a>, across: &'v str, down: &'v str) -> Self {
        let (columns, rows) = (levels(&view.cells, across), levels(&view.cells, down));
        let place = |cell: &MetricCell<'_>, factor: &str, all: &[&Value]| {
            let own = cell.cell.factors.get(factor)?;
            all.iter().position(|one| *one == own)
        };
        let placed = view
            .cells
            .iter()
            .filter_map(|cell| Some(((place(cell, down, &rows)?, place(cell, across, &columns)?), cell)));
        let cells = placed.collect();
        let [columns, rows] = [columns, rows].map(|levels| levels.into_iter().map(human::level).collect());
        Self { view, across, down, columns, rows, cells }
    }

    fn median(&self, place: (usize, usize)) -> Option<f64> {
        self.cells.get(&place).map(|cell| cell.estimate.median)
    }

    fn bounds(&self) -> (f64, f64) {
        let medians = self.cells.values().map(|cell| cell.estimate.median);
        medians.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), median| (l.min(median), h.max(median)))
    }
}

fn figure(matrix: &Matrix<'_, '_>, index: usize, label: &str) -> Figure {
    let view = matrix.view;
    let experiment = view.sources[0].experiment;
    let mut id = identifier(&[&experiment.spec.name, &view.metric.name]);
    if index > 0 {
        id.push_str(&format!("-{}", index + 1));
    }
    let spoken = |name: &str| name.replace('-', " ");
    let mut title = format!(
        "{}: {} by {} and {}",
        experiment.spec.title,
        view.spoken(),
        spoken(matrix.down),
        spoken(matrix.across)
    );
    if !label.is_empty() {
        title.push_str(&format!(" ({label})"));
    }
    let finding = view.finding();
    let map = heat_map(matrix);
    let (low, high) = matrix.bounds();
    let (low, high) = (view.metric.unit.text(low), view.metric.unit.text(high));
    let missing = matrix.rows.len() * matrix.columns.len() - matrix.cells.len();
    let crosses = format!("{} could not be measured (drawn as crosses).", count(missing, "cell"));
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| map.draw(size)),
        notes: (missing > 0).then_some(crosses).into_iter().collect(),
        legend: vec![LegendItem::new("heat", format!("{low} to {high}"))],
        table: table(matrix),
        published: if index == 0 { experiment.spec.published.clone() } else { Vec::new() },
        id,
        title,
        finding,
    }
}

fn heat_map(matrix: &Matrix<'_, '_>) -> HeatMap {
    let view = matrix.view;
    let (low, high) = matrix.bounds();
    let (unit, factor) = scaled(view.metric.unit, high.abs().max(low.abs()));
    let spoken = |name: &str| name.replace('-', " ");
    let cell = |cell: &MetricCell<'_>| {
        let median = cell.estimate.median;
        let tip = format!(
            "{}: {} ({})",
            view.label(cell, None),
            view.metric.unit.text(median),
            cell.estimate.how_sure(|value| view.metric.unit.text(value))
        );
        HeatCell { value: median, text: significant(median / factor), tip }
    };
    HeatMap {
        title: view.axis_title(unit),
        axes: format!("{} \u{2193}   {} \u{2192}", spoken(matrix.down), spoken(matrix.across)),
        rows: matrix.rows.clone(),
        columns: matrix.columns.clone(),
        cells: matrix.cells.iter().map(|(place, found)| (*place, cell(found))).collect(),
        ..HeatMap::default()
    }
}

fn table(matrix: &Matrix<'_, '_>) -> Table {
    let view = matrix.view;
    let heads = matrix.columns.iter().map(|level| format!("#{} {level}", matrix.across));
    let heads: Vec<String> = std::iter::once(matrix.down.to_owned()).chain(heads).collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let trials: usize = matrix.cells.values().map(|cell| cell.values.len()).sum();
    let mut table = Table::new(format!("Median {}, {}", view.spoken(), count(trials, "trial")), &heads);
    for (row, level) in matrix.rows.iter().enumerate() {
        let value = |column| matrix.median((row, column)).map(|median| view.metric.unit.text(median));
        let values =
            (0..matrix.columns.len()).map(|column| value(column).unwrap_or_else(|| ABSENT.to_owned()));
        table.push(std::iter::once(level.clone()).chain(values).collect());
    }
    table
}
