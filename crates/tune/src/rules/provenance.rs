//! Provenance: which file set a value, which will reset it, and what is visible in this namespace.

use clearstream_schema::tune::{Finding, FindingClass, Severity};

use super::{Facts, With};
use crate::state::{Assignment, Reader};

/// Files of the host compared with its kernel: the changes at the next boot.
pub(super) fn files_and_kernel(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (key, assignments) in &facts.state.configured {
        let Some(winner) = last(assignments, |reader| reader != Reader::Tuned) else { continue };
        let Some(live) = facts.state.values.get(key).filter(|value| value.effective) else {
            // Only keys of the table were read.
            if facts.known.key(key).is_some()
                && facts.state.has_key(key) == Some(false)
                && !hidden(facts, key)
            {
                let message = format!("{} is requested and the kernel has no such key", winner.value);
                found.push(
                    at(facts, key, "absent-key", Severity::Warning, message, winner)
                        .advise("delete the line"),
                );
            }
            continue;
        };
        if live.text == winner.value {
            continue;
        }
        let losers: Vec<String> = assignments
            .iter()
            .filter(|other| other.reader != Reader::Tuned && other.place != winner.place)
            .map(|other| format!("{}:{} ({})", other.place.file, other.place.line, other.value))
            .collect();
        let message = format!(
            "is {} now, and {}:{} requests {}: the next boot or sysctl --system sets that{}",
            live.text,
            winner.place.file,
            winner.place.line,
            winner.value,
            if losers.is_empty() { String::new() } else { format!("; overruled: {}", losers.join(", ")) }
        );
        found.push(
            at(facts, key, "file-differs", Severity::Warning, message, winner)
                .advise("bring the file and the kernel in line"),
        );
    }
}

/// sysctl.conf is read by sysctl(8), not by systemd-sysctl(8).
pub(super) fn readers(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (key, assignments) in &facts.state.configured {
        let procps = last(assignments, |reader| reader != Reader::Tuned);
        let systemd = last(assignments, |reader| reader == Reader::Both);
        let (Some(procps), Some(systemd)) = (procps, systemd) else { continue };
        if procps.value != systemd.value {
            let message = format!(
                "sysctl --system ends with {} ({}:{}), systemd-sysctl at boot with {} ({}:{}): it does not read sysctl.conf",
                procps.value,
                procps.place.file,
                procps.place.line,
                systemd.value,
                systemd.place.file,
                systemd.place.line
            );
            found.push(
                at(facts, key, "readers-disagree", Severity::Warning, message, procps)
                    .advise("move the line from sysctl.conf into /etc/sysctl.d"),
            );
        }
    }
}

/// tuned reapplies its profile when it starts.
pub(super) fn daemon(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(tuned) = &facts.state.tuned else { return };
    for (key, assignments) in &facts.state.configured {
        let Some(profile) = last(assignments, |reader| reader == Reader::Tuned) else { continue };
        let Some(live) = facts.state.values.get(key).filter(|value| value.effective) else { continue };
        // `reapply_sysctl` does not cover files below /usr.
        let file = assignments
            .iter()
            .rfind(|other| other.reader != Reader::Tuned && !other.place.file.starts_with("/usr/"));
        let wins = if tuned.files_override { file.unwrap_or(profile) } else { profile };
        if wins.value != live.text {
            let message = format!(
                "is {} now; tuned ({}, {}) sets {} from {}:{} when it starts or switches profiles",
                live.text,
                tuned.profiles.join(" "),
                if tuned.is_running { "running" } else { "not running now" },
                wins.value,
                wins.place.file,
                wins.place.line
            );
            found.push(
                at(facts, key, "tuned-sets-it", Severity::Warning, message, wins)
                    .advise("change it in the profile, or in /etc/sysctl.d with reapply_sysctl on"),
            );
        }
    }
}

/// Keys that exist only in the initial network namespace.
pub(super) fn scope(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    if facts.state.own_network_namespace != Some(true) {
        return;
    }
    for given in &facts.state.given {
        let Some(key) = facts.known.key(&given.statement.key) else { continue };
        if key.is_per_namespace(facts.state.kernel) || !key.name.starts_with("net.") {
            continue;
        }
        let message = format!(
            "is a setting of the host, which this network namespace {}: it has to be set outside",
            if facts.state.has_key(&key.name) == Some(true) { "may only read" } else { "does not see" }
        );
        let mut finding =
            facts.finding(&key.name, FindingClass::Scope, "host-only", Severity::Error, message);
        finding.place = Some(given.place.clone());
        found.push(finding.sourced("net/core/sysctl_net_core.c, network_namespaces(7)"));
    }
}

fn hidden(facts: &Facts<'_>, key: &str) -> bool {
    let is_shared = facts.known.key(key).is_some_and(|known| !known.is_per_namespace(facts.state.kernel));
    facts.state.own_network_namespace == Some(true) && is_shared
}

fn last(assignments: &[Assignment], by: impl Fn(Reader) -> bool) -> Option<&Assignment> {
    assignments.iter().rfind(|assignment| by(assignment.reader))
}

fn at(
    facts: &Facts<'_>,
    key: &str,
    cause: &str,
    severity: Severity,
    message: String,
    assignment: &Assignment,
) -> Finding {
    let mut finding = facts.finding(key, FindingClass::Provenance, cause, severity, message);
    finding.place = Some(assignment.place.clone());
    finding.sourced("sysctl(8), sysctl.d(5), tuned(8)")
}
