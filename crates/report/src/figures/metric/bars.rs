//! A metric per cell, in rows, with published values.

use clearstream_schema::record::Published;

use super::view::{MetricCell, View};
use crate::figures::rows::{MAX_ROWS, Range, Row, Rows};

/// The rows of a view.
pub(super) fn rows(view: &View<'_>) -> Rows {
    let published = view.published();
    let row = |cell: &MetricCell<'_>| {
        let own = published.iter().filter(|(one, ..)| view.is_of(one, cell, None));
        let range = |(one, low, high): &(&Published, f64, f64)| Range {
            low: *low,
            high: *high,
            text: format!("{} ({})", one.label, one.source),
        };
        Row {
            label: view.label(cell, None),
            class: view.class(cell),
            values: cell.values.clone(),
            estimate: cell.estimate,
            published: own.map(range).collect(),
        }
    };
    Rows {
        quantity: view.spoken(),
        unit: view.metric.unit,
        printed: None,
        rows: in_rows(view).into_iter().map(row).collect(),
        bands: Vec::new(),
    }
}

/// The cells that have a row, in order: those of the other experiment below the first one
/// that their levels agree with.
fn in_rows<'v, 'a>(view: &'v View<'a>) -> Vec<&'v MetricCell<'a>> {
    let mut rows: Vec<&MetricCell<'a>> = Vec::new();
    for cell in view.pairs().into_iter().flat_map(|(own, other)| [own, other]).flatten() {
        if rows.len() < MAX_ROWS && !rows.iter().any(|known| std::ptr::eq(*known, cell)) {
            rows.push(cell);
        }
    }
    rows
}
