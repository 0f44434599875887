//! Goodput per cell: every repetition as a dot, the median with its interval,
//! and published values as a hollow dashed bar.

use clearstream_schema::{outcome::Unit, record::Published};

use crate::{
    digest::ExperimentDigest,
    estimate::chosen,
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    format::{gbps, level, rate, sentence_case},
    measured::{CellMetric, MeasuredCell},
    svg::{
        Svg,
        plot::{Area, Plot, Size, fitted, text_width, tick_labels},
        scale::Scale,
    },
};

/// Height of a row's label on a phone, where it is above its marks.
const LABEL: f64 = 22.0;
/// Rows beyond this many are in the table only.
const MAX_ROWS: usize = 40;

/// Dots and intervals, or `None` without a flow trial.
pub(crate) fn figure(experiment: &ExperimentDigest) -> Option<Figure> {
    let finding = finding(experiment)?;
    let id = identifier(&[&experiment.spec.name, "goodput"]);
    let title = format!("{}: goodput of each cell", experiment.spec.title);
    let mut legend = vec![
        LegendItem::new("dot s0", "one trial"),
        LegendItem::new("bar s0", "median with its 95 % interval (the range below six trials)"),
    ];
    legend.extend(published_legend(&experiment.spec.published));
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| draw(experiment, size)),
        notes: Vec::new(),
        legend,
        table: table(experiment),
        published: experiment.spec.published.clone(),
        id,
        title,
        finding,
    })
}

/// Highest cell, one flow, and the published range of the same cell. What a level changes is in the figure of effects.
pub(crate) fn finding(experiment: &ExperimentDigest) -> Option<String> {
    let factors = experiment.varying_factors();
    let cells = experiment.cells();
    let estimates: Vec<_> = cells.iter().filter_map(|cell| Some((cell, cell.estimate()?))).collect();
    let (best, estimate) = estimates.iter().max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let mut text = format!(
        "{}: {} ({})",
        sentence_case(&best.label(&factors)),
        rate(estimate.median),
        estimate.how_sure(rate)
    );
    if estimates.len() > 1 {
        text.push_str(&format!("; {}", chosen(estimates.len(), "cell")));
    }
    let one = estimates.iter().find(|(cell, _)| cell.factors.get("flows").map(level).as_deref() == Some("1"));
    if let Some((cell, single)) = one
        && cell.number != best.number
    {
        text.push_str(&format!("; one flow: {}", rate(single.median)));
    }
    if let Some((_, _, theirs)) = experiment
        .spec
        .published
        .iter()
        .filter(|p| !p.factors.is_empty() && belongs(p, best))
        .find_map(published_range)
    {
        text.push_str(&format!("; {theirs}"));
    }
    text.push('.');
    Some(text)
}

/// A published figure without levels belongs to every cell, one with levels to the cells that have them.
pub(crate) fn belongs(published: &Published, cell: &MeasuredCell) -> bool {
    published
        .factors
        .iter()
        .all(|(name, value)| cell.factors.get(name).is_some_and(|ours| level(ours) == level(value)))
}

/// Published values to draw, with numbers and source.
pub(crate) fn published_legend(published: &[Published]) -> Vec<LegendItem> {
    published
        .iter()
        .filter_map(|p| match published_range(p) {
            Some(range) => Some(format!("{}, {}", range.2, p.source)),
            None if p.factors.contains_key("window") => Some(format!("published: {}", p.source)),
            None => None,
        })
        .map(|label| LegendItem::new("theirs", label))
        .collect()
}

fn draw(experiment: &ExperimentDigest, size: Size) -> Svg {
    let factors = experiment.varying_factors();
    let all = experiment.cells();
    let cells = &all[..all.len().min(MAX_ROWS)];
    let row_height = size.pick(38.0, 52.0);
    let longest = cells.iter().map(|cell| text_width(&cell.label(&factors))).fold(0.0, f64::max);
    let left = (longest + 20.0).clamp(70.0, 280.0);
    let svg = Svg::new(size.width(), 44.0 + row_height * cells.len() as f64 + 44.0);
    let area = Area {
        left: size.pick(left, 12.0),
        right: svg.width - size.pick(70.0, 14.0),
        top: 30.0,
        bottom: svg.height - 44.0,
    };
    let highest = cells
        .iter()
        .flat_map(|cell| cell.values())
        .map(|bps| bps / 1e9)
        .chain(experiment.spec.published.iter().filter_map(published_range).map(|range| range.1))
        .fold(0.0, f64::max);
    let (x, x_ticks) = Scale::from_zero(highest, size.pick(8, 5));
    let y = Scale::Linear { domain: (0.0, cells.len() as f64), range: (0.0, 1.0) };
    let mut plot = Plot::on(svg, area, (x, tick_labels(&x_ticks), "goodput, Gb/s"), (y, Vec::new(), ""));
    let stretches = plot.stretches(size, cells.len(), row_height, LABEL);
    for tick in &x_ticks {
        plot.upright(*tick, if *tick == 0.0 { "axis" } else { "grid" }, &stretches);
    }
    // What holds for the whole experiment, such as the ceiling of a slot, crosses all rows.
    for published in experiment.spec.published.iter().filter(|p| p.factors.is_empty()) {
        if let Some((low, high, text)) = published_range(published) {
            plot.shade(low, high, "theirs-band");
            plot.rule_over(high, "theirs", &text, 0, &stretches);
        }
    }
    for (index, cell) in cells.iter().enumerate() {
        let middle = area.top + row_height * (index as f64 + size.pick(0.5, 0.68));
        let label = cell.label(&factors);
        match size {
            Size::Wide => {
                plot.svg.text(area.left - 12.0, middle + 4.0, "rowlabel end", &fitted(&label, left - 16.0))
            }
            Size::Narrow => {
                let value = cell.estimate().map(|estimate| rate(estimate.median)).unwrap_or_default();
                let room = area.right - area.left - text_width(&value) - 12.0;
                plot.svg.text(area.left + 4.0, middle - 18.0, "rowlabel halo start", &fitted(&label, room));
                plot.svg.text(area.right, middle - 18.0, "value halo end", &value);
            }
        }
        row(&mut plot, cell, &experiment.spec.published, middle, size);
    }
    plot.svg
}

fn row(plot: &mut Plot, cell: &CellMetric<'_>, published: &[Published], middle: f64, size: Size) {
    for published in published.iter().filter(|p| !p.factors.is_empty() && belongs(p, cell)) {
        if let Some((low, high, text)) = published_range(published) {
            let (from, to) = (plot.x.at(low), plot.x.at(high));
            let tip = format!("{text} ({})", published.source);
            plot.svg.tipped(&tip, |svg| {
                let width = (to - from).max(3.0);
                svg.rounded(from - 1.0, middle - 11.0, width + 2.0, 22.0, 4.0, "theirs-range");
            });
        }
    }
    let Some(estimate) = cell.estimate() else { return };
    let at = plot.x.at(estimate.median / 1e9);
    let tip = format!("{} \u{2013} {}", rate(estimate.median), estimate.how_sure(rate));
    let dots: Vec<f64> = cell.values().iter().map(|bps| plot.x.at(bps / 1e9)).collect();
    let interval = estimate.interval.map(|(low, high)| (plot.x.at(low / 1e9), plot.x.at(high / 1e9)));
    plot.svg.tipped(&tip, |svg| {
        if let Some((low, high)) = interval {
            svg.rounded(low, middle - 3.0, (high - low).max(1.0), 6.0, 3.0, "interval s0");
        }
        for dot in &dots {
            svg.circle(*dot, middle, 3.0, "dot faint s0");
        }
        svg.rounded(at - 1.75, middle - 9.0, 3.5, 18.0, 1.5, "median s0");
    });
    if size == Size::Wide {
        let right = plot.area.right;
        plot.svg.text(right + 62.0, middle + 4.0, "value end", &gbps(estimate.median));
    }
}

/// Goodput of every cell, as numbers.
pub(crate) fn table(experiment: &ExperimentDigest) -> Table {
    let factors = experiment.varying_factors();
    let mut table = Table::new(
        "Median goodput of each cell",
        &[
            "Cell",
            "#n",
            "#Median, Gb/s",
            "#95 % interval or range, Gb/s",
            "#Lowest to highest, Gb/s",
            "#Retransmits",
            "Published, Gb/s",
        ],
    );
    for cell in &experiment.cells() {
        let Some(estimate) = cell.estimate() else { continue };
        let values = cell.values();
        let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = values.iter().copied().fold(0.0, f64::max);
        let retransmits = cell.of_all_trials("retransmits");
        let theirs: Vec<String> = experiment
            .spec
            .published
            .iter()
            .filter(|p| belongs(p, cell))
            .filter_map(|p| {
                published_range(p)
                    .map(|r| r.2.trim_start_matches("published ").trim_end_matches(" Gb/s").to_owned())
            })
            .collect();
        table.push(vec![
            cell.label(&factors),
            estimate.count.to_string(),
            gbps(estimate.median),
            estimate.interval_text(gbps),
            format!("{} to {}", gbps(lowest), gbps(highest)),
            if retransmits.is_empty() {
                "\u{2013}".to_owned()
            } else {
                Unit::Count.text(retransmits.iter().sum())
            },
            theirs.join(", "),
        ]);
    }
    table
}
