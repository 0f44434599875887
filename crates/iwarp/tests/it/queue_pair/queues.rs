//! Queues: limits, fences, ordering, shared receives, windows.

use std::sync::{Arc, Mutex};

use clearstream_iwarp::memory::Access;
use clearstream_iwarp::mpa::Negotiated;
use clearstream_iwarp::queue_pair::{Event, Failure, Limits, PostError, ReceiveQueue};
use clearstream_iwarp::rdmap::ErrorCode;
use clearstream_iwarp::stag::{QueuePairId, Stag};
use clearstream_iwarp::work::{
    Data, Operation, ReceiveRequest, Remote, Segment, Segments, SendRequest, Status,
};
use smallvec::SmallVec;

use crate::queue_pair::end::{End, carry, inline, negotiated, request};
use crate::queue_pair::frames::{RDMAP, UNTAGGED, fpdu, send, terminate, ulpdus, untagged};

use crate::queue_pair::lifecycle::{REGION, pair, post, post_read, read, send_bytes, statuses};

#[test]
fn outstanding_reads_are_limited_to_the_negotiated_number() {
    let of = |initiator| Negotiated { ord: 2, ird: 2, ..negotiated(initiator) };
    let (mut one, mut other) = (End::new(&of(true), 1400, REGION), End::new(&of(false), 1400, REGION));
    for id in 0..5 {
        post_read(&mut one, &other, id, 100);
    }
    other.post_receive(1, 0, 8);
    post(&mut one, 9, send_bytes(b"behind"));
    for left in [2, 2] {
        let requests = one.output();
        assert_eq!(ulpdus(&requests).len(), left);
        other.input(&requests);
        let responses = other.output();
        one.input(&responses);
    }
    assert_eq!(ulpdus(&one.output()).len(), 2, "the fifth Read and the Send");
    assert_eq!(one.machine.outstanding(), 2);
    // ORD 0: it would wait without limit.
    let mut one = End::new(&Negotiated { ord: 0, ..negotiated(true) }, 1400, REGION);
    let refused = one.machine.post_send(request(1, read(&one, &other, 8)));
    assert_eq!(refused, Err(PostError::NoReads));
}

#[test]
fn a_fence_waits_for_reads() {
    let [mut one, mut other] = pair();
    other.post_receive(1, 0, 8);
    post_read(&mut one, &other, 1, 100);
    one.machine.post_send(SendRequest { fence: true, ..request(2, send_bytes(b"behind")) }).unwrap();
    let requests = one.output();
    assert_eq!(ulpdus(&requests).len(), 1);
    other.input(&requests);
    let response = other.output();
    one.input(&response);
    assert_eq!(ulpdus(&one.output()).len(), 1);
}

#[test]
fn sends_behind_a_read_complete_after_it() {
    let [mut one, mut other] = pair();
    other.post_receive(1, 0, 8);
    post_read(&mut one, &other, 1, 100);
    post(&mut one, 2, send_bytes(b"behind"));
    let stream = one.output();
    assert_eq!(ulpdus(&stream).len(), 2);
    assert!(one.sends.is_empty(), "the Send is out but not complete");
    other.input(&stream);
    let response = other.output();
    one.input(&response);
    assert_eq!(statuses(&one.sends), [(1, Status::Success), (2, Status::Success)]);
}

#[test]
fn posting_has_limits() {
    let limits = Limits { send_queue: 2, segments: 1, inline_bytes: 4, ..Limits::default() };
    let mut end = End::with(&negotiated(true), 1400, REGION, limits, false);
    let segment = end.segment(0, 8);
    let mut refused = |operation| end.machine.post_send(request(1, operation));
    assert_eq!(refused(send_bytes(b"five!")), Err(PostError::Inline));
    let two = Data::Gather(SmallVec::from_slice(&[segment, segment]));
    assert_eq!(
        refused(Operation::Send { data: two, solicited: false, invalidate: None }),
        Err(PostError::Segments)
    );
    let remote = Remote { stag: Stag(1), address: 0 };
    let sink = Segment { length: 4, ..segment };
    assert_eq!(refused(Operation::FetchAdd { sink, remote, add: 1, mask: 0 }), Err(PostError::AtomicSink));
    assert_eq!(refused(send_bytes(b"1")), Ok(()));
    assert_eq!(refused(send_bytes(b"2")), Ok(()));
    assert_eq!(refused(send_bytes(b"3")), Err(PostError::Full));
    end.output();
    end.machine.post_send(request(3, send_bytes(b"3"))).unwrap();
    let wide = Limits { segments: 2, ..limits };
    let most = Segment { length: u32::MAX, ..segment };
    let data = Data::Gather(SmallVec::from_slice(&[most, segment]));
    let long = request(1, Operation::Write { data, remote });
    assert_eq!(wide.check(&long, 1, false), Err(PostError::Length));
}

#[test]
fn responses_and_requests_alternate() {
    let [mut one, mut other] = pair();
    carry(&mut one, &mut other);
    // A hundred Sends of this side and a Read of the peer's at the same time.
    for id in 0..100 {
        post(&mut one, id, send_bytes(b"a short message"));
        other.post_receive(id, 0, 100);
    }
    one.input(&fpdu(&crate::queue_pair::frames::read(
        1,
        &crate::queue_pair::frames::read_body((9, 9), 3000, (one.stag.0, one.address(0))),
    )));
    let opcodes: Vec<u8> = ulpdus(&one.output()).iter().map(|ulpdu| ulpdu[1] & 0x0f).collect();
    let last_of_response = opcodes.iter().rposition(|opcode| *opcode == 2).unwrap();
    assert!(last_of_response < 5, "{opcodes:?}");
    assert_eq!(opcodes.len(), 103);
}

#[test]
fn a_shared_queue_keeps_its_receives_and_reports_its_limit() {
    let mut end = End::with(&negotiated(true), 1400, REGION, Limits::default(), true);
    for id in 0..4 {
        end.post_receive(id, 0, 100);
    }
    end.receives.lock().unwrap().arm(2);
    for msn in 1..=2 {
        end.input(&fpdu(&send(msn, b"x")));
    }
    assert!(end.events.is_empty());
    end.input(&fpdu(&send(3, b"x")));
    assert_eq!(end.events, [Event::ReceivesLow]);
    let receive = ReceiveRequest { id: 1, segments: Segments::new() };
    assert_eq!(end.machine.post_receive(receive), Err(PostError::SharedReceives));
    end.machine.fail(Failure::Ended);
    end.collect();
    assert_eq!(statuses(&end.received).len(), 3, "the fourth stays in the shared queue");
    assert_eq!(end.receives.lock().unwrap().len(), 1);
    let small: Arc<Mutex<ReceiveQueue>> = Arc::new(Mutex::new(ReceiveQueue::new(1, 0)));
    let too_many = ReceiveRequest { id: 1, segments: SmallVec::from_slice(&[end.segment(0, 1)]) };
    assert_eq!(small.lock().unwrap().post(too_many), Err(PostError::Segments));
}

#[test]
fn a_window_is_bound_and_invalidated_in_request_order() {
    let [mut one, mut other] = pair();
    // The responder binds a window and advertises it.
    post(&mut one, 1, Operation::Write { data: inline(&[]), remote: Remote { stag: Stag(1), address: 0 } });
    carry(&mut one, &mut other);
    let window = other.table.allocate_window(other.domain).unwrap();
    let access = Access::REMOTE_WRITE;
    let memory = other.segment(100, 50);
    post(&mut other, 1, Operation::BindWindow { window, memory, access });
    let stag = window.next_key();
    one.post_receive(1, 0, 8);
    post(&mut other, 2, send_bytes(&stag.0.to_be_bytes()));
    carry(&mut one, &mut other);
    assert_eq!(one.region.to_vec(0, 4), stag.0.to_be_bytes());
    let remote = Remote { stag, address: other.address(120) };
    post(&mut one, 2, Operation::Write { data: inline(b"through it"), remote });
    other.post_receive(5, 0, 0);
    post(&mut one, 3, Operation::Send { data: inline(&[]), solicited: true, invalidate: Some(stag) });
    carry(&mut one, &mut other);
    assert_eq!(other.region.to_vec(120, 10), b"through it");
    assert_eq!((other.received[0].invalidated, other.received[0].solicited), (Some(stag), true));
    // It is invalidated now.
    post(&mut one, 4, Operation::Write { data: inline(b"too late"), remote });
    carry(&mut one, &mut other);
    let Some(Event::TerminateReceived(terminate)) = one.events.last() else { panic!("{:?}", one.events) };
    assert_eq!(terminate.error, ErrorCode::TaggedStag);
    assert_eq!(other.region.to_vec(120, 10), b"through it");
}

#[test]
fn segments_of_a_message_may_arrive_in_any_order() {
    let mut end = End::new(&negotiated(true), 1400, REGION);
    end.post_receive(1, 0, 100);
    end.post_receive(2, 200, 100);
    let part =
        |last: u8, offset, text: &[u8]| fpdu(&untagged(UNTAGGED | last, RDMAP | 3, 0, [0, 1, offset], text));
    end.input(&part(0x40, 10, b"end"));
    end.input(&part(0, 5, b"midst"));
    assert!(end.received.is_empty());
    end.input(&part(0, 0, b"begin"));
    assert_eq!(statuses(&end.received), [(1, Status::Success)]);
    assert_eq!(end.received[0].bytes, 13);
    assert_eq!(end.region.to_vec(0, 14), b"beginmidstend\0");
    // Nothing after the last segment belongs to the message.
    end.input(&fpdu(&untagged(UNTAGGED | 0x40, RDMAP | 3, 0, [0, 2, 5], b"end")));
    end.input(&fpdu(&untagged(UNTAGGED, RDMAP | 3, 0, [0, 2, 8], b"more")));
    let (error, ..) = terminate(&ulpdus(&end.output())[0]);
    assert_eq!(error, [1, 2, 5]);
}

#[test]
fn sequence_numbers_continue_over_many_messages() {
    let [mut one, mut other] = pair();
    for round in 0..600_u64 {
        other.post_receive(round, 0, 8);
        one.machine.post_send(SendRequest { signaled: false, ..request(round, send_bytes(b"x")) }).unwrap();
        if round % 100 == 99 {
            carry(&mut one, &mut other);
        }
    }
    assert_eq!(other.received.len(), 600);
    assert!(one.sends.is_empty(), "unsignalled");
    assert_eq!(one.machine.outstanding(), 0, "the queue has room");
}

#[test]
fn completions_name_their_queue_pair() {
    let [mut one, mut other] = pair();
    other.post_receive(3, 0, 8);
    post(&mut one, 1, send_bytes(b"x"));
    carry(&mut one, &mut other);
    assert_eq!(one.sends[0].queue_pair, QueuePairId(7));
    assert_eq!((other.received[0].queue_pair, other.received[0].bytes), (QueuePairId(7), 1));
}
