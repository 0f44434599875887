//! Several runs of a study side by side: for every cell that at least two of them
//! measured a small drawing over the runs, oldest first.

use std::collections::BTreeMap;

use clearstream_schema::{human::few, outcome::Unit};
use serde::Serialize;

use crate::{
    digest::{Digest, ExperimentDigest},
    estimate::Estimate,
    figure::{Figure, LegendItem, Section, Table, draw_both, identifier},
    format::{count, level, range},
    link, machines,
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, tick_labels},
        scale::Scale,
    },
};

/// Cells of an experiment beyond these are in the table only.
const MAX_PANELS: usize = 24;
/// Number of cells named in a sentence.
const NAMED: usize = 4;
const PANEL_HEIGHT: f64 = 132.0;

/// Contents of the page.
#[derive(Debug, Serialize)]
pub(crate) struct Document {
    title: String,
    subtitle: String,
    bands: Vec<String>,
    runs: Table,
    pub(crate) sections: Vec<Section>,
}

/// One cell in all runs.
struct Cell {
    label: String,
    unit: Unit,
    /// By run; absent where the run did not measure it.
    values: Vec<Option<Estimate>>,
}

impl Document {
    /// Composes the page; runs are put into the order of their start.
    pub(crate) fn of(digests: &[Digest]) -> Self {
        let mut runs: Vec<&Digest> = digests.iter().collect();
        runs.sort_by(|one, other| one.run.started.cmp(&other.run.started));
        let mut titles: Vec<&str> = Vec::new();
        let mut bands: Vec<String> = Vec::new();
        for run in &runs {
            if !titles.contains(&run.run.study.title.as_str()) {
                titles.push(&run.run.study.title);
            }
            bands.extend(link::band(run).filter(|band| !bands.contains(band)));
        }
        let ends = runs.first().zip(runs.last());
        let dates = ends.map_or_else(String::new, |(first, last)| {
            format!(", {} to {}", first.run.started, last.run.started)
        });
        Self {
            title: format!("{}: history", titles.join("; ")),
            subtitle: format!("{}{dates}", count(runs.len(), "run")),
            bands,
            runs: table_of_runs(&runs),
            sections: names(&runs).into_iter().map(|name| section(&runs, &name)).collect(),
        }
    }
}

/// Experiments in the order of the runs.
fn names(runs: &[&Digest]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for experiment in runs.iter().flat_map(|run| &run.experiments) {
        if !names.contains(&experiment.spec.name) {
            names.push(experiment.spec.name.clone());
        }
    }
    names
}

fn table_of_runs(runs: &[&Digest]) -> Table {
    let mut table = Table::new(
        "The runs, oldest first",
        &["Run", "Started", "Mode", "Program", "Hosts", "Kernels", "Over", "#Trials"],
    );
    for (index, digest) in runs.iter().enumerate() {
        let hosts = &digest.run.hosts;
        let mut kernels: Vec<&str> =
            hosts.iter().filter_map(|host| host.report.kernel.release.as_deref()).collect();
        kernels.dedup();
        let place = match (&digest.run.lab, machines::of(digest).len()) {
            (Some(lab), _) => format!("lab {}", lab.name),
            (None, 0 | 1) => "one machine".to_owned(),
            (None, 2) => "two machines".to_owned(),
            (None, machines) => format!("{machines} machines"),
        };
        table.push(vec![
            format!("{}: {}", index + 1, digest.run.id),
            digest.run.started.clone(),
            digest.run.mode.clone(),
            digest.run.program_version.clone(),
            few(hosts.iter().map(|host| &host.name)),
            kernels.join(", "),
            place,
            digest.trial_count.to_string(),
        ]);
    }
    table
}

fn section(runs: &[&Digest], name: &str) -> Section {
    let found = |run: &&Digest| run.experiments.iter().position(|one| one.spec.name == name);
    let first = runs.iter().find_map(|run| Some(&run.experiments[found(run)?]));
    let cells = cells(runs, name);
    let title = first.map_or_else(|| name.to_owned(), |experiment| experiment.spec.title.clone());
    let shown = cells.iter().any(|cell| cell.values.iter().flatten().count() > 1);
    Section {
        id: identifier(&[name]).replacen("figure", "section", 1),
        about: String::new(),
        figures: if shown { vec![figure(name, &title, cells, runs.len())] } else { Vec::new() },
        absent: (!shown).then(|| "Fewer than two runs measured the same cell of it.".to_owned()),
        title,
    }
}

/// Cells by their levels; those that one run alone measured are left to its own report.
fn cells(runs: &[&Digest], name: &str) -> Vec<Cell> {
    let mut cells: BTreeMap<(usize, String), Cell> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for (index, run) in runs.iter().enumerate() {
        let Some(experiment) = run.experiments.iter().find(|one| one.spec.name == name) else { continue };
        for (key, label, unit, values) in measured(experiment) {
            let place = order.iter().position(|known| *known == key).unwrap_or_else(|| {
                order.push(key.clone());
                order.len() - 1
            });
            let cell = cells.entry((place, key)).or_insert_with(|| Cell {
                label,
                unit,
                values: vec![None; runs.len()],
            });
            cell.values[index] = Estimate::of(&values);
        }
    }
    cells.into_values().filter(|cell| cell.values.iter().flatten().count() > 1).collect()
}

/// Key, label, unit and values of every cell of an experiment in one run.
fn measured(experiment: &ExperimentDigest) -> Vec<(String, String, Unit, Vec<f64>)> {
    let key = |factors: &BTreeMap<String, serde_json::Value>, metric: &str| {
        let levels: Vec<String> =
            factors.iter().map(|(name, value)| format!("{name}={}", level(value))).collect();
        format!("{metric} {}", levels.join(" "))
    };
    let mut all: Vec<(String, String, Unit, Vec<f64>)> = Vec::new();
    let varying = experiment.varying_factors();
    let cells = experiment.cells();
    for cell in &cells {
        let metric = if cell.settings.discards() { "goodput-discard" } else { "goodput" };
        all.push((key(&cell.factors, metric), cell.label(&varying), Unit::BitsPerSecond, cell.values()));
    }
    for metric in experiment.drawn_metrics() {
        // Cells of flows are above, by their goodput.
        if !cells.is_empty() && metric.name == "goodput" {
            continue;
        }
        for cell in experiment.measured.cells() {
            let levels: Vec<String> =
                cell.factors.iter().map(|(name, value)| crate::format::level_of(name, value)).collect();
            let label = format!("{} {}", metric.name.replace('-', " "), levels.join(", "));
            let values = experiment.measured.cell_of(cell, metric).map(|one| one.values());
            all.push((
                key(&cell.factors, &metric.name),
                label.trim().to_owned(),
                metric.unit,
                values.unwrap_or_default(),
            ));
        }
    }
    all
}

fn figure(name: &str, title: &str, cells: Vec<Cell>, run_count: usize) -> Figure {
    let id = identifier(&[name, "history"]);
    let finding = finding(&cells);
    let mut notes = vec![
        "Whether two runs differ by more than chance is decided by `clearstream study compare RUN RUN`, which also lists what \
         changed between them."
            .to_owned(),
    ];
    if cells.len() > MAX_PANELS {
        notes.push(format!("Drawn are the first {MAX_PANELS} cells; the table has all."));
    }
    let title = format!("{title}: medians over the runs");
    Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(&cells, run_count, size)),
        notes,
        legend: vec![LegendItem::new(
            "dot s0",
            "median of a run, with its 95 % interval (the range below six trials); runs by number",
        )],
        table: table(&cells, run_count),
        published: Vec::new(),
        id,
        title,
        finding,
    }
}

/// Lowest to highest median over the runs: what the panels show, no trend claimed.
fn finding(cells: &[Cell]) -> String {
    let spread = |cell: &Cell| {
        let medians = || cell.values.iter().flatten().map(|estimate| estimate.median);
        let low = medians().min_by(f64::total_cmp)?;
        let high = medians().max_by(f64::total_cmp)?;
        let of = count(medians().count(), "run");
        Some(format!("{}: {} ({of})", cell.label, range(&cell.unit.text(low), &cell.unit.text(high))))
    };
    let mut parts: Vec<String> = cells.iter().take(NAMED).filter_map(spread).collect();
    if cells.len() > NAMED {
        parts.push(format!("and {} more", cells.len() - NAMED));
    }
    format!("Lowest to highest median of the runs, {}.", parts.join("; "))
}

fn draw(cells: &[Cell], run_count: usize, size: Size) -> Svg {
    let cells = &cells[..cells.len().min(MAX_PANELS)];
    let columns = size.pick(3, 1);
    let width = size.width() / columns as f64;
    let rows = cells.len().div_ceil(columns);
    let mut svg = Svg::new(size.width(), PANEL_HEIGHT * rows as f64 + 24.0);
    for (index, cell) in cells.iter().enumerate() {
        let corner = (width * (index % columns) as f64, PANEL_HEIGHT * (index / columns) as f64);
        svg = panel(svg, cell, run_count, corner, width);
    }
    svg.text(size.width(), PANEL_HEIGHT * rows as f64 + 16.0, "unit end", "run, oldest first");
    svg
}

fn panel(mut svg: Svg, cell: &Cell, run_count: usize, (left, top): (f64, f64), width: f64) -> Svg {
    let known = || cell.values.iter().flatten();
    let ends = known().map(|one| one.interval.map_or(one.median, |interval| interval.1));
    let (unit, factor) = cell.unit.scale_for(ends.fold(0.0, f64::max));
    let title = format!("{}, {unit}", cell.label);
    svg.text(left + 4.0, top + 16.0, "panel start", &fitted(title.trim_end_matches(", "), width - 14.0));
    let area = Area {
        left: left + 48.0,
        right: left + width - 14.0,
        top: top + 32.0,
        bottom: top + PANEL_HEIGHT - 26.0,
    };
    let highest =
        known().map(|one| one.interval.map_or(one.median, |interval| interval.1)).fold(0.0, f64::max);
    let (y, y_ticks) = Scale::from_zero(highest / factor, 2);
    let x = Scale::Linear { domain: (0.5, run_count as f64 + 0.5), range: (0.0, 1.0) };
    let stride = run_count.div_ceil(8).max(1);
    let x_ticks = (1..=run_count).step_by(stride).map(|run| (run as f64, run.to_string())).collect();
    let mut plot = Plot::on(svg, area, (x, x_ticks, ""), (y, tick_labels(&y_ticks), ""));
    let placed: Vec<(f64, &Estimate)> = (1..=run_count)
        .zip(&cell.values)
        .filter_map(|(run, value)| Some((run as f64, value.as_ref()?)))
        .collect();
    let line: Vec<(f64, f64)> = placed.iter().map(|(run, one)| (*run, one.median / factor)).collect();
    plot.line(&line, "line faint s0");
    for (run, estimate) in placed {
        let (at, middle) = (plot.x.at(run), plot.y.at(estimate.median / factor));
        let interval = estimate.interval.map(|(l, h)| (plot.y.at(l / factor), plot.y.at(h / factor)));
        let text = |value: f64| cell.unit.text(value);
        let tip =
            format!("{}, run {run}: {} ({})", cell.label, text(estimate.median), estimate.how_sure(text));
        plot.svg.tipped(&tip, |svg| {
            if let Some((low, high)) = interval {
                svg.line((at, low), (at, high), "whisker s0");
            }
            svg.circle(at, middle, 3.5, "dot s0");
            svg.circle(at, middle, 12.0, "readout");
        });
    }
    plot.svg
}

fn table(cells: &[Cell], run_count: usize) -> Table {
    let titles: Vec<String> =
        std::iter::once("Cell".to_owned()).chain((1..=run_count).map(|run| format!("#Run {run}"))).collect();
    let titles: Vec<&str> = titles.iter().map(String::as_str).collect();
    let mut table = Table::new("Medians by run", &titles);
    for cell in cells {
        let values = cell.values.iter().map(|value| {
            value.as_ref().map_or_else(|| "\u{2013}".to_owned(), |one| cell.unit.text(one.median))
        });
        table.push(std::iter::once(cell.label.clone()).chain(values).collect());
    }
    table
}
