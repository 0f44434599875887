//! Network interfaces: sysfs attributes (Documentation/ABI/testing/sysfs-class-net),
//! driver state, steering, and the interrupts of their queues.

use std::collections::BTreeSet;

use clearstream_schema::host::{Interrupt, Nic, NumaNode, PciDevice};

use crate::{
    attribute::AttributeError,
    drivers::{DriverState, Drivers},
    interrupt,
    missing::Missing,
    parse::{ParseError, cpuset, pci, stat},
    pci::DEVICES,
    root::HostRoot,
    topology,
};

const NET: &str = "sys/class/net";

/// Other parts of the report that interfaces are joined with.
pub(crate) struct NicContext<'a> {
    pub(crate) nodes: &'a [NumaNode],
    pub(crate) pci_devices: &'a [PciDevice],
    pub(crate) interrupts: &'a mut [Interrupt],
}

/// Reads all interfaces of the namespace, by name.
pub(crate) fn read(root: &HostRoot, context: &mut NicContext<'_>, missing: &mut Missing) -> Vec<Nic> {
    let mut drivers = root
        .drivers()
        .map_err(|reason| {
            missing.note("rings, channels, offloads and RSS of the interfaces", "ethtool netlink", reason)
        })
        .ok();
    names(root, missing).into_iter().map(|name| nic(root, name, context, drivers.as_mut(), missing)).collect()
}

/// Interfaces that both `/sys` and the network namespace list. A `/sys` mounted in another namespace shows
/// that namespace's interfaces: those are skipped, with an entry in `missing`.
fn names(root: &HostRoot, missing: &mut Missing) -> BTreeSet<String> {
    let listed = missing.keep("network interfaces", root.list(NET).map_err(AttributeError::from));
    let listed: BTreeSet<String> = listed
        .unwrap_or_default()
        .into_iter()
        // The class folder also contains files such as `bonding_masters`.
        .filter(|name| root.is_directory(&format!("{NET}/{name}")))
        .collect();
    let path = match root.exists("proc/thread-self/net/dev") {
        true => "proc/thread-self/net/dev",
        false => "proc/net/dev",
    };
    let Some(counted) = missing.keep_if_present("network interfaces", root.parse(path, stat::interfaces))
    else {
        return listed;
    };
    let counted: BTreeSet<String> = counted.into_iter().map(|interface| interface.name).collect();
    for name in counted.difference(&listed) {
        missing.note(
            format!("nic {name}"),
            format!("/{NET}"),
            "not in /sys, which was mounted in another network namespace",
        );
    }
    for name in listed.difference(&counted) {
        missing.note(format!("nic {name}"), format!("/{path}"), "not in this network namespace");
    }
    listed.intersection(&counted).cloned().collect()
}

fn nic(
    root: &HostRoot,
    name: String,
    context: &mut NicContext<'_>,
    drivers: Option<&mut Drivers>,
    missing: &mut Missing,
) -> Nic {
    let folder = format!("{NET}/{name}");
    let target = root.link_target(&folder).unwrap_or_default();
    let pci_address = target.split('/').rfind(|part| pci::is_address(part)).map(str::to_owned);
    let mut nic = Nic { pci_address, ..Nic::default() };
    nic.driver = missing
        .keep_if_present(format!("nic {name} driver"), root.link_name(&format!("{folder}/device/driver")));
    nic.node = node(root, &folder, nic.pci_address.as_deref(), context.pci_devices, &name, missing);
    if let Some(node) = nic.node {
        nic.distances = topology::distances_to(context.nodes, node);
        nic.hops = topology::hops(context.nodes, &nic.distances);
    }
    let state =
        missing.keep_if_present(format!("nic {name} state"), root.line(&format!("{folder}/operstate")));
    nic.operational_state = state;
    nic.speed_bps = speed_bps(root, &folder, &name, missing);
    nic.mtu_bytes = missing.keep(format!("nic {name} mtu"), root.number(&format!("{folder}/mtu")));
    queues(root, &folder, &name, &mut nic, missing);
    if let Some(drivers) = drivers {
        let state = drivers.query(&name, root.number(&format!("{folder}/ifindex")).ok());
        root.record_driver_state(&name, state.as_ref());
        apply_driver_state(state, &name, &mut nic, missing);
    }
    let device = interrupt::Device {
        interface: &name,
        pci_address: nic.pci_address.as_deref(),
        virtio: target
            .split('/')
            .rfind(|part| part.strip_prefix("virtio").is_some_and(|number| number.parse::<u32>().is_ok())),
        vectors: vectors(root, nic.pci_address.as_deref()),
    };
    nic.interrupts = interrupt::assign(context.interrupts, &device);
    nic.name = name;
    nic
}

/// The NUMA node reported by the device; for interfaces on top of a PCI device (virtio) that of the PCI
/// device.
fn node(
    root: &HostRoot,
    folder: &str,
    pci_address: Option<&str>,
    pci_devices: &[PciDevice],
    name: &str,
    missing: &mut Missing,
) -> Option<u32> {
    let own = root.known_number(&format!("{folder}/device/numa_node"));
    let own = missing.keep_if_present(format!("nic {name} node"), own).flatten();
    own.or_else(|| pci_devices.iter().find(|device| Some(device.address.as_str()) == pci_address)?.node)
}

/// Link speed. Reading it fails with EINVAL while the link is down and is -1 for devices without one: neither
/// is an error.
fn speed_bps(root: &HostRoot, folder: &str, name: &str, missing: &mut Missing) -> Option<u64> {
    let speed = root.parse(&format!("{folder}/speed"), |text| {
        text.trim().parse::<i64>().map_err(|_| ParseError::new("a speed in Mb/s", text.trim()))
    });
    let megabits = match speed {
        Err(AttributeError::Read(_)) => None,
        other => missing.keep(format!("nic {name} speed"), other),
    };
    // SPEED_UNKNOWN is -1, printed unsigned by old kernels.
    u64::try_from(megabits?)
        .ok()
        .filter(|&speed| speed > 0 && speed < u64::from(u32::MAX))
        .map(|mbps| mbps * 1_000_000)
}

fn queues(root: &HostRoot, folder: &str, name: &str, nic: &mut Nic, missing: &mut Missing) {
    let entries = root.list(&format!("{folder}/queues")).map_err(AttributeError::from);
    let entries = missing.keep_if_present(format!("nic {name} queues"), entries).unwrap_or_default();
    for entry in &entries {
        let Some((direction, Ok(queue))) =
            entry.split_once('-').map(|(d, number)| (d, number.parse::<u32>()))
        else {
            continue;
        };
        let (mask, steering) = match direction {
            "rx" => {
                nic.receive_queue_count += 1;
                ("rps_cpus", &mut nic.receive_steering)
            }
            "tx" => {
                nic.transmit_queue_count += 1;
                ("xps_cpus", &mut nic.transmit_steering)
            }
            _ => continue,
        };
        let path = format!("{folder}/queues/{entry}/{mask}");
        // xps_cpus of an interface with a single queue fails with ENOENT.
        let cores = root.parse(&path, cpuset::mask);
        if let Some(cores) = missing.keep_if_present(format!("nic {name} {entry} {mask}"), cores)
            && !cores.is_empty()
        {
            steering.insert(queue, cores);
        }
    }
}

/// Applies the driver state. Unavailable values of a real device are listed in `missing`; a virtual interface
/// has no rings to report.
fn apply_driver_state(state: Option<DriverState>, name: &str, nic: &mut Nic, missing: &mut Missing) {
    let Some(state) = state else {
        missing.note(format!("nic {name} driver state"), "ethtool.json", "the capture contains none for it");
        return;
    };
    nic.speed_bps = nic.speed_bps.or(state.link_speed_bps);
    nic.receive_ring = state.receive_ring;
    nic.transmit_ring = state.transmit_ring;
    nic.combined_channels = state.combined_channels;
    nic.receive_channels = state.receive_channels;
    nic.transmit_channels = state.transmit_channels;
    nic.offloads = state.features;
    nic.rss = state.rss;
    nic.driver_information = state.driver_information;
    nic.coalescing = state.coalescing;
    nic.receive_napi = state.receive_napi;
    nic.root_qdisc = state.root_qdisc;
    if nic.driver.is_some() {
        for (what, reason) in state.unavailable {
            missing.note(format!("nic {name} {what}"), "ethtool netlink", reason);
        }
    }
}

/// Interrupt vectors of the PCI device of the interface.
fn vectors(root: &HostRoot, pci_address: Option<&str>) -> Vec<u32> {
    let Some(address) = pci_address else { return Vec::new() };
    let names = root.list(&format!("{DEVICES}/{address}/msi_irqs")).unwrap_or_default();
    names.iter().filter_map(|name| name.parse().ok()).collect()
}
