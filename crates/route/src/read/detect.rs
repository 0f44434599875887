//! What a file is, by its name and, where that does not tell, by its text.

use super::{
    Source,
    gathering::{Gathering, place},
    ifcfg, ini, marks, netplan, networkd, networkmanager, nmstate, script, sysctl, values,
    yaml::{self, Yaml},
};
use crate::render;

/// What a file is, in the order of reading: names of tables before what uses
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// `rt_tables`.
    Tables,
    /// `rt_protos`.
    Protocols,
    /// A keyfile of NetworkManager.
    Keyfile,
    /// A `.network` file.
    Network,
    /// A file of `NAME.network.d`, which adds to NAME.
    DropIn,
    /// One of the network scripts' files.
    Ifcfg(ifcfg::File),
    /// Netplan, nmstate or Ansible.
    Yaml,
    /// IPoIB modes beside our own batches.
    Modes,
    /// A script or batch of `ip`, or what it prints.
    Script {
        /// Whether the name tells that it is for IPv6.
        ipv6: bool,
    },
    /// A unit that may call `ip`.
    Unit,
    /// Rules of nftables.
    Marks,
    /// Sysctls.
    Sysctl,
    /// A constant file of our own, which says nothing of its own.
    Own,
    /// Something else.
    Unknown,
}

/// The last part of a path.
pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// What a file is.
pub(super) fn kind(path: &str, text: &str) -> Kind {
    if render::is_constant(text) {
        return Kind::Own;
    }
    let name = last_part(path);
    let folder = path.rsplit('/').nth(1).unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if let Some(file) = ifcfg::file(name) {
        return Kind::Ifcfg(file);
    }
    match (name, folder, extension) {
        ("rt_tables", ..) | (_, "rt_tables.d", "conf") => Kind::Tables,
        ("rt_protos", ..) | (_, "rt_protos.d", "conf") => Kind::Protocols,
        ("modes", "routes", _) => Kind::Modes,
        ("sysctl.conf", ..) | (_, "sysctl.d", _) => Kind::Sysctl,
        (_, folder, "conf") if folder.ends_with(".network.d") => Kind::DropIn,
        (_, _, "nmconnection") => Kind::Keyfile,
        (_, _, "network") => Kind::Network,
        (_, _, "yaml" | "yml") => Kind::Yaml,
        (_, _, "nft") => Kind::Marks,
        (_, _, "service") => Kind::Unit,
        (_, _, "batch" | "sh") => Kind::Script { ipv6: name.contains("6.") },
        _ => by_text(name, text),
    }
}

fn by_text(name: &str, text: &str) -> Kind {
    let has = |line: &str| text.lines().any(|known| known.trim() == line);
    if has("[connection]") {
        return Kind::Keyfile;
    }
    if has("[Match]") && (has("[Network]") || has("[Route]") || has("[RoutingPolicyRule]")) {
        return Kind::Network;
    }
    if text.contains("ct mark set") && text.contains("chain ") {
        return Kind::Marks;
    }
    let ipv6 = name.contains("rule6") || name.contains("rules6") || name.contains("-6");
    if text.lines().any(is_of_ip) {
        return Kind::Script { ipv6 };
    }
    let is_setting =
        |line: &str| line.split_once('=').is_some_and(|(key, _)| key.trim().contains(['.', '/']));
    let mut settings =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    if settings.next().is_some_and(is_setting) { Kind::Sysctl } else { Kind::Unknown }
}

/// A line that calls `ip` or that `ip` printed.
fn is_of_ip(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| matches!(*word, "up" | "post-up" | "sudo"));
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match (first, second) {
        (word, "route" | "rule" | "nexthop" | "-4" | "-6" | "address" | "addr" | "ro" | "ru" | "link")
            if word == "ip" || word.ends_with("/ip") =>
        {
            true
        }
        ("default", "via" | "dev" | "proto" | "nhid" | "table") => true,
        ("id", number) => {
            number.parse::<u32>().is_ok() && (line.contains(" via ") || line.contains(" group "))
        }
        (number, "from" | "not") => {
            number.strip_suffix(':').is_some_and(|number| number.parse::<u32>().is_ok())
        }
        (number, name) if number.strip_suffix(':').is_some_and(|number| number.parse::<u32>().is_ok()) => {
            name.ends_with(':') && line.contains(" mtu ")
        }
        (prefix, "via" | "dev" | "proto" | "nhid" | "nexthop" | "table") => values::prefix(prefix).is_some(),
        _ => false,
    }
}

/// Reads a file of a known kind.
pub(super) fn read(kind: Kind, source: &Source, gathering: &mut Gathering) {
    match kind {
        Kind::Tables => gathering.names.read_tables(&source.text),
        Kind::Protocols => gathering.names.read_protocols(&source.text),
        Kind::Keyfile => networkmanager::read(source, gathering),
        Kind::Network => networkd::read(source, gathering),
        Kind::DropIn => networkd::read_drop_in(source, gathering),
        Kind::Ifcfg(file) => ifcfg::read(file, source, gathering),
        Kind::Yaml => read_yaml(source, gathering),
        Kind::Modes => modes(source, gathering),
        Kind::Script { ipv6 } => script::read(source, ipv6.then_some(true), gathering),
        Kind::Unit => unit(source, gathering),
        Kind::Marks => marks::read(source, gathering),
        Kind::Sysctl => sysctl::read(source, gathering),
        Kind::Own => {}
        Kind::Unknown => {
            gathering.unread(&source.path, 1, last_part(&source.path), "no configuration of a known kind");
        }
    }
}

fn read_yaml(source: &Source, gathering: &mut Gathering) {
    match yaml::documents(&source.text) {
        Ok(documents) => {
            for document in &documents {
                read_document(&source.path, document, gathering);
            }
        }
        Err(yaml::NoYaml(line, reason)) => {
            gathering.unread(&source.path, line, last_part(&source.path), format!("no YAML: {reason}"));
        }
    }
}

/// Netplan has `network`, nmstate lists of routes or interfaces; the rest is
/// taken as Ansible's, in which both may lie deeper.
fn read_document(file: &str, document: &Yaml, gathering: &mut Gathering) {
    let network = document.get("network").filter(|network| !network.entries().is_empty());
    if let Some(network) = network {
        netplan::read(file, network, gathering);
    } else if ["routes", "route-rules", "interfaces"].iter().any(|key| document.get(key).is_some()) {
        nmstate::read(file, document, gathering);
    } else {
        super::ansible::read(file, document, gathering);
    }
}

/// `ib0 connected`.
fn modes(source: &Source, gathering: &mut Gathering) {
    for (line, text) in (1..).zip(source.text.lines()) {
        let mut words = text.split_whitespace();
        match (words.next(), words.next().and_then(script::infiniband_mode)) {
            (Some(interface), Some(value)) => {
                let place = Some(place(&source.path, line));
                gathering.interface(interface).infiniband_mode =
                    Some(clearstream_schema::routing::Located { value, place });
            }
            (Some(_), None) => gathering.unread(&source.path, line, text, "no interface with its mode"),
            (None, _) => {}
        }
    }
}

/// `ExecStart=/sbin/ip rule add ...`
fn unit(source: &Source, gathering: &mut Gathering) {
    let (sections, _) = ini::sections(&source.text);
    let service = sections.iter().filter(|section| section.name == "Service");
    for entry in service.flat_map(|section| &section.entries) {
        if matches!(entry.key, "ExecStart" | "ExecStartPre" | "ExecStartPost") {
            let command = entry.value.trim_start_matches(['-', '@', '+', '!', ':']);
            script::line(&source.path, entry.line, command, gathering);
        }
    }
}
