//! Counts and names in sentences.

use std::collections::BTreeSet;

/// `17 flows`, `1 flow`.
pub(super) fn flows(count: u64) -> String {
    if count == 1 { "1 flow".to_owned() } else { format!("{count} flows") }
}

/// Names, each once, the first four of many.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: BTreeSet<&String> = names.into_iter().collect();
    let shown: Vec<&str> = names.iter().take(4).map(|name| name.as_str()).collect();
    match names.len() {
        0..=4 => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), more - 4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_names_read_well() {
        assert_eq!((flows(1), flows(17)), ("1 flow".to_owned(), "17 flows".to_owned()));
        let names: Vec<String> = ["b", "a", "b"].map(str::to_owned).into();
        assert_eq!(listed(&names), "a, b");
        let many: Vec<String> = (0..9).map(|number| format!("n{number}")).collect();
        assert_eq!(listed(&many), "n0, n1, n2, n3 and 5 more");
    }
}
