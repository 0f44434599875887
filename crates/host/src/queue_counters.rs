//! Packets and bytes of each queue of a NIC, out of the driver's counters (`ethtool -S`): there is no common
//! format below Linux 6.10, only a few patterns of names.

use clearstream_netlink::ethtool::Ethtool;
use clearstream_schema::live::QueueCounters;

use crate::root::HostRoot;

/// Interfaces that are read: a driver may query its firmware for its counters.
const INTERFACES_MAX: usize = 8;

/// Reads the counters of queues in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct QueueCounterReader {
    ethtool: Option<Ethtool>,
    /// Interfaces whose driver counts per queue.
    interfaces: Vec<String>,
}

impl QueueCounterReader {
    /// Finds the devices whose driver counts per queue; none on a host that is not running.
    pub fn open(root: &HostRoot) -> Self {
        let mut reader = Self {
            ethtool: if root.is_live() { Ethtool::open().ok() } else { None },
            interfaces: root.list("sys/class/net").unwrap_or_default(),
        };
        reader.interfaces.retain(|name| root.exists(&format!("sys/class/net/{name}/device")));
        reader.interfaces.truncate(INTERFACES_MAX);
        let counted: Vec<String> = reader.read().into_iter().map(|queue| queue.interface).collect();
        reader.interfaces.retain(|name| counted.contains(name));
        reader
    }

    /// Counters since the driver was loaded.
    pub fn read(&mut self) -> Vec<QueueCounters> {
        let Some(ethtool) = &mut self.ethtool else { return Vec::new() };
        let mut queues = Vec::new();
        for interface in &self.interfaces {
            queues_of(interface, &ethtool.statistics(interface).unwrap_or_default(), &mut queues);
        }
        queues
    }
}

/// Differences since an earlier reading; a queue that is new counts from zero.
pub fn since(now: &[QueueCounters], earlier: &[QueueCounters]) -> Vec<QueueCounters> {
    let difference = |queue: &QueueCounters| {
        let same = |one: &&QueueCounters| {
            (&one.interface, one.queue, one.sends) == (&queue.interface, queue.queue, queue.sends)
        };
        let before = earlier.iter().find(same);
        QueueCounters {
            bytes: queue.bytes.saturating_sub(before.map_or(0, |before| before.bytes)),
            packet_count: queue.packet_count.saturating_sub(before.map_or(0, |before| before.packet_count)),
            ..queue.clone()
        }
    };
    now.iter().map(difference).collect()
}

/// What a counter of a queue counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counted {
    Bytes,
    Packets,
}

fn queues_of(interface: &str, counters: &[(String, u64)], queues: &mut Vec<QueueCounters>) {
    let mut found: Vec<QueueCounters> = Vec::new();
    for (name, value) in counters {
        let Some((sends, queue, counted)) = queue_counter(name) else { continue };
        let set = |counters: &mut QueueCounters| match counted {
            Counted::Bytes => counters.bytes = *value,
            Counted::Packets => counters.packet_count = *value,
        };
        match found.iter_mut().find(|one| (one.queue, one.sends) == (queue, sends)) {
            Some(known) => set(known),
            None => {
                let interface = interface.to_owned();
                let mut new = QueueCounters { interface, queue, sends, bytes: 0, packet_count: 0 };
                set(&mut new);
                found.push(new);
            }
        }
    }
    found.sort_by_key(|queue| (queue.sends, queue.queue));
    queues.append(&mut found);
}

/// `rx_queue_3_bytes` (ixgbe, virtio_net), `rx-3.bytes` (i40e, ice), `rx3_bytes` (mlx5), `rx_bytes[3]` (gve),
/// `queue_3_rx_bytes` (ena): direction, number, and what it counts.
fn queue_counter(name: &str) -> Option<(bool, u32, Counted)> {
    let lower = name.to_ascii_lowercase();
    let parts: Vec<&str> =
        lower.split(|at: char| !at.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).collect();
    let (direction, number, counted) = match parts[..] {
        ["queue", number, direction, counted] | [direction, "queue", number, counted] => {
            (direction, number, counted)
        }
        [direction, counted, number] if number.parse::<u32>().is_ok() => (direction, number, counted),
        [direction, number, counted] => (direction, number, counted),
        [joined, counted] => {
            let (direction, number) = joined.split_at_checked(2)?;
            (direction, number, counted)
        }
        _ => return None,
    };
    let sends = match direction {
        "rx" => false,
        "tx" => true,
        _ => return None,
    };
    let counted = match counted {
        "bytes" => Counted::Bytes,
        "packets" | "cnt" | "pkts" => Counted::Packets,
        _ => return None,
    };
    Some((sends, number.parse().ok()?, counted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names out of the sources of these drivers (Linux 6.6).
    #[test]
    fn names_of_drivers_are_read() {
        let found = [
            ("rx_queue_3_bytes", (false, 3, Counted::Bytes)), // ixgbe, igb, virtio_net
            ("tx_queue_0_packets", (true, 0, Counted::Packets)),
            ("rx-12.packets", (false, 12, Counted::Packets)), // i40e
            ("tx-1.bytes", (true, 1, Counted::Bytes)),
            ("rx3_packets", (false, 3, Counted::Packets)), // mlx5
            ("tx10_bytes", (true, 10, Counted::Bytes)),
            ("queue_2_rx_cnt", (false, 2, Counted::Packets)), // ena
            ("queue_2_tx_bytes", (true, 2, Counted::Bytes)),
            ("rx_packets[4]", (false, 4, Counted::Packets)), // gve
        ];
        for (name, expected) in found {
            assert_eq!(queue_counter(name), Some(expected), "{name}");
        }
        for name in [
            "rx_packets",
            "rx_bytes_phy",
            "rx3_lro_packets",
            "tx_prio3_bytes",
            "rx_queue_0_drops",
            "rx_kicks",
        ] {
            assert_eq!(queue_counter(name), None, "{name}");
        }
    }

    #[test]
    fn counters_of_a_queue_become_one_row() {
        let counters =
            [("tx0_bytes", 9), ("rx1_packets", 3), ("rx1_bytes", 500), ("rx0_packets", 1), ("rx_bytes", 7)];
        let counters: Vec<(String, u64)> = counters.map(|(name, value)| (name.to_owned(), value)).into();
        let mut queues = Vec::new();
        queues_of("eth0", &counters, &mut queues);
        let rows: Vec<_> =
            queues.iter().map(|one| (one.sends, one.queue, one.bytes, one.packet_count)).collect();
        assert_eq!(rows, [(false, 0, 0, 1), (false, 1, 500, 3), (true, 0, 9, 0)]);
        let mut later = queues.clone();
        later[1].bytes = 800;
        assert_eq!(since(&later, &queues)[1].bytes, 300);
    }
}
