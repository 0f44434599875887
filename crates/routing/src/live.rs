//! What the running host routes by, in the network namespace of the calling
//! thread.

use clearstream_host::HostRoot;
use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{HostRouting, Located},
};

/// Sysctls of a host that decide where packets go (ip-sysctl.rst).
const OF_HOST: [&str; 10] = [
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv4.fib_multipath_hash_policy",
    "net.ipv4.fib_multipath_hash_fields",
    "net.ipv4.fib_multipath_hash_seed",
    "net.ipv4.fib_multipath_use_neigh",
    "net.ipv6.fib_multipath_hash_policy",
    "net.ipv6.fib_multipath_hash_fields",
    "net.ipv4.tcp_fwmark_accept",
    "net.ipv4.fwmark_reflect",
];

/// Sysctls of an interface (`net.ipv4.conf.NAME.`), of all and of new ones.
const OF_INTERFACE: [&str; 9] = [
    "proxy_arp",
    "rp_filter",
    "forwarding",
    "src_valid_mark",
    "send_redirects",
    "accept_redirects",
    "arp_ignore",
    "arp_announce",
    "ignore_routes_with_linkdown",
];

/// The running host: interfaces with addresses, MTU and mode, nexthop objects,
/// routes and rules without the kernel's own, and the sysctls around them.
/// Connection marks are not read. Fails when the kernel refuses a list.
pub fn live(root: &HostRoot) -> Result<HostRouting, NetlinkError> {
    let mut host = RouteSocket::open()?.host_routing()?;
    complete(root, &mut host);
    Ok(host)
}

/// Adds what files of the kernel report, live or captured: the host's name, modes
/// of interfaces, and the sysctls around its routes.
pub fn complete(root: &HostRoot, host: &mut HostRouting) {
    if let Some(name) = text(root, "proc/sys/kernel/hostname") {
        host.host = name;
    }
    for interface in &mut host.interfaces {
        let mode = text(root, &format!("sys/class/net/{}/mode", interface.name));
        interface.infiniband_mode = mode.and_then(|mode| match mode.as_str() {
            "connected" => Some(Located::from(InfinibandMode::Connected)),
            "datagram" => Some(Located::from(InfinibandMode::Datagram)),
            _ => None,
        });
    }
    let names = host.interfaces.iter().map(|interface| interface.name.replace('.', "/"));
    let mut keys: Vec<String> = OF_HOST.iter().map(|key| (*key).to_owned()).collect();
    for name in names.chain(["all".to_owned(), "default".to_owned()]) {
        keys.extend(OF_INTERFACE.iter().map(|key| format!("net.ipv4.conf.{name}.{key}")));
        keys.extend(["forwarding", "proxy_ndp"].map(|key| format!("net.ipv6.conf.{name}.{key}")));
    }
    add_sysctls(root, host, keys.iter().map(String::as_str));
}

/// Reads further sysctls into the document; those that the host lacks stay out.
pub fn add_sysctls<'a>(root: &HostRoot, host: &mut HostRouting, keys: impl Iterator<Item = &'a str>) {
    for key in keys {
        if let Some(value) = text(root, &path_of(key)) {
            host.sysctls.insert(key.to_owned(), Located::from(value));
        }
    }
}

/// The file of a sysctl: dots part it, a slash in it is a dot (sysctl(8)).
fn path_of(key: &str) -> String {
    let swapped: String = key
        .chars()
        .map(|letter| match letter {
            '.' => '/',
            '/' => '.',
            other => other,
        })
        .collect();
    format!("proc/sys/{swapped}")
}

fn text(root: &HostRoot, path: &str) -> Option<String> {
    let text = root.read(path).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}
