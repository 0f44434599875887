//! Ten thousand connections are opened and closed: descriptors, memory and
//! STags are as before. In a process of its own, whose descriptors and pages
//! are counted.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

#[path = "it/rnic/sides.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod sides;

use std::{fs, thread};

use clearstream_iwarp::verbs::{
    AcceptOptions, CompletionQueue, ConnectOptions, Listener, ProtectionDomain, QueuePair, QueuePairOptions,
    Rnic, RnicOptions, SendOptions,
};
use sides::{TIMEOUT, any_port, inline, offloaded, until};

/// Connections per progress mode; together ten thousand.
const CYCLES: usize = 5000;
/// Warm-up before anything is counted: allocators and tables have reached their
/// size, and the event queue, which is not read, is full.
const WARM_UP: usize = 600;

/// Connects, exchanges a message, closes.
fn cycles(options: &RnicOptions, count: usize) {
    let rnic = Rnic::open(options.clone()).unwrap();
    let domain = ProtectionDomain::new(&rnic);
    let listener = Listener::bind(&rnic, any_port()).unwrap();
    let address = listener.local_address();
    // One completion queue each for all of them: destroyed queue pairs leave no
    // entries.
    let (left, right) = (CompletionQueue::new(&rnic, 64).unwrap(), CompletionQueue::new(&rnic, 64).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..count {
                let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&right)).unwrap();
                queue_pair.receive(1, domain.buffer(8).unwrap()).unwrap();
                let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
                queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
                assert_eq!(right.wait(TIMEOUT).unwrap().unwrap().completion.id, 1);
            }
        });
        for _ in 0..count {
            let queue_pair = QueuePair::new(&domain, &QueuePairOptions::new(&left)).unwrap();
            queue_pair.connect(address, &ConnectOptions::default()).unwrap();
            queue_pair.send(2, domain.buffer(8).unwrap(), SendOptions::default()).unwrap();
            assert_eq!(left.wait(TIMEOUT).unwrap().unwrap().completion.id, 2);
        }
    });
    drop((left, right));
    assert_eq!(rnic.memory().tag_count(), 0, "buffers deregistered their tags");
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Anonymous pages of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[test]
fn ten_thousand_connections_leak_nothing() {
    let before = descriptors();
    // An engine may be the last owner of its RNIC, and exits then.
    let all_closed = || until("every descriptor is closed", || descriptors() == before);
    for options in [inline(), offloaded()] {
        cycles(&options, WARM_UP);
        all_closed();
        let resident = resident_bytes();
        cycles(&options, CYCLES);
        all_closed();
        // Less than a cache line for each would be 300 KiB.
        let grown = resident_bytes().saturating_sub(resident);
        assert!(grown < 256 << 10, "{grown} bytes more after {CYCLES} connections");
    }
}
