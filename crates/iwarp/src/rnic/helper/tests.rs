#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

use std::{
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    thread,
};

use socket2::Socket;

use super::*;
use crate::{
    queue_pair::State as QueuePairState,
    rnic::{
        AcceptOptions, CompletionQueue, ConnectOptions, Listener, Notify, Progress, ProtectionDomain,
        QueuePair, QueuePairOptions, Rnic, RnicOptions, channel,
    },
    stag::Stag,
    work::{
        Completed, Completion, Data, InlineData, Operation, ReceiveRequest, Remote, Segments, SendRequest,
        Status,
    },
};

const MESSAGES: u64 = 100;
const DEPTH: u32 = 256;
/// FPDU of a Write without bytes: length, tagged DDP header, CRC field (RFC 5044, section 4; RFC 5041, section 4.2).
const WRITE_BYTES: u64 = 2 + 14 + 4;

/// A connected queue pair whose helper is the test, and its peer.
struct Sides {
    watch: Arc<Watch>,
    state: State,
    now: Instant,
    rnic: Rnic,
    receives: CompletionQueue,
    queue_pair: QueuePair,
    peer: QueuePair,
    peer_completions: CompletionQueue,
    received: u64,
}

fn queue_pair(rnic: &Rnic, sends: &CompletionQueue, receives: &CompletionQueue, depth: u32) -> QueuePair {
    let options = QueuePairOptions {
        send_completions: sends,
        receive_completions: receives,
        shared_receives: None,
        send_depth: depth,
        receive_depth: 256,
    };
    QueuePair::with_extended_receives(&ProtectionDomain::new(rnic), &options).unwrap()
}

/// Returns a connected queue pair, its peer and the peer's completion queue.
fn connected(
    rnic: &Rnic,
    sends: &CompletionQueue,
    receives: &CompletionQueue,
    depth: u32,
) -> (QueuePair, QueuePair, CompletionQueue) {
    let local = queue_pair(rnic, sends, receives, depth);
    let other = Rnic::open(RnicOptions::default()).unwrap();
    let peer_completions = CompletionQueue::new(&other, 512, 3, None).unwrap();
    let peer = queue_pair(&other, &peer_completions, &peer_completions, DEPTH);
    let listener = Listener::bind(rnic, SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.accept(None).unwrap().unwrap();
            local.accept(request, &AcceptOptions::default()).unwrap();
        });
        peer.connect(listener.local_address(), &ConnectOptions::default()).unwrap();
        accepted.join().unwrap();
    });
    (local, peer, peer_completions)
}

impl Sides {
    /// With one completion queue, or one per direction.
    fn new(separate: bool) -> Self {
        Self::with_depth(separate, DEPTH)
    }

    /// With a send queue of so many requests.
    fn with_depth(separate: bool, depth: u32) -> Self {
        let helper = Helper::without_thread().unwrap();
        let watch = helper.watch.clone();
        let options = RnicOptions { progress: Progress::Adaptive, ..RnicOptions::default() };
        let rnic = Rnic::with(options, Vec::new(), Some(helper)).unwrap();
        let sends = CompletionQueue::new(&rnic, 512, 1, None).unwrap();
        let receives =
            if separate { CompletionQueue::new(&rnic, 512, 2, None).unwrap() } else { sends.clone() };
        let (local, peer, peer_completions) = connected(&rnic, &sends, &receives, depth);
        for id in 0..200 {
            local.post_receive(ReceiveRequest { id, segments: Segments::new() }).unwrap();
        }
        let now = Instant::now();
        let state = State::new(now);
        let queue_pair = local;
        let mut sides =
            Self { watch, state, now, rnic, receives, queue_pair, peer, peer_completions, received: 0 };
        // The new queues and the new connection.
        sides.step();
        sides
    }

    /// Makes a pass of the helper if a descriptor of it is ready or a tick is
    /// due; returns whether it was woken by a descriptor.
    fn step(&mut self) -> bool {
        let mut ready = Vec::new();
        channel::ready(self.watch.epoll.as_fd(), &mut ready).unwrap();
        self.watch.pass(&mut self.state, &ready, self.now);
        !ready.is_empty()
    }

    fn tick(&mut self) -> bool {
        self.now += TICK;
        self.step()
    }

    /// The peer sends a message, which arrives at the socket.
    fn arrive(&self) {
        self.send(&[]);
        let wait = |socket: &Socket, _, _| {
            assert!(channel::readable(socket.as_fd(), Some(Instant::now() + Duration::from_secs(20))));
        };
        self.receives.driver().unwrap().with_links(|links| links[0].watch(wait)).unwrap();
    }

    fn send(&self, bytes: &[u8]) {
        let data = Data::Inline(InlineData::from_slice(bytes));
        let operation = Operation::Send { data, solicited: false, invalidate: None };
        self.peer.post_send(SendRequest { id: 0, operation, signaled: false, fence: false }).unwrap();
        self.peer_completions.progress();
    }

    /// Posts a Write without bytes (RFC 5040, section 5.1: its STag is not checked).
    fn write(&self) {
        let remote = Remote { stag: Stag(0), address: 0 };
        let operation = Operation::Write { data: Data::Inline(InlineData::new()), remote };
        self.queue_pair.post_send(SendRequest { id: 0, operation, signaled: false, fence: false }).unwrap();
    }

    /// Posts Writes until one is held: the posts that follow are to come.
    fn hold(&mut self) {
        // The accepting side sends after the peer's first message (RFC 5044, section 7.1).
        self.arrive();
        self.poll();
        for _ in 0..100 {
            let before = self.by_program();
            self.write();
            // The program's threads run on while the helper wakes.
            if !self.state.is_ticking() {
                self.step();
            }
            if self.by_program() == before {
                return;
            }
        }
        panic!("none is held");
    }

    /// Bytes that the kernel has.
    fn sent(&self) -> u64 {
        self.queue_pair.statistics().sent_bytes()
    }

    fn by_program(&self) -> u64 {
        self.queue_pair.statistics().by_program.visits
    }

    /// The program polls, so that the queue is attended.
    fn poll(&mut self) {
        for _ in 0..ATTENDED_POLLS {
            let mut into = [Completion::EMPTY; 4];
            let count = self.receives.poll(&mut into).unwrap();
            assert!(into[..count].iter().all(|completion| completion.status == Status::Success));
            self.received += count as u64;
        }
    }

    /// Number of descriptors in the epoll of the queue, by the kernel's account
    /// (proc_pid_fdinfo(5)).
    fn watched_sockets(&self) -> usize {
        let sockets = self.receives.driver().unwrap().epoll().unwrap();
        let info = format!("/proc/self/fdinfo/{}", sockets.as_raw_fd());
        std::fs::read_to_string(info).unwrap().lines().filter(|line| line.starts_with("tfd:")).count()
    }

    fn by_helper(&self) -> u64 {
        self.queue_pair.statistics().by_helper.visits
    }
}

/// The defect that this guards against: the check after an event forgot that
/// the queue was polled, and the helper drove it again.
#[test]
fn the_helper_does_not_drive_a_queue_while_the_program_polls_it() {
    for separate in [false, true] {
        let mut sides = Sides::new(separate);
        let before = sides.by_helper();
        sides.poll();
        sides.arrive();
        // An event long after the last tick, the tick at once after it.
        sides.now += 100 * TICK;
        assert!(sides.step(), "it is woken once");
        for number in 1..=MESSAGES {
            assert!(!sides.step(), "its sockets are not watched");
            sides.poll();
            assert_eq!(sides.received, number);
            sides.arrive();
            assert!(!sides.tick(), "arriving bytes do not wake it");
            assert_eq!(sides.watched_sockets(), 0, "nor are they notified to the queue's epoll");
        }
        assert_eq!(sides.by_helper(), before);
        let statistics = sides.queue_pair.statistics();
        assert_eq!(statistics.receives, MESSAGES);
        assert!(statistics.by_program.visits >= MESSAGES);
    }
}

#[test]
fn the_helper_takes_over_when_the_program_stops_polling_and_yields_when_it_polls() {
    let mut sides = Sides::new(true);
    for _ in 0..3 {
        sides.poll();
        sides.arrive();
        assert!(sides.step());
        let before = sides.by_helper();
        // Two ticks without polls.
        sides.tick();
        sides.tick();
        assert_eq!(sides.watched_sockets(), 1);
        assert!(sides.step(), "the sockets are watched once more");
        assert!(sides.by_helper() > before, "and driven");
        sides.arrive();
        sides.step();
        assert!(!sides.state.is_ticking(), "no ticks while it works");
        let driven = sides.by_helper();
        assert!(driven > before + 1);
        sides.poll();
    }
    assert_eq!(sides.received, 6);
}

/// The defect that this guards against: a thread that moved large messages
/// polled too seldom to count, and each event woke the helper in vain.
#[test]
fn the_helper_yields_while_a_thread_of_the_program_moves_bytes() {
    let mut sides = Sides::new(false);
    let before = sides.by_helper();
    sides.arrive();
    let receives = sides.receives.clone();
    let moving = |sides: &mut Sides, act: fn(&mut Sides) -> bool| {
        receives.driver().unwrap().with_links(|_| act(sides)).unwrap()
    };
    assert!(moving(&mut sides, Sides::step), "it is woken once");
    for _ in 0..3 {
        assert!(!moving(&mut sides, Sides::tick), "its sockets are not watched");
    }
    assert_eq!(sides.by_helper(), before);
    sides.tick();
    assert!(sides.step(), "watched once no thread moves bytes");
    assert!(sides.by_helper() > before);
    sides.poll();
    assert_eq!(sides.received, 1);
}

#[test]
fn a_program_that_goes_to_sleep_wakes_the_helper_without_a_tick() {
    let mut sides = Sides::new(true);
    sides.poll();
    sides.arrive();
    assert!(sides.step());
    let before = sides.by_helper();
    sides.receives.arm(Notify::Next).unwrap();
    assert!(sides.step(), "rung");
    assert!(sides.step(), "watched");
    assert!(sides.by_helper() > before);
    sides.poll();
    assert_eq!(sides.received, 1);
}

/// Its socket stays readable: it would wake the helper without end.
#[test]
fn a_receive_that_waits_for_memory_does_not_wake_the_helper() {
    let mut sides = Sides::new(false);
    sides.send(b"more than its receive has room for");
    let sockets = sides.receives.driver().unwrap().epoll().unwrap();
    assert!(channel::readable(sockets, Some(Instant::now() + Duration::from_secs(20))));
    assert!(sides.step());
    // Loopback has it at the socket when the call returns.
    sides.send(&[]);
    assert!(!sides.step(), "nothing is read until the receive is extended");
    let mut full = [Completion::EMPTY; 4];
    assert_eq!(sides.receives.poll(&mut full).unwrap(), 1);
    assert_eq!(full[0].completed, Completed::ReceiveFull);
}

#[test]
fn a_released_helper_rests_until_it_is_requested() {
    let mut sides = Sides::new(false);
    let before = sides.by_helper();
    sides.rnic.release_helper();
    sides.arrive();
    assert!(sides.step());
    assert!(!sides.step(), "its sockets are not watched");
    assert!(!sides.state.is_ticking());
    assert_eq!(sides.by_helper(), before);
    sides.rnic.request_helper();
    assert!(sides.step(), "rung");
    assert!(sides.step(), "watched");
    assert!(sides.by_helper() > before);
}

/// The defect that this guards against: a helper that sleeps on an epoll
/// without sockets, while the program computes.
#[test]
fn sockets_are_watched_after_a_thread_kept_the_helper_from_adding_them() {
    let mut sides = Sides::new(false);
    sides.poll();
    sides.arrive();
    assert!(sides.step());
    assert_eq!(sides.watched_sockets(), 0);
    let receives = sides.receives.clone();
    // The thread is about to sleep, and another one is still in its turn.
    sides.receives.arm(Notify::Next).unwrap();
    rustix::io::read(&sides.watch.doorbell, &mut [0; 8]).unwrap();
    sides.state.yielded = receives.driver().unwrap().with_links(|_| sides.watch.check(false)).unwrap();
    assert_eq!(sides.watched_sockets(), 0);
    assert!(sides.state.is_ticking(), "it has to try once more");
    let before = sides.by_helper();
    sides.tick();
    assert_eq!(sides.watched_sockets(), 1);
    assert!(sides.step());
    assert!(sides.by_helper() > before);
    sides.poll();
    assert_eq!(sides.received, 1);
}

/// With more connections than are read directly, turns need the epoll.
#[test]
fn the_sockets_of_many_connections_stay_in_the_epoll_while_the_program_polls() {
    let mut sides = Sides::new(false);
    let others: Vec<_> =
        (0..2).map(|_| connected(&sides.rnic, &sides.receives, &sides.receives, DEPTH)).collect();
    for _ in 0..3 {
        sides.poll();
        sides.arrive();
        sides.step();
        sides.tick();
        assert_eq!(sides.watched_sockets(), 3);
    }
    drop(others);
    sides.poll();
    sides.tick();
    sides.poll();
    assert_eq!(sides.watched_sockets(), 0, "few are left");
    assert_eq!(sides.received, 3);
}

#[test]
fn a_small_write_is_held_for_the_post_that_follows() {
    let mut sides = Sides::new(false);
    sides.hold();
    for _ in 0..10 {
        let (before, sent) = (sides.by_program(), sides.sent());
        // The post that follows is sent with it; the next one is held.
        sides.write();
        assert_eq!(sides.by_program(), before + 1);
        sides.write();
        assert_eq!(sides.by_program(), before + 1);
        assert_eq!(sides.sent() - sent, 2 * WRITE_BYTES);
        assert!(!sides.step(), "the helper is not woken for it");
    }
}

#[test]
fn a_held_write_is_sent_by_a_poll_and_before_the_program_sleeps() {
    for many in [false, true] {
        let mut sides = Sides::new(false);
        // With more connections than are read directly too.
        let count = if many { 3 } else { 0 };
        let _others: Vec<_> =
            (0..count).map(|_| connected(&sides.rnic, &sides.receives, &sides.receives, DEPTH)).collect();
        sides.step();
        for arms in [false, true] {
            sides.hold();
            let sent = sides.sent();
            if arms {
                sides.receives.arm(Notify::Next).unwrap()
            } else {
                sides.poll()
            }
            assert_eq!(sides.sent() - sent, WRITE_BYTES, "{many} {arms}");
        }
    }
}

#[test]
fn a_held_write_without_a_post_is_sent_by_the_helper() {
    // Also by one that is not to work.
    for released in [false, true] {
        let mut sides = Sides::new(false);
        if released {
            sides.rnic.release_helper();
        }
        sides.hold();
        let (before, sent) = (sides.by_helper(), sides.sent());
        sides.tick();
        assert_eq!(sides.sent(), sent, "the post may be about to come");
        sides.tick();
        assert_eq!(sides.sent() - sent, WRITE_BYTES);
        assert_eq!(sides.by_helper(), before + 1);
        sides.tick();
        assert!(!sides.state.is_ticking(), "nothing is held any more");
        // It was held in vain: more pairs are needed than at first.
        let visits = sides.by_program();
        (0..12).for_each(|_| sides.write());
        assert_eq!(sides.by_program(), visits + 12);
    }
}

/// The defect that this guards against: a poll that found the transport locked,
/// while the helper updated an epoll, forgot the Write.
#[test]
fn a_write_is_still_held_after_a_poll_that_found_its_connection_in_use() {
    let mut sides = Sides::new(false);
    sides.hold();
    let sent = sides.sent();
    let link = sides.receives.driver().unwrap().with_links(|links| links[0].clone()).unwrap();
    let in_use = link.try_transport().unwrap();
    sides.poll();
    drop(in_use);
    sides.tick();
    sides.tick();
    assert_eq!(sides.sent() - sent, WRITE_BYTES);
}

/// The defect that this guards against: a tick for held Writes, while a thread
/// was in its turn, ended watching; the next message waited for a tick.
#[test]
fn ticks_of_held_writes_do_not_end_watching() {
    let mut sides = Sides::new(false);
    sides.hold();
    // A program that sleeps from time to time.
    sides.receives.arm(Notify::Next).unwrap();
    sides.step();
    assert!(!sides.state.yielded && sides.state.holds);
    let receives = sides.receives.clone();
    receives.driver().unwrap().with_links(|_| sides.tick()).unwrap();
    sides.arrive();
    assert!(sides.step(), "it is woken by the message");
}

#[test]
fn no_write_is_held_that_fills_the_send_queue() {
    let mut sides = Sides::with_depth(false, 1);
    sides.arrive();
    sides.poll();
    for number in 1..=20 {
        let before = sides.by_program();
        sides.write();
        assert_eq!(sides.by_program(), before + 1, "{number}");
        sides.step();
    }
}

#[test]
fn a_held_write_is_sent_when_its_queue_pair_is_destroyed() {
    let mut sides = Sides::new(false);
    sides.hold();
    let sent = sides.sent();
    let Sides { queue_pair, peer, peer_completions, receives: _receives, rnic: _rnic, .. } = sides;
    drop(queue_pair);
    let deadline = Instant::now() + Duration::from_secs(20);
    while peer.state() == QueuePairState::Rts && Instant::now() < deadline {
        peer_completions.progress();
    }
    assert_eq!(peer.statistics().received_bytes() - sent, WRITE_BYTES);
}

#[test]
fn ticks_end_after_one_without_held_writes() {
    let ticks = Ticks::new();
    assert!(!ticks.hold());
    assert!(ticks.start(), "woken");
    assert!(!ticks.start(), "once");
    assert!(ticks.hold());
    assert!(ticks.tick(|| false), "a thread of the program is in its turn");
    assert!(ticks.tick(|| true));
    assert!(!ticks.tick(|| panic!("nothing is held")));
    assert!(!ticks.are_running());
}
