//! What somebody probably meant.

/// The known name nearest to what was written, when it is near enough to be a
/// slip: a third of its letters, at least one.
pub(crate) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = known.into_iter().map(|name| (distance(written, name), name)).min()?;
    let slip = (written.chars().count() / 3).max(1);
    (distance <= slip).then_some(name)
}

/// " (did you mean `name`?)", or nothing.
pub(crate) fn hint<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}

/// Edits of one letter, swaps of neighbours included, from one word to the
/// other (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let change = row[j] + usize::from(a != b);
            let mut best = change.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

/// An error of serde about an unknown name, split: what was written and what
/// there is. Serde puts names between backticks, the unknown one first.
pub(crate) fn unknown_name(message: &str) -> Option<(&str, Vec<&str>)> {
    if !message.contains("unknown field") && !message.contains("unknown variant") {
        return None;
    }
    let mut names = message.split('`').skip(1).step_by(2);
    Some((names.next()?, names.collect()))
}

/// The message in our words, with what was meant.
pub(crate) fn explain(message: &str) -> String {
    match unknown_name(message) {
        Some((written, known)) => {
            let hint = hint(written, known.iter().copied());
            format!("there is no `{written}` here{hint} (known: {})", known.join(", "))
        }
        // serde_json ends a message with a place in a text that nobody wrote.
        None => message.split(" at line ").next().unwrap_or(message).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances as published for these pairs (Wagner and Fischer 1974; Damerau 1964).
    #[test]
    fn distances_are_as_published() {
        for (one, other, expected) in [
            ("kitten", "sitting", 3),
            ("saturday", "sunday", 3),
            ("ab", "ba", 1),
            ("", "abc", 3),
            ("x", "x", 0),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn suggests_slips_and_nothing_else() {
        let known = ["window", "flows", "sender-cores", "receiver-cores"];
        assert_eq!(nearest("windw", known), Some("window"));
        assert_eq!(nearest("sender_core", known), Some("sender-cores"));
        assert_eq!(nearest("latency", known), None);
        assert_eq!(nearest("anything", []), None);
    }
}
