//! Files of the network scripts: `ifcfg-NAME`, `route-NAME`, `route6-NAME`,
//! `rule-NAME` and `rule6-NAME` (sysconfig.txt of initscripts).

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_schema::{
    fabric::InfinibandMode,
    prefix::Prefix,
    routing::{Hop, Located, MAIN_TABLE, RouteAction, RouteEntry, files::Loader},
};

use crate::read::{
    Source,
    detect::last_part,
    gathering::{Gathering, place},
    ip_arguments::{self, Context, Token},
    statements::{command_lines, joined},
    values,
};

/// Kind of a file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum File {
    Interface,
    Routes { ipv6: bool },
    Rules { ipv6: bool },
}

/// Kind of the file of a name.
pub(super) fn file(name: &str) -> Option<File> {
    // `route-n.txt` and `route-before.log` are what somebody saved of a table.
    let is_saved = name
        .rsplit_once('.')
        .is_some_and(|(_, extension)| matches!(extension, "txt" | "log" | "out" | "text"));
    let begins = |prefix: &str| !is_saved && name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
    match name {
        _ if begins("ifcfg-") => Some(File::Interface),
        _ if begins("route-") => Some(File::Routes { ipv6: false }),
        _ if begins("route6-") => Some(File::Routes { ipv6: true }),
        _ if begins("rule-") => Some(File::Rules { ipv6: false }),
        _ if begins("rule6-") => Some(File::Rules { ipv6: true }),
        _ => None,
    }
}

pub(super) fn read(file: File, source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::NetworkScripts;
    let name = last_part(&source.path);
    let name = name.split_once('-').map_or(name, |(_, name)| name);
    // Files belong together by name; the device is the one that `ifcfg-` states.
    let device = gathering.script_devices.get(name).cloned().unwrap_or_else(|| name.to_owned());
    match file {
        File::Interface => interface(name, source, gathering),
        File::Routes { ipv6 } if is_numbered(&source.text) => {
            numbered_routes(&device, ipv6, source, gathering)
        }
        File::Routes { ipv6 } => lines(source, gathering, |tokens, gathering| {
            route_line(&source.path, ipv6, &device, tokens, gathering)
        }),
        File::Rules { ipv6 } => lines(source, gathering, |tokens, gathering| {
            let context = Context { ipv6: Some(ipv6), ..Context::of(&source.path, gathering) };
            let parsed = ip_arguments::rule(tokens, context).inspect_err(|_| {
                let line = tokens.first().map_or(1, |token| token.line);
                ip_arguments::open_rule(tokens, Some(ipv6), place(&source.path, line), gathering);
            })?;
            let Some(parsed) = parsed else { return Ok(()) };
            gathering.left_out(&source.path, &parsed.left_out);
            gathering.rule(parsed.value);
            Ok(())
        }),
    }
}

/// `/etc/sysconfig/network`: the device that alone has the default route.
pub(super) fn read_network(source: &Source, gathering: &mut Gathering) {
    let settings = settings(&source.text);
    if !settings.is_empty() {
        gathering.understood();
    }
    let text_of = |key: &str| settings.get(key).filter(|(_, value)| !value.is_empty());
    gathering.gateway_device = text_of("GATEWAYDEV").map(|(_, value)| value.clone());
    if let Some((line, value)) = text_of("GATEWAY") {
        gathering.loader = Loader::NetworkScripts;
        let Some(via) = values::address(value) else {
            let reason = "no address of a gateway";
            gathering.unread(&source.path, *line, &format!("GATEWAY={value}"), reason);
            return gathering.unknown_route(Some(MAIN_TABLE), Some(values::everything(false)), reason);
        };
        let mut route = by_gateway(values::everything(via.is_ipv6()), via, "", 0, place(&source.path, *line));
        if let RouteAction::Gateways(hops) = &mut route.action {
            hops.iter_mut().for_each(|hop| hop.interface.clone_from(&gathering.gateway_device));
        }
        gathering.route(route);
    }
}

/// Arguments of `ip route add`, for the device of the file.
fn route_line(
    file: &str,
    ipv6: bool,
    device: &str,
    tokens: &[Token<'_>],
    gathering: &mut Gathering,
) -> Result<(), ip_arguments::ParseError> {
    let context = Context { ipv6: Some(ipv6), device: Some(device), ..Context::of(file, gathering) };
    match ip_arguments::route(tokens, context) {
        Ok(Some(parsed)) => parsed.gather(file, false, gathering),
        Ok(None) => {}
        Err(error) => {
            let destination = tokens.first().and_then(|token| values::prefix(token.text));
            // A line that is no route is refused; one that is may be in any table.
            if destination.is_some() {
                gathering.unknown_route(None, destination, &error.0);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn lines(
    source: &Source,
    gathering: &mut Gathering,
    mut read: impl FnMut(&[Token<'_>], &mut Gathering) -> Result<(), ip_arguments::ParseError>,
) {
    for tokens in command_lines(&source.text) {
        // Some write the command itself into the file, which the scripts refuse.
        if let Err(ip_arguments::ParseError(reason)) = read(&tokens, gathering) {
            let line = tokens.first().map_or(1, |token| token.line);
            gathering.unread(&source.path, line, &joined(&tokens), reason);
        }
    }
}

/// `KEY=value` lines as the shell reads them.
fn settings(text: &str) -> BTreeMap<String, (u32, String)> {
    let mut settings = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let bare = text.trim();
        if bare.starts_with('#') {
            continue;
        }
        if let Some((key, value)) = bare.split_once('=') {
            let value = value.split(" #").next().unwrap_or(value).trim().trim_matches(['"', '\'']);
            settings.insert(key.trim_start_matches("export ").trim().to_owned(), (line, value.to_owned()));
        }
    }
    settings
}

fn interface(name: &str, source: &Source, gathering: &mut Gathering) {
    let settings = settings(&source.text);
    let text_of =
        |key: &str| settings.get(key).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty());
    let device = match (text_of("DEVICE"), text_of("HWADDR").or_else(|| text_of("MACADDR"))) {
        (Some(device), _) => device.to_owned(),
        (None, Some(address))
            if text_of("TYPE").is_some() && text_of("NAME").is_some_and(|it| it != name) =>
        {
            gathering.by_address(&address.to_ascii_lowercase())
        }
        _ => name.to_owned(),
    };
    if device == "lo" {
        return gathering.understood();
    }
    // `eth0:1` is a label of eth0.
    let device = device.split(':').next().unwrap_or(&device).to_owned();
    gathering.script_devices.insert(name.to_owned(), device.clone());
    gathering.interface(&device);
    if let Some(vrf) = text_of("VRF") {
        gathering.vrf_ports.push((device.clone(), vrf.to_owned()));
    }
    run_time(&device, &text_of, gathering);
    for (key, (line, value)) in &settings {
        let place = place(&source.path, *line);
        let done = match key.as_str() {
            _ if value.is_empty() => Ok(()),
            "MTU" => values::number(value)
                .map(|bytes| gathering.mtu(&device, bytes, place))
                .ok_or("no MTU in bytes"),
            "CONNECTED_MODE" => values::truth(value)
                .map(|connected| {
                    let value = if connected { InfinibandMode::Connected } else { InfinibandMode::Datagram };
                    gathering.interface(&device).infiniband_mode =
                        Some(Located { value, place: Some(place) });
                })
                .ok_or("neither yes nor no"),
            "MACADDR" | "HWADDR" => {
                gathering.interface(&device).link_address = values::link_address(value);
                Ok(())
            }
            "METRIC" | "IPV4_ROUTE_METRIC" | "IPV6_ROUTE_METRIC" | "IPV4_ROUTE_TABLE"
            | "IPV6_ROUTE_TABLE" => values::number::<u32>(value).map(|_| ()).ok_or("no number"),
            "GATEWAY" | "IPV6_DEFAULTGW" => gateway(&device, key, value, place, &text_of, gathering),
            "IPV6ADDR" | "IPV6ADDR_SECONDARIES" => {
                let prefixes: Option<Vec<Prefix>> = value.split_whitespace().map(values::prefix).collect();
                prefixes
                    .map(|prefixes| {
                        for prefix in prefixes {
                            gathering.address(&device, prefix, place.clone());
                        }
                    })
                    .ok_or("no IPv6 addresses with prefix lengths")
            }
            // A number, or any word on SUSE (ifcfg(5)).
            key => match key.strip_prefix("IPADDR").filter(|rest| {
                let is_word = rest.starts_with('_') && !matches!(*rest, "_START" | "_END");
                is_word || rest.chars().all(|c| c.is_ascii_digit())
            }) {
                Some(number) => ipv4_prefix(value, number, &text_of)
                    .map(|prefix| gathering.address(&device, prefix, place))
                    .ok_or("no address, or none with PREFIX or NETMASK beside it"),
                None => Ok(()),
            },
        };
        if let Err(reason) = done {
            gathering.unread(&source.path, *line, &format!("{key}={value}"), reason);
        }
    }
}

/// What an interface gets at run time, and the table of its own routes.
fn run_time<'a>(device: &str, text_of: &impl Fn(&str) -> Option<&'a str>, gathering: &mut Gathering) {
    let truth = |key: &str| text_of(key).and_then(values::truth);
    let protocol = text_of("BOOTPROTO").unwrap_or("none").to_ascii_lowercase();
    let six = truth("IPV6_AUTOCONF").or_else(|| truth("DHCPV6C")).or_else(|| truth("IPV6INIT"));
    for (ipv6, is_dynamic) in
        [(false, !matches!(&*protocol, "none" | "static" | "")), (true, six == Some(true))]
    {
        if is_dynamic {
            gathering.dynamic(device, ipv6);
        } else {
            gathering.facts().complete.insert((device.to_owned(), ipv6));
        }
        let key = if ipv6 { "IPV6_ROUTE_TABLE" } else { "IPV4_ROUTE_TABLE" };
        if let Some(table) = text_of(key).and_then(values::number).filter(|table| *table != 0) {
            gathering.facts().connected.insert((device.to_owned(), ipv6), table);
        }
    }
}

/// The default route, unless the device is to have none.
fn gateway<'a>(
    device: &str,
    key: &str,
    value: &str,
    place: clearstream_schema::routing::Place,
    text_of: &impl Fn(&str) -> Option<&'a str>,
    gathering: &mut Gathering,
) -> Result<(), &'static str> {
    let via = values::address(value.split('%').next().unwrap_or(value)).ok_or("no address of a gateway")?;
    let number = |key: &str| text_of(key).and_then(values::number);
    let truth = |key: &str| text_of(key).and_then(values::truth);
    let (is_default, metric, table) = if key == "GATEWAY" {
        ("DEFROUTE", number("IPV4_ROUTE_METRIC").or_else(|| number("METRIC")), number("IPV4_ROUTE_TABLE"))
    } else {
        ("IPV6_DEFROUTE", number("IPV6_ROUTE_METRIC"), number("IPV6_ROUTE_TABLE"))
    };
    let is_of_another = gathering.gateway_device.as_deref().is_some_and(|only| only != device);
    if truth(is_default) == Some(false) || is_of_another {
        return Ok(());
    }
    let destination = values::everything(via.is_ipv6());
    let table = table.filter(|table| *table != 0).unwrap_or(MAIN_TABLE);
    if truth("ONBOOT") == Some(false) {
        gathering.unknown_route(
            Some(table),
            Some(destination),
            "ONBOOT=no: there when the interface is brought up",
        );
        return Ok(());
    }
    let route = by_gateway(destination, via, device, metric.unwrap_or(0), place);
    gathering.route(RouteEntry { table, ..route });
    Ok(())
}

/// `IPADDR1` with `PREFIX1` or `NETMASK1`.
fn ipv4_prefix<'a>(value: &str, number: &str, text_of: &impl Fn(&str) -> Option<&'a str>) -> Option<Prefix> {
    // With its length, or of IPv6 (`IPADDR6`), as on SUSE.
    if value.contains('/') {
        return values::prefix(value);
    }
    let address = match value.parse().ok()? {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => {
            let length = text_of(&format!("PREFIXLEN{number}"))?;
            return values::prefix(&format!("{address}/{length}"));
        }
    };
    let named = text_of(&format!("PREFIX{number}")).or_else(|| text_of(&format!("PREFIXLEN{number}")));
    let length = match named {
        Some(length) => length.parse().ok().filter(|length| *length <= 32)?,
        None => match text_of(&format!("NETMASK{number}")) {
            Some(mask) => values::mask_length(mask.parse().ok()?)?,
            // By the class of the address, as ipcalc and NetworkManager have it (RFC 791, section 3.2).
            None => match address.octets()[0] {
                0..=127 => 8,
                128..=191 => 16,
                _ => 24,
            },
        },
    };
    Some(Prefix { address: address.into(), length })
}

fn by_gateway(
    destination: Prefix,
    via: std::net::IpAddr,
    device: &str,
    metric: u32,
    place: clearstream_schema::routing::Place,
) -> RouteEntry {
    let hop = Hop { via, interface: Some(device.to_owned()), weight: 1, place: None };
    RouteEntry {
        destination,
        table: MAIN_TABLE,
        metric,
        action: RouteAction::Gateways(vec![hop]),
        source: None,
        mtu: None,
        protocol: 0,
        place: Some(place),
    }
}

/// The older form: `ADDRESS0=`, `NETMASK0=`, `GATEWAY0=`.
fn is_numbered(text: &str) -> bool {
    text.lines().any(|line| line.trim_start().starts_with("ADDRESS") && line.contains('='))
}

fn numbered_routes(device: &str, ipv6: bool, source: &Source, gathering: &mut Gathering) {
    let settings = settings(&source.text);
    for (key, (line, value)) in &settings {
        let Some(number) = key.strip_prefix("ADDRESS") else { continue };
        let text_of = |key: &str| settings.get(&format!("{key}{number}")).map(|(_, value)| value.as_str());
        let length = match text_of("NETMASK") {
            Some(mask) => mask.parse().ok().and_then(values::mask_length).or_else(|| mask.parse().ok()),
            None => text_of("PREFIX").and_then(|length| length.parse().ok()),
        };
        let Some(length) = length else {
            let reason = "needs NETMASK or PREFIX of the same number beside it";
            gathering.unread(&source.path, *line, &format!("{key}={value}"), reason);
            gathering.unknown_route(Some(MAIN_TABLE), None, reason);
            continue;
        };
        let mut text = format!("{value}/{length}");
        for (name, key) in [("via", "GATEWAY"), ("metric", "METRIC")] {
            if let Some(value) = text_of(key).filter(|value| !value.is_empty()) {
                text.push_str(&format!(" {name} {value}"));
            }
        }
        text.push_str(&format!(" {}", text_of("OPTIONS").unwrap_or_default()));
        let tokens = ip_arguments::split(&text, *line);
        if let Err(error) = route_line(&source.path, ipv6, device, &tokens, gathering) {
            gathering.unread(&source.path, *line, &format!("{key}={value}"), error.0);
        }
    }
}
