//! Goodput per cell: every repetition as a dot, the median with its interval,
//! and published values as a hollow dashed bar.

use clearstream_schema::{outcome::Unit, record::Published};

use crate::{
    digest::ExperimentDigest,
    estimate::chosen,
    figure::{Figure, LegendItem, Table, draw_both, identifier, published_range},
    figures::rows::{self, MAX_ROWS, Range, Row, Rows},
    format::{gbps, level, rate, sentence_case},
    measured::{CellMetric, MeasuredCell},
};

/// Dots and intervals, or `None` without a flow trial.
pub(crate) fn figure(experiment: &ExperimentDigest) -> Option<Figure> {
    let finding = finding(experiment)?;
    let id = identifier(&[&experiment.spec.name, "goodput"]);
    let title = format!("{}: goodput of each cell", experiment.spec.title);
    let mut legend = rows::legend();
    legend.extend(published_legend(&experiment.spec.published));
    let rows = rows_of(experiment);
    Some(Figure {
        drawings: draw_both(&id, &title, &finding, |size| rows.draw(size)),
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

/// The cells in rows. What holds for the whole experiment, such as the ceiling of a slot, crosses all of them.
fn rows_of(experiment: &ExperimentDigest) -> Rows {
    let factors = experiment.varying_factors();
    let (general, of_cells): (Vec<_>, Vec<_>) =
        experiment.spec.published.iter().partition(|published| published.factors.is_empty());
    let row = |cell: &CellMetric<'_>| {
        let own = of_cells.iter().filter(|published| belongs(published, cell));
        let range = |published: &Published| {
            let range = range_of(published)?;
            Some(Range { text: format!("{} ({})", range.text, published.source), ..range })
        };
        Some(Row {
            label: cell.label(&factors),
            class: "s0".to_owned(),
            values: cell.values(),
            estimate: cell.estimate()?,
            published: own.filter_map(|published| range(published)).collect(),
        })
    };
    Rows {
        quantity: "goodput".to_owned(),
        unit: Unit::BitsPerSecond,
        printed: Some(("Gb/s", 1e9)),
        rows: experiment.cells().iter().take(MAX_ROWS).filter_map(row).collect(),
        bands: general.into_iter().filter_map(range_of).collect(),
    }
}

/// Published goodput in bits per second.
fn range_of(published: &Published) -> Option<Range> {
    let (low, high, text) = published_range(published)?;
    Some(Range { low: low * 1e9, high: high * 1e9, text })
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
