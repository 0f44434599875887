//! Findings and plans for people.

use std::{collections::HashMap, fmt::Write as _};

use clearstream_schema::{
    human::count,
    plan::{Effect, JournalEntry, JournalState, Plan, Recovered, Step, Value, Verification},
    tune::{CheckedRouting, Finding, LintReport, Severity},
};

use super::{
    Paint,
    table::{or_dash, table},
    width,
};

/// Columns before a message.
const INDENT: usize = 8;
/// Hosts with the same finding that are named.
const NAMED: usize = 4;

/// All findings, by severity, and a summary line.
pub fn findings(report: &LintReport, paint: Paint) -> String {
    let mut text = format!("{}{}\n", report.subject, kernel(report));
    for (finding, others) in grouped(&report.findings) {
        text.push('\n');
        text.push_str(&finding_text(finding, paint));
        if !others.is_empty() {
            let more = others.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            let named = others[..others.len().min(NAMED)].join(", ");
            text.push_str(&wrapped(&format!("the same on {named}{more}")));
        }
    }
    for part in &report.missing {
        let _ = writeln!(text, "\nnot checked: {part}");
    }
    let _ = write!(text, "\n{}", summary(report));
    text
}

/// Findings that differ only in the name of their host are shown once, with the
/// further hosts: hosts of one class have the same mistakes.
fn grouped(findings: &[Finding]) -> Vec<(&Finding, Vec<&str>)> {
    let mut places: HashMap<_, usize> = HashMap::new();
    let mut shown: Vec<(&Finding, Vec<&str>)> = Vec::new();
    for finding in findings {
        let Some(host) = finding.host.as_deref() else {
            shown.push((finding, Vec::new()));
            continue;
        };
        let nameless = |text: &str| text.replace(host, "\0");
        let key = (
            (&finding.id, &finding.key, &finding.value, finding.severity as u8, &finding.interface),
            nameless(&finding.message),
            finding.advice.as_deref().map(nameless),
        );
        match places.get(&key) {
            Some(place) => shown[*place].1.push(host),
            None => {
                places.insert(key, shown.len());
                shown.push((finding, Vec::new()));
            }
        }
    }
    shown
}

fn kernel(report: &LintReport) -> String {
    report.kernel.as_ref().map_or_else(String::new, |release| format!(", Linux {release}"))
}

fn finding_text(finding: &Finding, paint: Paint) -> String {
    let label = match finding.severity {
        Severity::Error => paint.warning("error"),
        Severity::Warning => "warning".to_owned(),
        Severity::Note => "note".to_owned(),
    };
    let pad = " ".repeat(INDENT.saturating_sub(severity_name(finding.severity).len()));
    let mut head = format!("{label}{pad}{}", paint.figure(&finding.key));
    if let Some(value) = &finding.value {
        let _ = write!(head, " = {value}");
    }
    if let Some(interface) = &finding.interface {
        let _ = write!(head, " on {interface}");
    }
    if let Some(host) = &finding.host {
        let _ = write!(head, " of {host}");
    }
    if let Some(place) = &finding.place {
        let _ = write!(head, "   {}:{}", place.file, place.line);
    }
    let mut text = format!("{head}\n{}", wrapped(&finding.message));
    if let Some(advice) = &finding.advice {
        text.push_str(&wrapped(&format!("instead: {advice}")));
    }
    let _ = writeln!(text, "{}[{}]", " ".repeat(INDENT), finding.id);
    text
}

fn severity_name(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

/// `3 errors, 1 warning and 2 notes on 11 settings (4 addresses, 7 routes of 1 host), 1 muted, 2 parts not checked`.
pub fn summary(report: &LintReport) -> String {
    let found = |severity, noun| {
        count(report.findings.iter().filter(|finding| finding.severity == severity).count(), noun)
    };
    let mut text = format!(
        "{}, {} and {} on {}",
        found(Severity::Error, "error"),
        found(Severity::Warning, "warning"),
        found(Severity::Note, "note"),
        count(report.setting_count, "setting")
    );
    if let Some(checked) = &report.checked {
        let _ = write!(text, " ({})", checked_text(checked));
    }
    if report.muted_count > 0 {
        let _ = write!(text, ", {} muted", report.muted_count);
    }
    if report.checked.is_some() && !report.missing.is_empty() {
        let _ = write!(text, "; {} not checked", count(report.missing.len(), "part"));
    }
    text
}

/// `4 addresses, 7 routes and 1 unknown one of 1 host`: kinds of which there are any.
fn checked_text(checked: &CheckedRouting) -> String {
    let kinds = [
        (checked.address_count, "address"),
        (checked.route_count, "route"),
        (checked.unknown_route_count, "route not known completely"),
        (checked.rule_count, "rule"),
        (checked.nexthop_count, "nexthop"),
        (checked.sysctl_count, "sysctl"),
    ];
    let counted = |(number, noun): &(u64, &str)| match (*number, *noun) {
        (0, _) => None,
        (1, noun) => Some(format!("1 {noun}")),
        (number, "address") => Some(format!("{number} addresses")),
        (number, "route not known completely") => Some(format!("{number} routes not known completely")),
        (number, noun) => Some(format!("{number} {noun}s")),
    };
    let kinds: Vec<String> = kinds.iter().filter_map(counted).collect();
    let of = count(checked.host_count, "host");
    let of =
        if checked.file_count > 0 { format!("{of}, in {}", count(checked.file_count, "file")) } else { of };
    if kinds.is_empty() { of } else { format!("{} of {of}", kinds.join(", ")) }
}

/// A plan as a diff with its reasons, then what no plan can change.
pub fn plan(plan: &Plan, paint: Paint) -> String {
    let mut text = plan.purpose.clone();
    if !plan.host.name.is_empty() || !plan.host.kernel.is_empty() {
        let _ = write!(text, "\nfor {}, Linux {}", or_this_host(&plan.host.name), plan.host.kernel);
    }
    text.push('\n');
    for step in &plan.steps {
        text.push('\n');
        text.push_str(&step_text(step, paint));
    }
    if plan.steps.is_empty() {
        text.push_str("\nnothing to change: every setting that is present suffices already\n");
    }
    if !plan.advice.is_empty() {
        text.push_str("\nwhat no setting changes, and what was assumed\n");
        for advice in &plan.advice {
            let lines = wrapped(advice);
            // The first line begins with a dash in its margin.
            let _ = write!(text, "{}- {}", " ".repeat(INDENT - 2), lines.trim_start());
        }
    }
    text.trim_end().to_owned()
}

fn or_this_host(name: &str) -> &str {
    if name.is_empty() { "a host without name" } else { name }
}

fn step_text(step: &Step, paint: Paint) -> String {
    let shown = |value: Option<&Value>| value.map_or_else(|| "(nothing)".to_owned(), Value::to_string);
    let mut text = format!("{}\n", paint.figure(&step.setting.to_string()));
    let _ = writeln!(text, "    - {}", shown(step.current.as_ref()));
    let _ = writeln!(text, "    + {}", shown(step.desired.as_ref()));
    text.push_str(&wrapped(&format!("{} ({})", step.reason, effect(step.effect))));
    text
}

fn effect(effect: Effect) -> &'static str {
    match effect {
        Effect::Now => "in effect at once",
        Effect::NewSockets => "for sockets made afterwards",
        Effect::Handshake => "for connections made afterwards",
        Effect::NewQdiscs => "for qdiscs made afterwards",
        Effect::LinkFlap => "at once; the link may go down and up",
        Effect::Boot => "after the next boot",
    }
}

/// What was found in effect.
pub fn verification(verification: &Verification) -> String {
    let rows = verification.checks.iter().map(|check| {
        vec![
            if check.holds { "yes" } else { "NO" }.to_owned(),
            check.subject.clone(),
            check.expected.clone(),
            match &check.found {
                Some(found) if check.holds && *found == check.expected => "the same".to_owned(),
                found => or_dash(found.clone()),
            },
        ]
    });
    let mut text = table(&["as planned", "setting", "planned", "found"], rows.collect());
    for check in &verification.checks {
        if let Some(note) = &check.note {
            let _ = write!(text, "\n{}: {note}", check.subject);
        }
    }
    text
}

/// Journals, oldest first.
pub fn history(entries: &[JournalEntry]) -> String {
    if entries.is_empty() {
        return "no journals: nothing was ever applied".to_owned();
    }
    let rows = entries.iter().map(|entry| {
        vec![
            entry.journal.clone(),
            or_dash(entry.time.clone()),
            journal_state(entry.state).to_owned(),
            if entry.here { "here" } else { "elsewhere" }.to_owned(),
            entry.changed_count.to_string(),
            or_dash(entry.purpose.clone().or_else(|| entry.note.clone())),
        ]
    });
    table(&["journal", "time", "state", "where", ">settings", "purpose"], rows.collect())
}

/// Recovered journals.
pub fn recovered(journals: &[Recovered]) -> String {
    if journals.is_empty() {
        return "nothing was interrupted".to_owned();
    }
    let lines = journals.iter().map(|journal| match &journal.problem {
        Some(problem) => format!("{}: {problem}", journal.journal),
        None => {
            let gone: String = journal.gone.iter().map(|gone| format!("; {gone}")).collect();
            format!(
                "{}: was {}, is {}; {} restored{gone}",
                journal.journal,
                journal_state(journal.found),
                journal_state(journal.now),
                journal.restored_count
            )
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn journal_state(state: JournalState) -> &'static str {
    match state {
        JournalState::Applying => "interrupted while applying",
        JournalState::Applied => "applied",
        JournalState::Pending => "pending",
        JournalState::Reverting => "interrupted while reverting",
        JournalState::Reverted => "reverted",
        JournalState::Gone => "gone with a boot",
        JournalState::Unreadable => "not readable",
    }
}

/// Lines of prose behind the margin.
pub(super) fn wrapped(message: &str) -> String {
    fold(message, INDENT, width::prose())
}

/// Lines of at most `width` columns that begin `indent` columns in.
pub(crate) fn fold(message: &str, indent: usize, width: usize) -> String {
    let margin = " ".repeat(indent);
    let mut text = String::new();
    let mut line = String::new();
    for token in message.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + token.chars().count() > width {
            let _ = writeln!(text, "{margin}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(token);
    }
    let _ = writeln!(text, "{margin}{line}");
    text
}

#[cfg(test)]
mod tests {
    use clearstream_schema::tune::FindingClass;

    use super::*;

    #[test]
    fn findings_of_many_hosts_are_shown_once() {
        let finding = |host: &str, message: &str| Finding {
            id: "return:routing:asymmetric".to_owned(),
            key: "return".to_owned(),
            class: FindingClass::Routing,
            severity: Severity::Warning,
            value: None,
            message: message.to_owned(),
            advice: None,
            place: None,
            interface: None,
            host: Some(host.to_owned()),
            source: String::new(),
        };
        let hosts: Vec<String> = (1..=7).map(|number| format!("n{number}")).collect();
        let mut findings: Vec<Finding> =
            hosts.iter().map(|host| finding(host, &format!("replies of {host} go elsewhere"))).collect();
        findings.push(finding("n8", "something else"));
        let shown = grouped(&findings);
        assert_eq!(shown.len(), 2);
        assert_eq!(
            (shown[0].0, shown[0].1.as_slice()),
            (&findings[0], &["n2", "n3", "n4", "n5", "n6", "n7"][..])
        );
        assert_eq!(shown[1], (&findings[7], Vec::new()));
    }

    #[test]
    fn wraps_at_spaces() {
        let text = wrapped(&"token ".repeat(60));
        assert!(text.lines().all(|line| line.len() <= width::prose() && line.starts_with("        token")));
        assert_eq!(text.split_whitespace().count(), 60);
    }
}
