//! Derives the path of each flow, and the tables of a route, from the opened flows
//! and the gateways' observations.

use std::{collections::HashMap, net::SocketAddr};

use super::{
    calls::{ConnectResult, Observation, Passed, WireProtocol},
    flows::{PlannedFlow, PlannedFlows},
    queries::LookupCounts,
    shares::fit,
    tested_route::TestedRoute,
};
use crate::document::{FlowPath, GatewayResult, LostAt, PairResult, RouteResult, WireOutcome};
use clearstream_schema::fabric::ReturnPath;

/// The gateways' observations of every flow.
#[derive(Debug, Default)]
pub(super) struct Seen {
    by_flow: HashMap<(SocketAddr, SocketAddr), Vec<Sight>>,
    /// By gateway: whether it was observed without losing packets.
    pub(super) watched: Vec<bool>,
}

/// Outcomes by client, destination and source port.
pub(super) type Results = HashMap<(usize, SocketAddr, u16), ConnectResult>;

/// One flow at one gateway.
#[derive(Debug, Clone, Copy)]
struct Sight {
    gateway: usize,
    forward: Passed,
    reply: Passed,
}

/// A flow with its outcome and path.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) flow: PlannedFlow,
    pub(super) outcome: WireOutcome,
    /// Gateways that forwarded it and its replies.
    pub(super) forward: Option<usize>,
    pub(super) reply: Option<usize>,
    /// Several gateways forwarded one direction of it.
    pub(super) moved: bool,
    /// Gateway that received it, or its reply, and did not forward it.
    pub(super) stuck: Option<usize>,
    pub(super) lost: Option<LostAt>,
}

impl Seen {
    /// `observations` by gateway; absent where it could not be watched.
    pub(super) fn new(observations: &[Option<Observation>]) -> Self {
        let mut seen = Self::default();
        for (gateway, observation) in observations.iter().enumerate() {
            let whole =
                observation.as_ref().is_some_and(|seen| seen.lost_count == Some(0) && !seen.truncated);
            seen.watched.push(whole);
            for flow in observation.iter().flat_map(|observation| &observation.flows) {
                if flow.protocol == WireProtocol::Tcp {
                    let sight = Sight { gateway, forward: flow.forward, reply: flow.reply };
                    seen.by_flow.entry((flow.client, flow.server)).or_default().push(sight);
                }
            }
        }
        seen
    }

    /// Adds later observations.
    pub(super) fn add(&mut self, later: Self) {
        for (flow, sights) in later.by_flow {
            self.by_flow.entry(flow).or_default().extend(sights);
        }
        for (watched, still) in self.watched.iter_mut().zip(later.watched) {
            *watched &= still;
        }
    }

    /// Packets that left a gateway, both directions, all flows.
    pub(super) fn packets(&self, gateway: usize) -> (u64, u64) {
        let sights = self.by_flow.values().flatten().filter(|sight| sight.gateway == gateway);
        sights.fold((0, 0), |(forward, reply), sight| {
            (forward + u64::from(sight.forward.out_count), reply + u64::from(sight.reply.out_count))
        })
    }

    /// Determines the path of one flow.
    pub(super) fn judge(&self, route: &TestedRoute, flow: PlannedFlow, outcome: WireOutcome) -> Judged {
        let client = SocketAddr::new(route.clients[flow.client].address, flow.port);
        let sights = self.by_flow.get(&(client, flow.destination)).map_or(&[][..], Vec::as_slice);
        let forward = most(sights, |sight| sight.forward.out_count);
        let reply = most(sights, |sight| sight.reply.out_count);
        let several = |count: fn(&Sight) -> u32| sights.iter().filter(|sight| count(sight) > 0).count() > 1;
        let moved = several(|sight| sight.forward.out_count) || several(|sight| sight.reply.out_count);
        let was_sent = matches!(
            outcome,
            WireOutcome::NotConnected | WireOutcome::NotAnswered | WireOutcome::Reset | WireOutcome::NoRoute
        );
        let all_watched = self.watched.iter().all(|watched| *watched);
        let lost = (was_sent && all_watched).then(|| lost_at(route, &flow, sights));
        let stuck = match &lost {
            Some(LostAt::InGateway(_)) => most(sights, |sight| sight.forward.in_count),
            Some(LostAt::ReplyInGateway(_)) => most(sights, |sight| sight.reply.in_count),
            _ => None,
        };
        Judged { flow, outcome, forward, reply, moved, stuck, lost }
    }
}

/// The gateway with the largest count, if any is above zero.
fn most(sights: &[Sight], count: impl Fn(&Sight) -> u32) -> Option<usize> {
    let best = sights.iter().max_by_key(|sight| count(sight))?;
    (count(best) > 0).then_some(best.gateway)
}

/// Last place at which a flow without a response was observed.
fn lost_at(route: &TestedRoute, flow: &PlannedFlow, sights: &[Sight]) -> LostAt {
    let name = |gateway: usize| route.gateways[gateway].host.clone();
    if most(sights, |sight| sight.reply.out_count).is_some() {
        return LostAt::AtClient(route.clients[flow.client].host.clone());
    }
    if let Some(gateway) = most(sights, |sight| sight.reply.in_count) {
        return LostAt::ReplyInGateway(name(gateway));
    }
    if most(sights, |sight| sight.forward.out_count).is_some() {
        return LostAt::AtServer(route.servers[flow.server].host.clone());
    }
    match most(sights, |sight| sight.forward.in_count) {
        Some(gateway) => LostAt::InGateway(name(gateway)),
        None => LostAt::BeforeGateways,
    }
}

/// Joins results and planned flows. Flows whose port was in use, and those not tried,
/// are omitted.
pub(super) fn judge_all(
    route: &TestedRoute,
    flows: Vec<PlannedFlow>,
    results: &Results,
    seen: &Seen,
) -> Vec<Judged> {
    let judge = |flow: PlannedFlow| {
        let outcome = results.get(&(flow.client, flow.destination, flow.port))?.outcome;
        let tried = !matches!(outcome, WireOutcome::PortInUse | WireOutcome::NotTried);
        tried.then(|| seen.judge(route, flow, outcome))
    };
    flows.into_iter().filter_map(judge).collect()
}

impl Judged {
    pub(super) fn has_response(&self) -> bool {
        self.outcome == WireOutcome::Answered
    }

    /// Gateway to which the client sent it, whether or not that forwarded it.
    pub(super) fn sent_to(&self) -> Option<usize> {
        self.forward.or_else(|| self.stuck.filter(|_| matches!(self.lost, Some(LostAt::InGateway(_)))))
    }

    /// Gateway to which the server sent the replies.
    pub(super) fn replied_to(&self) -> Option<usize> {
        self.reply.or_else(|| self.stuck.filter(|_| matches!(self.lost, Some(LostAt::ReplyInGateway(_)))))
    }

    /// `None` where one of the directions was not seen.
    pub(super) fn symmetric(&self) -> Option<bool> {
        Some(self.forward? == self.reply?)
    }
}

/// The tables of a route.
pub(super) fn tables(
    route: &TestedRoute,
    planned: &PlannedFlows,
    judged: &[Judged],
    lookups: &LookupCounts,
) -> RouteResult {
    let ratios = route.expected_ratios();
    let meet: f64 = ratios.iter().map(|ratio| ratio * ratio).sum();
    let population = || judged.iter().filter(|judged| !judged.flow.targeted);
    let by_gateway = |of: fn(&Judged) -> Option<usize>| {
        let mut counts = vec![0; route.gateways.len()];
        population().filter_map(of).for_each(|gateway| counts[gateway] += 1);
        counts
    };
    let forward = by_gateway(Judged::sent_to);
    let reply = by_gateway(Judged::replied_to);
    let compared = || judged.iter().filter_map(|one| Some((one.flow.predicted?, one.forward?)));
    let spreads = route.spreads_by_ports();
    RouteResult {
        between: route.between.clone(),
        ipv6: route.ipv6,
        return_path: route.return_path,
        symmetry_promised: route.promises_symmetry(),
        hash_policy: route.hash_policy,
        flow_count: population().count() as u64,
        answered_count: judged.iter().filter(|one| one.has_response()).count() as u64,
        targeted_count: judged.iter().filter(|one| one.flow.targeted).count() as u64,
        judged_count: judged.iter().filter(|one| one.symmetric().is_some()).count() as u64,
        asymmetric_count: judged.iter().filter(|one| one.symmetric() == Some(false)).count() as u64,
        asymmetric_expected_ratio: if route.return_path == ReturnPath::None { 1.0 - meet } else { 0.0 },
        predicted_count: [
            compared().filter(|(predicted, seen)| predicted == seen).count() as u64,
            compared().count() as u64,
        ],
        forward_fit: spreads.then(|| fit(&forward, &ratios)).flatten(),
        // Otherwise replies follow the requests.
        reply_fit: (spreads && route.return_path == ReturnPath::None).then(|| fit(&reply, &ratios)).flatten(),
        asked_forward_fit: lookups.forward.as_ref().and_then(|counts| fit(counts, &ratios)),
        asked_reply_fit: lookups.reply.as_ref().and_then(|counts| fit(counts, &ratios)),
        even: planned.even,
        gateways: gateways(route, judged, &ratios, [&forward, &reply], lookups),
        pairs: pairs(route, planned, judged),
        flows: judged.iter().map(|one| one.path(route)).collect(),
    }
}

fn gateways(
    route: &TestedRoute,
    judged: &[Judged],
    ratios: &[f64],
    [forward, reply]: [&[u64]; 2],
    lookups: &LookupCounts,
) -> Vec<GatewayResult> {
    let ratio = |counts: &[u64], place: usize| {
        let total: u64 = counts.iter().sum();
        (total > 0).then(|| counts[place] as f64 / total as f64)
    };
    let lost_through = |one: &Judged, place: usize| {
        !one.has_response() && one.forward.or(one.stuck).or(one.flow.predicted) == Some(place)
    };
    route
        .gateways
        .iter()
        .enumerate()
        .map(|(place, gateway)| GatewayResult {
            gateway: gateway.host.clone(),
            client_side: gateway.client_side.to_string(),
            server_side: gateway.server_side.to_string(),
            expected_ratio: ratios[place],
            forward_count: forward[place],
            forward_ratio: ratio(forward, place),
            reply_count: reply[place],
            reply_ratio: ratio(reply, place),
            asked_forward_ratio: lookups.forward.as_ref().and_then(|counts| ratio(counts, place)),
            asked_reply_ratio: lookups.reply.as_ref().and_then(|counts| ratio(counts, place)),
            stuck_count: judged.iter().filter(|one| one.stuck == Some(place)).count() as u64,
            unanswered_count: judged.iter().filter(|one| lost_through(one, place)).count() as u64,
            ..GatewayResult::default()
        })
        .collect()
}

fn pairs(route: &TestedRoute, planned: &PlannedFlows, judged: &[Judged]) -> Vec<PairResult> {
    let mut pairs = Vec::new();
    for (client, client_end) in route.clients.iter().enumerate() {
        for (server, server_end) in route.servers.iter().enumerate() {
            let mut pair = PairResult {
                client: client_end.host.clone(),
                client_class: client_end.class.clone(),
                server: server_end.host.clone(),
                server_class: server_end.class.clone(),
                forward_counts: vec![0; route.gateways.len()],
                reply_counts: vec![0; route.gateways.len()],
                ..PairResult::default()
            };
            let own = |one: &&Judged| (one.flow.client, one.flow.server) == (client, server);
            for one in judged.iter().filter(own) {
                pair.flow_count += 1;
                pair.answered_count += u64::from(one.has_response());
                pair.asymmetric_count += u64::from(one.symmetric() == Some(false));
                one.forward.into_iter().for_each(|gateway| pair.forward_counts[gateway] += 1);
                one.reply.into_iter().for_each(|gateway| pair.reply_counts[gateway] += 1);
            }
            let unreached = planned.unreached.get(&(client, server)).into_iter().flatten();
            // Observations override the kernel's predictions.
            pair.unreached = unreached
                .filter(|gateway| pair.forward_counts[**gateway] == 0)
                .map(|gateway| route.gateways[*gateway].host.clone())
                .collect();
            pairs.push(pair);
        }
    }
    pairs
}

impl Judged {
    fn path(&self, route: &TestedRoute) -> FlowPath {
        let name = |gateway: usize| route.gateways[gateway].host.clone();
        FlowPath {
            forward: self.forward.map(name),
            reply: self.reply.map(name),
            lost: self.lost.clone(),
            ..self.flow.path(route, self.outcome)
        }
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::fabric::HashPolicy;

    use super::*;
    use crate::{End, GatewayEnds, calls::ObservedFlow};

    fn tested_route() -> TestedRoute {
        let end = |host: &str, address: &str| End {
            host: host.to_owned(),
            class: host.to_owned(),
            address: address.parse().unwrap(),
            aliases: Vec::new(),
        };
        let gateway = |host: &str, weight, near: &str, far: &str| GatewayEnds {
            host: host.to_owned(),
            weight,
            client_side: near.parse().unwrap(),
            server_side: far.parse().unwrap(),
        };
        TestedRoute {
            between: ["near".to_owned(), "far".to_owned()],
            prefixes: ["10.0.0.0/24", "10.1.0.0/24"].map(|prefix| vec![prefix.parse().unwrap()]),
            ipv6: false,
            clients: vec![end("c", "10.0.0.1")],
            servers: vec![end("s", "10.1.0.1")],
            gateways: vec![
                gateway("g1", 3, "10.0.0.91", "10.1.0.91"),
                gateway("g2", 1, "10.0.0.92", "10.1.0.92"),
            ],
            return_path: ReturnPath::None,
            hash_policy: HashPolicy::Layer4,
            mtu_bytes: None,
            left_out_count: 0,
        }
    }

    fn flow(port: u16) -> PlannedFlow {
        let destination = "10.1.0.1:7".parse().unwrap();
        PlannedFlow { client: 0, server: 0, destination, port, predicted: Some(0), targeted: false }
    }

    /// A gateway's observation of the flow from `port`: packets in and out forward, in and
    /// out of the reply.
    fn observed(port: u16, [a, b, c, d]: [u32; 4]) -> ObservedFlow {
        ObservedFlow {
            client: SocketAddr::new("10.0.0.1".parse().unwrap(), port),
            server: "10.1.0.1:7".parse().unwrap(),
            protocol: WireProtocol::Tcp,
            forward: Passed { in_count: a, out_count: b },
            reply: Passed { in_count: c, out_count: d },
        }
    }

    fn seen(one: Vec<ObservedFlow>, other: Vec<ObservedFlow>) -> Seen {
        let whole = |flows| Some(Observation { flows, lost_count: Some(0), ..Observation::default() });
        Seen::new(&[whole(one), whole(other)])
    }

    #[test]
    fn flow_is_lost_where_it_was_observed_last() {
        let name = |text: &str| text.to_owned();
        for (one, other, expected) in [
            ([0, 0, 0, 0], [0, 0, 0, 0], LostAt::BeforeGateways),
            ([3, 0, 0, 0], [0, 0, 0, 0], LostAt::InGateway(name("g1"))),
            ([3, 3, 0, 0], [0, 0, 0, 0], LostAt::AtServer(name("s"))),
            ([3, 3, 0, 0], [0, 0, 2, 0], LostAt::ReplyInGateway(name("g2"))),
            ([3, 3, 0, 0], [0, 0, 2, 2], LostAt::AtClient(name("c"))),
        ] {
            let seen = seen(vec![observed(1, one)], vec![observed(1, other)]);
            let judged = seen.judge(&tested_route(), flow(1), WireOutcome::NotConnected);
            assert_eq!(judged.lost, Some(expected), "{one:?} {other:?}");
        }
        // Nothing is concluded if a gateway could not be observed.
        let blind = Seen::new(&[Some(Observation::default()), None]);
        assert_eq!(blind.judge(&tested_route(), flow(1), WireOutcome::NotConnected).lost, None);
    }

    #[test]
    fn forward_and_reply_gateways_are_those_of_the_packets() {
        let seen =
            seen(vec![observed(1, [4, 4, 0, 0]), observed(2, [4, 4, 3, 3])], vec![observed(1, [0, 0, 3, 3])]);
        let judge = |port| seen.judge(&tested_route(), flow(port), WireOutcome::Answered);
        assert_eq!((judge(1).forward, judge(1).reply, judge(1).symmetric()), (Some(0), Some(1), Some(false)));
        assert_eq!((judge(2).symmetric(), judge(2).moved), (Some(true), false));
        assert_eq!((judge(3).symmetric(), judge(3).lost), (None, None));
        let tables = tables(
            &tested_route(),
            &PlannedFlows::default(),
            &[judge(1), judge(2)],
            &LookupCounts::default(),
        );
        assert_eq!((tables.judged_count, tables.asymmetric_count, tables.predicted_count), (2, 1, [2, 2]));
        // Weights 3 and 1: two choices meet with 9/16 + 1/16.
        assert!((tables.asymmetric_expected_ratio - 6.0 / 16.0).abs() < 1e-12);
        assert_eq!(tables.forward_fit, None, "too few flows");
    }
}
