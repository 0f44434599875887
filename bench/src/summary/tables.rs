//! Tables of a page in Markdown, by the heading above them.

/// A ratio or a figure with its range: `**1.36 (1.29 to 1.54)**`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Ratio {
    pub(super) fn read(cell: &str) -> Option<Self> {
        let (median, range) = cell.trim_matches('*').split_once(" (")?;
        let (least, most) = range.strip_suffix(')')?.split_once(" to ")?;
        Some(Self { median: median.parse().ok()?, least: least.parse().ok()?, most: most.parse().ok()? })
    }
}

/// The lines under a heading, up to the next one of any level. A `#` within a
/// block of code is no heading.
pub(super) fn section<'a>(page: &'a str, heading: &str) -> impl Iterator<Item = &'a str> {
    let mut code = false;
    page.lines().skip_while(move |line| *line != heading).skip(1).take_while(move |line| {
        code ^= line.starts_with("```");
        code || !line.starts_with('#')
    })
}

/// The rows of a heading's tables without their heads and rules.
pub(super) fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let cells = |line: &'a str| -> Option<Vec<&'a str>> {
        let inner = line.strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(str::trim).collect())
    };
    let table: Vec<Vec<&str>> = section(page, heading).filter_map(cells).collect();
    let is_rule =
        |row: &Vec<&str>| row.iter().all(|cell| cell.chars().all(|letter| letter == '-') && !cell.is_empty());
    let heads: Vec<bool> = (0..table.len()).map(|at| table.get(at + 1).is_some_and(is_rule)).collect();
    table.into_iter().zip(heads).filter(|(row, head)| !head && !is_rule(row)).map(|(row, _)| row).collect()
}

/// The value of a key in a heading's table of two columns.
pub(super) fn value<'a>(page: &'a str, heading: &str, key: &str) -> Option<&'a str> {
    rows(page, heading).into_iter().find_map(|row| match row[..] {
        [found, value] if found == key => Some(value),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# One\n\n```\n# no heading\n```\n\n| a | b |\n|---|---|\n| x | 1 |\n\n## Two\n\n| | |\n|---|---|\n| k | v |\n| x | |\n";

    #[test]
    fn rows_are_those_of_their_heading() {
        assert_eq!(rows(PAGE, "# One"), [["x", "1"]]);
        assert_eq!(rows(PAGE, "## Two"), [["k", "v"], ["x", ""]]);
        assert_eq!(value(PAGE, "## Two", "k"), Some("v"));
        assert_eq!(value(PAGE, "# One", "k"), None);
        assert!(rows(PAGE, "# Three").is_empty());
    }

    #[test]
    fn ratios_have_a_median_and_a_range() {
        let ratio = Ratio { median: 1.36, least: 1.29, most: 1.54 };
        assert_eq!(Ratio::read("**1.36 (1.29 to 1.54)**"), Some(ratio));
        assert_eq!(Ratio::read("1.36 (1.29 to 1.54)"), Some(ratio));
        assert_eq!(Ratio::read("at most 1.15: met"), None);
    }
}
