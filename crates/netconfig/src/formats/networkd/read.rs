//! `.network` files of systemd-networkd (systemd.network(5)).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        GroupMember, Hop, Located, MAIN_TABLE, Nexthop, NexthopTarget, RouteAction, RouteEntry,
        files::{Loader, Refused},
    },
    tune::Severity,
};

use crate::read::{
    Source,
    detect::last_part,
    gathering::{Gathering, place},
    ini::{self, Entry, Section},
    script::infiniband_mode,
    values,
};

pub(super) fn read(source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::Networkd;
    let (sections, strays) = ini::sections(&source.text);
    for (line, text) in strays {
        gathering.unread(&source.path, line, text, "stands outside of any section");
    }
    let name = last_part(&source.path).to_owned();
    for interface in interfaces(source, &sections, gathering) {
        gathering.interface(&interface);
        let mut files = gathering.networks.iter();
        let first = files.find(|(_, known)| known.contains(&interface)).map(|(name, _)| name.clone());
        if let Some(first) = first {
            second_file(source, &interface, &first, gathering);
            continue;
        }
        gathering.networks.entry(name.clone()).or_default().push(interface.clone());
        read_sections(source, &interface, &sections, gathering);
    }
}

/// A file for an interface that has one already.
fn second_file(source: &Source, interface: &str, first: &str, gathering: &mut Gathering) {
    gathering.refused(Refused {
        what: "file",
        severity: Severity::Error,
        text: last_part(&source.path).to_owned(),
        reason: format!(
            "systemd-networkd takes the first file in the order of names that matches {interface}, which is {first}: \
             nothing of this one is in effect"
        ),
        advice: format!("put it into {first}, or into {first}.d/NAME.conf"),
        source: "systemd.network(5)",
        place: place(&source.path, 1),
    });
}

/// A file of `NAME.network.d` adds to NAME, which has been read by then.
pub(super) fn read_drop_in(source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::Networkd;
    let folder = source.path.rsplit('/').nth(1).unwrap_or_default();
    let main = folder.strip_suffix(".d").unwrap_or(folder);
    let Some(interfaces) = gathering.networks.get(main).cloned() else {
        gathering.unread(&source.path, 1, folder, format!("adds to {main}, which is not among the files"));
        return;
    };
    let (sections, strays) = ini::sections(&source.text);
    for (line, text) in strays {
        gathering.unread(&source.path, line, text, "stands outside of any section");
    }
    for interface in interfaces {
        read_sections(source, &interface, &sections, gathering);
    }
}

fn read_sections(source: &Source, interface: &str, sections: &[Section<'_>], gathering: &mut Gathering) {
    let of_network = |key: &str| {
        let mut all = sections.iter().filter(|section| section.name == "Network");
        all.find_map(|section| section.value(key)).map(|entry| entry.value.as_str())
    };
    let dhcp = of_network("DHCP").unwrap_or("no");
    let is_dhcp =
        |ipv6: bool| values::truth(dhcp) == Some(true) || dhcp == if ipv6 { "ipv6" } else { "ipv4" };
    let takes_advertisements = of_network("IPv6AcceptRA").and_then(values::truth) == Some(true);
    for ipv6 in [false, true] {
        if is_dhcp(ipv6) || ipv6 && takes_advertisements {
            gathering.dynamic(interface, ipv6);
        } else {
            gathering.facts().complete.insert((interface.to_owned(), ipv6));
        }
    }
    // Routes of an interface of a VRF are in its table, unless they state another.
    let vrf = of_network("VRF").and_then(|vrf| gathering.vrfs.get(vrf).copied());
    if let Some(table) = vrf {
        gathering.vrf_member(interface, table);
    }
    let file = File {
        path: &source.path,
        interface,
        table: vrf.unwrap_or(MAIN_TABLE),
        is_dhcp: (is_dhcp(false), is_dhcp(true)),
    };
    for section in sections {
        let done = match section.name {
            "Route" => file.route(section, gathering),
            "NextHop" => file.nexthop(section, gathering),
            "RoutingPolicyRule" => file.rule(section, gathering),
            _ => {
                file.entries(section, gathering);
                Ok(())
            }
        };
        if let Err((line, text, reason)) = done {
            gathering.unread(&source.path, line, &text, reason);
            match section.name {
                "Route" => file.unknown(section, gathering),
                "RoutingPolicyRule" => file.open_rule(section, &text, gathering),
                _ => {}
            }
        }
    }
}

/// What could not be understood: line, text, reason.
pub(super) type Unfit = (u32, String, String);

pub(super) fn unfit(entry: &Entry<'_>, reason: &str) -> Unfit {
    (entry.line, format!("{}={}", entry.key, entry.value), reason.to_owned())
}

/// The interfaces that the file is for.
fn interfaces(source: &Source, sections: &[Section<'_>], gathering: &mut Gathering) -> Vec<String> {
    let matches = sections.iter().find(|section| section.name == "Match");
    let (line, name) = match matches.and_then(|section| section.value("Name")) {
        Some(entry) => (entry.line, entry.value.as_str()),
        None => (matches.map_or(1, |section| section.line), ""),
    };
    let address = matches
        .and_then(|section| section.value("MACAddress").or_else(|| section.value("PermanentMACAddress")))
        .map(|entry| entry.value.to_ascii_lowercase());
    let names: Vec<String> = name.split_whitespace().map(str::to_owned).collect();
    if let ([], Some(address)) = (&names[..], address)
        && !address.contains(' ')
    {
        return vec![gathering.by_address(&address)];
    }
    // By a pattern or by what it is: the name is known only at run time, and stands for itself here.
    let is_plain = |name: &String| !name.contains(['*', '?', '[']);
    let names = match matches.map(|section| &section.entries[..]) {
        Some([first, ..]) if names.is_empty() => vec![format!("{}={}", first.key, first.value)],
        _ => names,
    };
    if names.is_empty() || name.contains('!') {
        let reason = "for no interface by name: write [Match] Name=; the file is not read";
        gathering.unread(&source.path, line, &format!("Name={name}"), reason);
        return Vec::new();
    }
    for name in names.iter().filter(|name| !is_plain(name) || name.contains('=')) {
        gathering.facts().nameless.insert(name.clone());
    }
    names
}

pub(super) struct File<'a> {
    pub(super) path: &'a str,
    interface: &'a str,
    /// Table of routes that state none.
    table: u32,
    /// Whether it asks for addresses, by family.
    is_dhcp: (bool, bool),
}

impl File<'_> {
    /// Sections whose entries stand each for themselves.
    fn entries(&self, section: &Section<'_>, gathering: &mut Gathering) {
        for entry in &section.entries {
            let place = place(self.path, entry.line);
            let value = entry.value.as_str();
            let done = match (section.name, entry.key) {
                ("Link", "MTUBytes") => {
                    bytes(value).map(|bytes| gathering.mtu(self.interface, bytes, place)).ok_or("no MTU")
                }
                ("Link", "MACAddress") => {
                    gathering.interface(self.interface).link_address = values::link_address(value);
                    Ok(())
                }
                // An empty assignment takes back what was assigned before (systemd.syntax(7)).
                ("Network" | "Address", "Address") if value.is_empty() => {
                    gathering.clear_addresses(self.interface);
                    Ok(())
                }
                ("Network", "Gateway") if value.is_empty() => Ok(()),
                ("Network" | "Address", "Address") => values::prefix(value)
                    .map(|prefix| gathering.address(self.interface, prefix, place))
                    .ok_or("no address with prefix length"),
                ("Network", "Gateway") => match values::address(value) {
                    Some(via) => {
                        gathering.route(self.default_route(via, entry.line));
                        Ok(())
                    }
                    None if value.starts_with('_') => {
                        let ipv6 = value != "_dhcp4";
                        let reason = "the gateway is known at run time";
                        gathering.unknown_route(Some(self.table), Some(values::everything(ipv6)), reason);
                        Ok(())
                    }
                    None => Err("no address of a gateway"),
                },
                ("Network", "IPMasquerade") if matches!(value, "ipv4" | "both" | "yes") => {
                    gathering.sysctl("net.ipv4.ip_forward", "1", place);
                    Ok(())
                }
                ("Network", "IPForward" | "IPv4Forwarding" | "IPv6Forwarding" | "IPv4ReversePathFilter") => {
                    self.sysctl(entry, gathering)
                }
                ("IPoIB", "Mode") => infiniband_mode(value)
                    .map(|value| {
                        let located = Located { value, place: Some(place) };
                        gathering.interface(self.interface).infiniband_mode = Some(located);
                    })
                    .ok_or("neither connected nor datagram"),
                _ => Ok(()),
            };
            if let Err(reason) = done {
                let (line, text, reason) = unfit(entry, reason);
                gathering.unread(self.path, line, &text, reason);
            }
        }
    }

    fn default_route(&self, via: IpAddr, line: u32) -> RouteEntry {
        RouteEntry {
            destination: values::everything(via.is_ipv6()),
            table: self.table,
            metric: 0,
            action: RouteAction::Gateways(vec![self.hop(via)]),
            source: None,
            mtu: None,
            protocol: 0,
            place: Some(place(self.path, line)),
        }
    }

    fn hop(&self, via: IpAddr) -> Hop {
        Hop { via, interface: Some(self.interface.to_owned()), weight: 1, place: None }
    }

    /// Settings that networkd turns into sysctls.
    fn sysctl(&self, entry: &Entry<'_>, gathering: &mut Gathering) -> Result<(), &'static str> {
        let place = place(self.path, entry.line);
        let own = format!("net.ipv4.conf.{}", self.interface.replace('.', "/"));
        let on = |value: bool| if value { "1" } else { "0" };
        let truth = values::truth(&entry.value);
        match (entry.key, entry.value.as_str()) {
            ("IPForward", value) => {
                let (four, six) = match (value, truth) {
                    ("ipv4", _) => (true, false),
                    ("ipv6", _) => (false, true),
                    ("kernel", _) => return Ok(()),
                    (_, Some(both)) => (both, both),
                    _ => return Err("neither yes, no, ipv4, ipv6 nor kernel"),
                };
                gathering.sysctl("net.ipv4.ip_forward", on(four), place.clone());
                gathering.sysctl("net.ipv6.conf.all.forwarding", on(six), place);
            }
            ("IPv4Forwarding", _) => {
                gathering.sysctl(&format!("{own}.forwarding"), on(truth.ok_or("neither yes nor no")?), place);
            }
            ("IPv6Forwarding", _) => {
                let key = format!("{}.forwarding", own.replacen("ipv4", "ipv6", 1));
                gathering.sysctl(&key, on(truth.ok_or("neither yes nor no")?), place);
            }
            (_, value) => {
                let number = match value {
                    "no" => "0",
                    "strict" => "1",
                    "loose" => "2",
                    _ => return Err("neither no, strict nor loose"),
                };
                gathering.sysctl(&format!("{own}.rp_filter"), number, place);
            }
        }
        Ok(())
    }

    fn nexthop(&self, section: &Section<'_>, gathering: &mut Gathering) -> Result<(), Unfit> {
        let (mut id, mut via, mut members) = (None, None, Vec::new());
        let mut is_blackhole = false;
        for entry in &section.entries {
            let value = entry.value.as_str();
            match entry.key {
                "Id" => id = Some(values::number(value).ok_or_else(|| unfit(entry, "no nexthop id"))?),
                "Gateway" => {
                    via =
                        Some(values::address(value).ok_or_else(|| unfit(entry, "no address of a gateway"))?);
                }
                "Group" => {
                    for member in value.split_whitespace() {
                        members.push(
                            group_member(member).ok_or_else(|| unfit(entry, "no list such as 1:1 2:3"))?,
                        );
                    }
                }
                "Blackhole" => is_blackhole = values::truth(value) == Some(true),
                "OnLink" | "Family" => {}
                _ => return Err(unfit(entry, "not a key of [NextHop] that is read here")),
            }
        }
        let fail = |reason: &str| (section.line, "[NextHop]".to_owned(), reason.to_owned());
        let target = match via {
            _ if is_blackhole => NexthopTarget::Blackhole,
            _ if !members.is_empty() => NexthopTarget::Group { members, resilient: None },
            Some(via) => NexthopTarget::Gateway { via, interface: self.interface.to_owned() },
            None => return Err(fail("a nexthop without gateway or group")),
        };
        let id = id.ok_or_else(|| fail("a nexthop without Id= gets a number that no file states"))?;
        let place = Some(place(self.path, section.line));
        gathering.nexthop(Nexthop { id, target, protocol: 0, place }, false);
        Ok(())
    }

    fn route(&self, section: &Section<'_>, gathering: &mut Gathering) -> Result<(), Unfit> {
        let mut destination: Option<Prefix> = None;
        let (mut via, mut nexthop, mut hops) = (None, None, Vec::new());
        let (mut kind, mut is_on_link) = ("unicast", false);
        let mut route = RouteEntry {
            destination: values::everything(false),
            table: self.table,
            metric: 0,
            action: RouteAction::Link { interface: self.interface.to_owned() },
            source: None,
            mtu: None,
            protocol: 0,
            place: Some(place(self.path, section.line)),
        };
        for entry in &section.entries {
            let value = entry.value.as_str();
            let no = |reason| move || unfit(entry, reason);
            match entry.key {
                "Destination" => {
                    destination = Some(values::prefix(value).ok_or_else(no("no destination"))?);
                }
                "Gateway" if value.starts_with('_') => return self.by_run_time(section, entry, gathering),
                "Gateway" => via = Some(values::address(value).ok_or_else(no("no address of a gateway"))?),
                "Table" => match gathering.networkd_table(value) {
                    Some(table) => route.table = table,
                    None => return self.ignored(entry, "route", NO_TABLE, gathering),
                },
                "Metric" => route.metric = values::number(value).ok_or_else(no("no metric"))?,
                "PreferredSource" => {
                    route.source = Some(values::address(value).ok_or_else(no("no address"))?);
                }
                "MTUBytes" => route.mtu = Some(bytes(value).ok_or_else(no("no MTU"))?),
                "Protocol" => {
                    let protocol = gathering.names.protocol(value);
                    route.protocol = protocol.ok_or_else(no("no protocol by number or known name"))?;
                }
                "NextHop" => nexthop = Some(values::number(value).ok_or_else(no("no nexthop id"))?),
                "MultiPathRoute" => {
                    let hop = self.multipath(value).ok_or_else(no("no ADDRESS[@INTERFACE] [WEIGHT]"))?;
                    hops.push(Hop { place: Some(place(self.path, entry.line)), ..hop });
                }
                "Type" => kind = value,
                "GatewayOnLink" | "GatewayOnlink" | "OnLink" => {
                    is_on_link = values::truth(value) == Some(true)
                }
                "Scope" | "IPv6Preference" => {}
                "Source" | "TypeOfService" => {
                    return Err(unfit(entry, "the route is for some packets only, which is not held here"));
                }
                _ => {
                    let (line, text, _) = unfit(entry, "");
                    gathering.unread(self.path, line, &text, "has no place in a routing plan");
                }
            }
        }
        let fail = |reason: &str| (section.line, "[Route]".to_owned(), reason.to_owned());
        if let (Some(_), [_, ..], Some(entry)) = (via, &hops[..], section.value("Gateway")) {
            return self.ignored(entry, "route", BOTH_GATEWAYS, gathering);
        }
        if let Some(via) = via.filter(|_| is_on_link) {
            gathering.on_link(via, Some(self.interface));
        }
        hops.splice(0..0, via.map(|via| self.hop(via)));
        let family = hops.first().map(|hop| hop.via.is_ipv6());
        route.destination = match (destination, family) {
            (Some(destination), _) => destination,
            (None, Some(ipv6)) => values::everything(ipv6),
            (None, None) => return Err(fail("a route without destination and gateway")),
        };
        route.action = match (kind, nexthop) {
            ("unicast", Some(id)) => RouteAction::Nexthop(id),
            ("unicast", None) if hops.is_empty() => route.action,
            ("unicast", None) => RouteAction::Gateways(hops),
            (kind, _) => RouteAction::of_type(kind).ok_or_else(|| fail(&values::unsupported_type(kind)))?,
        };
        gathering.route(route);
        Ok(())
    }

    /// A gateway that DHCP or a router advertisement names: without these the section is ignored.
    fn by_run_time(
        &self,
        section: &Section<'_>,
        entry: &Entry<'_>,
        gathering: &mut Gathering,
    ) -> Result<(), Unfit> {
        let ipv6 = entry.value != "_dhcp4";
        if entry.value.starts_with("_dhcp") && !(if ipv6 { self.is_dhcp.1 } else { self.is_dhcp.0 }) {
            let reason = "the gateway is that of DHCP, which the file does not use (DHCP=)";
            return self.ignored(
                entry,
                "route",
                (reason, "write DHCP= in [Network], or the gateway's address"),
                gathering,
            );
        }
        self.unknown(section, gathering);
        Ok(())
    }

    /// A route of which the next hop is not known, or that is not understood.
    fn unknown(&self, section: &Section<'_>, gathering: &mut Gathering) {
        let value = |key: &str| section.value(key).map(|entry| entry.value.as_str());
        let table = value("Table").map_or(Some(self.table), |name| gathering.networkd_table(name));
        let is_ipv6 =
            value("Gateway").is_some_and(|via| via.contains(':') || matches!(via, "_dhcp6" | "_ipv6ra"));
        let destination = value("Destination").map_or(Some(values::everything(is_ipv6)), values::prefix);
        gathering.unknown_route(
            table,
            destination,
            "a part of the section is known at run time, or not held here",
        );
    }

    /// A section that systemd-networkd ignores, and says so in its log.
    pub(super) fn ignored(
        &self,
        entry: &Entry<'_>,
        what: &'static str,
        (why, advice): (&str, &str),
        gathering: &mut Gathering,
    ) -> Result<(), Unfit> {
        gathering.refused(Refused {
            what,
            severity: Severity::Error,
            text: format!("{}={}", entry.key, entry.value),
            reason: format!("systemd-networkd ignores the section: {why}"),
            advice: advice.to_owned(),
            source: "systemd.network(5); measured with systemd 252",
            place: place(self.path, entry.line),
        });
        Ok(())
    }

    /// `10.10.0.11@ib1 2`, or as one gateway where only the kernel's choice is given.
    fn multipath(&self, text: &str) -> Option<Hop> {
        let mut tokens = text.split_whitespace();
        let target = tokens.next()?;
        let weight = tokens.next().map_or(Some(1), values::number)?;
        let (via, interface) = target.split_once('@').unwrap_or((target, self.interface));
        Some(Hop { via: values::address(via)?, interface: Some(interface.to_owned()), weight, place: None })
    }
}

/// Why a section is ignored, and what to write instead.
pub(super) const NO_TABLE: (&str, &str) = (
    "there is no table of this name (rt_tables is not read)",
    "write the number, or RouteTable=NAME:NUMBER in [Network] of networkd.conf",
);
const BOTH_GATEWAYS: (&str, &str) =
    ("Gateway= cannot be given together with MultiPathRoute=", "write each gateway as MultiPathRoute=");

/// Bytes with the suffixes of systemd.syntax(7), base 1024.
fn bytes(text: &str) -> Option<u32> {
    let (digits, factor) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1024),
        None => (text, 1),
    };
    digits.trim().parse::<u32>().ok()?.checked_mul(factor)
}

/// `7001:2`; the weight defaults to 1.
fn group_member(text: &str) -> Option<GroupMember> {
    let (id, weight) = text.split_once(':').unwrap_or((text, "1"));
    Some(GroupMember { id: values::number(id)?, weight: values::number(weight)? })
}
