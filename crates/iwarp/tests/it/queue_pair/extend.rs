//! Streams that wait for memory: of a full receive, or of the next one.

use clearstream_iwarp::queue_pair::{Event, Failure, Limits, PostError, State};
use clearstream_iwarp::rdmap::ErrorCode;
use clearstream_iwarp::stag::Stag;
use clearstream_iwarp::work::{Data, Operation, Segment, Status};
use smallvec::SmallVec;

use crate::queue_pair::end::{End, carry, negotiated};
use crate::queue_pair::lifecycle::{REGION, post, send_bytes, statuses};

/// Where the receiver has its memory.
const FIRST: usize = 0;
const REST: usize = 50_000;

fn pair(receives_extend: bool) -> [End; 2] {
    let limits = Limits { receives_extend, ..Limits::default() };
    [true, false].map(|initiator| End::with(&negotiated(initiator), 1400, REGION, limits, false))
}

/// Sends a message of 10 000 bytes and one behind it, to a receive of 100 bytes.
fn sent(receives_extend: bool) -> ([End; 2], Vec<u8>, Vec<u8>) {
    let [mut one, mut other] = pair(receives_extend);
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    one.region.write(0, &bytes);
    other.post_receive(1, FIRST, 100);
    other.post_receive(2, 100, 100);
    let data = Data::Gather(SmallVec::from_slice(&[one.segment(0, bytes.len())]));
    post(&mut one, 1, Operation::Send { data, solicited: false, invalidate: None });
    post(&mut one, 2, send_bytes(b"behind"));
    let stream = one.output();
    ([one, other], stream, bytes)
}

#[test]
fn a_full_receive_waits_for_memory_and_goes_on_in_it() {
    let ([_one, mut other], stream, bytes) = sent(true);
    assert_eq!(other.machine.extend_receive(&[]), Err(PostError::NotFull));
    other.input(&stream);
    assert!(other.machine.is_waiting() && other.received.is_empty());
    assert_eq!(other.region.to_vec(FIRST, 100), bytes[..100]);
    assert_eq!(other.region.to_vec(100, 100), [0; 100], "the next receive's memory");
    let too_many = [other.segment(REST, 1); 17];
    assert_eq!(other.machine.extend_receive(&too_many), Err(PostError::Segments));
    // Not enough: it is full once more.
    let piece = other.segment(REST, 4000);
    other.machine.extend_receive(&[piece]).unwrap();
    other.collect();
    assert!(other.machine.is_waiting() && other.received.is_empty());
    let pieces = [other.segment(REST + 4000, 1), other.segment(REST + 4001, 6000)];
    other.machine.extend_receive(&pieces).unwrap();
    other.collect();
    assert!(!other.machine.is_waiting());
    assert_eq!(other.region.to_vec(REST, 9900), bytes[100..]);
    assert_eq!(other.region.to_vec(100, 6), b"behind");
    assert_eq!(statuses(&other.received), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!([other.received[0].bytes, other.received[1].bytes], [10_000, 6]);
}

#[test]
fn a_message_too_long_ends_a_connection_without_extended_receives() {
    let ([mut one, mut other], stream, _) = sent(false);
    other.input(&stream);
    assert_eq!(other.machine.extend_receive(&[]), Err(PostError::NotFull));
    carry(&mut one, &mut other);
    assert_eq!(other.machine.state(), State::Error);
    assert_eq!(statuses(&other.received), [(1, Status::LocalLength), (2, Status::Flushed)]);
}

#[test]
fn memory_that_is_not_of_the_consumer_ends_the_connection() {
    let ([mut one, mut other], stream, _) = sent(true);
    other.input(&stream);
    other.machine.extend_receive(&[Segment { stag: Stag(0x777), address: 0, length: 9900 }]).unwrap();
    other.collect();
    carry(&mut one, &mut other);
    assert_eq!(other.machine.state(), State::Error);
    assert_eq!(statuses(&other.received), [(1, Status::LocalProtection), (2, Status::Flushed)]);
}

#[test]
fn a_waiting_receive_is_flushed_when_the_connection_is_lost() {
    let ([_one, mut other], stream, _) = sent(true);
    other.input(&stream);
    other.machine.fail(Failure::Reset);
    other.collect();
    assert!(!other.machine.is_waiting());
    assert_eq!(other.machine.extend_receive(&[]), Err(PostError::NotFull));
    assert_eq!(statuses(&other.received), [(1, Status::Flushed), (2, Status::Flushed)]);
    assert!(other.events.contains(&Event::Failed(Failure::Reset)), "{:?}", other.events);
}

/// Two messages and an empty one between them, to an endpoint without receives.
fn early() -> ([End; 2], Vec<u8>, Vec<u8>) {
    let limits = Limits { receives_wait: true, ..Limits::default() };
    let ends = [true, false].map(|initiator| End::with(&negotiated(initiator), 1400, REGION, limits, false));
    let [mut one, other] = ends;
    let bytes: Vec<u8> = (0..10_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    one.region.write(0, &bytes);
    let data = Data::Gather(SmallVec::from_slice(&[one.segment(0, bytes.len())]));
    post(&mut one, 1, Operation::Send { data, solicited: false, invalidate: None });
    post(&mut one, 2, send_bytes(b""));
    post(&mut one, 3, send_bytes(b"behind"));
    let stream = one.output();
    ([one, other], stream, bytes)
}

#[test]
fn a_send_without_a_receive_waits_for_one() {
    for step in [1, 7, 1000, usize::MAX] {
        let ([_one, mut other], stream, bytes) = early();
        stream.chunks(step.min(stream.len())).for_each(|part| other.input(part));
        assert!(other.machine.is_waiting() && other.machine.straight().is_none());
        assert_eq!(other.machine.extend_receive(&[]), Err(PostError::NotFull));
        for (id, at, length, received) in [(1, FIRST, 10_000, 1), (2, REST, 0, 2), (3, REST, 6, 3)] {
            assert!(other.machine.is_receiver_not_ready(), "{step} {id}");
            other.post_receive(id, at, length);
            other.collect();
            assert_eq!(other.received.len(), received);
        }
        assert!(!other.machine.is_waiting());
        assert_eq!(other.region.to_vec(FIRST, 10_000), bytes);
        assert_eq!(other.region.to_vec(REST, 6), b"behind");
        assert_eq!([1, 2, 3].map(|id| (id, Status::Success)), *statuses(&other.received));
    }
}

#[test]
fn a_receive_that_is_too_short_for_the_send_that_waits_ends_the_connection() {
    let ([mut one, mut other], stream, _) = early();
    other.input(&stream);
    other.post_receive(1, FIRST, 100);
    carry(&mut one, &mut other);
    assert_eq!(statuses(&other.received), [(1, Status::LocalLength)]);
    assert_eq!(other.machine.state(), State::Error);
}

/// RFC 5041, section 8: untagged buffer error, no buffer available.
#[test]
fn a_send_that_waited_in_vain_ends_the_connection() {
    let end: [fn(&mut End); 2] = [|other| other.machine.give_up(), |other| other.machine.close()];
    for (end, known) in end.into_iter().flat_map(|end| [30, usize::MAX].map(|known| (end, known))) {
        let ([mut one, mut other], stream, _) = early();
        let (first, later) = stream.split_at(known.min(stream.len()));
        other.input(first);
        assert!(other.machine.is_receiver_not_ready());
        end(&mut other);
        other.input(later);
        carry(&mut one, &mut other);
        // Nothing of its own was left to send.
        let reported = |event: &Event| matches!(event, Event::TerminateReceived(terminate) if terminate.error == ErrorCode::UntaggedNoBuffer);
        assert!(one.events.iter().any(reported), "{known} {:?}", one.events);
        assert_eq!(other.machine.state(), State::Error);
    }
}

#[test]
fn own_messages_are_sent_before_a_close_ends_a_send_that_waits() {
    let ([mut one, mut other], stream, _) = early();
    other.input(&stream);
    // A responder sends after the first message (RFC 5044, section 7.1).
    other.post_receive(1, FIRST, 10_000);
    assert!(other.machine.is_receiver_not_ready());
    one.post_receive(1, FIRST, 10);
    post(&mut other, 7, send_bytes(b"last bytes"));
    other.machine.close();
    carry(&mut one, &mut other);
    assert_eq!(statuses(&other.sends), [(7, Status::Success)]);
    assert_eq!(statuses(&one.received), [(1, Status::Success)]);
    assert_eq!(one.region.to_vec(FIRST, 10), b"last bytes");
    assert!(one.events.iter().any(|event| matches!(event, Event::TerminateReceived(_))), "{:?}", one.events);
}
