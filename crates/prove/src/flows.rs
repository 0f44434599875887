//! Flows of a verification: their number, hosts and ports.
//!
//! The *population* measures the load distribution: consecutive source ports, which the
//! kernel's hash distributes like any others. *Targeted* flows are added where no flow
//! of a pair would use a gateway, from ports that lead there by the client's kernel.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use crate::document::{FlowPath, WireOutcome};

use super::{
    calls::{Lookup, LookupResult, WireProtocol},
    hosts::{Hosts, ProofError, refusal},
    judge::Judged,
    tested_route::TestedRoute,
};

/// Range of source ports; the ports above are reserved for searches.
pub(super) const FIRST_PORT: u16 = 20_000;
pub(super) const LAST_PORT: u16 = 60_999;
/// A gateway with a fraction `w` of the ports is missed by `n` of them with
/// probability `(1 - w)^n < e^-(n w)`: one search in 160 000 errs.
const MISSES: f64 = 12.0;
/// Maximum number of ports of one search.
const MOST_PORTS: usize = 4096;
/// Candidate ports per flow of an even population: towards the end, few ports lead to
/// the gateway that still lacks flows.
const EVEN_CANDIDATES: usize = 3;
/// Targeted flows of a pair through a gateway.
const TARGETED: usize = 2;

/// One flow to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedFlow {
    /// Indices of client and server in the route.
    pub(super) client: usize,
    pub(super) server: usize,
    /// Destination.
    pub(super) destination: SocketAddr,
    /// Source port.
    pub(super) port: u16,
    /// Index of the gateway that the kernel returned; `None` if it was not queried or
    /// returned none of the fabric's.
    pub(super) predicted: Option<usize>,
    /// Opened to use a certain gateway.
    pub(super) targeted: bool,
}

/// All flows of a route, and the results of the lookups.
#[derive(Debug, Default)]
pub(super) struct PlannedFlows {
    pub(super) flows: Vec<PlannedFlow>,
    /// By client and server: gateways to which none of the tried ports leads.
    pub(super) unreached: BTreeMap<(usize, usize), BTreeSet<usize>>,
    /// By client: gateways that the kernel returned and the fabric lacks, with the number
    /// of lookups.
    pub(super) foreign: BTreeMap<usize, BTreeMap<IpAddr, u64>>,
    /// By client: the kernel's error for a flow without a route.
    pub(super) no_route: BTreeMap<usize, String>,
    /// By client: the reason why lookups failed.
    pub(super) failed_lookups: BTreeMap<usize, String>,
    /// By server that did not respond: its kernel's error for the route to a client.
    pub(super) no_return_route: BTreeMap<usize, String>,
    /// Number of ports tried in a search.
    pub(super) searched: usize,
    /// Ports of the population were chosen so that the load follows the weights.
    pub(super) even: bool,
    /// With `even`: flows of the population by gateway.
    taken: Vec<u64>,
}

/// Destinations of a pair: the server's address, or its aliases.
fn destinations(route: &TestedRoute, server: usize) -> &[IpAddr] {
    let end = &route.servers[server];
    if end.aliases.is_empty() { std::slice::from_ref(&end.address) } else { &end.aliases }
}

/// Number of ports among which some lead to a gateway with this fraction of the flows.
pub(super) fn search_size(share: f64) -> usize {
    ((MISSES / share.max(1e-6)).ceil() as usize).clamp(64, MOST_PORTS)
}

/// Source ports of a client: cyclic from 20000 to 60999, without listening ports.
struct Ports<'a> {
    next: u16,
    listening: &'a BTreeSet<u16>,
}

impl Ports<'_> {
    fn take(&mut self) -> u16 {
        loop {
            let port = self.next;
            self.next = if port >= LAST_PORT { FIRST_PORT } else { port + 1 };
            if !self.listening.contains(&port) {
                return port;
            }
        }
    }
}

/// Chooses the flows of a route. `listening` is the port of each server.
pub(super) fn choose(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    listening: &[u16],
    flow_count: usize,
    even: bool,
) -> Result<PlannedFlows, ProofError> {
    let taken: BTreeSet<u16> = listening.iter().copied().collect();
    let pairs = route.clients.len() * route.servers.len();
    let smallest = route.expected_ratios().into_iter().fold(1.0, f64::min);
    let search = if route.spreads_by_ports() { search_size(smallest) } else { 0 };
    let mut ports: Vec<Ports<'_>> = route
        .clients
        .iter()
        .map(|_| Ports { next: rand::random_range(FIRST_PORT..=LAST_PORT), listening: &taken })
        .collect();
    let mut batches = Vec::new();
    for (client, ports) in ports.iter_mut().enumerate() {
        for (server, port) in listening.iter().enumerate() {
            let to = destinations(route, server);
            let each = flow_count.div_ceil(pairs * to.len()).max(1);
            for address in to {
                let candidates = if even { each * EVEN_CANDIDATES + search } else { each };
                let population: Vec<u16> = (0..candidates).map(|_| ports.take()).collect();
                let beside: Vec<u16> = (0..search).map(|_| ports.take()).collect();
                let destination = SocketAddr::new(*address, *port);
                batches.push(Batch { client, server, destination, population, each, beside });
            }
        }
    }
    let taken = vec![0; route.gateways.len()];
    let mut planned = PlannedFlows { searched: search, even, taken, ..PlannedFlows::default() };
    let results = lookup_batches(hosts, route, &batches)?;
    for (batch, result) in batches.iter().zip(results) {
        planned.add(route, batch, result);
    }
    Ok(planned)
}

/// Flows of one client to one address of a server.
struct Batch {
    client: usize,
    server: usize,
    destination: SocketAddr,
    /// Candidate ports, and the number to choose.
    population: Vec<u16>,
    each: usize,
    beside: Vec<u16>,
}

/// Looks up the batches of every client; results are in their order. A client that
/// does not support lookups (an old kernel) has the reason instead.
fn lookup_batches(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    batches: &[Batch],
) -> Result<Vec<Result<LookupResult, String>>, ProofError> {
    let mut requests: BTreeMap<String, Vec<Lookup>> = BTreeMap::new();
    for batch in batches {
        let client = &route.clients[batch.client];
        let ports = batch.population.iter().chain(&batch.beside);
        requests.entry(client.host.clone()).or_default().push(Lookup {
            source: client.address,
            destination: batch.destination.ip(),
            protocol: WireProtocol::Tcp,
            mark: None,
            ports: ports.map(|port| (*port, batch.destination.port())).collect(),
            input: None,
            explain: false,
        });
    }
    let mut by_host = BTreeMap::new();
    for (host, replies) in hosts.call_all(requests) {
        let replies = match replies {
            Ok(replies) => Ok(replies.into_iter()),
            Err(error) => Err(refusal(error)?),
        };
        by_host.insert(host, replies);
    }
    let mut results = Vec::new();
    for batch in batches {
        let host = &route.clients[batch.client].host;
        results.push(match by_host.get_mut(host) {
            Some(Ok(replies)) => match replies.next() {
                Some(result) => Ok(result),
                // There is one reply per call.
                None => Err(format!("{host} was not queried")),
            },
            Some(Err(reason)) => Err(reason.clone()),
            None => return Err(ProofError::Nothing(format!("no agent was started on {host}"))),
        });
    }
    Ok(results)
}

/// Fraction of the flows that must take the predicted gateway for lookups to be trusted.
pub(super) const TRUSTED_RATIO: f64 = 0.9;

/// Further flows, without predictions, for the pairs of hosts that have not used every
/// gateway: where lookups failed, or did not predict the gateways (before Linux 4.18 a
/// lookup ignores the ports).
pub(super) fn by_trial(
    route: &TestedRoute,
    planned: &PlannedFlows,
    judged: &[Judged],
    listening: &[u16],
) -> Vec<PlannedFlow> {
    let compared = judged.iter().filter_map(|one| Some((one.flow.predicted?, one.sent_to()?)));
    let (all, right) = compared.fold((0u32, 0u32), |(all, right), (predicted, seen)| {
        (all + 1, right + u32::from(predicted == seen))
    });
    let trusted = planned.failed_lookups.is_empty() && f64::from(right) >= TRUSTED_RATIO * f64::from(all);
    if trusted || !route.spreads_by_ports() {
        return Vec::new();
    }
    let mut trials = Vec::new();
    for client in 0..route.clients.len() {
        let mut used: BTreeSet<u16> = listening.iter().copied().collect();
        used.extend(judged.iter().filter(|one| one.flow.client == client).map(|one| one.flow.port));
        let mut free = (FIRST_PORT..=LAST_PORT).filter(|port| !used.contains(port));
        for (server, port) in listening.iter().enumerate() {
            let own = || judged.iter().filter(|one| (one.flow.client, one.flow.server) == (client, server));
            let seen: BTreeSet<usize> = own().filter_map(Judged::sent_to).collect();
            if own().next().is_none() || seen.len() == route.gateways.len() {
                continue;
            }
            let destination = SocketAddr::new(route.servers[server].address, *port);
            trials.extend(free.by_ref().take(planned.searched).map(|port| PlannedFlow {
                client,
                server,
                destination,
                port,
                predicted: None,
                targeted: true,
            }));
        }
    }
    trials
}

/// Queries a server's kernel for its route to a client; returns the error if there is
/// none.
pub(super) fn return_route_error(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    flow: &PlannedFlow,
) -> Result<Option<String>, ProofError> {
    let server = &route.servers[flow.server];
    let lookup = Lookup {
        source: flow.destination.ip(),
        destination: route.clients[flow.client].address,
        protocol: WireProtocol::Tcp,
        mark: None,
        ports: vec![(flow.destination.port(), flow.port)],
        input: None,
        explain: false,
    };
    Ok(hosts.call(&server.host, &lookup)?.refusal)
}

impl PlannedFlows {
    fn add(&mut self, route: &TestedRoute, batch: &Batch, result: Result<LookupResult, String>) {
        let result = match result {
            Ok(result) => result,
            Err(reason) => {
                self.failed_lookups.insert(batch.client, reason);
                LookupResult::default()
            }
        };
        if let Some(refusal) = &result.refusal {
            self.no_route.insert(batch.client, refusal.clone());
        }
        let gateway = |via: IpAddr| route.gateways.iter().position(|gateway| gateway.client_side == via);
        let predicted = |place: usize| result.gateway(place).and_then(gateway);
        let mut reached = BTreeSet::new();
        let leads: Vec<Option<usize>> = (0..batch.population.len()).map(predicted).collect();
        for place in self.chosen(route, batch.each, &leads) {
            reached.extend(leads[place]);
            self.flows.push(batch.flow(batch.population[place], leads[place], false));
        }
        let count = batch.population.len();
        let mut targeted: BTreeMap<usize, usize> = BTreeMap::new();
        for (place, port) in batch.beside.iter().enumerate() {
            let Some(gateway) = predicted(count + place).filter(|gateway| !reached.contains(gateway)) else {
                continue;
            };
            let opened = targeted.entry(gateway).or_default();
            if *opened < TARGETED {
                *opened += 1;
                self.flows.push(batch.flow(*port, Some(gateway), true));
            }
        }
        reached.extend(targeted.into_keys());
        for place in 0..count + batch.beside.len() {
            if let Some(via) = result.gateway(place).filter(|via| gateway(*via).is_none()) {
                *self.foreign.entry(batch.client).or_default().entry(via).or_default() += 1;
            }
        }
        if !batch.beside.is_empty() && !result.choices.is_empty() {
            let missing = (0..route.gateways.len()).filter(|gateway| !reached.contains(gateway));
            self.unreached.entry((batch.client, batch.server)).or_default().extend(missing);
        }
    }
}

impl PlannedFlows {
    /// Indices of the ports for the population, by the gateways that they lead to: the
    /// first ones, or those that keep the load of every gateway at its weight so far.
    fn chosen(&mut self, route: &TestedRoute, count: usize, leads: &[Option<usize>]) -> Vec<usize> {
        if !self.even || leads.iter().all(Option::is_none) {
            return (0..leads.len().min(count)).collect();
        }
        let all = self.taken.iter().sum::<u64>() + count as u64;
        let wants = |ratio: f64| (all as f64 * ratio).ceil() as u64;
        let wants: Vec<u64> = route.expected_ratios().into_iter().map(wants).collect();
        let mut chosen = Vec::new();
        for (place, gateway) in leads.iter().enumerate() {
            let Some(gateway) = gateway.filter(|gateway| self.taken[*gateway] < wants[*gateway]) else {
                continue;
            };
            if chosen.len() < count {
                self.taken[gateway] += 1;
                chosen.push(place);
            }
        }
        chosen
    }
}

impl Batch {
    fn flow(&self, port: u16, predicted: Option<usize>, targeted: bool) -> PlannedFlow {
        let (client, server) = (self.client, self.server);
        PlannedFlow { client, server, destination: self.destination, port, predicted, targeted }
    }
}

impl PlannedFlow {
    /// The flow as in the document, without observations.
    pub(super) fn path(&self, route: &TestedRoute, outcome: WireOutcome) -> FlowPath {
        FlowPath {
            client: SocketAddr::new(route.clients[self.client].address, self.port),
            server: self.destination,
            outcome,
            targeted: self.targeted,
            predicted: self.predicted.map(|gateway| route.gateways[gateway].host.clone()),
            forward: None,
            reply: None,
            lost: None,
        }
    }
}
