//! Driver counters (`ethtool -S`) of drops, errors and pause frames between two readings: `/proc/net/dev` has no
//! pause frames, and with many drivers no packets that were dropped for want of receive buffers either.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    time::{Duration, Instant},
};

use clearstream_netlink::ethtool::Ethtool;
use clearstream_schema::counters::{DriverCounters, InterfaceCounters};

use crate::root::HostRoot;

/// Time between two readings: a driver may query its firmware for them, under the routing lock.
const INTERVAL: Duration = Duration::from_secs(1);
/// A reading takes at most this fraction of the time between readings.
const COST_DIVISOR: u32 = 50;
/// Interfaces that are read.
const INTERFACES_MAX: usize = 8;
/// Parts of the names of counters that are read: drivers have hundreds, of packets and octets by queue and size.
const PARTS: &[&str] = &[
    "drop", "discard", "pause", "xoff", "miss", "buf", "overflow", "overrun", "fifo", "nodesc", "no_desc",
    "err", "crc", "fec", "jabber", "symbol", "timeout", "fail",
];

/// Reads driver counters about once a second.
#[derive(Debug)]
pub struct DriverCounterReader {
    ethtool: Option<Ethtool>,
    root: HostRoot,
    last: Option<Reading>,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    cost: Duration,
    interfaces: Vec<DriverCounters>,
}

impl DriverCounterReader {
    /// A reader of the network namespace of the calling thread. It reads nothing of a host that is not running.
    pub fn open(root: &HostRoot) -> Self {
        let ethtool = if root.is_live() { Ethtool::open().ok() } else { None };
        Self { ethtool, root: root.clone(), last: None }
    }

    /// Restarts: what was counted until now is left out. Devices are read before virtual interfaces, and of these
    /// the busiest since they exist.
    pub fn restart(&mut self, interfaces: &[InterfaceCounters]) {
        let mut wanted: Vec<&InterfaceCounters> = interfaces.iter().filter(|one| one.name != "lo").collect();
        wanted.sort_by_cached_key(|one| {
            let is_device = self.root.exists(&format!("sys/class/net/{}/device", one.name));
            (Reverse(is_device), Reverse(one.receive_bytes.saturating_add(one.send_bytes)))
        });
        let names = wanted.into_iter().take(INTERFACES_MAX).map(|one| one.name.clone()).collect();
        self.last = self.read(names);
    }

    /// Counters that rose since the last reading; `None` when that is less than a second ago.
    pub fn poll(&mut self) -> Option<Vec<DriverCounters>> {
        let last = self.last.take()?;
        if last.at.elapsed() < INTERVAL.max(last.cost * COST_DIVISOR) {
            self.last = Some(last);
            return None;
        }
        let now = self.read(last.interfaces.iter().map(|one| one.interface.clone()).collect())?;
        let changes = now.interfaces.iter().zip(&last.interfaces).map(|(now, last)| now.since(last));
        let changes = changes.filter(|change| !change.counters.is_empty()).collect();
        self.last = Some(now);
        Some(changes)
    }

    fn read(&mut self, names: Vec<String>) -> Option<Reading> {
        let ethtool = self.ethtool.as_mut()?;
        let at = Instant::now();
        let mut interfaces = Vec::new();
        for interface in names {
            let counters = counters(ethtool, &interface);
            interfaces.push(DriverCounters { interface, counters });
        }
        Some(Reading { at, cost: at.elapsed(), interfaces })
    }
}

/// The driver's own counters, and pause frames in the kernel's format by the names that ethtool gives them. A driver
/// without any has none, and neither has an interface that went away.
fn counters(ethtool: &mut Ethtool, interface: &str) -> BTreeMap<String, u64> {
    let own = ethtool.statistics(interface).unwrap_or_default();
    let mut counters: BTreeMap<String, u64> = own.into_iter().filter(|(name, _)| is_read(name)).collect();
    let pauses = ethtool.pause_frames(interface).unwrap_or_default();
    for (name, count) in [("tx_pause_frames", pauses.sent_count), ("rx_pause_frames", pauses.received_count)]
    {
        if let Some(count) = count {
            counters.insert(name.to_owned(), count);
        }
    }
    counters
}

fn is_read(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    PARTS.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of mlx5, ixgbe, ena, gve, virtio_net and veth.
    #[test]
    fn drops_errors_and_pauses_are_read_and_traffic_is_not() {
        for name in [
            "rx_out_of_buffer",
            "rx_discards_phy",
            "rx_global_pause",
            "rx_prio3_pause",
            "tx_flow_control_xoff",
            "rx_missed_errors",
            "rx_no_dma_resources_err",
            "alloc_rx_buff_failed",
            "rx_queue_0_drops",
            "bw_in_fifo",
            "rx_crc_errors_phy",
            "rx_fec_uncorrectable",
        ] {
            assert!(is_read(name), "{name}");
        }
        for name in ["rx_packets", "tx_bytes_phy", "rx3_lro_packets", "rx_queue_0_packets", "peer_ifindex"] {
            assert!(!is_read(name), "{name}");
        }
    }

    #[test]
    fn a_reading_waits_for_its_interval_and_a_captured_host_has_none() {
        let mut reader = DriverCounterReader::open(&HostRoot::live());
        reader.restart(&[InterfaceCounters { name: "lo".to_owned(), ..InterfaceCounters::default() }]);
        assert_eq!(reader.poll(), None);
        std::thread::sleep(INTERVAL);
        assert_eq!(reader.poll(), Some(Vec::new()));
        let folder = tempfile::tempdir().unwrap();
        let mut reader = DriverCounterReader::open(&HostRoot::directory(folder.path()));
        reader.restart(&[InterfaceCounters { name: "eth0".to_owned(), ..InterfaceCounters::default() }]);
        std::thread::sleep(INTERVAL);
        assert_eq!(reader.poll(), None);
    }
}
