//! Facts that the rules take from a fabric: networks, gateways, servers.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
};

use clearstream_schema::{
    fabric::{HostRole, InfinibandMode, ReturnPath},
    prefix::Prefix,
};

use super::view::overlap;
use crate::{
    fabric::{Fabric, HostId},
    planner::Planner,
};

/// A network of the fabric; one for each of its prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    pub(super) name: String,
    pub(super) prefix: Prefix,
    pub(super) mtu: Option<u32>,
    pub(super) infiniband_mode: Option<InfinibandMode>,
}

/// A gateway of the fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gateway {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) stateful: bool,
    weight: u16,
}

/// Networks between which gateways carry.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Between {
    networks: Vec<Prefix>,
    gateways: Vec<usize>,
    return_path: ReturnPath,
}

/// All facts; empty without a fabric.
#[derive(Debug, Default)]
pub(super) struct FabricFacts {
    pub(super) networks: Vec<Network>,
    gateways: Vec<Gateway>,
    by_address: HashMap<IpAddr, usize>,
    by_name: HashMap<String, usize>,
    storage: HashSet<String>,
    between: Vec<Between>,
    /// Prefixes of one family that its routes join.
    joined: Vec<[Prefix; 2]>,
}

impl FabricFacts {
    pub(super) fn new(fabric: &Fabric) -> Self {
        let mut facts = Self::default();
        for network in &fabric.file().networks {
            facts.networks.extend(network.prefixes.iter().map(|prefix| Network {
                name: network.name.clone(),
                prefix: *prefix,
                mtu: network.mtu,
                infiniband_mode: network.infiniband_mode,
            }));
        }
        for gateway in fabric.gateways() {
            let addresses = addresses(fabric, gateway.host);
            let at = facts.gateways.len();
            facts.by_name.insert(gateway.name.clone(), at);
            facts.by_address.extend(addresses.iter().map(|address| (*address, at)));
            let (name, stateful) = (gateway.name.clone(), gateway.stateful);
            facts.gateways.push(Gateway { name, addresses, stateful, weight: gateway.weight });
        }
        for host in fabric.hosts().filter(|host| fabric.class(*host).role == HostRole::Storage) {
            facts.storage.insert(fabric.host_name(host));
        }
        let planner = Planner::new(fabric);
        facts.between = (0..fabric.file().routes.len()).map(|route| between(&planner, route)).collect();
        for route in 0..fabric.file().routes.len() {
            let [left, right] = fabric.route(route).1.map(|network| &fabric.network(network).prefixes);
            for prefix in left {
                let alike = right.iter().filter(|other| other.address.is_ipv4() == prefix.address.is_ipv4());
                facts.joined.extend(alike.map(|other| [*prefix, *other]));
            }
        }
        facts
    }

    /// Prefixes of networks that are joined by gateways, of one family each.
    pub(super) fn joined(&self) -> impl Iterator<Item = [Prefix; 2]> + '_ {
        self.joined.iter().copied()
    }

    /// The gateway that has an address.
    pub(super) fn gateway(&self, address: IpAddr) -> Option<&Gateway> {
        self.by_address.get(&address).map(|at| &self.gateways[*at])
    }

    /// Weight of a gateway by its name.
    pub(super) fn weight(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).map(|at| u32::from(self.gateways[*at].weight))
    }

    /// A host of the fabric that forwards.
    pub(super) fn is_gateway(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// A host of the fabric that serves data.
    pub(super) fn is_storage(&self, name: &str) -> bool {
        self.storage.contains(name)
    }

    /// The network that a prefix is in.
    pub(super) fn network_of(&self, prefix: Prefix) -> Option<&Network> {
        self.networks.iter().find(|network| overlap(network.prefix, prefix))
    }

    /// Addresses of gateways that lead to `destination` and are not among
    /// `members`, on the network that these are on.
    pub(super) fn lacking(&self, destination: Prefix, members: &[IpAddr]) -> Vec<IpAddr> {
        let near = |address: &IpAddr| {
            self.networks.iter().any(|network| {
                network.prefix.contains(*address)
                    && members.iter().any(|member| network.prefix.contains(*member))
            })
        };
        let leads = |between: &&Between| {
            between.networks.iter().any(|network| destination.length > 0 && overlap(*network, destination))
        };
        let gateways = self.between.iter().filter(leads).flat_map(|between| &between.gateways);
        let addresses = gateways.flat_map(|gateway| &self.gateways[*gateway].addresses);
        let mut lacking: Vec<IpAddr> =
            addresses.copied().filter(|address| near(address) && !members.contains(address)).collect();
        lacking.sort_unstable();
        lacking.dedup();
        lacking
    }

    /// The fabric permits replies to return by any gateway.
    pub(super) fn wants_no_return_path(&self, mut networks: impl Iterator<Item = Prefix>) -> bool {
        networks.any(|network| {
            self.between.iter().any(|between| {
                between.return_path == ReturnPath::None
                    && between.networks.iter().any(|other| overlap(*other, network))
            })
        })
    }
}

/// Every address of a host.
fn addresses(fabric: &Fabric, host: HostId) -> Vec<IpAddr> {
    let links = 0..fabric.class(host).links.len();
    links.flat_map(|link| [false, true].map(|ipv6| fabric.address(host, link, ipv6))).flatten().collect()
}

fn between(planner: &Planner<'_>, route: usize) -> Between {
    let fabric = planner.fabric();
    let (_, networks) = fabric.route(route);
    let prefixes = networks.iter().flat_map(|network| fabric.network(*network).prefixes.clone());
    Between {
        networks: prefixes.collect(),
        gateways: fabric.route_gateways(route).map(|gateway| gateway.number).collect(),
        // The return path that `auto` selects.
        return_path: planner.choice(route).return_path,
    }
}
