//! The flows of a proof: how many, between whom, from which ports.
//!
//! The *population* shows the shares: consecutive source ports, which the
//! kernel's hash spreads as it would spread any others. *Targeted* flows are
//! added where no flow of a pair would use a gateway, with ports that the
//! client's kernel says lead there.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use clearstream_schema::proof::{FlowPath, WireOutcome};

use super::{
    calls::{LookedUp, Lookup, WireProtocol},
    crossing::Crossing,
    hosts::{Hosts, ProofError, refusal},
    judge::Judged,
};

/// Source ports are taken from here on, below the reserved end of the range.
pub(super) const FIRST_PORT: u16 = 20_000;
pub(super) const LAST_PORT: u16 = 60_999;
/// A gateway that takes a share `w` of the ports is missed by `n` of them with
/// probability `(1 - w)^n < e^-(n w)`: one search in 160 000 errs.
const MISSES: f64 = 12.0;
/// Most ports of one search.
const MOST_PORTS: usize = 4096;
/// Ports to choose from for each flow of an even population: those of a gateway
/// that is behind are few at the end.
const EVEN_CANDIDATES: usize = 3;
/// Targeted flows of a pair through a gateway.
const TARGETED: usize = 2;

/// One flow to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedFlow {
    /// Places of client and server in the crossing.
    pub(super) client: usize,
    pub(super) server: usize,
    /// Where to.
    pub(super) destination: SocketAddr,
    /// Source port.
    pub(super) port: u16,
    /// Gateway that the kernel names, by its place; `None` where it was not
    /// asked or names none of the fabric's.
    pub(super) predicted: Option<usize>,
    /// Opened for a certain gateway.
    pub(super) targeted: bool,
}

/// All flows of a crossing, and what was found out on the way.
#[derive(Debug, Default)]
pub(super) struct PlannedFlows {
    pub(super) flows: Vec<PlannedFlow>,
    /// By client and server: gateways that no port tried leads to.
    pub(super) unreached: BTreeMap<(usize, usize), BTreeSet<usize>>,
    /// By client: gateways that the kernel names and the fabric lacks, and how
    /// many lookups named them.
    pub(super) foreign: BTreeMap<usize, BTreeMap<IpAddr, u64>>,
    /// By client: why the kernel finds no way for a flow.
    pub(super) refused: BTreeMap<usize, String>,
    /// By client: why the kernel could not be asked.
    pub(super) unasked: BTreeMap<usize, String>,
    /// By server that did not answer: why its kernel finds no way to a client.
    pub(super) refused_back: BTreeMap<usize, String>,
    /// Ports that were tried in a search.
    pub(super) searched: usize,
    /// Ports of the population were chosen so that gateways get their weights' shares.
    pub(super) even: bool,
    /// With that: flows of the population by gateway.
    taken: Vec<u64>,
}

/// Destinations of a pair: the server's address, or its aliases.
fn destinations(crossing: &Crossing, server: usize) -> &[IpAddr] {
    let end = &crossing.servers[server];
    if end.aliases.is_empty() { std::slice::from_ref(&end.address) } else { &end.aliases }
}

/// Ports that lead to a gateway with this share are found among so many.
pub(super) fn search_size(share: f64) -> usize {
    ((MISSES / share.max(1e-6)).ceil() as usize).clamp(64, MOST_PORTS)
}

/// Next port of a client: 20000 to 60999 and round again, without listening ones.
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

/// Chooses the flows of a crossing. `listening` is the port of each server.
pub(super) fn choose(
    hosts: &mut Hosts<'_>,
    crossing: &Crossing,
    listening: &[u16],
    flow_count: usize,
    even: bool,
) -> Result<PlannedFlows, ProofError> {
    let taken: BTreeSet<u16> = listening.iter().copied().collect();
    let pairs = crossing.clients.len() * crossing.servers.len();
    let smallest = crossing.expected_ratios().into_iter().fold(1.0, f64::min);
    let search = if crossing.spreads_by_ports() { search_size(smallest) } else { 0 };
    let mut ports: Vec<Ports<'_>> = crossing
        .clients
        .iter()
        .map(|_| Ports { next: rand::random_range(FIRST_PORT..=LAST_PORT), listening: &taken })
        .collect();
    let mut batches = Vec::new();
    for (client, ports) in ports.iter_mut().enumerate() {
        for (server, port) in listening.iter().enumerate() {
            let to = destinations(crossing, server);
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
    let taken = vec![0; crossing.gateways.len()];
    let mut planned = PlannedFlows { searched: search, even, taken, ..PlannedFlows::default() };
    let answers = look_up(hosts, crossing, &batches)?;
    for (batch, answer) in batches.iter().zip(answers) {
        planned.add(crossing, batch, answer);
    }
    Ok(planned)
}

/// Flows of one client to one address of a server.
struct Batch {
    client: usize,
    server: usize,
    destination: SocketAddr,
    /// Ports to choose from, and how many to choose.
    population: Vec<u16>,
    each: usize,
    beside: Vec<u16>,
}

/// Asks every client for its batches; in their order. A client that cannot be
/// asked (an old kernel) gives the reason instead.
fn look_up(
    hosts: &mut Hosts<'_>,
    crossing: &Crossing,
    batches: &[Batch],
) -> Result<Vec<Result<LookedUp, String>>, ProofError> {
    let mut requests: BTreeMap<String, Vec<Lookup>> = BTreeMap::new();
    for batch in batches {
        let client = &crossing.clients[batch.client];
        let ports = batch.population.iter().chain(&batch.beside);
        requests.entry(client.host.clone()).or_default().push(Lookup {
            source: client.address,
            destination: batch.destination.ip(),
            protocol: WireProtocol::Tcp,
            mark: None,
            ports: ports.map(|port| (*port, batch.destination.port())).collect(),
        });
    }
    let mut by_host = BTreeMap::new();
    for (host, answers) in hosts.call_all(requests) {
        let answers = match answers {
            Ok(answers) => Ok(answers.into_iter()),
            Err(error) => Err(refusal(error)?),
        };
        by_host.insert(host, answers);
    }
    let mut told = Vec::new();
    for batch in batches {
        let host = &crossing.clients[batch.client].host;
        told.push(match by_host.get_mut(host) {
            Some(Ok(answers)) => match answers.next() {
                Some(answer) => Ok(answer),
                // There is one reply per call.
                None => Err(format!("{host} was not queried")),
            },
            Some(Err(reason)) => Err(reason.clone()),
            None => return Err(ProofError::Nothing(format!("no agent was started on {host}"))),
        });
    }
    Ok(told)
}

/// Of the flows whose gateway was named beforehand and seen afterwards, so many
/// must be the same for lookups to be believed.
pub(super) const BELIEVED_RATIO: f64 = 0.9;

/// Where the kernel could not be asked, or its answers were not what happened
/// (before Linux 4.18 it leaves the ports out of a lookup): further flows for
/// the pairs of hosts that have not used every gateway, by trial.
pub(super) fn by_trial(
    crossing: &Crossing,
    planned: &PlannedFlows,
    judged: &[Judged],
    listening: &[u16],
) -> Vec<PlannedFlow> {
    let compared = judged.iter().filter_map(|one| Some((one.flow.predicted?, one.sent_to()?)));
    let (all, right) = compared.fold((0u32, 0u32), |(all, right), (predicted, seen)| {
        (all + 1, right + u32::from(predicted == seen))
    });
    let believed = planned.unasked.is_empty() && f64::from(right) >= BELIEVED_RATIO * f64::from(all);
    if believed || !crossing.spreads_by_ports() {
        return Vec::new();
    }
    let mut trials = Vec::new();
    for client in 0..crossing.clients.len() {
        let mut used: BTreeSet<u16> = listening.iter().copied().collect();
        used.extend(judged.iter().filter(|one| one.flow.client == client).map(|one| one.flow.port));
        let mut free = (FIRST_PORT..=LAST_PORT).filter(|port| !used.contains(port));
        for (server, port) in listening.iter().enumerate() {
            let own = || judged.iter().filter(|one| (one.flow.client, one.flow.server) == (client, server));
            let seen: BTreeSet<usize> = own().filter_map(Judged::sent_to).collect();
            if own().next().is_none() || seen.len() == crossing.gateways.len() {
                continue;
            }
            let destination = SocketAddr::new(crossing.servers[server].address, *port);
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

/// Queries the kernel of a server for its way to a client; gives the reason when
/// there is none.
pub(super) fn refused_back(
    hosts: &mut Hosts<'_>,
    crossing: &Crossing,
    flow: &PlannedFlow,
) -> Result<Option<String>, ProofError> {
    let server = &crossing.servers[flow.server];
    let lookup = Lookup {
        source: flow.destination.ip(),
        destination: crossing.clients[flow.client].address,
        protocol: WireProtocol::Tcp,
        mark: None,
        ports: vec![(flow.destination.port(), flow.port)],
    };
    Ok(hosts.call(&server.host, &lookup)?.refusal)
}

impl PlannedFlows {
    fn add(&mut self, crossing: &Crossing, batch: &Batch, answer: Result<LookedUp, String>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                self.unasked.insert(batch.client, reason);
                LookedUp::default()
            }
        };
        if let Some(refusal) = &answer.refusal {
            self.refused.insert(batch.client, refusal.clone());
        }
        let gateway = |via: IpAddr| crossing.gateways.iter().position(|gateway| gateway.client_side == via);
        let predicted = |place: usize| answer.gateway(place).and_then(gateway);
        let mut reached = BTreeSet::new();
        let leads: Vec<Option<usize>> = (0..batch.population.len()).map(predicted).collect();
        for place in self.chosen(crossing, batch.each, &leads) {
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
            if let Some(via) = answer.gateway(place).filter(|via| gateway(*via).is_none()) {
                *self.foreign.entry(batch.client).or_default().entry(via).or_default() += 1;
            }
        }
        if !batch.beside.is_empty() && !answer.choices.is_empty() {
            let missing = (0..crossing.gateways.len()).filter(|gateway| !reached.contains(gateway));
            self.unreached.entry((batch.client, batch.server)).or_default().extend(missing);
        }
    }
}

impl PlannedFlows {
    /// Which of the ports a population takes, by the gateways that they lead
    /// to: the first ones, or those that keep every gateway at its share of
    /// all flows so far.
    fn chosen(&mut self, crossing: &Crossing, count: usize, leads: &[Option<usize>]) -> Vec<usize> {
        if !self.even || leads.iter().all(Option::is_none) {
            return (0..leads.len().min(count)).collect();
        }
        let all = self.taken.iter().sum::<u64>() + count as u64;
        let wants = |ratio: f64| (all as f64 * ratio).ceil() as u64;
        let wants: Vec<u64> = crossing.expected_ratios().into_iter().map(wants).collect();
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
    /// The flow as the document shows it, before anything was seen of it.
    pub(super) fn path(&self, crossing: &Crossing, outcome: WireOutcome) -> FlowPath {
        FlowPath {
            client: SocketAddr::new(crossing.clients[self.client].address, self.port),
            server: self.destination,
            outcome,
            targeted: self.targeted,
            predicted: self.predicted.map(|gateway| crossing.gateways[gateway].host.clone()),
            forward: None,
            reply: None,
            lost: None,
        }
    }
}
