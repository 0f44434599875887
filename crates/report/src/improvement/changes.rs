//! Options and settings: the effect of each change, the effective settings, and the commands that
//! revert them.

use clearstream_schema::{
    diagnosis::End,
    flow::FlowConfig,
    human,
    improvement::{Change, Improvement, TriedStep, Verdict},
    plan::{self, Step},
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{kept, wording};
use crate::figure::Table;

/// A journal and the command that takes its changes back.
#[derive(Debug, Serialize)]
pub(super) struct Journal {
    host: String,
    end: &'static str,
    command: String,
}

/// Newest first: the order in which they must be reverted.
pub(super) fn journals(found: &Improvement) -> Vec<Journal> {
    found
        .journals
        .iter()
        .rev()
        .map(|kept| Journal {
            host: kept.host.clone(),
            end: wording::end(kept.end),
            command: format!("clearstream plan revert {}", shell_quoted(&kept.journal)),
        })
        .collect()
}

/// A name quoted for a shell, to be copied from the page. Quoted as POSIX
/// section 2.2.2 has it ("single-quotes shall preserve the literal value"),
/// unless it has only characters that mean nothing to a shell.
fn shell_quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+@%/".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        return name.to_owned();
    }
    format!("'{}'", name.replace('\'', "'\\''"))
}

/// The requested options, where they differ from the default.
pub(super) fn requested_options(config: &FlowConfig) -> String {
    let default = keys(&FlowConfig::default());
    let options: Vec<String> = keys(config)
        .iter()
        .filter(|(key, value)| default.get(*key) != Some(value))
        .map(|(key, value)| format!("{key} {}", human::level(value)))
        .collect();
    if options.is_empty() { "defaults".to_owned() } else { options.join(", ") }
}

/// Options of a flow by their keys.
fn keys(config: &FlowConfig) -> Map<String, Value> {
    match clearstream_schema::json::to_value(config) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

fn value(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "not given".to_owned(),
        Some(value) => human::level(value),
    }
}

fn text(value: Option<&plan::Value>) -> String {
    value.map(ToString::to_string).unwrap_or_else(|| "not there".to_owned())
}

/// Effective options before each step: as requested, with those of earlier steps that were kept.
pub(super) fn options_before(found: &Improvement) -> Vec<Map<String, Value>> {
    let mut now = keys(&found.requested);
    let mut before = Vec::with_capacity(found.steps.len());
    for step in &found.steps {
        before.push(now.clone());
        if step.verdict == Verdict::Kept {
            for change in &step.candidate.changes {
                if let Change::Option { key, value } = change {
                    now.insert(key.clone(), value.clone());
                }
            }
        }
    }
    before
}

/// Changes of one step.
pub(super) fn of_step(step: &TriedStep, options: &Map<String, Value>) -> Table {
    let mut table =
        Table::new("What is changed", &["What", "Where", "Without", "With", "Takes effect", "Why"]);
    for change in &step.candidate.changes {
        table.push(match change {
            Change::Option { key, value: wanted } => vec![
                key.clone(),
                "option of the flow".to_owned(),
                value(options.get(key)),
                value(Some(wanted)),
                "for this flow".to_owned(),
                as_above(&step.candidate.reason, step),
            ],
            Change::Setting { end, step: setting } => vec![
                setting.setting.to_string(),
                wording::end(*end).to_owned(),
                text(setting.current.as_ref()),
                text(setting.desired.as_ref()),
                wording::effect(setting.effect).to_owned(),
                as_above(&setting.reason, step),
            ],
        });
    }
    table
}

/// A reason is not repeated under the same heading.
fn as_above(reason: &str, step: &TriedStep) -> String {
    if reason == step.candidate.reason || reason == step.limit {
        "as above".to_owned()
    } else {
        reason.to_owned()
    }
}

/// Options that were changed and kept.
pub(super) fn options(found: &Improvement) -> Table {
    let mut table = Table::new("Options of the flow that were kept", &["Option", "Requested", "Now", "Why"]);
    let (requested, now) = (keys(&found.requested), keys(&found.kept));
    let mut names: Vec<&String> = requested.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    for name in names.into_iter().filter(|name| requested.get(*name) != now.get(*name)) {
        let reasons = kept(found).filter(|(_, step)| {
            let changes = &step.candidate.changes;
            changes.iter().any(|change| matches!(change, Change::Option { key, .. } if key == name))
        });
        // Of several changes of one option the last is effective.
        let why = reasons
            .last()
            .map_or_else(String::new, |(index, step)| with_number(index, &step.candidate.reason));
        table.push(vec![name.clone(), value(requested.get(name)), value(now.get(name)), why]);
    }
    table
}

fn with_number(index: usize, reason: &str) -> String {
    format!("{reason} (change {})", index + 1)
}

/// Settings of hosts that were changed and kept; of several changes of one
/// place the first value found and the last one written.
pub(super) fn settings(found: &Improvement) -> Table {
    let mut places: Vec<(End, usize, Step)> = Vec::new();
    for (index, step) in kept(found) {
        for change in &step.candidate.changes {
            let Change::Setting { end, step } = change else { continue };
            let same = |place: &&mut (End, usize, Step)| place.0 == *end && place.2.setting == step.setting;
            match places.iter_mut().find(same) {
                Some(place) => {
                    let current = place.2.current.take();
                    *place = (*end, index, Step { current, ..step.clone() });
                }
                None => places.push((*end, index, step.clone())),
            }
        }
    }
    let mut table = Table::new(
        "Settings of the hosts that were kept",
        &["Setting", "Host", "Before", "Now", "Takes effect", "Why"],
    );
    for (end, index, step) in places {
        let host = match end {
            End::Client => &found.client,
            End::Server => &found.server,
        };
        table.push(vec![
            step.setting.to_string(),
            format!("{host} ({})", wording::end(end)),
            text(step.current.as_ref()),
            text(step.desired.as_ref()),
            wording::effect(step.effect).to_owned(),
            with_number(index, &step.reason),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_for_a_shell() {
        assert_eq!(shell_quoted("20260102T030405Z-1a"), "20260102T030405Z-1a");
        assert_eq!(shell_quoted("a b; rm -rf ~"), "'a b; rm -rf ~'");
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
        assert_eq!(shell_quoted(""), "''");
        assert_eq!(shell_quoted("ünï"), "'ünï'");
    }
}
