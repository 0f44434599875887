//! Symmetry check: requests from clients over each gateway to servers, and their
//! replies, walked in the routing of each host. Independent of how the plan was
//! computed.

use std::{collections::HashMap, net::IpAddr};

use clearstream_schema::{
    fabric::{HashPolicy, ReturnPath},
    prefix::Prefix,
    route_plan::{Counterexample, ProofMethod, ProofOutcome, SymmetryProof},
    routing::HostRouting,
};

use super::{
    Planner,
    pairs::{Block, Pair, Pairs},
    paths::{self, Paths},
};
use crate::fabric::HostId;

/// Largest number of walks for which every pair and gateway is checked.
const EXHAUSTIVE_WALKS: u64 = 100_000;
/// Servers of a class that one client walks to, when not all do.
const MOST_SERVERS: usize = 1024;

/// Checks the symmetry of a route, or finds a walk that fails.
pub(super) fn prove(
    planner: &Planner<'_>,
    index: usize,
    routing: &dyn Fn(HostId) -> HostRouting,
) -> SymmetryProof {
    let pairs = Pairs::of(planner, index);
    let forwarders = paths::forwarders(planner, index, routing);
    let paths = Paths::new(planner, index, &forwarders);
    let families = [false, true].into_iter().filter(|ipv6| paths.carries(*ipv6)).count() as u64;
    let gateways = planner.routes[index].gateways.len() as u64;
    let exhaustive = pairs.count().saturating_mul(gateways * families.max(1)) <= EXHAUSTIVE_WALKS;
    let mut run = Run { paths, routing, walks: 0, compared: 0 };
    let result = if exhaustive { run.every_pair(&pairs) } else { run.by_class(&pairs) };
    let promised = planner.routes[index].return_path() != ReturnPath::None || gateways == 1;
    SymmetryProof {
        outcome: match (&result, promised) {
            (Err(_), _) => ProofOutcome::Fails,
            (Ok(()), true) => ProofOutcome::Symmetric,
            (Ok(()), false) => ProofOutcome::NotPromised,
        },
        method: if exhaustive { ProofMethod::Exhaustive } else { ProofMethod::PerClass },
        walk_count: run.walks,
        compared_count: run.compared,
        conditions: conditions(planner, index),
        counterexample: result.err(),
    }
}

/// Conditions of symmetry that the plan cannot ensure.
fn conditions(planner: &Planner<'_>, index: usize) -> Vec<String> {
    let policy = planner.fabric.route(index).0.hash_policy;
    let conditions: &[&str] = match planner.routes[index].return_path() {
        ReturnPath::Alias => &[
            "clients address servers by their further addresses; the first address is spread over all gateways",
        ],
        ReturnPath::ConnectionMark => {
            &["flows are begun by clients: what a server begins is spread by both sides"]
        }
        ReturnPath::EqualSeed if policy == HashPolicy::Layer3 => {
            &["every host has the same gateways in the same order, also after one has gone"]
        }
        ReturnPath::EqualSeed => &[
            "clients bind their source ports before they connect: the kernel chooses at random for a port that is still open",
            "every host has the same gateways in the same order, also after one has gone",
        ],
        ReturnPath::Auto | ReturnPath::None => &[],
    };
    conditions.iter().map(|text| (*text).to_owned()).collect()
}

struct Run<'w> {
    paths: Paths<'w>,
    routing: &'w dyn Fn(HostId) -> HostRouting,
    walks: u64,
    compared: u64,
}

impl Run<'_> {
    fn every_pair(&mut self, pairs: &Pairs) -> Result<(), Counterexample> {
        for block in &pairs.blocks {
            let servers: Vec<(HostId, HostRouting)> =
                hosts(block.servers, block.server_count).map(|host| (host, (self.routing)(host))).collect();
            for client in hosts(block.clients, block.client_count) {
                let routing = (self.routing)(client);
                for (server, server_routing) in &servers {
                    let pair = Pair { client, server: *server, client_end: block.client_end };
                    self.walks += self.paths.walk(pair, [&routing, server_routing], None)?;
                }
            }
        }
        Ok(())
    }

    fn by_class(&mut self, pairs: &Pairs) -> Result<(), Counterexample> {
        let mut compared: Vec<usize> = Vec::new();
        for block in &pairs.blocks {
            for class in [block.clients, block.servers] {
                if !compared.contains(&class) {
                    compared.push(class);
                    self.compare(class)?;
                }
            }
            self.one_of_each(block)?;
            self.everyone_once(block)?;
        }
        Ok(())
    }

    /// Hosts of a class differ in nothing but their own addresses.
    fn compare(&mut self, class: usize) -> Result<(), Counterexample> {
        let fabric = self.paths.planner().fabric;
        let mut hosts = fabric.class_hosts(class);
        let Some(first) = hosts.next() else { return Ok(()) };
        let like = without_own((self.routing)(first));
        for host in hosts {
            self.compared += 1;
            let other = without_own((self.routing)(host));
            if other != like {
                return Err(Counterexample {
                    client: fabric.host_name(first),
                    server: fabric.host_name(host),
                    address: None,
                    gateway: None,
                    problem: "hosts of one class route by more than their own addresses differently"
                        .to_owned(),
                });
            }
        }
        Ok(())
    }

    /// The first client over every gateway to every server.
    fn one_of_each(&mut self, block: &Block) -> Result<(), Counterexample> {
        let client = HostId { class: block.clients, index: 0 };
        let routing = (self.routing)(client);
        let step = (block.server_count as usize).div_ceil(MOST_SERVERS).max(1);
        for server in hosts(block.servers, block.server_count).step_by(step) {
            let server_routing = (self.routing)(server);
            let pair = Pair { client, server, client_end: block.client_end };
            self.walks += self.paths.walk(pair, [&routing, &server_routing], None)?;
        }
        Ok(())
    }

    /// Every client over one gateway, to a server in turn; includes servers that
    /// the walks before left out.
    fn everyone_once(&mut self, block: &Block) -> Result<(), Counterexample> {
        let mut server_routings: HashMap<usize, HostRouting> = HashMap::new();
        let turns = block.client_count.max(block.server_count);
        for turn in 0..turns {
            let client = HostId { class: block.clients, index: (turn % block.client_count) as usize };
            // Servers cycle on their own, so that few routings are computed twice.
            let server = HostId { class: block.servers, index: (turn % block.server_count) as usize };
            if server_routings.len() > MOST_SERVERS {
                server_routings.clear();
            }
            let server_routing =
                server_routings.entry(server.index).or_insert_with(|| (self.routing)(server));
            let routing = (self.routing)(client);
            let pair = Pair { client, server, client_end: block.client_end };
            self.walks += self.paths.walk(pair, [&routing, server_routing], Some(turn as usize))?;
        }
        Ok(())
    }
}

fn hosts(class: usize, count: u64) -> impl Iterator<Item = HostId> {
    (0..count as usize).map(move |index| HostId { class, index })
}

/// A host's routing without its name and its own addresses.
fn without_own(mut routing: HostRouting) -> HostRouting {
    let addresses = routing.interfaces.iter().flat_map(|interface| &interface.addresses);
    let own: HashMap<IpAddr, u128> =
        addresses.zip(0..).map(|(address, at)| (address.value.address, at)).collect();
    let stand_in = |address: IpAddr| own.get(&address).map(|at| IpAddr::V6((*at).into()));
    let stand_in_prefix = |prefix: &mut Prefix| {
        if let Some(address) = stand_in(prefix.address) {
            prefix.address = address;
        }
    };
    routing.host.clear();
    for interface in &mut routing.interfaces {
        interface.link_address = None;
        interface.addresses.iter_mut().for_each(|address| stand_in_prefix(&mut address.value));
    }
    for route in &mut routing.routes {
        route.source = route.source.map(|source| stand_in(source).unwrap_or(source));
    }
    for rule in &mut routing.rules {
        if let Some(from) = &mut rule.selector.from {
            stand_in_prefix(from);
        }
    }
    routing
}
