//! A thousand queue pairs in one process, on one completion queue inline and on
//! one engine offloaded. In a process of its own, whose pages are counted.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

#[path = "it/rnic/sides.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod sides;

use std::{fs, thread, time::Instant};

use clearstream_iwarp::{
    verbs::{
        AcceptOptions, CompletionQueue, ConnectOptions, Listener, ProtectionDomain, QueuePair,
        QueuePairOptions, Rnic, RnicOptions, SendOptions,
    },
    work::Completed,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sides::{TIMEOUT, any_port, inline, offloaded};

const QUEUE_PAIRS: usize = 1000;
/// Maximum memory of an idle queue pair.
const BYTES_PER_QUEUE_PAIR: u64 = 64 << 10;

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn thousand(options: &RnicOptions) {
    let rnic = Rnic::open(options.clone()).unwrap();
    let domain = ProtectionDomain::new(&rnic);
    let completions = CompletionQueue::new(&rnic, 1 << 13).unwrap();
    let listener = Listener::bind(&rnic, any_port()).unwrap();
    let address = listener.local_address();
    let before = resident_bytes();
    let new = || QueuePair::new(&domain, &QueuePairOptions::new(&completions)).unwrap();
    let (initiators, responders) = thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let accept = |_| {
                let queue_pair = new();
                let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
                queue_pair.accept(incoming, &AcceptOptions::default()).unwrap();
                queue_pair
            };
            (0..QUEUE_PAIRS).map(accept).collect::<Vec<_>>()
        });
        let connect = |_| {
            let queue_pair = new();
            queue_pair.connect(address, &ConnectOptions::default()).unwrap();
            queue_pair
        };
        ((0..QUEUE_PAIRS).map(connect).collect::<Vec<_>>(), accepting.join().unwrap())
    });
    let each = resident_bytes().saturating_sub(before) / (2 * QUEUE_PAIRS as u64);
    assert!(each < BYTES_PER_QUEUE_PAIR, "{each} bytes per idle queue pair");

    // All of them exchange messages in both directions.
    for round in 0..2u64 {
        let (from, to) = if round == 0 { (&initiators, &responders) } else { (&responders, &initiators) };
        for (from, to) in from.iter().zip(to) {
            to.receive(round, domain.buffer(16).unwrap()).unwrap();
            from.send(round, &[round as u8; 16][..], SendOptions::default()).unwrap();
        }
        let end = Instant::now() + TIMEOUT;
        let (mut sent, mut received) = (0, 0);
        while (sent, received) != (QUEUE_PAIRS, QUEUE_PAIRS) {
            assert!(Instant::now() < end, "{sent} sent, {received} received");
            let Some(finished) = completions.wait(TIMEOUT).unwrap() else { continue };
            match finished.completion.completed {
                Completed::Receive => {
                    assert_eq!(&finished.buffers[0][..], &[round as u8; 16]);
                    received += 1;
                }
                _ => sent += 1,
            }
        }
    }
    let each = resident_bytes().saturating_sub(before) / (2 * QUEUE_PAIRS as u64);
    assert!(each < BYTES_PER_QUEUE_PAIR, "{each} bytes per queue pair that has communicated");
}

#[test]
fn a_thousand_queue_pairs_communicate_in_one_process() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    thousand(&inline());
    thousand(&offloaded());
}
