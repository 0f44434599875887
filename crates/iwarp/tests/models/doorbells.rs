//! Engines: a request that was posted is found, whether its engine is awake,
//! asleep or about to be.

use std::collections::{BTreeSet, VecDeque};

use clearstream_iwarp::{
    verbs::PostError,
    work::{Operation, SendRequest},
};
use loom::{sync::Arc, thread};

use crate::{
    Descriptor,
    doorbell::{Left, Sleepers},
    in_every_order,
    inbox::Inbox,
};

/// An engine with two connections, as their posters see it.
struct Engine {
    bells: Left<usize>,
    sleepers: Sleepers,
    doorbell: Descriptor,
    inboxes: [Inbox; 2],
}

fn request(id: u64) -> SendRequest {
    let operation = Operation::Immediate { data: [0; 8], solicited: false };
    SendRequest { id, operation, signaled: true, fence: false }
}

impl Engine {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            bells: Left::new(),
            sleepers: Sleepers::new(),
            doorbell: Descriptor::new(),
            inboxes: [Inbox::default(), Inbox::default()],
        })
    }

    /// A post: into the inbox, then the bell.
    fn post(&self, connection: usize, id: u64) {
        self.inboxes[connection].post([request(id)], 8, |_| Ok(())).unwrap();
        if self.inboxes[connection].bell().ring() {
            self.bells.leave(connection);
            if self.sleepers.are_there() {
                self.doorbell.ring();
            }
        }
    }

    /// Turns until it has so many requests.
    fn run(&self, wanted: usize) -> Vec<u64> {
        let (mut found, mut answered) = (Vec::new(), Vec::new());
        while found.len() < wanted {
            // Because its socket has something.
            self.visit(0, &mut found);
            if self.bells.any() {
                self.bells.take(&mut answered);
                let once: BTreeSet<_> = answered.iter().collect();
                assert_eq!(once.len(), answered.len(), "a bell is there once");
                for connection in answered.drain(..) {
                    self.inboxes[connection].bell().answer();
                    self.visit(connection, &mut found);
                }
                continue;
            }
            let busy = || !self.bells.is_empty();
            if found.len() == wanted {
                break;
            }
            self.sleepers.sleep(busy, || self.doorbell.poll(), || self.doorbell.read());
        }
        found
    }

    fn visit(&self, connection: usize, found: &mut Vec<u64>) {
        let mut requests = VecDeque::new();
        self.inboxes[connection].take(&mut requests, 0);
        found.extend(requests.into_iter().map(|request| request.id));
        self.inboxes[connection].settle(0);
    }
}

#[test]
fn an_engine_finds_every_request_of_a_connection_in_order() {
    in_every_order(3, || {
        let engine = Engine::new();
        let poster = thread::spawn({
            let engine = engine.clone();
            move || (1..3).for_each(|id| engine.post(0, id))
        });
        assert_eq!(engine.run(2), [1, 2]);
        poster.join().unwrap();
    });
}

#[test]
fn an_engine_finds_the_requests_of_two_posters() {
    for connection in [0, 1] {
        in_every_order(2, move || {
            let engine = Engine::new();
            let posters = [(0, 1), (connection, 2)].map(|(connection, id)| {
                let engine = engine.clone();
                thread::spawn(move || engine.post(connection, id))
            });
            let mut found = engine.run(2);
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
            for poster in posters {
                poster.join().unwrap();
            }
        });
    }
}

/// A connection ends while its engine looks: each request goes to the machine or
/// comes back, and none does both.
#[test]
fn a_request_is_taken_or_comes_back() {
    in_every_order(3, || {
        let inbox = Arc::new(Inbox::default());
        let poster = thread::spawn({
            let inbox = inbox.clone();
            move || (1..3).for_each(|id| inbox.post([request(id)], 8, |_| Ok(())).unwrap())
        });
        let ender = thread::spawn({
            let inbox = inbox.clone();
            move || {
                let mut back = Vec::new();
                inbox.empty(|request| back.push(request.id));
                back
            }
        });
        let mut requests = VecDeque::new();
        inbox.take(&mut requests, 0);
        poster.join().unwrap();
        let mut all = ender.join().unwrap();
        all.extend(requests.into_iter().map(|request| request.id));
        inbox.empty(|request| all.push(request.id));
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}

/// The depth counts what is in the inbox and what the machine has, at whatever
/// time it is looked at.
#[test]
fn no_more_are_taken_than_the_depth_of_the_queue() {
    in_every_order(3, || {
        let inbox = Arc::new(Inbox::default());
        let poster = thread::spawn({
            let inbox = inbox.clone();
            move || {
                let post = |id| inbox.post([request(id)], 1, |_| Ok(())).map_err(|refused| refused.error);
                (post(1), post(2))
            }
        });
        let mut requests = VecDeque::new();
        // The machine keeps what it takes: nothing is settled.
        inbox.take(&mut requests, 0);
        assert_eq!(poster.join().unwrap(), (Ok(()), Err(PostError::Full)));
    });
}
