//! Who used the cores of an end while the flow ran, and what a CPU quota
//! withheld: sums over the measured intervals.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_schema::{
    counters::{CpuThrottling, ProcessKind, ProcessTime},
    diagnosis::ProcessShare,
    flow::SideInterval,
};

/// Processes named in a finding.
const NAMED_MAX: usize = 4;

/// Cores' worth of time that processes of an end used.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Load {
    /// Processes that are no part of the flow, all together.
    pub(crate) foreign: f64,
    /// Those of them that are not at idle priority. (Idle priority gives way
    /// within a scheduling group only: sched(7), "The autogroup feature".)
    pub(crate) insistent: f64,
    /// The busiest of them, those of one name together.
    pub(crate) processes: Vec<ProcessShare>,
    /// The same by the core that each was last seen on.
    by_core: BTreeMap<u32, f64>,
    /// The busiest process of a lab's delay lines.
    pub(crate) emulation: f64,
}

impl Load {
    /// Of all scans; `None` when there is none (records of older versions,
    /// flows shorter than a second). `agents` are the numbers of the flow's
    /// own processes.
    pub(crate) fn of<'a>(
        sides: impl Iterator<Item = &'a SideInterval>,
        agents: &BTreeSet<u32>,
    ) -> Option<Self> {
        let mut load = Self::default();
        let mut names = BTreeMap::<&str, (BTreeSet<u32>, f64)>::new();
        let mut emulation = BTreeMap::<u32, f64>::new();
        let mut elapsed = 0.0;
        for scan in sides.filter_map(|side| side.process_load.as_ref()) {
            elapsed += scan.elapsed_ns as f64;
            load.foreign += scan.remaining_run_ns as f64;
            for process in scan.processes.iter().filter(|process| !agents.contains(&process.pid)) {
                let run = process.run_ns as f64;
                match process.kind {
                    ProcessKind::PathEmulation => *emulation.entry(process.pid).or_default() += run,
                    ProcessKind::Other | ProcessKind::Background => {
                        load.foreign += run;
                        if process.kind == ProcessKind::Other {
                            load.insistent += run;
                        }
                        *load.by_core.entry(process.core).or_default() += run;
                        let (pids, sum) = names.entry(&process.name).or_default();
                        pids.insert(process.pid);
                        *sum += run;
                    }
                    ProcessKind::Agent | ProcessKind::PacketProcessing => {}
                }
            }
        }
        if elapsed <= 0.0 {
            return None;
        }
        load.foreign /= elapsed;
        load.insistent /= elapsed;
        load.by_core.values_mut().for_each(|run| *run /= elapsed);
        load.emulation = emulation.into_values().fold(0.0, f64::max) / elapsed;
        load.processes = names
            .into_iter()
            .map(|(name, (pids, run))| ProcessShare {
                name: name.to_owned(),
                process_count: u32::try_from(pids.len()).unwrap_or(u32::MAX),
                core_count: run / elapsed,
            })
            .collect();
        load.processes.sort_by(|one, other| other.core_count.total_cmp(&one.core_count));
        load.processes.truncate(NAMED_MAX);
        Some(load)
    }

    /// What other processes used of one core.
    pub(crate) fn on_core(&self, core: u32) -> f64 {
        self.by_core.get(&core).copied().unwrap_or(0.0)
    }
}

/// Numbers of the processes that run the flow on a side.
pub(crate) fn agents<'a>(sides: impl Iterator<Item = &'a SideInterval>) -> BTreeSet<u32> {
    let own = |process: &&ProcessTime| process.kind == ProcessKind::Agent;
    sides
        .filter_map(|side| side.process_load.as_ref())
        .flat_map(|scan| scan.processes.iter().filter(own).map(|process| process.pid))
        .collect()
}

/// Throttling of all intervals together.
pub(crate) fn throttling<'a>(sides: impl Iterator<Item = &'a SideInterval>) -> Option<CpuThrottling> {
    sides.filter_map(|side| side.cpu_throttling.as_ref()).fold(None, |sum, one| {
        let mut sum: CpuThrottling = match sum {
            Some(sum) if sum.group == one.group => sum,
            Some(sum) if sum.throttled_count > one.throttled_count => return Some(sum),
            _ => return Some(one.clone()),
        };
        sum.period_count = sum.period_count.saturating_add(one.period_count);
        sum.throttled_count = sum.throttled_count.saturating_add(one.throttled_count);
        sum.throttled_ns = sum.throttled_ns.saturating_add(one.throttled_ns);
        Some(sum)
    })
}
