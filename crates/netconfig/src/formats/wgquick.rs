//! Configurations of wg-quick(8): the interface's addresses, and a route for each of the `AllowedIPs`.

use clearstream_schema::{
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteAction, RouteEntry, files::Loader},
};

use crate::{
    backend::Backend,
    read::{
        Source,
        detect::{FileName, Reader, Turn, has_line, last_part},
        gathering::{Gathering, place},
        ini::{self, Entry},
        script, values,
    },
};

/// Mark and table of the default route; wg-quick takes the next ones where they are taken.
const DEFAULT_TABLE: u32 = 51_820;

#[derive(Debug)]
pub(crate) struct WgQuick;

const READER: Reader = Reader { turn: Turn::Interfaces, read };

impl Backend for WgQuick {
    fn name(&self) -> &'static str {
        "wg-quick"
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        (name.folder == "wireguard" && name.extension == "conf").then_some(READER)
    }

    fn holding(&self, _name: &FileName<'_>, text: &str) -> Option<Reader> {
        let has_key = |key: &str| text.lines().any(|line| line.trim_start().starts_with(key));
        let is_it = has_line(text, "[Interface]") && (has_line(text, "[Peer]") || has_key("PrivateKey"));
        is_it.then_some(READER)
    }
}

/// What `Table` says of the routes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    /// In the main table; a default route in one of its own.
    Auto,
    Off,
    Of(u32),
}

fn read(source: &Source, gathering: &mut Gathering) {
    gathering.loader = Loader::Command;
    let file = &*source.path;
    let name = last_part(file).trim_end_matches(".conf");
    gathering.interface(name);
    for ipv6 in [false, true] {
        gathering.facts().complete.insert((name.to_owned(), ipv6));
    }
    let (sections, strays) = ini::sections(&source.text);
    for (line, text) in strays {
        gathering.unread(file, line, text, "stands outside of any section");
    }
    let entries = |section: &'static str| {
        let of_it = sections.iter().filter(move |known| known.name.eq_ignore_ascii_case(section));
        of_it.flat_map(|section| &section.entries)
    };
    let mut table = Table::Auto;
    for entry in entries("Interface") {
        match &*entry.key.to_ascii_lowercase() {
            "address" => addresses(file, name, entry, gathering),
            "mtu" => match values::number(&entry.value) {
                Some(bytes) => gathering.mtu(name, bytes, place(file, entry.line)),
                None => gathering.unread(file, entry.line, &entry.value, "no MTU in bytes"),
            },
            "table" => {
                table = match (entry.value.as_str(), gathering.names.table(&entry.value)) {
                    ("auto", _) => Table::Auto,
                    ("off", _) => Table::Off,
                    (_, Some(number)) => Table::Of(number),
                    (_, None) => {
                        let reason = "no table by number or known name";
                        gathering.unread(file, entry.line, &entry.value, reason);
                        gathering.unknown_route(None, None, reason);
                        Table::Off
                    }
                };
            }
            "preup" | "postup" => {
                script::line(file, entry.line, &entry.value.replace("%i", name), gathering);
                gathering.loader = Loader::Command;
            }
            _ => {}
        }
    }
    for entry in entries("Peer").filter(|entry| entry.key.eq_ignore_ascii_case("AllowedIPs")) {
        for text in entry.value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            match values::prefix(text) {
                Some(prefix) => allowed(file, name, prefix.network(), table, entry.line, gathering),
                None => gathering.unread(file, entry.line, text, "no prefix"),
            }
        }
    }
}

fn addresses(file: &str, name: &str, entry: &Entry<'_>, gathering: &mut Gathering) {
    for text in entry.value.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match values::prefix(text) {
            Some(prefix) => gathering.address(name, prefix, place(file, entry.line)),
            None => {
                gathering.unread(file, entry.line, text, "no address");
                gathering.facts().complete.remove(&(name.to_owned(), text.contains(':')));
            }
        }
    }
}

/// The route of an allowed prefix (`add_route`, `add_default`): none where a route by the interface covers it.
fn allowed(file: &str, name: &str, prefix: Prefix, table: Table, line: u32, gathering: &mut Gathering) {
    let covers = |network: Prefix| network.length <= prefix.length && network.contains(prefix.address);
    let is_by_it = |route: &&RouteEntry| {
        route.table == MAIN_TABLE && route.action == RouteAction::Link { interface: name.to_owned() }
    };
    let table = match table {
        Table::Off => return gathering.understood(),
        Table::Of(table) => table,
        Table::Auto if prefix.length == 0 => {
            let family = if prefix.address.is_ipv6() { "-6" } else { "-4" };
            gathering.facts().marks.insert(DEFAULT_TABLE);
            // The kernel gives the first the priority below that of the main table, and the second the next.
            for rule in [
                format!("not fwmark {DEFAULT_TABLE} table {DEFAULT_TABLE} priority 32765"),
                "table main suppress_prefixlength 0 priority 32764".to_owned(),
            ] {
                script::line(file, line, &format!("ip {family} rule add {rule}"), gathering);
            }
            gathering.loader = Loader::Command;
            DEFAULT_TABLE
        }
        Table::Auto => {
            let own =
                gathering.interface(name).addresses.iter().any(|address| covers(address.value.network()));
            if own || gathering.routing.routes.iter().filter(is_by_it).any(|route| covers(route.destination))
            {
                return;
            }
            MAIN_TABLE
        }
    };
    gathering.route(RouteEntry {
        destination: prefix,
        table,
        metric: 0,
        action: RouteAction::Link { interface: name.to_owned() },
        source: None,
        mtu: None,
        protocol: 0,
        place: Some(place(file, line)),
    });
}
