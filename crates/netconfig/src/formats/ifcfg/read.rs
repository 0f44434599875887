//! Files of the network scripts: `ifcfg-NAME`, `route-NAME`, `route6-NAME`,
//! `rule-NAME` and `rule6-NAME` (sysconfig.txt of initscripts).

use std::{collections::BTreeMap, net::Ipv4Addr};

use clearstream_schema::{
    fabric::InfinibandMode,
    prefix::Prefix,
    routing::{Hop, Located, MAIN_TABLE, RouteAction, RouteEntry},
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
    let begins = |prefix: &str| name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty());
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
    let name = last_part(&source.path);
    let device = name.split_once('-').map_or(name, |(_, device)| device);
    match file {
        File::Interface => interface(device, source, gathering),
        File::Routes { ipv6 } if is_numbered(&source.text) => {
            numbered_routes(device, ipv6, source, gathering)
        }
        File::Routes { ipv6 } => lines(source, gathering, |tokens, gathering| {
            let context = Context {
                file: &source.path,
                names: &gathering.names,
                ipv6: Some(ipv6),
                device: Some(device),
            };
            let Some(parsed) = ip_arguments::route(tokens, context)? else { return Ok(()) };
            gathering.left_out(&source.path, &parsed.left_out);
            gathering.route(parsed.value);
            Ok(())
        }),
        File::Rules { ipv6 } => lines(source, gathering, |tokens, gathering| {
            let context =
                Context { file: &source.path, names: &gathering.names, ipv6: Some(ipv6), device: None };
            let Some(parsed) = ip_arguments::rule(tokens, context)? else { return Ok(()) };
            gathering.left_out(&source.path, &parsed.left_out);
            gathering.rule(parsed.value);
            Ok(())
        }),
    }
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

fn interface(device: &str, source: &Source, gathering: &mut Gathering) {
    let settings = settings(&source.text);
    let text_of =
        |key: &str| settings.get(key).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty());
    let device = text_of("DEVICE").unwrap_or(device).to_owned();
    if device == "lo" {
        return;
    }
    gathering.interface(&device);
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
            "MACADDR" => {
                gathering.interface(&device).link_address = values::link_address(value);
                Ok(())
            }
            "GATEWAY" | "IPV6_DEFAULTGW" => match values::address(value.split('%').next().unwrap_or(value)) {
                Some(via) => {
                    let destination = values::everything(via.is_ipv6());
                    gathering.route(by_gateway(destination, via, &device, 0, place));
                    Ok(())
                }
                None => Err("no address of a gateway"),
            },
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
            key => match key.strip_prefix("IPADDR").filter(|rest| rest.chars().all(|c| c.is_ascii_digit())) {
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

/// `IPADDR1` with `PREFIX1` or `NETMASK1`.
fn ipv4_prefix<'a>(value: &str, number: &str, text_of: &impl Fn(&str) -> Option<&'a str>) -> Option<Prefix> {
    let address: Ipv4Addr = value.parse().ok()?;
    let length = match text_of(&format!("PREFIX{number}")) {
        Some(length) => length.parse().ok().filter(|length| *length <= 32)?,
        None => values::mask_length(text_of(&format!("NETMASK{number}"))?.parse().ok()?)?,
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
        let destination = length.and_then(|length| values::prefix(&format!("{value}/{length}")));
        let via = text_of("GATEWAY").and_then(values::address);
        let metric = text_of("METRIC").map_or(Some(0), values::number);
        match (destination, via, metric) {
            (Some(destination), Some(via), Some(metric)) if destination.address.is_ipv6() == ipv6 => {
                gathering.route(by_gateway(destination, via, device, metric, place(&source.path, *line)));
            }
            _ => gathering.unread(
                &source.path,
                *line,
                &format!("{key}={value}"),
                "needs NETMASK and GATEWAY of the same number beside it",
            ),
        }
    }
}
