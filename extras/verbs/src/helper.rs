//! The helper thread: connection setups, asynchronous events, and the sockets
//! of completion queues that no thread polls.
//!
//! A queue that is polled often is *attended*: its sockets are not watched, so
//! that the helper stays asleep while the program moves the bytes. Once per
//! [`TICK`] the helper checks whether attended queues still are, and watches
//! the others' sockets.

use std::{
    collections::{HashMap, HashSet},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{rnic::CompletionQueue, stag::QueuePairId};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use crate::{
    async_events, cm,
    handle::{Users, locked},
    report::notice,
    runtime::{is_usable, runtime},
    settings::Mode,
};

/// Interval of the check of attended queues.
const TICK: Duration = Duration::from_millis(1);
/// Interval of a check of all queues, for timeouts of connections.
const SLOW_TICK: Duration = Duration::from_millis(500);
/// Polls per tick, or per wake-up, from which on a queue is attended.
const POLLS_OF_ATTENDED: u64 = 16;
/// With inline progress one of this many polls drives all queues: a program may
/// poll one while a peer uses the connection of another.
const POLLS_PER_OTHERS: u64 = 16;
/// Tokens of the epoll; those of queues and setups count up from there.
const WAKE: u64 = 0;
const ASYNC: u64 = 1;
const FIRST: u64 = 16;

/// Threads that wait in a call of this library.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static TOKENS: AtomicU64 = AtomicU64::new(FIRST);

/// Returns a token that identifies an object for the life of the process.
pub fn next_token() -> u64 {
    TOKENS.fetch_add(1, Ordering::Relaxed)
}

/// A thread begins to wait: with inline progress the helper works while one
/// does.
pub fn begin_wait() {
    if WAITING.fetch_add(1, Ordering::SeqCst) == 0
        && let Some(runtime) = runtime()
        && runtime.settings.mode == Mode::Inline
    {
        runtime.helper.wake();
    }
}

/// A thread ends to wait.
pub fn end_wait() {
    WAITING.fetch_sub(1, Ordering::SeqCst);
}

/// With inline progress, makes progress on all queues.
pub fn drive_others() {
    if let Some(runtime) = runtime()
        && runtime.settings.mode == Mode::Inline
    {
        runtime.helper.serve_all();
    }
}

/// A completion queue and how often it is polled.
#[derive(Debug)]
pub struct Watched {
    /// Identifier.
    pub token: u64,
    /// Queue of the RNIC.
    pub queue: CompletionQueue,
    polls: AtomicU64,
    attended: AtomicBool,
    /// Queue pairs that the program destroyed while their connections close:
    /// their completions are dropped.
    retired: Mutex<HashSet<QueuePairId>>,
    has_retired: AtomicBool,
    /// Queue pairs that complete here: it cannot be destroyed before them.
    pub users: Users,
}

impl Watched {
    /// A queue that was not polled yet.
    pub fn new(token: u64, queue: CompletionQueue) -> Self {
        Self {
            token,
            queue,
            polls: AtomicU64::new(0),
            attended: AtomicBool::new(false),
            retired: Mutex::default(),
            has_retired: AtomicBool::new(false),
            users: Users::default(),
        }
    }

    /// Drops completions of a queue pair from now on.
    pub fn retire(&self, pair: QueuePairId) {
        locked(&self.retired).insert(pair);
        self.has_retired.store(true, Ordering::Release);
    }

    /// Whether completions of a queue pair are dropped.
    pub fn is_retired(&self, pair: QueuePairId) -> bool {
        self.has_retired.load(Ordering::Acquire) && locked(&self.retired).contains(&pair)
    }

    /// Counts a poll. Concurrent polls may be counted once: the number is
    /// compared with a threshold only.
    pub fn note_poll(&self) {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether an empty poll is one of those that drive other queues too.
    pub fn is_turn_of_others(&self) -> bool {
        self.polls.load(Ordering::Relaxed).is_multiple_of(POLLS_PER_OTHERS)
    }

    /// Makes the helper watch the queue at once.
    pub fn hand_over(&self) {
        if self.attended.swap(false, Ordering::SeqCst)
            && let Some(runtime) = runtime()
        {
            runtime.helper.wake();
        }
    }
}

/// State of a queue that only the helper uses.
struct Entry {
    watched: Arc<Watched>,
    /// Polls at the last check.
    seen: u64,
    /// Whether its sockets are in the epoll.
    is_in_epoll: bool,
}

/// The helper thread and what it watches.
pub struct Helper {
    mode: Mode,
    epoll: OwnedFd,
    doorbell: OwnedFd,
    started: Once,
    queues: Mutex<HashMap<u64, Entry>>,
}

impl Helper {
    /// Creates the descriptors; [`Helper::start`] starts the thread.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(mode: Mode) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &doorbell, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        Ok(Self { mode, epoll, doorbell, started: Once::new(), queues: Mutex::default() })
    }

    /// Starts the thread, once.
    pub fn start(&self) {
        self.started.call_once(|| {
            let started =
                without_signals(|| thread::Builder::new().name("verbs-helper".to_owned()).spawn(run));
            if let Err(error) = started {
                notice(&format!("cannot start the helper thread: {error}"));
            }
        });
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Adds a queue.
    pub fn watch(&self, watched: &Arc<Watched>) {
        if self.mode == Mode::Offloaded {
            return;
        }
        let entry = Entry { watched: watched.clone(), seen: 0, is_in_epoll: false };
        locked(&self.queues).insert(watched.token, entry);
        self.wake();
    }

    /// Removes a queue.
    pub fn unwatch(&self, token: u64) {
        let entry = locked(&self.queues).remove(&token);
        if let Some(entry) = entry.filter(|entry| entry.is_in_epoll)
            && let Ok(Some(sockets)) = entry.watched.queue.sockets()
        {
            let _ = epoll::delete(&self.epoll, sockets);
        }
    }

    /// Watches a descriptor of the connection manager.
    ///
    /// # Errors
    /// Error of the system call.
    pub fn watch_setup(&self, descriptor: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?)
    }

    /// Ends to watch a descriptor of the connection manager.
    pub fn unwatch_setup(&self, descriptor: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, descriptor);
    }

    /// Whether the helper makes progress now.
    fn is_active(&self) -> bool {
        match self.mode {
            Mode::Adaptive => true,
            Mode::Inline => WAITING.load(Ordering::SeqCst) > 0,
            Mode::Offloaded => false,
        }
    }

    /// Updates which queues are watched; drives those that are not attended any
    /// more. Returns whether some are attended.
    fn check(&self) -> bool {
        let active = self.is_active();
        let mut any = false;
        for entry in locked(&self.queues).values_mut() {
            let polls = entry.watched.polls.load(Ordering::Relaxed);
            let often = polls.wrapping_sub(entry.seen) >= POLLS_OF_ATTENDED;
            entry.seen = polls;
            if entry.is_in_epoll && active {
                continue;
            }
            let attended = entry.watched.attended.load(Ordering::SeqCst) && often;
            entry.watched.attended.store(attended, Ordering::SeqCst);
            any |= attended;
            self.set_watched(entry, active && !attended);
        }
        any && active
    }

    fn set_watched(&self, entry: &mut Entry, watch: bool) {
        if entry.is_in_epoll == watch {
            return;
        }
        let Ok(Some(sockets)) = entry.watched.queue.sockets() else { return };
        let changed = if watch {
            let data = epoll::EventData::new_u64(entry.watched.token);
            epoll::add(&self.epoll, sockets, data, epoll::EventFlags::IN)
        } else {
            epoll::delete(&self.epoll, sockets)
        };
        if changed.is_ok() {
            entry.is_in_epoll = watch;
        }
    }

    /// A socket of a queue is ready: makes progress, unless the queue is polled
    /// often. Returns whether the token is a queue's.
    fn serve(&self, token: u64) -> bool {
        let watched = {
            let mut queues = locked(&self.queues);
            let Some(entry) = queues.get_mut(&token) else { return false };
            let polls = entry.watched.polls.load(Ordering::Relaxed);
            let often = polls.wrapping_sub(entry.seen) >= POLLS_OF_ATTENDED;
            entry.seen = polls;
            if often || !self.is_active() {
                entry.watched.attended.store(often, Ordering::SeqCst);
                self.set_watched(entry, false);
                return true;
            }
            entry.watched.clone()
        };
        watched.queue.progress();
        true
    }

    /// Drives all queues, for timeouts of their connections.
    fn serve_all(&self) {
        let all: Vec<_> = locked(&self.queues).values().map(|entry| entry.watched.clone()).collect();
        for watched in all {
            watched.queue.progress();
        }
    }
}

/// Calls `start` with all signals blocked, which a thread that it starts
/// inherits: signals of the program are handled by its own threads, whose calls
/// they interrupt.
pub fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: initialised by the calls below.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}

fn run() {
    let Some(runtime) = runtime() else { return };
    let helper = &runtime.helper;
    let events = runtime.rnic.events().as_fd();
    if epoll::add(&helper.epoll, events, epoll::EventData::new_u64(ASYNC), epoll::EventFlags::IN).is_err() {
        notice("cannot watch events of the device");
    }
    let mut buffer = [MaybeUninit::uninit(); 64];
    let mut last_all = Instant::now();
    let mut last_check = last_all;
    let mut attended = false;
    while is_usable() {
        let timeout = if attended { TICK } else { SLOW_TICK };
        let timeout = Timespec { tv_sec: 0, tv_nsec: timeout.subsec_nanos().into() };
        let Ok((ready, _)) = epoll::wait(&helper.epoll, &mut buffer, Some(&timeout)) else { continue };
        let mut woken = false;
        for event in ready.iter() {
            match event.data.u64() {
                WAKE => {
                    let _ = rustix::io::read(&helper.doorbell, &mut [0u8; 8]);
                    woken = true;
                }
                ASYNC => async_events::dispatch(runtime),
                token => {
                    if helper.serve(token) {
                        attended = true;
                    } else {
                        cm::setup::advance(runtime, token);
                    }
                }
            }
        }
        let now = Instant::now();
        if woken || now.duration_since(last_check) >= TICK {
            attended = helper.check();
            last_check = now;
        }
        if now.duration_since(last_all) >= SLOW_TICK {
            if helper.is_active() {
                helper.serve_all();
            }
            let unused = locked(&runtime.connections).sweep();
            unused.into_iter().for_each(|token| helper.unwatch(token));
            last_all = now;
        }
    }
}
