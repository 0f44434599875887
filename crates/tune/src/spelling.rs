//! How far two words are apart.

/// Optimal string alignment distance (Damerau 1964: insert, delete, replace,
/// swap neighbours) where it is at most `limit`, else `None`.
pub(crate) fn distance(left: &str, right: &str, limit: usize) -> Option<usize> {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    if left.len().abs_diff(right.len()) > limit {
        return None;
    }
    let far = limit + 1;
    let mut before = vec![far; right.len() + 1];
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for at in 1..=left.len() {
        let mut row = vec![far; right.len() + 1];
        row[0] = at;
        // Cells further from the diagonal than the limit cannot count.
        for to in at.saturating_sub(limit).max(1)..=(at + limit).min(right.len()) {
            let same = left[at - 1] == right[to - 1];
            let mut best = (last[to] + 1).min(row[to - 1] + 1).min(last[to - 1] + usize::from(!same));
            let swapped = at > 1 && to > 1 && left[at - 1] == right[to - 2] && left[at - 2] == right[to - 1];
            if swapped {
                best = best.min(before[to - 2] + 1);
            }
            row[to] = best;
        }
        if row.iter().all(|&cell| cell > limit) {
            return None;
        }
        before = std::mem::replace(&mut last, row);
    }
    (last[right.len()] <= limit).then(|| last[right.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_slips_of_the_pen() {
        for (left, right, expected) in [
            ("tcp_rmem", "tcp_rmem", Some(0)),
            ("tcp_rmme", "tcp_rmem", Some(1)),
            ("tcp_rmm", "tcp_rmem", Some(1)),
            ("tcp_timestamp", "tcp_timestamps", Some(1)),
            ("tcp_wnen", "tcp_wmem", Some(2)),
            ("kitten", "sitting", None),
            ("", "ab", Some(2)),
            ("", "abc", None),
        ] {
            assert_eq!(distance(left, right, 2), expected, "{left} {right}");
        }
        assert_eq!(distance("kitten", "sitting", 3), Some(3), "Levenshtein's own example");
    }
}
