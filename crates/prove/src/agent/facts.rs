//! Routing-related state of this host.

use std::collections::BTreeMap;

use clearstream_host::HostRoot;
use clearstream_netlink::RouteSocket;
use clearstream_schema::control::{Failure, FailureKind};

use super::super::calls::{HostRouteFacts, InterfaceFacts};

/// Sysctls of the whole namespace.
const SYSCTLS: [&str; 8] = [
    "net.ipv4.ip_forward",
    "net.ipv4.fib_multipath_hash_policy",
    "net.ipv4.fib_multipath_hash_fields",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.fib_multipath_hash_policy",
    "net.ipv6.fib_multipath_hash_fields",
    "net.ipv4.fib_multipath_hash_seed",
];

/// Reads the state; missing sysctls are omitted.
pub(super) fn read(root: &HostRoot) -> Result<HostRouteFacts, Failure> {
    let refused = |error| Failure::new(FailureKind::Unsupported, format!("read interfaces: {error}"));
    let mut socket = RouteSocket::open().map_err(refused)?;
    let addresses = socket.all_addresses().map_err(refused)?;
    let mut sysctls = BTreeMap::new();
    let mut take = |name: String, path: String| {
        if let Ok(text) = root.read(&path) {
            sysctls.insert(name, text.trim().to_owned());
        }
    };
    for name in SYSCTLS {
        take(name.to_owned(), format!("proc/sys/{}", name.replace('.', "/")));
    }
    let mut interfaces = Vec::new();
    for interface in socket.interfaces().map_err(refused)? {
        let name = interface.name;
        for key in ["rp_filter", "forwarding"] {
            // A dot inside a name is written as `/` (sysctl(8)).
            let dotted = format!("net.ipv4.conf.{}.{key}", name.replace('.', "/"));
            take(dotted, format!("proc/sys/net/ipv4/conf/{name}/{key}"));
        }
        let own = addresses.iter().filter(|address| address.interface == name);
        interfaces.push(InterfaceFacts {
            addresses: own.map(|address| address.prefix.address).collect(),
            mtu_bytes: interface.mtu_bytes,
            speed_bps: speed_bps(root, &name),
            name,
        });
    }
    let boot_id = root.read("proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_owned());
    Ok(HostRouteFacts { interfaces, sysctls, boot_id })
}

/// Link rate from the driver. A veth pair always reports 10 Gb/s
/// (`veth_get_link_ksettings`), so only devices with hardware count.
fn speed_bps(root: &HostRoot, name: &str) -> Option<u64> {
    let folder = format!("sys/class/net/{name}");
    if !root.exists(&format!("{folder}/device")) {
        return None;
    }
    let megabits: i64 = root.read(&format!("{folder}/speed")).ok()?.trim().parse().ok()?;
    // -1 while the link is down, or all ones where it is unknown.
    u64::try_from(megabits)
        .ok()
        .filter(|speed| (1..u64::from(u32::MAX)).contains(speed))
        .map(|m| m * 1_000_000)
}
