//! Route planner: from a fabric to the routing of each host with its reasons, a
//! symmetry check and simulated shares. Hosts are planned one at a time on request,
//! so that thousands cost no memory.

pub mod choice;
mod host;
pub mod kernel;
pub mod loss;
mod neighbours;
mod notices;
mod pairs;
mod paths;
mod proof;
pub mod shares;
mod sysctls;
mod tuning;

use std::net::IpAddr;

pub use clearstream_routing::lookup;
use clearstream_routing::multipath;
use clearstream_schema::{
    fabric::{HashPolicy, HostRole, Multipath, ReturnPath},
    prefix::Prefix,
    route_plan::{
        ClassMultipath, PlannedClass, PlannedGateway, PlannedHost, PlannedRoute, ROUTE_PLAN_SCHEMA,
        RoutePlan, SymmetryProof,
    },
    routing::HostRouting,
};

use serde::{Serialize, Serializer, ser::SerializeMap};

use self::{choice::Choice, host::Draft, kernel::KernelFeatures, shares::Population, tuning::Tuning};
use crate::fabric::{Fabric, HostId};

/// Plans the hosts of a fabric.
#[derive(Debug)]
pub struct Planner<'a> {
    fabric: &'a Fabric,
    routes: Vec<Route>,
    /// By class.
    kernels: Vec<KernelFeatures>,
    /// By class.
    tunings: Vec<Tuning>,
}

struct WithHosts<'p, 'a> {
    planner: &'p Planner<'a>,
    overview: &'p RoutePlan,
    hosts: &'p [HostId],
}

impl Serialize for WithHosts<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Hosts<'p, 'a>(&'p Planner<'a>, &'p [HostId]);
        impl Serialize for Hosts<'_, '_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.1.iter().map(|host| self.0.explain(*host)))
            }
        }
        let RoutePlan { schema, version, fabric, classes, routes, notices, hosts: _ } = self.overview;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", schema)?;
        map.serialize_entry("version", version)?;
        map.serialize_entry("fabric", fabric)?;
        map.serialize_entry("classes", classes)?;
        map.serialize_entry("routes", routes)?;
        if !notices.is_empty() {
            map.serialize_entry("notices", notices)?;
        }
        map.serialize_entry("hosts", &Hosts(self.planner, self.hosts))?;
        map.end()
    }
}

/// A route of the fabric, ready to be written for each host.
#[derive(Debug)]
struct Route {
    networks: [usize; 2],
    choice: Choice,
    /// Numbers of its gateways.
    gateways: Vec<usize>,
    seed: Option<u32>,
    /// By family and end of the route: next hops of hosts there.
    hops: [[Vec<Hop>; 2]; 2],
    /// By end of the route: aliases of the servers there, for clients on the peer.
    aliases: [Vec<Alias>; 2],
}

/// A gateway as hosts on one network see it.
#[derive(Debug, Clone, Copy)]
struct Hop {
    gateway: usize,
    via: IpAddr,
    weight: u16,
}

/// An address of a server that stands for a gateway.
#[derive(Debug, Clone, Copy)]
struct Alias {
    address: IpAddr,
    gateway: usize,
}

impl Route {
    /// Index of a network among the two ends of the route.
    fn end(&self, network: usize) -> Option<usize> {
        self.networks.iter().position(|other| *other == network)
    }

    fn return_path(&self) -> ReturnPath {
        self.choice.return_path
    }
}

impl<'a> Planner<'a> {
    /// Chooses return paths and prepares the planning of hosts.
    pub fn new(fabric: &'a Fabric) -> Self {
        let file = fabric.file();
        let kernel = |class: &clearstream_schema::fabric::HostClass| {
            KernelFeatures::read(class.kernel.as_deref(), None)
        };
        let kernels: Vec<KernelFeatures> = file.classes.iter().map(kernel).collect();
        let tunings = (0..file.classes.len()).map(|class| Tuning::of(fabric, class)).collect();
        let routes = (0..file.routes.len()).map(|index| read_route(fabric, index)).collect();
        Self { fabric, routes, kernels, tunings }
    }

    /// Uses this kernel, of a running or captured host, for a class instead of the
    /// one in the file.
    #[must_use]
    pub fn with_kernel(mut self, class: usize, kernel: KernelFeatures) -> Self {
        if let Some(known) = self.kernels.get_mut(class) {
            *known = kernel;
        }
        self
    }

    /// The fabric.
    pub fn fabric(&self) -> &'a Fabric {
        self.fabric
    }

    /// The return path of a route, with the costs of all.
    pub fn choice(&self, route: usize) -> &Choice {
        &self.routes[route].choice
    }

    /// Planned routing of a host.
    pub fn routing(&self, host: HostId) -> HostRouting {
        Draft::new(self, host, false).finish().routing
    }

    /// Planned routing of a host, with reasons.
    pub fn explain(&self, host: HostId) -> PlannedHost {
        Draft::new(self, host, true).finish()
    }

    /// Multipath form that hosts of a class use for a route, and the reason.
    pub fn multipath(&self, route: usize, class: usize) -> (Multipath, String) {
        let configured = self.fabric.route(route).0.multipath;
        kernel::multipath(configured, self.routes[route].return_path(), &self.kernels[class])
    }

    /// Symmetry check of a route: both directions of every kind of flow.
    pub fn prove(&self, route: usize) -> SymmetryProof {
        proof::prove(self, route, &|host| self.routing(host))
    }

    /// The same for routing from another source, such as files.
    pub fn prove_with(&self, route: usize, routing: &dyn Fn(HostId) -> HostRouting) -> SymmetryProof {
        proof::prove(self, route, routing)
    }

    /// Everything but the hosts: classes, routes with their proofs, notices.
    pub fn overview(&self, population: &Population) -> RoutePlan {
        let fabric = self.fabric;
        RoutePlan {
            schema: ROUTE_PLAN_SCHEMA.to_owned(),
            version: 1,
            fabric: fabric.name().to_owned(),
            classes: (0..fabric.file().classes.len()).map(|class| self.class(class)).collect(),
            routes: (0..self.routes.len()).map(|route| self.route(route, population)).collect(),
            notices: self.notices(),
            hosts: Vec::new(),
        }
    }

    /// An overview with hosts, each planned when it is written: a document of
    /// thousands of hosts is never held in memory.
    pub fn with_hosts(&'a self, overview: &'a RoutePlan, hosts: &'a [HostId]) -> impl Serialize + 'a {
        WithHosts { planner: self, overview, hosts }
    }

    fn class(&self, class: usize) -> PlannedClass {
        let (fabric, count) = (self.fabric, self.fabric.class_count(class));
        let first = HostId { class, index: 0 };
        let needs = kernel::needs(&self.routing(first));
        let describe = |need: kernel::KernelNeed| match need.since {
            Some(since) => format!("Linux {since} ({})", need.name),
            None => need.name.to_owned(),
        };
        PlannedClass {
            name: fabric.file().classes[class].name.clone(),
            role: fabric.file().classes[class].role,
            host_count: count as u64,
            first: fabric.host_name(first),
            last: fabric.host_name(HostId { class, index: count.saturating_sub(1) }),
            kernel_needs: needs.into_iter().map(describe).collect(),
        }
    }

    fn route(&self, index: usize, population: &Population) -> PlannedRoute {
        let (configured, networks) = self.fabric.route(index);
        let route = &self.routes[index];
        PlannedRoute {
            between: configured.between.clone(),
            gateways: route.gateways.iter().map(|number| self.gateway(*number, networks)).collect(),
            return_path: route.return_path(),
            recommended: route.choice.recommended,
            recommended_because: route.choice.because.clone(),
            multipath: self.class_multipaths(index),
            hash_policy: configured.hash_policy,
            hash_seed: route.seed,
            costs: route.choice.costs.clone(),
            proof: self.prove(index),
            shares: shares::simulate(self, index, population),
            losses: loss::losses(
                &route
                    .gateways
                    .iter()
                    .map(|number| self.fabric.gateways()[*number].weight)
                    .collect::<Vec<_>>(),
                self.bucket_count(index),
                route.return_path() == ReturnPath::None,
                self.unbalanced_seconds(index) > 0,
            ),
        }
    }

    /// Buckets of a route's resilient groups.
    fn bucket_count(&self, index: usize) -> u16 {
        self.fabric.file().numbers.bucket_count.unwrap_or_else(|| {
            let gateway = |number: &usize| self.fabric.gateways()[*number].weight;
            multipath::bucket_count(&self.routes[index].gateways.iter().map(gateway).collect::<Vec<_>>())
        })
    }

    /// Seconds after which busy buckets of a route's resilient groups move to a
    /// gateway that came back; never over gateways that keep state: they would drop
    /// the flow, or give it another translation.
    fn unbalanced_seconds(&self, index: usize) -> u32 {
        let stateful = |number: &usize| self.fabric.gateways()[*number].stateful;
        let moves = !self.routes[index].gateways.iter().any(stateful);
        if moves { self.fabric.file().numbers.unbalanced_seconds } else { 0 }
    }

    fn gateway(&self, number: usize, networks: [usize; 2]) -> PlannedGateway {
        let gateway = &self.fabric.gateways()[number];
        let addresses = |network: usize| {
            let link = self.fabric.link_on(gateway.host, network);
            let address = |ipv6| self.fabric.address(gateway.host, link?, ipv6);
            [false, true].into_iter().filter_map(address).collect()
        };
        PlannedGateway {
            name: gateway.name.clone(),
            weight: gateway.weight,
            first_addresses: addresses(networks[0]),
            second_addresses: addresses(networks[1]),
        }
    }

    fn class_multipaths(&self, route: usize) -> Vec<ClassMultipath> {
        let networks = self.routes[route].networks;
        let classes = 0..self.fabric.file().classes.len();
        let ends = classes.filter(|class| {
            self.fabric.file().classes[*class].role != HostRole::Gateway
                && networks
                    .iter()
                    .any(|network| self.fabric.classes_on(*network).any(|other| other == *class))
        });
        let of_class = |class: usize| {
            let (multipath, because) = self.multipath(route, class);
            ClassMultipath { class: self.fabric.file().classes[class].name.clone(), multipath, because }
        };
        ends.map(of_class).collect()
    }

    /// Classes of servers on a network.
    fn servers_on(&self, network: usize) -> impl Iterator<Item = usize> + '_ {
        let is_server = |class: &usize| self.fabric.file().classes[*class].role == HostRole::Storage;
        self.fabric.classes_on(network).filter(is_server)
    }

    /// Link address of a gateway on a network, if the file has it.
    fn hardware(&self, gateway: usize, network: usize) -> Option<String> {
        let host = self.fabric.gateways()[gateway].host;
        self.fabric.link_address(host, self.fabric.link_on(host, network)?)
    }
}

fn read_route(fabric: &Fabric, index: usize) -> Route {
    let (configured, networks) = fabric.route(index);
    let choice = choice::choose(fabric, index);
    let gateways: Vec<usize> = fabric.route_gateways(index).map(|gateway| gateway.number).collect();
    let hops = [false, true].map(|ipv6| {
        let address = |number: usize, network: usize| {
            let host = fabric.gateways()[number].host;
            fabric.address(host, fabric.link_on(host, network)?, ipv6)
        };
        let carries = |number: &usize| networks.iter().all(|network| address(*number, *network).is_some());
        networks.map(|network| {
            let hop = |number: usize| {
                let weight = fabric.gateways()[number].weight;
                Some(Hop { gateway: number, via: address(number, network)?, weight })
            };
            gateways.iter().copied().filter(carries).filter_map(hop).collect()
        })
    });
    let is_alias = choice.return_path == ReturnPath::Alias;
    let aliases =
        networks.map(|network| if is_alias { aliases_on(fabric, index, network) } else { Vec::new() });
    let seed = match choice.return_path {
        ReturnPath::EqualSeed => Some(configured.hash_seed.unwrap_or_else(|| seed_of(fabric.name()))),
        _ => configured.hash_seed,
    };
    Route { networks, choice, gateways, seed, hops, aliases }
}

/// Aliases of the servers on a network that stand for gateways of a route.
fn aliases_on(fabric: &Fabric, route: usize, network: usize) -> Vec<Alias> {
    let of_route: Vec<usize> = fabric.route_gateways(route).map(|gateway| gateway.number).collect();
    let all: Vec<usize> = fabric.network_gateways(network).map(|gateway| gateway.number).collect();
    let mut aliases = Vec::new();
    let servers =
        fabric.classes_on(network).filter(|class| fabric.file().classes[*class].role == HostRole::Storage);
    for host in servers.flat_map(|class| fabric.class_hosts(class)) {
        let Some(link) = fabric.link_on(host, network) else { continue };
        for ipv6 in [false, true] {
            let own = fabric.aliases(host, link, ipv6);
            let both = own.into_iter().zip(&all).filter(|(_, gateway)| of_route.contains(gateway));
            aliases.extend(both.map(|(address, gateway)| Alias { address, gateway: *gateway }));
        }
    }
    aliases
}

/// Seed of a fabric that has none: FNV-1a of its name, never zero.
fn seed_of(name: &str) -> u32 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.max(1)
}

/// Prefixes of a network, of one family.
fn prefixes(fabric: &Fabric, network: usize, ipv6: bool) -> impl Iterator<Item = Prefix> {
    let prefixes = &fabric.network(network).prefixes;
    prefixes.iter().copied().filter(move |prefix| prefix.address.is_ipv6() == ipv6)
}

/// Value of `fib_multipath_hash_policy` (ip-sysctl).
fn policy_number(policy: HashPolicy) -> &'static str {
    match policy {
        HashPolicy::Layer3 => "0",
        HashPolicy::Layer4 => "1",
        HashPolicy::Inner => "2",
    }
}

#[cfg(test)]
mod filter_tests;
#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;
