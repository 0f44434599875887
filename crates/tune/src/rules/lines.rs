//! Lines of the given files: syntax errors, corrected mistakes, duplicates.

use std::collections::HashMap;

use clearstream_schema::tune::{Finding, FindingClass, Place, Severity};

use super::{Facts, With, finding};
use crate::syntax::{Format, Trap};

pub(super) fn unreadable(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (file, slip) in &facts.state.slips {
        let reason = slip.reason.clone();
        found.push(Finding {
            value: Some(slip.text.clone()),
            place: Some(Place { file: file.clone(), line: slip.line }),
            source: "sysctl.conf(5)".to_owned(),
            ..finding("line", FindingClass::Syntax, "unreadable", Severity::Error, reason)
        });
    }
}

pub(super) fn traps(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for given in &facts.state.given {
        let statement = &given.statement;
        for trap in &statement.traps {
            let (cause, message) = match trap {
                Trap::BlankInName => {
                    let written = statement.written.as_deref().unwrap_or_default();
                    let meant = facts.known.suggest(&statement.key).unwrap_or(&statement.key);
                    let message = format!(
                        "\"{written}\" has a blank where the underscore belongs, so no kernel has it; {meant} is meant and was checked"
                    );
                    ("blank-in-name", message)
                }
                Trap::QuotedValue => (
                    "quoted-value",
                    "sysctl hands the quotes to the kernel, which refuses them (EINVAL); only a shell or tuned takes them off".to_owned(),
                ),
                Trap::TrailingComment => (
                    "trailing-comment",
                    "a comment needs a line of its own: sysctl hands everything behind \"=\" to the kernel".to_owned(),
                ),
                Trap::Commas => (
                    "commas",
                    "values are divided by blanks; the kernel refuses commas (EINVAL)".to_owned(),
                ),
            };
            // tuned and the shell accept some of them; none accepts a blank in a name.
            let severity = if given.format == Format::Script && *trap == Trap::TrailingComment {
                continue;
            } else {
                Severity::Error
            };
            let key = facts.known.suggest(&statement.key).filter(|_| *trap == Trap::BlankInName);
            let key = key.unwrap_or(&statement.key);
            let mut finding =
                facts.finding(key, FindingClass::Syntax, cause, severity, message).sourced("sysctl.conf(5)");
            finding.place = Some(given.place.clone());
            finding.value = Some(statement.value.clone());
            found.push(finding.advise(format!("write {key} = {}", statement.value)));
        }
    }
}

pub(super) fn set_twice(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let mut last: HashMap<&str, usize> = HashMap::new();
    for (at, given) in facts.state.given.iter().enumerate() {
        let Some(before) = last.insert(&given.statement.key, at) else { continue };
        let Some(before) = facts.state.given.get(before) else { continue };
        let same = before.statement.value == given.statement.value;
        let message = format!(
            "is also set on line {}{}: the last one wins",
            given.place.line,
            if same { " to the same value".to_owned() } else { format!(" to {}", given.statement.value) }
        );
        let severity = if same { Severity::Note } else { Severity::Warning };
        let key = &given.statement.key;
        let mut finding = facts.finding(key, FindingClass::Provenance, "set-twice", severity, message);
        finding.place = Some(before.place.clone());
        finding.value = Some(before.statement.value.clone());
        found.push(finding.sourced("sysctl.conf(5)"));
    }
}

/// Included profiles, whose settings are not checked.
pub(super) fn includes(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (file, name) in &facts.state.includes {
        let message = format!("builds on the profile {name}, which was not checked");
        let mut finding = facts
            .finding("include", FindingClass::Unverifiable, "not-read", Severity::Note, message)
            .advise(format!("lint {name}'s tuned.conf too"))
            .sourced("tuned.conf(5)");
        finding.place = Some(Place { file: file.clone(), line: 1 });
        finding.value = Some(name.clone());
        found.push(finding);
    }
    for given in &facts.state.given {
        if given.statement.value.contains('$') {
            let message = format!("{} depends on a variable and was not checked", given.statement.value);
            let key = &given.statement.key;
            let mut finding =
                facts.finding(key, FindingClass::Unverifiable, "variable", Severity::Note, message);
            finding.place = Some(given.place.clone());
            found.push(finding.sourced("sysctl.conf(5)"));
        }
    }
}
