//! PCI devices relevant to a path: network and NVMe controllers and the bridges above them
//! (Documentation/ABI/testing/sysfs-bus-pci).

use std::collections::BTreeSet;

use clearstream_schema::host::{PciDevice, PcieLink};

use crate::{
    missing::Missing,
    parse::{cpuset, pci},
    pcie,
    root::HostRoot,
};

/// Directory in which the kernel lists all PCI devices.
pub(crate) const DEVICES: &str = "sys/bus/pci/devices";

/// Class codes, the top bytes of `class`: network controllers and NVMe.
const CLASSES: [&str; 2] = ["0x02", "0x0108"];

/// Reads the devices, ascending by address.
pub(crate) fn read(root: &HostRoot, missing: &mut Missing) -> Vec<PciDevice> {
    let addresses = match root.list(DEVICES) {
        Ok(addresses) => addresses,
        // A container or a small virtual machine without PCI.
        Err(error) if error.is_absent() => return Vec::new(),
        Err(error) => {
            missing.note("pci devices", error.path(), error.reason());
            return Vec::new();
        }
    };
    let mut wanted = BTreeSet::new();
    for address in addresses.iter().filter(|address| pci::is_address(address)) {
        let class =
            missing.keep(format!("pci {address} class"), root.line(&format!("{DEVICES}/{address}/class")));
        if class.is_some_and(|class| CLASSES.iter().any(|wanted| class.starts_with(wanted))) {
            wanted.extend(ancestors(root, address));
            wanted.insert(address.clone());
        }
    }
    wanted.into_iter().map(|address| device(root, address, missing)).collect()
}

/// Bridges above a device, outermost first, from its position in the device tree:
/// `../../../devices/pci0000:30/0000:30:00.0/0000:31:00.0`.
fn ancestors(root: &HostRoot, address: &str) -> Vec<String> {
    let target = root.link_target(&format!("{DEVICES}/{address}")).unwrap_or_default();
    target.split('/').filter(|name| pci::is_address(name) && *name != address).map(str::to_owned).collect()
}

fn device(root: &HostRoot, address: String, missing: &mut Missing) -> PciDevice {
    let folder = format!("{DEVICES}/{address}");
    let part = |what: &str| format!("pci {address} {what}");
    let mut hex =
        |name: &str| missing.keep(part(name), root.line(&format!("{folder}/{name}"))).unwrap_or_default();
    let (vendor, device, class) = (hex("vendor"), hex("device"), hex("class"));
    let node =
        missing.keep_if_present(part("node"), root.known_number(&format!("{folder}/numa_node"))).flatten();
    let local_cores = root.parse(&format!("{folder}/local_cpulist"), cpuset::list);
    let local_cores = missing.keep_if_present(part("local cores"), local_cores).unwrap_or_default();
    let link = pcie_link(root, &folder, "current", &part("link"), missing);
    let link_max = pcie_link(root, &folder, "max", &part("maximum link"), missing);
    // Only a trained link has a limit that the payload size affects.
    let control = link.and_then(|_| {
        let bytes = root.read_bytes(&format!("{folder}/config"));
        let read = bytes.map_err(|error| error.reason());
        let parsed = read.and_then(|bytes| pci::device_control(&bytes).map_err(|error| error.to_string()));
        parsed.unwrap_or_else(|reason| {
            missing.note(part("maximum payload size"), format!("/{folder}/config"), reason);
            None
        })
    });
    PciDevice {
        parent: ancestors(root, &address).pop(),
        driver: missing.keep_if_present(part("driver"), root.link_name(&format!("{folder}/driver"))),
        ceiling: link.and_then(|link| pcie::ceiling(link, control.map(|control| control.max_payload_bytes))),
        max_read_request_bytes: control.map(|control| control.max_read_request_bytes),
        address,
        vendor,
        device,
        class,
        node,
        local_cores,
        link,
        link_max,
    }
}

/// The link as trained (`current`) or its maximum (`max`). Devices inside the chipset and conventional PCI
/// devices have no such attributes.
fn pcie_link(
    root: &HostRoot,
    folder: &str,
    which: &str,
    part: &str,
    missing: &mut Missing,
) -> Option<PcieLink> {
    let speed = root.parse(&format!("{folder}/{which}_link_speed"), pci::link_speed);
    let width = root.parse(&format!("{folder}/{which}_link_width"), pci::link_width);
    let speed = missing.keep_if_present(part, speed).flatten()?;
    let lane_count = missing.keep_if_present(part, width).flatten()?;
    Some(PcieLink { gigatransfers_per_second: speed, lane_count })
}
