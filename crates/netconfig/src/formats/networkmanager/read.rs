//! Connection profiles of NetworkManager (nm-settings-keyfile(5)).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        Hop, Located, MAIN_TABLE, RouteAction, RouteEntry,
        files::{Loader, Refused},
    },
    tune::Severity,
};

use crate::read::{
    Source,
    detect::last_part,
    gathering::{Gathering, place},
    ini::{self, Entry, Section},
    ip_arguments,
    script::infiniband_mode,
    values,
};

pub(super) fn read(source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::NetworkManager;
    let (sections, strays) = ini::sections(&source.text);
    for (line, text) in strays {
        gathering.unread(&source.path, line, text, "stands outside of any section");
    }
    let value = |section: &str, key: &str| {
        let section = sections.iter().find(|known| known.name == section)?;
        section.value(key).map(|entry| entry.value.as_str())
    };
    if !sections.iter().any(|section| section.name == "connection") {
        return gathering.unread(&source.path, 1, "[connection]", "a profile without this section");
    }
    let Some(interface) = name(source, &sections, gathering) else { return };
    gathering.interface(&interface);
    let kind = value("connection", "type").unwrap_or("ethernet");
    if let Some(table) = value("vrf", "table").and_then(values::number) {
        gathering.vrf(&interface, table);
    }
    let master = ["controller", "master"].iter().find_map(|key| value("connection", key));
    let port_type = ["port-type", "slave-type"].iter().find_map(|key| value("connection", key));
    if let (Some(master), Some("vrf")) = (master, port_type) {
        gathering.vrf_ports.push((interface.clone(), master.to_owned()));
    }
    let is_port = master.is_some() && port_type != Some("vrf");
    let mut assigned = None;
    for family in ["ipv4", "ipv6"] {
        let is_ipv6 = family == "ipv6";
        let section = sections.iter().find(|section| section.name == family);
        let method = section.and_then(|section| section.value("method")).map(|entry| entry.value.as_str());
        let is_dynamic = matches!(method, Some("auto" | "dhcp" | "shared"));
        section.into_iter().for_each(|section| name_no_numbers(source, section, gathering));
        let table = section.and_then(|section| section.value("route-table"));
        let table = table.and_then(|entry| values::number(&entry.value)).filter(|table| *table != 0);
        if let Some(table) = table {
            gathering.facts().connected.insert((interface.clone(), is_ipv6), table);
        }
        if is_dynamic && !is_port {
            gathering.dynamic(&interface, is_ipv6);
        } else {
            gathering.facts().complete.insert((interface.clone(), is_ipv6));
        }
        let Some(section) = section.filter(|_| !matches!(method, Some("disabled" | "ignore"))) else {
            continue;
        };
        let explicit = section.value("route-metric").and_then(|entry| values::number(&entry.value));
        let metric = explicit.unwrap_or_else(|| {
            *assigned.get_or_insert_with(|| gathering.metric_of_manager(default_metric(kind)))
        });
        let family = Family {
            file: &source.path,
            interface: &interface,
            ipv6: is_ipv6,
            metric,
            table: table.unwrap_or(MAIN_TABLE),
        };
        family.read(section, gathering);
    }
    for section in &sections {
        if matches!(section.name, "ethernet" | "802-3-ethernet" | "infiniband") {
            link(source, &interface, section, gathering);
        }
    }
}

/// Names what is no table or metric of an interface's routes.
fn name_no_numbers(source: &Source, section: &Section<'_>, gathering: &mut Gathering) {
    for key in ["route-table", "route-metric"] {
        // -1 is the default (nm-settings).
        let is_number = |text: &str| text == "-1" || values::number::<u32>(text).is_some();
        if let Some(entry) = section.value(key).filter(|entry| !is_number(&entry.value)) {
            gathering.unread(&source.path, entry.line, &format!("{key}={}", entry.value), "no number");
        }
    }
}

/// The interface of a profile; one without a name is known by its link address, or as the profile.
fn name(source: &Source, sections: &[Section<'_>], gathering: &mut Gathering) -> Option<String> {
    let connection = sections.iter().find(|section| section.name == "connection");
    let of_connection = |key: &str| connection.and_then(|section| section.value(key));
    if let Some(entry) = of_connection("interface-name") {
        return Some(entry.value.clone());
    }
    let mut links =
        sections.iter().filter(|it| matches!(it.name, "ethernet" | "802-3-ethernet" | "infiniband"));
    let address =
        links.find_map(|section| section.value("mac-address")).map(|entry| entry.value.to_ascii_lowercase());
    if let Some(address) = address.filter(|address| !address.is_empty()) {
        return Some(gathering.by_address(&address));
    }
    // A profile without id has its file's name.
    let file = last_part(&source.path).trim_end_matches(".nmconnection").to_owned();
    let (line, id) = of_connection("id").map_or((1, file), |entry| (entry.line, entry.value.clone()));
    let reason = "no interface-name: which interface it is for is not known";
    gathering.unread(&source.path, line, &format!("id={id}"), reason);
    gathering.facts().nameless.insert(id.clone());
    Some(id)
}

/// `10.0.0.1/24,GATEWAY,METRIC`, or the older `10.0.0.1;24;GATEWAY;METRIC;`.
fn prefix_and_rest(value: &str) -> (Option<Prefix>, Vec<&str>) {
    let mut parts: Vec<&str> = value.split([',', ';']).map(str::trim).collect();
    let first = parts.remove(0);
    let length = parts.first().filter(|part| !first.contains('/') && part.parse::<u8>().is_ok()).copied();
    match length {
        Some(length) => {
            parts.remove(0);
            (values::prefix(&format!("{first}/{length}")), parts)
        }
        None => (values::prefix(first), parts),
    }
}

/// Metric of the routes of a device by its type (nm_device_get_route_metric_default).
pub(crate) fn default_metric(kind: &str) -> u32 {
    match kind {
        "loopback" => 30,
        "wireguard" | "vpn" => 50,
        "infiniband" => 150,
        "bond" => 300,
        "team" => 350,
        "vlan" => 400,
        "macvlan" => 410,
        "bridge" | "ovs-interface" => 425,
        "tun" => 450,
        "vrf" => 470,
        "vxlan" => 500,
        "dummy" => 550,
        "wifi" | "802-11-wireless" => 600,
        "ip-tunnel" => 675,
        "gsm" | "cdma" => 700,
        _ => 100,
    }
}

fn link(source: &Source, interface: &str, section: &Section<'_>, gathering: &mut Gathering) {
    for entry in &section.entries {
        match entry.key {
            "mtu" => match values::number::<u32>(&entry.value) {
                // 0 is the default of the interface (nm-settings).
                Some(0) => {}
                Some(bytes) => gathering.mtu(interface, bytes, place(&source.path, entry.line)),
                None => gathering.unread(&source.path, entry.line, &entry.value, "no MTU in bytes"),
            },
            "transport-mode" => match infiniband_mode(&entry.value) {
                Some(value) => {
                    let place = Some(place(&source.path, entry.line));
                    gathering.interface(interface).infiniband_mode = Some(Located { value, place });
                }
                None => {
                    gathering.unread(&source.path, entry.line, &entry.value, "neither connected nor datagram")
                }
            },
            "cloned-mac-address" => {
                gathering.interface(interface).link_address = values::link_address(&entry.value);
            }
            _ => {}
        }
    }
}

struct Family<'a> {
    file: &'a str,
    interface: &'a str,
    ipv6: bool,
    /// Metric of routes that state none.
    metric: u32,
    /// Table of routes that state none.
    table: u32,
}

impl Family<'_> {
    fn read(&self, section: &Section<'_>, gathering: &mut Gathering) {
        let is = |key: &str| section.value(key).and_then(|entry| values::truth(&entry.value)) == Some(true);
        // The key counts before gateways of addresses, of which the first does (nm-keyfile.c); with
        // never-default there is none (nm-connection.c).
        let mut gateway = section.value("gateway").map(|entry| (entry.value.clone(), entry.line));
        for entry in &section.entries {
            let key = entry.key.trim_end_matches(|c: char| c.is_ascii_digit());
            let done = match key {
                // Both forms, with or without a number (nm-keyfile.c).
                "address" | "addresses" => self.address(entry, &mut gateway, gathering),
                "route" | "routes" => self.route(entry, section, gathering),
                "routing-rule" => self.rule(entry, gathering),
                "gateway" => Ok(()),
                key if is_without_routes(key) => Ok(()),
                _ if entry.key.ends_with("_options") => Ok(()),
                _ => Err("not a key that is read here".to_owned()),
            };
            if let Err(reason) = done {
                let text = format!("{}={}", entry.key, entry.value);
                gathering.unread(self.file, entry.line, &text, reason);
            }
        }
        if let Some((gateway, line)) = gateway.filter(|_| !is("never-default"))
            && let Err(reason) = self.gateway(&gateway, line, gathering)
        {
            gathering.unread(self.file, line, &gateway, &*reason);
            gathering.unknown_route(Some(self.table), Some(values::everything(self.ipv6)), &reason);
        }
    }

    /// `address1=10.0.0.1/24,10.0.0.254`; the second is the gateway.
    fn address(
        &self,
        entry: &Entry<'_>,
        gateway: &mut Option<(String, u32)>,
        gathering: &mut Gathering,
    ) -> Result<(), String> {
        let (prefix, rest) = prefix_and_rest(&entry.value);
        let mut parts = rest.into_iter();
        let prefix = prefix.ok_or("no address with prefix length")?;
        if prefix.address.is_ipv6() != self.ipv6 {
            return Err("an address of the other family".to_owned());
        }
        gathering.address(self.interface, prefix, place(self.file, entry.line));
        if let Some(text) = parts.next().filter(|text| !text.is_empty()) {
            gateway.get_or_insert_with(|| (text.to_owned(), entry.line));
        }
        Ok(())
    }

    fn gateway(&self, text: &str, line: u32, gathering: &mut Gathering) -> Result<(), String> {
        let via = values::address(text).ok_or("no address of a gateway")?;
        if via.is_unspecified() {
            return Ok(());
        }
        let hop = Hop { via, interface: Some(self.interface.to_owned()), weight: 1, place: None };
        gathering.route(RouteEntry {
            destination: values::everything(self.ipv6),
            table: self.table,
            metric: self.metric,
            action: RouteAction::Gateways(vec![hop]),
            source: None,
            mtu: None,
            protocol: 0,
            place: Some(place(self.file, line)),
        });
        Ok(())
    }

    fn rule(&self, entry: &Entry<'_>, gathering: &mut Gathering) -> Result<(), String> {
        let tokens = ip_arguments::split(&entry.value, entry.line);
        let context = ip_arguments::Context {
            ipv6: Some(self.ipv6),
            ..ip_arguments::Context::of(self.file, gathering)
        };
        let parsed = ip_arguments::rule(&tokens, context).map_err(|error| {
            let place = place(self.file, entry.line);
            ip_arguments::open_rule(&tokens, Some(self.ipv6), place, gathering);
            error.0
        })?;
        let Some(parsed) = parsed else { return Ok(()) };
        if parsed.value.priority.is_none() {
            gathering.refused(Refused {
                what: "rule",
                severity: Severity::Error,
                text: entry.value.clone(),
                reason: "NetworkManager ignores a rule without priority: it is not there".to_owned(),
                advice: format!("write a priority, as in \"priority 101 {}\"", entry.value),
                source: "nm-settings-keyfile(5); nm_ip_routing_rule_validate",
                place: place(self.file, entry.line),
            });
            return Ok(());
        }
        gathering.rule(parsed.value);
        Ok(())
    }

    /// `route1=10.0.0.0/8,10.1.0.1,50` with `route1_options=table=7,weight=2`.
    fn route(
        &self,
        entry: &Entry<'_>,
        section: &Section<'_>,
        gathering: &mut Gathering,
    ) -> Result<(), String> {
        let (destination, rest) = prefix_and_rest(&entry.value);
        let mut parts = rest.into_iter();
        let destination: Prefix = destination.ok_or("no destination with prefix length")?;
        let via: Option<IpAddr> = match parts.next().filter(|text| !text.is_empty()) {
            Some(text) => Some(values::address(text).ok_or("no address of a gateway")?),
            None => None,
        };
        let metric = match parts.next().filter(|text| !text.is_empty()) {
            Some("-1") | None => self.metric,
            Some(text) => values::number(text).ok_or("no metric")?,
        };
        let mut options = Options { table: self.table, ..Options::default() };
        if let Some(entry) = section.value(&format!("{}_options", entry.key)) {
            for (text, reason) in options.read(&entry.value) {
                gathering.unread(self.file, entry.line, &text, reason);
            }
        }
        let via = via.filter(|via| !via.is_unspecified());
        if let Some(reason) = options.unknown {
            gathering.unknown_route(Some(options.table), Some(destination), reason);
            return Err(reason.to_owned());
        }
        if let Some(via) = via.filter(|_| options.is_on_link) {
            gathering.on_link(via, Some(self.interface));
        }
        let interface = self.interface.to_owned();
        let action = match (options.kind.as_str(), via) {
            ("unicast" | "", Some(via)) => {
                let weight = options.weight.unwrap_or(1);
                let place = options.weight.map(|_| place(self.file, entry.line));
                RouteAction::Gateways(vec![Hop { via, interface: Some(interface), weight, place }])
            }
            ("unicast" | "", None) => RouteAction::Link { interface },
            (kind, _) => RouteAction::of_type(kind).ok_or_else(|| values::unsupported_type(kind))?,
        };
        let route = RouteEntry {
            destination,
            table: options.table,
            metric,
            action,
            source: options.source,
            mtu: options.mtu,
            protocol: 0,
            place: Some(place(self.file, entry.line)),
        };
        // Only routes with a weight are merged into one (nm-settings, `weight`).
        if options.weight.is_some() {
            gathering.join_route(route)
        } else {
            gathering.route(route)
        }
        Ok(())
    }
}

#[derive(Default)]
struct Options {
    table: u32,
    weight: Option<u16>,
    source: Option<IpAddr>,
    mtu: Option<u32>,
    kind: String,
    is_on_link: bool,
    /// The route is for some packets only.
    unknown: Option<&'static str>,
}

impl Options {
    /// Reads `table=7,weight=2`; returns the options that were not understood.
    fn read(&mut self, text: &str) -> Vec<(String, &'static str)> {
        let mut unread = Vec::new();
        for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, "true"));
            let understood = match name {
                "table" => values::number(value).map(|table: u32| {
                    self.table = if table == 0 { MAIN_TABLE } else { table };
                }),
                "weight" => values::number(value).map(|weight| self.weight = Some(weight)),
                "src" => values::address(value).map(|source| self.source = Some(source)),
                "mtu" => values::number(value).map(|bytes| self.mtu = Some(bytes)),
                "type" => {
                    value.clone_into(&mut self.kind);
                    Some(())
                }
                "onlink" => values::truth(value).map(|value| self.is_on_link = value),
                "scope" => Some(()),
                "from" | "tos" => {
                    self.unknown =
                        Some("for packets of one source or type of service only, which is not held here");
                    Some(())
                }
                _ => {
                    unread.push((option.to_owned(), "has no place in a routing plan"));
                    continue;
                }
            };
            if understood.is_none() {
                unread.push((option.to_owned(), "no value of this option"));
            }
        }
        unread
    }
}

/// Keys of `[ipv4]` and `[ipv6]` that do not affect static routes.
fn is_without_routes(key: &str) -> bool {
    key.starts_with("dns")
        || key.starts_with("dhcp")
        || key.starts_with("ip6-")
        || key.starts_with("link-local")
        || matches!(
            key,
            "method"
                | "may-fail"
                | "never-default"
                | "addr-gen-mode"
                | "route-metric"
                | "route-table"
                | "ignore-auto-routes"
                | "ignore-auto-dns"
                | "required-timeout"
                | "dad-timeout"
                | "auto-route-ext-gw"
                | "replace-local-rule"
                | "token"
                | "ra-timeout"
                | "mtu"
        )
}
