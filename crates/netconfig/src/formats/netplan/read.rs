//! Netplan (`network:` with `version: 2`), as its parser and its two renderers have it (netplan(5)).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        Hop, Located, MAIN_TABLE, RouteAction, RouteEntry, RuleAction, RuleEntry, RuleSelector,
        files::{Loader, Refused},
    },
    tune::Severity,
};

use super::check;
use crate::{
    formats::networkmanager,
    read::{
        gathering::{Gathering, place},
        script::infiniband_mode,
        values,
        yaml::Yaml,
    },
};

/// Kinds of devices that may carry routes, with NetworkManager's type of each.
const DEVICES: [(&str, &str); 12] = [
    ("ethernets", "ethernet"),
    ("bonds", "bond"),
    ("bridges", "bridge"),
    ("vlans", "vlan"),
    ("wifis", "wifi"),
    ("tunnels", "ip-tunnel"),
    ("vrfs", "vrf"),
    ("modems", "gsm"),
    ("dummy-devices", "dummy"),
    ("virtual-ethernets", "ethernet"),
    ("nm-devices", "ethernet"),
    ("openvswitch", "ovs-interface"),
];

/// Version from which the renderer NetworkManager writes rules.
const RULES_SINCE: &str = "netplan 1.2";

pub(super) fn read(file: &str, network: &Yaml, gathering: &mut Gathering) {
    gathering.loader = Loader::Networkd;
    let renderer = network.get("renderer").and_then(Yaml::text).unwrap_or("networkd").to_owned();
    // VRFs first: other devices are part of them.
    for (name, device) in network.get("vrfs").map(Yaml::entries).unwrap_or_default() {
        gathering.understood();
        vrf(file, name, device, gathering);
    }
    check::network(file, network, gathering);
    for (kind, devices) in network.entries() {
        let kind_name = kind.text().unwrap_or_default();
        if let Some((_, manager_type)) = DEVICES.iter().find(|(known, _)| *known == kind_name) {
            for (id, device) in devices.entries() {
                let name = name(id, device, gathering);
                let renderer = device.get("renderer").and_then(Yaml::text).unwrap_or(&renderer);
                let is_managed = renderer == "NetworkManager";
                gathering.loader = if is_managed { Loader::NetworkManager } else { Loader::Networkd };
                let is_vrf = kind_name == "vrfs";
                let vrf = is_vrf.then(|| gathering.vrfs.get(&name).copied()).flatten();
                let metric = if is_managed {
                    gathering.metric_of_manager(networkmanager::default_metric(manager_type))
                } else {
                    0
                };
                let device_of = Device { file, name: &name, is_managed, metric, vrf, is_vrf };
                device_of.read(device, gathering);
            }
        } else if !matches!(kind_name, "version" | "renderer") {
            gathering.unread(file, kind.line, kind_name, "not a key of netplan that is read here");
        }
    }
}

fn vrf(file: &str, name: &Yaml, device: &Yaml, gathering: &mut Gathering) {
    let table = device.get("table").and_then(Yaml::text).and_then(values::number);
    let name_text = name.text().unwrap_or_default();
    let Some(table) = table else {
        let reason = format!("netplan refuses the whole file: VRF {name_text} has no \"table\"");
        return refused(file, "file", name, &reason, "write \"table:\" with a number", gathering);
    };
    gathering.vrf(name_text, table);
    for member in device.get("interfaces").map(Yaml::items).unwrap_or_default() {
        gathering.vrf_member(member.text().unwrap_or_default(), table);
    }
}

/// The interface of a device: `set-name`, else the one it matches, else its id.
fn name(id: &Yaml, device: &Yaml, gathering: &mut Gathering) -> String {
    let id = id.text().unwrap_or_default().to_owned();
    let matched = device.get("match");
    let of_match = |key: &str| matched.and_then(|matched| matched.get(key)).and_then(Yaml::text);
    let set_name = device.get("set-name").and_then(Yaml::text);
    if let Some(name) = set_name {
        if let Some(address) = of_match("macaddress") {
            gathering.by_link_address.insert(address.to_ascii_lowercase(), name.to_owned());
        }
        return name.to_owned();
    }
    match (of_match("name"), of_match("macaddress")) {
        (Some(name), _) if !name.contains(['*', '?', '[']) => name.to_owned(),
        (None, Some(address)) => gathering.by_address(&address.to_ascii_lowercase()),
        (None, None) if matched.is_none() => id,
        _ => {
            gathering.facts().nameless.insert(id.clone());
            id
        }
    }
}

/// What netplan does not take; one mistake is enough for the whole file.
pub(super) fn refused(
    file: &str,
    what: &'static str,
    at: &Yaml,
    reason: &str,
    advice: &str,
    gathering: &mut Gathering,
) {
    gathering.refused(Refused {
        what,
        severity: Severity::Error,
        text: at.summary(),
        reason: reason.to_owned(),
        advice: advice.to_owned(),
        source: "netplan(5); netplan's parser",
        place: place(file, at.line),
    });
}

struct Device<'a> {
    file: &'a str,
    name: &'a str,
    /// By NetworkManager, not systemd-networkd.
    is_managed: bool,
    /// Metric of routes that state none.
    metric: u32,
    /// Table of a VRF.
    vrf: Option<u32>,
    is_vrf: bool,
}

impl Device<'_> {
    fn read(&self, device: &Yaml, gathering: &mut Gathering) {
        gathering.interface(self.name);
        self.run_time(device, gathering);
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
                        let action = self.gateway(via);
                        gathering.route(RouteEntry { action, ..self.plain(destination, key.line) });
                        Ok(())
                    }
                    None => Err("no address of a gateway"),
                },
                "routes" => {
                    for item in value.items() {
                        self.route_or_why(item, gathering);
                    }
                    Ok(())
                }
                "routing-policy" => {
                    for item in value.items() {
                        self.rule_or_why(item, gathering);
                    }
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(reason) = done {
                gathering.unread(self.file, value.line, &value.summary(), reason);
            }
        }
    }

    /// Whether it gets addresses at run time.
    fn run_time(&self, device: &Yaml, gathering: &mut Gathering) {
        let truth = |key: &str| device.get(key).and_then(Yaml::text).and_then(values::truth);
        for (ipv6, key) in [(false, "dhcp4"), (true, "dhcp6")] {
            let advertised = ipv6 && truth("accept-ra") == Some(true);
            if truth(key) == Some(true) || advertised {
                gathering.dynamic(self.name, ipv6);
            } else {
                gathering.facts().complete.insert((self.name.to_owned(), ipv6));
            }
        }
    }

    fn addresses(&self, list: &Yaml, gathering: &mut Gathering) {
        for item in list.items() {
            // `10.0.0.1/24` or `10.0.0.1/24: {label: x}`.
            let text = item.text().or_else(|| item.entries().first().and_then(|(key, _)| key.text()));
            let text = text.unwrap_or_default();
            let is_whole =
                text.split_once('/').is_some_and(|(address, _)| values::address(address).is_some());
            match values::prefix(text).filter(|_| is_whole) {
                Some(prefix) => gathering.address(self.name, prefix, place(self.file, item.line)),
                None => {
                    let reason = format!(
                        "netplan refuses the whole file: {text} has no prefix length, or is no address"
                    );
                    let advice = match values::address(text) {
                        Some(_) => format!("write {text}/24, or its length"),
                        None => "write an address with all of its parts, and its length".to_owned(),
                    };
                    refused(self.file, "file", item, &reason, &advice, gathering);
                    // An address is meant.
                    gathering.facts().complete.remove(&(self.name.to_owned(), text.contains(':')));
                }
            }
        }
    }

    fn gateway(&self, via: IpAddr) -> RouteAction {
        let interface = Some(self.name.to_owned());
        RouteAction::Gateways(vec![Hop { via, interface, weight: 1, place: None }])
    }

    fn plain(&self, destination: Prefix, line: u32) -> RouteEntry {
        RouteEntry {
            destination,
            table: self.vrf.unwrap_or(MAIN_TABLE),
            metric: self.metric,
            action: RouteAction::Link { interface: self.name.to_owned() },
            source: None,
            mtu: None,
            protocol: 0,
            place: Some(place(self.file, line)),
        }
    }

    fn route_or_why(&self, item: &Yaml, gathering: &mut Gathering) {
        let Err(why) = self.route(item, gathering) else { return };
        let reason = match why {
            Why::Refused(why) => {
                let reason = format!("netplan refuses the whole file: {why}");
                return refused(self.file, "file", item, &reason, "see netplan(5), \"routes\"", gathering);
            }
            Why::NotRead(reason) => reason,
        };
        gathering.unread(self.file, item.line, &item.summary(), &reason);
        let text = |key: &str| item.get(key).and_then(Yaml::text);
        let table = text("table").map_or(Some(self.vrf.unwrap_or(MAIN_TABLE)), values::number);
        gathering.unknown_route(table, text("to").and_then(values::prefix), &reason);
    }

    fn route(&self, item: &Yaml, gathering: &mut Gathering) -> Result<(), Why> {
        let text = |key: &str| item.get(key).and_then(Yaml::text);
        let refuses = |why: &str| Why::Refused(why.to_owned());
        let via = match text("via") {
            Some(scalar) => Some(values::address(scalar).ok_or_else(|| refuses("\"via\" is no address"))?),
            None => None,
        };
        let to = text("to").ok_or_else(|| refuses("a route has to have \"to\""))?;
        let destination = match to {
            "default" => values::everything(via.is_some_and(|via| via.is_ipv6())),
            to => values::prefix(to).ok_or_else(|| refuses("\"to\" is no address or prefix"))?,
        };
        if via.is_some_and(|via| via.is_ipv6() != destination.address.is_ipv6()) {
            return Err(refuses("\"to\" and \"via\" are of different families"));
        }
        let kind = text("type").unwrap_or("unicast");
        let scope = text("scope");
        if kind == "unicast" && via.is_none() && scope == Some("global") {
            return Err(refuses("a route of scope global has to have \"via\""));
        }
        if scope.is_some_and(|scope| !matches!(scope, "global" | "link" | "host")) {
            return Err(refuses("\"scope\" is none of global, link, host"));
        }
        let mut route = self.plain(destination, item.line);
        if let Some(via) = via {
            route.action = self.gateway(via);
        }
        for (key, value) in item.entries() {
            let scalar = value.text().unwrap_or_default();
            let no = || Why::Refused(format!("{}: {scalar} is no value of this key", key.summary()));
            match key.text().unwrap_or_default() {
                "to" | "via" | "scope" => {}
                "on-link" => {
                    values::truth(scalar).ok_or_else(no)?;
                    if let Some(via) = via.filter(|_| values::truth(scalar) == Some(true)) {
                        gathering.on_link(via, Some(self.name));
                    }
                }
                "table" => route.table = self.table(scalar)?,
                "metric" => route.metric = values::number(scalar).ok_or_else(no)?,
                "from" => route.source = Some(values::address(scalar).ok_or_else(no)?),
                "mtu" => route.mtu = Some(values::number(scalar).ok_or_else(no)?),
                "type" if scalar == "unicast" => {}
                "type" if !is_type(scalar) => return Err(no()),
                "type" => {
                    let action = RouteAction::of_type(scalar);
                    route.action = action.ok_or_else(|| Why::NotRead(values::unsupported_type(scalar)))?;
                }
                "congestion-window" | "advertised-receive-window" | "advertised-mss" => {
                    let text = format!("{}: {scalar}", key.summary());
                    gathering.unread(self.file, key.line, &text, "has no place in a routing plan");
                }
                other => return Err(Why::Refused(format!("a route has no key \"{other}\""))),
            }
        }
        gathering.route(route);
        Ok(())
    }

    /// Tables have no names in netplan; those of a VRF are its own.
    fn table(&self, text: &str) -> Result<u32, Why> {
        let table = values::number(text);
        let table = table.ok_or_else(|| Why::Refused(format!("table \"{text}\" is no number")))?;
        match self.vrf.filter(|vrf| *vrf != table) {
            Some(vrf) if self.is_vrf => {
                Err(Why::Refused(format!("the table of VRF {} is {vrf}, not {table}", self.name)))
            }
            _ => Ok(table),
        }
    }

    fn rule_or_why(&self, item: &Yaml, gathering: &mut Gathering) {
        let rule = match self.rule(item) {
            Ok(rule) => rule,
            Err(Why::Refused(why) | Why::NotRead(why)) => {
                let reason = format!("netplan refuses the whole file: {why}");
                return refused(
                    self.file,
                    "file",
                    item,
                    &reason,
                    "see netplan(5), \"routing-policy\"",
                    gathering,
                );
            }
        };
        if !self.is_managed {
            return gathering.rule(rule);
        }
        let (severity, reason) = if rule.priority.is_none() {
            let reason = format!(
                "with the renderer NetworkManager netplan refuses a rule without priority (since {RULES_SINCE}), and \
                 earlier releases write no rules at all: it is not there"
            );
            (Severity::Error, reason)
        } else {
            let reason = format!(
                "with the renderer NetworkManager rules are in effect since {RULES_SINCE}; earlier releases drop them \
                 silently"
            );
            (Severity::Note, reason)
        };
        gathering.refused(Refused {
            what: "rule",
            severity,
            text: item.summary(),
            reason,
            advice: match severity {
                Severity::Error => "write \"priority:\", or use the renderer networkd".to_owned(),
                _ => "see \"netplan info\" for the release, or use the renderer networkd".to_owned(),
            },
            source: "netplan(5), \"routing-policy\"; netplan's src/nm.c",
            place: place(self.file, item.line),
        });
        if rule.priority.is_some() {
            gathering.rule(rule);
        }
    }

    fn rule(&self, item: &Yaml) -> Result<RuleEntry, Why> {
        let mut selector = RuleSelector::default();
        let mut rule = RuleEntry {
            ipv6: false,
            priority: None,
            selector: RuleSelector::default(),
            action: RuleAction::Table(self.vrf.unwrap_or(MAIN_TABLE)),
            protocol: 0,
            place: Some(place(self.file, item.line)),
        };
        for (key, value) in item.entries() {
            let scalar = value.text().unwrap_or_default();
            let no = || Why::Refused(format!("{}: {scalar} is no value of this key", key.summary()));
            match key.text().unwrap_or_default() {
                name @ ("from" | "to") => {
                    let prefix = values::prefix(scalar).ok_or_else(no)?;
                    rule.ipv6 = prefix.address.is_ipv6();
                    let slot = if name == "from" { &mut selector.from } else { &mut selector.to };
                    *slot = (prefix.length > 0).then_some(prefix);
                }
                "table" => rule.action = RuleAction::Table(self.table(scalar)?),
                "priority" => rule.priority = Some(values::number(scalar).ok_or_else(no)?),
                "mark" => selector.mark = Some((values::number(scalar).ok_or_else(no)?, u32::MAX)),
                "type-of-service" if values::number::<u8>(scalar).is_none() => return Err(no()),
                "type-of-service" => selector.other.extend(["tos".to_owned(), scalar.to_owned()]),
                other => return Err(Why::Refused(format!("a rule has no key \"{other}\""))),
            }
        }
        if item.get("from").is_none() && item.get("to").is_none() {
            return Err(Why::Refused("a rule has to have \"from\" or \"to\"".to_owned()));
        }
        if let (Some(from), Some(to)) = (selector.from, selector.to)
            && from.address.is_ipv6() != to.address.is_ipv6()
        {
            return Err(Why::Refused("\"from\" and \"to\" are of different families".to_owned()));
        }
        rule.selector = selector;
        Ok(rule)
    }
}

/// Types of routes that netplan takes (`handle_routes_type`).
fn is_type(scalar: &str) -> bool {
    let others = ["anycast", "broadcast", "local", "multicast", "nat", "throw", "xresolve"];
    others.contains(&scalar) || RouteAction::of_type(scalar).is_some()
}

/// Why a route or rule is not read.
enum Why {
    /// Netplan does not take it.
    Refused(String),
    /// It is not held here.
    NotRead(String),
}
