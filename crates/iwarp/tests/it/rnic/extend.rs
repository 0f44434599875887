//! Streams that wait for memory, of a full receive or of the next one, over sockets in each progress mode.

use std::{thread, time::Duration};

use clearstream_iwarp::{
    queue_pair::PostError,
    rdmap::ErrorCode,
    verbs::{
        AcceptOptions, Access, AsyncEvent, ConnectOptions, Listener, ProtectionDomain, Region, Rnic,
        RnicOptions, SendOptions, State,
        raw::{CompletionQueue, QueuePair, QueuePairOptions, ReceiveRequest},
    },
    work::{Completed, Completion, Data, Operation, SendRequest, Status},
};
use smallvec::smallvec;

use crate::rnic::faults::event;
use crate::rnic::sides::{
    self, TIMEOUT, adaptive, all_modes, any_port, done, offloaded, pair, pattern, plain_pair, until,
};

const LENGTH: usize = 300_000;
const FIRST: u32 = 16;

struct Side {
    completions: CompletionQueue,
    pair: QueuePair,
    memory: Region,
    rnic: Rnic,
}

impl Side {
    fn new(options: &RnicOptions) -> Self {
        let rnic = Rnic::open(options.clone()).unwrap();
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 64, 0, None).unwrap();
        let pair = QueuePair::with_extended_receives(&domain, &QueuePairOptions::new(&completions)).unwrap();
        let memory = Region::new(&domain, LENGTH, Access::LOCAL_WRITE).unwrap();
        Self { completions, pair, memory, rnic }
    }

    fn next(&self, other: &Self) -> Completion {
        let mut found = None;
        until("a completion", || {
            other.completions.progress();
            found = self.completions.poll_one().unwrap();
            found.is_some()
        });
        found.unwrap()
    }
}

/// A message of which the first bytes have arrived.
fn waiting(options: &RnicOptions) -> (Side, Side, Vec<u8>) {
    let (one, other) = (Side::new(options), Side::new(options));
    let receive = ReceiveRequest { id: 5, segments: smallvec![other.memory.segment(0, FIRST)] };
    other.pair.post_receive(receive).unwrap();
    let listener = Listener::bind(&other.rnic, any_port()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let incoming = listener.accept(Some(TIMEOUT)).unwrap().unwrap();
            other.pair.accept(incoming, &AcceptOptions::default()).unwrap();
        });
        one.pair.connect(listener.local_address(), &ConnectOptions::default()).unwrap();
    });
    let bytes = pattern(LENGTH, 9);
    one.memory.write(0, &bytes);
    let data = Data::Gather(smallvec![one.memory.segment(0, LENGTH as u32)]);
    let operation = Operation::Send { data, solicited: false, invalidate: None };
    one.pair.post_send(SendRequest { id: 1, operation, signaled: false, fence: false }).unwrap();
    let full = other.next(&one);
    assert_eq!((full.id, full.completed, full.bytes), (5, Completed::ReceiveFull, FIRST));
    (one, other, bytes)
}

#[test]
fn a_message_goes_on_in_memory_named_later() {
    for options in all_modes() {
        let (one, other, bytes) = waiting(&options);
        thread::sleep(Duration::from_millis(30));
        assert!(other.completions.poll_one().unwrap().is_none());
        let rest =
            [other.memory.segment(FIRST as usize, 1000), other.memory.segment(1016, LENGTH as u32 - 1016)];
        other.pair.extend_receive(&rest).unwrap();
        let done = other.next(&one);
        assert_eq!((done.id, done.completed, done.status), (5, Completed::Receive, Status::Success));
        assert_eq!(done.bytes as usize, LENGTH);
        assert!(other.memory.to_vec(0, LENGTH) == bytes, "{options:?}");
        assert_eq!(other.pair.extend_receive(&rest), Err(PostError::NotFull));
        assert_eq!(other.pair.statistics().receives, 1);
    }
}

#[test]
fn a_reset_ends_a_connection_whose_receive_waits() {
    for options in all_modes() {
        let (one, other, _) = waiting(&options);
        one.pair.modify(State::Error).unwrap();
        let flushed = other.next(&one);
        assert_eq!((flushed.id, flushed.completed, flushed.status), (5, Completed::Receive, Status::Flushed));
    }
}

/// The first of three messages without a receive; the helper or an engine has seen it.
fn receiver_not_ready(options: &RnicOptions) -> (sides::Side, sides::Side) {
    let options = RnicOptions { receive_timeout: TIMEOUT, ..options.clone() };
    let (one, other) = plain_pair(&options);
    for id in 0..3 {
        one.queue_pair.send(id, &b"early"[..], SendOptions::default()).unwrap();
        done(&one, &[&other]);
    }
    until("the message has arrived", || {
        other.completions.progress();
        other.queue_pair.statistics().received_bytes() > 0
    });
    thread::sleep(Duration::from_millis(30));
    assert!(other.poll().is_none());
    (one, other)
}

#[test]
fn a_message_without_a_receive_waits_for_one() {
    for options in all_modes() {
        let (one, other) = receiver_not_ready(&options);
        for id in 10..14 {
            other.queue_pair.receive(id, other.domain.buffer(5).unwrap()).unwrap();
        }
        for id in 10..13 {
            let finished = done(&other, &[&one]);
            assert_eq!((finished.completion.id, finished.completion.bytes), (id, 5));
            assert_eq!(&finished.buffers[0][..], b"early", "{options:?}");
        }
        // The time limit is over with it.
        one.queue_pair.send(3, &b"later"[..], SendOptions::default()).unwrap();
        assert_eq!(done(&other, &[&one]).completion.id, 13);
    }
}

#[test]
fn a_connection_that_waits_for_a_receive_can_be_closed() {
    for options in all_modes() {
        let (one, other) = receiver_not_ready(&options);
        other.queue_pair.modify(State::Closing).unwrap();
        until("both ends are closed", || {
            _ = (one.poll(), other.poll());
            [&one, &other].iter().all(|side| side.queue_pair.state() == State::Error)
        });
    }
}

/// Also if the program sleeps, and if the last segment has not been read: its read waits as well.
#[test]
fn a_message_that_waits_in_vain_ends_the_connection_without_the_program() {
    for (options, length) in
        [offloaded(), adaptive()].iter().flat_map(|mode| [5, LENGTH].map(|length| (mode, length)))
    {
        for connect in
            [ConnectOptions::default(), ConnectOptions { peer_to_peer: true, ..ConnectOptions::default() }]
        {
            let options = RnicOptions { receive_timeout: Duration::from_millis(50), ..options.clone() };
            let connect = ConnectOptions { large_fpdus: true, ..connect };
            let (one, other) = pair(&options, &connect, &AcceptOptions::default());
            one.queue_pair.send(1, one.domain.buffer(length).unwrap(), SendOptions::default()).unwrap();
            let received = event(&one, &[], |event| matches!(event, AsyncEvent::TerminateReceived { .. }));
            let AsyncEvent::TerminateReceived { terminate, .. } = received else { unreachable!() };
            assert_eq!(terminate.error, ErrorCode::UntaggedNoBuffer, "{options:?}");
            drop(other);
        }
    }
}
