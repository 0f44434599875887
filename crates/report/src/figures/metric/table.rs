//! The data of a figure of a metric: every metric of every cell, and the cells of
//! the reference experiment with the ratio.

use clearstream_schema::human;

use super::{
    finding::ratio,
    view::{MetricCell, Source, View},
};
use crate::{estimate::Estimate, figure::Table, format::significant, measured::MetricName};

const NONE: &str = "\u{2013}";

/// A row per cell, or per pair of cells whose levels agree, with these metrics of each.
pub(super) fn of(view: &View<'_>, metrics: &[MetricName]) -> Table {
    let own = &view.sources[0];
    let other = view.sources.get(1);
    let mut factors: Vec<&str> = own.varying.iter().map(String::as_str).collect();
    let more = other.into_iter().flat_map(|other| &other.varying).map(String::as_str);
    factors.extend(more.filter(|name| !own.varying.iter().any(|known| known == name)));
    let discards = view.cells.iter().any(|cell| cell.cell.mark().is_some());
    let mut heads: Vec<String> = factors.iter().map(|name| (*name).to_owned()).collect();
    heads.extend(discards.then(|| "receiver".to_owned()));
    heads.push("#n".to_owned());
    heads.extend(metrics.iter().map(|metric| format!("#{}", metric.name.replace('-', " "))));
    if let Some(other) = other {
        let (own, other) = (&own.experiment.spec, &other.experiment.spec);
        heads.push(format!("#{}: {}", other.title, view.metric.name.replace('-', " ")));
        heads.push(format!("#ratio {} / {}", other.name, own.name));
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(if metrics.len() > 1 { "Median of every metric" } else { "Medians" }, &heads);
    for (cell, beside) in view.pairs() {
        let either = [cell, beside].into_iter().flatten();
        let level_of =
            |name: &&str| either.clone().find_map(|cell| cell.cell.factors.get(*name)).map(human::level);
        let mut row: Vec<String> = factors.iter().map(|name| level_of(name).unwrap_or_default()).collect();
        if discards {
            row.push(either.clone().find_map(|cell| cell.cell.mark()).unwrap_or(NONE).to_owned());
        }
        row.push(cell.map_or_else(|| NONE.to_owned(), |cell| cell.cell.counted().count().to_string()));
        row.extend(medians(own, cell, metrics));
        if other.is_some() {
            let median = beside.map(|cell| view.metric.unit.text(cell.estimate.median));
            row.push(median.unwrap_or_else(|| NONE.to_owned()));
            let ratio = cell.zip(beside).and_then(|(cell, beside)| ratio(cell, beside));
            row.push(ratio.map_or_else(|| NONE.to_owned(), significant));
        }
        table.push(row);
    }
    table
}

/// The median of every metric of a cell; dashes for none.
fn medians(own: &Source<'_>, cell: Option<&MetricCell<'_>>, metrics: &[MetricName]) -> Vec<String> {
    let median = |metric| {
        let estimate = cell.and_then(|cell| own.measured.cell_of(cell.cell, metric)?.estimate());
        let mark = if cell.is_some_and(|cell| cell.cell.is_cached(metric)) { " *" } else { "" };
        let text = |one: Estimate| format!("{}{mark}", metric.unit.text(one.median));
        estimate.map_or_else(|| NONE.to_owned(), text)
    };
    metrics.iter().map(median).collect()
}
