//! Tables for people: no vertical rules, so that they survive copying into a mail.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

use crate::width;

/// Spaces around each column.
const PADDING: usize = 2;

/// Makes a table; columns named with a leading `>` are numbers and stand right.
/// Cells are escaped here, so that their widths are those on the screen. Where
/// the columns are too many for the terminal each row becomes lines of its own:
/// no number and no word is ever broken.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let rows = rows.into_iter().map(|row| row.iter().map(|cell| crate::escaped(cell)).collect());
    made(header, rows.collect(), width::columns())
}

fn made(header: &[&str], rows: Vec<Vec<String>>, columns: Option<usize>) -> String {
    let natural: Vec<usize> = measured(header, &rows, |_, text| longest(text.lines()));
    let Some(limit) = columns.filter(|limit| *limit < total(&natural)) else {
        return drawn(header, rows, None);
    };
    // A number stays with its unit, "12.3 Gb/s"; prose and heads are broken between words.
    let least = measured(header, &rows, |kind, text| match kind {
        Kind::Number => longest(text.lines()),
        Kind::Head | Kind::Prose => longest(text.split_whitespace()),
    });
    if total(&least) > limit {
        return records(header, &rows, limit);
    }
    let mut widths = natural;
    while total(&widths) > limit {
        let widest = (0..widths.len()).filter(|at| widths[*at] > least[*at]).max_by_key(|at| widths[*at]);
        match widest {
            Some(at) => widths[at] -= 1,
            None => break,
        }
    }
    drawn(header, rows, Some(&widths))
}

#[derive(Clone, Copy)]
enum Kind {
    Head,
    Number,
    Prose,
}

/// A width per column, the largest of its head and cells.
fn measured(header: &[&str], rows: &[Vec<String>], of: fn(Kind, &str) -> usize) -> Vec<usize> {
    let column = |(at, name): (usize, &&str)| {
        let kind = if name.starts_with('>') { Kind::Number } else { Kind::Prose };
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| of(kind, cell));
        cells.max().unwrap_or(0).max(of(Kind::Head, name.trim_start_matches('>')))
    };
    header.iter().enumerate().map(column).collect()
}

fn longest<'a>(parts: impl Iterator<Item = &'a str>) -> usize {
    parts.map(|part| part.chars().count()).max().unwrap_or(0)
}

fn total(widths: &[usize]) -> usize {
    // The last column's padding is trimmed.
    (widths.iter().sum::<usize>() + PADDING * widths.len()).saturating_sub(1)
}

fn drawn(header: &[&str], rows: Vec<Vec<String>>, widths: Option<&[usize]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(match widths {
        Some(_) => ContentArrangement::Dynamic,
        None => ContentArrangement::Disabled,
    });
    if let Some(widths) = widths {
        table.set_width(u16::try_from(total(widths) + 1).unwrap_or(u16::MAX));
    }
    table.set_header(header.iter().map(|name| name.trim_start_matches('>')).collect::<Vec<_>>());
    for row in rows {
        table.add_row(row);
    }
    for (index, name) in header.iter().enumerate() {
        let Some(column) = table.column_mut(index) else { continue };
        if name.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(width) = widths.and_then(|widths| widths.get(index)) {
            let width = u16::try_from(width + PADDING).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
    table.trim_fmt()
}

/// Each row as lines of a head and its value, rows apart by an empty line.
fn records(header: &[&str], rows: &[Vec<String>], limit: usize) -> String {
    let heads: Vec<&str> = header.iter().map(|name| name.trim_start_matches('>')).collect();
    let margin = longest(heads.iter().copied());
    let record = |row: &Vec<String>| {
        let lines = heads.iter().zip(row).map(|(head, cell)| {
            let line = format!(" {head:<margin$}  {}", cell.replace('\n', " "));
            width::fit(line.trim_end(), limit)
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    rows.iter().map(record).collect::<Vec<_>>().join("\n\n")
}

/// Cores in the kernel's list form, or a dash.
pub fn cores(list: &[u32]) -> String {
    if list.is_empty() { "-".to_owned() } else { clearstream_schema::CoreList(list.to_vec()).to_string() }
}

/// A value or a dash: "not measured" is not zero.
pub fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 4] = ["address", ">goodput", ">round trips", "why"];

    fn rows() -> Vec<Vec<String>> {
        let why = "the reader shares the core of the interrupt, which costs a tenth of its rate";
        let row = |rate: &str| ["[2001:db8::72:1]:56224", rate, "1234", why].map(str::to_owned).to_vec();
        vec![row("12.3 Gb/s"), row("999 Mb/s")]
    }

    /// `127.0.0` / `.1:5622` / `4`, heads as `transf/er`.
    #[test]
    fn no_number_address_or_head_is_broken_at_any_width() {
        for columns in (40..200).map(Some).chain([None]) {
            let text = made(&HEADER, rows(), columns);
            for whole in
                ["[2001:db8::72:1]:56224", "12.3 Gb/s", "999 Mb/s", "1234", "address", "goodput", "round"]
            {
                assert!(text.contains(whole), "{columns:?}: {whole}:\n{text}");
            }
            if let Some(columns) = columns {
                assert!(text.lines().all(|line| line.chars().count() <= columns), "{columns}:\n{text}");
            }
        }
    }

    #[test]
    fn prose_is_wrapped_before_rows_become_records() {
        assert_eq!(made(&HEADER, rows(), None).lines().count(), 3, "one line each where there is room");
        let narrow = made(&HEADER, rows(), Some(80));
        assert!(narrow.lines().count() > 3 && !narrow.contains("why  "), "{narrow}");
        let records = made(&HEADER, rows(), Some(48));
        assert!(records.contains(" goodput      12.3 Gb/s\n"), "{records}");
    }
}
