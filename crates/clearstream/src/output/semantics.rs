//! File semantics of a mount for people.

use clearstream_schema::{
    human,
    semantics::{SemanticsArea, SemanticsCheck, SemanticsMount, SemanticsVerdict, StorageSemantics},
};

use super::table::table as lines;

/// Checks that are inconclusive for one reason, from which on they have one row together.
const SAME_REASON: usize = 3;

/// A table per area, and how many checks have which verdict.
pub fn table(found: &StorageSemantics) -> String {
    let mut text = mount("mount", &found.mount);
    if let Some(peer) = &found.peer {
        text.push_str(&mount("peer", peer));
    }
    let mut areas: Vec<SemanticsArea> = found.checks.iter().map(|check| check.area).collect();
    areas.dedup();
    for area in areas {
        let rows = rows(found.checks.iter().filter(|check| check.area == area).collect());
        text.push_str(&format!("\n{}\n", human::sentence_case(area.name())));
        text.push_str(&lines(&["check", "clients", "verdict", "after", "found"], rows));
        text.push('\n');
    }
    let counts = SemanticsVerdict::ALL.map(|verdict| {
        let number = found.checks.iter().filter(|check| check.verdict == verdict).count();
        format!("{number} {}", verdict.name())
    });
    if !found.complete {
        let ran = found.checks.iter().filter(|check| check.has_run()).count();
        text.push_str(&format!("\npartial: {ran} of {} checks ran", found.checks.len()));
    }
    text.push_str(&format!("\n{}, in {}", counts.join(", "), human::time(found.duration_ns)));
    found.notices.iter().for_each(|notice| text.push_str(&format!("\nnote: {}", notice.message)));
    text
}

fn mount(role: &str, mount: &SemanticsMount) -> String {
    let host = mount.host.as_ref().map(|host| format!("{host}:")).unwrap_or_default();
    format!("{role}: {host}{} ({})\n", mount.directory, mount.file_system)
}

/// A row per check; of several that are inconclusive for one reason there is one row, below the others.
fn rows(checks: Vec<&SemanticsCheck>) -> Vec<Vec<String>> {
    let is_open = |check: &SemanticsCheck| check.verdict == SemanticsVerdict::Inconclusive;
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for check in checks.iter().filter(|check| is_open(check)) {
        let reason = check.found();
        match reasons.iter_mut().find(|known| known.0 == reason) {
            Some(known) => known.1 += 1,
            None => reasons.push((reason, 1)),
        }
    }
    reasons.retain(|(_, count)| *count >= SAME_REASON);
    let is_joined =
        |check: &SemanticsCheck| is_open(check) && reasons.iter().any(|(reason, _)| *reason == check.found());
    let mut rows: Vec<_> = checks.iter().filter(|check| !is_joined(check)).map(|check| row(check)).collect();
    rows.extend(reasons.iter().map(|(reason, count)| {
        let verdict = SemanticsVerdict::Inconclusive.name().to_owned();
        vec![format!("{count} others"), String::new(), verdict, String::new(), reason.clone()]
    }));
    rows
}

/// The standard is named where the mount is not as it says; the document has it for every check. The time is that of what is
/// late; a bound that was not met is in the text.
fn row(check: &SemanticsCheck) -> Vec<String> {
    let is_late = check.verdict == SemanticsVerdict::Late;
    let time = check.stale_ns.filter(|_| is_late).map(human::time).unwrap_or_default();
    let mut found = if is_late { check.detail.clone().unwrap_or_default() } else { check.found() };
    if check.verdict != SemanticsVerdict::Yes {
        let gap = if found.is_empty() { "" } else { " " };
        found.push_str(&format!("{gap}({})", check.standard));
    }
    vec![check.title.clone(), check.clients.name().to_owned(), check.verdict.name().to_owned(), time, found]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn checks_that_are_inconclusive_for_one_reason_have_one_row() {
        let check = |number: usize, verdict: &str, reason: Option<&str>, errno: Option<&str>| {
            let title = format!("check {number}");
            let check = serde_json::from_value::<SemanticsCheck>(json!({
                "area": "locks", "check": "a", "title": title, "clients": "one", "standard": "s",
                "verdict": verdict, "detail": reason, "errno": errno,
            }));
            check.expect("a check")
        };
        let reasons = [
            ("inconclusive", Some("no lock"), None, 3),
            ("no", Some("no lock"), None, 4),
            ("inconclusive", Some("no root"), None, 2),
            ("inconclusive", None, None, 5),
            // Two reasons, by their error codes.
            ("inconclusive", Some("mkdir fails"), Some("ENOSPC"), 3),
            ("inconclusive", Some("mkdir fails"), Some("EROFS"), 2),
            ("yes", None, None, 1),
        ];
        let checks: Vec<_> = reasons
            .into_iter()
            .flat_map(|(verdict, reason, errno, count)| {
                (0..count).map(move |number| check(number, verdict, reason, errno))
            })
            .collect();
        let rows = rows(checks.iter().collect());
        let with = |verdict: &str, found: &str| {
            let is_one = |row: &&Vec<String>| row[2] == verdict && row[4].starts_with(found);
            rows.iter().filter(is_one).map(|row| row[0].as_str()).collect::<Vec<_>>()
        };
        assert_eq!(with("inconclusive", "no lock"), ["3 others"]);
        assert_eq!(with("no", "no lock").len(), 4);
        assert_eq!(with("inconclusive", "no root"), ["check 0", "check 1"]);
        assert_eq!(with("inconclusive", "mkdir fails"), ["check 0", "check 1", "3 others"]);
        assert_eq!(rows.iter().filter(|row| row[0] == "5 others").count(), 1, "without a reason");
        assert_eq!(rows.len(), 1 + 4 + 2 + 1 + 3 + 1);
    }
}
