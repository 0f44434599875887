//! Two sides of a connection in one process.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, CompletionQueue, ConnectOptions, Established, Finished, Listener, Progress,
        ProtectionDomain, QueuePair, QueuePairOptions, Rnic, RnicOptions,
    },
    work::Status,
};

/// Timeout, long enough for a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) fn inline() -> RnicOptions {
    RnicOptions::default()
}

pub(crate) fn offloaded() -> RnicOptions {
    // Spinning engines of many concurrent tests would compete for the cores.
    let engine_spin = Duration::from_micros(20);
    RnicOptions { progress: Progress::Offloaded { cores: Vec::new() }, engine_spin, ..RnicOptions::default() }
}

pub(crate) fn adaptive() -> RnicOptions {
    RnicOptions { progress: Progress::Adaptive, ..RnicOptions::default() }
}

pub(crate) fn all_modes() -> [RnicOptions; 3] {
    [inline(), offloaded(), adaptive()]
}

pub(crate) fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// One side, before it is connected.
pub(crate) struct Side {
    pub(crate) domain: ProtectionDomain,
    pub(crate) completions: CompletionQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) rnic: Rnic,
}

impl Side {
    pub(crate) fn new(options: RnicOptions) -> Self {
        Self::of(&Rnic::open(options).unwrap())
    }

    pub(crate) fn of(rnic: &Rnic) -> Self {
        let completions = CompletionQueue::new(rnic, 1 << 14).unwrap();
        let domain = ProtectionDomain::new(rnic);
        let options = QueuePairOptions { receive_depth: 1 << 13, ..QueuePairOptions::new(&completions) };
        let queue_pair = QueuePair::new(&domain, &options).unwrap();
        Self { domain, completions, queue_pair, rnic: rnic.clone() }
    }

    pub(crate) fn poll(&self) -> Option<Finished> {
        self.completions.poll().unwrap()
    }
}

/// Connects two sides; returns the parameters that each reports.
pub(crate) fn join(
    initiator: &QueuePair,
    connect: &ConnectOptions,
    responder: (&Rnic, &QueuePair),
    accept: &AcceptOptions,
) -> (Established, Established) {
    let listener = Listener::bind(responder.0, any_port()).unwrap();
    let address = listener.local_address();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
            responder.1.accept(incoming, accept).unwrap()
        });
        let connected = initiator.connect(address, connect).unwrap();
        (connected, accepted.join().unwrap())
    })
}

/// Two connected sides.
pub(crate) fn pair(options: &RnicOptions, connect: &ConnectOptions, accept: &AcceptOptions) -> (Side, Side) {
    let (left, right) = (Side::new(options.clone()), Side::new(options.clone()));
    join(&left.queue_pair, connect, (&right.rnic, &right.queue_pair), accept);
    (left, right)
}

pub(crate) fn plain_pair(options: &RnicOptions) -> (Side, Side) {
    pair(options, &ConnectOptions::default(), &AcceptOptions::default())
}

/// Polls all sides until `side` has a completion.
pub(crate) fn finished(side: &Side, others: &[&Side]) -> Finished {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(finished) = side.poll() {
            return finished;
        }
        // The others must make progress too with inline progress; their
        // completions are not taken.
        others.iter().for_each(|other| _ = other.completions.progress());
        assert!(Instant::now() < end, "no completion");
        thread::yield_now();
    }
}

/// Like [`finished`], for a request that succeeded.
pub(crate) fn done(side: &Side, others: &[&Side]) -> Finished {
    let finished = finished(side, others);
    assert_eq!(finished.completion.status, Status::Success, "{finished:?}");
    finished
}

/// Calls `step` until it returns true.
pub(crate) fn until(what: &str, mut step: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !step() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

/// Returns bytes of a long period.
pub(crate) fn pattern(length: usize, seed: u32) -> Vec<u8> {
    let byte = |at: u32| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8;
    (0..length as u32).map(byte).collect()
}
