//! Settings of all trials, whatever their workload: requested and effective. What agrees is folded into one row per
//! setting and host; what differs gets a row of its own, before the others.

use std::collections::BTreeMap;

use clearstream_schema::{human, outcome::SettingValue};
use serde_json::Value;

use crate::figure::{Row, Table};

/// Number of values that a row lists; more are counted.
const LISTED: usize = 4;
const NONE: &str = "\u{2013}";

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
    requested: String,
    effective: String,
}

/// A row of the table, without its numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    differs: bool,
    name: String,
    role: String,
    requested: String,
    effective: String,
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

    /// Lines with their number of trials.
    fn lines(&self) -> Vec<(Line, usize)> {
        let mut lines = Vec::new();
        for ((place, role), all) in &self.seen {
            let mut line = |seen: &[(&Seen, &usize)], differs: bool| {
                let line = Line {
                    differs,
                    name: self.names[*place].replace('-', " "),
                    role: role.clone().unwrap_or_else(|| NONE.to_owned()),
                    requested: column(seen.iter().map(|(seen, _)| seen.requested.as_str())),
                    effective: column(seen.iter().map(|(seen, _)| seen.effective.as_str())),
                };
                lines.push((line, seen.iter().map(|(_, count)| **count).sum()));
            };
            let (differ, agree): (Vec<_>, Vec<_>) = all.iter().partition(|(seen, _)| seen.differs);
            differ.iter().for_each(|one| line(&[*one], true));
            if !agree.is_empty() {
                line(&agree, false);
            }
        }
        lines
    }
}

/// Settings of experiments by their names, in the order of the study; what several have alike is one row.
pub(crate) fn table<'a>(experiments: impl Iterator<Item = (&'a str, &'a ExperimentSettings)>) -> Table {
    table_of(&experiments.filter(|(_, settings)| !settings.seen.is_empty()).collect::<Vec<_>>())
}

fn table_of(experiments: &[(&str, &ExperimentSettings)]) -> Table {
    let mut rows: Vec<(Line, usize, Vec<&str>)> = Vec::new();
    for (name, settings) in experiments {
        for (line, count) in settings.lines() {
            match rows.iter_mut().find(|(other, ..)| *other == line) {
                Some((_, trials, names)) => {
                    *trials += count;
                    names.push(name);
                }
                None => rows.push((line, count, vec![name])),
            }
        }
    }
    let mut rows = folded(rows);
    rows.sort_by_key(|(line, ..)| !line.differs);
    let mut table = Table::new(
        "Settings, requested and effective",
        &["Setting", "Host", "Requested", "Effective", "#Trials", "Experiments"],
    );
    let row = |(line, trials, names): (Line, usize, Vec<&str>)| {
        let is_everywhere = names.len() > 1 && names.len() == experiments.len();
        let name = if line.differs { format!("{} (differs)", line.name) } else { line.name };
        let names = if is_everywhere { "all".to_owned() } else { names.join(", ") };
        let cells = vec![name, line.role, line.requested, line.effective, trials.to_string(), names];
        Row { cells, highlighted: line.differs }
    };
    table.rows = rows.into_iter().map(row).collect();
    table
}

/// What both hosts of an experiment have alike is one row.
fn folded(rows: Vec<(Line, usize, Vec<&str>)>) -> Vec<(Line, usize, Vec<&str>)> {
    let mut folded: Vec<(Line, usize, Vec<&str>)> = Vec::new();
    for (line, trials, names) in rows {
        let alike = |(other, of, experiments): &&mut (Line, usize, Vec<&str>)| {
            let same = Line { role: other.role.clone(), ..line.clone() };
            *other == same && line.role != NONE && *of == trials && *experiments == names
        };
        match folded.iter_mut().find(alike) {
            Some((other, ..)) => other.role = format!("{}, {}", other.role, line.role),
            None => folded.push((line, trials, names)),
        }
    }
    folded
}

impl Seen {
    fn of(setting: &SettingValue) -> Self {
        let text = |value: &Option<Value>| value.as_ref().map(|value| shown(setting, value));
        let requested = text(&setting.requested);
        let requested = requested
            .unwrap_or_else(|| if setting.chosen { "chosen by clearstream" } else { NONE }.to_owned());
        let effective = text(&setting.effective).unwrap_or_else(|| NONE.to_owned());
        let effective =
            if setting.is_twice() { format!("{effective} (the kernel doubles)") } else { effective };
        Self { differs: setting.differs(), requested, effective }
    }
}

fn shown(setting: &SettingValue, value: &Value) -> String {
    match (setting.unit, value.as_f64()) {
        (Some(unit), Some(number)) => unit.text(number),
        _ => human::level(value),
    }
}

/// A few values, or how many there are.
fn column<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let mut values: Vec<&str> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.sort_by_key(|text| text.len());
    if values.len() > LISTED { format!("{} values", values.len()) } else { values.join("; ") }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::outcome::Unit;

    use super::*;

    fn rows(experiments: &[(&str, &ExperimentSettings)]) -> Vec<Vec<String>> {
        table_of(experiments).rows.into_iter().map(|row| row.cells).collect()
    }

    #[test]
    fn what_differs_comes_first_and_what_agrees_is_one_row() {
        let bytes = |name: &str| SettingValue::of(name).at("server").unit(Unit::Bytes);
        let mut settings = ExperimentSettings::default();
        for core in 0..6 {
            settings.add(&[
                SettingValue::of("crc").requested(Some(true)).effective(Some(core != 3)),
                SettingValue::of("core").at("client").requested(Some(core)).effective(Some(core)),
                SettingValue {
                    doubled: true,
                    ..bytes("send-buffer").requested(Some(65_536)).effective(Some(131_072))
                },
                SettingValue { chosen: true, ..bytes("receive-low-water").effective(Some(262_144)) },
                SettingValue::of("congestion-control").at("server").effective(Some("cubic")),
                SettingValue::of("pacing").unit(Unit::BitsPerSecond).requested(Some(1_000_000_000)),
            ]);
        }
        let expected = [
            ["crc (differs)", NONE, "true", "false", "1", "one"],
            ["crc", NONE, "true", "true", "5", "one"],
            ["core", "client", "6 values", "6 values", "6", "one"],
            ["send buffer", "server", "64 KiB", "128 KiB (the kernel doubles)", "6", "one"],
            ["receive low water", "server", "chosen by clearstream", "256 KiB", "6", "one"],
            ["congestion control", "server", NONE, "cubic", "6", "one"],
            ["pacing", NONE, "1.00 Gb/s", NONE, "6", "one"],
        ];
        assert_eq!(rows(&[("one", &settings)]), expected);
    }

    #[test]
    fn what_experiments_or_hosts_have_alike_is_one_row() {
        let of = |flows: u32| {
            let mut settings = ExperimentSettings::default();
            let mss = |role, bytes: u32| {
                SettingValue::of("mss").at(role).requested(Some(600)).effective(Some(bytes))
            };
            let flows = SettingValue::of("flows").requested(Some(flows));
            settings.add(&[flows, mss("client", 588), mss("server", 588), mss("other", 536)]);
            settings
        };
        let (one, two) = (of(1), of(2));
        let expected = [
            ["mss (differs)", "client, server", "600", "588", "2", "all"],
            ["mss (differs)", "other", "600", "536", "2", "all"],
            ["flows", NONE, "1", NONE, "1", "one"],
            ["flows", NONE, "2", NONE, "1", "two"],
        ];
        assert_eq!(rows(&[("one", &one), ("two", &two)]), expected);
    }
}
