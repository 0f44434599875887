//! A driver looks at the sockets of a set of connections: the one of a
//! completion queue when progress is inline, the one of an engine otherwise.
//!
//! With one or two connections it reads their sockets straight away, which is
//! one system call per look. With more it asks an epoll first.

use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, OnceLock, TryLockError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

use rustix::event::{EventfdFlags, epoll, eventfd};
use socket2::Socket;

use crate::{
    rnic::{
        Apart, VerbsError, channel,
        doorbell::{Left, Sleepers},
        link::{Link, Workspace},
        locked,
        wire::{STAGING_BYTES, Visit},
    },
    stag::QueuePairId,
};

/// So many connections are looked at one by one.
const FEW: usize = 2;
/// More connections than this share what the processor's caches hold: each may
/// have little in the kernel that is not sent yet.
const CROWD: usize = 16;
/// Connections out of budget that have their turn before the epoll is asked.
const AGAIN: usize = 64;
/// What the epoll says when the doorbell rang.
const DOORBELL: u64 = u64::MAX;

/// Moves the bytes of its connections.
#[derive(Debug)]
pub(crate) struct Driver {
    turn: Apart<Mutex<Turn>>,
    changes: Left<Change>,
    epoll: OnceLock<OwnedFd>,
    /// Connections that somebody posted to, for an engine.
    bells: Left<Arc<Link>>,
    sleepers: Sleepers,
    /// Wakes them; part of the epoll.
    doorbell: OnceLock<OwnedFd>,
    /// Held by who makes it: two threads make no two.
    making: Mutex<()>,
    /// Of an engine, which alone looks at its sockets.
    offloaded: bool,
    /// How many connections there are, for a look without the turn.
    count: AtomicUsize,
    /// A connection sends no more before its socket is read.
    behind: AtomicBool,
}

#[derive(Debug)]
enum Change {
    Join(Arc<Link>),
    Leave(QueuePairId),
    /// When to look at a connection at the latest.
    Due(QueuePairId, Option<Instant>),
}

/// What one turn needs; whoever takes the turn has it.
#[derive(Debug, Default)]
struct Turn {
    workspace: Workspace,
    links: Vec<Arc<Link>>,
    /// Places in `links`, by the number that the epoll knows.
    places: HashMap<u64, usize>,
    /// Bells taken off the list.
    answered: Vec<Arc<Link>>,
    /// Those whose budget was spent.
    again: VecDeque<Arc<Link>>,
    /// When to look at a connection at the latest.
    deadlines: HashMap<QueuePairId, Instant>,
    ready: Vec<u64>,
    /// The connections were told that they are many.
    crowded: bool,
}

/// What a turn brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turned {
    /// Something moved.
    pub(crate) progress: bool,
    /// There is more to do without waiting.
    pub(crate) more: bool,
    /// When to come again at the latest.
    pub(crate) deadline: Option<Instant>,
}

impl Driver {
    /// For a completion queue.
    pub(crate) fn inline() -> Self {
        Self {
            turn: Apart::default(),
            changes: Left::new(),
            epoll: OnceLock::new(),
            bells: Left::new(),
            sleepers: Sleepers::new(),
            doorbell: OnceLock::new(),
            making: Mutex::default(),
            offloaded: false,
            count: AtomicUsize::new(0),
            behind: AtomicBool::new(false),
        }
    }

    /// For an engine: with an epoll and a doorbell that wakes it.
    pub(super) fn of_engine() -> Result<Self, VerbsError> {
        let driver = Self { offloaded: true, ..Self::inline() };
        driver.doorbell()?;
        Ok(driver)
    }

    /// The doorbell, made now if there is none yet, and in the epoll.
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

    /// The epoll, made now if there is none yet; its descriptor is readable
    /// while a socket has something to do.
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
        // Those that joined before; later ones are registered as they join.
        turn.links.iter().for_each(|link| self.watch(link));
        Ok(epoll.as_fd())
    }

    pub(super) fn join(&self, link: Arc<Link>) {
        self.change(Change::Join(link));
    }

    pub(super) fn leave(&self, id: QueuePairId) {
        self.change(Change::Leave(id));
        // Nobody may come by for long: what is gone is freed now if possible.
        if let Ok(mut turn) = self.turn.0.try_lock() {
            self.apply(&mut turn);
        }
    }

    fn change(&self, change: Change) {
        self.changes.leave(change);
        self.wake();
    }

    /// Tells the engine that there are requests in the inbox of a connection.
    pub(super) fn ring(&self, link: &Arc<Link>) {
        if !link.inbox.bell().ring() {
            return;
        }
        self.bells.leave(link.clone());
        self.wake();
    }

    /// A connection is to be looked at by then at the latest; `None`: not for
    /// the sake of the time.
    pub(super) fn due(&self, id: QueuePairId, when: Option<Instant>) {
        self.change(Change::Due(id, when));
    }

    /// Wakes those that sleep, if there are any.
    pub(super) fn wake(&self) {
        if self.sleepers.are_there() {
            self.interrupt();
        }
    }

    /// What the epoll should look out for has changed.
    pub(super) fn rewatch(&self, id: QueuePairId, socket: &Socket, read: bool, write: bool) {
        if let Some(epoll) = self.epoll.get() {
            // Not there yet: it is added with what holds then.
            let _ = epoll::modify(epoll, socket, data(id), interest(read, write));
        }
    }

    /// A connection sends no more before its socket is read: a turn is due.
    pub(super) fn fall_behind(&self) {
        self.behind.store(true, Ordering::Release);
    }

    pub(super) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    /// Whether the epoll must know at once what to look out for. An engine that
    /// looks at a few sockets itself tells it before it sleeps.
    pub(super) fn is_eager(&self) -> bool {
        !self.offloaded || self.count.load(Ordering::Acquire) > FEW
    }

    fn watch(&self, link: &Link) {
        let Some(epoll) = self.epoll.get() else { return };
        link.watch(|socket, read, write| {
            // It can be there already when the epoll was made just now.
            let _ = epoll::add(epoll, socket, data(link.id), interest(read, write));
        });
    }

    /// Looks at the connections once. Does nothing while another thread does.
    pub(crate) fn turn(&self) -> Turned {
        let mut turn = match self.turn.0.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Turned::default(),
        };
        if self.is_behind() {
            self.behind.store(false, Ordering::Release);
        }
        if self.changes.any() {
            self.apply(&mut turn);
        }
        let mut turned = Turned::default();
        if self.bells.any() {
            self.answer(&mut turn, &mut turned);
        }
        if turn.links.len() <= FEW {
            let turn = &mut *turn;
            stage(turn);
            // All have their turn, those that waited for another among them.
            turn.again.clear();
            // From the last on: one that is over gives its place to the last.
            for place in (0..turn.links.len()).rev() {
                let link = &turn.links[place];
                let (id, visit) = (link.id, link.drive(&mut turn.workspace, true));
                note(turn, id, visit, &mut turned);
            }
        } else {
            self.look(&mut turn, &mut turned);
        }
        if !turn.deadlines.is_empty() {
            self.overdue(&mut turn, &mut turned);
        }
        turned.more |= !turn.again.is_empty();
        if self.count.load(Ordering::Relaxed) != turn.links.len() {
            self.count.store(turn.links.len(), Ordering::Release);
        }
        turned
    }

    /// Sleeps until a socket has something to do, a doorbell rings or `end`;
    /// not at all if `busy`, which looks at something that others change before
    /// they call [`Driver::wake`], under one mutex.
    pub(super) fn sleep(&self, end: Option<Instant>, busy: impl FnOnce() -> bool) -> Result<(), VerbsError> {
        let (epoll, doorbell) = (self.epoll()?, self.doorbell()?);
        if !self.is_eager() {
            locked(&self.turn.0).links.iter().for_each(|link| link.rewatch());
        }
        self.sleepers.sleep(
            || !self.bells.is_empty() || !self.changes.is_empty() || busy(),
            || _ = channel::readable(epoll, end),
            || _ = rustix::io::read(doorbell, &mut [0u8; 8]),
        );
        Ok(())
    }

    /// When a connection is to be looked at at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let mut turn = locked(&self.turn.0);
        self.apply(&mut turn);
        turn.deadlines.values().min().copied()
    }

    /// Rings the doorbell, whatever for.
    pub(super) fn interrupt(&self) {
        if let Some(doorbell) = self.doorbell.get() {
            let _ = rustix::io::write(doorbell, &1u64.to_ne_bytes());
        }
    }

    fn answer(&self, turn: &mut Turn, turned: &mut Turned) {
        let mut answered = std::mem::take(&mut turn.answered);
        self.bells.take(&mut answered);
        for link in &answered {
            // From here on another request rings again.
            link.inbox.bell().answer();
            self.visit(turn, link, false, turned);
        }
        answered.clear();
        turn.answered = answered;
    }

    /// Those whose budget was spent last time, then those that the epoll
    /// names.
    fn look(&self, turn: &mut Turn, turned: &mut Turned) {
        for _ in 0..turn.again.len().min(AGAIN) {
            if let Some(link) = turn.again.pop_front() {
                self.visit(turn, &link, true, turned);
            }
        }
        let mut ready = std::mem::take(&mut turn.ready);
        let epoll = self.epoll.get().map_or_else(|| self.make_epoll(turn), |epoll| Ok(epoll.as_fd()));
        if let Ok(epoll) = epoll {
            // It is there and its own: asking can not fail.
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

    fn overdue(&self, turn: &mut Turn, turned: &mut Turned) {
        let now = Instant::now();
        let due: Vec<_> =
            turn.deadlines.iter().filter(|(_, when)| **when <= now).map(|(id, _)| *id).collect();
        for id in due {
            // Stays until it is over or has another time: somebody else may
            // have its wire just now.
            if let Some(link) = turn.places.get(&u64::from(id.0)).map(|place| turn.links[*place].clone()) {
                self.visit(turn, &link, true, turned);
            }
        }
        turned.deadline = turn.deadlines.values().min().copied();
    }

    fn visit(&self, turn: &mut Turn, link: &Arc<Link>, read: bool, turned: &mut Turned) {
        stage(turn);
        let visit = link.drive(&mut turn.workspace, read);
        if visit.more
            && !visit.over
            && turn.links.len() > FEW
            && !turn.again.iter().any(|waiting| waiting.id == link.id)
        {
            turn.again.push_back(link.clone());
        }
        note(turn, link.id, visit, turned);
    }

    fn apply(&self, turn: &mut Turn) {
        let mut changes = Vec::new();
        self.changes.take(&mut changes);
        for change in changes {
            match change {
                Change::Join(link) => {
                    self.watch(&link);
                    if turn.crowded {
                        link.crowd(true);
                    }
                    turn.places.insert(u64::from(link.id.0), turn.links.len());
                    turn.links.push(link);
                }
                Change::Leave(id) => remove(turn, id),
                Change::Due(id, when) => match when.filter(|_| turn.places.contains_key(&u64::from(id.0))) {
                    Some(when) => _ = turn.deadlines.insert(id, when),
                    None => _ = turn.deadlines.remove(&id),
                },
            }
        }
        let crowded = turn.links.len() > CROWD;
        if std::mem::replace(&mut turn.crowded, crowded) != crowded {
            turn.links.iter().for_each(|link| link.crowd(crowded));
        }
        let few_before = self.count.swap(turn.links.len(), Ordering::AcqRel) <= FEW;
        if few_before && turn.links.len() > FEW {
            turn.links.iter().for_each(|link| link.rewatch());
        }
    }
}

/// The staging buffer is of the driver, not of a connection; one that drives
/// nothing has none.
fn stage(turn: &mut Turn) {
    if turn.workspace.staging.is_empty() && !turn.links.is_empty() {
        turn.workspace.staging.resize(STAGING_BYTES, 0);
    }
}

/// What a visit brought.
fn note(turn: &mut Turn, id: QueuePairId, visit: Visit, turned: &mut Turned) {
    turned.progress |= visit.progress;
    turned.more |= visit.more;
    if visit.over {
        remove(turn, id);
    }
}

fn remove(turn: &mut Turn, id: QueuePairId) {
    turn.deadlines.remove(&id);
    turn.again.retain(|link| link.id != id);
    let Some(place) = turn.places.remove(&u64::from(id.0)) else { return };
    turn.links.swap_remove(place);
    if let Some(moved) = turn.links.get(place) {
        turn.places.insert(u64::from(moved.id.0), place);
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
