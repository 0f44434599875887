//! Engines: a posted request is processed, whether its engine is running,
//! asleep or about to sleep.

use std::collections::{BTreeSet, VecDeque};

use clearstream_iwarp::{
    verbs::PostError,
    work::{Operation, SendRequest},
};
use loom::{sync::Arc, thread};

use crate::{
    Descriptor,
    doorbell::{Sleepers, WorkQueue},
    explore,
    inbox::Inbox,
};

/// An engine with two connections, as its posters see it.
struct Engine {
    rung: WorkQueue<usize>,
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
            rung: WorkQueue::new(),
            sleepers: Sleepers::new(),
            doorbell: Descriptor::new(),
            inboxes: [Inbox::default(), Inbox::default()],
        })
    }

    /// Posts a request: to the inbox, then the doorbell.
    fn post(&self, connection: usize, id: u64) {
        self.inboxes[connection].post([request(id)], 8, |_| Ok(())).unwrap();
        if self.inboxes[connection].doorbell().ring() {
            self.rung.push(connection);
            if self.sleepers.any() {
                self.doorbell.ring();
            }
        }
    }

    /// Runs until it has this many requests.
    fn run(&self, count: usize) -> Vec<u64> {
        let (mut found, mut found_rung) = (Vec::new(), Vec::new());
        while found.len() < count {
            // As if its socket were ready.
            self.visit(0, &mut found);
            if self.rung.any() {
                self.rung.take(&mut found_rung);
                let once: BTreeSet<_> = found_rung.iter().collect();
                assert_eq!(once.len(), found_rung.len(), "a connection is queued once");
                for connection in found_rung.drain(..) {
                    self.inboxes[connection].doorbell().clear();
                    self.visit(connection, &mut found);
                }
                continue;
            }
            let busy = || !self.rung.is_empty();
            if found.len() == count {
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
    explore(3, || {
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
        explore(2, move || {
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

/// A connection is closed during a visit of the engine: each request is
/// processed or flushed, never both.
#[test]
fn a_request_is_processed_or_flushed() {
    explore(3, || {
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

/// The depth counts the requests in the inbox and in the state machine, at any
/// time.
#[test]
fn at_most_the_queue_depth_is_accepted() {
    explore(3, || {
        let inbox = Arc::new(Inbox::default());
        let poster = thread::spawn({
            let inbox = inbox.clone();
            move || {
                let post = |id| inbox.post([request(id)], 1, |_| Ok(())).map_err(|refused| refused.error);
                (post(1), post(2))
            }
        });
        let mut requests = VecDeque::new();
        // The state machine keeps its requests: none completes.
        inbox.take(&mut requests, 0);
        assert_eq!(poster.join().unwrap(), (Ok(()), Err(PostError::Full)));
    });
}
