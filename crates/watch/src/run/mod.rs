//! The loop around the decisions: sockets, clock, kernel, questions.

mod balance;
mod events;
mod requests;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clearstream_schema::{
    fabric::WatchSettings,
    routing::HostRouting,
    watch::{WatchEvent, WatchEventKind},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;

use self::{
    balance::{Group, Return},
    events::empty_status,
};
use super::{
    WatchError,
    bfd::{Asker, BfdSource},
    control::{Asked, Control},
    desired::{NextHops, WayMembers, desired},
    drained::DrainedList,
    gateway::Transport,
    kernel::KernelRoutes,
    metrics::{self, Shared},
    neighbours::Neighbours,
    network_path::{Answer, AnswerKind, Probe, WayAction, WayHealth, WaySetup},
    packet::{ProbePacket, fabric_number},
    setup::WatchedWay,
    sockets::{Received, Sockets},
};

/// Time between looks at links, neighbours, sessions and the next hops in effect.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// The same while a gateway's link address is not known.
const HURRIED_HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Longest sleep, so that a request to stop is seen.
const MOST_SLEEP: Duration = Duration::from_millis(100);
/// Time for link addresses to be found before the first round.
const RESOLVE: Duration = Duration::from_millis(500);

/// What a watch needs.
#[derive(Debug)]
pub struct WatchConfig {
    /// Name of the fabric.
    pub fabric: String,
    /// Name of this host.
    pub host: String,
    /// What it routes by when all gateways are well.
    pub routing: HostRouting,
    /// Its ways.
    pub ways: Vec<WatchedWay>,
    /// How it probes and decides.
    pub settings: WatchSettings,
    /// Where counters are served.
    pub metrics: Option<SocketAddr>,
    /// Daemon whose BFD sessions are further evidence.
    pub bfd: Option<BfdSource>,
    /// Time within which the service manager wants a sign of life
    /// (sd_watchdog_enabled(3)).
    pub watchdog: Option<Duration>,
    /// Folder that keeps what is drained over restarts.
    pub state: PathBuf,
}

/// Watches until `stop` is raised. The routes stay as they are then: gateways
/// that are out stay out, and the next watch goes on from there.
///
/// # Errors
/// Only what keeps it from beginning; later failures are events, and tried again.
pub fn run(
    config: WatchConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(&WatchEvent),
) -> Result<(), WatchError> {
    let mut watch = Watch::begin(config, on_event)?;
    watch.first_look();
    watch.started();
    while !stop.load(Ordering::Relaxed) {
        watch.wait();
        watch.step();
    }
    watch.tell(WatchEventKind::Stopped);
    notify(&[NotifyState::Stopping]);
    Ok(())
}

/// Notifies the service manager that the environment names (sd_notify(3)); one
/// that does not listen changes nothing for the routes.
fn notify(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}

struct Watch<'a> {
    config: WatchConfig,
    on_event: &'a mut dyn FnMut(&WatchEvent),
    control: Control,
    sockets: Sockets,
    kernel: KernelRoutes,
    neighbours: Neighbours,
    asker: Option<Asker>,
    drained: DrainedList,
    health: Vec<WayHealth>,
    round_trips: Vec<Vec<Option<u64>>>,
    /// The resilient group of each way.
    groups: Vec<Option<Group>>,
    /// Gateways that came back and lack buckets.
    returns: Vec<Return>,
    /// Way and gateway by the gateway's address on this side.
    by_address: BTreeMap<IpAddr, (usize, usize)>,
    shared: Shared,
    began: Instant,
    run_number: u64,
    fabric_number: u64,
    housekeeping_at: Duration,
    alive_at: Duration,
    /// Next hops differ from what is wanted and the kernel refused, or lacks them.
    unsettled: bool,
    told_problem: Option<String>,
    received: Vec<Received>,
}

impl<'a> Watch<'a> {
    fn begin(config: WatchConfig, on_event: &'a mut dyn FnMut(&WatchEvent)) -> Result<Self, WatchError> {
        if config.ways.is_empty() {
            return Err(WatchError::NothingToWatch { host: config.host, fabric: config.fabric });
        }
        let control = Control::open()?;
        let mut kernel = KernelRoutes::open()?;
        let all: Vec<WayMembers> = config.ways.iter().map(|way| members(way, None)).collect();
        let plan = desired(&config.routing, &all);
        let present = kernel.present(&plan, &config.routing)?.ok_or(WatchError::NotApplied)?;
        let mut families: Vec<bool> = config.ways.iter().map(|way| way.address.is_ipv6()).collect();
        families.sort_unstable();
        families.dedup();
        let sockets = Sockets::open(config.settings.port, &families)?;
        let asker = config
            .bfd
            .map(Asker::start)
            .transpose()
            .map_err(|source| WatchError::Socket { what: "a thread for BFD sessions".to_owned(), source })?;
        let health = config.ways.iter().map(|way| way_health(way, &present, config.settings)).collect();
        let shared = Arc::new(Mutex::new(empty_status(&config)));
        if let Some(address) = config.metrics {
            metrics::serve(address, Arc::clone(&shared))?;
        }
        let by_address = (config.ways.iter().enumerate())
            .flat_map(|(index, way)| {
                way.gateways.iter().enumerate().map(move |(gateway, at)| (at.near, (index, gateway)))
            })
            .collect();
        Ok(Self {
            control,
            sockets,
            kernel,
            neighbours: Neighbours::new(&config.ways),
            asker,
            drained: DrainedList::open(&config.state),
            health,
            round_trips: config.ways.iter().map(|way| vec![None; way.gateways.len()]).collect(),
            groups: config.ways.iter().map(|way| Group::of(&config.routing.nexthops, way)).collect(),
            returns: Vec::new(),
            by_address,
            shared,
            began: Instant::now(),
            run_number: rand::random(),
            fabric_number: fabric_number(&config.fabric),
            housekeeping_at: Duration::ZERO,
            alive_at: Duration::ZERO,
            unsettled: false,
            told_problem: None,
            received: Vec::new(),
            config,
            on_event,
        })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Finds the gateways on the link, and takes out again what was drained
    /// before a restart.
    fn first_look(&mut self) {
        while self.now() < RESOLVE && !self.neighbours.all_known() {
            if let Err(error) = self.neighbours.look(self.kernel.socket()) {
                self.problem(error.to_string());
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.config.ways.iter().any(|way| way.address.is_ipv6())
            && let Err(error) = self.kernel.advance_generation()
        {
            self.problem(error.to_string());
        }
        for name in self.drained.names() {
            if let Err(reason) = self.drain(&name, true) {
                self.problem(format!("{name} was drained and is used again: {reason}"));
            }
        }
        let now = self.now();
        for (way, health) in self.config.ways.iter().zip(&mut self.health) {
            // Hosts that start together do not probe together.
            let phase = fabric_number(&self.config.host) % way.steady.as_nanos().max(1) as u64;
            health.start_at(now + Duration::from_nanos(phase));
        }
    }

    fn started(&mut self) {
        if let Err(error) = clearstream_sys::priority::make_real_time() {
            let message = format!(
                "this thread has no real-time priority ({error}): a busy machine may delay its decisions"
            );
            self.tell(WatchEventKind::Failed { message });
        }
        self.publish();
        let paths = self.shared.lock().unwrap_or_else(PoisonError::into_inner).paths.clone();
        self.tell(WatchEventKind::Started { paths });
        notify(&[NotifyState::Ready, NotifyState::Status(&self.summary())]);
    }

    /// Sleeps until something arrives or is due.
    fn wait(&self) {
        let due = self.health.iter().map(WayHealth::next_wake).min().unwrap_or(MOST_SLEEP);
        let due = due.min(self.housekeeping_at).saturating_sub(self.now()).min(MOST_SLEEP);
        let time = Timespec { tv_sec: due.as_secs() as _, tv_nsec: due.subsec_nanos() as _ };
        let descriptors: Vec<_> = self.sockets.descriptors().collect();
        let mut waiting: Vec<PollFd<'_>> =
            descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        // Interrupted by a signal: the loop looks whether it is to stop.
        let _ = poll(&mut waiting, Some(&time));
    }

    /// One turn: what arrived, then what is due.
    fn step(&mut self) {
        let mut received = std::mem::take(&mut self.received);
        self.sockets.receive(|probe| received.push(probe));
        let mut actions: Vec<(usize, WayAction)> = Vec::new();
        for probe in received.drain(..) {
            self.take(&probe, &mut actions);
        }
        self.received = received;
        let now = self.now();
        for (index, health) in self.health.iter_mut().enumerate() {
            actions.extend(health.advance(now).into_iter().map(|action| (index, action)));
        }
        self.carry_out(actions);
        let questions: Vec<Asked> = self.control.take().collect();
        for asked in questions {
            let reply = self.reply(&asked.request);
            // Who asked may have gone.
            let _ = asked.reply.send(reply);
        }
        if self.now() >= self.housekeeping_at {
            self.housekeeping();
        }
    }

    fn take(&mut self, received: &Received, actions: &mut Vec<(usize, WayAction)>) {
        let probe = &received.probe;
        if probe.fabric != self.fabric_number {
            return;
        }
        if !probe.answer && !received.echo {
            self.serve(received);
        } else if probe.run == self.run_number {
            let (way, gateway) = (usize::from(probe.way), usize::from(probe.gateway));
            let now = self.now();
            let Some(health) = self.health.get_mut(way) else { return };
            let kind = if received.echo { AnswerKind::Echo } else { AnswerKind::Watch };
            let transport = if received.segment.is_some() { Transport::Tcp } else { Transport::Udp };
            let answered = health.answer(now, Answer { gateway, round: probe.round, kind, transport });
            actions.extend(answered.into_iter().map(|action| (way, action)));
            if let Some(place) = self.round_trips[way].get_mut(gateway) {
                *place = u64::try_from(now.as_nanos()).ok().map(|now| now.saturating_sub(probe.sent_ns));
            }
        }
    }

    /// Answers a probe of a far host by the gateway that it names.
    fn serve(&mut self, received: &Received) {
        let probe = received.probe;
        let Some(&(way, gateway)) = self.by_address.get(&probe.back) else { return };
        let at = &self.config.ways[way];
        let elsewhere = received.segment.is_some_and(|segment| segment.to != at.address);
        if elsewhere || !at.far.iter().any(|prefix| prefix.contains(received.from)) {
            return;
        }
        let Some(place) = self.neighbours.place(way, gateway) else { return };
        let answer = ProbePacket { answer: true, ..probe };
        // An answer that cannot leave is one that does not come.
        if self.sockets.answer(place, at.address, received, &answer).is_ok() {
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).served_count += 1;
        }
    }

    /// Probes leave and next hops change before anything is reported.
    fn carry_out(&mut self, actions: Vec<(usize, WayAction)>) {
        let mut changed = false;
        for (way, action) in &actions {
            match action {
                WayAction::Probe(probe) => self.send(*way, *probe),
                WayAction::Members(_) => changed = true,
                _ => {}
            }
        }
        if changed {
            self.put();
        }
        let now = self.now();
        for (way, action) in actions {
            self.note_return(way, &action, now);
            let told = self.in_words(way, action, now);
            if let Some(event) = told {
                self.tell(event);
                changed = true;
            }
        }
        if changed {
            self.publish();
        }
    }

    fn send(&mut self, way: usize, probe: Probe) {
        tracing::trace!(way, target = probe.target, gateway = probe.gateway, round = probe.round, "probe");
        let at = &self.config.ways[way];
        let (Some(to), Some(gateway)) = (at.candidates.get(probe.target), at.gateways.get(probe.gateway))
        else {
            return;
        };
        // A gateway that is no neighbour is one that does not answer.
        let Some(place) = self.neighbours.place(way, probe.gateway) else { return };
        let packet = ProbePacket {
            answer: false,
            fabric: self.fabric_number,
            run: self.run_number,
            round: probe.round,
            way: way as u16,
            gateway: probe.gateway as u16,
            back: gateway.far,
            sent_ns: u64::try_from(self.now().as_nanos()).unwrap_or(u64::MAX),
        };
        let _ = match probe.transport {
            Transport::Udp => self.sockets.send(place, at.address, *to, &packet),
            Transport::Tcp => self.sockets.send_tcp(place, at.address, *to, &packet),
        };
        if probe.echo {
            let _ = self.sockets.send_echo(place, at.address, *to, &packet);
        }
    }

    fn wanted(&self) -> NextHops {
        let ways: Vec<WayMembers> = (self.config.ways.iter().zip(&self.health))
            .map(|(way, health)| members(way, Some(health.members())))
            .collect();
        desired(&self.config.routing, &ways)
    }

    /// Has the kernel's next hops as wanted; what was different, as text.
    fn put(&mut self) -> Vec<String> {
        let wanted = self.wanted();
        match self.kernel.put(&wanted) {
            Ok(changes) => {
                tracing::debug!(changed = ?changes.changed, missing = ?changes.missing, "next hops");
                let missing = changes.missing.join(", ");
                let was_unsettled = std::mem::replace(&mut self.unsettled, !changes.missing.is_empty());
                if self.unsettled {
                    self.problem(format!(
                        "{missing}: not there any more; `clearstream route apply` makes it again"
                    ));
                } else if was_unsettled {
                    self.told_problem = None;
                }
                let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                shared.change_count += changes.changed.len() as u64;
                changes.changed
            }
            Err(error) => {
                self.unsettled = true;
                self.shared.lock().unwrap_or_else(PoisonError::into_inner).failed_change_count += 1;
                self.problem(format!("the next hops could not be changed: {error}"));
                Vec::new()
            }
        }
    }

    /// Links, neighbours, sessions, next hops that others changed, signs of life.
    fn housekeeping(&mut self) {
        if let Err(error) = self.neighbours.look(self.kernel.socket()) {
            self.problem(format!("links and neighbours could not be read: {error}"));
        }
        let now = self.now();
        let mut actions = Vec::new();
        for (index, (way, health)) in self.config.ways.iter().zip(&mut self.health).enumerate() {
            for (gateway, at) in way.gateways.iter().enumerate() {
                health.neighbour(gateway, self.neighbours.word(index, gateway));
                health.session(gateway, self.asker.as_ref().and_then(|asker| asker.is_up(at.near)));
                let up = self.neighbours.running(index);
                actions.extend(health.link(now, gateway, up).into_iter().map(|action| (index, action)));
            }
        }
        self.carry_out(actions);
        let repaired = self.put();
        if !repaired.is_empty() {
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).repair_count += 1;
            self.tell(WatchEventKind::Repaired { found: repaired.join("; ") });
        }
        if !self.unsettled && self.health.iter().any(WayHealth::expects_return) {
            let wanted = self.wanted();
            if let Err(error) = self.kernel.refresh(&wanted) {
                self.problem(format!("flows may move to a gateway that comes back: {error}"));
            }
        }
        self.look_at_buckets();
        self.publish();
        self.sign_of_life();
        let wait = if self.neighbours.all_known() { HOUSEKEEPING } else { HURRIED_HOUSEKEEPING };
        self.housekeeping_at = self.now() + wait;
    }

    fn sign_of_life(&mut self) {
        let now = self.now();
        if let Some(watchdog) = self.config.watchdog
            && now >= self.alive_at
        {
            notify(&[NotifyState::Watchdog, NotifyState::Status(&self.summary())]);
            // Twice in the time that is allowed.
            self.alive_at = now + (watchdog / 2).saturating_sub(HOUSEKEEPING);
        }
    }
}

/// The gateways of a way that are wanted; all of them when not said.
fn members(way: &WatchedWay, wanted: Option<Vec<bool>>) -> WayMembers {
    WayMembers {
        all: way.gateways.iter().map(|gateway| (gateway.near, gateway.weight)).collect(),
        wanted: wanted.unwrap_or_else(|| vec![true; way.gateways.len()]),
        interface: way.interface.clone(),
    }
}

/// A way whose members are those found among the next hops. A plan with one
/// gateway has no group and no multipath route to find it in.
fn way_health(way: &WatchedWay, present: &[IpAddr], settings: WatchSettings) -> WayHealth {
    let found: Vec<bool> = way.gateways.iter().map(|gateway| present.contains(&gateway.near)).collect();
    let members = if found.contains(&true) { found } else { vec![true; way.gateways.len()] };
    let setup = WaySetup { members, candidate_count: way.candidates.len(), steady: way.steady };
    WayHealth::new(&setup, settings, Duration::ZERO)
}
