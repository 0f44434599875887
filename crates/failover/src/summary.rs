//! Computes the summary from flows, observations at the gateways and the
//! injected fault.

use clearstream_prove::calls::Observation;
use clearstream_schema::{
    gateways::{FailureEffect, GATEWAYS_SCHEMA, GatewayConfig, GatewayFlow, GatewayShare, GatewaySummary},
    lab::LabFault,
    notice::Notice,
};
use clearstream_stats::goodness_of_fit;

use crate::{
    flows::RequestFlow,
    gaps,
    participants::{GatewayHost, Participants},
};

/// Length of a step of the series.
const STEP_NS: u64 = 100_000_000;
/// A flow without a response for this long at the end is stuck; TCP retransmits
/// after 0.2, 0.6, 1.4 s and so on (RFC 6298, with Linux's minimum RTO of 0.2
/// s).
const STUCK_TIMEOUT_NS: u64 = 1_000_000_000;

/// Measurements of the experiment.
pub(crate) struct Measured<'a> {
    pub(crate) config: &'a GatewayConfig,
    pub(crate) participants: &'a Participants,
    pub(crate) request_flows: &'a [RequestFlow],
    /// Packets observed at each gateway before the failure.
    pub(crate) seen: &'a [Observation],
    /// Injected fault, and its time.
    pub(crate) failed: Option<(LabFault, u64)>,
}

/// A flow with a response before the failure.
struct RespondedFlow<'a> {
    requests: &'a RequestFlow,
    flow: GatewayFlow,
    /// End of its longest gap.
    over_ns: u64,
}

impl<'a> Measured<'a> {
    pub(crate) fn summary(&self, notices: Vec<Notice>) -> GatewaySummary {
        let (config, end_ns) = (self.config, self.config.time().0);
        let at_ns = self.at_ns();
        let responded = self.responded();
        let gateways = self.gateway_shares(&responded);
        let counts: Vec<u64> = gateways.iter().map(|gateway| gateway.forward_count).collect();
        let weights: Vec<f64> = gateways.iter().map(|gateway| f64::from(gateway.weight)).collect();
        let before = |requests: &RequestFlow| requests.responses_ns.partition_point(|at| *at <= at_ns);
        let answer_count: usize = responded.iter().map(|one| before(one.requests)).sum();
        let mut round_trips: Vec<u64> = responded
            .iter()
            .flat_map(|one| one.requests.round_trips_ns.iter().take(before(one.requests)).copied())
            .collect();
        let gaps_before = responded.iter().map(|one| gaps::longest_gap(&one.requests.responses_ns, at_ns));
        GatewaySummary {
            schema: GATEWAYS_SCHEMA.to_owned(),
            version: 1,
            config: config.clone(),
            flow_count: responded.len() as u64,
            unanswered_count: u64::from(config.flows).saturating_sub(responded.len() as u64),
            other_return_count: responded.iter().filter(|one| returns_by_other_gateway(&one.flow)).count()
                as u64,
            answers_per_second: answer_count as f64 / (at_ns.max(1) as f64 / 1e9),
            round_trip_p50_ns: gaps::median(&mut round_trips).unwrap_or(0),
            quiet_max_ns: gaps_before.max().unwrap_or(0),
            share_probability_ratio: goodness_of_fit(&counts, &weights).map(|fit| fit.p_value),
            failure: self.failed.clone().map(|(fault, at_ns)| effect(fault, at_ns, &responded)),
            series: gaps::series(
                self.request_flows.iter().map(|requests| requests.responses_ns.as_slice()),
                STEP_NS,
                end_ns,
            ),
            step_ns: STEP_NS,
            gateways,
            flows: responded.into_iter().map(|one| one.flow).collect(),
            notices,
        }
    }

    /// Returns the time of the failure; the end when there was none.
    fn at_ns(&self) -> u64 {
        self.failed.as_ref().map_or(self.config.time().0, |(_, at_ns)| *at_ns)
    }

    fn responded(&self) -> Vec<RespondedFlow<'a>> {
        let (at_ns, end_ns) = (self.at_ns(), self.config.time().0);
        let timeout_ns = STUCK_TIMEOUT_NS.max(self.config.interval.0.saturating_mul(10));
        let before =
            |requests: &&RequestFlow| requests.responses_ns.first().is_some_and(|first| *first <= at_ns);
        let name = |place: Option<usize>| place.map(|place| self.participants.gateways[place].name.clone());
        let reduced = |requests: &'a RequestFlow| {
            let (forward, reply) = gateways_of(requests, self.seen);
            let rest = gaps::gap_after(&requests.responses_ns, at_ns, end_ns, timeout_ns);
            let flow = GatewayFlow {
                client: self.participants.clients[requests.pair.0].name.clone(),
                from: requests.from,
                server: self.participants.servers[requests.pair.1].name.clone(),
                to: requests.to,
                forward: name(forward),
                reply: name(reply),
                answer_count: requests.responses_ns.len() as u64,
                gap_ns: if self.failed.is_some() { rest.gap_ns } else { 0 },
                stuck: self.failed.is_some() && rest.stuck,
            };
            RespondedFlow { requests, flow, over_ns: rest.over_ns }
        };
        self.request_flows.iter().filter(before).map(reduced).collect()
    }

    fn gateway_shares(&self, responded: &[RespondedFlow<'_>]) -> Vec<GatewayShare> {
        let share = |gateway: &GatewayHost| {
            let count = |gateway_of: fn(&GatewayFlow) -> &Option<String>| {
                responded.iter().filter(|one| gateway_of(&one.flow).as_ref() == Some(&gateway.name)).count()
                    as u64
            };
            GatewayShare {
                name: gateway.name.clone(),
                weight: gateway.weight,
                forward_count: count(|flow| &flow.forward),
                reply_count: count(|flow| &flow.reply),
            }
        };
        self.participants.gateways.iter().map(share).collect()
    }
}

fn returns_by_other_gateway(flow: &GatewayFlow) -> bool {
    flow.forward.is_some() && flow.reply.is_some() && flow.forward != flow.reply
}

fn effect(fault: LabFault, at_ns: u64, flows: &[RespondedFlow<'_>]) -> FailureEffect {
    let gateway = Some(fault.host.clone());
    let uses = |one: &&RespondedFlow<'_>| one.flow.forward == gateway || one.flow.reply == gateway;
    let (hit, spared): (Vec<_>, Vec<_>) = flows.iter().partition(uses);
    let stuck = |flows: &[&RespondedFlow<'_>]| flows.iter().filter(|one| one.flow.stuck).count() as u64;
    let mut gaps: Vec<u64> = hit.iter().filter(|one| !one.flow.stuck).map(|one| one.flow.gap_ns).collect();
    let last_ns = hit.iter().map(|one| one.over_ns).max().unwrap_or(at_ns);
    FailureEffect {
        gateway: fault.host.clone(),
        fault,
        at_ns,
        hit_count: hit.len() as u64,
        stuck_count: stuck(&hit),
        gap_p50_ns: gaps::median(&mut gaps),
        gap_max_ns: gaps.iter().max().copied(),
        spared_count: spared.len() as u64,
        spared_stuck_count: stuck(&spared),
        spared_gap_max_ns: spared.iter().map(|one| one.flow.gap_ns).max().unwrap_or(0),
        full_rate_ns: (stuck(&hit) == 0).then(|| last_ns.saturating_sub(at_ns)),
    }
}

/// Returns the indices of the gateways that forwarded the requests and the
/// responses of a flow: those that forwarded most of its packets.
fn gateways_of(requests: &RequestFlow, seen: &[Observation]) -> (Option<usize>, Option<usize>) {
    let of_gateway = |observation: &Observation| {
        let found =
            observation.flows.iter().find(|flow| flow.client == requests.from && flow.server == requests.to);
        found.map_or((0, 0), |flow| (flow.forward.out_count, flow.reply.out_count))
    };
    let counts: Vec<(u32, u32)> = seen.iter().map(of_gateway).collect();
    let most = |count: fn(&(u32, u32)) -> u32| {
        let found = counts.iter().enumerate().max_by_key(|(_, counts)| count(counts));
        found.filter(|(_, counts)| count(counts) > 0).map(|(place, _)| place)
    };
    (most(|counts| counts.0), most(|counts| counts.1))
}
