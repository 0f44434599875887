//! The gateways experiment: request/response flows between the hosts of a lab
//! through its gateways, which way each of them takes, and what becomes of them
//! when a gateway fails.

mod beats;
mod cast;
mod reckoning;
mod routes;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_lab::RunningLab;
use clearstream_route::wire::WireAgent;
use clearstream_schema::{
    control::{Failure, FailureKind},
    fabric::ReturnPath,
    flow::Notice,
    gateways::{
        FailureEffect, GATEWAYS_SCHEMA, GatewayConfig, GatewayFailure, GatewayFlow, GatewayShare,
        GatewaySummary,
    },
    lab::{FaultKind, LabFault},
    wire::{Observation, RouteReply, RouteRequest, WireObserve},
};
use clearstream_stats::goodness_of_fit;

pub(crate) use self::routes::LabRoutes;
use self::{
    beats::{Answerer, Beat, nanoseconds},
    cast::Cast,
    routes::{internal, lab_error},
};
use crate::{RoutesOver, TrialError};

/// Length of a step of the series.
const STEP_NS: u64 = 100_000_000;
/// A flow that had no answer for this long at the end is stuck; a flow that
/// waits for a retransmission of TCP is asked again after 0.2, 0.6, 1.4 s and
/// so on (RFC 6298, with Linux's least timeout of 0.2 s).
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long a watch may take until it has seen every gateway answer.
const WATCH_START: Duration = Duration::from_secs(3);

/// Runs the experiment. Routes, faults and programs are gone when it returns.
pub(crate) fn run(
    lab: &RunningLab,
    program: &Path,
    config: &GatewayConfig,
    stop: &AtomicBool,
) -> Result<GatewaySummary, TrialError> {
    let cast = Cast::of(lab, config)?;
    let failed = cast.failing(config)?;
    let mut routes = LabRoutes::put(lab, &cast.routing)?;
    if config.watch {
        let file = cast.write_fabric(lab)?;
        routes.watch(program, &file, &cast.end_hosts())?;
        rest(WATCH_START, stop);
    }
    let (answerer, places) = Answerer::open(&cast.server_places(lab)?).map_err(system("listen for flows"))?;
    let mut watched =
        Observers::start(lab, &cast, places.iter().map(|place| place.port()).collect(), config)?;
    let mut beats = open_flows(lab, &cast, config, &places)?;
    let opened = beats.len();
    let clock = Instant::now();
    let end_ns = config.time().0;
    let interval = Duration::from_nanos(config.interval.0);
    let broken = std::thread::scope(|scope| {
        let asking = scope.spawn(|| beats::run(&mut beats, interval, &clock, end_ns, stop));
        rest(Duration::from_nanos(config.settle.0).saturating_sub(clock.elapsed()), stop);
        let seen = watched.finish();
        let broken = match &failed {
            Some(fault) if !stop.load(Ordering::Relaxed) => Some(Broken::now(lab, fault, &clock)),
            _ => None,
        };
        // A panic of that thread is one of ours.
        let _ = asking.join();
        seen.and_then(|seen| Ok((seen, broken.transpose()?)))
    });
    drop(answerer);
    let (seen, broken) = broken?;
    let mut notices = Vec::new();
    let ended = routes.ended_watches();
    if !ended.is_empty() {
        let hosts: Vec<String> =
            ended.into_iter().filter_map(|place| cast.end_hosts().get(place).cloned()).collect();
        notices.push(Notice {
            id: "watch-ended".to_owned(),
            message: format!("route watch ended before the experiment on {}", hosts.join(", ")),
        });
    }
    if stop.load(Ordering::Relaxed) {
        let message = "stopped before its end".to_owned();
        return Err(Failure { kind: FailureKind::Busy, message }.into());
    }
    let lost: u64 = seen.iter().map(|one| one.lost_count).sum();
    if lost > 0 {
        notices.push(Notice {
            id: "packets-unseen".to_owned(),
            message: format!("{lost} packets at the gateways could not be looked at: ways may be missing"),
        });
    }
    drop(routes);
    let fault = broken.as_ref().map(|broken| (broken.fault.clone(), broken.at_ns));
    drop(broken);
    Ok(summary(config, &cast, &beats, opened, &seen, fault, end_ns, notices))
}

/// Routes over the gateways of a lab whose name is that of a fabric.
pub(crate) fn route(lab: &RunningLab, over: RoutesOver) -> Result<LabRoutes<'_>, TrialError> {
    let everyone = u32::MAX;
    let mut config = GatewayConfig {
        fabric: lab.file().name.clone(),
        clients: everyone,
        servers: everyone,
        return_path: Some(ReturnPath::None),
        ..GatewayConfig::default()
    };
    if over == RoutesOver::OneGateway {
        let count = Cast::of(lab, &config)?.gateways.len();
        config.weights = (0..count).map(|place| u16::from(place == 0)).collect();
    }
    LabRoutes::put(lab, &Cast::of(lab, &config)?.routing)
}

/// Something broken in the lab until this is dropped.
struct Broken<'a> {
    lab: &'a RunningLab,
    fault: LabFault,
    at_ns: u64,
}

impl<'a> Broken<'a> {
    fn now(lab: &'a RunningLab, fault: &LabFault, clock: &Instant) -> Result<Self, TrialError> {
        // It is in force some time before this returns: what is counted from
        // here on is never too short.
        let at_ns = nanoseconds(clock.elapsed());
        lab.fault(fault).map_err(lab_error)?;
        Ok(Self { lab, fault: fault.clone(), at_ns })
    }
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        // A lab that is gone has no faults.
        let _ = self.lab.clear_faults(Some(&self.fault.host), self.fault.interface.as_deref());
    }
}

/// What passes each gateway.
struct Observers(Vec<WireAgent>);

impl Observers {
    fn start(
        lab: &RunningLab,
        cast: &Cast,
        ports: Vec<u16>,
        config: &GatewayConfig,
    ) -> Result<Self, TrialError> {
        let seconds =
            u32::try_from((config.settle.0 + config.duration.0) / 1_000_000_000).unwrap_or(900) + 30;
        let what = WireObserve { ports, interfaces: Vec::new(), seconds };
        let mut agents = Vec::new();
        for gateway in &cast.gateways {
            let mut agent = WireAgent::default();
            let asked = || agent.handle(RouteRequest::Observe(what.clone())).map(drop);
            let entered = lab.namespaces(&gateway.name).map_err(lab_error)?.run(asked);
            entered.map_err(system("enter a gateway"))??;
            agents.push(agent);
        }
        Ok(Self(agents))
    }

    fn finish(&mut self) -> Result<Vec<Observation>, TrialError> {
        let told = self.0.iter_mut().map(|agent| match agent.handle(RouteRequest::Observed)? {
            RouteReply::Observed(seen) => Ok(seen),
            _ => Err(internal("an observer answered something else".to_owned())),
        });
        told.collect()
    }
}

fn open_flows(
    lab: &RunningLab,
    cast: &Cast,
    config: &GatewayConfig,
    places: &[std::net::SocketAddr],
) -> Result<Vec<Beat>, TrialError> {
    raise_file_limit(u64::from(config.flows));
    let mut beats = Vec::new();
    for (number, client) in cast.clients.iter().enumerate() {
        let flows = (0..config.flows as usize).filter(|flow| flow % cast.clients.len() == number);
        let servers: Vec<(usize, std::net::SocketAddr)> = flows
            .map(|flow| (flow / cast.clients.len()) % places.len())
            .map(|server| (server, places[server]))
            .collect();
        let namespaces = lab.namespaces(&client.name).map_err(lab_error)?;
        beats.extend(beats::open(&namespaces, number, &servers).map_err(system("open flows"))?);
    }
    Ok(beats)
}

/// Both ends of every flow are files of this process.
fn raise_file_limit(flows: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = 2 * flows + 256;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let most = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
        // Flows that find no file are counted as not opened.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    }
}

#[expect(clippy::too_many_arguments, reason = "everything that was measured, once")]
fn summary(
    config: &GatewayConfig,
    cast: &Cast,
    beats: &[Beat],
    opened: usize,
    seen: &[Observation],
    fault: Option<(LabFault, u64)>,
    end_ns: u64,
    notices: Vec<Notice>,
) -> GatewaySummary {
    let at_ns = fault.as_ref().map_or(end_ns, |(_, at_ns)| *at_ns);
    let mut answered: Vec<(&Beat, GatewayFlow, u64)> = Vec::new();
    for beat in beats.iter().filter(|beat| beat.answers_ns.first().is_some_and(|first| *first <= at_ns)) {
        let (forward, reply) = ways(beat, seen);
        let rest = reckoning::rest_after(&beat.answers_ns, at_ns, end_ns, patience_ns(config));
        let name = |place: Option<usize>| place.map(|place| cast.gateways[place].name.clone());
        let flow = GatewayFlow {
            client: cast.clients[beat.pair.0].name.clone(),
            from: beat.from,
            server: cast.servers[beat.pair.1].name.clone(),
            to: beat.to,
            forward: name(forward),
            reply: name(reply),
            answer_count: beat.answers_ns.len() as u64,
            gap_ns: if fault.is_some() { rest.gap_ns } else { 0 },
            stuck: fault.is_some() && rest.stuck,
        };
        answered.push((beat, flow, rest.over_ns));
    }
    let gateways: Vec<GatewayShare> = cast
        .gateways
        .iter()
        .map(|gateway| {
            let count = |way: fn(&GatewayFlow) -> &Option<String>| {
                answered.iter().filter(|(_, flow, _)| way(flow).as_ref() == Some(&gateway.name)).count()
                    as u64
            };
            GatewayShare {
                name: gateway.name.clone(),
                weight: gateway.weight,
                forward_count: count(|flow| &flow.forward),
                reply_count: count(|flow| &flow.reply),
            }
        })
        .collect();
    let counts: Vec<u64> = gateways.iter().map(|gateway| gateway.forward_count).collect();
    let weights: Vec<f64> = gateways.iter().map(|gateway| f64::from(gateway.weight)).collect();
    let differs =
        |flow: &GatewayFlow| flow.forward.is_some() && flow.reply.is_some() && flow.forward != flow.reply;
    let before: usize =
        answered.iter().map(|(beat, ..)| beat.answers_ns.partition_point(|at| *at <= at_ns)).sum();
    let mut round_trips: Vec<u64> = answered
        .iter()
        .flat_map(|(beat, ..)| {
            let count = beat.answers_ns.partition_point(|at| *at <= at_ns);
            beat.round_trips_ns.iter().take(count).copied()
        })
        .collect();
    GatewaySummary {
        schema: GATEWAYS_SCHEMA.to_owned(),
        version: 1,
        config: config.clone(),
        flow_count: answered.len() as u64,
        unanswered_count: u64::from(config.flows).saturating_sub(answered.len() as u64),
        other_return_count: answered.iter().filter(|(_, flow, _)| differs(flow)).count() as u64,
        answers_per_second: before as f64 / (at_ns.max(1) as f64 / 1e9),
        round_trip_p50_ns: reckoning::median(&mut round_trips).unwrap_or(0),
        quiet_max_ns: answered
            .iter()
            .map(|(beat, ..)| reckoning::longest_rest(&beat.answers_ns, at_ns))
            .max()
            .unwrap_or(0),
        share_probability_ratio: goodness_of_fit(&counts, &weights).map(|fit| fit.p_value),
        failure: fault.map(|(fault, at_ns)| effect(fault, at_ns, &answered)),
        series: reckoning::series(beats.iter().map(|beat| beat.answers_ns.as_slice()), STEP_NS, end_ns),
        step_ns: STEP_NS,
        gateways,
        flows: answered.into_iter().map(|(_, flow, _)| flow).collect(),
        notices: if opened < config.flows as usize {
            let missing = config.flows as usize - opened;
            let message = format!("{missing} of {} flows could not be opened", config.flows);
            notices.into_iter().chain([Notice { id: "flows-not-opened".to_owned(), message }]).collect()
        } else {
            notices
        },
    }
}

fn patience_ns(config: &GatewayConfig) -> u64 {
    PATIENCE_NS.max(config.interval.0.saturating_mul(10))
}

fn effect(fault: LabFault, at_ns: u64, flows: &[(&Beat, GatewayFlow, u64)]) -> FailureEffect {
    let gateway = fault.host.clone();
    let hit = |flow: &GatewayFlow| [&flow.forward, &flow.reply].contains(&&Some(gateway.clone()));
    let (hit, spared): (Vec<_>, Vec<_>) = flows.iter().partition(|(_, flow, _)| hit(flow));
    let mut gaps: Vec<u64> =
        hit.iter().filter(|(_, flow, _)| !flow.stuck).map(|(_, flow, _)| flow.gap_ns).collect();
    let stuck = |flows: &[&(&Beat, GatewayFlow, u64)]| flows.iter().filter(|(_, flow, _)| flow.stuck).count();
    let stuck_count = stuck(&hit) as u64;
    let last_ns = hit.iter().map(|(_, _, over_ns)| *over_ns).max().unwrap_or(at_ns);
    FailureEffect {
        gateway,
        fault,
        at_ns,
        hit_count: hit.len() as u64,
        stuck_count,
        gap_p50_ns: reckoning::median(&mut gaps),
        gap_max_ns: gaps.iter().max().copied(),
        spared_count: spared.len() as u64,
        spared_stuck_count: stuck(&spared) as u64,
        spared_gap_max_ns: spared.iter().map(|(_, flow, _)| flow.gap_ns).max().unwrap_or(0),
        full_rate_ns: (stuck_count == 0).then(|| last_ns.saturating_sub(at_ns)),
    }
}

/// Gateways that forwarded the requests and the answers of a flow, by place:
/// those that sent on most of its packets.
fn ways(beat: &Beat, seen: &[Observation]) -> (Option<usize>, Option<usize>) {
    let of_gateway = |observation: &Observation| {
        let found = observation.flows.iter().find(|flow| flow.client == beat.from && flow.server == beat.to);
        found.map_or((0, 0), |flow| (flow.forward.out_count, flow.reply.out_count))
    };
    let counts: Vec<(u32, u32)> = seen.iter().map(of_gateway).collect();
    let most = |count: fn(&(u32, u32)) -> u32| {
        let found = counts.iter().enumerate().max_by_key(|(_, counts)| count(counts));
        found.filter(|(_, counts)| count(counts) > 0).map(|(place, _)| place)
    };
    (most(|counts| counts.0), most(|counts| counts.1))
}

/// What a failure breaks.
pub(crate) fn fault_of(failure: GatewayFailure, gateway: &str, servers_side: &str) -> Option<LabFault> {
    let (kind, interface) = match failure {
        GatewayFailure::None => return None,
        GatewayFailure::Silent => (FaultKind::Cut, None),
        GatewayFailure::NotForwarding => (FaultKind::NoForwarding, None),
        GatewayFailure::OneSide => (FaultKind::LinkDown, Some(servers_side.to_owned())),
    };
    Some(LabFault { host: gateway.to_owned(), interface, kind })
}

/// Waits, or until told to stop.
fn rest(time: Duration, stop: &AtomicBool) {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

fn system(step: &'static str) -> impl Fn(std::io::Error) -> TrialError {
    move |error| internal(format!("cannot {step}: {error}"))
}
