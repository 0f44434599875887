//! Immediate data with Sends and Writes: what is refused when it is posted, and what of a peer ends the stream.

use clearstream_iwarp::{
    mpa::Negotiated,
    queue_pair::{Event, Limits, PostError, State},
    rdmap::ErrorCode,
    work::{Completed, Operation, Status},
};
use std::collections::VecDeque;

use crate::queue_pair::end::{End, carry, inline, negotiated, request};

const REGION: usize = 4096;

/// Two ends of which each offers it, or does not.
fn ends([one, other]: [bool; 2]) -> [End; 2] {
    let of = |initiator, immediate_data| {
        let negotiated = Negotiated { immediate_data, ..negotiated(initiator) };
        End::with(&negotiated, 1400, REGION, Limits::default(), false)
    };
    [of(true, one), of(false, other)]
}

fn send(bytes: &[u8]) -> Operation {
    Operation::SendImmediate { data: inline(bytes), immediate: [1, 2, 3, 4], solicited: false }
}

fn write(to: &End, bytes: &[u8]) -> Operation {
    let remote = to.remote(0);
    Operation::WriteImmediate { data: inline(bytes), remote, immediate: [5, 6, 7, 8], solicited: true }
}

#[test]
fn immediate_data_is_posted_only_as_the_ends_agreed() {
    let [mut one, other] = ends([false, false]);
    for operation in [send(b"x"), write(&other, b"x")] {
        assert_eq!(one.machine.post_send(request(1, operation)), Err(PostError::NoImmediateData));
    }
    let [mut one, other] = ends([true, true]);
    let alone = Operation::Immediate { data: [0; 8], solicited: false };
    assert_eq!(one.machine.post_send(request(1, alone)), Err(PostError::ImmediateAlone));
    for operation in [send(&[0; 513]), write(&other, &[0; 513])] {
        assert_eq!(one.machine.post_send(request(1, operation)), Err(PostError::Inline));
    }
}

/// A Send keeps the receive of its immediate data, and the number of bytes written is counted here.
#[test]
fn each_takes_one_receive() {
    let [mut one, mut other] = ends([true, true]);
    for id in 0..2 {
        other.post_receive(id, 512, 8);
    }
    one.machine.post_send(request(1, write(&other, b"written"))).unwrap();
    one.machine.post_send(request(2, send(b"sent"))).unwrap();
    carry(&mut one, &mut other);
    let received: Vec<_> = other
        .received
        .iter()
        .map(|done| (done.id, done.completed, done.bytes, done.solicited, done.immediate.unwrap()))
        .collect();
    assert_eq!(
        received,
        [
            (0, Completed::ReceiveWritten, 7, true, [0, 0, 0, 1, 5, 6, 7, 8]),
            (1, Completed::Receive, 4, false, [0, 0, 0, 2, 1, 2, 3, 4]),
        ]
    );
    let sent: Vec<_> = one.sends.iter().map(|done| (done.id, done.completed, done.bytes)).collect();
    assert_eq!(sent, [(1, Completed::Write, 7), (2, Completed::Send, 4)]);
}

/// An end that agreed to nothing has sent these eight bytes: they belong to no message, or to another.
#[test]
fn immediate_data_that_belongs_to_nothing_ends_the_stream() {
    let alone = |kind: u8| Operation::Immediate { data: [0, 0, 0, kind, 9, 9, 9, 9], solicited: false };
    for (kinds, code) in [
        (&[0][..], ErrorCode::OperationUnspecified),
        (&[3], ErrorCode::OperationUnspecified),
        (&[2, 2], ErrorCode::UnexpectedOpcode),
        (&[2, 1], ErrorCode::UnexpectedOpcode),
    ] {
        let [mut one, mut other] = ends([false, true]);
        for id in 0..2 {
            other.post_receive(id, 512, 8);
        }
        for kind in kinds {
            one.machine.post_send(request(u64::from(*kind), alone(*kind))).unwrap();
        }
        let mut stream = VecDeque::from(one.output());
        other.arrive(&mut stream, usize::MAX, false);
        assert_eq!(other.machine.state(), State::Terminate, "{kinds:?}");
        other.output();
        let [Event::Established, Event::TerminateSent(terminate)] = &other.events[..] else {
            panic!("{kinds:?}: {:?}", other.events)
        };
        assert_eq!(terminate.error, code, "{kinds:?}");
        assert!(other.received.iter().all(|done| done.status == Status::Flushed), "{kinds:?}");
        assert_eq!(other.received.len(), 2);
    }
}
