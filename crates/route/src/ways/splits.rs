//! Prefixes by which a host distinguishes packets, and the classes of addresses that
//! they make of a network.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, RouteEntry},
};

/// Prefixes of destinations or of sources.
#[derive(Debug, Default)]
pub(super) struct Splits {
    prefixes: BTreeSet<Prefix>,
    /// Lengths that occur, by family.
    lengths: [BTreeSet<u8>; 2],
}

impl FromIterator<Prefix> for Splits {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        let mut splits = Self::default();
        splits.extend(prefixes);
        splits
    }
}

/// Addresses that no prefix distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Class {
    /// The first of them.
    pub(super) address: IpAddr,
    /// Hosts in it.
    pub(super) count: usize,
}

impl Splits {
    /// By routes, addresses and rules; of the routes those that are given.
    pub(super) fn destinations<'a>(
        routing: &'a HostRouting,
        routes: impl Iterator<Item = &'a RouteEntry>,
    ) -> Self {
        let mut splits: Self = routes.map(|route| route.destination).collect();
        for address in routing.interfaces.iter().flat_map(|interface| &interface.addresses) {
            splits.extend([address.value, Prefix::host(address.value.address)]);
        }
        splits.extend(routing.special_routes.iter().map(|special| special.route.destination));
        splits.extend(routing.rules.iter().filter_map(|rule| rule.selector.to));
        splits
    }

    fn extend(&mut self, prefixes: impl IntoIterator<Item = Prefix>) {
        for prefix in prefixes {
            self.prefixes.insert(prefix.network());
            self.lengths[usize::from(prefix.address.is_ipv6())].insert(prefix.length);
        }
    }

    /// By rules and source-specific routes.
    pub(super) fn sources(routing: &HostRouting) -> Self {
        let of_rules = routing.rules.iter().filter_map(|rule| rule.selector.from);
        let of_routes = routing.special_routes.iter().filter_map(|special| special.from);
        of_rules.chain(of_routes).collect()
    }

    pub(super) fn add(&mut self, other: Self) {
        self.extend(other.prefixes);
    }

    /// Classes of a network: for each prefix inside it, and for the rest, the first of the
    /// `known` addresses, which are sorted; where there is none, any address of the prefix.
    pub(super) fn classes(&self, network: Prefix, known: &[IpAddr]) -> Vec<Class> {
        let network = network.network();
        let first = known.partition_point(|address| *address < network.address);
        let members = known[first..].iter().copied().take_while(|address| network.contains(*address));
        let mut classes: BTreeMap<Prefix, Class> = BTreeMap::new();
        for address in members {
            let finest = self.finest(address, network);
            classes.entry(finest).or_insert(Class { address, count: 0 }).count += 1;
        }
        let begin = Prefix { address: network.address, length: 0 };
        let inside = self.prefixes.range(begin..).take_while(|it| network.contains(it.address));
        for prefix in inside.copied().filter(|it| it.length > network.length).chain([network]) {
            let is_free = |address: &IpAddr| self.finest(*address, network) == prefix;
            if !classes.contains_key(&prefix)
                && let Some(address) = candidates(prefix).into_iter().find(is_free)
            {
                classes.insert(prefix, Class { address, count: 0 });
            }
        }
        classes.into_values().collect()
    }

    /// The longest prefix with an address, at least this one.
    fn finest(&self, address: IpAddr, network: Prefix) -> Prefix {
        let lengths = self.lengths[usize::from(address.is_ipv6())].iter().rev();
        let of = |length: &u8| Prefix { address, length: *length }.network();
        let longer = lengths.take_while(|length| **length > network.length);
        longer.map(of).find(|prefix| self.prefixes.contains(prefix)).unwrap_or(network)
    }
}

/// Addresses of a network for hosts: from its beginning, and the last.
fn candidates(prefix: Prefix) -> Vec<IpAddr> {
    const TRIED: u32 = 8;
    let network = prefix.network();
    let (bits, first) = match network.address {
        IpAddr::V4(_) => (32 - network.length, u32::from(network.length < 31)),
        IpAddr::V6(_) => (128 - network.length, u32::from(network.length < 127)),
    };
    let count = if bits >= 16 { u32::from(u16::MAX) } else { (1 << bits) - 1 };
    let nth = |offset: u32| match network.address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) + offset).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) + u128::from(offset)).into()),
    };
    let last = count.saturating_sub(first);
    (first..=last.min(first + TRIED)).chain([last / 2, last]).map(nth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_prefix_inside_has_an_address_and_hosts_come_first() {
        let prefix = |text: &str| -> Prefix { text.parse().unwrap() };
        let splits =
            ["10.0.0.0/8", "10.10.0.128/25", "10.10.0.201/32", "10.10.0.64/26", "10.9.0.0/16"].map(prefix);
        let splits: Splits = splits.into_iter().collect();
        let known: Vec<IpAddr> =
            ["10.10.0.1", "10.10.0.2", "10.10.0.201", "10.10.0.202"].map(|it| it.parse().unwrap()).into();
        let classes = splits.classes(prefix("10.10.0.0/24"), &known);
        let classes: BTreeSet<(String, usize)> =
            classes.iter().map(|class| (class.address.to_string(), class.count)).collect();
        let wanted = [("10.10.0.1", 2), ("10.10.0.202", 1), ("10.10.0.201", 1), ("10.10.0.65", 0)];
        assert_eq!(classes, wanted.map(|(address, count)| (address.to_owned(), count)).into());
    }
}
