//! Event loop: I/O around the decisions (sockets, clock, kernel, control requests).

mod balance;
mod events;
mod probes;
mod problems;
mod requests;
mod routes;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clearstream_netlink::Changes;
use clearstream_schema::{
    fabric::WatchSettings,
    routing::HostRouting,
    watch::{WatchEvent, WatchEventKind, WatchStatus},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sd_notify::NotifyState;

pub use self::events::empty_status;
use self::{
    balance::{Group, Return},
    problems::{Problem, Problems},
};
use super::{
    WatchError,
    bfd::{BfdSource, SessionPoller},
    control::{Control, PendingRequest},
    desired::{PathMembers, desired},
    drained::DrainedList,
    kernel::{AddedAddress, KernelRoutes, Missing},
    neighbours::Neighbours,
    network_path::{PathAction, PathHealth, PathSetup},
    packet::fabric_number,
    setup::WatchedPath,
    sockets::{Received, Sockets},
};

/// Times the interval between rounds while all gateways respond: half of the probes, and a gateway's death is found a few
/// milliseconds later, since an overdue reply begins the rounds that confirm it.
const REST: u32 = 2;
/// Interval between checks of links, neighbours, sessions and effective next hops.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// The same while a gateway's link address is unknown.
const HURRIED_HOUSEKEEPING: Duration = Duration::from_millis(100);
/// Least interval between them when the kernel speaks of changes.
const FOREIGN_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum wait: bounds the delay until a stop request is noticed.
const MOST_SLEEP: Duration = Duration::from_millis(100);
/// Wait for further probes of others after one has arrived.
const GATHER: Duration = Duration::from_micros(200);
/// Maximum wait for neighbour resolution before the first round.
const RESOLVE: Duration = Duration::from_millis(500);

/// Configuration of a watch.
#[derive(Debug)]
pub struct WatchConfig {
    /// Name of the fabric.
    pub fabric: String,
    /// Name of this host.
    pub host: String,
    /// Its routing plan, with all gateways in use.
    pub routing: HostRouting,
    /// Its network paths.
    pub paths: Vec<WatchedPath>,
    /// Probe and decision parameters.
    pub settings: WatchSettings,
    /// The latest status, for others to read; [`empty_status`](crate::empty_status) at first.
    pub status: Arc<Mutex<WatchStatus>>,
    /// Daemon whose BFD sessions are additional evidence.
    pub bfd: Option<BfdSource>,
    /// Watchdog timeout of the service manager (sd_watchdog_enabled(3)).
    pub watchdog: Option<Duration>,
    /// Folder that stores the list of drained gateways across restarts.
    pub state: PathBuf,
    /// What became of the plan that installed the routes.
    pub standing: fn() -> Standing,
    /// The addresses that plans in effect have added.
    pub added: fn() -> Vec<AddedAddress>,
}

/// What became of the plan that installed a host's routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is applied: what is missing was taken away.
    Applied,
    /// It was reverted, or is being applied or reverted now: what is missing is to be missing.
    Reverted,
    /// Something else installed them.
    Unknown,
}

/// Watches until `stop` is set. The routes are left as they are: withdrawn
/// gateways stay withdrawn, and the next watch continues from there.
///
/// # Errors
/// Only failures of the setup; later ones are reported as events and retried.
pub fn run(
    config: WatchConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(&WatchEvent),
) -> Result<(), WatchError> {
    let mut watch = Watch::begin(config, on_event)?;
    watch.prepare();
    watch.started();
    while !stop.load(Ordering::Relaxed) {
        let is_told_of_changes = watch.wait();
        watch.step(is_told_of_changes);
    }
    watch.report(WatchEventKind::Stopped);
    notify(&[NotifyState::Stopping]);
    Ok(())
}

/// Notifies the service manager named by the environment (sd_notify(3)). Errors
/// are ignored: they do not affect the routes.
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
    bfd: Option<SessionPoller>,
    drained: DrainedList,
    health: Vec<PathHealth>,
    round_trips: Vec<Vec<Option<u64>>>,
    /// The resilient group of each path.
    groups: Vec<Option<Group>>,
    /// Restored gateways that lack buckets.
    returns: Vec<Return>,
    /// Indices of path and gateway by the gateway's local address.
    by_address: BTreeMap<IpAddr, (usize, usize)>,
    shared: Arc<Mutex<WatchStatus>>,
    began: Instant,
    run_number: u64,
    fabric_number: u64,
    housekeeping_at: Duration,
    /// When it was done last.
    housekept_at: Duration,
    alive_at: Duration,
    /// What the kernel says of changes by others.
    foreign: Changes,
    /// The kernel rejected the last change of next hops.
    unsettled: bool,
    /// What is not in effect of what was installed, addresses included.
    missing: Vec<Missing>,
    /// Of the addresses: those that are not there, and those that are again.
    lost_addresses: Vec<Missing>,
    restored_addresses: Vec<String>,
    problems: Problems,
    received: Vec<Received>,
    /// Probes of others that were replied to.
    served_count: u64,
}

impl<'a> Watch<'a> {
    fn begin(config: WatchConfig, on_event: &'a mut dyn FnMut(&WatchEvent)) -> Result<Self, WatchError> {
        if config.paths.is_empty() {
            return Err(WatchError::NothingToWatch { host: config.host, fabric: config.fabric });
        }
        let control = Control::open()?;
        let mut kernel = KernelRoutes::open()?;
        let all: Vec<PathMembers> = config.paths.iter().map(|path| members(path, None)).collect();
        let plan = desired(&config.routing, &all);
        let standing = (config.standing)();
        let present = match kernel.present(&plan, &config.routing, standing == Standing::Unknown)? {
            Some(present) => present,
            // Taken away before this watch began: the first check restores it.
            None if standing == Standing::Applied => Vec::new(),
            None => return Err(WatchError::NotApplied),
        };
        let mut families: Vec<bool> = config.paths.iter().map(|path| path.address.is_ipv6()).collect();
        families.sort_unstable();
        families.dedup();
        let sockets = Sockets::open(config.settings.port, &families)?;
        let bfd = config
            .bfd
            .map(SessionPoller::start)
            .transpose()
            .map_err(|source| WatchError::Socket { what: "a thread for BFD sessions".to_owned(), source })?;
        let health = config.paths.iter().map(|path| path_health(path, &present, config.settings)).collect();
        let shared = Arc::clone(&config.status);
        let by_address = (config.paths.iter().enumerate())
            .flat_map(|(index, path)| {
                path.gateways
                    .iter()
                    .enumerate()
                    .map(move |(gateway, at)| (at.local_address, (index, gateway)))
            })
            .collect();
        Ok(Self {
            control,
            sockets,
            kernel,
            neighbours: Neighbours::new(&config.paths),
            bfd,
            drained: DrainedList::open(&config.state),
            health,
            round_trips: config.paths.iter().map(|path| vec![None; path.gateways.len()]).collect(),
            groups: config.paths.iter().map(|path| Group::of(&config.routing.nexthops, path)).collect(),
            returns: Vec::new(),
            by_address,
            shared,
            began: Instant::now(),
            run_number: rand::random(),
            fabric_number: fabric_number(&config.fabric),
            housekeeping_at: Duration::ZERO,
            housekept_at: Duration::ZERO,
            alive_at: Duration::ZERO,
            foreign: Changes::open()?,
            unsettled: false,
            missing: Vec::new(),
            lost_addresses: Vec::new(),
            restored_addresses: Vec::new(),
            problems: Problems::default(),
            received: Vec::new(),
            served_count: 0,
            config,
            on_event,
        })
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Resolves the gateways' link addresses, and restores the drains from before a
    /// restart.
    fn prepare(&mut self) {
        while self.now() < RESOLVE && !self.neighbours.all_known() {
            let read = self.neighbours.update(self.kernel.socket());
            let has_failed = read.is_err();
            self.attempted(Problem::Neighbours, read.map_err(|error| error.to_string()));
            if has_failed {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.config.paths.iter().any(|path| path.address.is_ipv6()) {
            let advanced = self.kernel.advance_generation();
            self.attempted(Problem::Generation, advanced.map_err(|error| error.to_string()));
        }
        for name in self.drained.names() {
            if let Err(reason) = self.drain(&name, true) {
                let message = format!("{name} was drained before the restart and is now in use: {reason}");
                self.report(WatchEventKind::Failed { message });
            }
        }
        let now = self.now();
        for (path, health) in self.config.paths.iter().zip(&mut self.health) {
            // Hosts that start simultaneously probe at different times.
            let phase = fabric_number(&self.config.host) % path.steady.as_nanos().max(1) as u64;
            health.start_at(now + Duration::from_nanos(phase));
        }
    }

    fn started(&mut self) {
        if let Err(error) = clearstream_sys::priority::make_real_time() {
            self.attempted(Problem::Priority, Err(error.to_string()));
        }
        self.publish();
        let paths = self.shared.lock().unwrap_or_else(PoisonError::into_inner).paths.clone();
        self.report(WatchEventKind::Started { paths });
        notify(&[NotifyState::Ready, NotifyState::Status(&self.summary())]);
    }

    /// Waits for input or for the next due time; returns whether the kernel tells of changes.
    fn wait(&self) -> bool {
        let due = self.health.iter().map(PathHealth::next_wake).min().unwrap_or(MOST_SLEEP);
        let due = due.min(self.housekeeping_at).saturating_sub(self.now()).min(MOST_SLEEP);
        let time = Timespec { tv_sec: due.as_secs() as _, tv_nsec: due.subsec_nanos() as _ };
        let descriptors: Vec<_> = self.sockets.descriptors().collect();
        let mut waiting: Vec<PollFd<'_>> =
            descriptors.iter().map(|descriptor| PollFd::new(descriptor, PollFlags::IN)).collect();
        waiting.push(PollFd::new(&self.foreign, PollFlags::IN));
        // Interrupted by a signal: the loop checks the stop flag.
        if !matches!(poll(&mut waiting, Some(&time)), Ok(count) if count > 0) {
            return false;
        }
        // A round of another host comes through all gateways at about the same time: one reply to all of them.
        std::thread::sleep(GATHER);
        waiting.last().is_some_and(|foreign| !foreign.revents().is_empty())
    }

    /// One iteration: received packets, then due work.
    fn step(&mut self, is_told_of_changes: bool) {
        let mut received = std::mem::take(&mut self.received);
        self.sockets.receive(|probe| received.push(probe));
        let mut actions: Vec<(usize, PathAction)> = Vec::new();
        for probe in received.drain(..) {
            self.handle(&probe, &mut actions);
        }
        self.sockets.flush();
        self.received = received;
        let now = self.now();
        for (index, health) in self.health.iter_mut().enumerate() {
            actions.extend(health.advance(now).into_iter().map(|action| (index, action)));
        }
        self.carry_out(actions);
        let requests: Vec<PendingRequest> = self.control.take().collect();
        for pending in requests {
            let reply = self.reply(&pending.request);
            // The client may have disconnected.
            let _ = pending.reply.send(reply);
        }
        if is_told_of_changes && self.take_told() {
            let soon = self.housekept_at + FOREIGN_INTERVAL;
            self.housekeeping_at = self.housekeeping_at.min(soon);
        }
        if self.now() >= self.housekeeping_at {
            self.housekeeping();
        }
    }

    /// Sends probes and changes next hops before anything is reported.
    fn carry_out(&mut self, actions: Vec<(usize, PathAction)>) {
        let mut changed = false;
        for (path, action) in &actions {
            match action {
                PathAction::Probe(probe) => self.send(*path, *probe),
                PathAction::Members(_) => changed = true,
                _ => {}
            }
        }
        self.sockets.flush();
        if changed {
            self.apply();
        }
        let now = self.now();
        for (path, action) in actions {
            self.note_return(path, &action, now);
            let event = self.event_kind(path, action, now);
            if let Some(event) = event {
                self.report(event);
                changed = true;
            }
        }
        if changed {
            self.publish();
        }
    }

    /// Checks links, neighbours, sessions and next hops changed from outside, and feeds the watchdog.
    fn housekeeping(&mut self) {
        self.housekept_at = self.now();
        let read = self.neighbours.update(self.kernel.socket());
        self.attempted(Problem::Neighbours, read.map_err(|error| error.to_string()));
        let now = self.now();
        let mut actions = Vec::new();
        let sizes: Vec<Option<u32>> = (0..self.health.len()).map(|path| self.mtu_bytes(path)).collect();
        for (index, (path, health)) in self.config.paths.iter().zip(&mut self.health).enumerate() {
            health.set_mtu(sizes[index]);
            for (gateway, at) in path.gateways.iter().enumerate() {
                health.neighbour(gateway, self.neighbours.state(index, gateway));
                health.session(
                    gateway,
                    self.bfd.as_ref().and_then(|sessions| sessions.is_up(at.local_address)),
                );
                let up = self.neighbours.running(index);
                actions.extend(health.link(now, gateway, up).into_iter().map(|action| (index, action)));
            }
        }
        self.carry_out(actions);
        self.check_addresses();
        let repaired = self.apply();
        if !repaired.is_empty() {
            self.shared.lock().unwrap_or_else(PoisonError::into_inner).repair_count += 1;
            self.report(WatchEventKind::Repaired { found: repaired.join("; ") });
        }
        let is_settled = !self.unsettled && self.missing.is_empty();
        if is_settled && self.health.iter().any(PathHealth::expects_return) {
            let wanted = self.wanted();
            let refreshed = self.kernel.refresh(&wanted);
            self.attempted(Problem::Refresh, refreshed.map_err(|error| error.to_string()));
        }
        self.check_buckets();
        self.publish();
        self.feed_watchdog();
        // What the kernel says of the changes that were just made.
        self.take_told();
        let wait = if self.neighbours.all_known() { HOUSEKEEPING } else { HURRIED_HOUSEKEEPING };
        self.housekeeping_at = self.now() + wait;
    }

    /// Takes what the kernel says of changes: neighbours at once; returns whether something else is to be read.
    fn take_told(&mut self) -> bool {
        let told = self.foreign.take();
        for (path, gateway) in self.neighbours.told(&told.neighbours) {
            self.health[path].neighbour(gateway, self.neighbours.state(path, gateway));
        }
        told.others
    }

    fn feed_watchdog(&mut self) {
        let now = self.now();
        if let Some(watchdog) = self.config.watchdog
            && now >= self.alive_at
        {
            notify(&[NotifyState::Watchdog, NotifyState::Status(&self.summary())]);
            // Twice per timeout.
            self.alive_at = now + (watchdog / 2).saturating_sub(HOUSEKEEPING);
        }
    }
}

/// The gateways of a path with `wanted`; all of them if absent.
fn members(path: &WatchedPath, wanted: Option<Vec<bool>>) -> PathMembers {
    PathMembers {
        all: path.gateways.iter().map(|gateway| (gateway.local_address, gateway.weight)).collect(),
        wanted: wanted.unwrap_or_else(|| vec![true; path.gateways.len()]),
        interface: path.interface.clone(),
    }
}

/// A path whose members are those found among the next hops. A plan with one
/// gateway has no group and no multipath route to find it in.
fn path_health(path: &WatchedPath, present: &[IpAddr], settings: WatchSettings) -> PathHealth {
    let found: Vec<bool> =
        path.gateways.iter().map(|gateway| present.contains(&gateway.local_address)).collect();
    let members = if found.contains(&true) { found } else { vec![true; path.gateways.len()] };
    let steady = path.steady.max(settings.interval.to_std() * REST);
    let setup = PathSetup { members, candidate_count: path.candidates.len(), steady, brisk: path.steady };
    PathHealth::new(&setup, settings, Duration::ZERO)
}
