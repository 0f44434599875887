//! The routes in effect behind flows that are not as planned: what the kernels of both ends and
//! of the gateways say, with the owner of each route and rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use crate::document::LostAt;
use clearstream_schema::fabric::ReturnPath;

use super::{
    calls::{Decision, Lookup, WireProtocol},
    facts::Facts,
    flows::FIRST_PORT,
    hosts::{Hosts, ProofError, refusal},
    judge::Judged,
    tested_route::{End, GatewayEnds, TestedRoute},
};

/// Flows that a gateway is asked about, of each direction.
const MOST_LOST: usize = 16;

/// Direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    /// From clients to servers.
    Requests,
    /// From servers to clients.
    Replies,
}

/// Decisions by direction, sender and receiver; of a server with an address for each gateway by that
/// too; on gateways by direction and gateway.
#[derive(Debug, Default)]
pub(super) struct Decisions {
    pairs: BTreeMap<(Direction, usize, usize), Decision>,
    /// By server, client and gateway: replies from the server's address for the gateway.
    aliases: BTreeMap<(usize, usize, usize), Decision>,
    gateways: BTreeMap<(Direction, usize), Decision>,
}

impl Direction {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Replies => "replies",
        }
    }

    /// Senders and receivers.
    pub(super) fn ends(self, route: &TestedRoute) -> (&[End], &[End]) {
        match self {
            Self::Requests => (&route.clients, &route.servers),
            Self::Replies => (&route.servers, &route.clients),
        }
    }

    /// A gateway's address on the senders' network.
    pub(super) fn address(self, gateway: &GatewayEnds) -> IpAddr {
        match self {
            Self::Requests => gateway.client_side,
            Self::Replies => gateway.server_side,
        }
    }

    /// Network of the receivers.
    pub(super) fn far(self, route: &TestedRoute) -> &str {
        match self {
            Self::Requests => &route.between[1],
            Self::Replies => &route.between[0],
        }
    }

    /// Client and server of a sender and a receiver.
    pub(super) fn pair(self, from: usize, to: usize) -> (usize, usize) {
        match self {
            Self::Requests => (from, to),
            Self::Replies => (to, from),
        }
    }
}

impl Decision {
    /// `"10.10.0.128/25 via 10.100.0.91 dev compute0" (proto boot)`.
    pub(super) fn named(&self) -> String {
        match (self.what.is_empty(), self.owner.is_empty()) {
            (true, _) => "no route that its kernel names".to_owned(),
            (false, true) => self.what.clone(),
            (false, false) => format!("\"{}\" ({})", self.what, self.owner),
        }
    }
}

impl Decisions {
    /// Asks the hosts of a route. Hosts that cannot tell are left out.
    pub(super) fn gather(
        hosts: &mut Hosts<'_>,
        route: &TestedRoute,
        facts: &Facts,
        judged: &[Judged],
    ) -> Result<Self, ProofError> {
        let mut requests: BTreeMap<String, Vec<Lookup>> = BTreeMap::new();
        let mut order: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
        let mut ask = |host: &str, asked: Asked, lookup: Lookup| {
            requests.entry(host.to_owned()).or_default().push(lookup);
            order.entry(host.to_owned()).or_default().push(asked);
        };
        for direction in [Direction::Requests, Direction::Replies] {
            // Which mark a reply has, the firewall decides.
            if direction == Direction::Replies && route.return_path == ReturnPath::ConnectionMark {
                continue;
            }
            let (senders, receivers) = direction.ends(route);
            for (from, sender) in senders.iter().enumerate() {
                for (to, receiver) in receivers.iter().enumerate() {
                    let ports = (FIRST_PORT, FIRST_PORT);
                    for (gateway, alias) in sender.aliases.iter().enumerate() {
                        let lookup = of_flow(*alias, receiver.address, ports, None);
                        ask(&sender.host, Asked::Alias(from, to, gateway), lookup);
                    }
                    if direction == Direction::Replies && !sender.aliases.is_empty() {
                        continue;
                    }
                    let lookup = of_flow(sender.address, receiver.address, ports, None);
                    ask(&sender.host, Asked::Pair(direction, from, to), lookup);
                }
            }
        }
        let mut asked_gateways: BTreeMap<(Direction, usize), BTreeSet<(IpAddr, IpAddr)>> = BTreeMap::new();
        for one in judged {
            // What left a gateway and did not arrive, it may have sent elsewhere.
            let (direction, gateway) = match &one.lost {
                Some(LostAt::InGateway(_)) => (Direction::Requests, one.stuck),
                Some(LostAt::ReplyInGateway(_)) => (Direction::Replies, one.stuck),
                Some(LostAt::AtServer(_)) => (Direction::Requests, one.forward),
                Some(LostAt::AtClient(_)) => (Direction::Replies, one.reply),
                _ => continue,
            };
            let Some(gateway) = gateway else { continue };
            let ends = &route.gateways[gateway];
            let client = route.clients[one.flow.client].address;
            let server = one.flow.destination.ip();
            let (source, destination) = match direction {
                Direction::Requests => (client, server),
                Direction::Replies => (server, client),
            };
            let Some(input) = facts.interface(&ends.host, direction.address(ends)) else { continue };
            let known = asked_gateways.entry((direction, gateway)).or_default();
            if known.len() < MOST_LOST && known.insert((source, destination)) {
                let ports = match direction {
                    Direction::Requests => (one.flow.port, one.flow.destination.port()),
                    Direction::Replies => (one.flow.destination.port(), one.flow.port),
                };
                let lookup = of_flow(source, destination, ports, Some(input));
                ask(&ends.host, Asked::Gateway(direction, gateway), lookup);
            }
        }
        let mut decisions = Self::default();
        for (host, results) in hosts.call_all(requests) {
            let results = match results {
                Ok(results) => results,
                Err(error) => refusal(error).map(|_| Vec::new())?,
            };
            for (asked, result) in order.remove(&host).unwrap_or_default().into_iter().zip(results) {
                decisions.take(asked, result.decision);
            }
        }
        Ok(decisions)
    }

    fn take(&mut self, asked: Asked, decision: Option<Decision>) {
        let Some(decision) = decision else { return };
        match asked {
            Asked::Pair(direction, from, to) => drop(self.pairs.insert((direction, from, to), decision)),
            Asked::Alias(server, client, gateway) => {
                drop(self.aliases.insert((server, client, gateway), decision));
            }
            Asked::Gateway(direction, gateway) => {
                // One that explains a loss before one that does not.
                let says = |decision: &Decision| decision.refusal.is_some() || !decision.gateways.is_empty();
                let known = self.gateways.entry((direction, gateway)).or_insert_with(|| decision.clone());
                if !says(known) && says(&decision) {
                    *known = decision;
                }
            }
        }
    }

    /// Pairs whose packets another route takes than the one to the network with its several
    /// gateways: a route to part of it, one of a table of others, or one with a single gateway.
    pub(super) fn led_away(
        &self,
        route: &TestedRoute,
    ) -> impl Iterator<Item = (Direction, usize, usize, &Decision)> {
        self.pairs.iter().filter_map(move |((direction, from, to), decision)| {
            let wanted: BTreeSet<IpAddr> =
                route.gateways.iter().map(|gateway| direction.address(gateway)).collect();
            let found: BTreeSet<IpAddr> = decision.gateways.iter().map(|(via, _)| *via).collect();
            let is_part = decision.is_rule
                || decision.destination.is_some_and(|destination| !direction.is_network(route, destination))
                || found.len() < 2 && wanted.len() > 1;
            let is_away = decision.refusal.is_none() && !decision.what.is_empty() && found != wanted;
            (is_away && is_part).then_some((*direction, *from, *to, decision))
        })
    }

    /// Replies from a server's address for a gateway that take another way, with the gateway.
    pub(super) fn aliases_led_away(
        &self,
        route: &TestedRoute,
    ) -> impl Iterator<Item = (usize, usize, usize, &Decision)> {
        self.aliases.iter().filter_map(move |((server, client, gateway), decision)| {
            let wanted = route.gateways.get(*gateway)?.server_side;
            let is_it = matches!(decision.gateways.as_slice(), [(via, _)] if *via == wanted);
            let is_away = decision.refusal.is_some() || !is_it && !decision.what.is_empty();
            is_away.then_some((*server, *client, *gateway, decision))
        })
    }

    /// Where a sender's kernel leads packets with a mark.
    pub(super) fn by_mark(&self, direction: Direction, from: usize) -> Option<&str> {
        let lines = self.of(direction, from).flat_map(|decision| &decision.by_mark);
        lines.map(String::as_str).next()
    }

    /// Whether packets of a sender are among them.
    pub(super) fn leads_away(&self, route: &TestedRoute, direction: Direction, from: usize) -> bool {
        self.led_away(route).any(|(of, sender, ..)| (of, sender) == (direction, from))
    }

    /// The first decision of a sender.
    pub(super) fn any_of(&self, direction: Direction, from: usize) -> Option<&Decision> {
        self.of(direction, from).next()
    }

    fn of(&self, direction: Direction, from: usize) -> impl Iterator<Item = &Decision> {
        self.pairs.range((direction, from, 0)..=(direction, from, usize::MAX)).map(|(_, decision)| decision)
    }

    /// What refuses packets of a client, or replies of a server.
    pub(super) fn refused(&self, client: usize) -> Option<&Decision> {
        self.refusing(Direction::Requests, client)
    }

    pub(super) fn refused_reply(&self, server: usize) -> Option<&Decision> {
        self.refusing(Direction::Replies, server)
    }

    fn refusing(&self, direction: Direction, from: usize) -> Option<&Decision> {
        let aliases = self.aliases.range((from, 0, 0)..=(from, usize::MAX, usize::MAX)).map(|(_, it)| it);
        let aliases = aliases.filter(|_| direction == Direction::Replies);
        let mut all = self.of(direction, from).chain(aliases);
        all.find(|decision| decision.refusal.is_some() && !decision.removal.is_empty())
    }

    pub(super) fn at_gateway(&self, direction: Direction, gateway: usize) -> Option<&Decision> {
        self.gateways.get(&(direction, gateway))
    }
}

impl Direction {
    fn is_network(self, route: &TestedRoute, destination: clearstream_schema::prefix::Prefix) -> bool {
        let far = match self {
            Self::Requests => &route.prefixes[1],
            Self::Replies => &route.prefixes[0],
        };
        far.iter().any(|prefix| prefix.network() == destination.network())
    }
}

/// Place of an answer.
#[derive(Clone, Copy)]
enum Asked {
    Pair(Direction, usize, usize),
    Alias(usize, usize, usize),
    Gateway(Direction, usize),
}

fn of_flow(source: IpAddr, destination: IpAddr, ports: (u16, u16), input: Option<&str>) -> Lookup {
    Lookup {
        source,
        destination,
        protocol: WireProtocol::Tcp,
        mark: None,
        ports: vec![ports],
        input: input.map(str::to_owned),
        explain: true,
    }
}
