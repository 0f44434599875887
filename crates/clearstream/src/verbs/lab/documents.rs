//! Labs as documents.

use std::collections::BTreeMap;

use clearstream_lab::{RunningLab, limit};
use clearstream_schema::JsonSchema;
use clearstream_schema::{
    lab::{DelayLineStats, LabFault, LabFile},
    notice::Notice,
};
use serde::Serialize;

/// A lab that was taken down.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LabDown<'a> {
    /// Its name.
    pub(super) lab: &'a str,
}

/// Faults of a lab, injected or cleared.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LabFaults<'a> {
    /// Name of the lab.
    pub(super) lab: &'a str,
    /// Faults that this command injected.
    #[serde(default, rename = "broken", skip_serializing_if = "Option::is_none")]
    pub(super) injected: Option<Vec<LabFault>>,
    /// Faults that this command cleared.
    #[serde(default, rename = "mended", skip_serializing_if = "Option::is_none")]
    pub(super) cleared: Option<Vec<LabFault>>,
    /// Faults there are now.
    pub(super) faults: Vec<LabFault>,
}

/// A running lab.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LabState<'a> {
    /// What it was brought up from.
    file: &'a LabFile,
    /// What its delay lines did so far.
    delay_lines: &'a [DelayLineStats],
    /// Why a delay line was the limit of traffic; null where none was.
    delay_line_limit: Option<Notice>,
    /// Faults there are now.
    faults: &'a [LabFault],
    /// Hosts that have died.
    dead_hosts: Vec<String>,
}

impl<'a> LabState<'a> {
    /// Of a running lab, with the state that its keeper reports.
    pub(super) fn of(lab: &'a RunningLab, stats: &'a [DelayLineStats], faults: &'a [LabFault]) -> Self {
        Self {
            file: lab.file(),
            delay_lines: stats,
            delay_line_limit: limit::notice(stats),
            faults,
            dead_hosts: lab.dead_hosts(),
        }
    }
}

/// Labs that run, and those that could.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct LabList<'a> {
    /// Names of those that run.
    running: Vec<&'a str>,
    /// Faults of each that runs.
    faults: BTreeMap<&'a str, Vec<LabFault>>,
    /// Hosts that have died, of each that has some.
    dead_hosts: BTreeMap<&'a str, Vec<String>>,
    /// Labs whose keeper does not respond.
    silent: Vec<&'a str>,
    /// Why a delay line was the limit of traffic, of each where one was.
    delay_line_limits: BTreeMap<&'a str, Notice>,
    /// Names of the built-in labs.
    built_in: Vec<&'a str>,
}

impl<'a> LabList<'a> {
    /// Of the labs that run.
    pub(super) fn of(running: &'a [RunningLab]) -> Self {
        let built_in = clearstream_lab::file::built_in_names().collect();
        let mut list = Self { built_in, ..Self::default() };
        for lab in running {
            let name = lab.file().name.as_str();
            list.running.push(name);
            match lab.faults() {
                Ok(found) => drop(list.faults.insert(name, found)),
                Err(_) => list.silent.push(name),
            }
            let hosts = lab.dead_hosts();
            if !hosts.is_empty() {
                list.dead_hosts.insert(name, hosts);
            }
            // A keeper that does not respond is listed as silent.
            if let Some(notice) = lab.delay_line_stats().ok().and_then(|stats| limit::notice(&stats)) {
                list.delay_line_limits.insert(name, notice);
            }
        }
        list
    }
}
