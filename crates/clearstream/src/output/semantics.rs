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
        text.push_str(&lines(&["check", "clients", "verdict", "found"], rows));
        text.push('\n');
    }
    let count = |verdict| found.checks.iter().filter(|check| check.verdict == verdict).count();
    text.push_str(&format!(
        "\n{} yes, {} no, {} not supported, {} inconclusive, in {}",
        count(SemanticsVerdict::Yes),
        count(SemanticsVerdict::No),
        count(SemanticsVerdict::NotSupported),
        count(SemanticsVerdict::Inconclusive),
        human::time(found.duration_ns),
    ));
    text
}

fn mount(role: &str, mount: &SemanticsMount) -> String {
    let host = mount.host.as_ref().map(|host| format!("{host}:")).unwrap_or_default();
    format!("{role}: {host}{} ({})\n", mount.directory, mount.file_system)
}

/// The standard is named where the mount deviates from it; the document has it for every check.
fn row(check: &SemanticsCheck) -> Vec<String> {
    let mut found = check.found();
    if check.verdict != SemanticsVerdict::Yes {
        found.push_str(&format!(" ({})", check.standard));
    }
    vec![check.title.clone(), check.clients.name().to_owned(), check.verdict.name().to_owned(), found]
}
