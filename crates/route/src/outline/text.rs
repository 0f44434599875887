//! Text of the fabric file.

use std::{collections::BTreeSet, fmt::Write as _, net::IpAddr};

use clearstream_schema::{
    fabric::{FABRIC_SCHEMA, HostRole},
    routing::{HostRouting, Nexthop, NexthopTarget, RouteAction, RouteEntry},
};

use super::{
    classes::{Class, Link},
    networks::Network,
    patterns,
};

/// Writes the file; comments name what to check.
pub(super) fn write(name: &str, hosts: &[HostRouting], networks: &[Network], classes: &[Class]) -> String {
    let mut text = String::from(
        "# Started from hosts as they are. Comments show what could not be seen and\n\
         # was taken for granted: check each, then `clearstream route plan`.\n\n",
    );
    let _ = writeln!(text, "schema = \"{FABRIC_SCHEMA}\"\nversion = 1\nname = {}", quoted(&plain(name)));
    left_out(&mut text, hosts, classes);
    for network in networks {
        write_network(&mut text, network);
    }
    for class in classes {
        write_class(&mut text, class, networks);
    }
    for (left, right, via) in joined(networks, classes) {
        write_route(&mut text, hosts, classes, [&networks[left].name, &networks[right].name], &via);
    }
    text
}

/// A fabric's name: letters, digits and `-`.
fn plain(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(32).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "fabric".to_owned() } else { plain.to_owned() }
}

fn quoted(text: &str) -> String {
    let escaped: String = text.chars().flat_map(char::escape_default).collect();
    format!("\"{escaped}\"")
}

fn list(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| quoted(item)).collect();
    format!("[{}]", items.join(", "))
}

fn comment(text: &mut String, about: &str) {
    let mut line = String::from("#");
    for token in about.split_whitespace() {
        if line.len() + token.len() > 78 {
            let _ = writeln!(text, "{line}");
            line = String::from("#");
        }
        let _ = write!(line, " {token}");
    }
    let _ = writeln!(text, "{line}");
}

fn left_out(text: &mut String, hosts: &[HostRouting], classes: &[Class]) {
    let taken: BTreeSet<&String> = classes.iter().flat_map(|class| &class.hosts).collect();
    let rest: Vec<&str> =
        hosts.iter().filter(|host| !taken.contains(&host.host)).map(|host| host.host.as_str()).collect();
    if !rest.is_empty() {
        comment(
            text,
            &format!(
                "Left out, because they are on none of the networks or on several without being sent to: {}.",
                rest.join(", ")
            ),
        );
    }
}

fn write_network(text: &mut String, network: &Network) {
    let _ = writeln!(text, "\n[[network]]\nname = {}", quoted(&network.name));
    let prefixes: Vec<String> = network.prefixes.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "prefixes = {}", list(&prefixes));
    if network.is_infiniband {
        let _ = writeln!(text, "kind = \"infiniband\"");
        match network.connected {
            Some(true) => text.push_str("infiniband-mode = \"connected\"\n"),
            Some(false) => {
                comment(text, "At least one interface is in datagram mode; all have to be in one mode.");
                text.push_str("infiniband-mode = \"datagram\"\n");
            }
            None => comment(text, "The IPoIB mode was not seen: infiniband-mode = \"connected\""),
        }
    }
    let mtus: Vec<String> = network.mtus.iter().map(ToString::to_string).collect();
    let is_too_large = network.connected == Some(false) && network.mtus.iter().any(|mtu| *mtu > 4092);
    match &mtus[..] {
        [mtu] if !is_too_large => {
            let _ = writeln!(text, "mtu = {mtu}");
        }
        [] => comment(text, "No MTU was seen: mtu = 1500"),
        mtus => comment(
            text,
            &format!("The interfaces on it do not agree on an MTU ({}); write one.", mtus.join(", ")),
        ),
    }
}

fn write_class(text: &mut String, class: &Class, networks: &[Network]) {
    let role = match class.role {
        HostRole::Storage => "storage",
        HostRole::Gateway => "gateway",
        HostRole::Compute => "compute",
        HostRole::Login => "login",
    };
    text.push('\n');
    for assumed in &class.assumed {
        comment(text, &format!("Assumed: {assumed}."));
    }
    let _ = writeln!(text, "[[class]]\nname = {}\nrole = \"{role}\"", quoted(&class.name));
    let _ = writeln!(text, "hosts = {}", list(&patterns::names(&class.hosts)));
    if class.weight != 1 {
        let _ = writeln!(text, "weight = {}", class.weight);
    }
    if class.role == HostRole::Gateway {
        match class.stateful {
            Some(true) => {
                comment(text, "Their kernels track connections.");
                text.push_str("stateful = true\n");
            }
            Some(false) => {}
            None => comment(text, "Whether they keep connection state was not seen: stateful = true"),
        }
    }
    for link in &class.links {
        write_link(text, link, &networks[link.network].name);
    }
}

fn write_link(text: &mut String, link: &Link, network: &str) {
    let _ = writeln!(text, "\n[[class.link]]\nnetwork = {}", quoted(network));
    let _ = writeln!(text, "interface = {}", quoted(&link.interface));
    let mut written = Vec::new();
    for (family, values) in [("IPv4", &link.ipv4), ("IPv6", &link.ipv6)] {
        let known: Vec<IpAddr> = values.iter().flatten().copied().collect();
        if known.len() == values.len() {
            written.extend(patterns::addresses(&known));
        } else if !known.is_empty() {
            comment(
                text,
                &format!("Only {} of {} hosts have an {family} address.", known.len(), values.len()),
            );
        }
    }
    let _ = writeln!(text, "addresses = {}", list(&written));
    let aliases: Vec<IpAddr> = link.aliases.iter().flatten().copied().collect();
    if !aliases.is_empty() {
        let _ = writeln!(text, "alias-addresses = {}", list(&patterns::addresses(&aliases)));
    }
    let links: Vec<String> = link.link_addresses.iter().flatten().cloned().collect();
    if !links.is_empty() && links.len() == link.ipv4.len() {
        let _ = writeln!(text, "link-addresses = {}", list(&links));
    }
}

/// Pairs of networks with the classes of gateways on both.
fn joined(networks: &[Network], classes: &[Class]) -> Vec<(usize, usize, Vec<String>)> {
    let mut pairs = Vec::new();
    for left in 0..networks.len() {
        for right in left + 1..networks.len() {
            let on = |class: &&Class, network: usize| class.links.iter().any(|link| link.network == network);
            let via: Vec<String> = classes
                .iter()
                .filter(|class| class.role == HostRole::Gateway && on(class, left) && on(class, right))
                .map(|class| class.name.clone())
                .collect();
            if !via.is_empty() {
                pairs.push((left, right, via));
            }
        }
    }
    pairs
}

fn write_route(
    text: &mut String,
    hosts: &[HostRouting],
    classes: &[Class],
    between: [&String; 2],
    via: &[String],
) {
    let _ = writeln!(text, "\n[[route]]\nbetween = {}", list(&between.map(String::clone)));
    let _ = writeln!(text, "via = {}", list(via));
    let has_aliases = classes
        .iter()
        .flat_map(|class| &class.links)
        .any(|link| link.aliases.iter().any(|it| !it.is_empty()));
    let seeds: BTreeSet<&str> = hosts
        .iter()
        .filter_map(|host| host.sysctls.get("net.ipv4.fib_multipath_hash_seed"))
        .map(|value| value.value.trim())
        .collect();
    if has_aliases {
        text.push_str("return-path = \"alias\"\n");
    } else if hosts.iter().any(|host| host.rules.iter().any(|rule| rule.selector.mark.is_some())) {
        text.push_str("return-path = \"connection-mark\"\n");
    } else {
        comment(
            text,
            "How replies find the gateway that the request came by was not seen; \"auto\" lets the planner \
             choose and give the reason.",
        );
        text.push_str("return-path = \"auto\"\n");
    }
    if let [seed] = seeds.iter().filter(|seed| **seed != "0").collect::<Vec<_>>()[..]
        && seeds.len() == 1
    {
        comment(
            text,
            &format!("All hosts hash with the seed {seed}: return-path = \"equal-seed\" needs it."),
        );
    }
    // Only a host with several next hops selects one.
    let chooses = |host: &HostRouting| {
        let by_routes =
            |route: &RouteEntry| matches!(&route.action, RouteAction::Gateways(hops) if hops.len() > 1);
        let is_group = |nexthop: &Nexthop| matches!(nexthop.target, NexthopTarget::Group { .. });
        host.routes.iter().any(by_routes) || host.nexthops.iter().any(is_group)
    };
    let policy = |host: &HostRouting| {
        host.sysctls.get("net.ipv4.fib_multipath_hash_policy").is_some_and(|value| value.value.trim() == "0")
    };
    if hosts.iter().any(|host| chooses(host) && policy(host)) {
        comment(
            text,
            "Some hosts now choose gateways by addresses alone (policy 0), which leaves gateways idle.",
        );
    }
    text.push_str("hash-policy = \"layer4\"\n");
}
