//! Gathers evidence within a budget: descriptions of both hosts, a probe, the
//! requested flow, and then the experiments that would show most
//! about what is still open.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError};
use clearstream_flow::{FlowError, FlowEvent};
use clearstream_host::calls::Inspect;
use clearstream_lab::{LabError, limit};
use clearstream_schema::{
    BitRate, ByteCount, CoreList, TimeSpan,
    control::FailureKind,
    diagnosis::{Cause, Diagnosis, ExperimentKind, Remedy, Verdict},
    failure::Classified,
    flow::{FlowConfig, Interval},
    host::HostReport,
    notice::Notice,
    probe::ProbeConfig,
};
use clearstream_workload::{HostSet, TrialError};

use crate::{
    Evidence, FlowObservation,
    causes::other_congestion_control,
    experiments::{BETTER_THAN_TWO, confirming, exceeding, name},
    explain,
    facts::Facts,
    suggestions::variant,
};

/// Time between samples: no multiple of the periods that programs have, so
/// that it does not always meet the same part of them.
const INTERVAL: TimeSpan = TimeSpan::from_millis(137);
/// The requested flow is measured this long at most, unless its duration was chosen.
const REQUESTED_MOST: Duration = Duration::from_secs(6);
const REQUESTED_LEAST: Duration = Duration::from_secs(2);
/// Each experiment is measured this long.
const EXPERIMENT: Duration = Duration::from_secs(3);
/// Over a path of microseconds every window is found at once.
const LOCAL_EXPERIMENT: Duration = Duration::from_secs(2);
const LOCAL_WARM_UP: Duration = Duration::from_millis(500);
const WARM_UP: Duration = Duration::from_millis(1500);
/// Starting, connecting and ending a flow.
const AROUND: Duration = Duration::from_secs(1);
/// A connected flow without data is abandoned after this time.
const SILENCE: Duration = Duration::from_secs(5);
/// Pacing / measured rate: clearly more than losses leave, and less than a line
/// whose windows they halve carries between them.
const PACED: f64 = 1.5;
/// More experiments show little more.
const EXPERIMENTS_MOST: usize = 5;

/// Settings of a gathering.
#[derive(Debug, Clone, PartialEq)]
pub struct GatherOptions {
    /// The flow to be diagnosed. A duration of the default is shortened to fit.
    pub flow: FlowConfig,
    /// Total time budget.
    pub budget: Duration,
    /// Rate that is wanted.
    pub goal: Option<BitRate>,
}

/// Progress events of [`gather`].
#[derive(Debug, Clone, PartialEq)]
pub enum GatherEvent {
    /// Current step, and the remaining time at most.
    Step {
        /// For people.
        what: String,
        /// Time left at most.
        left: Duration,
    },
    /// An interval of a running flow.
    Interval {
        /// Goodput of it.
        goodput_bps: f64,
        /// Time left at most.
        left: Duration,
    },
    /// An agent was lost after something had been measured: the evidence is what there was until then.
    Lost(PeerError),
}

/// Reason for a failed gathering.
#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    /// An agent.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The requested flow.
    #[error(transparent)]
    Flow(#[from] FlowError),
    /// The hosts have no client or no server, or the probe lost one.
    #[error(transparent)]
    Hosts(#[from] TrialError),
    /// The lab that the hosts are in: whether its delay line was the limit is not known then.
    #[error(transparent)]
    Lab(#[from] LabError),
}

impl Classified for GatherError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Peer(error) => error.failure_kind(),
            Self::Flow(error) => error.failure_kind(),
            Self::Hosts(error) => error.failure_kind(),
            Self::Lab(error) => error.failure_kind(),
        }
    }
}

impl GatherError {
    /// The agent that is lost, if that is the reason.
    fn lost(self) -> Option<PeerError> {
        match self {
            Self::Peer(error)
            | Self::Flow(FlowError::Peer(error) | FlowError::PeerLost { source: error, .. })
                if error.failure().is_none() =>
            {
                Some(error)
            }
            _ => None,
        }
    }
}

struct Session<'a, 'hosts> {
    hosts: &'a mut HostSet<'hosts>,
    until: Instant,
    stop: &'a AtomicBool,
    on_event: &'a mut dyn FnMut(GatherEvent),
}

/// Gathers evidence between the client and the server of a set of hosts within the
/// budget of `options`. When `stop` becomes true, what there is until then is returned.
///
/// # Errors
/// When an agent is lost before anything was measured, or the requested flow
/// is invalid, or a lab does not reply. A flow that could not be run, or a probe without a
/// response, is evidence.
pub fn gather(
    hosts: &mut HostSet<'_>,
    options: &GatherOptions,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(GatherEvent),
) -> Result<Evidence, GatherError> {
    let until = Instant::now() + options.budget;
    bound(hosts, Some(until + AROUND))?;
    let evidence = gather_until(hosts, options, until, stop, on_event);
    bound(hosts, None)?;
    evidence
}

/// Bounds the calls to both hosts.
fn bound(hosts: &mut HostSet<'_>, until: Option<Instant>) -> Result<(), TrialError> {
    let (client, server) = hosts.client_and_server()?;
    client.peer.bound(until);
    server.peer.bound(until);
    Ok(())
}

fn gather_until(
    hosts: &mut HostSet<'_>,
    options: &GatherOptions,
    until: Instant,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(GatherEvent),
) -> Result<Evidence, GatherError> {
    let line_rate = hosts.line_rate();
    let mut session = Session { hosts, until, stop, on_event };
    session.step("describing both hosts");
    let (client, server) = session.hosts.client_and_server()?;
    let mut evidence = Evidence {
        client: inspect(client.peer)?,
        server: inspect(server.peer)?,
        goal: options.goal,
        line_rate,
        ..Evidence::default()
    };
    session.step("probing delay and path MTU in both directions");
    session.probe(options, &mut evidence)?;
    if stop.load(Relaxed) {
        return Ok(interrupted(evidence));
    }
    session.step("the requested flow");
    let requested = session.run(ExperimentKind::AsRequested, first(options))?;
    evidence.flows.push(requested);
    while !stop.load(Relaxed) && evidence.flows.len() <= EXPERIMENTS_MOST {
        let diagnosis = explain(&evidence);
        let Some((kind, flow)) = next(&evidence, &diagnosis, options) else { break };
        let needed = flow.warm_up.to_std() + flow.duration.to_std() + AROUND;
        if session.left() < needed {
            break;
        }
        session.step(&format!("experiment: {}", name(kind)));
        match session.run(kind, flow) {
            Ok(observation) => evidence.flows.push(observation),
            // A failed experiment leaves the earlier results valid.
            Err(error) => {
                let message = format!("experiment \"{}\": {error}", name(kind));
                evidence.notices.push(Notice { id: "experiment-failed".to_owned(), message });
                if let Some(lost) = error.lost() {
                    (session.on_event)(GatherEvent::Lost(lost));
                }
                break;
            }
        }
    }
    Ok(if stop.load(Relaxed) { interrupted(evidence) } else { evidence })
}

fn interrupted(mut evidence: Evidence) -> Evidence {
    evidence.notices.push(Notice {
        id: "interrupted".to_owned(),
        message: "stopped early: the diagnosis rests on what was gathered until then".to_owned(),
    });
    evidence
}

fn inspect(peer: &mut Peer) -> Result<HostReport, PeerError> {
    let mut report = peer.call(&Inspect {})?;
    // The agent's name is how the person called it.
    report.name = peer.name().to_owned();
    Ok(report)
}

/// The requested flow, cut to the budget where its duration was not chosen.
fn first(options: &GatherOptions) -> FlowConfig {
    let mut flow = options.flow.clone();
    let default = FlowConfig::default();
    if flow.duration == default.duration {
        let most = options.budget.mul_f64(0.4).clamp(REQUESTED_LEAST, REQUESTED_MOST);
        flow.duration = TimeSpan(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
    }
    if flow.warm_up == default.warm_up {
        flow.warm_up = TimeSpan(u64::try_from(WARM_UP.as_nanos()).unwrap_or(u64::MAX));
    }
    if flow.interval == default.interval {
        flow.interval = INTERVAL;
    }
    flow
}

fn short(mut flow: FlowConfig, requested: &FlowConfig, local: bool) -> FlowConfig {
    let span = |length: Duration| TimeSpan(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    let length = if local { LOCAL_EXPERIMENT } else { EXPERIMENT };
    flow.duration = span(length.min(requested.duration.to_std()));
    if local {
        flow.warm_up = span(LOCAL_WARM_UP.min(flow.warm_up.to_std()));
    }
    flow.bytes = None::<ByteCount>;
    flow
}

/// The most informative next experiment: first one that would confirm or refute the
/// limit that was found, then several flows, then the opposite direction.
fn next(
    evidence: &Evidence,
    diagnosis: &Diagnosis,
    options: &GatherOptions,
) -> Option<(ExperimentKind, FlowConfig)> {
    let requested = &evidence.flows.first()?.config;
    let facts = Facts::of(evidence)?;
    let mut kinds = Vec::new();
    let mut moved = None;
    let other_control = other_congestion_control(&facts);
    // A gain of an experiment may be a slow spell of the machine before it.
    if exceeding(&facts).is_some() || may_exceed(&facts) {
        kinds.push(ExperimentKind::Repeat);
    }
    match &diagnosis.primary {
        Verdict::Found(finding) => {
            kinds.extend(confirming(&finding.cause, &options.flow));
            if other_control.is_some() && may_be_the_congestion_control(&finding.cause) {
                kinds.push(ExperimentKind::OtherCongestionControl);
            }
            let other = |remedy: &Remedy| matches!(remedy, Remedy::ChangeFlow { key, .. } if key == "congestion-control");
            if finding.remedies.iter().any(other) {
                kinds.push(ExperimentKind::OtherCongestionControl);
            }
            moved = finding.remedies.iter().find_map(|remedy| match remedy {
                Remedy::MoveThread { to_cores, .. } => to_cores.first().copied(),
                _ => None,
            });
            if matches!(finding.cause, Cause::PathMtu { .. }) {
                return None;
            }
            if matches!(finding.cause, Cause::Loss { .. }) && requested.pacing.is_none() {
                // Whether bursts are dropped shows more than a repeat, once several flows were tried.
                let several = facts.experiment(ExperimentKind::SeveralFlows).is_some();
                kinds.insert(if several { 0 } else { kinds.len() }, ExperimentKind::Paced);
            }
        }
        Verdict::Unknown { experiment, .. } => kinds.push(experiment.kind),
    }
    if evidence.flows.first()?.goodput_bps() <= 0.0 {
        return None;
    }
    kinds.extend([ExperimentKind::SeveralFlows, ExperimentKind::Reverse]);
    let done = |kind: ExperimentKind| evidence.flows.iter().any(|flow| flow.kind == kind);
    let kind = kinds.into_iter().find(|kind| {
        !done(*kind)
            && (!matches!(kind, ExperimentKind::OtherReceiverCore | ExperimentKind::OtherSenderCore)
                || moved.is_some())
    })?;
    let mut flow = variant(kind, requested);
    if let (ExperimentKind::OtherCongestionControl, Some(other)) = (kind, other_control) {
        flow.congestion_control = Some(other);
    }
    match (kind, moved) {
        (ExperimentKind::OtherReceiverCore, Some(core)) => flow.receiver_cores = Some(CoreList(vec![core])),
        (ExperimentKind::OtherSenderCore, Some(core)) => flow.sender_cores = Some(CoreList(vec![core])),
        (ExperimentKind::Paced, _) => {
            flow.pacing = Some(BitRate((PACED * facts.goodput_bps / facts.flow_count) as u64));
        }
        _ => {}
    }
    let local = facts.is_local();
    Some((kind, if kind == ExperimentKind::Longer { flow } else { short(flow, requested, local) }))
}

/// Another congestion control carried more, by as much as two runs would prove.
fn may_exceed(facts: &Facts<'_>) -> bool {
    facts
        .experiment(ExperimentKind::OtherCongestionControl)
        .is_some_and(|other| other.goodput_bps() > BETTER_THAN_TWO * facts.goodput_bps)
}

/// Causes that a congestion control may imitate; the others are read from
/// sockets and hosts and do not depend on it.
fn may_be_the_congestion_control(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::PathCapacity { .. }
            | Cause::Loss { .. }
            | Cause::Policer { .. }
            | Cause::Cpu { .. }
            | Cause::SenderApplication { .. }
            | Cause::ReceiverApplication { .. }
            | Cause::StillRamping { .. }
    )
}

impl Session<'_, '_> {
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    fn step(&mut self, what: &str) {
        let left = self.left();
        (self.on_event)(GatherEvent::Step { what: what.to_owned(), left });
    }

    fn probe(&mut self, options: &GatherOptions, evidence: &mut Evidence) -> Result<(), GatherError> {
        let config = ProbeConfig {
            count: 25,
            interval: TimeSpan::from_millis(10),
            timeout: TimeSpan::from_millis(500),
            port: options.flow.destination_port,
            rate: options.goal,
            ..ProbeConfig::default()
        };
        match clearstream_probe::run_on(self.hosts, &config, self.stop) {
            Ok(summary) => evidence.probe = Some(summary),
            Err(_) if self.stop.load(Relaxed) => {}
            Err(error) if error.lost => return Err(error.into()),
            Err(error) => evidence
                .notices
                .push(Notice { id: "probe-failed".to_owned(), message: format!("no probe: {error}") }),
        }
        Ok(())
    }

    fn run(&mut self, kind: ExperimentKind, config: FlowConfig) -> Result<FlowObservation, GatherError> {
        let mut intervals: Vec<Interval> = Vec::new();
        let (halt, started, ended) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        self.hosts.reset_delay_lines()?;
        let (stop, until) = (self.stop, self.until);
        let begun = Instant::now();
        let (hosts, on_event) = (&mut *self.hosts, &mut *self.on_event);
        let outcome = thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Relaxed) {
                    let silent = !started.load(Relaxed) && begun.elapsed() > SILENCE;
                    if stop.load(Relaxed) || silent {
                        halt.store(true, Relaxed);
                    }
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let outcome = clearstream_flow::run_on(hosts, &config, &halt, &mut |event| {
                if let FlowEvent::Interval(interval) = event {
                    started.store(true, Relaxed);
                    let left = until.saturating_duration_since(Instant::now());
                    on_event(GatherEvent::Interval { goodput_bps: interval.goodput_bps, left });
                    intervals.push(interval);
                }
            });
            ended.store(true, Relaxed);
            outcome
        });
        let limit = limit::notice(&self.hosts.delay_lines()?);
        let silent = !started.load(Relaxed) && !stop.load(Relaxed);
        let (mut summary, failure) = match outcome {
            Ok(summary) if silent && summary.received_bytes == 0 => {
                let failure = format!("connected, but no data arrived within {} s", SILENCE.as_secs());
                (Some(summary), Some(failure))
            }
            Ok(summary) => (Some(summary), None),
            Err(FlowError::Failed { name, failure, partial }) => {
                (partial.map(|summary| *summary), Some(format!("{name}: {failure}")))
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(summary) = &mut summary {
            summary.notices.extend(limit);
        }
        Ok(FlowObservation { kind, config, intervals, summary, failure })
    }
}
