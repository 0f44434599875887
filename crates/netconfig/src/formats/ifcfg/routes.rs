//! Files of the network scripts (sysconfig.txt of initscripts). Rules need a
//! script or NetworkManager's dispatcher package behind them; RHEL 9 has
//! neither.

use std::fmt::Write;

use clearstream_schema::{
    fabric::InfinibandMode,
    routing::{HostRouting, RoutingInterface},
};

use crate::routes::{
    RenderedFile, ip_arguments,
    split::{Grammar, Order, Owners, routes_of, rules_of},
};

pub(super) const GRAMMAR: Grammar = Grammar {
    name: "network scripts (ifcfg)",
    route: |_| None,
    rule: |_| None,
    nexthop: |_| Some("nexthop objects"),
    keeps_order: Order { routes: true, groups: true },
    owners: Owners { routes: true, rules: true },
};

pub(super) fn files(routing: &HostRouting) -> Vec<RenderedFile> {
    routing.interfaces.iter().flat_map(|interface| of_interface(routing, interface)).collect()
}

fn of_interface(routing: &HostRouting, interface: &RoutingInterface) -> Vec<RenderedFile> {
    let name = &interface.name;
    let folder = "etc/sysconfig/network-scripts";
    let mut files = vec![RenderedFile::text(format!("{folder}/ifcfg-{name}"), ifcfg(interface))];
    for (suffix, ipv6) in [("", false), ("6", true)] {
        let routes: Vec<String> = routes_of(routing, name)
            .filter(|route| route.destination.address.is_ipv6() == ipv6)
            .map(ip_arguments::route)
            .collect();
        let rules: Vec<String> =
            rules_of(routing, name).filter(|rule| rule.ipv6 == ipv6).map(ip_arguments::rule).collect();
        for (kind, lines) in [("route", routes), ("rule", rules)] {
            if !lines.is_empty() {
                let path = format!("{folder}/{kind}{suffix}-{name}");
                files.push(RenderedFile::text(path, lines.join("\n") + "\n"));
            }
        }
    }
    files
}

fn ifcfg(interface: &RoutingInterface) -> String {
    let name = &interface.name;
    let kind = if interface.infiniband_mode.is_some() { "InfiniBand" } else { "Ethernet" };
    let mut text = format!("DEVICE={name}\nTYPE={kind}\nONBOOT=yes\nBOOTPROTO=none\n");
    if let Some(mtu) = &interface.mtu {
        let _ = writeln!(text, "MTU={}", mtu.value);
    }
    match interface.infiniband_mode.as_ref().map(|mode| mode.value) {
        Some(InfinibandMode::Connected) => text.push_str("CONNECTED_MODE=yes\n"),
        Some(InfinibandMode::Datagram) => text.push_str("CONNECTED_MODE=no\n"),
        None => {}
    }
    let (six, four): (Vec<_>, Vec<_>) =
        interface.addresses.iter().map(|address| address.value).partition(|prefix| prefix.address.is_ipv6());
    for (number, prefix) in four.iter().enumerate() {
        let _ = writeln!(text, "IPADDR{number}={}\nPREFIX{number}={}", prefix.address, prefix.length);
    }
    if let Some((first, others)) = six.split_first() {
        let _ = writeln!(text, "IPV6INIT=yes\nIPV6_AUTOCONF=no\nIPV6ADDR={first}");
        if !others.is_empty() {
            let list = others.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
            let _ = writeln!(text, "IPV6ADDR_SECONDARIES=\"{list}\"");
        }
    }
    text
}
