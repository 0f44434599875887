//! Addresses: as many as hosts, inside their networks, each once.

use std::{collections::HashMap, net::IpAddr};

use clearstream_configfile::{Fault, fault};
use clearstream_schema::prefix::Prefix;

use crate::fabric::{
    expand::{Fabric, HostId, Link},
    pattern::{AddressList, LARGEST_COUNT},
};

/// Most addresses of a fabric, further ones included.
const MOST_ADDRESSES: usize = LARGEST_COUNT as usize;

const FAMILY: [&str; 2] = ["IPv4", "IPv6"];

pub(in crate::fabric) fn check(fabric: &Fabric) -> Result<(), Fault> {
    let mut taken = HashMap::with_capacity(fabric.host_count());
    let mut address_count = 0_usize;
    for (class, read) in fabric.classes.iter().enumerate() {
        for (number, link) in read.links.iter().enumerate() {
            let key = format!("class[{class}].link[{number}]");
            counts(fabric, class, link, &key)?;
            let each = fabric.network_gateways(link.network).count().max(1);
            for family in 0..2 {
                let hosts = fabric.class_count(class);
                let key = |name: &str| format!("{key}.{name}");
                let count = if link.aliases[family].is_empty() { 0 } else { hosts.saturating_mul(each) };
                let mut place = Place { fabric, class, network: link.network, taken: &mut taken };
                let own = if link.addresses[family].is_empty() { 0 } else { hosts };
                address_count = address_count.saturating_add(own).saturating_add(count);
                if address_count > MOST_ADDRESSES {
                    let problem = format!(
                        "a fabric has at most {MOST_ADDRESSES} addresses, one for each gateway included"
                    );
                    return fault(key("addresses"), problem);
                }
                place.all(&link.addresses[family], hosts, 1, &key("addresses"))?;
                place.all(&link.aliases[family], count, each, &key("alias-addresses"))?;
            }
        }
    }
    Ok(())
}

fn counts(fabric: &Fabric, class: usize, link: &Link, key: &str) -> Result<(), Fault> {
    let hosts = fabric.class_count(class);
    let network = fabric.network(link.network);
    if link.addresses.iter().all(AddressList::is_empty) {
        return fault(format!("{key}.addresses"), "a link has addresses: write a pattern for each family");
    }
    let each = fabric.network_gateways(link.network).count();
    for (family, name) in FAMILY.iter().enumerate() {
        let has_prefix =
            network.prefixes.iter().any(|prefix| usize::from(prefix.address.is_ipv6()) == family);
        let (addresses, aliases) = (&link.addresses[family], &link.aliases[family]);
        if !addresses.is_empty() && !has_prefix {
            let problem = format!("network \"{}\" has no {name} prefix", network.name);
            return fault(format!("{key}.addresses"), problem);
        }
        if !addresses.is_empty()
            && let Some(count) = addresses.count()
            && count != hosts
        {
            let problem = format!("{count} {name} addresses for {hosts} hosts: write one for each");
            return fault(format!("{key}.addresses"), problem);
        }
        if aliases.is_empty() {
            continue;
        }
        if addresses.is_empty() {
            let problem = format!("there are no {name} addresses that these could stand beside");
            return fault(format!("{key}.alias-addresses"), problem);
        }
        if each == 0 {
            let problem = format!("no route goes from \"{}\": an alias is for a gateway", network.name);
            return fault(format!("{key}.alias-addresses"), problem);
        }
        if let Some(count) = aliases.count()
            && count != hosts * each
        {
            let problem = format!(
                "{count} {name} addresses for {hosts} hosts and {each} gateways: write {hosts} x {each} = {}",
                hosts * each
            );
            return fault(format!("{key}.alias-addresses"), problem);
        }
    }
    let macs = link.link_addresses.count();
    if macs != 0 && macs != hosts {
        let problem = format!("{macs} link addresses for {hosts} hosts: write one for each, or none");
        return fault(format!("{key}.link-addresses"), problem);
    }
    for index in 0..macs {
        let text = link.link_addresses.nth(index).unwrap_or_default();
        if !is_link_address(&text) {
            let problem = format!("\"{text}\" is no link address: write 02:00:00:00:00:[01-06]");
            return fault(format!("{key}.link-addresses"), problem);
        }
    }
    Ok(())
}

/// Six octets of two hexadecimal digits, of one station (IEEE 802: the lowest
/// bit of the first octet is the group's).
fn is_link_address(text: &str) -> bool {
    let octets: Vec<&str> = text.split(':').collect();
    let is_octet = |octet: &&str| octet.len() == 2 && octet.chars().all(|c| c.is_ascii_hexdigit());
    let first = octets.first().and_then(|octet| u8::from_str_radix(octet, 16).ok());
    octets.len() == 6 && octets.iter().all(is_octet) && first.is_some_and(|octet| octet & 1 == 0)
}

struct Place<'a> {
    fabric: &'a Fabric,
    class: usize,
    network: usize,
    taken: &'a mut HashMap<IpAddr, HostId>,
}

impl Place<'_> {
    /// `each` consecutive addresses belong to one host.
    fn all(&mut self, list: &AddressList, count: usize, each: usize, key: &str) -> Result<(), Fault> {
        if list.is_empty() {
            return Ok(());
        }
        let mut prefix: Option<Prefix> = None;
        for number in 0..count {
            let host = HostId { class: self.class, index: number / each };
            let Some(address) = list.nth(number) else {
                return fault(key, format!("value {} of the pattern is no address", number + 1));
            };
            if !prefix.is_some_and(|prefix| prefix.contains(address)) {
                prefix = self.fabric.prefix_of(self.network, address);
            }
            let Some(prefix) = prefix else {
                let network = self.fabric.network(self.network);
                let prefixes =
                    network.prefixes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let problem = format!(
                    "{address} of {} is outside of network \"{}\" ({prefixes})",
                    self.fabric.host_name(host),
                    network.name
                );
                return fault(key, problem);
            };
            if is_reserved(prefix, address) {
                let problem = format!(
                    "{address} of {} is the network's own or its broadcast address",
                    self.fabric.host_name(host)
                );
                return fault(key, problem);
            }
            if let Some(other) = self.taken.insert(address, host) {
                let (name, other) = (self.fabric.host_name(host), self.fabric.host_name(other));
                let whose =
                    if name == other { format!("{name} twice") } else { format!("{other} and of {name}") };
                return fault(key, format!("{address} is an address of {whose}"));
            }
        }
        Ok(())
    }
}

/// The first address of a network, and the last one of IPv4 (RFC 1122, section
/// 3.2.1.3; RFC 4291, section 2.6.1); networks of two or one have none (RFC 3021, RFC 6164).
fn is_reserved(prefix: Prefix, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) if prefix.length < 31 => {
            let host = u32::from(address) & (u32::MAX >> prefix.length);
            host == 0 || host == u32::MAX >> prefix.length
        }
        IpAddr::V6(address) if prefix.length < 127 => u128::from(address) & (u128::MAX >> prefix.length) == 0,
        _ => false,
    }
}
