//! Debian's `/etc/network/interfaces` (interfaces(5)), with the keys that ifupdown2 adds.

use clearstream_schema::{
    prefix::Prefix,
    routing::{Hop, MAIN_TABLE, RouteAction, RouteEntry},
};

use crate::{
    backend::Backend,
    read::{
        Source,
        detect::{FileName, Reader, Turn},
        gathering::{Gathering, place},
        script, values,
    },
};

#[derive(Debug)]
pub(crate) struct Ifupdown;

const READER: Reader = Reader { turn: Turn::Interfaces, read };

impl Backend for Ifupdown {
    fn name(&self) -> &'static str {
        "ifupdown"
    }

    fn named(&self, name: &FileName<'_>) -> Option<Reader> {
        let is_it = name.name == "interfaces" && matches!(name.folder, "network" | "" | ".")
            || name.folder == "interfaces.d";
        is_it.then_some(READER)
    }

    fn holding(&self, _name: &FileName<'_>, text: &str) -> Option<Reader> {
        text.lines().any(|line| is_iface(&words(line))).then_some(READER)
    }
}

/// `iface NAME FAMILY METHOD`.
fn is_iface(words: &[&str]) -> bool {
    matches!(words, ["iface", _, "inet" | "inet6" | "can" | "ipx", _, ..] | ["iface", _])
}

fn words(line: &str) -> Vec<&str> {
    let line = line.trim();
    if line.starts_with('#') { Vec::new() } else { line.split_whitespace().collect() }
}

/// Lines joined at a backslash, with the line each begins at.
fn joined_lines(text: &str) -> Vec<(u32, String)> {
    let mut joined: Vec<(u32, String)> = Vec::new();
    let mut goes_on = false;
    for (line, text) in (1..).zip(text.lines()) {
        let (body, continues) = match text.trim_end().strip_suffix('\\') {
            Some(body) => (body, true),
            None => (text, false),
        };
        match joined.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                last.push(' ');
                last.push_str(body.trim());
            }
            None => joined.push((line, body.to_owned())),
        }
        goes_on = continues;
    }
    joined
}

/// What a stanza says of its interface.
#[derive(Default)]
struct Stanza {
    name: String,
    ipv6: bool,
    method: String,
    addresses: Vec<(u32, String)>,
    length: Option<u8>,
    gateway: Option<(u32, String)>,
    metric: u32,
}

fn read(source: &Source, gathering: &mut Gathering) {
    let mut stanza: Option<Stanza> = None;
    let mut is_mapping = false;
    for (line, text) in joined_lines(&source.text) {
        let words = words(&text);
        let [first, rest @ ..] = &words[..] else { continue };
        if is_iface(&words) {
            finish(&source.path, stanza.take(), gathering);
            is_mapping = false;
            let Some(name) = rest.first().and_then(|name| name.split(':').next()) else { continue };
            let name = name.to_owned();
            gathering.interface(&name);
            let family = rest.get(1).copied().unwrap_or("inet");
            let method = rest.get(2).copied().unwrap_or("static").to_owned();
            stanza = Some(Stanza { name, ipv6: family == "inet6", method, ..Stanza::default() });
            continue;
        }
        match *first {
            "auto" | "no-auto-down" | "no-scripts" | "source-directory" | "template" => {
                gathering.understood()
            }
            allow if allow.starts_with("allow-") => gathering.understood(),
            "source" => sourced(source, line, rest, gathering),
            "mapping" => {
                finish(&source.path, stanza.take(), gathering);
                is_mapping = true;
                let reason = "which stanza is used is chosen at run time";
                gathering.unread(&source.path, line, text.trim(), reason);
                for name in rest {
                    gathering.dynamic(name, false);
                }
            }
            _ if is_mapping => {}
            _ => match &mut stanza {
                Some(stanza) => stanza.option(&source.path, line, first, rest, gathering),
                None => {
                    gathering.unread(&source.path, line, text.trim(), "stands in no stanza of an interface")
                }
            },
        }
    }
    finish(&source.path, stanza, gathering);
}

/// A file that is read in its place: among the files, or reported.
fn sourced(source: &Source, line: u32, rest: &[&str], gathering: &mut Gathering) {
    gathering.understood();
    for file in rest {
        let name = file.rsplit('/').next().unwrap_or(file);
        let is_given =
            name.contains(['*', '?', '[']) || gathering.paths.iter().any(|path| path.ends_with(name));
        if !is_given {
            gathering.unread(&source.path, line, file, "is not among the files: give it too");
        }
    }
}

impl Stanza {
    fn option(&mut self, file: &str, line: u32, key: &str, rest: &[&str], gathering: &mut Gathering) {
        let value = rest.first().copied().unwrap_or_default();
        let fail = |reason: &str, gathering: &mut Gathering| {
            gathering.unread(file, line, &format!("{key} {value}"), reason);
        };
        match key {
            "address" => self.addresses.push((line, value.to_owned())),
            "netmask" => {
                let by_mask = value.parse().ok().and_then(values::mask_length);
                self.length = by_mask.or_else(|| value.parse().ok());
                if self.length.is_none() {
                    fail("no netmask or prefix length", gathering);
                }
            }
            "gateway" => self.gateway = Some((line, value.to_owned())),
            "metric" => self.metric = values::number(value).unwrap_or(0),
            "mtu" => match values::number(value) {
                Some(bytes) => gathering.mtu(&self.name, bytes, place(file, line)),
                None => fail("no MTU in bytes", gathering),
            },
            "hwaddress" => {
                let address = rest.iter().find_map(|word| values::link_address(word));
                gathering.interface(&self.name).link_address = address;
            }
            "vrf" => gathering.vrf_ports.push((self.name.clone(), value.to_owned())),
            "vrf-table" => match values::number(value) {
                Some(table) => gathering.vrf(&self.name, table),
                None => fail("the number of the table is chosen at run time", gathering),
            },
            "up" | "post-up" | "pre-up" => {
                let mut command = rest.join(" ");
                for variable in ["${IFACE}", "$IFACE"] {
                    command = command.replace(variable, &self.name);
                }
                let command = command.trim_end_matches("|| true").trim_end_matches("|| :").to_owned();
                script::line(file, line, &command, gathering);
            }
            // Down again, and what sets no addresses or routes.
            _ => {}
        }
    }

    /// The address with its length, which may stand beside it.
    fn prefix(&self, text: &str) -> Option<Prefix> {
        if text.contains('/') {
            return values::prefix(text);
        }
        let length = self.length?;
        values::prefix(&format!("{text}/{length}"))
    }
}

fn finish(file: &str, stanza: Option<Stanza>, gathering: &mut Gathering) {
    let Some(stanza) = stanza else { return };
    let interface = (stanza.name.clone(), stanza.ipv6);
    match &*stanza.method {
        "dhcp" | "auto" | "ppp" | "bootp" => gathering.dynamic(&stanza.name, stanza.ipv6),
        _ => {
            gathering.facts().complete.insert(interface);
        }
    }
    if stanza.name == "lo" && stanza.method == "loopback" {
        gathering.routing.interfaces.retain(|known| known.name != "lo");
    }
    for (line, text) in &stanza.addresses {
        match stanza.prefix(text) {
            Some(prefix) => gathering.address(&stanza.name, prefix, place(file, *line)),
            None => {
                let reason = "no address, or none with netmask or prefix length";
                gathering.unread(file, *line, &format!("address {text}"), reason);
                gathering.facts().complete.remove(&(stanza.name.clone(), stanza.ipv6));
            }
        }
    }
    let Some((line, text)) = &stanza.gateway else { return };
    let Some(via) = values::address(text) else {
        return gathering.unread(file, *line, &format!("gateway {text}"), "no address of a gateway");
    };
    // ifupdown calls `ip route add default via GATEWAY dev IFACE onlink` (inet.defn).
    gathering.on_link(via, Some(&stanza.name));
    let hop = Hop { via, interface: Some(stanza.name.clone()), weight: 1, place: None };
    gathering.route(RouteEntry {
        destination: values::everything(stanza.ipv6),
        table: MAIN_TABLE,
        metric: stanza.metric,
        action: RouteAction::Gateways(vec![hop]),
        source: None,
        mtu: None,
        protocol: 0,
        place: Some(place(file, *line)),
    });
}
