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
    figures::matrix::heat_class,
    format::{count, significant},
    measured::MetricName,
    svg::{
        Svg,
        plot::{Size, fitted, text_width},
    },
};

/// Width of a digit in a cell.
const CELL_DIGIT: f64 = 6.4;
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
    let mut parts: Vec<String> =
        names.filter_map(|name| Some(crate::format::level_of(name, cell.cell.factors.get(name)?))).collect();
    parts.extend(cell.cell.discard.then(|| "discard".to_owned()));
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
    let (low, high) = matrix.bounds();
    let (low, high) = (view.metric.unit.text(low), view.metric.unit.text(high));
    let missing = matrix.rows.len() * matrix.columns.len() - matrix.cells.len();
    let crosses = format!("{} could not be measured (drawn as crosses).", count(missing, "cell"));
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(matrix, size)),
        notes: (missing > 0).then_some(crosses).into_iter().collect(),
        legend: vec![LegendItem::new("heat", format!("{low} to {high}"))],
        table: table(matrix),
        published: if index == 0 { experiment.spec.published.clone() } else { Vec::new() },
        id,
        title,
        finding,
    }
}

fn draw(matrix: &Matrix<'_, '_>, size: Size) -> Svg {
    let view = matrix.view;
    let (low, high) = matrix.bounds();
    let (unit, factor) = scaled(view.metric.unit, high.abs().max(low.abs()));
    let longest = |texts: &[String]| texts.iter().map(|text| text_width(text)).fold(0.0, f64::max);
    let left = (longest(&matrix.rows) + 20.0).clamp(52.0, size.pick(220.0, 110.0));
    let top = 62.0;
    let room = size.width() - left - 14.0;
    let side = (room / matrix.columns.len().max(1) as f64).clamp(3.0, size.pick(62.0, 56.0));
    let mut svg = Svg::new(size.width(), top + side * matrix.rows.len() as f64 + 20.0);
    svg.text(4.0, 16.0, "unit start", &view.axis_title(unit));
    let spoken = |name: &str| name.replace('-', " ");
    let heads = format!("{} \u{2193}   {} \u{2192}", spoken(matrix.down), spoken(matrix.across));
    svg.text(4.0, 34.0, "unit start", &heads);
    // Headings that would touch each other are left out; the table has them all.
    let stride = ((longest(&matrix.columns) + 6.0) / side).ceil().max(1.0) as usize;
    for (column, text) in matrix.columns.iter().enumerate().step_by(stride) {
        svg.text(left + side * (column as f64 + 0.5), top - 8.0, "tick middle", text);
    }
    let stride = (15.0 / side).ceil().max(1.0) as usize;
    for (row, text) in matrix.rows.iter().enumerate().step_by(stride) {
        let middle = top + side * (row as f64 + 0.5) + 4.0;
        svg.text(left - 8.0, middle, "tick end", &fitted(text, left - 12.0));
    }
    for row in 0..matrix.rows.len() {
        for column in 0..matrix.columns.len() {
            let at = (left + side * column as f64, top + side * row as f64);
            heat_cell(&mut svg, matrix, (row, column), at, (side, factor));
        }
    }
    svg
}

fn heat_cell(
    svg: &mut Svg,
    matrix: &Matrix<'_, '_>,
    place: (usize, usize),
    (x, y): (f64, f64),
    (cell, factor): (f64, f64),
) {
    let side = cell - if cell > 14.0 { 1.0 } else { 0.0 };
    let Some(found) = matrix.cells.get(&place) else {
        svg.line((x + 2.0, y + 2.0), (x + side - 2.0, y + side - 2.0), "absent");
        svg.line((x + 2.0, y + side - 2.0), (x + side - 2.0, y + 2.0), "absent");
        return;
    };
    let view = matrix.view;
    let median = found.estimate.median;
    let tip = format!(
        "{}: {} ({})",
        view.label(found, None),
        view.metric.unit.text(median),
        found.estimate.how_sure(|value| view.metric.unit.text(value))
    );
    let class = heat_class(median, matrix.bounds());
    svg.tipped(&tip, |svg| {
        svg.rounded(x, y, side, side, if cell > 20.0 { 3.0 } else { 0.0 }, &class);
        let text = significant(median / factor);
        if cell >= 27.0 && CELL_DIGIT * text.len() as f64 <= side {
            svg.text(x + side / 2.0, y + side / 2.0 + 4.0, &format!("cell middle {class}"), &text);
        }
    });
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
