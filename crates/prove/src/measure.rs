//! Measurements through one gateway: path MTU in both directions and the rate of one
//! bulk flow, from source ports that lead there.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::document::{ForwardingLimit, ForwardingRate};
use clearstream_control::encoding;
use clearstream_flow::{FlowEvent, Open};
use clearstream_probe::calls as probe;
use clearstream_schema::{
    TimeSpan,
    control::Cookie,
    counters::HostCounters,
    flow::{FlowConfig, FlowSummary},
    human,
};

use super::{
    calls::{Counters, Lookup, PathMtu, PathMtuFound, WireProtocol},
    facts::Facts,
    flows::search_size,
    hosts::{Hosts, ProofError, refusal},
    tested_route::{End, TestedRoute},
};

/// First port of a search, above the ports of the population.
const FIRST_PORT: u16 = 61_000;
/// Utilization from which a resource is reported as the limit.
const USED_RATIO: f64 = 0.9;
/// Fraction of retransmitted segments from which loss is the limit.
const LOSS_RATIO: f64 = 0.001;

/// A fresh cookie.
pub(super) fn cookie() -> Cookie {
    Cookie(encoding::hex(&rand::random::<u128>().to_be_bytes()))
}

/// Source ports of a search: a response that returns through another gateway may be
/// lost there, and a different port selects a different gateway.
const TRIES: usize = 4;

/// The first source ports of `from` that lead through `via` to `to`.
fn ports_over(
    hosts: &mut Hosts<'_>,
    from: (&str, IpAddr),
    to: SocketAddr,
    protocol: WireProtocol,
    via: IpAddr,
    share: f64,
) -> Result<Vec<u16>, ProofError> {
    let count = u16::try_from(search_size(share)).unwrap_or(u16::MAX).min(u16::MAX - FIRST_PORT);
    let ports: Vec<u16> = (FIRST_PORT..FIRST_PORT + count).collect();
    let lookup = Lookup {
        source: from.1,
        destination: to.ip(),
        protocol,
        mark: None,
        ports: ports.iter().map(|port| (*port, to.port())).collect(),
        input: None,
        explain: false,
    };
    match hosts.call(from.0, &lookup) {
        Ok(result) => {
            let leads = |place: &usize| result.gateway(*place) == Some(via);
            Ok((0..ports.len()).filter(leads).take(TRIES).map(|place| ports[place]).collect())
        }
        Err(error) => refusal(error).map(|_| Vec::new()),
    }
}

/// Address of a server by which flows take a gateway.
fn server_address(server: &End, gateway: usize) -> IpAddr {
    server.aliases.get(gateway).copied().unwrap_or(server.address)
}

/// Path MTU through a gateway in both directions.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sizes {
    pub(super) forward: Option<PathMtuFound>,
    pub(super) reply: Option<PathMtuFound>,
}

/// Measures both directions between one client and one server through a gateway.
/// A direction is absent if no port leads there.
pub(super) fn path_mtu(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    pair: (usize, usize),
    gateway: usize,
    timeout: Duration,
) -> Result<Sizes, ProofError> {
    let (client, server) = (&route.clients[pair.0], &route.servers[pair.1]);
    let share = route.expected_ratios()[gateway];
    let ends = &route.gateways[gateway];
    let there = server_address(server, gateway);
    let (client_at, server_at) = ((client.host.as_str(), client.address), (server.host.as_str(), there));
    let forward = one_way(hosts, client_at, server_at, ends.client_side, share, timeout)?;
    let reply = one_way(hosts, server_at, client_at, ends.server_side, share, timeout)?;
    Ok(Sizes { forward, reply })
}

fn one_way(
    hosts: &mut Hosts<'_>,
    from: (&str, IpAddr),
    to: (&str, IpAddr),
    via: IpAddr,
    share: f64,
    timeout: Duration,
) -> Result<Option<PathMtuFound>, ProofError> {
    let cookie = cookie();
    let listen = probe::Listen { address: Some(to.1), port: None, cookie: cookie.clone() };
    let destination = match hosts.call(to.0, &listen) {
        Ok(listening) => listening.udp,
        Err(error) => return refusal(error).map(|_| None),
    };
    let found = search(hosts, from, destination, via, share, cookie, timeout);
    hosts.call(to.0, &probe::Close {})?;
    found
}

fn search(
    hosts: &mut Hosts<'_>,
    from: (&str, IpAddr),
    to: SocketAddr,
    via: IpAddr,
    share: f64,
    cookie: Cookie,
    timeout: Duration,
) -> Result<Option<PathMtuFound>, ProofError> {
    let mut last = None;
    for port in ports_over(hosts, from, to, WireProtocol::Udp, via, share)? {
        let search = PathMtu {
            source: SocketAddr::new(from.1, port),
            destination: to,
            cookie: cookie.clone(),
            timeout_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX),
        };
        match hosts.call(from.0, &search) {
            Ok(found) => last = Some(found),
            // The port is taken.
            Err(error) => drop(refusal(error)?),
        }
        if last.is_some_and(|found| found.path_bytes.is_some()) {
            break;
        }
    }
    Ok(last)
}

/// Rate of one bulk flow from a client to a server through a gateway; `None` if no port
/// of this pair leads there, and the reason if the flow failed.
pub(super) fn rate(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    pair: (usize, usize),
    gateway: usize,
    duration: Duration,
    facts: &Facts,
) -> Result<Option<Result<ForwardingRate, String>>, ProofError> {
    let (client, server) = (&route.clients[pair.0], &route.servers[pair.1]);
    let ends = &route.gateways[gateway];
    let to = SocketAddr::new(server_address(server, gateway), rand::random_range(10_000..20_000));
    let share = route.expected_ratios()[gateway];
    let from = (client.host.as_str(), client.address);
    let ports = ports_over(hosts, from, to, WireProtocol::Tcp, ends.client_side, share)?;
    let Some(port) = ports.first().copied() else {
        return Ok(None);
    };
    let config = FlowConfig {
        duration: TimeSpan(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        warm_up: TimeSpan::from_millis(200),
        interval: TimeSpan::from_millis(100),
        bind_address: Some(client.address),
        source_ports: Some(vec![port]),
        destination_port: Some(to.port()),
        ..FlowConfig::default()
    };
    let before = counters(hosts, &ends.host)?;
    let stop = hosts.stop;
    let (one, other) = hosts.two(&client.host, &server.host)?;
    let mut nothing = |_: FlowEvent| {};
    let summary =
        match clearstream_flow::run(one, other, to.ip(), &config, Open::default(), stop, &mut nothing) {
            Ok(summary) => summary,
            Err(error) if error.failure().is_some() => return Ok(Some(Err(error.to_string()))),
            Err(error) => return Err(error.into()),
        };
    let after = counters(hosts, &ends.host)?;
    let measured = Measured { route, pair, gateway, facts, summary: &summary, passed: after.since(&before) };
    Ok(Some(Ok(measured.rate(duration + config.warm_up.to_std()))))
}

pub(super) fn counters(hosts: &mut Hosts<'_>, host: &str) -> Result<HostCounters, ProofError> {
    hosts.call(host, &Counters {})
}

/// A measured bulk flow.
struct Measured<'a> {
    route: &'a TestedRoute,
    pair: (usize, usize),
    gateway: usize,
    facts: &'a Facts,
    summary: &'a FlowSummary,
    passed: HostCounters,
}

impl Measured<'_> {
    fn rate(&self, sent_for: Duration) -> ForwardingRate {
        let ends = &self.route.gateways[self.gateway];
        let interface = self.facts.interface(&ends.host, ends.server_side);
        let counted =
            self.passed.interfaces.iter().find(|counters| Some(counters.name.as_str()) == interface);
        let sent = counted.map_or(0, |counters| counters.send_packet_count);
        let (limit, reason) = self.limit();
        ForwardingRate {
            client: self.route.clients[self.pair.0].host.clone(),
            server: self.route.servers[self.pair.1].host.clone(),
            goodput_bps: self.summary.goodput_bps,
            packets_per_second: sent as f64 / sent_for.as_secs_f64(),
            retransmit_count: self.summary.retransmit_count,
            limit,
            reason,
        }
    }

    fn limit(&self) -> (ForwardingLimit, String) {
        let summary = self.summary;
        let ends = &self.route.gateways[self.gateway];
        let speed = [ends.client_side, ends.server_side]
            .into_iter()
            .filter_map(|address| self.facts.speed_bps(&ends.host, address))
            .min();
        if let Some(speed) = speed.filter(|speed| summary.goodput_bps >= USED_RATIO * *speed as f64) {
            let reason = format!(
                "{} of the {} of its link",
                human::rate(summary.goodput_bps),
                human::rate(speed as f64)
            );
            return (ForwardingLimit::Link, reason);
        }
        let is_lossy = |(sent, retransmitted): &(f64, f64)| *retransmitted > sent * LOSS_RATIO;
        if let Some((sent, retransmitted)) = self.segments().filter(is_lossy) {
            let reason = format!("{retransmitted:.0} of about {sent:.0} segments were retransmitted");
            return (ForwardingLimit::Loss, reason);
        }
        if let Some((core, busy)) = self.busiest_core().filter(|(_, busy)| *busy >= USED_RATIO) {
            let client = &self.route.clients[self.pair.0].host;
            let percent = busy * 100.0;
            return if self.facts.one_machine(&ends.host, client) {
                let reason =
                    format!("core {core} of the machine that holds all hosts is {percent:.0} % busy");
                (ForwardingLimit::SharedCore, reason)
            } else {
                (ForwardingLimit::GatewayCore, format!("core {core} of {} is {percent:.0} % busy", ends.host))
            };
        }
        let gigabytes_per_second = summary.goodput_bps / 8e9;
        for (host, cost) in [
            (&self.route.clients[self.pair.0].host, summary.client_cpu_seconds_per_gb),
            (&self.route.servers[self.pair.1].host, summary.server_cpu_seconds_per_gb),
        ] {
            let busy = cost * gigabytes_per_second;
            if busy >= USED_RATIO {
                let reason =
                    format!("the thread of the flow on {host} runs {:.0} % of the time", busy * 100.0);
                return (ForwardingLimit::EndHost, reason);
            }
        }
        (
            ForwardingLimit::Unknown,
            "no link, core or loss of the gateway stands out: one flow with its window".to_owned(),
        )
    }

    /// Segments sent and segments retransmitted.
    fn segments(&self) -> Option<(f64, f64)> {
        let retransmitted = self.summary.retransmit_count? as f64;
        let size = self.summary.client_settings.flows.first()?.segment_bytes;
        (size > 0).then(|| (self.summary.received_bytes as f64 / size as f64, retransmitted))
    }

    /// The busiest core of the gateway while the flow ran.
    fn busiest_core(&self) -> Option<(u32, f64)> {
        let busy = self.passed.cores.iter().filter_map(|core| {
            let used = core.user_ns + core.system_ns + core.softirq_ns + core.irq_ns + core.steal_ns;
            let all = used + core.idle_ns;
            (all > 0).then(|| (core.core, used as f64 / all as f64))
        });
        busy.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}
