//! What a file that nobody understands is taken for, and the form of it that is read.

use super::{Source, detect::last_part, yaml};

/// What `ip` prints, which every host can give.
const PRINTED: &str = "give what \"ip address\", \"ip route show table all\" and \"ip rule\" print";

/// A kind of files that is known and not read.
struct Foreign {
    /// What it is, as in "a configuration of FRR".
    what: &'static str,
    /// Names of such files.
    names: &'static [&'static str],
    /// Beginnings of lines, of which one is enough.
    lines: &'static [&'static str],
    /// Parts of a text, of which one is enough.
    parts: &'static [&'static str],
}

const fn foreign_kind(
    what: &'static str,
    names: &'static [&'static str],
    lines: &'static [&'static str],
    parts: &'static [&'static str],
) -> Foreign {
    Foreign { what, names, lines, parts }
}

const FOREIGN: [Foreign; 21] = [
    foreign_kind(
        "a configuration of FRR",
        &["frr.conf", "zebra.conf", "staticd.conf", "bgpd.conf", "ospfd.conf", "vtysh.conf", "Quagga.conf"],
        &["router bgp ", "router ospf", "router isis", "frr version", "frr defaults", "address-family ipv"],
        &[],
    ),
    foreign_kind(
        "a configuration of BIRD",
        &["bird.conf", "bird6.conf"],
        &[
            "protocol static",
            "protocol kernel",
            "protocol bgp",
            "protocol ospf",
            "protocol device",
            "router id ",
        ],
        &[],
    ),
    foreign_kind(
        "a configuration of keepalived",
        &["keepalived.conf"],
        &["vrrp_instance ", "vrrp_sync_group ", "static_routes {", "global_defs {", "virtual_server "],
        &[],
    ),
    foreign_kind(
        "a routing table of FRR or a switch (\"show ip route\")",
        &[],
        &["Codes: ", "Gateway of last resort"],
        &[" is directly connected,", " is variably subnetted,", "show ip route", "show ipv6 route"],
    ),
    foreign_kind(
        "a routing table of BSD or macOS",
        &[],
        &["Internet:", "Internet6:"],
        &["Destination        Gateway            Flags"],
    ),
    foreign_kind(
        "a routing table of Windows",
        &[],
        &["Active Routes:", "IPv4 Route Table", "Network Destination"],
        &[],
    ),
    foreign_kind("what ifconfig prints", &[], &[], &[" flags=", "Link encap:"]),
    foreign_kind(
        "what nmcli prints: give the keyfile of the profile, or else",
        &[],
        &["ipv4.method:", "connection.id:", "GENERAL.DEVICE:", "IP4.ADDRESS[1]:"],
        &[],
    ),
    foreign_kind(
        "a profile of netctl",
        &[],
        &["Connection='", "Connection=\"", "Connection=eth", "Connection=bond"],
        &[],
    ),
    foreign_kind(
        "a configuration of dhcpcd",
        &["dhcpcd.conf"],
        &["static ip_address=", "static routers="],
        &[],
    ),
    foreign_kind(
        "a configuration of Gentoo's netifrc",
        &[],
        &["config_eth", "config_en", "config_bond", "routes_"],
        &[],
    ),
    foreign_kind("a configuration of Slackware", &["rc.inet1.conf"], &["IPADDR[0]="], &[]),
    foreign_kind(
        "a configuration of OpenWrt (UCI)",
        &[],
        &["config interface", "config route", "config device"],
        &[],
    ),
    foreign_kind(
        "a configuration of BSD",
        &["rc.conf"],
        &["ifconfig_", "defaultrouter=", "static_routes="],
        &[],
    ),
    foreign_kind(
        "a configuration of VyOS or EdgeOS",
        &["config.boot"],
        &["set protocols static", "set interfaces ethernet", "set interfaces bonding"],
        &["\nprotocols {\n"],
    ),
    foreign_kind(
        "a configuration of Junos",
        &[],
        &["set routing-options", "set routing-instances", "routing-options {", "set interfaces "],
        &[],
    ),
    foreign_kind("a configuration of RouterOS", &[], &["/ip route", "/ip address", "/routing "], &[]),
    foreign_kind(
        "a configuration of a switch or of FRR",
        &[],
        &["interface Ethernet", "interface GigabitEthernet", "interface Vlan", "switchport ", "vrf context "],
        &[],
    ),
    foreign_kind("a configuration of OpenVPN", &[], &["dev tun", "dev tap", "push \"route "], &[]),
    foreign_kind("a configuration of strongSwan", &["swanctl.conf", "ipsec.conf"], &["connections {"], &[]),
    foreign_kind("a state of wicked", &[], &["<interface"], &["<ipv4:static>"]),
];

/// Whether a file is a configuration by which its host gets routes, and which is not read: it is named, whatever of it
/// looks like a command.
pub(crate) fn is_foreign_configuration(source: &Source) -> bool {
    what(source).is_some_and(|what| what.starts_with("a configuration"))
}

/// What a file is that is known and not read, as a clause.
pub(crate) fn foreign(source: &Source) -> Option<String> {
    Some(format!("it looks like {}, which is not read; {PRINTED} of its host", what(source)?))
}

fn what(source: &Source) -> Option<&'static str> {
    let name = last_part(&source.path);
    let text = &source.text;
    let has = |start: &&str| text.lines().any(|line| line.trim_start().starts_with(start));
    let is_it = |kind: &&Foreign| {
        kind.names.contains(&name)
            || kind.lines.iter().any(has)
            || kind.parts.iter().any(|part| text.contains(part))
    };
    // `ip route 10.0.0.0/8 10.1.0.1` is a line of FRR and of switches; ip(8) has a verb there.
    let is_static_route = |line: &str| {
        let mut words = line.split_whitespace();
        let begins = (words.next(), words.next());
        matches!(begins, (Some("ip" | "ipv6"), Some("route")))
            && words.next().is_some_and(|word| {
                super::values::prefix(word).is_some() || word == "vrf" && !line.contains(" dev ")
            })
    };
    let calls_ip = text.starts_with("#!") || has(&"ip route add ") || has(&"ip rule add ");
    if calls_ip {
        return None;
    }
    match FOREIGN.iter().find(is_it) {
        Some(kind) => Some(kind.what),
        None => text.lines().any(is_static_route).then_some("a configuration of FRR or a switch"),
    }
}

/// The kind of a file, and what to give instead, as a clause.
pub(crate) fn form(source: &Source) -> String {
    let name = last_part(&source.path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if matches!(extension, "yaml" | "yml") {
        return of_yaml(source);
    }
    if matches!(extension, "network" | "netdev" | "link") {
        return "a .network file needs [Match] with Name= or MACAddress=, and sections such as [Network] and [Route]"
            .to_owned();
    }
    if let Some(foreign) = foreign(source) {
        return foreign;
    }
    let has = |text: &str| source.text.lines().any(|line| line.trim_start().starts_with(text));
    if has("[connection]") || extension == "nmconnection" {
        return "a keyfile needs [connection] with an id or interface-name, and [ipv4] or [ipv6]".to_owned();
    }
    if source.text.trim_start().starts_with(['{', '[']) {
        return "the nearest form is JSON of \"ip -j address\", \"ip -j route show table all\" and \"ip -j rule\""
            .to_owned();
    }
    if has("#!") || has("if ") || has("for ") || has("function ") || extension == "sh" {
        return format!(
            "a script in which no line calls \"ip\" with addresses that it states, in the host's own network \
             namespace; {PRINTED}"
        );
    }
    format!("no configuration of a known kind; {PRINTED}")
}

fn of_yaml(source: &Source) -> String {
    let netplan = "netplan has \"network:\" with \"version: 2\" and devices below";
    if source.text.starts_with("#cloud-config") {
        return "user data of cloud-init: give the files that it writes and the commands that it runs"
            .to_owned();
    }
    let documents = match yaml::documents(&source.text) {
        Ok(documents) => documents,
        Err(yaml::NoYaml(line, reason)) => return format!("no YAML: {reason} in line {line}"),
    };
    let Some(first) = documents.first() else { return "an empty document".to_owned() };
    let text = |key: &str| first.get(key).and_then(yaml::Yaml::text).map(str::to_owned);
    if let (Some(_), Some(kind)) = (text("apiVersion"), text("kind")) {
        return format!(
            "a document of kind {kind} without nmstate's keys; read are those of NodeNetworkConfigurationPolicy \
             (spec.desiredState), NMStateConfig (spec.config) and AgentConfig (hosts with networkConfig)"
        );
    }
    if first.get("network").is_some() {
        return format!(
            "no device in it; {netplan}, cloud-init's version 1 has \"config:\" with a list of \"type:\""
        );
    }
    let inner = first
        .entries()
        .iter()
        .find(|(_, value)| value.get("network").is_some_and(|it| it.get("version").is_some()));
    if let Some((key, _)) = inner {
        return format!(
            "netplan inside of the variable {}: give the file that is written from it",
            key.text().unwrap_or_default()
        );
    }
    format!(
        "YAML of no known kind; {netplan}, nmstate \"interfaces:\", \"routes:\" or \"route-rules:\", Ansible \
         \"network_connections:\", \"network_state:\" or tasks of ip and sysctl"
    )
}
