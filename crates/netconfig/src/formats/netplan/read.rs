//! Netplan (`network:` with `version: 2`).

use clearstream_schema::routing::{
    Hop, Located, MAIN_TABLE, RouteAction, RouteEntry, RuleAction, RuleEntry, RuleSelector,
};

use crate::read::{
    gathering::{Gathering, place},
    script::infiniband_mode,
    values,
    yaml::Yaml,
};

/// Kinds of devices that may carry routes.
const DEVICES: [&str; 9] =
    ["ethernets", "bonds", "bridges", "vlans", "wifis", "tunnels", "vrfs", "modems", "dummy-devices"];

pub(super) fn read(file: &str, network: &Yaml, gathering: &mut Gathering) {
    let renderer = network.get("renderer").and_then(Yaml::text).unwrap_or("networkd").to_owned();
    for (kind, devices) in network.entries() {
        let kind_name = kind.text().unwrap_or_default();
        if DEVICES.contains(&kind_name) {
            for (name, device) in devices.entries() {
                let name = device.get("set-name").unwrap_or(name);
                let renderer = device.get("renderer").and_then(Yaml::text).unwrap_or(&renderer);
                let device_of = Device { file, name: name.text().unwrap_or_default(), renderer };
                device_of.read(device, gathering);
            }
        } else if !matches!(kind_name, "version" | "renderer" | "openvswitch") {
            gathering.unread(file, kind.line, kind_name, "not a key of netplan that is read here");
        }
    }
}

struct Device<'a> {
    file: &'a str,
    name: &'a str,
    renderer: &'a str,
}

impl Device<'_> {
    fn read(&self, device: &Yaml, gathering: &mut Gathering) {
        gathering.interface(self.name);
        for (key, value) in device.entries() {
            let place = place(self.file, value.line);
            let text = value.text().unwrap_or_default();
            let done = match key.text().unwrap_or_default() {
                "addresses" => {
                    self.addresses(value, gathering);
                    Ok(())
                }
                "mtu" => {
                    values::number(text).map(|bytes| gathering.mtu(self.name, bytes, place)).ok_or("no MTU")
                }
                "infiniband-mode" => infiniband_mode(text)
                    .map(|value| {
                        let located = Located { value, place: Some(place) };
                        gathering.interface(self.name).infiniband_mode = Some(located);
                    })
                    .ok_or("neither connected nor datagram"),
                "macaddress" => {
                    gathering.interface(self.name).link_address = values::link_address(text);
                    Ok(())
                }
                "gateway4" | "gateway6" => match values::address(text) {
                    Some(via) => {
                        let destination = values::everything(via.is_ipv6());
                        gathering.route(RouteEntry {
                            action: self.gateway(via),
                            ..self.plain(destination, key.line)
                        });
                        Ok(())
                    }
                    None => Err("no address of a gateway"),
                },
                "routes" => {
                    for item in value.items() {
                        if let Err(reason) = self.route(item, gathering) {
                            gathering.unread(self.file, item.line, &item.summary(), reason);
                        }
                    }
                    Ok(())
                }
                "routing-policy" => {
                    self.rules(value, gathering);
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(reason) = done {
                gathering.unread(self.file, value.line, &value.summary(), reason);
            }
        }
    }

    fn addresses(&self, list: &Yaml, gathering: &mut Gathering) {
        for item in list.items() {
            // `10.0.0.1/24` or `10.0.0.1/24: {label: x}`.
            let text = item.text().or_else(|| item.entries().first().and_then(|(key, _)| key.text()));
            match text.and_then(values::prefix) {
                Some(prefix) => gathering.address(self.name, prefix, place(self.file, item.line)),
                None => {
                    gathering.unread(self.file, item.line, &item.summary(), "no address with prefix length")
                }
            }
        }
    }

    fn gateway(&self, via: std::net::IpAddr) -> RouteAction {
        let interface = Some(self.name.to_owned());
        RouteAction::Gateways(vec![Hop { via, interface, weight: 1, place: None }])
    }

    fn plain(&self, destination: clearstream_schema::prefix::Prefix, line: u32) -> RouteEntry {
        RouteEntry {
            destination,
            table: MAIN_TABLE,
            metric: 0,
            action: RouteAction::Link { interface: self.name.to_owned() },
            source: None,
            mtu: None,
            protocol: 0,
            place: Some(place(self.file, line)),
        }
    }

    fn route(&self, item: &Yaml, gathering: &mut Gathering) -> Result<(), String> {
        let text = |key: &str| item.get(key).and_then(Yaml::text);
        let via = match text("via") {
            Some(scalar) => Some(values::address(scalar).ok_or("\"via\" is no address")?),
            None => None,
        };
        let to = text("to").ok_or("a route without \"to\"")?;
        let destination = match (to, via) {
            ("default", via) => values::everything(via.is_some_and(|via| via.is_ipv6())),
            (to, _) => values::prefix(to).ok_or("\"to\" is no prefix")?,
        };
        let mut route = self.plain(destination, item.line);
        if let Some(via) = via {
            route.action = self.gateway(via);
        }
        for (key, value) in item.entries() {
            let scalar = value.text().unwrap_or_default();
            match key.text().unwrap_or_default() {
                "to" | "via" | "on-link" | "scope" => {}
                "table" => {
                    route.table =
                        gathering.names.table(scalar).ok_or("\"table\" is no number or known name")?
                }
                "metric" => route.metric = values::number(scalar).ok_or("\"metric\" is no number")?,
                "from" => route.source = Some(values::address(scalar).ok_or("\"from\" is no address")?),
                "mtu" => route.mtu = Some(values::number(scalar).ok_or("\"mtu\" is no number")?),
                "type" => match scalar {
                    "unicast" => {}
                    kind => {
                        route.action =
                            RouteAction::of_type(kind).ok_or_else(|| values::unsupported_type(kind))?;
                    }
                },
                other => {
                    let text = format!("{other}: {scalar}");
                    gathering.unread(self.file, key.line, &text, "has no place in a routing plan");
                }
            }
        }
        gathering.route(route);
        Ok(())
    }

    fn rules(&self, list: &Yaml, gathering: &mut Gathering) {
        if self.renderer == "NetworkManager" {
            let reason =
                "netplan with the renderer NetworkManager writes no rules: use the renderer networkd";
            gathering.unread(self.file, list.line, "routing-policy", reason);
        }
        for item in list.items() {
            match self.rule(item, gathering) {
                Ok(rule) => gathering.rule(rule),
                Err(reason) => gathering.unread(self.file, item.line, &item.summary(), reason),
            }
        }
    }

    fn rule(&self, item: &Yaml, gathering: &Gathering) -> Result<RuleEntry, String> {
        let mut selector = RuleSelector::default();
        let mut rule = RuleEntry {
            ipv6: false,
            priority: None,
            selector: RuleSelector::default(),
            action: RuleAction::Table(MAIN_TABLE),
            protocol: 0,
            place: Some(place(self.file, item.line)),
        };
        for (key, value) in item.entries() {
            let scalar = value.text().unwrap_or_default();
            match key.text().unwrap_or_default() {
                name @ ("from" | "to") => {
                    let prefix = values::prefix(scalar).ok_or("\"from\" or \"to\" is no prefix")?;
                    rule.ipv6 = prefix.address.is_ipv6();
                    let slot = if name == "from" { &mut selector.from } else { &mut selector.to };
                    *slot = (prefix.length > 0).then_some(prefix);
                }
                "table" => {
                    let table =
                        gathering.names.table(scalar).ok_or("\"table\" is no number or known name")?;
                    rule.action = RuleAction::Table(table);
                }
                "priority" => {
                    rule.priority = Some(values::number(scalar).ok_or("\"priority\" is no number")?)
                }
                "mark" => {
                    selector.mark = Some((values::number(scalar).ok_or("\"mark\" is no number")?, u32::MAX))
                }
                "type-of-service" => selector.other.extend(["tos".to_owned(), scalar.to_owned()]),
                other => return Err(format!("\"{other}\" is no key of a rule")),
            }
        }
        if item.get("from").is_none() && item.get("to").is_none() {
            return Err("netplan refuses a rule without \"from\" and \"to\"".to_owned());
        }
        rule.selector = selector;
        Ok(rule)
    }
}
