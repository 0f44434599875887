//! Performs the experiment: routes, observers at the gateways, flows, fault
//! injection during the run, and cleanup.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_lab::RunningLab;
use clearstream_prove::{
    ProofAgent,
    calls::{Observation, Observe},
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    gateways::{GatewayConfig, GatewayFailure, GatewaySummary},
    lab::{FaultKind, LabFault},
    notice::Notice,
};
use clearstream_workload::TrialError;

use crate::{
    flows::{self, RequestFlow, Responder, nanoseconds},
    participants::Participants,
    routes::{LabRoutes, lab_error},
    summary::Measured,
};

/// Maximum wait until the watches of all hosts have had a response through
/// every gateway; an idle host needs a few tenths of a second.
const WATCH_START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs the experiment. Routes, faults and programs are removed when it
/// returns.
pub(crate) fn run(
    lab: &RunningLab,
    program: &Path,
    config: &GatewayConfig,
    stop: &AtomicBool,
) -> Result<GatewaySummary, TrialError> {
    let participants = Participants::of(lab, config)?;
    let failed = participants.failing(config)?;
    let mut routes = LabRoutes::apply(lab, &participants.routing)?;
    if config.watch {
        start_watches(&mut routes, &participants, lab, program, stop)?;
    }
    let (responder, places) =
        Responder::open(&participants.server_places(lab)?).map_err(system("listen for flows"))?;
    let ports = places.iter().map(|place| place.port()).collect();
    let observers = Observers::start(lab, &participants, ports, config)?;
    let mut request_flows = open_flows(lab, &participants, config, &places)?;
    let (seen, injected) = run_flows(lab, config, failed.as_ref(), &mut request_flows, observers, stop)?;
    drop(responder);
    // An interruption reaches the watches, too.
    if !stop.load(Ordering::Relaxed) {
        watches_run(&mut routes, &participants)?;
    }
    let notices = notices(config, &request_flows, &seen);
    let failed = injected.as_ref().map(|injected| (injected.fault.clone(), injected.at_ns));
    drop((injected, routes));
    if stop.load(Ordering::Relaxed) {
        let message = "stopped before its end".to_owned();
        return Err(Failure { kind: FailureKind::Busy, message }.into());
    }
    Ok(Measured { config, participants: &participants, request_flows: &request_flows, seen: &seen, failed }
        .summary(notices))
}

/// Starts `route watch` on clients and servers, and waits until all of them had a response through every gateway: what
/// is measured is gateways that are watched.
fn start_watches(
    routes: &mut LabRoutes<'_>,
    participants: &Participants,
    lab: &RunningLab,
    program: &Path,
    stop: &AtomicBool,
) -> Result<(), TrialError> {
    let (file, hosts) = (participants.write_fabric(lab)?, participants.end_hosts());
    routes.watch(program, &file, &hosts)?;
    let deadline = Instant::now() + WATCH_START_TIMEOUT;
    while !stop.load(Ordering::Relaxed) {
        watches_run(routes, participants)?;
        if routes.watches_ready(&hosts)? {
            return Ok(());
        }
        if Instant::now() > deadline {
            let seconds = WATCH_START_TIMEOUT.as_secs();
            let message =
                format!("route watch had no response through every gateway on every host within {seconds} s");
            return Err(Failure { kind: FailureKind::Connection, message }.into());
        }
        sleep_unless(POLL_INTERVAL, stop);
    }
    Ok(())
}

/// Fails where a watch that was started does not run any more.
fn watches_run(routes: &mut LabRoutes<'_>, participants: &Participants) -> Result<(), TrialError> {
    let (ended, hosts) = (routes.ended_watches(), participants.end_hosts());
    if ended.is_empty() {
        return Ok(());
    }
    let ended: Vec<&str> = ended.iter().filter_map(|place| hosts.get(*place)).map(String::as_str).collect();
    let message = format!("route watch ended before the end of the experiment on {}", ended.join(", "));
    Err(Failure { kind: FailureKind::Connection, message }.into())
}

/// Sends requests over every flow, and injects the fault halfway. Returns the
/// packets observed at the gateways before, and the injected fault.
fn run_flows<'a>(
    lab: &'a RunningLab,
    config: &GatewayConfig,
    failed: Option<&LabFault>,
    request_flows: &mut [RequestFlow],
    mut observers: Observers,
    stop: &AtomicBool,
) -> Result<(Vec<Observation>, Option<InjectedFault<'a>>), TrialError> {
    let clock = Instant::now();
    let (interval, settle) = (Duration::from_nanos(config.interval.0), Duration::from_nanos(config.settle.0));
    std::thread::scope(|scope| {
        let requests = scope.spawn(|| flows::run(request_flows, interval, &clock, config.time().0, stop));
        sleep_unless(settle.saturating_sub(clock.elapsed()), stop);
        let seen = observers.finish();
        let failed = failed.filter(|_| !stop.load(Ordering::Relaxed));
        let injected = failed.map(|fault| InjectedFault::now(lab, fault, &clock)).transpose();
        if let Err(panic) = requests.join() {
            std::panic::resume_unwind(panic);
        }
        Ok((seen?, injected?))
    })
}

/// Collects notices of lost capabilities.
fn notices(config: &GatewayConfig, request_flows: &[RequestFlow], seen: &[Observation]) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut note = |id: &str, message: String| notices.push(Notice { id: id.to_owned(), message });
    // Absent where one gateway's kernel does not say.
    let lost: Option<u64> = seen.iter().map(|one| one.lost_count).sum();
    if lost != Some(0) {
        let lost = lost.map_or_else(|| "an unknown number of".to_owned(), |count| count.to_string());
        let message = format!("{lost} packets at the gateways could not be inspected: paths may be missing");
        note("packets-unseen", message);
    }
    let missing = (config.flows as usize).saturating_sub(request_flows.len());
    if missing > 0 {
        note("flows-not-opened", format!("{missing} of {} flows could not be opened", config.flows));
    }
    notices
}

/// A fault injected in the lab; dropping it clears the fault.
struct InjectedFault<'a> {
    lab: &'a RunningLab,
    fault: LabFault,
    at_ns: u64,
}

impl<'a> InjectedFault<'a> {
    fn now(lab: &'a RunningLab, fault: &LabFault, clock: &Instant) -> Result<Self, TrialError> {
        // It takes effect some time before this returns: times counted from
        // here are never too short.
        let at_ns = nanoseconds(clock.elapsed());
        lab.inject_fault(fault).map_err(lab_error)?;
        Ok(Self { lab, fault: fault.clone(), at_ns })
    }
}

impl Drop for InjectedFault<'_> {
    fn drop(&mut self) {
        // A lab that was taken down has no faults.
        let _ = self.lab.clear_faults(Some(&self.fault.host), self.fault.interface.as_deref());
    }
}

/// Observers of the packets at each gateway.
struct Observers(Vec<ProofAgent>);

impl Observers {
    fn start(
        lab: &RunningLab,
        participants: &Participants,
        ports: Vec<u16>,
        config: &GatewayConfig,
    ) -> Result<Self, TrialError> {
        let seconds =
            u32::try_from((config.settle.0 + config.duration.0) / 1_000_000_000).unwrap_or(900) + 30;
        let what = Observe { ports, interfaces: Vec::new(), seconds };
        let mut agents = Vec::new();
        for gateway in &participants.gateways {
            let mut agent = ProofAgent::default();
            let start = || agent.observe(&what);
            let entered = lab.namespaces(&gateway.name).map_err(lab_error)?.run(start);
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
    participants: &Participants,
    config: &GatewayConfig,
    places: &[std::net::SocketAddr],
) -> Result<Vec<RequestFlow>, TrialError> {
    // Both sockets of every flow are files of this process; flows without one are counted as not opened.
    clearstream_sys::process::allow_files(2 * u64::from(config.flows) + 256);
    let mut request_flows = Vec::new();
    for (number, client) in participants.clients.iter().enumerate() {
        let flows = (0..config.flows as usize).filter(|flow| flow % participants.clients.len() == number);
        let servers: Vec<(usize, std::net::SocketAddr)> = flows
            .map(|flow| (flow / participants.clients.len()) % places.len())
            .map(|server| (server, places[server]))
            .collect();
        let namespaces = lab.namespaces(&client.name).map_err(lab_error)?;
        request_flows.extend(flows::open(&namespaces, number, &servers).map_err(system("open flows"))?);
    }
    Ok(request_flows)
}

/// Returns the fault to inject for a failure.
pub(crate) fn fault_of(failure: GatewayFailure, gateway: &str, servers_side: &str) -> Option<LabFault> {
    let (kind, interface) = match failure {
        GatewayFailure::None => return None,
        GatewayFailure::Silent => (FaultKind::Cut, None),
        GatewayFailure::NotForwarding => (FaultKind::NoForwarding, None),
        GatewayFailure::OneSide => (FaultKind::LinkDown, Some(servers_side.to_owned())),
    };
    Some(LabFault { host: gateway.to_owned(), interface, kind })
}

/// Sleeps for this time, or until `stop` is set.
fn sleep_unless(time: Duration, stop: &AtomicBool) {
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
    move |error| Failure::of_system(step, &error).into()
}
