//! What rules need to know of an interface beyond the host's report.

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_schema::host::Nic;

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Hardware, not made by software.
    pub is_device: bool,
    /// Carries packets now.
    pub is_up: bool,
    /// Link speed.
    pub speed_bps: Option<u64>,
    /// MTU.
    pub mtu_bytes: Option<u32>,
    /// Length of the transmit queue.
    pub queue_packets: Option<u64>,
    /// Kind of the root qdisc, `fq`, `mq`.
    pub qdisc: Option<String>,
    /// Receive queues.
    pub receive_queue_count: u32,
    /// Queues with software steering (`rps_cpus`).
    pub steered_queue_count: usize,
    /// Cores that software steering uses.
    pub steering_cores: Vec<u32>,
    /// `rps_flow_cnt` of the receive queues, added up.
    pub flow_entries: Option<u64>,
    /// Offloads by ethtool's name.
    pub offloads: std::collections::BTreeMap<String, bool>,
    /// It is a port of a bridge.
    pub is_bridge_port: bool,
    /// Mode of IP over InfiniBand, `connected` or `datagram`.
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
