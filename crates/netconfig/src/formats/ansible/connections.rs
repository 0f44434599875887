//! `network_connections` of the network role
//! (<https://github.com/linux-system-roles/network>).

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        Hop, Located, MAIN_TABLE, RouteAction, RouteEntry, RuleAction, RuleEntry, RuleSelector, files::Loader,
    },
};

use crate::{
    formats::networkmanager::default_metric,
    read::{
        gathering::{Gathering, place},
        ip_arguments,
        script::infiniband_mode,
        values,
        yaml::Yaml,
    },
};

pub(crate) fn read(file: &str, list: &Yaml, gathering: &mut Gathering) {
    for item in list.items() {
        let text = |key: &str| item.get(key).and_then(Yaml::text);
        if text("persistent_state") == Some("absent") {
            continue;
        }
        let Some(name) = text("interface_name").or_else(|| text("name")) else {
            gathering.unread(
                file,
                item.line,
                &item.summary(),
                "a connection without interface_name and name",
            );
            continue;
        };
        let loader = gathering.loader;
        connection(file, name, item, gathering);
        gathering.loader = loader;
    }
}

fn connection(file: &str, interface: &str, item: &Yaml, gathering: &mut Gathering) {
    gathering.loader = Loader::NetworkManager;
    gathering.interface(interface);
    let kind = item.get("type").and_then(Yaml::text).unwrap_or("ethernet");
    if let Some(mtu) = item.get("mtu") {
        match mtu.text().and_then(values::number) {
            Some(bytes) => gathering.mtu(interface, bytes, place(file, mtu.line)),
            None => gathering.unread(file, mtu.line, &mtu.summary(), "no MTU in bytes"),
        }
    }
    let mode = item.get("infiniband").and_then(|infiniband| infiniband.get("transport_mode"));
    if let Some((mode, value)) = mode.and_then(|mode| Some((mode, infiniband_mode(mode.text()?)?))) {
        gathering.interface(interface).infiniband_mode =
            Some(Located { value, place: Some(place(file, mode.line)) });
    }
    let Some(ip) = item.get("ip") else {
        gathering.dynamic(interface, false);
        return gathering.dynamic(interface, true);
    };
    let text = |key: &str| ip.get(key).and_then(Yaml::text);
    let truth = |key: &str| text(key).and_then(values::truth);
    let has = |ipv6: bool| {
        let addresses = ip.get("address").map(Yaml::items).unwrap_or_default();
        addresses.iter().any(|item| item.text().is_some_and(|text| text.contains(':') == ipv6))
    };
    // Without addresses of a family it is asked for (the role's documentation, `dhcp4`, `auto6`).
    for (ipv6, is_asked) in
        [(false, truth("dhcp4").unwrap_or(!has(false))), (true, truth("auto6").unwrap_or(true))]
    {
        if is_asked {
            gathering.dynamic(interface, ipv6);
        } else {
            gathering.facts().complete.insert((interface.to_owned(), ipv6));
        }
    }
    let assigned = gathering.metric_of_manager(default_metric(kind));
    let metric = |ipv6: bool| {
        let explicit = text(if ipv6 { "route_metric6" } else { "route_metric4" }).and_then(values::number);
        explicit.unwrap_or(assigned)
    };
    for (key, value) in ip.entries() {
        match key.text().unwrap_or_default() {
            "address" => {
                for item in value.items() {
                    match item.text().and_then(values::prefix) {
                        Some(prefix) => gathering.address(interface, prefix, place(file, item.line)),
                        None => gathering.unread(
                            file,
                            item.line,
                            &item.summary(),
                            "no address with prefix length",
                        ),
                    }
                }
            }
            "gateway4" | "gateway6" if truth("auto_gateway") == Some(false) => {}
            name @ ("gateway4" | "gateway6") => match value.text().and_then(values::address) {
                Some(via) => {
                    let action = by_gateway(interface, via);
                    let destination = values::everything(via.is_ipv6());
                    let metric = metric(via.is_ipv6());
                    let plain = plain(file, interface, destination, value.line);
                    gathering.route(RouteEntry { action, metric, ..plain });
                }
                None => {
                    let reason = "no address of a gateway";
                    gathering.unread(file, value.line, &value.summary(), reason);
                    let destination = values::everything(name == "gateway6");
                    gathering.unknown_route(Some(MAIN_TABLE), Some(destination), reason);
                }
            },
            "route" => {
                for item in value.items() {
                    if let Err(reason) = route(file, interface, &metric, item, gathering) {
                        gathering.unknown_route(None, None, &reason);
                        gathering.unread(file, item.line, &item.summary(), reason);
                    }
                }
            }
            "routing_rule" => {
                for item in value.items() {
                    match rule(file, item, gathering) {
                        Ok(rule) => gathering.rule(rule),
                        Err(reason) => {
                            gathering.unread(file, item.line, &item.summary(), reason);
                            let text = |key: &str| item.get(key).and_then(Yaml::text);
                            let (table, priority) =
                                (text("table"), text("priority").and_then(values::number));
                            let is_ipv6 = text("family") == Some("ipv6");
                            let place = place(file, item.line);
                            gathering.open_rule(place, is_ipv6, &item.summary(), table, priority);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

fn by_gateway(interface: &str, via: std::net::IpAddr) -> RouteAction {
    RouteAction::Gateways(vec![Hop { via, interface: Some(interface.to_owned()), weight: 1, place: None }])
}

fn plain(file: &str, interface: &str, destination: Prefix, line: u32) -> RouteEntry {
    RouteEntry {
        destination,
        table: MAIN_TABLE,
        metric: 0,
        action: RouteAction::Link { interface: interface.to_owned() },
        source: None,
        mtu: None,
        protocol: 0,
        place: Some(place(file, line)),
    }
}

fn route(
    file: &str,
    interface: &str,
    metric: &impl Fn(bool) -> u32,
    item: &Yaml,
    gathering: &mut Gathering,
) -> Result<(), String> {
    let text = |key: &str| item.get(key).and_then(Yaml::text);
    let network = text("network").ok_or("a route without network")?;
    let host = if network.contains(':') { "128" } else { "32" };
    let destination = values::prefix(&format!("{network}/{}", text("prefix").unwrap_or(host)))
        .ok_or("network and prefix make no destination")?;
    let mut route = plain(file, interface, destination, item.line);
    route.metric = metric(destination.address.is_ipv6());
    for (key, value) in item.entries() {
        let scalar = value.text().unwrap_or_default();
        match key.text().unwrap_or_default() {
            "network" | "prefix" => {}
            "gateway" => {
                let via = values::address(scalar).ok_or("\"gateway\" is no address")?;
                route.action = by_gateway(interface, via);
            }
            "metric" if scalar == "-1" => {}
            "metric" => route.metric = values::number(scalar).ok_or("\"metric\" is no number")?,
            "table" => {
                route.table = gathering.names.table(scalar).ok_or("\"table\" is no number or known name")?
            }
            "src" => route.source = Some(values::address(scalar).ok_or("\"src\" is no address")?),
            "type" => match scalar {
                "unicast" => {}
                "throw" => return Err(values::unsupported_type(scalar)),
                kind => {
                    route.action = RouteAction::of_type(kind).ok_or_else(|| values::unsupported_type(kind))?
                }
            },
            other => return Err(format!("\"{other}\" is no key of a route")),
        }
    }
    gathering.route(route);
    Ok(())
}

fn rule(file: &str, item: &Yaml, gathering: &Gathering) -> Result<RuleEntry, String> {
    let mut selector = RuleSelector::default();
    let (mut ipv6, mut priority, mut table, mut other) = (false, None, MAIN_TABLE, None);
    let mut mark: Option<u32> = None;
    let mut mask = u32::MAX;
    for (key, value) in item.entries() {
        let scalar = value.text().unwrap_or_default();
        match key.text().unwrap_or_default() {
            name @ ("from" | "to") => {
                let prefix = values::prefix(scalar).ok_or("\"from\" or \"to\" is no prefix")?;
                ipv6 = prefix.address.is_ipv6();
                let slot = if name == "from" { &mut selector.from } else { &mut selector.to };
                *slot = (prefix.length > 0).then_some(prefix);
            }
            "family" => ipv6 = scalar == "ipv6",
            "priority" => priority = Some(values::number(scalar).ok_or("\"priority\" is no number")?),
            "table" => table = gathering.names.table(scalar).ok_or("\"table\" is no number or known name")?,
            "fwmark" => mark = Some(values::number(scalar).ok_or("\"fwmark\" is no number")?),
            "fwmask" => mask = values::number(scalar).ok_or("\"fwmask\" is no number")?,
            "iif" => selector.input = Some(scalar.to_owned()),
            "oif" => selector.output = Some(scalar.to_owned()),
            "invert" => selector.inverted = values::truth(scalar) == Some(true),
            "action" if scalar == "to-table" => {}
            "action" => other = Some(scalar.to_owned()),
            name @ ("ipproto" | "sport" | "dport" | "tos") => {
                selector.other.extend(ip_arguments::rarer(name, scalar));
            }
            "suppress_prefixlength" => {
                selector.other.extend(["suppress_prefixlength".to_owned(), scalar.to_owned()]);
            }
            "uid" => selector.other.extend(["uidrange".to_owned(), scalar.to_owned()]),
            name => return Err(format!("\"{name}\" is no key of a rule")),
        }
    }
    selector.mark = mark.map(|mark| (mark, mask));
    let action = other.map_or(RuleAction::Table(table), RuleAction::Other);
    Ok(RuleEntry { ipv6, priority, selector, action, protocol: 0, place: Some(place(file, item.line)) })
}
