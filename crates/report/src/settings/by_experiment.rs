//! Settings of outcomes, whatever the workload: requested and effective, by
//! experiment. What agrees is folded into one row per setting and host; what
//! differs gets a row of its own.

use std::collections::BTreeMap;

use clearstream_schema::{human, outcome::SettingValue};
use serde_json::Value;

use super::LISTED;
use crate::{
    digest::ExperimentDigest,
    figure::{Row, Table},
    format::{bytes, time},
};

/// Settings of the trials of an experiment.
#[derive(Debug, Default)]
pub(crate) struct ExperimentSettings {
    /// By place in the order in which trials name them, and role.
    seen: BTreeMap<(usize, Option<String>), BTreeMap<Seen, usize>>,
    names: Vec<String>,
}

/// A setting in at least one trial.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    differs: bool,
    requested: Option<String>,
    effective: Option<String>,
}

impl ExperimentSettings {
    /// Adds the settings of a trial.
    pub(crate) fn add(&mut self, settings: &[SettingValue]) {
        for setting in settings {
            let place = self.names.iter().position(|name| *name == setting.name).unwrap_or_else(|| {
                self.names.push(setting.name.clone());
                self.names.len() - 1
            });
            let of_host = self.seen.entry((place, setting.role.clone())).or_default();
            *of_host.entry(Seen::of(setting)).or_default() += 1;
        }
    }

    /// Rows of a table of all experiments: first what differs.
    fn rows(&self, experiment: &str) -> Vec<Row> {
        let (mut differing, mut agreeing) = (Vec::new(), Vec::new());
        for ((place, role), all) in &self.seen {
            let row = |seen: &[(&Seen, &usize)], differs: bool| {
                let name = spoken(&self.names[*place]);
                let cells = vec![
                    experiment.to_owned(),
                    if differs { format!("{name} (differs)") } else { name },
                    role.clone().unwrap_or_else(|| NONE.to_owned()),
                    column(seen.iter().map(|(seen, _)| seen.requested.as_deref())),
                    column(seen.iter().map(|(seen, _)| seen.effective.as_deref())),
                    seen.iter().map(|(_, count)| **count).sum::<usize>().to_string(),
                ];
                Row { cells, highlighted: differs }
            };
            let (differ, agree): (Vec<_>, Vec<_>) = all.iter().partition(|(seen, _)| seen.differs);
            differing.extend(differ.iter().map(|one| row(&[*one], true)));
            if !agree.is_empty() {
                agreeing.push(row(&agree, false));
            }
        }
        differing.append(&mut agreeing);
        differing
    }
}

/// Settings of all experiments, in the order of the study.
pub(crate) fn table(experiments: &[ExperimentDigest]) -> Table {
    let mut table = Table::new(
        "Settings of other workloads, by experiment",
        &["Experiment", "Setting", "Host", "Requested", "Effective", "#Trials"],
    );
    table.rows = experiments.iter().flat_map(|one| one.settings.rows(&one.spec.name)).collect();
    table
}

const NONE: &str = "\u{2013}";

impl Seen {
    fn of(setting: &SettingValue) -> Self {
        let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
        let text = |value: &Option<Value>| value.as_ref().map(|value| shown(&setting.name, value));
        let (requested, effective) = (text(&setting.requested), text(&setting.effective));
        // socket(7): "the kernel doubles this value", so twice the request is what was requested.
        let doubled = setting.name.ends_with("-buffer-bytes")
            && number(&setting.requested).map(|bytes| bytes * 2.0) == number(&setting.effective)
            && setting.requested.is_some();
        let known = setting.requested.is_some() && setting.effective.is_some();
        let differs = known && setting.requested != setting.effective && !doubled;
        let effective =
            effective.map(|text| if doubled { format!("{text} (the kernel doubles)") } else { text });
        Self { differs, requested, effective }
    }
}

/// A value with the unit that its name ends with.
fn shown(name: &str, value: &Value) -> String {
    match value.as_f64() {
        Some(number) if name.ends_with("-bytes") => bytes(number),
        Some(number) if name.ends_with("-ns") => time(number),
        _ => human::level(value),
    }
}

/// A name without its unit, which the values have.
fn spoken(name: &str) -> String {
    name.trim_end_matches("-bytes").trim_end_matches("-ns").replace('-', " ")
}

/// A few values, or how many there are.
fn column<'a>(values: impl Iterator<Item = Option<&'a str>>) -> String {
    let mut values: Vec<&str> = values.map(|value| value.unwrap_or(NONE)).collect();
    values.sort_unstable();
    values.dedup();
    values.sort_by_key(|text| text.len());
    if values.len() > LISTED { format!("{} values", values.len()) } else { values.join("; ") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn setting(role: Option<&str>, name: &str, requested: Value, effective: Value) -> SettingValue {
        let known = |value: Value| Some(value).filter(|value| !value.is_null());
        let role = role.map(str::to_owned);
        SettingValue { role, name: name.to_owned(), requested: known(requested), effective: known(effective) }
    }

    #[test]
    fn what_differs_comes_first_and_what_agrees_is_one_row() {
        let mut settings = ExperimentSettings::default();
        for core in 0..6 {
            settings.add(&[
                setting(None, "crc", json!(true), json!(core != 3)),
                setting(Some("client"), "core", json!(core), json!(core)),
                setting(Some("server"), "send-buffer-bytes", json!(65_536), json!(131_072)),
                setting(Some("server"), "congestion-control", Value::Null, json!("cubic")),
            ]);
        }
        let rows: Vec<Vec<String>> = settings.rows("one").into_iter().map(|row| row.cells).collect();
        let expected = [
            ["one", "crc (differs)", "\u{2013}", "true", "false", "1"],
            ["one", "crc", "\u{2013}", "true", "true", "5"],
            ["one", "core", "client", "6 values", "6 values", "6"],
            ["one", "send buffer", "server", "64 KiB", "128 KiB (the kernel doubles)", "6"],
            ["one", "congestion control", "server", "\u{2013}", "cubic", "6"],
        ];
        assert_eq!(rows, expected);
    }
}
