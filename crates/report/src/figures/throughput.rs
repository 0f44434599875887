//! Goodput over time: one line per cell, the repetition nearest to the median
//! strong and the others faint, warm-up shaded (40GE report, figure 5).

use crate::{
    digest::ExperimentDigest,
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::{
        Palette, goodput,
        over_time::{Line, OverTime, Panel},
    },
    format::{count, gbps, number, range, rate},
    measured::CellMetric,
    series::Series,
    svg::plot::fitted,
};

/// Stretches of time that show their values when pointed at.
const READOUTS: usize = 60;

/// Lines over time, or `None` when no samples were kept.
pub(crate) fn figure(experiment: &ExperimentDigest, palette: &Palette) -> Option<Figure> {
    if experiment.series.is_empty() {
        return None;
    }
    let id = identifier(&[&experiment.spec.name, "time"]);
    let title = format!("{}: goodput over time", experiment.spec.title);
    let finding = finding(experiment);
    let mut legend: Vec<LegendItem> = labels(experiment)
        .into_iter()
        .map(|label| LegendItem::new(format!("line {}", palette.class(&label)), label))
        .collect();
    if experiment.series.iter().any(|series| !series.typical) {
        legend.push(LegendItem::new("line faint", "other repetitions"));
    }
    legend.push(LegendItem::new("box warm", "warm-up, not counted"));
    legend.extend(goodput::published_legend(&experiment.spec.published));
    let chart = chart(experiment, palette);
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| chart.draw(size)),
        notes: not_drawn(experiment).into_iter().collect(),
        legend,
        table: table(experiment),
        published: Vec::new(),
        id,
        title,
        finding,
    })
}

/// Variation of the samples of all trials of each cell after the warm-up.
fn finding(experiment: &ExperimentDigest) -> String {
    let parts: Vec<String> = experiment
        .cells()
        .iter()
        .filter_map(|cell| {
            let all: Vec<&Series> = experiment
                .series
                .iter()
                .filter(|series| series.cell == cell.number && series.counted.count > 0)
                .collect();
            let low = all.iter().map(|series| series.counted.lowest_bps).min_by(f64::total_cmp)?;
            let high = all.iter().map(|series| series.counted.highest_bps).max_by(f64::total_cmp)?;
            Some(format!(
                "{}: {} ({})",
                cell.label(&experiment.varying_factors()),
                range(&rate(low), &rate(high)),
                count(all.len(), "trial")
            ))
        })
        .collect();
    let shown = parts.len().min(4);
    let rest = if parts.len() > shown { format!(" and {} more", parts.len() - shown) } else { String::new() };
    format!("Lowest to highest sample after the warm-up, {}{rest}.", parts[..shown].join("; "))
}

/// Number of trials that are in sentence and table alone.
fn not_drawn(experiment: &ExperimentDigest) -> Option<String> {
    let missing = experiment.series.iter().filter(|series| series.goodput.is_empty()).count();
    (missing > 0).then(|| format!("{} more in sentence and table are not drawn.", count(missing, "trial")))
}

/// Published values, each pair of numbers once.
fn published(experiment: &ExperimentDigest) -> Vec<(f64, f64, String)> {
    let mut all: Vec<(f64, f64, String)> = Vec::new();
    for range in experiment.spec.published.iter().filter_map(published_range) {
        if !all.iter().any(|known| (known.0, known.1) == (range.0, range.1)) {
            all.push(range);
        }
    }
    all
}

/// All trials in one panel, the strong lines above the faint ones.
fn chart(experiment: &ExperimentDigest, palette: &Palette) -> OverTime {
    let all = &experiment.series;
    let line = |series: &Series| {
        let label = cell_label(experiment, series);
        let class = palette.class(&label);
        let class = if series.typical { class } else { format!("{class} faint") };
        Line { name: label, class, points: series.goodput.clone() }
    };
    let (strong, faint): (Vec<&Series>, Vec<&Series>) = all.iter().partition(|series| series.typical);
    let panel = Panel {
        lines: faint.into_iter().chain(strong).map(line).collect(),
        bands: published(experiment).into_iter().map(|(low, high, _)| (low, high)).collect(),
        warm_up_seconds: all.iter().map(|series| series.warm_up_seconds).fold(0.0, f64::max),
        names: names(experiment, palette),
        ..Panel::default()
    };
    let mut chart = OverTime { quantity: "goodput", panels: vec![panel] };
    let seconds = chart.seconds();
    chart.panels[0].readouts = readouts(experiment, seconds);
    chart
}

/// Names at the ends of the strong lines and of published values.
fn names(experiment: &ExperimentDigest, palette: &Palette) -> Vec<(f64, String, String)> {
    let ends = experiment.series.iter().filter(|series| series.typical).filter_map(|series| {
        let last = series.goodput.last()?.1 / 1e9;
        let label = cell_label(experiment, series);
        Some((last, fitted(&label, 138.0), palette.class(&label)))
    });
    let theirs = published(experiment).into_iter().map(|(low, high, text)| {
        let text = text.trim_end_matches(" Gb/s");
        let text = if text.contains("up to") { text.to_owned() } else { text.replace(" to ", "\u{2013}") };
        (low.midpoint(high), text, "theirs-text".to_owned())
    });
    ends.chain(theirs).collect()
}

/// Stretches of time with the values of all strong lines.
fn readouts(experiment: &ExperimentDigest, seconds: f64) -> Vec<(f64, f64, String)> {
    let strong: Vec<&Series> = experiment.series.iter().filter(|series| series.typical).collect();
    let samples = strong.iter().map(|series| series.goodput.len()).max().unwrap_or(0);
    let count = samples.min(READOUTS);
    let mut all = Vec::with_capacity(count);
    for index in 0..count {
        let from = seconds * index as f64 / count as f64;
        let to = seconds * (index + 1) as f64 / count as f64;
        let mut parts = Vec::new();
        for series in &strong {
            let inside: Vec<f64> =
                series.goodput.iter().filter(|p| p.0 >= from && p.0 < to).map(|p| p.1).collect();
            if !inside.is_empty() {
                let mean = inside.iter().sum::<f64>() / inside.len() as f64;
                parts.push(format!("{}: {} Gb/s", cell_label(experiment, series), gbps(mean)));
            }
        }
        if !parts.is_empty() {
            all.push((from, to, format!("{} s \u{2013} {}", number((from + to) / 2.0), parts.join("; "))));
        }
    }
    all
}

fn cell_label(experiment: &ExperimentDigest, series: &Series) -> String {
    experiment
        .cells()
        .iter()
        .find(|cell| cell.number == series.cell)
        .map_or_else(String::new, |cell| cell.label(&experiment.varying_factors()))
}

/// Labels of the cells that are drawn.
pub(crate) fn labels(experiment: &ExperimentDigest) -> Vec<String> {
    let factors = experiment.varying_factors();
    let drawn = |cell: &&CellMetric<'_>| experiment.series.iter().any(|series| series.cell == cell.number);
    experiment.cells().iter().filter(drawn).map(|cell| cell.label(&factors)).collect()
}

fn table(experiment: &ExperimentDigest) -> Table {
    let mut table = Table::new(
        "Goodput of the samples of each trial, warm-up excluded",
        &["Trial", "#Samples", "#Lowest, Gb/s", "#Mean, Gb/s", "#Highest, Gb/s"],
    );
    for series in &experiment.series {
        let counted = series.counted;
        if counted.count == 0 {
            continue;
        }
        table.push(vec![
            format!("{} (trial {})", cell_label(experiment, series), series.trial),
            counted.count.to_string(),
            gbps(counted.lowest_bps),
            gbps(counted.mean_bps()),
            gbps(counted.highest_bps),
        ]);
    }
    table
}
