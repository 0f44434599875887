//! What a file that nobody understands is taken for, and the form of it that is read.

use super::{Source, detect::last_part, yaml};

/// What `ip` prints, which every host can give.
const PRINTED: &str = "give what \"ip address\", \"ip route show table all\" and \"ip rule\" print";

/// The kind of a file, and what to give instead, as a clause.
pub(crate) fn form(source: &Source) -> String {
    let name = last_part(&source.path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    if matches!(extension, "yaml" | "yml") {
        return of_yaml(source);
    }
    if name.starts_with("ifroute-") || name.starts_with("ifrule-") {
        return format!(
            "the nearest form is ifcfg-, route- and rule- of other distributions; for wicked {PRINTED}"
        );
    }
    if matches!(extension, "network" | "netdev" | "link") {
        return "a .network file needs [Match] with Name= or MACAddress=, and sections such as [Network] and [Route]"
            .to_owned();
    }
    let has = |text: &str| source.text.lines().any(|line| line.trim_start().starts_with(text));
    let daemon = [
        ("FRR", &["router bgp", "router ospf", "router isis", "frr version"][..]),
        ("BIRD", &["protocol static", "protocol kernel", "protocol bgp", "router id"]),
        ("keepalived", &["vrrp_instance", "vrrp_sync_group", "static_routes"]),
        ("wicked", &["STARTMODE="]),
        ("netctl", &["Connection="]),
        ("dhcpcd", &["static ip_address="]),
    ];
    if let Some((daemon, _)) = daemon.iter().find(|(_, lines)| lines.iter().any(|line| has(line))) {
        return format!(
            "it looks like a configuration of {daemon}, which is not read; {PRINTED} of its host"
        );
    }
    if has("Kernel IP routing table") || has("Destination ") {
        return format!(
            "it looks like what \"route -n\" or \"netstat -r\" print, which lacks tables and rules; {PRINTED}"
        );
    }
    if has("ipv4.method:") || has("connection.id:") {
        return "it looks like what nmcli prints; give the keyfile of the profile".to_owned();
    }
    if has("[Interface]") {
        return format!(
            "it looks like a configuration of wg-quick, which is not read; {PRINTED} of its host"
        );
    }
    if source.text.trim_start().starts_with(['{', '[']) {
        return "the nearest form is JSON of \"ip -j address\", \"ip -j route show table all\" and \"ip -j rule\""
            .to_owned();
    }
    if has("#!") || has("if ") || has("for ") || has("function ") {
        return format!("a script in which no line calls \"ip\" with addresses that it states; {PRINTED}");
    }
    format!("no configuration of a known kind; {PRINTED}")
}

fn of_yaml(source: &Source) -> String {
    let netplan = "netplan has \"network:\" with \"version: 2\" and devices below";
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
    if let Some(network) = first.get("network") {
        let is_first = network.get("version").and_then(yaml::Yaml::text) == Some("1");
        let of_first =
            "version 1 of cloud-init's network configuration is not read: give the files that it wrote";
        return if is_first { of_first.to_owned() } else { format!("no device in it; {netplan}") };
    }
    format!(
        "YAML of no known kind; {netplan}, nmstate \"interfaces:\", \"routes:\" or \"route-rules:\", Ansible \
         \"network_connections:\", \"network_state:\" or tasks of ip and sysctl"
    )
}
