//! Connection profiles of NetworkManager (nm-settings-keyfile(5)).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, Located, MAIN_TABLE, RouteAction, RouteEntry},
};

use crate::read::{
    Source,
    gathering::{Gathering, place},
    ini::{self, Entry, Section},
    ip_arguments,
    script::infiniband_mode,
    values,
};

pub(super) fn read(source: &Source, gathering: &mut Gathering) {
    let (sections, strays) = ini::sections(&source.text);
    for (line, text) in strays {
        gathering.unread(&source.path, line, text, "stands outside of any section");
    }
    let connection = sections.iter().find(|section| section.name == "connection");
    let named = connection.and_then(|section| section.value("interface-name"));
    let interface = match (named, connection.and_then(|section| section.value("id"))) {
        (Some(entry), _) => entry.value.clone(),
        (None, Some(entry)) => {
            let reason = "no interface-name: taken as the interface, which may be another";
            gathering.unread(&source.path, entry.line, &format!("id={}", entry.value), reason);
            entry.value.clone()
        }
        (None, None) => {
            gathering.unread(&source.path, 1, "[connection]", "a profile without interface-name and id");
            return;
        }
    };
    gathering.interface(&interface);
    for section in &sections {
        let family = Family { file: &source.path, interface: &interface, ipv6: section.name == "ipv6" };
        match section.name {
            "ipv4" | "ipv6" => family.read(section, gathering),
            "ethernet" | "802-3-ethernet" | "infiniband" => link(source, &interface, section, gathering),
            _ => {}
        }
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
}

impl Family<'_> {
    fn read(&self, section: &Section<'_>, gathering: &mut Gathering) {
        let default_table = section
            .value("route-table")
            .and_then(|entry| values::number(&entry.value))
            .filter(|table| *table != 0)
            .unwrap_or(MAIN_TABLE);
        for entry in &section.entries {
            let key = entry.key.trim_end_matches(|c: char| c.is_ascii_digit());
            let is_numbered = key.len() < entry.key.len();
            let done = match key {
                "address" if is_numbered => self.address(entry, default_table, gathering),
                "route" if is_numbered => self.route(entry, section, default_table, gathering),
                "routing-rule" if is_numbered => self.rule(entry, gathering),
                "gateway" => self.gateway(&entry.value, entry.line, default_table, gathering),
                key if is_without_routes(key) => Ok(()),
                _ if entry.key.ends_with("_options") => Ok(()),
                _ => Err("not a key that is read here".to_owned()),
            };
            if let Err(reason) = done {
                let text = format!("{}={}", entry.key, entry.value);
                gathering.unread(self.file, entry.line, &text, reason);
            }
        }
    }

    /// `address1=10.0.0.1/24,10.0.0.254`; the second is the gateway.
    fn address(&self, entry: &Entry<'_>, table: u32, gathering: &mut Gathering) -> Result<(), String> {
        let mut parts = entry.value.split([',', ';']).map(str::trim);
        let prefix = parts.next().and_then(values::prefix).ok_or("no address with prefix length")?;
        if prefix.address.is_ipv6() != self.ipv6 {
            return Err("an address of the other family".to_owned());
        }
        gathering.address(self.interface, prefix, place(self.file, entry.line));
        match parts.next() {
            Some(gateway) if !gateway.is_empty() => self.gateway(gateway, entry.line, table, gathering),
            _ => Ok(()),
        }
    }

    fn gateway(&self, text: &str, line: u32, table: u32, gathering: &mut Gathering) -> Result<(), String> {
        let via = values::address(text).ok_or("no address of a gateway")?;
        if via.is_unspecified() {
            return Ok(());
        }
        let hop = Hop { via, interface: Some(self.interface.to_owned()), weight: 1, place: None };
        gathering.route(RouteEntry {
            destination: values::everything(self.ipv6),
            table,
            metric: 0,
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
            file: self.file,
            names: &gathering.names,
            ipv6: Some(self.ipv6),
            device: None,
        };
        let parsed = ip_arguments::rule(&tokens, context).map_err(|error| error.0)?;
        if let Some(parsed) = parsed {
            if parsed.value.priority.is_none() {
                return Err("NetworkManager refuses a rule without priority".to_owned());
            }
            gathering.rule(parsed.value);
        }
        Ok(())
    }

    /// `route1=10.0.0.0/8,10.1.0.1,50` with `route1_options=table=7,weight=2`.
    fn route(
        &self,
        entry: &Entry<'_>,
        section: &Section<'_>,
        default_table: u32,
        gathering: &mut Gathering,
    ) -> Result<(), String> {
        let mut parts = entry.value.split([',', ';']).map(str::trim);
        let destination: Prefix =
            parts.next().and_then(values::prefix).ok_or("no destination with prefix length")?;
        let via: Option<IpAddr> = match parts.next().filter(|text| !text.is_empty()) {
            Some(text) => Some(values::address(text).ok_or("no address of a gateway")?),
            None => None,
        };
        let metric = match parts.next().filter(|text| !text.is_empty()) {
            Some(text) => values::number(text).ok_or("no metric")?,
            None => 0,
        };
        let mut options = Options { table: default_table, ..Options::default() };
        if let Some(entry) = section.value(&format!("{}_options", entry.key)) {
            for (text, reason) in options.read(&entry.value) {
                gathering.unread(self.file, entry.line, &text, reason);
            }
        }
        let via = via.filter(|via| !via.is_unspecified());
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
                "onlink" | "scope" => Some(()),
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
