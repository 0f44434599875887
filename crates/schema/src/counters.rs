//! What a host counts while a flow runs: per core and per interface.

use std::collections::BTreeMap;

use schemars::JsonSchema;
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

impl HostCounters {
    /// What happened since `earlier`. A core or interface that appeared in
    /// between counts from zero; one that vanished is left out.
    pub fn since(&self, earlier: &Self) -> Self {
        let cores = self
            .cores
            .iter()
            .map(|now| match earlier.cores.binary_search_by_key(&now.core, |before| before.core) {
                Ok(place) => now.since(&earlier.cores[place]),
                Err(_) => now.clone(),
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
    /// What happened since `before` on the same core.
    pub fn since(&self, before: &Self) -> Self {
        difference!(self, before, { core }, {
            user_ns, system_ns, softirq_ns, irq_ns, idle_ns, steal_ns, net_rx_count, interrupt_count,
            softnet_processed_count, softnet_dropped_count, softnet_squeezed_count
        })
    }
}

impl InterfaceCounters {
    /// What happened since `before` on the same interface.
    pub fn since(&self, before: &Self) -> Self {
        difference!(self, before, { name }, {
            receive_bytes, receive_packet_count, receive_error_count, receive_drop_count,
            send_bytes, send_packet_count, send_error_count, send_drop_count
        })
    }
}
