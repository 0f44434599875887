//! Device interrupts: allowed and effective affinity, and the interface queue of each
//! (Documentation/core-api/irq/irq-affinity.rst).

use clearstream_schema::host::{Interrupt, InterruptQueue, QueueDirection};

use crate::{
    missing::Missing,
    parse::{cpuset, table},
    root::HostRoot,
};

/// Reads the numbered rows of `/proc/interrupts` with their affinities.
pub(crate) fn read(root: &HostRoot, missing: &mut Missing) -> Vec<Interrupt> {
    let rows =
        missing.keep("interrupts", root.parse("proc/interrupts", table::interrupts)).unwrap_or_default();
    rows.into_iter()
        .map(|row| {
            let folder = format!("proc/irq/{}", row.interrupt);
            let part = |what| format!("interrupt {} {what}", row.interrupt);
            let mut cores = |name: &str, what| {
                // Per-core vectors (timers) have no such files.
                let list = root.parse(&format!("{folder}/{name}"), cpuset::list);
                missing.keep_if_present(part(what), list).unwrap_or_default()
            };
            let allowed_cores = cores("smp_affinity_list", "allowed cores");
            let effective_cores = cores("effective_affinity_list", "effective cores");
            let node = missing.keep_if_present(part("node"), root.known_number(&format!("{folder}/node")));
            Interrupt {
                interrupt: row.interrupt,
                action: row.action,
                counts: row.counts.into_iter().collect(),
                allowed_cores,
                effective_cores,
                node: node.flatten(),
                queue: None,
            }
        })
        .collect()
}

/// Identifiers of an interface used to find its interrupts.
#[derive(Debug, Default)]
pub(crate) struct Device<'a> {
    /// Interface name.
    pub(crate) interface: &'a str,
    /// PCI address.
    pub(crate) pci_address: Option<&'a str>,
    /// `virtio3`, for a virtio interface.
    pub(crate) virtio: Option<&'a str>,
    /// Vectors that `msi_irqs` lists; empty when it does not.
    pub(crate) vectors: Vec<u32>,
}

/// Names the queue in each interrupt of this device and returns the numbers of these interrupts.
pub(crate) fn assign(interrupts: &mut [Interrupt], device: &Device<'_>) -> Vec<u32> {
    let mut found = Vec::new();
    for interrupt in &mut *interrupts {
        let listed = device.vectors.is_empty() || device.vectors.contains(&interrupt.interrupt);
        let role = interrupt.action.split(", ").find_map(|action| queue_of(action, device));
        if let Some((direction, queue)) = role.filter(|_| listed) {
            let interface = device.interface.to_owned();
            interrupt.queue = Some(InterruptQueue { interface, direction, queue });
            found.push(interrupt.interrupt);
        }
    }
    // A device with a single vector names it like the interface.
    if found.is_empty() {
        let alone = interrupts.iter_mut().filter(|interrupt| {
            interrupt.action.split(", ").any(|action| action == device.interface)
                && (device.vectors.is_empty() || device.vectors.contains(&interrupt.interrupt))
        });
        for interrupt in alone.take(1) {
            let interface = device.interface.to_owned();
            interrupt.queue = Some(InterruptQueue { interface, direction: QueueDirection::Both, queue: 0 });
            found.push(interrupt.interrupt);
        }
    }
    found
}

/// Direction and queue number from an action name, by the naming conventions of the drivers:
///
/// | driver | action |
/// |---|---|
/// | mlx5 | `mlx5_comp3@pci:0000:3b:00.0` |
/// | mlx4 | `mlx4-3@0000:3b:00.0` |
/// | igb, ixgbe | `eth1-TxRx-3` |
/// | i40e, ice | `i40e-eth1-TxRx-3`, `ice-eth1-TxRx-3` |
/// | bnx2x, qede | `eth1-fp-3` |
/// | ena | `eth1-Tx-Rx-3` |
/// | bnxt | `bnxt_en-eth1-3`, `eth1-TxRx-3` |
/// | xen | `eth1-q3-rx`, `eth1-q3-tx` |
/// | virtio | `virtio3-input.3`, `virtio3-output.3` |
/// | r8169, e1000e | `eth1`, `eth1-rx-0` |
///
/// Vectors of flow director, link state and firmware are not queues.
fn queue_of(action: &str, device: &Device<'_>) -> Option<(QueueDirection, u32)> {
    if let Some(rest) = device.virtio.and_then(|virtio| action.strip_prefix(virtio)) {
        let (direction, number) = match rest.strip_prefix("-input.") {
            Some(number) => (QueueDirection::Receive, number),
            None => (QueueDirection::Transmit, rest.strip_prefix("-output.")?),
        };
        return Some((direction, number.parse().ok()?));
    }
    if let Some((name, address)) = action.split_once('@') {
        let of_device = device.pci_address.is_some_and(|pci| address.trim_start_matches("pci:") == pci);
        let number = name.strip_prefix("mlx5_comp").or_else(|| name.strip_prefix("mlx4-"))?;
        return of_device.then(|| number.parse().ok()).flatten().map(|queue| (QueueDirection::Both, queue));
    }
    let rest = after_interface(action, device.interface)?;
    let tokens: Vec<&str> = rest.split(['-', '.', '_']).filter(|token| !token.is_empty()).collect();
    if tokens.iter().any(|token| matches!(*token, "fdir" | "async" | "misc" | "mgmnt"))
        || action.contains("fdir")
    {
        return None;
    }
    let number = |token: &&str| token.trim_start_matches(['q', 'Q']).parse::<u32>().ok();
    let queue = tokens.iter().rev().find_map(number)?;
    let contains = |wanted: &str| tokens.iter().any(|token| token.eq_ignore_ascii_case(wanted));
    let direction = match (contains("rx") || contains("input"), contains("tx") || contains("output")) {
        (true, false) => QueueDirection::Receive,
        (false, true) => QueueDirection::Transmit,
        _ => QueueDirection::Both,
    };
    Some((direction, queue))
}

/// The rest of an action after the interface name, matched as a whole: `eth1` is not in `eth10-TxRx-0`, nor
/// `eth0` in `eth0.7-rx-0`.
fn after_interface<'a>(action: &'a str, interface: &str) -> Option<&'a str> {
    action.match_indices(interface).find_map(|(at, _)| {
        let before = action[..at].chars().next_back();
        let after = &action[at + interface.len()..];
        let starts = before.is_none_or(|c| c == '-');
        let ends = after.starts_with('-') || after.starts_with("_");
        (starts && ends).then_some(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device<'a>(interface: &'a str) -> Device<'a> {
        Device { interface, pci_address: Some("0000:3b:00.0"), virtio: Some("virtio3"), ..Device::default() }
    }

    #[test]
    fn knows_the_action_names_of_drivers() {
        use QueueDirection::{Both, Receive, Transmit};
        let cases = [
            ("mlx5_comp3@pci:0000:3b:00.0", Some((Both, 3))),
            ("mlx5_async0@pci:0000:3b:00.0", None),
            ("mlx5_comp3@pci:0000:af:00.0", None),
            ("mlx4-12@0000:3b:00.0", Some((Both, 12))),
            ("mlx4-async@pci:0000:3b:00.0", None),
            ("eth1-TxRx-7", Some((Both, 7))),
            ("ice-eth1-TxRx-7", Some((Both, 7))),
            ("i40e-eth1-TxRx-63", Some((Both, 63))),
            ("i40e-eth1-fdir-TxRx-0", None),
            ("eth1:fdir-TxRx-0", None),
            ("eth1-fp-2", Some((Both, 2))),
            ("eth1-Tx-Rx-4", Some((Both, 4))),
            ("ena-mgmnt@pci:0000:3b:00.0", None),
            ("eth1-q5-rx", Some((Receive, 5))),
            ("eth1-tx-0", Some((Transmit, 0))),
            ("virtio3-input.1", Some((Receive, 1))),
            ("virtio3-output.1", Some((Transmit, 1))),
            ("virtio3-config", None),
            ("virtio30-input.1", None),
            ("eth10-TxRx-7", None),
            ("veth1-TxRx-7", None),
            ("eth1", None),
        ];
        for (action, expected) in cases {
            assert_eq!(queue_of(action, &device("eth1")), expected, "{action}");
        }
        assert_eq!(queue_of("eth1.7-rx-3", &device("eth1.7")), Some((Receive, 3)));
        assert_eq!(queue_of("eth1.7-rx-3", &device("eth1")), None);
    }

    fn interrupt(number: u32, action: &str) -> Interrupt {
        Interrupt {
            interrupt: number,
            action: action.to_owned(),
            counts: Default::default(),
            allowed_cores: Vec::new(),
            effective_cores: Vec::new(),
            node: None,
            queue: None,
        }
    }

    #[test]
    fn a_single_vector_is_the_queue_only_when_there_is_no_other() {
        let mut several = [interrupt(80, "eth1"), interrupt(81, "eth1-TxRx-0"), interrupt(82, "eth1-TxRx-1")];
        assert_eq!(assign(&mut several, &device("eth1")), [81, 82]);
        assert_eq!(several[0].queue, None);
        let mut alone = [interrupt(19, "ehci_hcd:usb1, eth1")];
        assert_eq!(assign(&mut alone, &device("eth1")), [19]);
    }

    #[test]
    fn the_vector_list_of_the_device_decides_between_equal_names() {
        let mut renamed = [interrupt(81, "eth1-TxRx-0"), interrupt(91, "eth1-TxRx-0")];
        let device = Device { vectors: vec![90, 91], ..device("eth1") };
        assert_eq!(assign(&mut renamed, &device), [91]);
    }
}
