//! File semantics of a mount for people.

use clearstream_schema::{
    human,
    semantics::{SemanticsArea, SemanticsCheck, SemanticsMount, SemanticsVerdict, StorageSemantics},
};

use super::table::table as lines;

/// A table per area, and how many checks have which verdict.
pub fn table(found: &StorageSemantics) -> String {
    let mut text = mount("mount", &found.mount);
    if let Some(peer) = &found.peer {
        text.push_str(&mount("peer", peer));
    }
    let mut areas: Vec<SemanticsArea> = found.checks.iter().map(|check| check.area).collect();
    areas.dedup();
    for area in areas {
        let rows = found.checks.iter().filter(|check| check.area == area).map(row).collect();
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
