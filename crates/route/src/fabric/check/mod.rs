//! Validation of a fabric file beyond its types.

pub(super) mod addresses;
mod routes;

use std::collections::BTreeSet;

use clearstream_configfile::{Fault, fault};
use clearstream_schema::{
    fabric::{FabricFile, FabricNetwork, HostClass, HostRole, InfinibandMode, NetworkKind},
    prefix::Prefix,
};
use clearstream_tune::{KernelVersion, Profile};

pub(super) use self::routes::{numbers, route, routes};
use super::expand::Class;

/// Longest name of an interface (`IFNAMSIZ` less the final zero).
const LONGEST_INTERFACE: usize = 15;
/// Largest MTU of IP over InfiniBand, connected mode (RFC 4755, section 5.1, as Linux has it).
const CONNECTED_MTU: u32 = 65_520;
/// Largest MTU of IP over InfiniBand, datagram mode: 4096 bytes of link MTU
/// less the 4 bytes of encapsulation (RFC 4391, section 7).
const DATAGRAM_MTU: u32 = 4092;
/// Least MTU of IPv4 (RFC 791) and IPv6 (RFC 8200, section 5).
const LEAST_MTU: [u32; 2] = [68, 1280];
/// Most hosts of a fabric: those of the largest machines ten times.
const MOST_HOSTS: usize = 1 << 17;
/// Most gateways of a fabric: each has a table and a rule on every host.
const MOST_GATEWAYS: usize = 1024;
/// Most networks, classes and routes; most prefixes of all networks. Each is compared with all others.
const MOST_PARTS: usize = 1024;

/// Name, networks.
pub(super) fn head(file: &FabricFile) -> Result<(), Fault> {
    name("name", &file.name)?;
    let prefix_count = file.networks.iter().map(|network| network.prefixes.len()).sum();
    for (key, what, count) in [
        ("network", "networks", file.networks.len()),
        ("network", "prefixes", prefix_count),
        ("class", "classes", file.classes.len()),
        ("route", "routes", file.routes.len()),
    ] {
        if count > MOST_PARTS {
            return fault(key, format!("a fabric has at most {MOST_PARTS} {what}, this one {count}"));
        }
    }
    if file.networks.len() < 2 {
        return fault("network", "a fabric has at least two [[network]]s");
    }
    let mut names = BTreeSet::new();
    for (index, network) in file.networks.iter().enumerate() {
        let key = format!("network[{index}]");
        name(&format!("{key}.name"), &network.name)?;
        if !names.insert(network.name.as_str()) {
            return fault(
                format!("{key}.name"),
                format!("\"{}\" is the name of another network", network.name),
            );
        }
        check_network(&key, network)?;
        prefixes(file, index)?;
    }
    if let Some(path) = file.path
        && (path.rate.0 == 0 || path.rtt.0 == 0 || path.flow_count == 0)
    {
        return fault("path", "a path has a rate, a round trip and a number of flows above zero");
    }
    Ok(())
}

fn name(key: &str, name: &str) -> Result<(), Fault> {
    let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if fits && !name.is_empty() && name.len() <= 32 && !name.starts_with('-') {
        return Ok(());
    }
    fault(key, format!("\"{name}\" is no name: write 1 to 32 letters, digits and `-`"))
}

fn check_network(key: &str, network: &FabricNetwork) -> Result<(), Fault> {
    if network.infiniband_mode.is_some() && network.kind != NetworkKind::Infiniband {
        let problem = "only InfiniBand has a mode: write kind = \"infiniband\", or leave the mode out";
        return fault(format!("{key}.infiniband-mode"), problem);
    }
    let Some(mtu) = network.mtu else { return Ok(()) };
    let key = format!("{key}.mtu");
    let has_ipv6 = network.prefixes.iter().any(|prefix| prefix.address.is_ipv6());
    let least = LEAST_MTU[usize::from(has_ipv6)];
    if mtu < least {
        let family = if has_ipv6 { "IPv6" } else { "IPv4" };
        return fault(key, format!("{family} needs an mtu of at least {least}"));
    }
    let (most, what) = match network.infiniband_mode {
        Some(InfinibandMode::Connected) => (CONNECTED_MTU, "InfiniBand in connected mode"),
        Some(InfinibandMode::Datagram) => (DATAGRAM_MTU, "InfiniBand in datagram mode"),
        None if network.kind == NetworkKind::Infiniband => (CONNECTED_MTU, "InfiniBand"),
        None => (65_535, "IP"),
    };
    if mtu > most {
        return fault(key, format!("{what} carries at most {most} bytes: write {most} or less"));
    }
    if network.kind == NetworkKind::Infiniband && network.infiniband_mode.is_none() && mtu > DATAGRAM_MTU {
        let problem = format!(
            "an mtu above {DATAGRAM_MTU} is for connected mode only: write infiniband-mode = \"connected\""
        );
        return fault(key, problem);
    }
    Ok(())
}

/// Whole networks that do not overlap: otherwise the network of an address would be
/// ambiguous.
fn prefixes(file: &FabricFile, index: usize) -> Result<(), Fault> {
    let network = &file.networks[index];
    if network.prefixes.is_empty() {
        return fault(
            format!("network[{index}]"),
            "a network has at least one prefix: write prefixes = [\"10.0.0.0/24\"]",
        );
    }
    let earlier = file.networks[..index]
        .iter()
        .flat_map(|other| other.prefixes.iter().map(move |prefix| (other.name.as_str(), *prefix)));
    let earlier: Vec<(&str, Prefix)> = earlier.collect();
    for (number, prefix) in network.prefixes.iter().enumerate() {
        let key = format!("network[{index}].prefixes[{number}]");
        if prefix.network() != *prefix {
            return fault(key, format!("{prefix} is an address: the network is {}", prefix.network()));
        }
        if prefix.length == 0 {
            return fault(key, "a network of everything leaves nothing to route to: write its own prefix");
        }
        let own = network.prefixes[..number].iter().map(|prefix| (network.name.as_str(), *prefix));
        let overlaps = |other: Prefix| other.contains(prefix.address) || prefix.contains(other.address);
        if let Some((name, other)) = earlier.iter().copied().chain(own).find(|(_, other)| overlaps(*other)) {
            return fault(key, format!("{prefix} overlaps {other} of network \"{name}\""));
        }
    }
    Ok(())
}

/// Classes, their hosts' names and their links; not yet the addresses.
pub(super) fn classes(file: &FabricFile, classes: &[Class]) -> Result<(), Fault> {
    let mut names = BTreeSet::new();
    let mut hosts = std::collections::HashSet::new();
    // Before any of them is made.
    let (mut host_count, mut gateway_count) = (0_usize, 0_usize);
    for (index, (class, read)) in file.classes.iter().zip(classes).enumerate() {
        host_count += read.names.count();
        if class.role == HostRole::Gateway {
            gateway_count += read.names.count();
        }
        for (what, count, most) in
            [("hosts", host_count, MOST_HOSTS), ("gateways", gateway_count, MOST_GATEWAYS)]
        {
            if count > most {
                return fault(format!("class[{index}].hosts"), format!("a fabric has at most {most} {what}"));
            }
        }
    }
    for (index, class) in file.classes.iter().enumerate() {
        let key = format!("class[{index}]");
        name(&format!("{key}.name"), &class.name)?;
        if !names.insert(class.name.as_str()) {
            return fault(format!("{key}.name"), format!("\"{}\" is the name of another class", class.name));
        }
        let list = &classes[index].names;
        if list.count() == 0 {
            return fault(format!("{key}.hosts"), "a class has at least one host");
        }
        for host in (0..list.count()).filter_map(|number| list.nth(number)) {
            host_name(&format!("{key}.hosts"), &host)?;
            if let Some(host) = hosts.replace(host) {
                return fault(format!("{key}.hosts"), format!("{host} is there twice"));
            }
        }
        check_class(&key, class, file)?;
        links(&key, class, &classes[index])?;
    }
    Ok(())
}

/// A name as RFC 1123 (section 2.1) has it.
fn host_name(key: &str, name: &str) -> Result<(), Fault> {
    let fits = name.len() <= 253
        && name.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        });
    if fits {
        return Ok(());
    }
    fault(key, format!("\"{name}\" is no host name: write letters, digits, `-` and `.` (RFC 1123)"))
}

fn check_class(key: &str, class: &HostClass, file: &FabricFile) -> Result<(), Fault> {
    let is_gateway = class.role == HostRole::Gateway;
    if !(1..=256).contains(&class.weight) {
        let problem = format!("a weight of {} is no share: write 1 to 256", class.weight);
        return fault(format!("{key}.weight"), problem);
    }
    if !is_gateway && class.weight != 1 {
        return fault(format!("{key}.weight"), "only gateways have a weight: flows are spread over them");
    }
    if !is_gateway && class.stateful {
        return fault(
            format!("{key}.stateful"),
            "only gateways are stateful here: it is about what they forward",
        );
    }
    if let Some(kernel) = &class.kernel
        && let Err(error) = kernel.parse::<KernelVersion>()
    {
        return fault(format!("{key}.kernel"), error.to_string());
    }
    if let Some(profile) = &class.tuning {
        let key = format!("{key}.tuning");
        if let Err(problem) = profile.parse::<Profile>() {
            return fault(key, problem);
        }
        if file.path.is_none() {
            let problem = "tuning is for a path: write [path] with rate = \"40Gb/s\" and rtt = \"200us\"";
            return fault(key, problem);
        }
    }
    for (name, value) in &class.sysctls {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':');
        if !name.contains('.') || !name.chars().all(is_name) || name.split('.').any(str::is_empty) {
            let problem = format!("\"{name}\" is no sysctl: write its dotted name, net.ipv4.tcp_sack");
            return fault(format!("{key}.sysctls"), problem);
        }
        if value.trim().is_empty() || value.contains('\n') {
            return fault(format!("{key}.sysctls.{name}"), "a sysctl has a value of one line");
        }
    }
    Ok(())
}

fn links(key: &str, class: &HostClass, read: &Class) -> Result<(), Fault> {
    let is_gateway = class.role == HostRole::Gateway;
    if class.links.is_empty() {
        return fault(key, "a class has at least one [[class.link]]");
    }
    let (mut interfaces, mut networks) = (BTreeSet::new(), BTreeSet::new());
    for (index, link) in class.links.iter().enumerate() {
        let key = format!("{key}.link[{index}]");
        let name = link.interface.as_str();
        let fits = !name.is_empty()
            && name.len() <= LONGEST_INTERFACE
            && name != "."
            && name != ".."
            && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control());
        if !fits {
            let problem = format!(
                "\"{name}\" is no name of an interface: write 1 to 15 letters, without / : and blanks"
            );
            return fault(format!("{key}.interface"), problem);
        }
        if !interfaces.insert(name) {
            return fault(format!("{key}.interface"), format!("another link of this class is on {name}"));
        }
        if !networks.insert(read.links[index].network) {
            return fault(
                format!("{key}.network"),
                format!("another link of this class is on \"{}\"", link.network),
            );
        }
        if !is_gateway && !link.link_addresses.is_empty() {
            return fault(
                format!("{key}.link-addresses"),
                "only gateways are distinguished by link addresses: leave them out",
            );
        }
        if class.role != HostRole::Storage && !link.alias_addresses.is_empty() {
            return fault(
                format!("{key}.alias-addresses"),
                "only storage hosts have an address per gateway: leave them out",
            );
        }
    }
    if is_gateway && networks.len() < 2 {
        return fault(format!("{key}.link"), "a gateway has links on at least two networks");
    }
    Ok(())
}
