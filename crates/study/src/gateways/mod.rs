//! The gateways experiment: request/response flows between the hosts of a lab
//! through its gateways, which way each of them takes, and what becomes of them
//! when a gateway fails.

mod beats;
mod cast;
mod reckoning;
mod routes;
mod summary;

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_lab::RunningLab;
use clearstream_route::wire::{
    WireAgent,
    calls::{Observation, Observe},
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    fabric::ReturnPath,
    flow::Notice,
    gateways::{GatewayConfig, GatewayFailure, GatewaySummary},
    lab::{FaultKind, LabFault},
};

pub(crate) use self::routes::LabRoutes;
use self::{
    beats::{Answerer, Beat, nanoseconds},
    cast::Cast,
    routes::{internal, lab_error},
    summary::Measured,
};
use crate::{RoutesOver, TrialError};

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
    let ports = places.iter().map(|place| place.port()).collect();
    let observers = Observers::start(lab, &cast, ports, config)?;
    let mut beats = open_flows(lab, &cast, config, &places)?;
    let (seen, broken) = ask(lab, config, failed.as_ref(), &mut beats, observers, stop)?;
    drop(answerer);
    let notices = notices(config, &cast, &beats, &seen, &routes.ended_watches());
    let failed = broken.as_ref().map(|broken| (broken.fault.clone(), broken.at_ns));
    drop((broken, routes));
    if stop.load(Ordering::Relaxed) {
        let message = "stopped before its end".to_owned();
        return Err(Failure { kind: FailureKind::Busy, message }.into());
    }
    Ok(Measured { config, cast: &cast, beats: &beats, seen: &seen, failed }.summary(notices))
}

/// Asks over every flow, and breaks the gateway in the middle of it. Gives what
/// passed the gateways before, and what is broken since.
fn ask<'a>(
    lab: &'a RunningLab,
    config: &GatewayConfig,
    failed: Option<&LabFault>,
    beats: &mut [Beat],
    mut observers: Observers,
    stop: &AtomicBool,
) -> Result<(Vec<Observation>, Option<Broken<'a>>), TrialError> {
    let clock = Instant::now();
    let (interval, settle) = (Duration::from_nanos(config.interval.0), Duration::from_nanos(config.settle.0));
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| beats::run(beats, interval, &clock, config.time().0, stop));
        rest(settle.saturating_sub(clock.elapsed()), stop);
        let seen = observers.finish();
        let failed = failed.filter(|_| !stop.load(Ordering::Relaxed));
        let broken = failed.map(|fault| Broken::now(lab, fault, &clock)).transpose();
        // A panic of that thread is one of ours.
        let _ = asking.join();
        Ok((seen?, broken?))
    })
}

/// What was lost on the way.
fn notices(
    config: &GatewayConfig,
    cast: &Cast,
    beats: &[Beat],
    seen: &[Observation],
    ended_watches: &[usize],
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut note = |id: &str, message: String| notices.push(Notice { id: id.to_owned(), message });
    if !ended_watches.is_empty() {
        let hosts = cast.end_hosts();
        let ended: Vec<&str> =
            ended_watches.iter().filter_map(|place| hosts.get(*place)).map(String::as_str).collect();
        note("watch-ended", format!("route watch ended before the experiment on {}", ended.join(", ")));
    }
    let lost: u64 = seen.iter().map(|one| one.lost_count).sum();
    if lost > 0 {
        let message = format!("{lost} packets at the gateways could not be looked at: ways may be missing");
        note("packets-unseen", message);
    }
    let missing = (config.flows as usize).saturating_sub(beats.len());
    if missing > 0 {
        note("flows-not-opened", format!("{missing} of {} flows could not be opened", config.flows));
    }
    notices
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
        let what = Observe { ports, interfaces: Vec::new(), seconds };
        let mut agents = Vec::new();
        for gateway in &cast.gateways {
            let mut agent = WireAgent::default();
            let asked = || agent.observe(&what);
            let entered = lab.namespaces(&gateway.name).map_err(lab_error)?.run(asked);
            entered.map_err(system("enter a gateway"))??;
            agents.push(agent);
        }
        Ok(Self(agents))
    }

    fn finish(&mut self) -> Result<Vec<Observation>, TrialError> {
        self.0.iter_mut().map(|agent| Ok(agent.observed()?)).collect()
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
