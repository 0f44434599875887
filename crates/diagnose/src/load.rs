//! Use of the cores of an end while the flow ran, and what a CPU quota
//! withheld: sums over the measured intervals.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_schema::{
    counters::{CoreCounters, CpuThrottling, ProcessKind, ProcessTime},
    diagnosis::ProcessShare,
    flow::SideInterval,
};

/// Processes named in a finding.
const NAMED_MAX: usize = 4;
/// Cores' worth of unaccounted time that is more than the error of the clocks.
const UNSEEN_LEAST: f64 = 0.25;

/// Cores' worth of time that processes of an end used.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Load {
    /// Processes that are no part of the flow, all together.
    pub(crate) foreign: f64,
    /// Those of them that are not at idle priority. (Idle priority yields
    /// within a scheduling group only: sched(7), "The autogroup feature".)
    pub(crate) insistent: f64,
    /// The busiest of them, those of one name together.
    pub(crate) processes: Vec<ProcessShare>,
    /// The same by the core that each was last observed on.
    by_core: BTreeMap<u32, f64>,
    /// The busiest process of a lab's delay lines.
    pub(crate) emulation: f64,
    /// Time of the cores that no process of a scan accounts for: of processes that
    /// ended between two scans, or that another PID namespace hides. Part of `foreign`.
    pub(crate) unseen: f64,
    /// All processes of the scans, the flow's own included.
    seen: f64,
}

impl Load {
    /// Of all scans; `None` when there is none (flows shorter than a second). `agents` are the numbers of the flow's
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
            load.seen += scan.remaining_run_ns as f64;
            load.seen += scan.processes.iter().map(|process| process.run_ns as f64).sum::<f64>();
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
        load.seen /= elapsed;
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

    /// Adds the time of the cores outside softirqs and outside every process of the scans.
    /// A process's time is counted to the nanosecond and that of a core in ticks: less
    /// than [`UNSEEN_LEAST`] cores is their difference. `hidden` is what the flow's own
    /// threads used that the scans do not show.
    pub(crate) fn add_unseen(&mut self, cores: &[CoreCounters], hidden: f64) {
        let time = |core: &CoreCounters| (core.user_ns as f64, core.system_ns as f64);
        let busy: f64 = cores.iter().map(|core| time(core).0 + time(core).1).sum();
        let elapsed = cores.iter().map(elapsed_ns).fold(0.0, f64::max);
        let unseen = busy / elapsed.max(1.0) - self.seen - hidden;
        if unseen < UNSEEN_LEAST {
            return;
        }
        self.unseen = unseen;
        self.foreign += unseen;
        self.processes.push(ProcessShare {
            name: "processes that ended meanwhile or are hidden here".to_owned(),
            process_count: 1,
            core_count: unseen,
        });
        self.processes.sort_by(|one, other| other.core_count.total_cmp(&one.core_count));
        self.processes.truncate(NAMED_MAX);
    }

    /// The same of one core: its time outside softirqs, the flow's own threads there
    /// and the processes last observed on it, where some were missed.
    pub(crate) fn unseen_on(&self, core: &CoreCounters, own: f64) -> f64 {
        let busy = (core.user_ns as f64 + core.system_ns as f64) / elapsed_ns(core).max(1.0);
        (busy - own - self.on_core(core.core)).clamp(0.0, self.unseen.max(0.0))
    }

    /// Use of one core by other processes.
    pub(crate) fn on_core(&self, core: u32) -> f64 {
        self.by_core.get(&core).copied().unwrap_or(0.0)
    }
}

fn elapsed_ns(core: &CoreCounters) -> f64 {
    [core.user_ns, core.system_ns, core.softirq_ns, core.irq_ns, core.steal_ns, core.idle_ns]
        .map(|part| part as f64)
        .iter()
        .sum()
}

/// Numbers of the processes that run the flow on a side.
pub(crate) fn agents<'a>(sides: impl Iterator<Item = &'a SideInterval>) -> BTreeSet<u32> {
    let own = |process: &&ProcessTime| process.kind == ProcessKind::Agent;
    sides
        .filter_map(|side| side.process_load.as_ref())
        .flat_map(|scan| scan.processes.iter().filter(own).map(|process| process.pid))
        .collect()
}

/// Whether the scans of a side show one of these processes.
pub(crate) fn shows<'a>(sides: impl Iterator<Item = &'a SideInterval>, pids: &BTreeSet<u32>) -> bool {
    let mut scans = sides.filter_map(|side| side.process_load.as_ref());
    scans.any(|scan| scan.processes.iter().any(|process| pids.contains(&process.pid)))
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
