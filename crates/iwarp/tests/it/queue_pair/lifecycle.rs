//! Connection setup, limits and teardown.

use std::collections::VecDeque;

use clearstream_iwarp::memory::Access;
use clearstream_iwarp::mpa::{Negotiated, Rtr};
use clearstream_iwarp::queue_pair::{Event, Failure, PostError, State};
use clearstream_iwarp::rdmap::ErrorCode;
use clearstream_iwarp::stag::Stag;
use clearstream_iwarp::work::{
    Completed, Data, Operation, ReceiveRequest, Remote, Segment, Segments, SendRequest, Status,
};
use smallvec::SmallVec;

use crate::queue_pair::end::{End, carry, carry_to_the_end, inline, negotiated, request};
use crate::queue_pair::frames::{
    RDMAP, TAGGED, UNTAGGED, fpdu, send, tagged, terminate, ulpdus, untagged, write,
};

pub(crate) const REGION: usize = 1 << 20;

pub(crate) fn pair() -> [End; 2] {
    [true, false].map(|initiator| End::new(&negotiated(initiator), 1400, REGION))
}

pub(crate) fn send_bytes(bytes: &[u8]) -> Operation {
    Operation::Send { data: inline(bytes), solicited: false, invalidate: None }
}

fn gather(end: &End, at: usize, length: usize) -> Data {
    Data::Gather(SmallVec::from_slice(&[end.segment(at, length)]))
}

pub(crate) fn read(end: &End, peer: &End, length: usize) -> Operation {
    Operation::Read { sink: end.segment(0, length), remote: peer.remote(0), invalidate: false }
}

pub(crate) fn post(end: &mut End, id: u64, operation: Operation) {
    end.machine.post_send(request(id, operation)).unwrap();
}

pub(crate) fn post_read(end: &mut End, peer: &End, id: u64, length: usize) {
    let operation = read(end, peer, length);
    post(end, id, operation);
}

pub(crate) fn statuses(completions: &[clearstream_iwarp::work::Completion]) -> Vec<(u64, Status)> {
    completions.iter().map(|completion| (completion.id, completion.status)).collect()
}

#[test]
fn a_responder_waits_for_the_first_message() {
    let [mut one, mut other] = pair();
    one.post_receive(1, 0, 8);
    other.post_receive(2, 0, 8);
    post(&mut other, 3, send_bytes(b"answer"));
    assert!(other.output().is_empty(), "RFC 5044, section 7.1.2");
    post(&mut one, 4, send_bytes(b"first"));
    carry(&mut one, &mut other);
    assert_eq!(other.events, [Event::Established]);
    assert_eq!(statuses(&one.received), [(1, Status::Success)]);
    assert_eq!(statuses(&other.sends), [(3, Status::Success)]);
}

#[test]
fn each_ready_to_receive_message_is_sent_and_not_delivered() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let of = |initiator| Negotiated { rtr: Some(rtr), ird: 0, ord: 0, ..negotiated(initiator) };
        let (mut one, mut other) = (End::new(&of(true), 1400, REGION), End::new(&of(false), 1400, REGION));
        post(&mut other, 3, send_bytes(b"answer"));
        one.post_receive(1, 0, 8);
        other.post_receive(2, 0, 8);
        carry(&mut one, &mut other);
        assert_eq!(other.events, [Event::Established], "{rtr:?}");
        assert_eq!(statuses(&one.received), [(1, Status::Success)], "{rtr:?}");
        assert!(other.received.is_empty(), "{rtr:?}: it is not for the consumer");
        // Sequence numbers continue after it.
        post(&mut one, 5, send_bytes(b"and on"));
        carry(&mut one, &mut other);
        assert_eq!(statuses(&other.received), [(2, Status::Success)], "{rtr:?}");
        one.machine.close();
        other.machine.close();
        carry_to_the_end(&mut one, &mut other);
        assert_eq!((one.machine.state(), other.machine.state()), (State::Idle, State::Idle), "{rtr:?}");
    }
}

#[test]
fn a_first_message_of_another_kind_ends_the_stream() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        let mut end = End::new(&Negotiated { rtr: Some(rtr), ..negotiated(false) }, 1400, REGION);
        end.post_receive(1, 0, 8);
        let ulpdu = send(1, b"too much");
        end.input(&fpdu(&ulpdu));
        let (error, ..) = terminate(&ulpdus(&end.output())[0]);
        assert_eq!(error, [2, 0, 7], "{rtr:?}: RFC 6581, section 6");
        assert!(matches!(end.events[..], [Event::TerminateSent(_)]), "{rtr:?}: not established");
        assert_eq!(statuses(&end.received), [(1, Status::Flushed)]);
    }
}

#[test]
fn a_terminate_instead_of_the_first_message_establishes_nothing() {
    let mut end = End::new(&Negotiated { rtr: Some(Rtr::Write), ..negotiated(false) }, 1400, REGION);
    // MPA: no matching RTR option.
    end.input(&fpdu(&untagged(UNTAGGED | 0x40, RDMAP | 7, 0, [2, 1, 0], &[0x20, 7, 0, 0])));
    let [Event::TerminateReceived(terminate)] = &end.events[..] else { panic!("{:?}", end.events) };
    assert_eq!(terminate.error, ErrorCode::MpaNoMatchingRtr);
    assert!(end.machine.wants_close());
}

#[test]
fn closing_processes_posted_requests() {
    let [mut one, mut other] = pair();
    other.region.write(0, &[7; 5000]);
    other.post_receive(9, 8000, 100);
    post_read(&mut one, &other, 1, 5000);
    post(&mut one, 2, send_bytes(b"bye"));
    one.machine.close();
    assert_eq!(one.machine.post_send(request(3, send_bytes(b"late"))), Err(PostError::NotConnected));
    assert!(!one.machine.wants_close());
    carry(&mut one, &mut other);
    assert_eq!(statuses(&one.sends), [(1, Status::Success), (2, Status::Success)]);
    assert_eq!(one.region.to_vec(0, 5000), [7; 5000]);
    assert!(one.machine.wants_close());
    other.machine.end_of_stream();
    other.collect();
    assert_eq!(other.events, [Event::Established, Event::PeerClosed]);
    assert_eq!(other.machine.state(), State::Idle);
    one.machine.end_of_stream();
    assert_eq!(one.machine.state(), State::Idle);
}

#[test]
fn posted_requests_are_still_sent_after_the_peer_closed() {
    let [mut one, mut other] = pair();
    one.post_receive(1, 0, 100);
    one.post_receive(2, 0, 100);
    other.post_receive(3, 0, 8);
    post(&mut one, 4, send_bytes(b"last"));
    one.machine.close();
    post(&mut other, 5, send_bytes(b"answer"));
    let mut stream = VecDeque::from(one.output());
    other.arrive(&mut stream, usize::MAX, false);
    other.machine.end_of_stream();
    assert_eq!(other.machine.state(), State::Closing);
    carry_to_the_end(&mut other, &mut one);
    assert_eq!(statuses(&one.received), [(1, Status::Success), (2, Status::Flushed)]);
    assert_eq!((one.machine.state(), other.machine.state()), (State::Idle, State::Idle));
}

#[test]
fn the_end_of_the_stream_in_a_message_is_an_error() {
    let whole = fpdu(&send(1, b"whole"));
    let first_of_two = fpdu(&untagged(UNTAGGED, RDMAP | 3, 0, [0, 1, 0], b"first"));
    let half_a_write = |end: &End| fpdu(&tagged(TAGGED, RDMAP, end.stag.0, end.address(500), b"half"));
    type Make<'a> = Box<dyn Fn(&End) -> Vec<u8> + 'a>;
    let cases: [(&str, Make<'_>); 4] = [
        ("in the length", Box::new(|_| whole[..1].to_vec())),
        ("in an FPDU", Box::new(|_| whole[..whole.len() - 1].to_vec())),
        ("between segments", Box::new(|_| first_of_two.clone())),
        ("between segments of a Write", Box::new(half_a_write)),
    ];
    for (name, make) in cases {
        let mut end = End::new(&negotiated(true), 1400, REGION);
        end.post_receive(1, 0, 100);
        let stream = make(&end);
        end.input(&stream);
        end.machine.end_of_stream();
        end.collect();
        assert_eq!(end.machine.state(), State::Error, "{name}");
        assert_eq!(end.events, [Event::Failed(Failure::Truncated)], "{name}");
        assert_eq!(statuses(&end.received), [(1, Status::Flushed)], "{name}");
        assert!(end.machine.wants_close());
    }
}

#[test]
fn the_end_of_the_stream_with_outstanding_responses_is_an_error() {
    let [mut one, other] = pair();
    post_read(&mut one, &other, 1, 8);
    one.output();
    one.machine.end_of_stream();
    one.collect();
    assert_eq!(one.events, [Event::Failed(Failure::Truncated)]);
    assert_eq!(statuses(&one.sends), [(1, Status::Flushed)]);
    // Also when the Read was not sent yet.
    let [mut one, other] = pair();
    post_read(&mut one, &other, 1, 8);
    one.machine.end_of_stream();
    one.collect();
    assert_eq!(statuses(&one.sends), [(1, Status::Flushed)]);
}

#[test]
fn a_peer_that_closes_before_its_first_message_is_an_error() {
    let mut end = End::new(&Negotiated { rtr: Some(Rtr::Read), ..negotiated(false) }, 1400, REGION);
    end.post_receive(1, 0, 8);
    end.machine.end_of_stream();
    end.collect();
    assert_eq!(end.events, [Event::Failed(Failure::Truncated)]);
    assert_eq!(statuses(&end.received), [(1, Status::Flushed)]);
    // Without a negotiated RTR message only if there was something to send.
    let mut end = End::new(&negotiated(false), 1400, REGION);
    post(&mut end, 1, send_bytes(b"never"));
    end.machine.end_of_stream();
    end.collect();
    assert_eq!(statuses(&end.sends), [(1, Status::Flushed)]);
    let mut end = End::new(&negotiated(false), 1400, REGION);
    end.machine.end_of_stream();
    assert_eq!(end.machine.state(), State::Idle);
}

#[test]
fn a_reset_flushes_every_request_in_order() {
    let [mut one, other] = pair();
    for id in 0..3 {
        one.post_receive(10 + id, 0, 8);
    }
    let silent = SendRequest { signaled: false, ..request(1, send_bytes(b"one")) };
    one.machine.post_send(silent).unwrap();
    post_read(&mut one, &other, 2, 8);
    post(&mut one, 3, send_bytes(b"three"));
    let mut stream = VecDeque::new();
    one.transmit(&mut stream, 3);
    one.machine.fail(Failure::Reset);
    one.machine.fail(Failure::TimedOut);
    one.collect();
    let flushed = |ids: std::ops::Range<u64>| ids.map(|id| (id, Status::Flushed)).collect::<Vec<_>>();
    assert_eq!(statuses(&one.sends), flushed(1..4));
    assert_eq!(statuses(&one.received), flushed(10..13));
    assert_eq!(one.events, [Event::Failed(Failure::Reset)]);
    assert_eq!(one.machine.outstanding(), 0);
    assert!(one.output().is_empty());
    let receive = ReceiveRequest { id: 1, segments: Segments::new() };
    assert_eq!(one.machine.post_receive(receive), Err(PostError::NotConnected));
}

#[test]
fn a_terminate_follows_the_current_fpdu_and_is_the_last() {
    let [mut one, mut other] = pair();
    one.region.write(0, &[3; 700_000]);
    let (remote, data) = (other.remote(0), gather(&one, 0, 700_000));
    post(&mut one, 1, Operation::Write { data, remote });
    let mut stream = VecDeque::new();
    one.transmit(&mut stream, 1000);
    one.input(&fpdu(&write(0, 0, b"wrong")));
    assert_eq!(one.machine.state(), State::Terminate);
    while one.transmit(&mut stream, 700) > 0 {}
    assert_eq!(statuses(&one.sends), [(1, Status::Flushed)], "it was not sent completely");
    other.arrive(&mut stream, usize::MAX, true);
    assert!(stream.is_empty());
    let Some(Event::TerminateReceived(terminate)) = other.events.last() else { panic!("{:?}", other.events) };
    assert_eq!(terminate.error, ErrorCode::TaggedStag);
    assert_eq!(terminate.quoted.segment_length, Some(14 + 5));
    assert_eq!(other.machine.state(), State::Error);
    assert!(other.machine.wants_close() && one.machine.wants_close());
}

#[test]
fn the_request_quoted_by_a_terminate_gets_its_error() {
    let [mut one, mut other] = pair();
    post_read(&mut one, &other, 1, 8);
    let denied = Remote { stag: Stag(other.stag.0 ^ 1), address: other.address(0) };
    let sink = one.segment(0, 8);
    post(&mut one, 2, Operation::Read { sink, remote: denied, invalidate: false });
    post_read(&mut one, &other, 3, 8);
    carry(&mut one, &mut other);
    let expected = [(1, Status::Success), (2, Status::RemoteAccess), (3, Status::Flushed)];
    assert_eq!(statuses(&one.sends), expected);
    assert!(matches!(one.events[..], [Event::TerminateReceived(_)]));
    assert!(matches!(other.events[..], [Event::Established, Event::TerminateSent(_)]));
    assert_eq!((one.machine.state(), other.machine.state()), (State::Error, State::Error));
}

#[test]
fn local_errors_are_reported_to_both_sides() {
    type Make = fn(&End) -> Operation;
    let cases: [(Make, Completed, Status); 5] = [
        (
            |end| {
                let segment = Segment { stag: Stag(end.stag.0 ^ 1), ..end.segment(0, 8) };
                let data = Data::Gather(SmallVec::from_slice(&[segment]));
                Operation::Send { data, solicited: false, invalidate: None }
            },
            Completed::Send,
            Status::LocalProtection,
        ),
        (
            |end| Operation::Write { data: gather(end, REGION - 8, 9), remote: end.remote(0) },
            Completed::Write,
            Status::LocalProtection,
        ),
        (
            |end| Operation::Read {
                sink: end.segment(REGION - 8, 9),
                remote: end.remote(0),
                invalidate: false,
            },
            Completed::Read,
            Status::LocalProtection,
        ),
        (
            |end| Operation::LocalInvalidate { stag: Stag(end.stag.0 ^ 1) },
            Completed::LocalInvalidate,
            Status::LocalOperation,
        ),
        (
            |end| {
                let window = end.table.allocate_window(end.domain).unwrap();
                let memory = end.segment(REGION - 8, 9);
                Operation::BindWindow { window, memory, access: Access::REMOTE_READ }
            },
            Completed::BindWindow,
            Status::WindowBind,
        ),
    ];
    for (make, completed, status) in cases {
        let [mut one, mut other] = pair();
        other.post_receive(9, 0, 100);
        post(&mut one, 1, send_bytes(b"good"));
        let operation = make(&one);
        one.machine.post_send(SendRequest { signaled: false, ..request(2, operation) }).unwrap();
        post(&mut one, 3, send_bytes(b"never"));
        carry(&mut one, &mut other);
        assert_eq!(statuses(&one.sends), [(1, Status::Success), (2, status), (3, Status::Flushed)]);
        assert_eq!(one.sends[1].completed, completed);
        assert_eq!(statuses(&other.received), [(9, Status::Success)]);
        let Some(Event::TerminateReceived(terminate)) = other.events.last() else {
            panic!("{:?}", other.events)
        };
        assert_eq!(terminate.error, ErrorCode::RdmapCatastrophic);
    }
}

#[test]
fn a_receive_that_may_not_be_written_is_a_local_error() {
    let [mut one, mut other] = pair();
    let segment = Segment { stag: Stag(other.stag.0 ^ 1), ..other.segment(0, 8) };
    let receive = ReceiveRequest { id: 5, segments: SmallVec::from_slice(&[segment]) };
    other.machine.post_receive(receive).unwrap();
    other.post_receive(6, 0, 8);
    post(&mut one, 1, send_bytes(b"good"));
    carry(&mut one, &mut other);
    assert_eq!(statuses(&other.received), [(5, Status::LocalProtection), (6, Status::Flushed)]);
    assert_eq!(other.all(), vec![0; REGION]);
    let Some(Event::TerminateReceived(terminate)) = one.events.last() else { panic!("{:?}", one.events) };
    assert_eq!(terminate.error, ErrorCode::DdpCatastrophic);
}

#[test]
fn memory_deregistered_during_a_transfer_is_not_accessed_any_more() {
    // During a Write: bytes received before were placed, later ones are
    // rejected.
    let mut end = End::new(&negotiated(true), 1400, REGION);
    let stag = end.table.register(end.domain, end.region.memory(), Access::REMOTE_WRITE, 3).unwrap();
    let ulpdu = write(stag.0, end.address(0), &[9; 20_000]);
    let stream = fpdu(&ulpdu);
    end.input(&stream[..10_000]);
    end.table.deregister(stag).unwrap();
    let before = end.all();
    let mut rest = VecDeque::from(stream[10_000..].to_vec());
    while end.arrive(&mut rest, 3000, true) > 0 {}
    assert_eq!(end.all(), before);
    let (error, ..) = terminate(&ulpdus(&end.output())[0]);
    assert_eq!(error, [1, 1, 0]);

    // During a Read: the response stops at the end of an FPDU.
    let mut end = End::new(&negotiated(true), 1400, 4 << 20);
    let stag = end.table.register(end.domain, end.region.memory(), Access::REMOTE_READ, 3).unwrap();
    let body = crate::queue_pair::frames::read_body((9, 9), 4 << 20, (stag.0, end.address(0)));
    let request = crate::queue_pair::frames::read(1, &body);
    end.input(&fpdu(&request));
    let mut stream = VecDeque::new();
    end.transmit(&mut stream, usize::MAX);
    end.table.deregister(stag).unwrap();
    while end.transmit(&mut stream, usize::MAX) > 0 {}
    let sent = ulpdus(stream.make_contiguous());
    let (error, bits, quoted) = terminate(sent.last().unwrap());
    assert_eq!((error, bits), ([0, 1, 0], 0xe0));
    assert_eq!(quoted[2..20], request[..18]);
    assert!(sent.len() < 1000);
}
