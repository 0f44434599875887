//! Several threads on one queue pair: no request is lost, duplicated or stuck.
//!
//! State without a lock of its own: whether the inbox has requests, whether a
//! doorbell was rung, whether an engine sleeps. `tests/models` explores every
//! interleaving of these parts; here they run together, with sockets. A bug
//! shows as a request that is never processed, and then one of these tests
//! times out.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{PostError, RnicOptions, SendOptions},
    work::{Completed, Status},
};

use crate::rnic::sides::{TIMEOUT, all_modes, inline, offloaded, plain_pair};

const PER_THREAD: u64 = 2000;

/// `posters` threads send while one thread per side polls.
fn hammer(options: &RnicOptions, posters: u64) {
    let (left, right) = plain_pair(options);
    let total = posters * PER_THREAD;
    for id in 0..total {
        right.queue_pair.receive(id, right.domain.buffer(8).unwrap()).unwrap();
    }
    let stop = AtomicBool::new(false);
    let end = Instant::now() + TIMEOUT;
    let (mut sent, mut received) = (HashSet::new(), HashSet::new());
    thread::scope(|scope| {
        for poster in 0..posters {
            let (left, stop) = (&left, &stop);
            scope.spawn(move || {
                let mut next = poster * PER_THREAD;
                while next < (poster + 1) * PER_THREAD && !stop.load(Ordering::Relaxed) {
                    match left.queue_pair.send(next, &next.to_ne_bytes()[..], SendOptions::default()) {
                        Ok(()) => next += 1,
                        Err(refused) => {
                            assert_eq!(refused.error, PostError::Full);
                            thread::yield_now();
                        }
                    }
                }
            });
        }
        let sender = scope.spawn(|| {
            while (sent.len() as u64) < total && Instant::now() < end {
                match left.poll() {
                    None => thread::yield_now(),
                    Some(finished) => {
                        assert_eq!(finished.completion.status, Status::Success);
                        assert!(sent.insert(finished.completion.id), "completed twice");
                    }
                }
            }
        });
        while (received.len() as u64) < total && Instant::now() < end {
            let Some(finished) = right.poll() else {
                thread::yield_now();
                continue;
            };
            let completion = finished.completion;
            assert_eq!((completion.status, completion.completed), (Status::Success, Completed::Receive));
            let number = u64::from_ne_bytes(finished.buffers[0][..].try_into().unwrap());
            assert!(received.insert(number), "arrived twice");
        }
        sender.join().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((sent.len() as u64, received.len() as u64), (total, total));
}

#[test]
fn one_thread_posts_and_another_polls() {
    for options in all_modes() {
        hammer(&options, 1);
    }
}

#[test]
fn several_threads_post_to_one_queue_pair_inline() {
    hammer(&inline(), 3);
}

#[test]
fn several_threads_post_to_one_queue_pair_offloaded() {
    hammer(&offloaded(), 3);
}

/// Posts, lets the engine go to sleep, posts again: each post must wake it.
#[test]
fn a_sleeping_engine_is_woken_by_every_post() {
    let (left, right) = plain_pair(&RnicOptions { engine_spin: Duration::ZERO, ..offloaded() });
    for id in 0..500 {
        right.queue_pair.receive(id, right.domain.buffer(8).unwrap()).unwrap();
        left.queue_pair.send(id, &id.to_ne_bytes()[..], SendOptions::default()).unwrap();
        let received = right.completions.wait(TIMEOUT).unwrap().expect("the engine was woken");
        assert_eq!(&received.buffers[0][..], id.to_ne_bytes());
        left.completions.wait(TIMEOUT).unwrap().expect("completed");
    }
}
