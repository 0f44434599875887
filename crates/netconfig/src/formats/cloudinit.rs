//! Version 1 of cloud-init's network configuration: `config:`, a list of devices with their subnets (cloud-init's
//! `network_state.py`). What it writes from it are files of netplan, NetworkManager, the network scripts or ifupdown.

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry, files::Loader},
};

use crate::{
    backend::{Backend, ReadDocument},
    read::{
        gathering::{Gathering, place},
        values,
        yaml::{Node, Yaml},
    },
};

#[derive(Debug)]
pub(crate) struct CloudInit;

impl Backend for CloudInit {
    fn name(&self) -> &'static str {
        "cloud-init"
    }

    fn document(&self, document: &Yaml) -> Option<ReadDocument> {
        let network = document.get("network").unwrap_or(document);
        let is_list = matches!(network.get("config")?.node, Node::List(_));
        let is_first = network.get("version").and_then(Yaml::text).is_none_or(|version| version == "1");
        (is_list && is_first).then_some(read)
    }
}

fn read(file: &str, document: &Yaml, gathering: &mut Gathering) {
    // As the network scripts have it: which of the tools gets the files is the distribution's choice.
    gathering.loader = Loader::NetworkScripts;
    let network = document.get("network").unwrap_or(document);
    for item in network.get("config").map(Yaml::items).unwrap_or_default() {
        match text(item, "type").unwrap_or_default() {
            "nameserver" => gathering.understood(),
            "route" => route(file, None, item, gathering),
            "physical" | "bond" | "bridge" | "vlan" | "infiniband" | "loopback" => {
                device(file, item, gathering);
            }
            other => {
                let reason = format!("\"{other}\" is no type of cloud-init's version 1");
                gathering.unread(file, item.line, &item.summary(), reason);
            }
        }
    }
}

fn text<'y>(item: &'y Yaml, key: &str) -> Option<&'y str> {
    item.get(key).and_then(Yaml::text).filter(|text| !text.is_empty())
}

fn device(file: &str, item: &Yaml, gathering: &mut Gathering) {
    let Some(name) = text(item, "name") else {
        return gathering.unread(file, item.line, &item.summary(), "a device without \"name\"");
    };
    if name == "lo" {
        return gathering.understood();
    }
    gathering.interface(name);
    if let Some(address) = text(item, "mac_address").and_then(values::link_address) {
        gathering.by_link_address.insert(address.clone(), name.to_owned());
        gathering.interface(name).link_address = Some(address);
    }
    if let Some(mtu) = item.get("mtu") {
        match mtu.text().and_then(values::number) {
            Some(bytes) => gathering.mtu(name, bytes, place(file, mtu.line)),
            None => gathering.unread(file, mtu.line, &mtu.summary(), "no MTU in bytes"),
        }
    }
    let mut is_dynamic = [false, text(item, "accept-ra").and_then(values::truth) == Some(true)];
    for subnet in item.get("subnets").map(Yaml::items).unwrap_or_default() {
        match text(subnet, "type").unwrap_or("static") {
            "dhcp" | "dhcp4" => is_dynamic[0] = true,
            "dhcp6" | "ipv6_dhcpv6-stateful" | "ipv6_dhcpv6-stateless" | "ipv6_slaac" => is_dynamic[1] = true,
            "static" | "static6" => address(file, name, subnet, gathering),
            "manual" => {}
            other => {
                let reason = format!("\"{other}\" is no type of a subnet");
                gathering.unread(file, subnet.line, &subnet.summary(), reason);
                is_dynamic = [true, true];
            }
        }
        for item in subnet.get("routes").map(Yaml::items).unwrap_or_default() {
            route(file, Some(name), item, gathering);
        }
    }
    for (ipv6, is_dynamic) in [false, true].into_iter().zip(is_dynamic) {
        if is_dynamic {
            gathering.dynamic(name, ipv6);
        } else {
            gathering.facts().complete.insert((name.to_owned(), ipv6));
        }
    }
}

/// An address of a subnet, and its gateway, which is a default route.
fn address(file: &str, name: &str, subnet: &Yaml, gathering: &mut Gathering) {
    match prefix(subnet, &["address", "ip_address"]) {
        Some(prefix) => gathering.address(name, prefix, place(file, subnet.line)),
        None => {
            gathering.unread(file, subnet.line, &subnet.summary(), "a static subnet without an address");
            gathering.dynamic(name, false);
        }
    }
    let Some(gateway) = subnet.get("gateway") else { return };
    let Some(via) = gateway.text().and_then(values::address) else {
        return gathering.unread(file, gateway.line, &gateway.summary(), "no address of a gateway");
    };
    let metric = match text(subnet, "metric") {
        Some(metric) => values::number(metric).unwrap_or_else(|| {
            gathering.unread(file, gateway.line, metric, "no metric");
            0
        }),
        None => 0,
    };
    let hop = Hop { via, interface: Some(name.to_owned()), weight: 1, place: None };
    let line = gateway.line;
    gathering.route(entry(
        file,
        values::everything(via.is_ipv6()),
        metric,
        RouteAction::Gateways(vec![hop]),
        line,
    ));
}

fn route(file: &str, device: Option<&str>, item: &Yaml, gathering: &mut Gathering) {
    let via = text(item, "gateway").or_else(|| text(item, "via")).and_then(values::address);
    let is_default = |key: &&&str| text(item, key) == Some("default");
    let destination = match (["network", "destination", "to"].iter().find(is_default), via) {
        (Some(_), Some(via)) => Some(values::everything(via.is_ipv6())),
        _ => prefix(item, &["network", "destination", "to"]),
    };
    let metric = match text(item, "metric") {
        Some(metric) => values::number(metric),
        None => Some(0),
    };
    let interface = device.map(str::to_owned);
    let action = match (via, interface) {
        (Some(via), interface) => {
            Some(RouteAction::Gateways(vec![Hop { via, interface, weight: 1, place: None }]))
        }
        (None, Some(interface)) if item.get("gateway").is_none() => Some(RouteAction::Link { interface }),
        _ => None,
    };
    match (destination, metric, action) {
        (Some(destination), Some(metric), Some(action)) => {
            gathering.route(entry(file, destination, metric, action, item.line));
        }
        (destination, ..) => {
            let reason = "no route with \"destination\", \"gateway\" and a number as \"metric\"";
            gathering.unread(file, item.line, &item.summary(), reason);
            gathering.unknown_route(Some(MAIN_TABLE), destination, reason);
        }
    }
}

/// An address with its length: behind the slash, as `prefix` or `netmask`, else 24 or 64 (`_normalize_net_keys`).
fn prefix(item: &Yaml, keys: &[&str]) -> Option<Prefix> {
    let written = keys.iter().find_map(|key| text(item, key))?;
    if written.contains('/') {
        return values::prefix(written);
    }
    let address = values::address(written)?;
    let length = match (text(item, "prefix"), text(item, "netmask")) {
        (Some(length), _) => length.to_owned(),
        (None, Some(mask)) => mask.to_owned(),
        (None, None) => if address.is_ipv4() { "24" } else { "64" }.to_owned(),
    };
    values::prefix(&format!("{address}/{}", mask_of_ipv6(&length).unwrap_or(length)))
}

/// The length of a netmask that is written as an address of IPv6.
fn mask_of_ipv6(mask: &str) -> Option<String> {
    let bits = u128::from(mask.parse::<std::net::Ipv6Addr>().ok()?);
    (bits.count_ones() == bits.leading_ones()).then(|| bits.leading_ones().to_string())
}

fn entry(file: &str, destination: Prefix, metric: u32, action: RouteAction, line: u32) -> RouteEntry {
    RouteEntry {
        destination,
        table: MAIN_TABLE,
        metric,
        action,
        source: None,
        mtu: None,
        protocol: 0,
        place: Some(place(file, line)),
    }
}
