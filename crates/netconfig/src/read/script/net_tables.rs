//! The tables that net-tools prints: `route -n` and `netstat -rn`, of IPv4 and IPv6 (route(8), netstat(8)). They are the
//! main table alone.

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry, files::Loader},
};

use crate::read::{
    Source,
    gathering::{Gathering, place},
    values,
};

/// The kernel as the owner of a route (rtnetlink(7)).
const RTPROT_KERNEL: u8 = 2;

/// What the columns of a table are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Columns {
    /// Destination, gateway, netmask, flags, metric (absent in what netstat prints) ... interface.
    Four { has_metric: bool },
    /// Destination, next hop, flags, metric ... interface.
    Six,
}

fn columns(line: &str) -> Option<Columns> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["Destination", "Gateway", "Genmask", "Flags", next, ..] => {
            Some(Columns::Four { has_metric: next == "Metric" })
        }
        ["Destination", "Next", "Hop", "Flag" | "Flags", ..] => Some(Columns::Six),
        _ => None,
    }
}

/// Whether a text has such a table.
pub(crate) fn is_table(text: &str) -> bool {
    text.lines().any(|line| columns(line).is_some())
}

/// Reads the tables of a text, and gives back the rest, line by line.
pub(super) fn read(source: &Source, gathering: &mut Gathering) -> Option<String> {
    if !is_table(&source.text) {
        return None;
    }
    gathering.understood();
    gathering.loader = Loader::Kernel;
    let (mut table, mut rest) = (None, Vec::new());
    for (line, text) in (1..).zip(source.text.lines()) {
        let found = columns(text);
        let is_title = text.trim_start().starts_with("Kernel IP") || is_call(text);
        table = if found.is_some() { found } else { table.filter(|_| !is_title) };
        let is_row =
            found.is_none() && table.is_some_and(|columns| row(&source.path, line, text, columns, gathering));
        if !is_row && found.is_none() {
            table = table.filter(|_| text.trim().is_empty());
        }
        rest.push(if is_row || is_title || found.is_some() { "" } else { text });
    }
    gathering.loader = Loader::Command;
    Some(rest.join("\n"))
}

/// `$ route -n`, `# netstat -rn`: the call above a table.
fn is_call(line: &str) -> bool {
    let mut words = line.split_whitespace().rev().skip_while(|word| word.starts_with('-'));
    let program = words.next().unwrap_or_default();
    matches!(super::last_part(program), "route" | "netstat")
        && words.next().is_none_or(|prompt| prompt.ends_with(['$', '#', '>', '%']) || prompt == "sudo")
}

/// Reads a row; whether it is one.
fn row(file: &str, line: u32, text: &str, columns: Columns, gathering: &mut Gathering) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (destination, gateway, flags, metric, interface) = match (columns, &words[..]) {
        (Columns::Four { has_metric }, [to, gateway, mask, flags, metric, _, _, interface]) => {
            let to = if *to == "default" { "0.0.0.0" } else { to };
            (format!("{to}/{mask}"), *gateway, *flags, has_metric.then_some(*metric), *interface)
        }
        (Columns::Six, [to, gateway, flags, metric, .., interface]) if words.len() >= 6 => {
            ((*to).to_owned(), *gateway, *flags, Some(*metric), *interface)
        }
        _ => return false,
    };
    if interface == "lo" || flags.contains('n') && columns == Columns::Six {
        return true;
    }
    let destination = values::prefix(&destination.replace(['[', ']'], "")).map(|prefix| prefix.network());
    // `*` and `0.0.0.0` are no gateway; a name stands where `-n` does not.
    let via = values::address(gateway.trim_matches(['[', ']']));
    let is_direct = via.is_some_and(|via| via.is_unspecified()) || matches!(gateway, "*" | "-");
    let action = match via {
        _ if flags.contains('!') => Some(RouteAction::Unreachable),
        _ if is_direct => Some(RouteAction::Link { interface: interface.to_owned() }),
        Some(via) => {
            let hop = Hop { via, interface: Some(interface.to_owned()), weight: 1, place: None };
            Some(RouteAction::Gateways(vec![hop]))
        }
        None => None,
    };
    add(file, line, destination, metric, action, gathering);
    true
}

fn add(
    file: &str,
    line: u32,
    destination: Option<Prefix>,
    metric: Option<&str>,
    action: Option<RouteAction>,
    gathering: &mut Gathering,
) {
    let is_of_kernel = destination.is_some_and(|it| {
        it.address.is_multicast()
            || matches!(it.address, std::net::IpAddr::V6(address) if address.is_unicast_link_local())
    });
    if is_of_kernel {
        return;
    }
    let number = metric.map_or(Some(0), values::number);
    // Without its metric a second one is not told from the first.
    let known = &gathering.routing.routes;
    let is_second = metric.is_none() && known.iter().any(|route| Some(route.destination) == destination);
    match (destination, number, action) {
        (Some(destination), Some(metric), Some(action)) if !is_second => gathering.route(RouteEntry {
            destination,
            table: MAIN_TABLE,
            metric,
            // The network of an address, as far as such a table tells.
            protocol: if matches!(action, RouteAction::Link { .. }) { RTPROT_KERNEL } else { 0 },
            action,
            source: None,
            mtu: None,
            place: Some(place(file, line)),
        }),
        _ => gathering.unknown_route(Some(MAIN_TABLE), destination, "printed without numbers or its metric"),
    }
}
