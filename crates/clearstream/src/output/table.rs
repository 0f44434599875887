//! Tables for people: no vertical rules, so that they survive copying into a mail.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A terminal that was not told its width has 0 columns (script(1), CI); in so
/// few, lines that wrap are easier to read than columns of single letters.
const NARROWEST: u16 = 40;

/// Makes a table; columns named with a leading `>` are numbers and stand right.
/// Cells are escaped here, so that their widths are those on the screen.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_some_and(|columns| columns < NARROWEST) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table.set_header(header.iter().map(|name| name.trim_start_matches('>')).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row.iter().map(|cell| super::escaped(cell)).collect::<Vec<_>>());
    }
    for (index, name) in header.iter().enumerate() {
        if let Some(column) = table.column_mut(index)
            && name.starts_with('>')
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Cores in the kernel's list form, or a dash.
pub fn cores(list: &[u32]) -> String {
    if list.is_empty() { "-".to_owned() } else { clearstream_schema::CoreList(list.to_vec()).to_string() }
}

/// A value or a dash: "not measured" is not zero.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
