//! A host for people: a tree of packages, nodes and devices, then tables.

use std::fmt::Write as _;

use clearstream_schema::{
    host::{CoalescingValue, HostReport, Nic, NumaNode, PciDevice, Rss},
    indirection::{Indirection, entry_counts},
};

use super::{
    quantity::{bytes, count, rate},
    table::{cores, or_dash, table},
};

/// The whole description.
pub fn describe(host: &HostReport) -> String {
    let mut text = heading(host);
    text.push_str(&tree(host));
    for (title, body) in [
        ("NUMA distances (10 is local)", distances(host)),
        ("Interfaces", interfaces(host)),
        ("Drivers and receive queues", drivers(host)),
        ("Interrupts of the interfaces", interrupts(host)),
        ("PCIe ceilings", ceilings(host)),
        ("Kernel", kernel(host)),
        ("Limits", limits(host)),
        ("Not available", missing(host)),
    ] {
        if !body.is_empty() {
            let _ = write!(text, "\n{title}\n{}\n", indent(&body));
        }
    }
    text
}

fn heading(host: &HostReport) -> String {
    let online = host.processing_units.iter().filter(|unit| unit.online).count();
    let known = |part: &Option<String>, before: &str| match part {
        Some(part) => format!(", {before}{part}"),
        None => String::new(),
    };
    format!(
        "{}{}, {}, {online} of {} logical CPUs online{}{}\n",
        if host.name.is_empty() { String::new() } else { format!("{}: ", host.name) },
        count(host.packages.len(), "package"),
        count(host.nodes.len(), "NUMA node"),
        host.processing_units.len(),
        known(&host.cpu_model, ""),
        known(&host.kernel.release, "Linux "),
    )
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Packages hold nodes, nodes hold devices. A node without cores, or one that
/// spans packages, stands beside the packages.
fn tree(host: &HostReport) -> String {
    let mut branches: Vec<(String, Vec<&NumaNode>)> = host
        .packages
        .iter()
        .map(|package| {
            let inside = host.nodes.iter().filter(|node| {
                !node.cores.is_empty() && node.cores.iter().all(|core| package.cores.contains(core))
            });
            (format!("package {}: cores {}", package.package, cores(&package.cores)), inside.collect())
        })
        .collect();
    let placed: Vec<u32> =
        branches.iter().flat_map(|(_, nodes)| nodes.iter().map(|node| node.node)).collect();
    for node in host.nodes.iter().filter(|node| !placed.contains(&node.node)) {
        branches.push(("outside the packages".to_owned(), vec![node]));
    }
    let mut text = String::new();
    for (at, (label, nodes)) in branches.iter().enumerate() {
        let last = at + 1 == branches.len();
        let _ = writeln!(text, "{}{label}", if last { "└─ " } else { "├─ " });
        let rail = if last { "   " } else { "│  " };
        for (at, node) in nodes.iter().enumerate() {
            let last = at + 1 == nodes.len();
            let _ = writeln!(text, "{rail}{}{}", if last { "└─ " } else { "├─ " }, node_line(host, node));
            let rail = format!("{rail}{}", if last { "   " } else { "│  " });
            for device in host.pci_devices.iter().filter(|device| device.node == Some(node.node)) {
                let _ = writeln!(text, "{rail}· {}", device_line(host, device));
            }
        }
    }
    let homeless: Vec<_> = host.pci_devices.iter().filter(|device| device.node.is_none()).collect();
    if !homeless.is_empty() {
        let _ = writeln!(text, "devices with unknown NUMA node (firmware reports -1)");
        for device in homeless {
            let _ = writeln!(text, "   · {}", device_line(host, device));
        }
    }
    text
}

fn node_line(host: &HostReport, node: &NumaNode) -> String {
    let caches: Vec<String> = host
        .llc_groups
        .iter()
        .filter(|group| !group.cores.is_empty() && group.cores.iter().all(|core| node.cores.contains(core)))
        .map(|group| format!("L{} {} on {}", group.level, bytes(group.size_bytes), cores(&group.cores)))
        .collect();
    let caches = if caches.is_empty() { String::new() } else { format!("; {}", caches.join(", ")) };
    format!("node {}: cores {}, memory {}{caches}", node.node, cores(&node.cores), bytes(node.memory_bytes))
}

fn device_line(host: &HostReport, device: &PciDevice) -> String {
    let mut parts = vec![device.address.clone(), or_dash(device.driver.clone())];
    let nics = host.nics.iter().filter(|nic| nic.pci_address.as_deref() == Some(&device.address));
    parts.extend(nics.map(|nic| nic.name.clone()));
    let link = device.link.map_or(String::new(), |link| {
        format!(", PCIe {} GT/s x{}", link.gigatransfers_per_second, link.lane_count)
    });
    let most = match (device.link, device.link_max) {
        (Some(now), Some(most)) if now != most => {
            format!(" (at most {} GT/s x{})", most.gigatransfers_per_second, most.lane_count)
        }
        _ => String::new(),
    };
    format!("{}{link}{most}", parts.join(" "))
}

fn distances(host: &HostReport) -> String {
    if host.nodes.len() < 2 {
        return String::new();
    }
    let mut header = vec![">node".to_owned()];
    header.extend(host.nodes.iter().map(|node| format!(">{}", node.node)));
    let rows = host.nodes.iter().map(|node| {
        std::iter::once(node.node.to_string()).chain(node.distances.iter().map(ToString::to_string)).collect()
    });
    table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows.collect())
}

fn interfaces(host: &HostReport) -> String {
    let rows = host.nics.iter().map(|nic| {
        vec![
            nic.name.clone(),
            or_dash(nic.driver.clone()),
            or_dash(nic.operational_state.clone()),
            nic.speed_bps.map_or_else(|| "-".to_owned(), |speed| rate(speed as f64)),
            or_dash(nic.mtu_bytes),
            format!("{}/{}", nic.receive_queue_count, nic.transmit_queue_count),
            nic.receive_ring
                .map_or_else(|| "-".to_owned(), |ring| format!("{} of {}", ring.now_count, ring.max_count)),
            or_dash(nic.node),
            nic.hops.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
            offloads(nic),
        ]
    });
    table(
        &[
            "name",
            "driver",
            "state",
            ">speed",
            ">MTU",
            ">rx/tx queues",
            ">rx ring",
            ">node",
            "hops from nodes",
            "offloads",
        ],
        rows.collect(),
    )
}

/// What `ethtool -i`, `-c` and `-x` print, in short.
fn drivers(host: &HostReport) -> String {
    let rows: Vec<Vec<String>> = host
        .nics
        .iter()
        .filter(|nic| nic.driver_information.is_some() || nic.rss.is_some())
        .map(|nic| {
            let known = nic.driver_information.clone().unwrap_or_default();
            vec![
                nic.name.clone(),
                known.name,
                or_dash(known.version),
                or_dash(known.firmware_version),
                or_dash(known.bus),
                coalescing(nic),
                nic.rss.as_ref().map_or_else(|| "-".to_owned(), receive_table),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["name", "driver", "version", "firmware", "bus", "coalescing", "receive hash and table"], rows)
}

/// Values that are not 0 and switches that are on; the rest is in `--json`.
fn coalescing(nic: &Nic) -> String {
    let set: Vec<String> = nic
        .coalescing
        .iter()
        .filter_map(|(name, value)| match value {
            CoalescingValue::Number(0) | CoalescingValue::Switch(false) => None,
            CoalescingValue::Number(number) => Some(format!("{name} {number}")),
            CoalescingValue::Switch(true) => Some(name.clone()),
        })
        .collect();
    match (nic.coalescing.is_empty(), set.is_empty()) {
        (true, _) => "-".to_owned(),
        (false, true) => "off".to_owned(),
        (false, false) => set.join(" "),
    }
}

/// `toeplitz, equal 4, 128 entries`; of an uneven table the part of each queue.
fn receive_table(rss: &Rss) -> String {
    const SHOWN: usize = 8;
    let function = or_dash(rss.hash_function.clone());
    if rss.indirection.is_empty() {
        return format!("{function}, driver does not expose the indirection table");
    }
    let key = if rss.key.is_some() { "" } else { ", driver does not expose the key" };
    let size = rss.indirection.len();
    let table = match Indirection::of(&rss.indirection) {
        Indirection::Equal(count) => format!("equal {count}"),
        Indirection::Entries(entries) => {
            let counts = entry_counts(&entries);
            let part = |count: usize| count as f64 * 100.0 / size.max(1) as f64;
            let parts: Vec<String> = counts
                .iter()
                .take(SHOWN)
                .map(|(queue, count)| format!("{queue} {:.0} %", part(*count)))
                .collect();
            format!("queue {}{}", parts.join(", "), if counts.len() > SHOWN { ", ..." } else { "" })
        }
    };
    format!("{function}, {table}, {size} entries{key}")
}

/// The offloads that decide bulk rates; the rest is in `--json`.
fn offloads(nic: &Nic) -> String {
    const SHOWN: [(&str, &str); 4] = [
        ("tx-tcp-segmentation", "TSO"),
        ("tx-generic-segmentation", "GSO"),
        ("rx-gro", "GRO"),
        ("rx-lro", "LRO"),
    ];
    let on: Vec<&str> = SHOWN
        .iter()
        .filter(|(name, _)| nic.offloads.get(*name) == Some(&true))
        .map(|(_, short)| *short)
        .collect();
    if nic.offloads.is_empty() { "-".to_owned() } else { on.join(" ") }
}

fn interrupts(host: &HostReport) -> String {
    let rows: Vec<Vec<String>> = host
        .nics
        .iter()
        .flat_map(|nic| nic.interrupts.iter().map(move |number| (nic, *number)))
        .filter_map(|(nic, number)| {
            let interrupt = host.interrupts.iter().find(|interrupt| interrupt.interrupt == number)?;
            let busiest = interrupt.counts.iter().max_by_key(|(_, count)| **count);
            Some(vec![
                nic.name.clone(),
                number.to_string(),
                interrupt.action.clone(),
                cores(&interrupt.allowed_cores),
                cores(&interrupt.effective_cores),
                or_dash(interrupt.node),
                busiest.map_or_else(|| "-".to_owned(), |(core, count)| format!("{core} ({count})")),
            ])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    table(&["interface", ">irq", "action", "allowed", "effective", ">node", "busiest core (count)"], rows)
}

fn ceilings(host: &HostReport) -> String {
    let lines = host.pci_devices.iter().filter_map(|device| {
        let ceiling = device.ceiling.as_ref()?;
        Some(format!(
            "{}: {} raw, {} to {} after protocol overhead\n    {}",
            device.address,
            rate(ceiling.raw_bps),
            rate(ceiling.conservative_bps),
            rate(ceiling.optimistic_bps),
            ceiling.arithmetic,
        ))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn kernel(host: &HostReport) -> String {
    let kernel = &host.kernel;
    let mut lines = vec![
        format!(
            "congestion control: {} (available: {})",
            or_dash(kernel.congestion_control.clone()),
            kernel.congestion_controls.join(" ")
        ),
        format!(
            "default qdisc: {}, page size {}",
            or_dash(kernel.default_qdisc.clone()),
            bytes(kernel.page_bytes)
        ),
    ];
    lines.extend(kernel.sysctls.iter().map(|(name, value)| format!("{name} = {}", value.replace('\t', " "))));
    lines.join("\n")
}

fn limits(host: &HostReport) -> String {
    let limits = &host.limits;
    let mut lines = vec![format!("allowed cores: {}", cores(&limits.allowed_cores))];
    if let Some(quota) = limits.cpu_quota_millicores {
        lines.push(format!("CPU quota: {:.2} cores", quota as f64 / 1000.0));
    }
    if let Some(memory) = limits.memory_limit_bytes {
        lines.push(format!("memory limit: {}", bytes(memory)));
    }
    if limits.own_network_namespace == Some(true) {
        lines.push("runs in a network namespace of its own".to_owned());
    }
    if let Some(container) = &limits.container {
        lines.push(format!("runs in a container: {container}"));
    }
    if limits.virtual_machine == Some(true) {
        lines.push("runs in a virtual machine".to_owned());
    }
    lines.join("\n")
}

fn missing(host: &HostReport) -> String {
    host.missing
        .iter()
        .map(|part| format!("{}: {} ({})", part.part, part.reason, part.source))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use clearstream_schema::host::MissingPart;

    use super::*;

    #[test]
    fn what_firmware_and_drivers_do_not_report_is_named() {
        let rss = |key: Option<&str>, indirection: Vec<u32>| Rss {
            hash_function: Some("toeplitz".to_owned()),
            key: key.map(str::to_owned),
            indirection,
            ..Rss::default()
        };
        assert_eq!(receive_table(&rss(Some("6d5a"), vec![0, 1, 0, 1])), "toeplitz, equal 2, 4 entries");
        let without_key = receive_table(&rss(None, vec![0, 1, 0, 1]));
        assert!(without_key.ends_with("driver does not expose the key"), "{without_key}");
        let without_table = receive_table(&rss(Some("6d5a"), Vec::new()));
        assert!(without_table.ends_with("driver does not expose the indirection table"), "{without_table}");

        let device: PciDevice = clearstream_schema::json::from_value(serde_json::json!({
            "address": "0000:3b:00.0", "vendor": "0x15b3", "device": "0x1017", "class": "0x020000",
            "local_cores": [],
        }))
        .expect("a device");
        let missing = MissingPart {
            part: "distances".to_owned(),
            source: "sys/devices/system/node".to_owned(),
            reason: "no such folder".to_owned(),
        };
        let host = HostReport { pci_devices: vec![device], missing: vec![missing], ..HostReport::default() };
        let text = describe(&host);
        assert!(text.contains("unknown NUMA node (firmware reports -1)\n   · 0000:3b:00.0"), "{text}");
        assert!(text.contains("Not available\n  distances: no such folder"), "{text}");
    }
}
