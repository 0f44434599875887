//! Facts of an interface that rules need beyond the host's report.

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_schema::host::Nic;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// Interface name.
    pub name: String,
    /// Whether it is hardware (has a PCI address).
    pub is_device: bool,
    /// Whether it is up.
    pub is_up: bool,
    /// Link speed.
    pub speed_bps: Option<u64>,
    /// MTU.
    pub mtu_bytes: Option<u32>,
    /// Length of the transmit queue.
    pub queue_packets: Option<u64>,
    /// Kind of the root qdisc: `fq`, `mq`.
    pub qdisc: Option<String>,
    /// Number of receive queues.
    pub receive_queue_count: u32,
    /// Number of queues with software steering (`rps_cpus`).
    pub steered_queue_count: usize,
    /// Cores of software steering.
    pub steering_cores: Vec<u32>,
    /// Sum of `rps_flow_cnt` of the receive queues.
    pub flow_entries: Option<u64>,
    /// Offloads by their ethtool name.
    pub offloads: std::collections::BTreeMap<String, bool>,
    /// Whether it is a port of a bridge.
    pub is_bridge_port: bool,
    /// IP over InfiniBand mode: `connected` or `datagram`.
    pub infiniband_mode: Option<String>,
}

impl Interface {
    pub(super) fn read(root: &HostRoot, nic: &Nic, routes: Option<&mut RouteSocket>) -> Self {
        let folder = format!("sys/class/net/{}", nic.name);
        let line =
            |file: &str| root.read(&format!("{folder}/{file}")).ok().map(|text| text.trim().to_owned());
        let flow_entries = (0..nic.receive_queue_count)
            .map(|queue| line(&format!("queues/rx-{queue}/rps_flow_cnt"))?.parse::<u64>().ok())
            .sum::<Option<u64>>()
            .filter(|_| nic.receive_queue_count > 0);
        let mut steering_cores: Vec<u32> = nic.receive_steering.values().flatten().copied().collect();
        steering_cores.sort_unstable();
        steering_cores.dedup();
        Self {
            name: nic.name.clone(),
            is_device: nic.pci_address.is_some(),
            is_up: nic.operational_state.as_deref() == Some("up"),
            speed_bps: nic.speed_bps,
            mtu_bytes: nic.mtu_bytes,
            queue_packets: line("tx_queue_len").and_then(|text| text.parse().ok()),
            qdisc: routes.and_then(|routes| routes.root_discipline(&nic.name).ok().flatten()),
            receive_queue_count: nic.receive_queue_count,
            steered_queue_count: nic.receive_steering.len(),
            steering_cores,
            flow_entries,
            offloads: nic.offloads.clone(),
            is_bridge_port: root.exists(&format!("{folder}/brport")),
            infiniband_mode: line("mode").filter(|mode| matches!(mode.as_str(), "connected" | "datagram")),
        }
    }
}
