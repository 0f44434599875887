//! Validation of a lab file beyond its types.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_configfile::{Fault, did_you_mean, fault};
use clearstream_netlink::Prefix;
use clearstream_schema::lab::{LabFile, LabHost, LabLink, LinkBackend, LinkEnd};

/// Returns the first error of a lab file.
pub(super) fn check(file: &LabFile) -> Result<(), Fault> {
    // The name is part of a socket's path, which has 107 bytes (unix(7)).
    check_name("name", &file.name, 32)?;
    if file.hosts.is_empty() {
        return fault("host", "a lab has at least one [[host]]");
    }
    let mut names = BTreeSet::new();
    for (index, host) in file.hosts.iter().enumerate() {
        check_name(&format!("host[{index}].name"), &host.name, 63)?;
        if !names.insert(host.name.as_str()) {
            return fault(
                format!("host[{index}].name"),
                format!("\"{}\" is the name of another host", host.name),
            );
        }
    }
    let mut all = names.clone();
    for (index, switch) in file.switches.iter().enumerate() {
        let key = format!("switch[{index}].name");
        check_name(&key, &switch.name, 63)?;
        if !all.insert(switch.name.as_str()) {
            return fault(key, format!("\"{}\" is the name of a host or of another switch", switch.name));
        }
    }
    check_segments(file, &names)?;
    for (index, host) in file.hosts.iter().enumerate() {
        check_host(file, index, host)?;
    }
    Ok(())
}

fn check_name(key: &str, name: &str, longest: usize) -> Result<(), Fault> {
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if fits && !name.is_empty() && name.len() <= longest && !name.starts_with('-') {
        return Ok(());
    }
    fault(key, format!("\"{name}\" is no name: write 1 to {longest} letters, digits and `-`"))
}

/// Checks links and switches: each by itself, and that names and addresses are
/// unique.
fn check_segments(file: &LabFile, hosts: &BTreeSet<&str>) -> Result<(), Fault> {
    let mut in_use = InUse::default();
    for (index, link) in file.links.iter().enumerate() {
        let key = format!("link[{index}]");
        check_link(&key, link)?;
        let is_tun = link.effective_backend() == LinkBackend::DelayLine;
        for (number, end) in link.ends.iter().enumerate() {
            let key = format!("{key}.ends[{number}]");
            check_end(&key, end, is_tun, hosts)?;
            in_use.take(&key, end, link.mtu)?;
        }
    }
    for (index, switch) in file.switches.iter().enumerate() {
        let key = format!("switch[{index}]");
        // Maximum MTU of a veth (drivers/net/veth.c, ETH_MAX_MTU).
        if !(68..=65_535).contains(&switch.mtu) {
            let problem = format!("{} is no MTU for a switch: write 68 to 65535 bytes", switch.mtu);
            return fault(format!("{key}.mtu"), problem);
        }
        // Ports of a Linux bridge (net/bridge/br_private.h, BR_MAX_PORTS).
        if switch.ends.is_empty() || switch.ends.len() > 1023 {
            return fault(format!("{key}.ends"), "a switch has 1 to 1023 ends");
        }
        for (number, end) in switch.ends.iter().enumerate() {
            let key = format!("{key}.ends[{number}]");
            check_end(&key, end, false, hosts)?;
            in_use.take(&key, end, switch.mtu)?;
        }
    }
    Ok(())
}

/// Interfaces and addresses in use, which must be unique.
#[derive(Debug, Default)]
struct InUse<'a> {
    interfaces: BTreeSet<(&'a str, &'a str)>,
    addresses: BTreeMap<IpAddr, &'a str>,
}

impl<'a> InUse<'a> {
    fn take(&mut self, key: &str, end: &'a LinkEnd, mtu: u32) -> Result<(), Fault> {
        if !self.interfaces.insert((end.host.as_str(), end.interface.as_str())) {
            let problem = format!("{} has another interface \"{}\"", end.host, end.interface);
            return fault(format!("{key}.interface"), problem);
        }
        for (position, text) in end.addresses.iter().enumerate() {
            let key = format!("{key}.addresses[{position}]");
            let prefix = text.parse::<Prefix>().or_else(|error| fault(key.as_str(), error.to_string()))?;
            if let Some(other) = self.addresses.insert(prefix.address, end.host.as_str()) {
                return fault(key, format!("{} is an address of {other}, too", prefix.address));
            }
            if prefix.address.is_ipv6() && mtu < 1280 {
                return fault(key, "IPv6 needs an mtu of at least 1280 (RFC 8200, section 5)");
            }
        }
        Ok(())
    }
}

fn check_link(key: &str, link: &LabLink) -> Result<(), Fault> {
    let at = |name: &str| format!("{key}.{name}");
    if !(0.0..=1.0).contains(&link.loss_ratio) {
        return fault(
            at("loss-ratio"),
            format!("{} is no ratio: write 0 to 1, 0.01 is one in a hundred", link.loss_ratio),
        );
    }
    if link.jitter > link.delay {
        return fault(
            at("jitter"),
            format!("{} is more than the delay of {}: packets would leave early", link.jitter, link.delay),
        );
    }
    if link.rate.is_some_and(|rate| rate.0 == 0) {
        return fault(at("rate"), "rate must be above zero: write a positive rate, or omit it for no limit");
    }
    if link.queue.is_some() && link.rate.is_none() {
        return fault(at("queue"), "there is no queue without a rate: write one, or omit the queue");
    }
    if let Some(longest) = link.black_hole_above {
        if link.effective_backend() != LinkBackend::DelayLine {
            return fault(
                at("black-hole-above"),
                "only a delay line supports a black hole: write backend = \"delay-line\", or leave it out",
            );
        }
        if !(68..link.mtu).contains(&longest) {
            return fault(
                at("black-hole-above"),
                format!("{longest} is no length below the mtu of {}: write 68 to {}", link.mtu, link.mtu - 1),
            );
        }
    }
    // Maximum length of an IP packet, less the Ethernet header for which the
    // kernel reserves room.
    let most = if link.effective_backend() == LinkBackend::DelayLine { 65_521 } else { 65_535 };
    if !(68..=most).contains(&link.mtu) {
        return fault(at("mtu"), format!("{} is no MTU for this link: write 68 to {most} bytes", link.mtu));
    }
    if link.backend == LinkBackend::Veth && !link.is_ideal() {
        return fault(
            at("backend"),
            "a veth pair has no delay, jitter, loss or rate: write \"delay-line\", or leave it out",
        );
    }
    if link.ends[0].host == link.ends[1].host {
        return fault(
            format!("{key}.ends[1].host"),
            "both ends are on the same host: a link connects two hosts",
        );
    }
    Ok(())
}

fn check_end(key: &str, end: &LinkEnd, is_tun: bool, hosts: &BTreeSet<&str>) -> Result<(), Fault> {
    if !hosts.contains(end.host.as_str()) {
        let known: Vec<&str> = hosts.iter().copied().collect();
        let hint = did_you_mean(&end.host, known.iter().copied());
        let problem = format!("there is no host \"{}\"{hint} (known: {})", end.host, known.join(", "));
        return fault(format!("{key}.host"), problem);
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let name = end.interface.as_str();
    if name.is_empty() || name.len() > 15 || !name.chars().all(fits) || matches!(name, "." | ".." | "lo") {
        let problem = format!("\"{name}\" is no name for it: write 1 to 15 letters, digits, `-`, `_` or `.`");
        return fault(format!("{key}.interface"), problem);
    }
    if !is_tun && matches!(name, "all" | "default") {
        return fault(format!("{key}.interface"), "the kernel reserves this name");
    }
    Ok(())
}

fn check_host(file: &LabFile, index: usize, host: &LabHost) -> Result<(), Fault> {
    let networks: Vec<Prefix> = file
        .ends()
        .filter(|end| end.host == host.name)
        .flat_map(|end| &end.addresses)
        .filter_map(|text| text.parse().ok())
        .collect();
    for (number, route) in host.routes.iter().enumerate() {
        let key = format!("host[{index}].route[{number}]");
        if let Err(problem) = destination(&route.to, route.via) {
            return fault(format!("{key}.to"), problem);
        }
        if !networks.iter().any(|network| network.contains(route.via)) {
            let problem = format!("{} is on no link of {}: a gateway is a neighbour", route.via, host.name);
            return fault(format!("{key}.via"), problem);
        }
    }
    check_services(index, host)?;
    for key in host.sysctls.keys() {
        let place = format!("host[{index}].sysctls.{key}");
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        if !key.starts_with("net.") || !key.chars().all(fits) || key.contains("..") || key.contains("//") {
            return fault(
                place,
                "only sysctls below `net.` belong to a host of a lab; the others are the machine's",
            );
        }
    }
    Ok(())
}

fn check_services(host_index: usize, host: &LabHost) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    for (index, service) in host.services.iter().enumerate() {
        let key = |name: &str| format!("host[{host_index}].service[{index}].{name}");
        check_name(&key("name"), &service.name, 63)?;
        if !names.insert(service.name.as_str()) {
            let problem = format!("\"{}\" is the name of another service of {}", service.name, host.name);
            return fault(key("name"), problem);
        }
        if service.command.first().is_none_or(String::is_empty) {
            return fault(key("command"), "write a program and its arguments, as in [\"sshd\", \"-D\"]");
        }
        if service.ready.as_ref().is_some_and(|line| line.first().is_none_or(String::is_empty)) {
            return fault(key("ready"), "write a program and its arguments, or leave it out");
        }
        if let Some(mount) = &service.mount {
            check_name(&key("mount"), mount, 63)?;
        }
        if let Some(name) = service.files.keys().find(|name| name.contains('/') || name.starts_with('.')) {
            return fault(key("files"), format!("\"{name}\" is no name of a file in the service's folder"));
        }
    }
    Ok(())
}

/// Destination of a route: `default` is of the gateway's family.
pub(crate) fn destination(to: &str, via: IpAddr) -> Result<Prefix, String> {
    let any: IpAddr = match via {
        IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    if to == "default" {
        return Ok(Prefix { address: any, length: 0 });
    }
    let prefix: Prefix =
        to.parse().map_err(|_| format!("\"{to}\" is no network: write 10.1.0.0/24, fd00::/64 or default"))?;
    if prefix.address.is_ipv4() != via.is_ipv4() {
        return Err(format!("{to} and {via} are not of the same family"));
    }
    Ok(prefix)
}
