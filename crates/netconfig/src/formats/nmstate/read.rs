//! Nmstate's desired state (<https://nmstate.io/devel/yaml_api.html>).

use std::net::IpAddr;

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
        script::infiniband_mode,
        values,
        yaml::Yaml,
    },
};

/// Metric of a route by an interface that is not in the state: that of the first Ethernet.
const MANAGER_METRIC: u32 = 100;

pub(crate) fn read(file: &str, state: &Yaml, gathering: &mut Gathering) {
    gathering.loader = Loader::NetworkManager;
    gathering.understood();
    for (key, value) in state.entries() {
        match key.text().unwrap_or_default() {
            "interfaces" => each(file, value, gathering, interface),
            "routes" => each(file, listed(value), gathering, route),
            "route-rules" => each(file, listed(value), gathering, rule_or_open),
            "dns-resolver" | "hostname" | "ovs-db" | "version" => {}
            other => gathering.unread(file, key.line, other, "not a key of nmstate that is read here"),
        }
    }
}

/// What is wanted, else what is in effect, as `nmstatectl show` prints it.
fn listed(value: &Yaml) -> &Yaml {
    value.get("config").or_else(|| value.get("running")).unwrap_or(value)
}

fn each(
    file: &str,
    list: &Yaml,
    gathering: &mut Gathering,
    read: impl Fn(&str, &Yaml, &mut Gathering) -> Result<(), String>,
) {
    for item in list.items() {
        if let Err(reason) = read(file, item, gathering) {
            gathering.unread(file, item.line, &item.summary(), reason);
        }
    }
}

fn is_absent(item: &Yaml) -> bool {
    item.get("state").and_then(Yaml::text) == Some("absent")
}

fn interface(file: &str, item: &Yaml, gathering: &mut Gathering) -> Result<(), String> {
    if is_absent(item) {
        return Ok(());
    }
    let text = |key: &str| item.get(key).and_then(Yaml::text);
    let is_by_address = text("identifier") == Some("mac-address") || text("name").is_none();
    let name = match text("mac-address").filter(|_| is_by_address) {
        Some(address) => gathering.by_address(&address.to_ascii_lowercase()),
        None => text("name").ok_or("an interface without name")?.to_owned(),
    };
    let name = name.as_str();
    gathering.interface(name);
    let mut master = item.get("controller").and_then(Yaml::text);
    master = master.filter(|master| !master.is_empty());
    if let Some(vrf) = item.get("vrf") {
        let table = vrf.get("route-table-id").and_then(Yaml::text).and_then(values::number);
        let ports = vrf.get("port").or_else(|| vrf.get("ports")).map(Yaml::items).unwrap_or_default();
        if let Some(table) = table {
            gathering.vrf(name, table);
            for port in ports {
                gathering.vrf_member(port.text().unwrap_or_default(), table);
            }
        }
    }
    if let Some(master) = master {
        gathering.vrf_ports.push((name.to_owned(), master.to_owned()));
    }
    let kind = item.get("type").and_then(Yaml::text).unwrap_or("ethernet");
    let metric = gathering.metric_of_manager(default_metric(kind));
    gathering.interface_metrics.insert(name.to_owned(), metric);
    if let Some(value) = item.get("mtu") {
        let bytes = value.text().and_then(values::number).ok_or("\"mtu\" is no number")?;
        gathering.mtu(name, bytes, place(file, value.line));
    }
    if let Some(value) = item.get("mac-address").and_then(Yaml::text) {
        gathering.interface(name).link_address = values::link_address(value);
    }
    if let Some(mode) = item.get("infiniband").and_then(|infiniband| infiniband.get("mode")) {
        let value = mode.text().and_then(infiniband_mode).ok_or("neither connected nor datagram")?;
        gathering.interface(name).infiniband_mode =
            Some(Located { value, place: Some(place(file, mode.line)) });
    }
    for (ipv6, family) in [(false, "ipv4"), (true, "ipv6")] {
        let truth = |key: &str| {
            let value = item.get(family).and_then(|ip| ip.get(key)).and_then(Yaml::text);
            value.and_then(values::truth) == Some(true)
        };
        let auto_table = item.get(family).and_then(|ip| ip.get("auto-route-table-id")).and_then(Yaml::text);
        if truth("dhcp") || truth("autoconf") {
            gathering.dynamic(name, ipv6);
        } else if item.get(family).is_some() {
            gathering.facts().complete.insert((name.to_owned(), ipv6));
        }
        if let Some(table) = auto_table.and_then(values::number).filter(|table| *table != 0) {
            gathering.unknown_route(Some(table), None, "routes of DHCP or router advertisements");
        }
        let Some(addresses) = item.get(family).and_then(|ip| ip.get("address")) else { continue };
        for address in addresses.items() {
            let text = |key: &str| address.get(key).and_then(Yaml::text);
            let prefix = text("ip")
                .zip(text("prefix-length"))
                .and_then(|(ip, length)| values::prefix(&format!("{ip}/{length}")));
            match prefix {
                Some(prefix) => gathering.address(name, prefix, place(file, address.line)),
                None => gathering.unread(file, address.line, &address.summary(), "no ip with prefix-length"),
            }
        }
    }
    Ok(())
}

fn route(file: &str, item: &Yaml, gathering: &mut Gathering) -> Result<(), String> {
    if is_absent(item) {
        return Ok(());
    }
    let text = |key: &str| item.get(key).and_then(Yaml::text);
    let destination: Prefix =
        text("destination").and_then(values::prefix).ok_or("a route without destination")?;
    let interface = text("next-hop-interface").map(str::to_owned);
    let via: Option<IpAddr> = match text("next-hop-address") {
        Some(scalar) => Some(values::address(scalar).ok_or("\"next-hop-address\" is no address")?),
        None => None,
    };
    let via = via.filter(|via| !via.is_unspecified());
    let by_interface = interface.as_ref().and_then(|name| gathering.interface_metrics.get(name).copied());
    // Without a metric NetworkManager gives that of the interface.
    let (mut table, mut metric) = (MAIN_TABLE, by_interface.unwrap_or(MANAGER_METRIC));
    let (mut weight, mut source, mut mtu) = (None, None, None);
    let mut kind = "";
    for (key, value) in item.entries() {
        let scalar = value.text().unwrap_or_default();
        match key.text().unwrap_or_default() {
            "destination" | "next-hop-interface" | "next-hop-address" | "state" => {}
            // 0 is the main table and -1 the default metric (nmstate's RouteEntry).
            "table-id" => {
                table = values::number(scalar).ok_or("\"table-id\" is no number")?;
                table = if table == 0 { MAIN_TABLE } else { table };
            }
            "metric" if scalar == "-1" => {}
            "metric" => metric = values::number(scalar).ok_or("\"metric\" is no number")?,
            "weight" => weight = Some(values::number(scalar).ok_or("\"weight\" is no number")?),
            "source" => source = Some(values::address(scalar).ok_or("\"source\" is no address")?),
            "mtu" => mtu = Some(values::number(scalar).ok_or("\"mtu\" is no number")?),
            "route-type" => kind = scalar,
            "vrf-name" => {
                let Some(of_vrf) = gathering.vrfs.get(scalar).copied() else {
                    gathering.unknown_route(None, Some(destination), "the table of its VRF was not given");
                    return Err("the table of its VRF was not given".to_owned());
                };
                table = of_vrf;
            }
            other => {
                let text = format!("{other}: {scalar}");
                gathering.unread(file, key.line, &text, "has no place in a routing plan");
            }
        }
    }
    let line = place(file, item.line);
    let action = match (kind, via, interface) {
        ("", Some(via), interface) => {
            let place = weight.map(|_| line.clone());
            RouteAction::Gateways(vec![Hop { via, interface, weight: weight.unwrap_or(1), place }])
        }
        ("", None, Some(interface)) => RouteAction::Link { interface },
        ("", None, None) => return Err("a route without next hop".to_owned()),
        ("throw", ..) => return Err(values::unsupported_type(kind)),
        _ => RouteAction::of_type(kind).ok_or_else(|| values::unsupported_type(kind))?,
    };
    let route =
        RouteEntry { destination, table, metric, action, source, mtu, protocol: 0, place: Some(line) };
    if weight.is_some() {
        gathering.join_route(route)
    } else {
        gathering.route(route)
    }
    Ok(())
}

/// A rule, or one of which something is not understood.
fn rule_or_open(file: &str, item: &Yaml, gathering: &mut Gathering) -> Result<(), String> {
    rule(file, item, gathering).inspect_err(|_| {
        let text = |key: &str| item.get(key).and_then(Yaml::text);
        let is_ipv6 = text("family") == Some("ipv6");
        let priority = text("priority").and_then(values::number);
        gathering.open_rule(place(file, item.line), is_ipv6, &item.summary(), text("route-table"), priority);
    })
}

fn rule(file: &str, item: &Yaml, gathering: &mut Gathering) -> Result<(), String> {
    if is_absent(item) {
        return Ok(());
    }
    let mut selector = RuleSelector::default();
    let (mut ipv6, mut priority, mut table, mut other) = (None, None, None, None);
    let (mut mark, mut mask) = (None, u32::MAX);
    for (key, value) in item.entries() {
        let scalar = value.text().unwrap_or_default();
        match key.text().unwrap_or_default() {
            "state" => {}
            "family" => ipv6 = Some(scalar == "ipv6"),
            name @ ("ip-from" | "ip-to") => {
                if scalar.is_empty() {
                    continue;
                }
                let prefix = values::prefix(scalar).ok_or("\"ip-from\" or \"ip-to\" is no prefix")?;
                ipv6 = Some(prefix.address.is_ipv6());
                let slot = if name == "ip-from" { &mut selector.from } else { &mut selector.to };
                *slot = (prefix.length > 0).then_some(prefix);
            }
            "priority" => priority = Some(values::number(scalar).ok_or("\"priority\" is no number")?),
            "route-table" => {
                table = Some(values::number::<u32>(scalar).ok_or("\"route-table\" is no number")?)
            }
            "fwmark" => mark = Some(values::number(scalar).ok_or("\"fwmark\" is no number")?),
            "fwmask" => mask = values::number(scalar).ok_or("\"fwmask\" is no number")?,
            "iif" => selector.input = Some(scalar.to_owned()),
            "action" => other = Some(scalar.to_owned()),
            "suppress-prefix-length" | "suppress_prefixlength" => {
                selector.other.extend(["suppress_prefixlength".to_owned(), scalar.to_owned()]);
            }
            name => return Err(format!("\"{name}\" is no key of a rule")),
        }
    }
    selector.mark = mark.map(|mark| (mark, mask));
    let action = match (other, table) {
        (Some(other), _) => RuleAction::Other(other),
        (None, table) => RuleAction::Table(table.filter(|table| *table != 0).unwrap_or(MAIN_TABLE)),
    };
    let place = Some(place(file, item.line));
    gathering.rule(RuleEntry { ipv6: ipv6.unwrap_or(false), priority, selector, action, protocol: 0, place });
    Ok(())
}
