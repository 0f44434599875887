//! A driver polls the sockets of a set of connections: of a completion queue
//! with inline progress, of an engine otherwise.
//!
//! With one or two connections it reads their sockets directly, one system call
//! per poll. With more it uses an epoll first.
//!
//! With adaptive progress the helper sleeps on the epoll. While it does not, a
//! socket that is read directly is not in the epoll: the kernel would notify
//! the epoll of each packet.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use rustix::event::{EventfdFlags, epoll, eventfd};
use socket2::Socket;

use crate::{
    rnic::{
        CachePadded, VerbsError, channel,
        doorbell::{Sleepers, WorkQueue},
        helper::Watch,
        link::Link,
        locked,
        statistics::Mover,
        turn::{Turn, TurnOutcome},
    },
    stag::QueuePairId,
};

/// Up to this many connections are polled one by one.
const DIRECT_POLL_MAX: usize = 2;
/// Above this many connections, which then compete for the processor's caches,
/// the unsent data of each in the kernel is limited.
const CROWD_MIN: usize = 16;
/// Maximum number of connections with exhausted budget that are resumed before
/// the epoll is polled.
const RESUMED_MAX: usize = 64;
/// Epoll identifier of the doorbell.
const DOORBELL: u64 = u64::MAX;

/// Drives a set of connections.
#[derive(Debug)]
pub(crate) struct Driver {
    turn: CachePadded<Mutex<Turn>>,
    changes: WorkQueue<Change>,
    epoll: OnceLock<OwnedFd>,
    /// Connections with posted requests for an engine, or with a held Write.
    rung: WorkQueue<Arc<Link>>,
    sleepers: Sleepers,
    /// Wakes sleeping threads; part of the epoll.
    doorbell: OnceLock<OwnedFd>,
    /// Serialises the creation of doorbell and epoll.
    making: Mutex<()>,
    /// Whether it belongs to an engine, the only thread that polls its sockets.
    offloaded: bool,
    /// Helper of adaptive progress, which must learn of new connections.
    helper: Option<Arc<Watch>>,
    /// Number of connections, readable without the turn lock.
    count: AtomicUsize,
    /// Whether a connection stopped sending until its socket is read.
    behind: AtomicBool,
    /// Whether the epoll is to hold the sockets of few connections.
    watch_few: AtomicBool,
}

#[derive(Debug)]
enum Change {
    Join(Arc<Link>),
    Leave(QueuePairId),
    /// Deadline of a connection.
    Due(QueuePairId, Option<Instant>),
}

impl Driver {
    /// Creates a driver for a completion queue.
    pub(crate) fn inline(helper: Option<Arc<Watch>>) -> Self {
        // A helper requests the sockets when it begins to watch.
        let watch_few = AtomicBool::new(helper.is_none());
        Self {
            turn: CachePadded::default(),
            changes: WorkQueue::new(),
            epoll: OnceLock::new(),
            rung: WorkQueue::new(),
            sleepers: Sleepers::new(),
            doorbell: OnceLock::new(),
            making: Mutex::default(),
            offloaded: false,
            helper,
            count: AtomicUsize::new(0),
            behind: AtomicBool::new(false),
            watch_few,
        }
    }

    /// Creates a driver for an engine, with an epoll and a doorbell that wakes
    /// it.
    pub(super) fn of_engine() -> Result<Self, VerbsError> {
        let driver = Self { offloaded: true, ..Self::inline(None) };
        driver.doorbell()?;
        Ok(driver)
    }

    /// Returns the doorbell descriptor; creates it and adds it to the epoll on
    /// first use.
    fn doorbell(&self) -> Result<BorrowedFd<'_>, VerbsError> {
        let failed = |error: rustix::io::Errno| VerbsError::System { step: "doorbell", source: error.into() };
        let epoll = self.epoll()?;
        let _making = locked(&self.making);
        if let Some(doorbell) = self.doorbell.get() {
            return Ok(doorbell.as_fd());
        }
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(failed)?;
        epoll::add(epoll, &made, epoll::EventData::new_u64(DOORBELL), epoll::EventFlags::IN)
            .map_err(failed)?;
        Ok(self.doorbell.get_or_init(|| made).as_fd())
    }

    /// Returns the epoll, created on first use; its descriptor is readable
    /// while a socket is ready.
    pub(super) fn epoll(&self) -> Result<BorrowedFd<'_>, VerbsError> {
        match self.epoll.get() {
            Some(epoll) => Ok(epoll.as_fd()),
            None => self.make_epoll(&locked(&self.turn.0)),
        }
    }

    fn make_epoll(&self, turn: &Turn) -> Result<BorrowedFd<'_>, VerbsError> {
        let made = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| VerbsError::System { step: "epoll", source: error.into() })?;
        let epoll = self.epoll.get_or_init(|| made);
        // Connections added before; later ones are registered when they are
        // added.
        if turn.holds_sockets {
            turn.links.iter().for_each(|link| self.watch(link));
        }
        Ok(epoll.as_fd())
    }

    /// Sets whether the epoll is to hold the sockets of few connections, for a
    /// helper that sleeps on it; returns whether this was applied. Otherwise
    /// another thread makes its turn, and the next turn or call applies it.
    pub(super) fn set_watched(&self, watch: bool) -> bool {
        self.watch_few.store(watch, Ordering::Release);
        let Some(mut turn) = self.try_turn() else { return false };
        self.update_epoll(&mut turn);
        true
    }

    /// Adds the sockets to the epoll or removes them, if that has changed.
    fn update_epoll(&self, turn: &mut Turn) {
        let hold = self.watch_few.load(Ordering::Acquire) || turn.links.len() > DIRECT_POLL_MAX;
        if std::mem::replace(&mut turn.holds_sockets, hold) != hold {
            turn.links.iter().for_each(|link| if hold { self.watch(link) } else { self.unwatch(link) });
        }
    }

    pub(super) fn join(&self, link: Arc<Link>) {
        self.change(Change::Join(link));
    }

    pub(super) fn remove(&self, id: QueuePairId) {
        self.change(Change::Leave(id));
        // There may be no further turn for long: free removed connections now
        // if possible.
        if let Some(mut turn) = self.try_turn() {
            self.apply(&mut turn);
            // Its entry would keep the connection, which keeps its completion
            // queue and thereby this driver.
            if !self.offloaded {
                turn.workspace.mover = Mover::Program;
                self.process_rung(&mut turn, &mut TurnOutcome::default());
            }
        }
    }

    fn change(&self, change: Change) {
        self.changes.push(change);
        self.wake();
        if let Some(helper) = &self.helper {
            helper.wake();
        }
    }

    /// Queues a connection for the next turn: it has requests in its inbox, or
    /// holds a Write.
    pub(super) fn ring(&self, link: &Arc<Link>) {
        if !link.inbox.doorbell().ring() {
            return;
        }
        self.rung.push(link.clone());
        self.wake();
    }

    /// Sets the deadline of a connection; `None` removes it.
    pub(super) fn due(&self, id: QueuePairId, when: Option<Instant>) {
        self.change(Change::Due(id, when));
    }

    /// Wakes sleeping threads, if any.
    pub(super) fn wake(&self) {
        if self.sleepers.any() {
            self.interrupt();
        }
    }

    /// Updates the epoll interest of a connection.
    pub(super) fn rewatch(&self, id: QueuePairId, socket: &Socket, read: bool, write: bool) {
        if let Some(epoll) = self.epoll.get() {
            // Not registered: it is added with the interest of that time.
            let _ = epoll::modify(epoll, socket, data(id), interest(read, write));
        }
    }

    /// Requests a turn: a connection stopped sending until its socket is read.
    pub(super) fn request_turn(&self) {
        self.behind.store(true, Ordering::Release);
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Whether the epoll interest must be updated at once. An engine that polls
    /// a few sockets directly updates it before it sleeps.
    pub(super) fn is_eager(&self) -> bool {
        !self.offloaded || self.count.load(Ordering::Acquire) > DIRECT_POLL_MAX
    }

    fn watch(&self, link: &Link) {
        let Some(epoll) = self.epoll.get() else { return };
        link.watch(|socket, read, write| {
            // May exist already when the epoll was created just now.
            let _ = epoll::add(epoll, socket, data(link.id), interest(read, write));
        });
    }

    fn unwatch(&self, link: &Link) {
        let Some(epoll) = self.epoll.get() else { return };
        link.watch(|socket, _, _| _ = epoll::delete(epoll, socket));
    }

    /// Returns the state of a turn; `None` while another thread makes its turn.
    fn try_turn(&self) -> Option<MutexGuard<'_, Turn>> {
        match self.turn.0.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Polls the connections once. No-op while another thread does.
    pub(crate) fn turn(&self, by: Mover) -> TurnOutcome {
        let Some(mut turn) = self.try_turn() else { return TurnOutcome::default() };
        turn.workspace.mover = by;
        if self.is_behind() {
            self.behind.store(false, Ordering::Release);
        }
        if self.changes.any() {
            self.apply(&mut turn);
        }
        self.update_epoll(&mut turn);
        let mut turned = TurnOutcome::default();
        if self.rung.any() {
            self.process_rung(&mut turn, &mut turned);
        }
        if turn.links.len() <= DIRECT_POLL_MAX {
            let turn = &mut *turn;
            turn.allocate_staging();
            // All connections are polled, including those of the backlog.
            turn.backlog.clear();
            // In reverse order: a removed connection is replaced by the last.
            for place in (0..turn.links.len()).rev() {
                let link = &turn.links[place];
                let id = link.id;
                if let Some(visit) = link.drive(&mut turn.workspace, true) {
                    turn.record_visit(id, visit, &mut turned);
                }
            }
        } else {
            self.poll(&mut turn, &mut turned);
        }
        if !turn.deadlines.is_empty() {
            self.poll_overdue(&mut turn, &mut turned);
        }
        turned.more |= !turn.backlog.is_empty();
        if self.count.load(Ordering::Relaxed) != turn.links.len() {
            self.count.store(turn.links.len(), Ordering::Release);
        }
        turned
    }

    /// Applies `to` to the connections; `None` while another thread makes its
    /// turn.
    pub(super) fn with_links<T>(&self, to: impl FnOnce(&[Arc<Link>]) -> T) -> Option<T> {
        Some(to(&self.turn.0.try_lock().ok()?.links))
    }

    /// Whether another thread moves bytes of its connections.
    pub(super) fn is_moving(&self) -> bool {
        self.with_links(|links| links.iter().any(|link| link.is_moving())).unwrap_or(true)
    }

    /// Sleeps until a socket is ready, a doorbell rings or `end`; not at all if
    /// `busy`, which checks state that others change before they call
    /// [`Driver::wake`], under one mutex.
    pub(super) fn sleep(&self, end: Option<Instant>, busy: impl FnOnce() -> bool) -> Result<(), VerbsError> {
        let (epoll, doorbell) = (self.epoll()?, self.doorbell()?);
        if !self.is_eager() {
            locked(&self.turn.0).links.iter().for_each(|link| link.rewatch());
        }
        self.sleepers.sleep(
            || !self.rung.is_empty() || !self.changes.is_empty() || busy(),
            || _ = channel::readable(epoll, end),
            || _ = rustix::io::read(doorbell, &mut [0u8; 8]),
        );
        Ok(())
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let mut turn = locked(&self.turn.0);
        self.apply(&mut turn);
        turn.deadlines.values().min().copied()
    }

    /// Rings the doorbell unconditionally.
    pub(super) fn interrupt(&self) {
        if let Some(doorbell) = self.doorbell.get() {
            let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Whether connections were queued for the next turn.
    pub(super) fn has_rung(&self) -> bool {
        self.rung.any()
    }

    /// Helper, at a tick: sends Writes that were held at the tick before;
    /// returns whether none is left.
    pub(super) fn send_late(&self) -> bool {
        if !self.rung.any() {
            return true;
        }
        let Some(_turn) = self.try_turn() else { return false };
        let mut rung = Vec::new();
        self.rung.take(&mut rung);
        for link in &rung {
            link.inbox.doorbell().clear();
            if !link.send_late() {
                self.ring(link);
            }
        }
        !self.rung.any()
    }

    fn process_rung(&self, turn: &mut Turn, turned: &mut TurnOutcome) {
        let mut rung = std::mem::take(&mut turn.rung);
        self.rung.take(&mut rung);
        for link in &rung {
            // From here on another request rings again.
            link.inbox.doorbell().clear();
            let driven = self.visit(turn, link, false, turned);
            // A thread that holds the transport does not always send: it may
            // update an epoll.
            if !driven && !self.offloaded {
                link.hold();
            }
        }
        rung.clear();
        turn.rung = rung;
    }

    /// Resumes connections with exhausted budget, then polls those that the
    /// epoll reports.
    fn poll(&self, turn: &mut Turn, turned: &mut TurnOutcome) {
        for _ in 0..turn.backlog.len().min(RESUMED_MAX) {
            if let Some(link) = turn.backlog.pop_front() {
                self.visit(turn, &link, true, turned);
            }
        }
        let mut ready = std::mem::take(&mut turn.ready);
        let epoll = self.epoll.get().map_or_else(|| self.make_epoll(turn), |epoll| Ok(epoll.as_fd()));
        if let Ok(epoll) = epoll {
            // The epoll exists and is valid: polling cannot fail.
            let _ = channel::ready(epoll, &mut ready);
        }
        for id in &ready {
            if let Some(link) = turn.places.get(id).map(|place| turn.links[*place].clone()) {
                self.visit(turn, &link, true, turned);
            }
        }
        ready.clear();
        turn.ready = ready;
    }

    fn poll_overdue(&self, turn: &mut Turn, turned: &mut TurnOutcome) {
        let now = Instant::now();
        let due: Vec<_> =
            turn.deadlines.iter().filter(|(_, when)| **when <= now).map(|(id, _)| *id).collect();
        for id in due {
            // Kept until the connection is closed or has another deadline:
            // another thread may hold its transport.
            if let Some(link) = turn.places.get(&u64::from(id.0)).map(|place| turn.links[*place].clone()) {
                self.visit(turn, &link, true, turned);
            }
        }
        turned.deadline = turn.deadlines.values().min().copied();
    }

    /// Drives a connection; returns whether it did, and not another thread.
    fn visit(&self, turn: &mut Turn, link: &Arc<Link>, read: bool, turned: &mut TurnOutcome) -> bool {
        turn.allocate_staging();
        let Some(visit) = link.drive(&mut turn.workspace, read) else { return false };
        if visit.more
            && !visit.over
            && turn.links.len() > DIRECT_POLL_MAX
            && !turn.backlog.iter().any(|waiting| waiting.id == link.id)
        {
            turn.backlog.push_back(link.clone());
        }
        turn.record_visit(link.id, visit, turned);
        true
    }

    fn apply(&self, turn: &mut Turn) {
        let mut changes = Vec::new();
        self.changes.take(&mut changes);
        for change in changes {
            match change {
                Change::Join(link) => {
                    if turn.holds_sockets {
                        self.watch(&link);
                    }
                    if turn.crowded {
                        link.crowd(true);
                    }
                    turn.places.insert(u64::from(link.id.0), turn.links.len());
                    turn.links.push(link);
                }
                Change::Leave(id) => turn.remove(id),
                Change::Due(id, when) => match when.filter(|_| turn.places.contains_key(&u64::from(id.0))) {
                    Some(when) => _ = turn.deadlines.insert(id, when),
                    None => _ = turn.deadlines.remove(&id),
                },
            }
        }
        let crowded = turn.links.len() > CROWD_MIN;
        if std::mem::replace(&mut turn.crowded, crowded) != crowded {
            turn.links.iter().for_each(|link| link.crowd(crowded));
        }
        self.update_epoll(turn);
        let few_before = self.count.swap(turn.links.len(), Ordering::AcqRel) <= DIRECT_POLL_MAX;
        if few_before && turn.links.len() > DIRECT_POLL_MAX {
            turn.links.iter().for_each(|link| link.rewatch());
        }
    }
}

fn data(id: QueuePairId) -> epoll::EventData {
    epoll::EventData::new_u64(u64::from(id.0))
}

fn interest(read: bool, write: bool) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, read);
    flags.set(epoll::EventFlags::OUT, write);
    flags
}
