//! Debian's `/etc/network/interfaces` (interfaces(5)), with the keys that ifupdown2 adds.

use std::collections::{BTreeMap, BTreeSet};

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
    matches!(
        words,
        ["iface", _, "inet" | "inet6" | "can" | "ipx", _, ..] | ["iface", _] | ["iface", _, "inherits", ..]
    )
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
#[derive(Default, Clone)]
struct Stanza {
    name: String,
    ipv6: bool,
    method: String,
    addresses: Vec<(u32, String)>,
    length: Option<u8>,
    gateway: Option<(u32, String)>,
    metric: u32,
    /// Commands that bring it up.
    commands: Vec<(u32, String)>,
}

/// Stanzas that are no interface's: others inherit of them, or a mapping chooses them at run time.
fn logical(lines: &[(u32, String)]) -> BTreeSet<String> {
    let of_line = |(_, text): &(u32, String)| match &words(text)[..] {
        ["map", .., name] => Some((*name).to_owned()),
        ["iface", rest @ ..] => {
            let at = rest.iter().position(|word| *word == "inherits")?;
            rest.get(at + 1).map(|name| (*name).to_owned())
        }
        _ => None,
    };
    lines.iter().filter_map(of_line).collect()
}

fn read(source: &Source, gathering: &mut Gathering) {
    let mut stanza: Option<Stanza> = None;
    let mut is_mapping = false;
    let lines = joined_lines(&source.text);
    let mut templates = Templates { logical: logical(&lines), stanzas: BTreeMap::new() };
    for (line, text) in lines {
        let words = words(&text);
        let [first, rest @ ..] = &words[..] else { continue };
        if is_iface(&words) {
            templates.finish(&source.path, stanza.take(), gathering);
            is_mapping = false;
            let Some(name) = rest.first().and_then(|name| name.split(':').next()) else { continue };
            stanza = Some(templates.begin(name, rest));
            if !templates.logical.contains(name) {
                gathering.interface(name);
            }
            gathering.understood();
            continue;
        }
        match *first {
            "auto" | "no-auto-down" | "no-scripts" | "source-directory" | "template" => {
                gathering.understood()
            }
            allow if allow.starts_with("allow-") => gathering.understood(),
            // ifupdown2 runs the file through a template engine.
            statement if statement.starts_with('%') => {
                gathering.unread(
                    &source.path,
                    line,
                    text.trim(),
                    "a template: give what it becomes (ifquery -a)",
                );
            }
            "source" => sourced(source, line, rest, gathering),
            "mapping" => {
                templates.finish(&source.path, stanza.take(), gathering);
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
    templates.finish(&source.path, stanza, gathering);
}

/// Stanzas of which others inherit.
struct Templates {
    logical: BTreeSet<String>,
    stanzas: BTreeMap<String, Stanza>,
}

impl Templates {
    /// `iface NAME [FAMILY METHOD] [inherits TEMPLATE]`, behind `iface`.
    fn begin(&self, name: &str, rest: &[&str]) -> Stanza {
        let inherits = rest.iter().position(|word| *word == "inherits");
        let template =
            inherits.and_then(|at| self.stanzas.get(*rest.get(at + 1)?)).cloned().unwrap_or_default();
        let own = rest.get(..inherits.unwrap_or(rest.len())).unwrap_or_default();
        let ipv6 = own.get(1).map_or(template.ipv6, |family| *family == "inet6");
        let of_template = if template.method.is_empty() { "static" } else { &template.method };
        let method = own.get(2).copied().unwrap_or(of_template).to_owned();
        Stanza { name: name.to_owned(), ipv6, method, ..template }
    }

    fn finish(&mut self, file: &str, stanza: Option<Stanza>, gathering: &mut Gathering) {
        let Some(stanza) = stanza else { return };
        self.stanzas.insert(stanza.name.clone(), stanza.clone());
        if !self.logical.contains(&stanza.name) {
            finish(file, stanza, gathering);
        }
    }
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
            "metric" => match values::number(value) {
                Some(metric) => self.metric = metric,
                None => fail("no metric", gathering),
            },
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
                let command = rest.join(" ");
                self.commands
                    .push((line, command.trim_end_matches("|| true").trim_end_matches("|| :").to_owned()));
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

fn finish(file: &str, stanza: Stanza, gathering: &mut Gathering) {
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
    default_route(file, &stanza, gathering);
    for (line, command) in &stanza.commands {
        let mut command = command.clone();
        for variable in ["${IFACE}", "$IFACE"] {
            command = command.replace(variable, &stanza.name);
        }
        script::line(file, *line, &command, gathering);
    }
}

fn default_route(file: &str, stanza: &Stanza, gathering: &mut Gathering) {
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
