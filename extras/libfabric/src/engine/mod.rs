//! State of an endpoint: its RNIC, its peers, and the messages under way.
//!
//! One mutex guards all of it; calls of the program and the setup thread take it. Messages move in calls of the program
//! (posting, reading a completion queue) and, for the bytes of connections that are set up, in the RNIC's helper.

mod attention;
mod deliver;
mod fetch;
mod long;
mod peer;
mod requests;
mod setup;
mod write;

use std::{
    collections::HashMap,
    ffi::c_void,
    hash::{BuildHasher, Hasher, RandomState},
    net::SocketAddrV4,
    os::fd::OwnedFd,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    memory::{Access, raw},
    stag::Stag,
    verbs::{
        Listener, Progress, ProtectionDomain, Rnic, RnicOptions,
        raw::{Completion, CompletionQueue},
    },
};

use crate::{abi::*, completion::locked, matching::Queue, memory::Regions, vector::Addresses};
use attention::Attention;
pub use fetch::Fetch;
use peer::{Peer, Phase};
pub use requests::Message;
use requests::{Operations, Report};
pub use write::Write;

/// Completions taken from the RNIC at once.
const BATCH: usize = 16;

/// Settings, from the environment.
#[derive(Clone, Copy, Debug)]
struct Settings {
    /// Largest message that is sent to a posted buffer; larger ones are read by the receiver.
    eager_bytes: usize,
    /// Each connection is reported on standard error when it is set up.
    traced: bool,
}

/// An endpoint, shared by the program's handle, its completion queues and the setup thread.
pub struct Core {
    state: Mutex<Engine>,
    /// Connections have news; the thread that drives the endpoint looks after them.
    news: AtomicBool,
    /// The setup thread is to end.
    stopped: AtomicBool,
}

// SAFETY: raw pointers inside are the program's, followed while its requests are outstanding, under the mutex.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

/// Its state.
pub struct Engine {
    settings: Settings,
    rnic: Rnic,
    domain: ProtectionDomain,
    queue: CompletionQueue,
    /// Tag of all memory of the process, for local use.
    all: Stag,
    /// The same, where the program may not have mapped it.
    sparse: Stag,
    address: SocketAddrV4,
    listener: Option<Listener>,
    watch: Option<Arc<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
    peers: Vec<Peer>,
    by_address: HashMap<SocketAddrV4, usize>,
    /// Peers by number of the address vector.
    by_number: Vec<Option<usize>>,
    /// Removals of the vector when numbers were looked up.
    removals: u64,
    /// Tells this endpoint from others that had its address before, or will have it.
    incarnation: u64,
    /// Peers by number of the queue pair.
    by_pair: Vec<Option<usize>>,
    operations: Operations,
    tagged: Queue,
    untagged: Queue,
    /// Calls of [`Engine::progress`].
    polls: u64,
    /// Peers with Sends that wait for the next one.
    unsent: Vec<usize>,
    attention: Attention,
    /// Address vector that the endpoint is bound to.
    vector: Arc<Addresses>,
    /// Where sends are reported, and receives.
    pub sends: Report,
    /// The same of receives.
    pub receives: Report,
    /// The same of reads of peers' memory.
    pub fetches: Report,
    /// The same of writes to it.
    pub writes: Report,
    /// Memory of the endpoint's domain that peers may read or write.
    regions: Arc<Regions>,
}

impl Core {
    /// Opens an endpoint that will listen on `address`.
    ///
    /// # Errors
    /// No thread or descriptor is left.
    pub fn open(address: SocketAddrV4, regions: Arc<Regions>) -> Result<Arc<Self>, i32> {
        let number = |key: &str, otherwise| {
            std::env::var(key).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
        };
        let traced = std::env::var("CLEARSTREAM_FABRIC_TRACE").is_ok_and(|value| value != "0");
        let settings = Settings { eager_bytes: number("CLEARSTREAM_FABRIC_EAGER", 1 << 20), traced };
        let progress = match std::env::var("CLEARSTREAM_FABRIC_PROGRESS").as_deref() {
            Ok("inline") => Progress::Inline,
            Ok("offloaded") => Progress::Offloaded { cores: Vec::new() },
            _ => Progress::Adaptive,
        };
        let failed = |_| FI_ENOMEM;
        let rnic = Rnic::open(RnicOptions { progress, ..RnicOptions::default() }).map_err(failed)?;
        rnic.request_helper();
        let domain = ProtectionDomain::new(&rnic);
        let queue = CompletionQueue::new(&rnic, 1 << 16, 0, None).map_err(failed)?;
        let [all, sparse] = [false, true].map(|is_sparse| whole_memory(&rnic, &domain, is_sparse));
        let (all, sparse) = (all.ok_or(FI_ENOMEM)?, sparse.ok_or(FI_ENOMEM)?);
        let attention = Attention::new()?;
        let engine = Engine {
            settings,
            rnic,
            domain,
            queue,
            all,
            sparse,
            address,
            listener: None,
            watch: None,
            thread: None,
            peers: Vec::new(),
            by_address: HashMap::new(),
            by_number: Vec::new(),
            removals: 0,
            // Each state has keys of its own, from the kernel's randomness.
            incarnation: RandomState::new().build_hasher().finish(),
            by_pair: Vec::new(),
            operations: Operations::default(),
            tagged: Queue::default(),
            untagged: Queue::default(),
            polls: 0,
            unsent: Vec::new(),
            attention,
            vector: Arc::default(),
            sends: Report::default(),
            receives: Report::default(),
            fetches: Report::default(),
            writes: Report::default(),
            regions: regions.clone(),
        };
        let core = Arc::new(Self {
            state: Mutex::new(engine),
            news: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        });
        regions.attach(&core);
        Ok(core)
    }

    /// Acts on its state.
    pub fn with<T>(&self, act: impl FnOnce(&mut Engine) -> T) -> T {
        act(&mut locked(&self.state))
    }

    /// Moves messages.
    pub fn progress(&self) {
        let mut engine = locked(&self.state);
        if self.news.load(Ordering::Acquire) {
            self.news.store(false, Ordering::Release);
            engine.advance_setups();
        }
        engine.progress();
    }

    /// Ends the setup thread and closes all connections.
    pub fn close(&self) {
        self.stopped.store(true, Ordering::Release);
        let thread = {
            let mut engine = locked(&self.state);
            engine.close_connections();
            engine.thread.take()
        };
        if let Some(thread) = thread {
            // It ends within a tick.
            let _ = thread.join();
        }
    }
}

/// Registers all memory of the process for requests of this process: the program registers nothing.
fn whole_memory(rnic: &Rnic, domain: &ProtectionDomain, is_sparse: bool) -> Option<Stag> {
    /// First byte, and the end of the addresses of user space with 48 bits.
    const BASE: usize = 4096;
    const END: usize = 1 << 47;
    let base = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(BASE))?;
    // SAFETY: the tag grants no access to peers. The RNIC reaches only ranges that requests of this library name, which
    // are the program's buffers while its requests are outstanding, what it registered for peers, and own buffers.
    unsafe {
        let (length, address) = (END - BASE, BASE as u64);
        let memory = match is_sparse {
            true => raw::sparse(base, length, address).ok()?,
            false => raw::memory(base, length, address, None).ok()?,
        };
        rnic.memory().register(domain.id(), memory, Access::LOCAL_WRITE, 0).ok()
    }
}

impl Engine {
    /// Room that a buffer for several messages needs for another one.
    pub fn least_room(&self) -> usize {
        self.untagged.least_room
    }

    /// Sets it.
    pub fn set_least_room(&mut self, bytes: usize) {
        self.untagged.least_room = bytes;
    }

    /// Address of this endpoint.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Binds an address vector.
    pub fn bind_vector(&mut self, vector: Arc<Addresses>) {
        self.vector = vector;
        self.forget_numbers();
    }

    fn forget_numbers(&mut self) {
        self.removals = self.vector.removals();
        self.by_number.clear();
        self.peers.iter_mut().for_each(|peer| peer.number = FI_ADDR_UNSPEC);
    }

    /// Forgets numbers that may have been removed since they were looked up.
    fn check_numbers(&mut self) {
        if self.vector.removals() != self.removals {
            self.forget_numbers();
        }
    }

    /// Takes completions of the RNIC, and sends what waited; returns the number of completions.
    fn progress(&mut self) -> usize {
        self.polls += 1;
        self.transmit_unsent();
        let mut batch = [Completion::EMPTY; BATCH];
        // An overrun cannot be: the queue has room for all requests of a thousand peers; it flushes their requests.
        let count = self.queue.poll(&mut batch).unwrap_or(0);
        for completion in &batch[..count] {
            self.complete(completion);
        }
        self.transmit_unsent();
        count
    }

    /// Index of the peer of an address, which is connected to on first use.
    fn peer_of(&mut self, number: u64) -> Result<usize, i32> {
        self.check_numbers();
        let at = usize::try_from(number).map_err(|_| FI_EINVAL)?;
        if let Some(Some(peer)) = self.by_number.get(at) {
            return Ok(*peer);
        }
        let address = self.vector.address(number).ok_or(FI_EINVAL)?;
        let peer = match self.by_address.get(&address) {
            Some(peer) => *peer,
            None => self.connect(None, address)?,
        };
        if self.by_number.len() <= at {
            self.by_number.resize(at + 1, None);
        }
        self.by_number[at] = Some(peer);
        Ok(peer)
    }

    /// Address number of a peer, or `FI_ADDR_UNSPEC`.
    fn number_of(&mut self, peer: usize) -> u64 {
        self.check_numbers();
        if self.peers[peer].number == FI_ADDR_UNSPEC {
            self.peers[peer].number = self.vector.number(self.peers[peer].address);
        }
        self.peers[peer].number
    }

    /// Whether messages wait for a peer that may still take them.
    fn has_pending(&self) -> bool {
        self.peers.iter().any(|peer| !peer.pending.is_empty() && !matches!(peer.phase, Phase::Ended))
    }

    /// Waits until connections are closed, for a moment: what was sent is to arrive.
    fn close_connections(&mut self) {
        const LINGER: Duration = Duration::from_millis(200);
        let begin = Instant::now();
        while begin.elapsed() < LINGER && self.has_pending() {
            self.advance_setups();
            self.progress();
        }
        self.listener = None;
        let open: Vec<_> = self.peers.iter().filter_map(|peer| peer.pair.clone()).collect();
        for pair in &open {
            // Not connected: there is nothing to close.
            let _ = pair.modify(clearstream_iwarp::verbs::State::Closing);
        }
        let begin = Instant::now();
        let is_open = |pair: &clearstream_iwarp::verbs::raw::QueuePair| {
            matches!(
                pair.state(),
                clearstream_iwarp::verbs::State::Rts | clearstream_iwarp::verbs::State::Closing
            )
        };
        while begin.elapsed() < LINGER && open.iter().any(is_open) {
            self.queue.progress();
            std::thread::yield_now();
        }
        for peer in &mut self.peers {
            peer.pair = None;
        }
    }
}

/// Context that the program gave with a request.
pub type Context = *mut c_void;
