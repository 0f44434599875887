//! Rules for single keys, from the table: existence, effect, range of the value.

use clearstream_schema::tune::{Finding, FindingClass, Severity};

use super::{Facts, With};
use crate::{knowledge::Key, state::Value, syntax::Trap};

/// Keys that no kernel has.
pub(super) fn unknown(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for given in &facts.state.given {
        let statement = &given.statement;
        let name = statement.key.as_str();
        let is_pattern = name.contains(['*', '?', '[']);
        if is_pattern || statement.traps.contains(&Trap::BlankInName) || facts.known.has(name) {
            continue;
        }
        if facts.state.has_key(name) == Some(true) {
            continue;
        }
        // The table has only a few keys of other folders.
        if !facts.known.covers(name) && name.contains('.') {
            continue;
        }
        let meant = facts.known.suggest(name);
        let message = match meant {
            Some(meant) => format!("no kernel known has {name}; {meant} is probably meant"),
            None => format!("no kernel known has {name}"),
        };
        let mut finding = facts.finding(name, FindingClass::Unknown, "misspelt", Severity::Error, message);
        if meant.is_none() {
            finding = facts.finding(name, FindingClass::Unknown, "key", Severity::Warning, finding.message);
        }
        finding.place = Some(given.place.clone());
        finding.value = Some(statement.value.clone());
        let finding = finding.sourced("trees of the kernel from 2.6.32 to 6.18");
        found.push(match meant {
            Some(meant) => finding.advise(format!("write {meant}")),
            None => finding,
        });
    }
}

/// Keys that are removed, vendor-specific, too new or without effect.
pub(super) fn presence(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (name, value) in &facts.state.values {
        let Some(key) = facts.known.key(name) else { continue };
        if let Some(finding) =
            gone(facts, key).or_else(|| too_new(facts, key)).or_else(|| no_op(facts, key, value))
        {
            found.push(finding);
        }
    }
}

fn gone(facts: &Facts<'_>, key: &Key) -> Option<Finding> {
    let successor = || match &key.successor {
        Some(successor) => format!("delete the line; what takes its place: {successor}"),
        None => "delete the line".to_owned(),
    };
    let is_here = facts.state.has_key(&key.name);
    if let Some(owner) = &key.foreign {
        if is_here == Some(true) {
            return None;
        }
        let message = format!("is part of {owner}, no official kernel has it: {}", key.does);
        return Some(
            facts
                .finding(&key.name, FindingClass::Removed, "foreign", Severity::Error, message)
                .advise(successor()),
        );
    }
    let bracket = key.removed?;
    let when = match bracket.version {
        Some(version) => format!("removed in {version}"),
        None => format!("removed after {}, gone in {}", bracket.present, bracket.absent),
    };
    let first_without = bracket.version.unwrap_or(bracket.absent);
    let (severity, how) = match (is_here, facts.state.kernel) {
        (Some(true), _) => (Severity::Note, "still here".to_owned()),
        (Some(false), _) => (Severity::Error, "not here, so setting it fails".to_owned()),
        (None, Some(kernel)) if kernel >= first_without => {
            (Severity::Error, format!("so kernel {kernel} has no such key and setting it fails"))
        }
        (None, Some(kernel)) => (Severity::Note, format!("kernel {kernel} may still have it")),
        (None, None) => (Severity::Warning, "the kernel it is for is not known".to_owned()),
    };
    let message = format!("{when}; {how}. {}", sentence(&key.does));
    Some(facts.finding(&key.name, FindingClass::Removed, "gone", severity, message).advise(successor()))
}

fn too_new(facts: &Facts<'_>, key: &Key) -> Option<Finding> {
    let since = key.since?;
    let kernel = facts.state.kernel?;
    let is_old = kernel <= since.absent && kernel < since.present;
    let is_effective = facts.state.values.get(&key.name)?.effective;
    if !is_old || facts.state.has_key(&key.name).is_some() || is_effective {
        return None;
    }
    let message = format!(
        "appeared after {} and by {}; kernel {kernel} of the official line does not have it (a distribution may have carried it back)",
        since.absent, since.present
    );
    Some(facts.finding(&key.name, FindingClass::Removed, "too-new", Severity::Warning, message))
}

fn no_op(facts: &Facts<'_>, key: &Key, value: &Value) -> Option<Finding> {
    let since = key.no_op?;
    let kernel = facts.state.kernel;
    let is_default = kernel.and_then(|kernel| key.default_at(kernel)) == Some(value.text.as_str());
    // A default on a host is no mistake.
    let is_at_rest = value.effective && value.place.is_none() && (is_default || key.defaults.is_empty());
    if is_at_rest {
        return None;
    }
    let for_ever = since == crate::version::KernelVersion::new(0, 0, 0);
    let (severity, when) = match kernel {
        _ if for_ever => (Severity::Warning, "nothing reads it".to_owned()),
        Some(kernel) if kernel >= since => {
            (Severity::Warning, format!("nothing reads it since {since}, and this is {kernel}"))
        }
        Some(kernel) => {
            (Severity::Note, format!("nothing reads it from {since} on; kernel {kernel} still does"))
        }
        None => (Severity::Warning, format!("nothing reads it since {since}")),
    };
    let message = format!("{when}. {}", sentence(&key.does));
    let advice = match &key.successor {
        Some(successor) => format!("delete the line; what takes its place: {successor}"),
        None => "delete the line".to_owned(),
    };
    Some(facts.finding(&key.name, FindingClass::NoOp, "dead-key", severity, message).advise(advice))
}

/// Makes a sentence of a row's phrase, whatever the phrase's grammar.
fn sentence(phrase: &str) -> String {
    format!("What it is: {phrase}.")
}

/// Number of fields, integer syntax, and the kernel's own ranges.
pub(super) fn numbers(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (name, value) in &facts.state.values {
        let Some(key) = facts.known.key(name).filter(|key| key.unit.is_number()) else { continue };
        if value.text.contains('$') || value.effective {
            continue;
        }
        let fields: Vec<&str> = value.text.split_whitespace().collect();
        if fields.len() != key.count {
            let message =
                format!("has {} value(s), the kernel wants {}: {}", fields.len(), key.count, key.does);
            found.push(facts.finding(name, FindingClass::Range, "value-count", Severity::Error, message));
            continue;
        }
        for field in fields {
            if let Some((cause, message)) = refused(key, field) {
                found.push(facts.finding(name, FindingClass::Range, cause, Severity::Error, message));
                break;
            }
        }
    }
}

/// Reason for which the kernel rejects a value.
fn refused(key: &Key, field: &str) -> Option<(&'static str, String)> {
    let Ok(number) = field.parse::<i128>() else {
        let message = if field.starts_with(|c: char| c.is_ascii_digit()) {
            format!(
                "\"{field}\" is refused (EINVAL): a sysctl takes whole numbers of {} without suffix",
                key.unit.name()
            )
        } else {
            format!("\"{field}\" is no number, and the kernel refuses it (EINVAL)")
        };
        return Some(("not-a-number", message));
    };
    let range = key.enforced?;
    if (i128::from(range.min)..=i128::from(range.max)).contains(&number) {
        return None;
    }
    let message =
        format!("{number} is outside {}..{}, and the kernel refuses it (EINVAL)", range.min, range.max);
    Some(("refused", message))
}

/// Ranges that the kernel accepts but that are harmful.
pub(super) fn sane(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (name, value) in &facts.state.values {
        let Some(key) = facts.known.key(name) else { continue };
        let Ok(number) = value.text.parse::<i64>() else { continue };
        let default = facts.state.kernel.and_then(|kernel| key.default_at(kernel));
        if value.effective && value.place.is_none() && default == Some(value.text.as_str()) {
            continue;
        }
        for rule in key.sane.iter().filter(|rule| rule.holds(number)) {
            let message =
                format!("{number} {}: {}", key.unit.name(), rule.why).replace("  ", " ").replace(" :", ":");
            found.push(
                facts
                    .finding(name, rule.class, &rule.cause, rule.severity, message)
                    .advise(rule.advice.clone()),
            );
        }
    }
}
