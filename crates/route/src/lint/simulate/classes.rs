//! Classes of hosts that no lookup distinguishes: equal in all but their own
//! addresses, which are in the same prefixes of every route and rule of every host.
//! One host of each class is walked for all.

use std::{
    collections::{BTreeSet, HashMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    net::IpAddr,
};

use clearstream_schema::prefix::Prefix;

use super::super::{Facts, View, among};

/// The classes of a site.
#[derive(Debug)]
pub(super) struct Classes {
    /// Class of each host.
    pub(super) of: Vec<usize>,
    /// Hosts of each class.
    pub(super) members: Vec<Vec<usize>>,
}

impl Classes {
    pub(super) fn new(facts: &Facts<'_>) -> Self {
        let prefixes = Prefixes::new(&facts.hosts);
        let mut numbers: HashMap<u64, usize> = HashMap::new();
        let mut classes = Self { of: Vec::new(), members: Vec::new() };
        for (host, view) in facts.hosts.iter().enumerate() {
            let next = numbers.len();
            let class = *numbers.entry(key(view, &prefixes)).or_insert(next);
            if class == classes.members.len() {
                classes.members.push(Vec::new());
            }
            classes.members[class].push(host);
            classes.of.push(class);
        }
        classes
    }
}

/// Everything that decides what a host does with packets, its own addresses by
/// their positions.
fn key(view: &View<'_>, prefixes: &Prefixes) -> u64 {
    let addresses = view.routing.interfaces.iter().flat_map(|interface| &interface.addresses);
    let own: Vec<IpAddr> = addresses.map(|address| address.value.address).collect();
    let position = |address: IpAddr| own.iter().position(|own| *own == address).ok_or(address);
    let mut hasher = DefaultHasher::new();
    (among::kind(view), view.is_whole()).hash(&mut hasher);
    for address in &own {
        prefixes.containing(*address).hash(&mut hasher);
    }
    for rule in &view.routing.rules {
        rule.selector.from.map(|from| position(from.address)).hash(&mut hasher);
    }
    for route in &view.routing.routes {
        route.source.map(position).hash(&mut hasher);
    }
    for (name, value) in &view.routing.sysctls {
        if name.contains(".conf.") || name.ends_with("ip_forward") {
            (name, &value.value).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Every prefix by which some host distinguishes packets.
#[derive(Debug, Default)]
struct Prefixes {
    known: HashMap<Prefix, usize>,
    /// Lengths that occur, by family.
    lengths: [BTreeSet<u8>; 2],
}

impl Prefixes {
    fn new(hosts: &[View<'_>]) -> Self {
        let mut prefixes = Self::default();
        for view in hosts {
            for route in &view.routing.routes {
                prefixes.add(route.destination);
            }
            for special in &view.routing.special_routes {
                prefixes.add(special.route.destination);
                special.from.into_iter().for_each(|from| prefixes.add(from));
            }
            for rule in &view.routing.rules {
                // A rule for one of the host's own addresses is part of its class.
                let is_own =
                    |from: &Prefix| *from == Prefix::host(from.address) && view.own.contains(&from.address);
                let from = rule.selector.from.filter(|from| !is_own(from));
                from.into_iter().chain(rule.selector.to).for_each(|prefix| prefixes.add(prefix));
            }
        }
        prefixes
    }

    fn add(&mut self, prefix: Prefix) {
        let next = self.known.len();
        self.known.entry(prefix.network()).or_insert(next);
        self.lengths[usize::from(prefix.address.is_ipv6())].insert(prefix.length);
    }

    /// Numbers of the prefixes that contain an address.
    fn containing(&self, address: IpAddr) -> Vec<usize> {
        let lengths = self.lengths[usize::from(address.is_ipv6())].iter();
        lengths
            .filter_map(|length| self.known.get(&Prefix { address, length: *length }.network()).copied())
            .collect()
    }
}
