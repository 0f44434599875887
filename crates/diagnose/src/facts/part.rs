//! One end of the flow diagnosed: its threads, cores, card and counters.

use std::collections::BTreeMap;

use clearstream_schema::{
    counters::{CoreCounters, CpuThrottling},
    diagnosis::{End, Role},
    flow::{FlowInterval, Interval, SideInterval},
    host::{HostReport, Nic},
};

use super::of_end;
use crate::{
    Evidence, hosts,
    load::{self, Load},
    series::ThreadShares,
};

/// One end of the flow.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    pub(crate) role: Role,
    pub(crate) end: End,
    pub(crate) host: &'a HostReport,
    /// Its flow threads, pooled.
    pub(crate) thread: Option<ThreadShares>,
    /// Core that the threads were observed on most, with its fraction of the samples.
    pub(crate) core: Option<(u32, f64)>,
    /// The card that carried the data.
    pub(crate) nic: Option<&'a Nic>,
    /// The data went over the loopback interface.
    pub(crate) over_loopback: bool,
    /// Packets that its interface dropped or found damaged.
    pub(crate) lost_packets: u64,
    /// Driver counters of its interfaces that rose while the flow ran.
    pub(crate) driver_counters: BTreeMap<&'a str, BTreeMap<&'a str, u64>>,
    /// TCP counters of its host while the flow ran.
    pub(crate) counters: BTreeMap<&'a str, u64>,
    /// Time of its cores over all intervals.
    pub(crate) cores: Vec<CoreCounters>,
    /// Other processes that used its cores.
    pub(crate) load: Option<Load>,
    /// CPU time withheld by a quota.
    pub(crate) throttling: Option<CpuThrottling>,
}

impl Part<'_> {
    /// Name of the end's host.
    pub(crate) fn name(&self) -> &str {
        &self.host.name
    }

    /// A counter that may not have moved.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    fn shares_of(&self, core: u32, of: impl Fn(&CoreCounters) -> u64) -> Option<f64> {
        let core = self.cores.iter().find(|counters| counters.core == core)?;
        let busy = core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns + core.steal_ns;
        let all = busy + core.idle_ns;
        (all > 0).then(|| of(core) as f64 / all as f64)
    }

    /// Share of a core's time that is not idle.
    pub(crate) fn core_busy(&self, core: u32) -> Option<f64> {
        self.shares_of(core, |core| {
            core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns + core.steal_ns
        })
    }

    /// Share of a core's time that the hypervisor took.
    pub(crate) fn core_stolen(&self, core: u32) -> Option<f64> {
        self.shares_of(core, |core| core.steal_ns)
    }

    /// Share of the time that the flow's threads had work, 0 without samples.
    pub(crate) fn runnable(&self) -> f64 {
        self.thread.map_or(0.0, ThreadShares::runnable)
    }

    /// Share of a core's time in softirqs and interrupts.
    pub(crate) fn core_softirq(&self, core: u32) -> Option<f64> {
        self.shares_of(core, |core| core.softirq_ns + core.irq_ns)
    }
}

/// Summary of the intervals of one end.
pub(super) fn part<'a>(role: Role, end: End, evidence: &'a Evidence, used: &[&'a Interval]) -> Part<'a> {
    let host = match end {
        End::Client => &evidence.client,
        End::Server => &evidence.server,
    };
    let sends = role == Role::Sender;
    let sides = || used.iter().map(|interval| of_end(interval, end));
    let mut counters = BTreeMap::new();
    let mut cores = BTreeMap::<u32, CoreCounters>::new();
    let mut bytes = BTreeMap::<&str, u64>::new();
    let mut lost = BTreeMap::<&str, u64>::new();
    let mut drivers = BTreeMap::<&str, BTreeMap<&str, u64>>::new();
    for side in sides() {
        for (name, count) in &side.tcp_counters {
            let sum: &mut u64 = counters.entry(name.as_str()).or_default();
            *sum = sum.saturating_add(*count);
        }
        for core in &side.cores {
            let sum = cores
                .entry(core.core)
                .or_insert_with(|| CoreCounters { core: core.core, ..Default::default() });
            for (sum, value) in [
                (&mut sum.user_ns, core.user_ns),
                (&mut sum.system_ns, core.system_ns),
                (&mut sum.softirq_ns, core.softirq_ns),
                (&mut sum.irq_ns, core.irq_ns),
                (&mut sum.steal_ns, core.steal_ns),
                (&mut sum.idle_ns, core.idle_ns),
                (&mut sum.softnet_dropped_count, core.softnet_dropped_count),
            ] {
                // A third of the range is left for sums of these.
                *sum = sum.saturating_add(value).min(u64::MAX / 8);
            }
        }
        for driver in &side.driver_counters {
            let sums = drivers.entry(driver.interface.as_str()).or_default();
            for (name, count) in &driver.counters {
                let sum = sums.entry(name.as_str()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        for interface in &side.interfaces {
            let (moved, faults) = if sends {
                (interface.send_bytes, interface.send_error_count)
            } else {
                (
                    interface.receive_bytes,
                    interface.receive_error_count.saturating_add(interface.receive_drop_count),
                )
            };
            let sum = bytes.entry(&interface.name).or_default();
            *sum = sum.saturating_add(moved);
            let sum = lost.entry(&interface.name).or_default();
            *sum = sum.saturating_add(faults);
        }
    }
    let interface = bytes.into_iter().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
    let interface = interface.map(|(name, _)| name);
    let time = |flow: &FlowInterval| if sends { flow.sender_time } else { flow.receiver_time };
    let seen = |flow: &FlowInterval| if sends { flow.sender_core } else { flow.receiver_core };
    let mut thread = ThreadShares::of(sides().flat_map(|side| {
        side.flows.iter().map(move |flow| (time(flow), side.end_ns.saturating_sub(side.start_ns)))
    }));
    if thread.is_none() {
        thread = summed_threads(sides());
    }
    Part {
        role,
        end,
        host,
        thread,
        core: most(sides().flat_map(|side| side.flows.iter().map(seen))),
        nic: hosts::nic(host, interface),
        over_loopback: interface == Some("lo"),
        lost_packets: interface.and_then(|name| lost.get(name)).copied().unwrap_or(0),
        driver_counters: drivers,
        counters,
        cores: cores.into_values().collect(),
        load: None,
        throttling: load::throttling(sides()),
    }
}

/// Kernels without `CONFIG_SCHED_INFO` have the CPU time of threads only.
fn summed_threads<'a>(sides: impl Iterator<Item = &'a SideInterval>) -> Option<ThreadShares> {
    let (mut run, mut all) = (0.0, 0.0);
    for side in sides {
        run += side.thread_cpu_ns as f64;
        all += side.end_ns.saturating_sub(side.start_ns) as f64 * side.flows.len() as f64;
    }
    (all > 0.0 && run > 0.0).then(|| ThreadShares { run: (run / all).min(1.0), wait: 0.0, user: 0.0 })
}

/// The most frequent value, with its fraction of all.
pub(super) fn most(values: impl Iterator<Item = Option<u32>>) -> Option<(u32, f64)> {
    let (mut counts, mut all) = (BTreeMap::<u32, u32>::new(), 0u32);
    for value in values.flatten() {
        *counts.entry(value).or_default() += 1;
        all += 1;
    }
    let (value, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    Some((value, f64::from(count) / f64::from(all)))
}
