//! The helper thread of this library: connection setups, asynchronous events,
//! and the close of connections whose queue pairs are destroyed.
//!
//! Bytes of established connections are moved by the program's polls, by the
//! helper of the RNIC with adaptive progress, or by its engine. The rule of
//! adaptive progress is the crate's: whoever polls a completion queue moves its
//! bytes; when nobody has polled for a moment and a socket is ready, the
//! sleeping helper takes over, and yields when the program polls again. It
//! never spins (`clearstream_iwarp`, `rnic/helper`).
//!
//! Inline progress is adaptive progress whose helper works only while a thread
//! of the program waits in a call ([`begin_wait`]), as such a thread cannot poll, and
//! while a setup is under way ([`Attended`]).

use std::{
    collections::{HashMap, HashSet},
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Barrier, Mutex, Once,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{rnic::CompletionQueue, stag::QueuePairId};
use rustix::event::{Timespec, epoll};

use crate::{
    async_events, cm,
    handle::{Users, locked},
    report::notice,
    runtime::{is_usable, runtime},
    settings::Mode,
};

/// Interval at which the ends of connections that are held back are looked at.
const HOLD_INTERVAL: Duration = Duration::from_millis(1);
/// Interval of the check of destroyed queue pairs.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);
/// With inline progress one of this many polls drives all queues: a program may
/// poll one while a peer uses the connection of another.
const POLLS_PER_OTHERS: u64 = 16;
/// Tokens of the epoll; those of queues and setups count up from there.
const ASYNC: u64 = 1;
const FIRST: u64 = 16;

static TOKENS: AtomicU64 = AtomicU64::new(FIRST);

/// Returns a token that identifies an object for the life of the process.
pub fn next_token() -> u64 {
    TOKENS.fetch_add(1, Ordering::Relaxed)
}

/// A thread begins to wait in a call. The caller may be cancelled before
/// [`end_wait`]: the RNIC's helper then goes on to work.
pub fn begin_wait() {
    if let Some(runtime) = runtime().filter(|runtime| runtime.settings.mode == Mode::Inline) {
        runtime.rnic.request_helper();
    }
}

/// A thread ends to wait.
pub fn end_wait() {
    if let Some(runtime) = runtime().filter(|runtime| runtime.settings.mode == Mode::Inline) {
        runtime.rnic.release_helper();
    }
}

/// With inline progress, the RNIC's helper works while it exists: for a step of a setup, which a program may await by
/// poll(2), outside of this library.
pub struct Attended(());

impl Attended {
    /// Lets the helper work.
    pub fn begin() -> Self {
        begin_wait();
        Self(())
    }
}

impl Drop for Attended {
    fn drop(&mut self) {
        end_wait();
    }
}

/// With inline progress, makes progress on all queues.
pub fn drive_others() {
    if let Some(runtime) = runtime().filter(|runtime| runtime.settings.mode == Mode::Inline) {
        let all: Vec<_> = locked(&runtime.helper.queues).values().cloned().collect();
        all.iter().for_each(|watched| _ = watched.queue.progress());
    }
}

/// A completion queue of a program.
#[derive(Debug)]
pub struct Watched {
    /// Identifier.
    pub token: u64,
    /// Queue of the RNIC.
    pub queue: CompletionQueue,
    polls: AtomicU64,
    /// Queue pairs that the program destroyed: their completions are dropped.
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

    /// Whether an empty poll is one of those that drive other queues too.
    /// Concurrent polls may be counted once.
    pub fn is_turn_of_others(&self) -> bool {
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        polls.is_multiple_of(POLLS_PER_OTHERS)
    }
}

/// The helper thread and what it watches.
pub struct Helper {
    epoll: OwnedFd,
    started: Once,
    /// Queues by token, also destroyed ones that a connection needs to close.
    queues: Mutex<HashMap<u64, Arc<Watched>>>,
}

impl Helper {
    /// Creates the descriptor; [`Helper::start`] starts the thread.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, started: Once::new(), queues: Mutex::default() })
    }

    /// Starts the thread, once.
    pub fn start(&self) {
        self.started.call_once(|| {
            // The first allocation of a thread maps memory. libfabric replaces munmap(2) in the running program by
            // writing over its code: no thread may be in there when this returns.
            let begun = Arc::new(Barrier::new(2));
            let body = {
                let begun = begun.clone();
                move || {
                    begun.wait();
                    run();
                }
            };
            let name = "verbs-helper".to_owned();
            match without_signals(|| thread::Builder::new().name(name).spawn(body)) {
                Ok(_) => drop(begun.wait()),
                Err(error) => notice(&format!("cannot start the helper thread: {error}")),
            }
        });
    }

    /// Adds a queue.
    pub fn watch(&self, watched: &Arc<Watched>) {
        locked(&self.queues).insert(watched.token, watched.clone());
    }

    /// Removes a queue.
    pub fn unwatch(&self, token: u64) {
        let removed = locked(&self.queues).remove(&token);
        drop(removed);
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
    let mut last_sweep = Instant::now();
    let mut holds = false;
    while is_usable() {
        let wait = if holds { HOLD_INTERVAL } else { SWEEP_INTERVAL };
        let timeout = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let Ok((ready, _)) = epoll::wait(&helper.epoll, &mut buffer, Some(&timeout)) else { continue };
        for event in ready.iter() {
            match event.data.u64() {
                ASYNC => async_events::dispatch(runtime),
                token => cm::setup::advance(runtime, token),
            }
        }
        if holds {
            async_events::release(runtime);
        }
        holds = locked(&runtime.connections).holds_any();
        if last_sweep.elapsed() >= SWEEP_INTERVAL {
            last_sweep = Instant::now();
            let unused = {
                let mut connections = locked(&runtime.connections);
                connections.release_held_back();
                connections.sweep()
            };
            unused.into_iter().for_each(|token| helper.unwatch(token));
        }
    }
}
