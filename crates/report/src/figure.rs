//! Parts of any figure: a sentence with numbers, two
//! drawings (wide and narrow), a legend, and the same data as a table.

use clearstream_schema::record::Published;
use serde::Serialize;

use crate::svg::{Svg, plot::Size};

/// A figure ready for the page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// Unique in the page, `figure-..`.
    pub(crate) id: String,
    pub(crate) title: String,
    /// One sentence computed from the data.
    pub(crate) finding: String,
    /// Further remarks, one sentence each.
    pub(crate) notes: Vec<String>,
    pub(crate) legend: Vec<LegendItem>,
    /// One drawing per size, in the order of [`Size::ALL`].
    pub(crate) drawings: Vec<String>,
    pub(crate) table: Table,
    /// Published values of the same metric.
    #[serde(serialize_with = "published_texts")]
    pub(crate) published: Vec<Published>,
}

/// For the page: label with its numbers, and source.
fn published_texts<S: serde::Serializer>(published: &[Published], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(published.iter().map(|item| (published_text(item), &item.source)))
}

/// The label, with the numbers that it does not spell out itself.
pub(crate) fn published_text(published: &Published) -> String {
    match printed(published) {
        Some(range) => format!("{}: {range}", published.label),
        None => published.label.clone(),
    }
}

/// One experiment, or the hosts.
#[derive(Debug, Serialize)]
pub(crate) struct Section {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) about: String,
    pub(crate) figures: Vec<Figure>,
    /// Reason for the absence of a figure.
    pub(crate) absent: Option<String>,
}

/// A mark and its meaning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct LegendItem {
    /// Class of the swatch in the style sheet.
    pub(crate) swatch: String,
    pub(crate) label: String,
}

impl LegendItem {
    /// A mark and its meaning.
    pub(crate) fn new(swatch: impl Into<String>, label: impl Into<String>) -> Self {
        Self { swatch: swatch.into(), label: label.into() }
    }
}

/// The data of a figure as a table, for screen readers and copying.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// A column: its title carries the unit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) numeric: bool,
}

/// A row; the first cell is its heading.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    /// Worth a closer inspection.
    pub(crate) highlighted: bool,
}

impl Table {
    /// An empty table; titles that start with `#` are columns of numbers.
    pub(crate) fn new(caption: impl Into<String>, titles: &[&str]) -> Self {
        let columns = titles
            .iter()
            .map(|title| Column {
                title: title.trim_start_matches('#').to_owned(),
                numeric: title.starts_with('#'),
            })
            .collect();
        Self { caption: caption.into(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, cells: Vec<String>) {
        self.rows.push(Row { cells, highlighted: false });
    }
}

/// Draws a figure in both sizes.
pub(crate) fn draw_both(
    id: &str,
    title: &str,
    finding: &str,
    mut draw: impl FnMut(Size) -> Svg,
) -> Vec<String> {
    Size::ALL
        .into_iter()
        .map(|size| draw(size).finish(&format!("{id}-{}", size.pick("wide", "narrow")), title, finding, None))
        .collect()
}

/// An identifier for the page out of any name.
pub(crate) fn identifier(parts: &[&str]) -> String {
    let mut text = String::from("figure");
    for part in parts {
        text.push('-');
        text.extend(
            part.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }),
        );
    }
    text
}

/// `published 20.7 to 23.3 Gb/s` with its ends as printed, or nothing when no
/// goodput was published.
pub(crate) fn published_range(published: &Published) -> Option<(f64, f64, String)> {
    let goodput = published.metric == "goodput" && published.unit == "Gb/s";
    let low = published.low.or(published.high).filter(|_| goodput)?;
    let high = published.high.or(published.low)?;
    Some((low, high, format!("published {}", printed(published)?)))
}

/// `20.7 to 23.3 Gb/s`, as printed.
fn printed(published: &Published) -> Option<String> {
    let text = match (published.low, published.high) {
        (None, None) => return None,
        (Some(low), None) => format!("at least {low}"),
        (None, Some(high)) => format!("up to {high}"),
        (Some(low), Some(high)) if low == high => format!("{low}"),
        (Some(low), Some(high)) => format!("{low} to {high}"),
    };
    Some(format!("{text} {}", published.unit))
}
