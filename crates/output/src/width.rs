//! Columns: how wide the place is where people read, and prose that fits it.

use crate::terminal::{VERBATIM, is_mark, is_of_launcher};

/// A terminal of unknown width has 0 columns (script(1), CI); in so
/// few, lines that wrap are easier to read than columns of single letters.
const NARROWEST: usize = 40;
/// Longest line of prose: longer ones are hard to read on any terminal.
const PROSE: usize = 96;

/// Columns of the terminal, else those of the variable `COLUMNS`, as ps(1) and
/// ls(1) have it; `None` where nothing limits a line, as in a file.
pub fn columns() -> Option<usize> {
    let of_terminal = || comfy_table::Table::new().width().map(usize::from);
    let terminal = if is_of_launcher() { None } else { of_terminal() };
    let wanted = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    terminal.or_else(wanted).filter(|columns| *columns >= NARROWEST)
}

/// Columns of a line of prose.
pub fn prose() -> usize {
    columns().map_or(PROSE, |columns| columns.min(PROSE))
}

/// Characters that take a place on the screen.
fn shown(text: &str) -> usize {
    text.chars().filter(|c| !is_mark(*c)).count()
}

/// Breaks lines longer than `columns` at spaces and indents the rest. Spaces within
/// a line stay, words are never broken, and lines marked as verbatim (a command to
/// copy) are not changed.
pub fn fit(text: &str, columns: usize) -> String {
    let mut fitted = String::with_capacity(text.len() + 16);
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            fitted.push('\n');
        }
        if shown(line) <= columns || line.contains(VERBATIM) {
            fitted.push_str(line);
        } else {
            break_line(line, columns, &mut fitted);
        }
    }
    fitted
}

fn break_line(line: &str, columns: usize, fitted: &mut String) {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let margin = " ".repeat((indent + 2).min(columns / 2));
    let mut rest = line;
    let mut before = String::new();
    loop {
        let room = columns.saturating_sub(before.len());
        let (piece, left) = match break_at(rest, room) {
            Some(at) => (rest[..at].trim_end(), rest[at..].trim_start_matches(' ')),
            None => (rest, ""),
        };
        fitted.push_str(&before);
        fitted.push_str(piece);
        if left.is_empty() {
            return;
        }
        fitted.push('\n');
        before.clone_from(&margin);
        rest = left;
    }
}

/// The last space at which the first part takes no more than `room` columns;
/// with a word longer than that the first space after it.
fn break_at(text: &str, room: usize) -> Option<usize> {
    let start = text.len() - text.trim_start_matches(' ').len();
    let (mut taken, mut last) = (0, None);
    for (at, c) in text.char_indices() {
        if c == ' ' && at > start {
            last = Some(at);
        }
        taken += usize::from(!is_mark(c));
        if taken > room && last.is_some() {
            return last;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_spaces_and_indented() {
        let text = format!("short\n  note: {}end", "token ".repeat(40));
        let fitted = fit(&text, 60);
        assert!(fitted.lines().all(|line| line.chars().count() <= 60), "{fitted}");
        assert!(fitted.starts_with("short\n  note: token"), "{fitted}");
        assert!(fitted.lines().skip(2).all(|line| line.starts_with("    token")), "{fitted}");
        assert_eq!(fitted.split_whitespace().count(), text.split_whitespace().count());
    }

    #[test]
    fn nothing_is_lost_of_tokens_that_are_too_long() {
        let long = "x".repeat(90);
        for text in [long.clone(), format!("at {long} and on"), format!("    {long}")] {
            let tokens: Vec<String> = fit(&text, 50).split_whitespace().map(str::to_owned).collect();
            assert_eq!(tokens, text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_line_that_fits_and_a_command_stay() {
        let exact = "a  b   c".repeat(10);
        assert_eq!(fit(&exact, 80), exact);
        let command = format!("{VERBATIM}  sysctl -w {}", "a ".repeat(80));
        assert_eq!(fit(&command, 60), command);
    }
}
