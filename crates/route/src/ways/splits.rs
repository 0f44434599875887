//! Prefixes by which a host distinguishes packets, and the classes of addresses that
//! they make of a network.

use std::{collections::BTreeSet, net::IpAddr};

use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, RouteEntry},
};

/// Prefixes of destinations or of sources.
#[derive(Debug, Default)]
pub(super) struct Splits(BTreeSet<Prefix>);

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
        let mut splits = Self(routes.map(|route| route.destination.network()).collect());
        for address in routing.interfaces.iter().flat_map(|interface| &interface.addresses) {
            splits.0.extend([address.value.network(), Prefix::host(address.value.address)]);
        }
        splits.0.extend(routing.special_routes.iter().map(|special| special.route.destination.network()));
        splits.0.extend(routing.rules.iter().filter_map(|rule| rule.selector.to).map(Prefix::network));
        splits
    }

    /// By rules and source-specific routes.
    pub(super) fn sources(routing: &HostRouting) -> Self {
        let of_rules = routing.rules.iter().filter_map(|rule| rule.selector.from);
        let of_routes = routing.special_routes.iter().filter_map(|special| special.from);
        Self(of_rules.chain(of_routes).map(Prefix::network).collect())
    }

    pub(super) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Classes of a network: for each prefix inside it, and for the rest, the first of the
    /// `known` addresses, which are sorted; where there is none, any address of the prefix.
    pub(super) fn classes(&self, network: Prefix, known: &[IpAddr]) -> Vec<Class> {
        let network = network.network();
        let mut inside: Vec<Prefix> = self.0.iter().copied().filter(|it| is_within(*it, network)).collect();
        inside.push(network);
        let of = |prefix: Prefix| {
            let first = known.partition_point(|address| *address < prefix.address);
            known[first..].iter().copied().take_while(move |address| prefix.contains(*address))
        };
        let class = |prefix: &Prefix| {
            let finer: Vec<Prefix> = inside.iter().copied().filter(|it| is_within(*it, *prefix)).collect();
            let is_free = |address: &IpAddr| !finer.iter().any(|finer| finer.contains(*address));
            let mut members = of(*prefix).filter(is_free);
            if let Some(address) = members.next() {
                return Some(Class { address, count: 1 + members.count() });
            }
            candidates(*prefix).into_iter().find(is_free).map(|address| Class { address, count: 0 })
        };
        inside.iter().filter_map(class).collect()
    }
}

/// Whether a network is a part of another.
fn is_within(inner: Prefix, outer: Prefix) -> bool {
    inner.length > outer.length && outer.contains(inner.address)
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
        let splits = Splits(BTreeSet::from(splits));
        let known: Vec<IpAddr> =
            ["10.10.0.1", "10.10.0.2", "10.10.0.201", "10.10.0.202"].map(|it| it.parse().unwrap()).into();
        let classes = splits.classes(prefix("10.10.0.0/24"), &known);
        let classes: BTreeSet<(String, usize)> =
            classes.iter().map(|class| (class.address.to_string(), class.count)).collect();
        let wanted = [("10.10.0.1", 2), ("10.10.0.202", 1), ("10.10.0.201", 1), ("10.10.0.65", 0)];
        assert_eq!(classes, wanted.map(|(address, count)| (address.to_owned(), count)).into());
    }
}
