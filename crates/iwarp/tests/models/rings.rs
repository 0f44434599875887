//! Completion queues: sleepers are woken, armed queues generate events, and no
//! completion is lost or delivered twice.

use std::time::{Duration, Instant};

use clearstream_iwarp::{
    stag::QueuePairId,
    work::{Completed, Completion, Status},
};
use loom::{sync::Arc, thread};

use crate::{
    Descriptor,
    doorbell::Sleepers,
    explore,
    ring::{Full, Notify, Ring},
};

fn completion(id: u64) -> Completion {
    Completion {
        id,
        queue_pair: QueuePairId(1),
        completed: Completed::Send,
        status: Status::Success,
        bytes: 0,
        immediate: None,
        invalidated: None,
        solicited: false,
    }
}

fn pushing(ring: &Arc<Ring>, ids: std::ops::Range<u64>) -> thread::JoinHandle<()> {
    let ring = ring.clone();
    thread::spawn(move || ids.for_each(|id| assert_eq!(ring.push(completion(id), 4), Ok(false))))
}

#[test]
fn a_sleeper_gets_every_completion_in_order() {
    explore(3, || {
        let ring = Arc::new(Ring::new());
        let pusher = pushing(&ring, 0..2);
        for id in 0..2 {
            let found = loop {
                // Like a poll: the lock-free check first.
                match if ring.is_filled() { ring.pop() } else { None } {
                    Some(found) => break found,
                    // loom's clock does not run: only a wake-up ends this.
                    None => ring.sleep(Instant::now() + Duration::from_secs(3600)),
                }
            };
            assert_eq!(found.id, id);
        }
        pusher.join().unwrap();
        assert!(!ring.is_filled());
    });
}

#[test]
fn two_sleepers_get_one_each() {
    explore(2, || {
        let ring = Arc::new(Ring::new());
        let pusher = pushing(&ring, 0..2);
        let wait = |ring: &Ring| {
            loop {
                if let Some(found) = ring.pop() {
                    return found.id;
                }
                ring.sleep(Instant::now() + Duration::from_secs(3600));
            }
        };
        let other = thread::spawn({
            let ring = ring.clone();
            move || wait(&ring)
        });
        let mut ids = [wait(&ring), other.join().unwrap()];
        ids.sort_unstable();
        assert_eq!(ids, [0, 1]);
        pusher.join().unwrap();
    });
}

/// The loop of the verbs manual: arm, poll once more, wait for the event of the
/// channel.
#[test]
fn polling_once_more_after_arming_misses_nothing() {
    explore(3, || {
        let (ring, channel) = (Arc::new(Ring::new()), Arc::new(Descriptor::new()));
        let pusher = thread::spawn({
            let (ring, channel) = (ring.clone(), channel.clone());
            move || {
                for id in 0..2 {
                    if ring.push(completion(id), 4) == Ok(true) {
                        channel.ring();
                    }
                }
            }
        });
        let mut polled = 0;
        let mut batch = [completion(9); 2];
        loop {
            ring.arm(Notify::Next);
            loop {
                let count = ring.take(&mut batch);
                for found in &batch[..count] {
                    assert_eq!(found.id, polled);
                    polled += 1;
                }
                if count == 0 {
                    break;
                }
            }
            if polled == 2 {
                break;
            }
            channel.poll();
            channel.read();
        }
        pusher.join().unwrap();
    });
}

#[test]
fn only_a_matching_completion_generates_an_event_once() {
    explore(3, || {
        let ring = Ring::new();
        ring.arm(Notify::Solicited);
        assert_eq!(ring.push(completion(0), 3), Ok(false));
        let solicited = Completion { solicited: true, ..completion(1) };
        assert_eq!(ring.push(solicited, 3), Ok(true));
        assert_eq!(ring.push(solicited, 3), Ok(false), "the event was raised already");
        assert_eq!(ring.push(solicited, 3), Err(Full));
    });
}

/// Inline progress: sleepers sleep on the driver's descriptor instead.
#[test]
fn sleepers_of_a_driver_are_woken_by_a_completion() {
    explore(2, || {
        let all = Arc::new((Ring::new(), Sleepers::new(), Descriptor::new()));
        let wait = |all: &(Ring, Sleepers, Descriptor)| {
            let (ring, sleepers, descriptor) = all;
            while ring.pop().is_none() {
                sleepers.sleep(|| !ring.is_empty(), || descriptor.poll(), || descriptor.read());
            }
        };
        let pusher = thread::spawn({
            let all = all.clone();
            move || {
                for id in 0..2 {
                    all.0.push(completion(id), 4).unwrap();
                    if all.1.any() {
                        all.2.ring();
                    }
                }
            }
        });
        wait(&all);
        wait(&all);
        pusher.join().unwrap();
    });
}

/// Two threads sleep on one descriptor: the first to wake leaves it readable
/// for the other.
#[test]
fn both_sleepers_of_a_driver_are_woken() {
    explore(2, || {
        let all = Arc::new((Ring::new(), Sleepers::new(), Descriptor::new()));
        let over = |all: &(Ring, Sleepers, Descriptor)| {
            let (ring, sleepers, descriptor) = all;
            while ring.is_empty() {
                sleepers.sleep(|| !ring.is_empty(), || descriptor.poll(), || descriptor.read());
            }
        };
        let other = thread::spawn({
            let all = all.clone();
            move || over(&all)
        });
        let pusher = thread::spawn({
            let all = all.clone();
            move || {
                all.0.push(completion(0), 4).unwrap();
                if all.1.any() {
                    all.2.ring();
                }
            }
        });
        over(&all);
        other.join().unwrap();
        pusher.join().unwrap();
    });
}
