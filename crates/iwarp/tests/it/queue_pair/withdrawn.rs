//! Foreign memory withdrawn by its owner between the check of its STag and the
//! transfer of its bytes: no request succeeds with bytes that were not
//! transferred, and the peer gets the errors that the RFCs define.
#![allow(unsafe_code, reason = "memory of others is registered by unsafe functions")]

use std::collections::VecDeque;
use std::ptr::NonNull;

use clearstream_iwarp::memory::raw;
use clearstream_iwarp::mpa::Negotiated;
use clearstream_iwarp::queue_pair::{Event, Failure, State};
use clearstream_iwarp::stag::Stag;
use clearstream_iwarp::work::{Data, Operation, ReceiveRequest, Remote, Segment, Status};
use smallvec::SmallVec;

use crate::queue_pair::end::{End, everything, negotiated, request};
use crate::queue_pair::frames::{
    LAST, RDMAP, TAGGED, fpdu, send, tagged, terminate, ulpdus, untagged, write,
};
use crate::queue_pair::lifecycle::{post, statuses};

const ADDRESS: u64 = 0x1000;

/// Memory that is not owned by the memory table.
struct Foreign {
    memory: Vec<u64>,
    stag: Stag,
}

impl Foreign {
    fn new(end: &End, bytes: usize) -> Self {
        let mut memory = vec![0x1111_1111_1111_1111; bytes / 8];
        let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
        // SAFETY: owned by this struct, and accessed only after deregistration.
        let stag = unsafe {
            raw::register(&end.table, end.domain, base, bytes, ADDRESS, everything(), 0, None).unwrap()
        };
        Self { memory, stag }
    }

    fn segment(&self) -> Segment {
        let length = u32::try_from(self.memory.len() * 8).unwrap();
        Segment { stag: self.stag, address: ADDRESS, length }
    }

    /// Whether all bytes after the first `kept` are unchanged.
    fn is_untouched_behind(&self, kept: usize) -> bool {
        self.memory.iter().flat_map(|value| value.to_ne_bytes()).skip(kept).all(|byte| byte == 0x11)
    }
}

fn end() -> End {
    End::new(&negotiated(true), 1400, 4096)
}

fn receives_into(end: &mut End, foreign: &Foreign) {
    let request = ReceiveRequest { id: 5, segments: SmallVec::from_slice(&[foreign.segment()]) };
    end.receives.lock().unwrap().post(request).unwrap();
}

fn reads_into(end: &mut End, foreign: &Foreign) {
    let remote = Remote { stag: Stag(0x700), address: 0 };
    post(end, 6, Operation::Read { sink: foreign.segment(), remote, invalidate: false });
    assert_eq!(ulpdus(&end.output()).len(), 1, "the Read Request");
}

/// A complete Read Response.
fn response(foreign: &Foreign, payload: &[u8]) -> Vec<u8> {
    tagged(TAGGED | LAST, RDMAP | 2, foreign.stag.0, ADDRESS, payload)
}

/// Checks that the stream ended with this error, which quotes the header of
/// that segment.
fn ended(end: &mut End, error: [u8; 3], quoted: &[u8]) {
    let sent = ulpdus(&end.output());
    let (found, _, quotes) = terminate(sent.last().unwrap());
    assert_eq!(found, error);
    assert_eq!(quotes.get(2..).unwrap_or_default(), quoted);
    assert_eq!(end.machine.state(), State::Error);
}

#[test]
fn a_short_message_does_not_succeed_into_a_withdrawn_receive() {
    let mut end = end();
    let foreign = Foreign::new(&end, 64);
    receives_into(&mut end, &foreign);
    let stream = fpdu(&send(1, &[0xee; 64]));
    // The header and part of the payload; the rest arrives too late.
    end.input(&stream[..40]);
    end.table.deregister(foreign.stag).unwrap();
    end.input(&stream[40..]);
    // RFC 5041 defines no code for it: a local error of the receiver.
    ended(&mut end, [1, 0, 0], &[]);
    assert_eq!(statuses(&end.received), [(5, Status::LocalProtection)]);
    assert!(foreign.is_untouched_behind(20));
}

#[test]
fn a_short_read_does_not_succeed_into_a_withdrawn_sink() {
    let mut end = end();
    let foreign = Foreign::new(&end, 64);
    reads_into(&mut end, &foreign);
    let ulpdu = response(&foreign, &[0xee; 64]);
    let stream = fpdu(&ulpdu);
    end.input(&stream[..36]);
    end.table.deregister(foreign.stag).unwrap();
    end.input(&stream[36..]);
    // RFC 5041, section 7.1: a tagged segment whose tag is invalid.
    ended(&mut end, [1, 1, 0], &ulpdu[..14]);
    assert_eq!(statuses(&end.sends), [(6, Status::LocalProtection)]);
    assert!(foreign.is_untouched_behind(20));
}

#[test]
fn an_atomic_does_not_succeed_into_a_withdrawn_sink() {
    let mut end = end();
    let foreign = Foreign::new(&end, 8);
    let remote = Remote { stag: Stag(0x700), address: 0 };
    post(&mut end, 7, Operation::FetchAdd { sink: foreign.segment(), remote, add: 1, mask: 0 });
    assert_eq!(ulpdus(&end.output()).len(), 1, "the request");
    end.table.deregister(foreign.stag).unwrap();
    // RFC 7306, figure 7: the request's number, then the value.
    let mut body = 1_u32.to_be_bytes().to_vec();
    body.extend_from_slice(&[0xee; 8]);
    end.input(&fpdu(&untagged(1 | LAST, RDMAP | 11, 0, [3, 1, 0], &body)));
    ended(&mut end, [0, 0, 0], &[]);
    assert_eq!(statuses(&end.sends), [(7, Status::LocalProtection)]);
    assert!(foreign.is_untouched_behind(0));
}

/// Payload received directly into memory, after a socket call on that memory
/// failed.
#[test]
fn a_long_message_does_not_succeed_into_withdrawn_memory() {
    type Make = fn(&mut End, &Foreign) -> Vec<u8>;
    let cases: [(&str, Make, [u8; 3], usize); 3] = [
        ("Write", |_, foreign| write(foreign.stag.0, ADDRESS, &[0xee; 8192]), [1, 1, 0], 14),
        (
            "response",
            |end, foreign| {
                reads_into(end, foreign);
                response(foreign, &[0xee; 8192])
            },
            [1, 1, 0],
            14,
        ),
        (
            "Send",
            |end, foreign| {
                receives_into(end, foreign);
                send(1, &[0xee; 8192])
            },
            [1, 0, 0],
            0,
        ),
    ];
    for (name, make, error, quoted) in cases {
        for placed in [false, true] {
            let mut end = end();
            let foreign = Foreign::new(&end, 8192);
            let ulpdu = make(&mut end, &foreign);
            let stream = fpdu(&ulpdu);
            end.input(&stream[..64]);
            let (spans, _) = end.machine.straight().unwrap_or_else(|| panic!("{name}: it is lent"));
            let lent: usize = spans.iter().map(|span| span.len()).sum();
            if placed {
                // Withdrawn between the socket call and the CRC.
                spans[0].write(0, &stream[64..64 + lent]).unwrap();
                end.table.deregister(foreign.stag).unwrap();
                end.machine.placed(lent);
            } else {
                end.table.deregister(foreign.stag).unwrap();
                end.machine.receive_failed();
                assert!(end.machine.straight().is_none(), "{name}: it is lent once more");
                end.input(&stream[64..]);
                assert!(foreign.is_untouched_behind(64), "{name}");
            }
            ended(&mut end, error, &ulpdu[..quoted]);
            let of_requests = [statuses(&end.sends), statuses(&end.received)].concat();
            assert!(of_requests.iter().all(|(_, status)| *status == Status::LocalProtection), "{name}");
            assert_eq!(of_requests.len(), usize::from(name != "Write"), "{name}");
        }
    }
}

/// With CRCs payload is copied when its FPDU is built.
#[test]
fn a_send_does_not_succeed_from_withdrawn_memory() {
    const LENGTH: usize = 2 << 20;
    let mut end = end();
    let foreign = Foreign::new(&end, LENGTH);
    let data = Data::Gather(SmallVec::from_slice(&[foreign.segment()]));
    post(&mut end, 8, Operation::Send { data, solicited: false, invalidate: None });
    let mut stream = VecDeque::new();
    assert!(end.transmit(&mut stream, usize::MAX) < LENGTH, "more than one batch");
    end.table.deregister(foreign.stag).unwrap();
    let rest = end.output();
    assert_eq!(ulpdus(&rest).len(), 1, "nothing but the Terminate");
    stream.extend(rest);
    let sent = ulpdus(&Vec::from(stream));
    let (error, _, quotes) = terminate(sent.last().unwrap());
    assert_eq!((error, quotes), ([0, 0, 0], vec![]));
    let payload = sent[..sent.len() - 1].iter().flat_map(|ulpdu| &ulpdu[18..]);
    assert!(payload.clone().count() > 0);
    assert!(payload.into_iter().all(|byte| *byte == 0x11), "only what was there");
    assert_eq!(statuses(&end.sends), [(8, Status::LocalProtection)]);
}

/// Without CRCs it is sent by reference, and the socket call fails.
#[test]
fn a_socket_error_on_withdrawn_memory_fails_its_request() {
    const LENGTH: usize = 8192;
    for begun in [false, true] {
        let mut end = End::new(&Negotiated { crc: false, ..negotiated(true) }, 16384, 1 << 14);
        let foreign = Foreign::new(&end, LENGTH);
        let own = end.segment(0, LENGTH);
        for (id, segment) in [(1, own), (2, foreign.segment()), (3, own)] {
            let data = Data::Gather(SmallVec::from_slice(&[segment]));
            end.machine
                .post_send(request(id, Operation::Send { data, solicited: false, invalidate: None }))
                .unwrap();
        }
        let mut stream = VecDeque::new();
        // All of the first, and of the second at most a part of its header.
        let fpdu = 2 + 18 + LENGTH + 4;
        end.transmit(&mut stream, if begun { fpdu + 10 } else { 100 });
        end.table.deregister(foreign.stag).unwrap();
        end.machine.send_failed();
        let rest = end.output();
        let expected = if begun {
            assert!(rest.is_empty(), "nothing can follow half of an FPDU");
            assert!(end.events.contains(&Event::Failed(Failure::MemoryWithdrawn)), "{:?}", end.events);
            fpdu + 10
        } else {
            let terminate = &rest[rest.len() - 28..];
            assert_eq!(terminate[..4], [0, 22, 0x41, 0x47], "a Terminate");
            assert_eq!(terminate[20..24], [0, 0, 0, 0], "a local error that quotes nothing");
            fpdu + 28
        };
        assert_eq!(stream.len() + rest.len(), expected);
        let expected = [(1, Status::Success), (2, Status::LocalProtection), (3, Status::Flushed)];
        assert_eq!(statuses(&end.sends), expected);
        assert_eq!(end.machine.state(), State::Error);
    }
}

/// RFC 5040, section 4.8: of a partly served Read, the Terminate quotes the
/// remainder; its requester identifies its Read by that.
#[test]
fn a_partly_served_read_is_quoted_by_its_remainder() {
    const LENGTH: usize = 2 << 20;
    let mut one = End::new(&negotiated(true), 1400, LENGTH);
    let mut other = End::new(&negotiated(false), 1400, 4096);
    let foreign = Foreign::new(&other, LENGTH);
    let remote = Remote { stag: foreign.stag, address: ADDRESS };
    let (stag, address) = (one.stag, one.address(0));
    let operation = Operation::Read { sink: one.segment(0, LENGTH), remote, invalidate: false };
    post(&mut one, 9, operation);
    other.input(&one.output());
    let mut stream = VecDeque::new();
    other.transmit(&mut stream, usize::MAX);
    other.table.deregister(foreign.stag).unwrap();
    stream.extend(other.output());
    let sent = ulpdus(stream.make_contiguous());
    let (last, responses) = sent.split_last().unwrap();
    let served: usize = responses.iter().map(|ulpdu| ulpdu.len() - 14).sum();
    assert!(0 < served && served < LENGTH);
    let (error, bits, quotes) = terminate(last);
    assert_eq!((error, bits), ([0, 1, 0], 0xe0));
    let mut left = stag.0.to_be_bytes().to_vec();
    left.extend_from_slice(&(address + served as u64).to_be_bytes());
    left.extend_from_slice(&u32::try_from(LENGTH - served).unwrap().to_be_bytes());
    left.extend_from_slice(&foreign.stag.0.to_be_bytes());
    left.extend_from_slice(&(ADDRESS + served as u64).to_be_bytes());
    assert_eq!(quotes[2 + 18..], left);
    one.input(stream.make_contiguous());
    assert_eq!(statuses(&one.sends), [(9, Status::RemoteAccess)]);
}
