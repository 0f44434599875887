//! The verification procedure.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use crate::document::{
    LostAt, PacketWitnesses, ROUTE_PROOF_SCHEMA, RouteResult, RouteVerification, VerificationFinding,
    VerificationVerdict,
};
use clearstream_control::Peer;
use clearstream_schema::{TimeSpan, control::Cookie, counters::HostCounters, notice::Notice, tune::Severity};
use clearstream_stats::median;

use super::{
    calls::{Close, Connect, Counters, Listen, MOST_WIRE_FLOWS, Observation, Observe, Observed},
    decisions::Decisions,
    facts::Facts,
    findings::{self, Evidence, finding},
    flows::{self, PlannedFlow, PlannedFlows},
    hosts::{Hosts, ProofError, refusal},
    judge::{self, Judged, Results, Seen},
    measure,
    queries::{self, LookupCounts},
    tested_route::{End, TestedRoute},
};

/// Options of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofOptions {
    /// Flows per route, by which the load distribution is evaluated.
    pub flow_count: usize,
    /// Choose source ports by lookups in the clients' kernels, so that the requests are
    /// distributed exactly by the weights.
    pub even: bool,
    /// Timeout of one flow.
    pub timeout: TimeSpan,
    /// Duration of the bulk flow through each gateway; zero for none.
    pub rate_duration: TimeSpan,
    /// Measure the path MTU through each gateway.
    pub path_mtu: bool,
}

impl Default for ProofOptions {
    fn default() -> Self {
        Self {
            flow_count: 1000,
            even: false,
            timeout: TimeSpan::from_seconds(3),
            rate_duration: TimeSpan::from_millis(500),
            path_mtu: true,
        }
    }
}

/// Concurrent flows per client.
const AT_ONCE: u16 = 64;
/// Maximum duration of an observation.
const WATCH_SECONDS: u32 = 600;
/// Overhead of a bulk flow.
const RATE_OVERHEAD: Duration = Duration::from_millis(700);
/// Estimated duration of all other steps of a route.
const STEPS: Duration = Duration::from_secs(3);
/// Time for the last packets of a completed flow to pass the gateways.
const TAIL: Duration = Duration::from_millis(100);

/// Current step and remaining time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofProgress {
    /// Human-readable step.
    pub what: String,
    /// Estimated time left.
    pub left: Duration,
}

/// Verifies routes with the agents of their hosts, by host name.
///
/// # Errors
/// If an agent is lost, `stop` is set, or there is nothing to verify. Failures of single
/// hosts (capabilities, addresses) are in the result.
pub fn prove(
    fabric: &str,
    peers: &mut BTreeMap<String, Peer>,
    routes: &[TestedRoute],
    options: &ProofOptions,
    stop: &AtomicBool,
    on_progress: &mut dyn FnMut(ProofProgress),
) -> Result<RouteVerification, ProofError> {
    if routes.is_empty() {
        let text = format!("{fabric} has no route with hosts at both ends");
        return Err(ProofError::Nothing(text));
    }
    let begun = Instant::now();
    let mut work = Work {
        hosts: Hosts { peers, stop },
        options,
        facts: Facts::default(),
        findings: Vec::new(),
        notices: Vec::new(),
        is_complete: true,
        left: expected_of_all(routes, options),
        rated: BTreeSet::new(),
        on_progress,
    };
    work.facts = Facts::gather(&mut work.hosts)?;
    let proofs = routes.iter().map(|route| work.tested_route(route)).collect::<Result<Vec<_>, _>>();
    // Agents close everything, also after an error.
    let names: Vec<String> = work.hosts.peers.keys().cloned().collect();
    let close = |name| (name, vec![Close {}]);
    drop(work.hosts.call_all(names.into_iter().map(close).collect()));
    let proofs = proofs?;
    work.findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    work.findings.dedup();
    let failed = work.findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(RouteVerification {
        schema: ROUTE_PROOF_SCHEMA.to_owned(),
        version: 1,
        fabric: fabric.to_owned(),
        verdict: match (failed, work.is_complete) {
            (true, _) => VerificationVerdict::Failed,
            (false, false) => VerificationVerdict::Incomplete,
            (false, true) => VerificationVerdict::Proven,
        },
        routes: proofs,
        findings: work.findings,
        notices: work.notices,
        duration_ns: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
    })
}

/// Estimated duration of a route; gateways whose rate is known take no time.
pub(super) fn expected(route: &TestedRoute, options: &ProofOptions, rated: &BTreeSet<String>) -> Duration {
    let rate = options.rate_duration.to_std();
    let each = if rate.is_zero() { Duration::ZERO } else { rate + RATE_OVERHEAD };
    let gateways = route.gateways.iter().filter(|gateway| !rated.contains(&gateway.host)).count();
    STEPS + each * u32::try_from(gateways).unwrap_or(u32::MAX)
}

/// Estimated duration of all routes in sequence.
fn expected_of_all(routes: &[TestedRoute], options: &ProofOptions) -> Duration {
    let mut rated = BTreeSet::new();
    let mut whole = Duration::ZERO;
    for route in routes {
        whole += expected(route, options, &rated);
        rated.extend(route.gateways.iter().map(|gateway| gateway.host.clone()));
    }
    whole
}

pub(super) struct Work<'a> {
    pub(super) hosts: Hosts<'a>,
    pub(super) options: &'a ProofOptions,
    pub(super) facts: Facts,
    pub(super) findings: Vec<VerificationFinding>,
    pub(super) notices: Vec<Notice>,
    /// Every check could be made.
    pub(super) is_complete: bool,
    pub(super) left: Duration,
    /// Gateways whose rate is known: one address family is enough.
    pub(super) rated: BTreeSet<String>,
    pub(super) on_progress: &'a mut dyn FnMut(ProofProgress),
}

/// Results of the flows of a route.
pub(super) struct Shown {
    pub(super) planned: PlannedFlows,
    pub(super) lookups: LookupCounts,
    pub(super) judged: Vec<Judged>,
    pub(super) seen: Seen,
    /// By gateway: before and after the flows.
    pub(super) counted: Vec<Option<HostCounters>>,
    /// Median time to connect.
    pub(super) connect: Duration,
}

impl Work<'_> {
    pub(super) fn progress(&mut self, what: impl Into<String>) {
        (self.on_progress)(ProofProgress { what: what.into(), left: self.left });
    }

    /// Records a check that could not be made: the verification is incomplete.
    pub(super) fn missed(&mut self, id: &str, message: String) {
        self.is_complete = false;
        self.note(id, message);
    }

    /// Records what is to be known of the verification.
    pub(super) fn note(&mut self, id: &str, message: String) {
        self.notices.push(Notice { id: id.to_owned(), message });
    }

    fn tested_route(&mut self, route: &TestedRoute) -> Result<RouteResult, ProofError> {
        let left = self.left.saturating_sub(expected(route, self.options, &self.rated));
        let family = if route.ipv6 { "IPv6" } else { "IPv4" };
        let [client_network, server_network] = &route.between;
        if route.left_out_count > 0 {
            let message = format!(
                "{client_network} to {server_network}: {} hosts were left out; {} clients and {} servers represent their classes",
                route.left_out_count,
                route.clients.len(),
                route.servers.len()
            );
            let notice = Notice { id: "representatives".to_owned(), message };
            // Both address families omit the same hosts.
            if !self.notices.contains(&notice) {
                self.notices.push(notice);
            }
        }
        self.progress(format!("{client_network} to {server_network}, {family}: flows"));
        let shown = self.flows(route)?;
        if shown.judged.is_empty() {
            let message = format!(
                "{client_network} to {server_network}, {family}: no flow was opened (source ports in use, or out of time), \
                 so nothing is known of this route"
            );
            self.missed("not-tried", message);
        }
        let mut proof = judge::tables(route, &shown.planned, &shown.judged, &shown.lookups);
        self.witnesses(route, &shown, &mut proof);
        let mut decisions = Decisions::default();
        let evidence = |decisions: &Decisions, facts: &Facts, proof: &RouteResult| {
            findings::find(&Evidence {
                route,
                planned: &shown.planned,
                judged: &shown.judged,
                seen: &shown.seen,
                facts,
                decisions,
                proof,
            })
        };
        let mut found = evidence(&decisions, &self.facts, &proof);
        // Only what deviates is asked for its cause.
        if !found.is_empty() {
            decisions = Decisions::gather(&mut self.hosts, route, &self.facts, &shown.judged)?;
            found = evidence(&decisions, &self.facts, &proof);
        }
        self.findings.extend(found);
        self.capacities(route, &shown, &mut proof)?;
        self.left = left;
        Ok(proof)
    }

    /// Opens all flows while the gateways are observed.
    fn flows(&mut self, route: &TestedRoute) -> Result<Shown, ProofError> {
        let cookie = measure::cookie();
        let mut listening = Vec::new();
        for server in &route.servers {
            let addresses = self.addresses(server);
            let listen = Listen { addresses, port: None, cookie: cookie.clone() };
            listening.push(self.hosts.call(&server.host, &listen)?.port);
        }
        let ProofOptions { flow_count, even, .. } = *self.options;
        let even = even && route.spreads_by_ports();
        let mut planned = flows::choose(&mut self.hosts, route, &listening, flow_count, even)?;
        let lookups = queries::count(&mut self.hosts, route, &listening)?;
        for (client, reason) in &planned.failed_lookups {
            let host = &route.clients[*client].host;
            let message =
                format!("{host} cannot be queried for the gateway of a flow, so ports are tried: {reason}");
            self.note("no-lookup", message);
        }
        let before = self.counters(route)?;
        let chosen = std::mem::take(&mut planned.flows);
        let (mut results, mut seen) = self.watched(route, &listening, &chosen, &cookie)?;
        let mut judged = judge::judge_all(route, chosen, &results, &seen);
        let trials = flows::by_trial(route, &planned, &judged, &listening);
        if !trials.is_empty() {
            let (tried, later) = self.watched(route, &listening, &trials, &cookie)?;
            judged.extend(judge::judge_all(route, trials, &tried, &later));
            results.extend(tried);
            seen.add(later);
        }
        let after = self.counters(route)?;
        let counted =
            before.into_iter().zip(after).map(|(before, after)| Some(after?.since(&before?))).collect();
        let mut times: Vec<f64> =
            results.values().filter_map(|result| result.connect_ns).map(|ns| ns as f64).collect();
        times.sort_by(f64::total_cmp);
        let connect = Duration::from_nanos(median(&times).map_or(0, |ns| ns as u64));
        // One flow per server that did not respond is looked up for the reason.
        let silent = judged.iter().filter(|one| matches!(one.lost, Some(LostAt::AtServer(_))));
        let silent: BTreeMap<usize, &PlannedFlow> = silent.map(|one| (one.flow.server, &one.flow)).collect();
        for (server, flow) in silent {
            if let Some(reason) = flows::return_route_error(&mut self.hosts, route, flow)? {
                planned.no_return_route.insert(server, reason);
            }
        }
        // Ports and observers are for this route only.
        let hosts = route.hosts().map(|host| (host.to_owned(), vec![Close {}]));
        for (_, closed) in self.hosts.call_all(hosts.collect()) {
            closed?;
        }
        Ok(Shown { planned, lookups, judged, seen, counted, connect })
    }

    /// Opens flows while the gateways are observed.
    fn watched(
        &mut self,
        route: &TestedRoute,
        listening: &[u16],
        flows: &[PlannedFlow],
        cookie: &Cookie,
    ) -> Result<(Results, Seen), ProofError> {
        self.watch(route, listening)?;
        let results = self.open(route, flows, cookie)?;
        std::thread::sleep(TAIL);
        Ok((results, Seen::new(&self.observed(route)?)))
    }

    /// Addresses on which a server can listen; missing ones are reported.
    fn addresses(&mut self, server: &End) -> Vec<IpAddr> {
        let mut addresses = vec![server.address];
        for alias in &server.aliases {
            if self.facts.interface(&server.host, *alias).is_some() {
                addresses.push(*alias);
                continue;
            }
            let message = format!("{} lacks {alias}, by which clients choose a gateway", server.host);
            let correction = format!("apply its plan: `clearstream route apply` on {}", server.host);
            let mut found = finding("address-missing", Severity::Error, &server.host, message, correction);
            found.address = Some(*alias);
            self.findings.push(found);
        }
        addresses
    }

    /// Starts the observation on every gateway; failures are reported.
    fn watch(&mut self, route: &TestedRoute, listening: &[u16]) -> Result<(), ProofError> {
        let mut requests = BTreeMap::new();
        for gateway in &route.gateways {
            let of = |address| self.facts.interface(&gateway.host, address).map(str::to_owned);
            let interfaces: Vec<String> =
                [gateway.client_side, gateway.server_side].into_iter().filter_map(of).collect();
            let mut ports = listening.to_vec();
            ports.sort_unstable();
            ports.dedup();
            let both = interfaces.len() == 2;
            let observe = Observe {
                ports,
                interfaces: if both { interfaces } else { Vec::new() },
                seconds: WATCH_SECONDS,
            };
            requests.insert(gateway.host.clone(), vec![observe]);
        }
        for (host, replies) in self.hosts.call_all(requests) {
            if let Err(error) = replies {
                let reason = refusal(error)?;
                let message = format!("{host} cannot observe its traffic: {reason}");
                self.missed("not-watched", message);
            }
        }
        Ok(())
    }

    fn observed(&mut self, route: &TestedRoute) -> Result<Vec<Option<Observation>>, ProofError> {
        let mut by_host: BTreeMap<String, Observation> = BTreeMap::new();
        let mut pending: Vec<String> = route.gateways.iter().map(|gateway| gateway.host.clone()).collect();
        while !pending.is_empty() {
            let requests = pending.drain(..).map(|host| (host, vec![Observed {}])).collect();
            for (host, replies) in self.hosts.call_all(requests) {
                let mut replies = match replies {
                    Ok(replies) => replies,
                    // Its observation failed, which was reported.
                    Err(error) => refusal(error).map(|_| Vec::new())?,
                };
                let Some(observation) = replies.pop() else { continue };
                if observation.more {
                    pending.push(host.clone());
                }
                match by_host.get_mut(&host) {
                    Some(seen) => seen.flows.extend(observation.flows),
                    None => drop(by_host.insert(host, observation)),
                }
            }
        }
        for (host, seen) in by_host.iter().filter(|(_, seen)| seen.lost_count != Some(0) || seen.truncated) {
            let uncounted = match seen.lost_count {
                Some(0) => "all flows".to_owned(),
                Some(count) => format!("{count} packets"),
                None => "an unknown number of packets".to_owned(),
            };
            let message = format!("{host} could not count {uncounted} that passed: repeat with fewer flows");
            self.missed("not-counted", message);
        }
        Ok(route.gateways.iter().map(|gateway| by_host.remove(&gateway.host)).collect())
    }

    fn counters(&mut self, route: &TestedRoute) -> Result<Vec<Option<HostCounters>>, ProofError> {
        let request = |host: &String| (host.clone(), vec![Counters {}]);
        let requests = route.gateways.iter().map(|gateway| request(&gateway.host)).collect();
        let mut by_host = BTreeMap::new();
        for (host, replies) in self.hosts.call_all(requests) {
            by_host.extend(replies?.pop().map(|counters| (host, counters)));
        }
        Ok(route.gateways.iter().map(|gateway| by_host.remove(&gateway.host)).collect())
    }

    /// Opens the flows of all clients in parallel.
    fn open(
        &mut self,
        route: &TestedRoute,
        flows: &[PlannedFlow],
        cookie: &Cookie,
    ) -> Result<Results, ProofError> {
        let mut ports: BTreeMap<(usize, SocketAddr), Vec<u16>> = BTreeMap::new();
        for flow in flows {
            ports.entry((flow.client, flow.destination)).or_default().push(flow.port);
        }
        let timeout_ms = u32::try_from(self.options.timeout.0 / 1_000_000).unwrap_or(u32::MAX);
        let mut requests: BTreeMap<String, Vec<Connect>> = BTreeMap::new();
        let mut order: BTreeMap<String, Vec<(usize, SocketAddr)>> = BTreeMap::new();
        for ((client, server), ports) in ports {
            let end = &route.clients[client];
            for ports in ports.chunks(MOST_WIRE_FLOWS) {
                let connect = Connect {
                    source: end.address,
                    server,
                    ports: ports.to_vec(),
                    cookie: cookie.clone(),
                    timeout_ms,
                    at_once: AT_ONCE,
                };
                requests.entry(end.host.clone()).or_default().push(connect);
                order.entry(end.host.clone()).or_default().push((client, server));
            }
        }
        let mut results = Results::new();
        for (host, replies) in self.hosts.call_all(requests) {
            let replies = match replies {
                Ok(replies) => replies,
                Err(error) => {
                    let reason = refusal(error)?;
                    let message = format!("{host} could not open flows: {reason}");
                    self.findings.push(finding(
                        "no-flows",
                        Severity::Error,
                        &host,
                        message,
                        format!("apply its plan: `clearstream route apply` on {host}"),
                    ));
                    continue;
                }
            };
            for ((client, server), reply) in order.remove(&host).into_iter().flatten().zip(replies) {
                results
                    .extend(reply.results.into_iter().map(|result| ((client, server, result.port), result)));
            }
        }
        Ok(results)
    }

    /// Compares the interface counters with the packets of the flows. Other traffic only
    /// adds to the counters; a lower counter means that one of the two is wrong.
    fn witnesses(&mut self, route: &TestedRoute, shown: &Shown, proof: &mut RouteResult) {
        for (place, gateway) in route.gateways.iter().enumerate() {
            let Some(counted) = shown.counted[place].as_ref().filter(|_| shown.seen.watched[place]) else {
                continue;
            };
            let sent = |address| {
                let name = self.facts.interface(&gateway.host, address)?;
                let found = counted.interfaces.iter().find(|interface| interface.name == name);
                found.map(|interface| interface.send_packet_count)
            };
            let (Some(forward), Some(reply)) = (sent(gateway.server_side), sent(gateway.client_side)) else {
                continue;
            };
            let (forward_count, reply_count) = shown.seen.packets(place);
            if forward < forward_count || reply < reply_count {
                let message = format!(
                    "{}: its interfaces counted {forward} and {reply} packets sent, but {forward_count} and \
                     {reply_count} were seen leaving",
                    gateway.host
                );
                self.missed("not-counted", message);
            }
            proof.gateways[place].packets = Some(PacketWitnesses {
                forward_count,
                forward_interface_count: forward,
                reply_count,
                reply_interface_count: reply,
            });
        }
    }
}
