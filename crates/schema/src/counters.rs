//! Counters of a host while a flow runs: per core and per interface.

use std::collections::BTreeMap;

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

/// One reading of a host's counters (monotonic, since boot).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostCounters {
    /// One entry per online core, ascending.
    pub cores: Vec<CoreCounters>,
    /// One entry per interface of the namespace.
    pub interfaces: Vec<InterfaceCounters>,
    /// `TcpExt` of `/proc/net/netstat`, by its names, zeros left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tcp: BTreeMap<String, u64>,
    /// Names of the sources that could not be read, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// Counters of one core. In a sample these are differences over the interval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreCounters {
    /// Core number as the kernel counts.
    pub core: u32,
    /// User time (`/proc/stat`).
    pub user_ns: u64,
    /// System time.
    pub system_ns: u64,
    /// Software interrupt time.
    pub softirq_ns: u64,
    /// Hardware interrupt time.
    pub irq_ns: u64,
    /// Idle and I/O wait time.
    pub idle_ns: u64,
    /// Time taken by the hypervisor while the core was ready to run.
    #[serde(default)]
    pub steal_ns: u64,
    /// NET_RX softirqs (`/proc/softirqs`).
    pub net_rx_count: u64,
    /// Device interrupts (`/proc/interrupts`, numbered rows only).
    pub interrupt_count: u64,
    /// Packets processed (`/proc/net/softnet_stat` column 1).
    pub softnet_processed_count: u64,
    /// Packets dropped because the backlog was full (column 2).
    pub softnet_dropped_count: u64,
    /// Rounds ended by budget or time (column 3).
    pub softnet_squeezed_count: u64,
}

/// CPU time that the processes of a host used, read from `/proc/PID/stat`
/// about once a second.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessLoad {
    /// Time that the figures cover: since the scan before this one.
    pub elapsed_ns: u64,
    /// The busiest processes, at most eight, each with a hundredth of a core or more.
    pub processes: Vec<ProcessTime>,
    /// CPU time of all other processes together.
    pub remaining_run_ns: u64,
}

/// One process and its CPU time, all its threads together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessTime {
    /// Process number, as the agent's PID namespace counts.
    pub pid: u32,
    /// Its name (`comm`).
    pub name: String,
    /// Relation to the flow.
    pub kind: ProcessKind,
    /// CPU time, user and system, in steps of a clock tick.
    pub run_ns: u64,
    /// Core that its first thread was last seen on.
    pub core: u32,
}

/// Relation of a process to the measured flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// The agent that runs the flow, or the program that started it.
    Agent,
    /// A kernel thread that processes packets (`ksoftirqd`, threaded NAPI).
    PacketProcessing,
    /// A lab's process, which carries the packets of its delay lines.
    PathEmulation,
    /// A process that yields to the flow: policy `SCHED_IDLE`, or nice 15 and more.
    Background,
    /// Any other process.
    Other,
}

/// CPU time withheld by the quota of a control group over an interval (`cpu.stat`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CpuThrottling {
    /// Control group that has the quota, from the root of its hierarchy.
    pub group: String,
    /// Quota in thousandths of a core.
    pub quota_millicores: u64,
    /// Enforcement periods (`nr_periods`).
    pub period_count: u64,
    /// Periods in which the group was throttled (`nr_throttled`).
    pub throttled_count: u64,
    /// Time throttled, all cores together (`throttled_usec`, version 1 `throttled_time`).
    pub throttled_ns: u64,
}

/// Counters of one interface (`/proc/net/dev`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterfaceCounters {
    /// Interface name.
    pub name: String,
    /// Bytes received.
    pub receive_bytes: u64,
    /// Packets received.
    pub receive_packet_count: u64,
    /// Receive errors.
    pub receive_error_count: u64,
    /// Receive drops.
    pub receive_drop_count: u64,
    /// Bytes sent.
    pub send_bytes: u64,
    /// Packets sent.
    pub send_packet_count: u64,
    /// Send errors.
    pub send_error_count: u64,
    /// Send drops.
    pub send_drop_count: u64,
}

/// Counters of an interface's driver (`ethtool -S`), and its pause frames as `ethtool -I -a` names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverCounters {
    /// Interface name.
    pub interface: String,
    /// Drops, errors and pause frames by the driver's names.
    pub counters: BTreeMap<String, u64>,
}

impl DriverCounters {
    /// Counters that rose since `earlier`, by how much. One that is new counts from zero.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |name: &String| earlier.counters.get(name).copied().unwrap_or(0);
        let risen = self.counters.iter().map(|(name, now)| (name.clone(), now.saturating_sub(before(name))));
        Self {
            interface: self.interface.clone(),
            counters: risen.filter(|(_, change)| *change > 0).collect(),
        }
    }
}

impl CpuThrottling {
    /// Difference since `earlier`; all of it when that was another group.
    pub fn since(&self, earlier: Option<&Self>) -> Self {
        let before = earlier.filter(|earlier| earlier.group == self.group);
        let less = |of: fn(&Self) -> u64| of(self).saturating_sub(before.map_or(0, of));
        Self {
            group: self.group.clone(),
            quota_millicores: self.quota_millicores,
            period_count: less(|throttling| throttling.period_count),
            throttled_count: less(|throttling| throttling.throttled_count),
            throttled_ns: less(|throttling| throttling.throttled_ns),
        }
    }
}

impl HostCounters {
    /// Difference since `earlier`. A core or interface that appeared in
    /// between counts from zero; one that vanished is left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let cores = self
            .cores
            .iter()
            .map(|now| {
                let place = earlier.cores.binary_search_by_key(&now.core, |before| before.core);
                let before = place.ok().and_then(|place| earlier.cores.get(place));
                before.map_or_else(|| now.clone(), |before| now.since(before))
            })
            .collect();
        let interfaces = self
            .interfaces
            .iter()
            .map(|now| match earlier.interfaces.iter().find(|before| before.name == now.name) {
                Some(before) => now.since(before),
                None => now.clone(),
            })
            .collect();
        let before = |name: &String| earlier.tcp.get(name).copied().unwrap_or(0);
        let tcp = self
            .tcp
            .iter()
            .map(|(name, now)| (name.clone(), now.saturating_sub(before(name))))
            .filter(|(_, change)| *change > 0)
            .collect();
        Self { cores, interfaces, tcp, missing: self.missing.clone() }
    }
}

/// Field-wise saturating difference: a counter that was reset reads as zero.
macro_rules! difference {
    ($now:ident, $before:ident, { $($kept:ident),* }, { $($field:ident),* }) => {
        Self { $($kept: $now.$kept.clone(),)* $($field: $now.$field.saturating_sub($before.$field),)* }
    };
}

impl CoreCounters {
    /// Difference since `before` on the same core.
    pub fn since(&self, before: &Self) -> Self {
        difference!(self, before, { core }, {
            user_ns, system_ns, softirq_ns, irq_ns, idle_ns, steal_ns, net_rx_count, interrupt_count,
            softnet_processed_count, softnet_dropped_count, softnet_squeezed_count
        })
    }
}

impl InterfaceCounters {
    /// Difference since `before` on the same interface.
    pub fn since(&self, before: &Self) -> Self {
        difference!(self, before, { name }, {
            receive_bytes, receive_packet_count, receive_error_count, receive_drop_count,
            send_bytes, send_packet_count, send_error_count, send_drop_count
        })
    }
}
