//! Every protocol error of a peer: the right Terminate, once, with the right
//! headers quoted; memory unchanged; all requests flushed.

use clearstream_iwarp::memory::Access;
use clearstream_iwarp::mpa::Negotiated;
use clearstream_iwarp::queue_pair::{Event, PostError, State};
use clearstream_iwarp::stag::{QueuePairId, Stag};
use clearstream_iwarp::work::{Operation, Remote, Status};

use crate::queue_pair::end::{End, everything, inline, negotiated, request};
use crate::queue_pair::frames::{
    LAST, RDMAP, TAGGED, UNTAGGED, atomic, fetch_add_body, fpdu, read, read_body, send, tagged, terminate,
    ulpdus, untagged, write,
};

const REGION: usize = 16 << 10;
/// Range of the window.
const WINDOW: std::ops::Range<usize> = 1024..2048;
/// The only receive.
const RECEIVE: std::ops::Range<usize> = 4096..4196;
/// Sink of the only Read.
const SINK: std::ops::Range<usize> = 8192..8292;

/// Endpoint under test: one receive of 100 bytes, one outstanding Read of 100
/// bytes, IRD 2.
struct Victim {
    end: End,
    /// Window of its own.
    window: Stag,
    /// Window of another queue pair.
    window_of_another: Stag,
    /// A region without any remote right.
    local_only: Stag,
    /// A region of another protection domain.
    foreign: Stag,
}

fn victim_with(negotiated: &Negotiated) -> Victim {
    let mut end = End::new(negotiated, 1400, REGION);
    end.region.write(0, &[0xc5; REGION]);
    let table = end.table.clone();
    let window = bound(&end, QueuePairId(7));
    let window_of_another = bound(&end, QueuePairId(8));
    let local_only = table.register(end.domain, end.region.memory(), Access::LOCAL_WRITE, 1).unwrap();
    let other_domain = table.allocate_domain();
    let foreign = table.register(other_domain, end.region.memory(), everything(), 2).unwrap();
    end.post_receive(50, RECEIVE.start, RECEIVE.len());
    let (sink, remote) = (end.segment(SINK.start, SINK.len()), Remote { stag: Stag(0x700), address: 0 });
    end.machine.post_send(request(60, Operation::Read { sink, remote, invalidate: false })).unwrap();
    assert_eq!(ulpdus(&end.output()).len(), 1, "the Read Request");
    Victim { end, window, window_of_another, local_only, foreign }
}

fn victim() -> Victim {
    victim_with(&Negotiated { ird: 2, ..negotiated(true) })
}

fn bound(end: &End, queue_pair: QueuePairId) -> Stag {
    let window = end.table.allocate_window(end.domain).unwrap();
    let memory = end.segment(WINDOW.start, WINDOW.len());
    let access = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    end.table.bind_window(queue_pair, end.domain, window, memory, access).unwrap()
}

/// Expected quote of the faulty ULPDU.
enum Quote {
    Nothing,
    Header,
    Request,
}

impl Victim {
    /// Feeds the faulty stream in two pieces, and checks all effects.
    /// `statuses`: of the Read and of the receive.
    fn errs(mut self, name: &str, stream: &[u8], error: [u8; 3], quote: &Quote, last: &[u8]) -> End {
        let before = self.end.all();
        let (first, rest) = stream.split_at(stream.len() / 2);
        self.end.input(first);
        self.end.input(rest);
        let sent = ulpdus(&self.end.output());
        let (found, bits, quoted) = terminate(sent.last().unwrap_or_else(|| panic!("{name}: no Terminate")));
        assert_eq!(found, error, "{name}");
        let mut expected = u16::try_from(last.len()).unwrap().to_be_bytes().to_vec();
        let header = if last.first().is_some_and(|control| control & 0x80 != 0) { 14 } else { 18 };
        let bits_expected = match quote {
            Quote::Nothing => {
                expected.clear();
                0
            }
            Quote::Header => {
                expected.extend_from_slice(&last[..header]);
                0xc0
            }
            Quote::Request => {
                expected.extend_from_slice(last);
                0xe0
            }
        };
        assert_eq!(bits, bits_expected, "{name}: quote bits of the Terminate");
        assert_eq!(quoted, expected, "{name}: quoted headers of the Terminate");
        self.over(name, &before)
    }

    fn over(mut self, name: &str, before: &[u8]) -> End {
        let end = &mut self.end;
        assert!(end.machine.wants_close(), "{name}");
        assert_eq!(end.machine.state(), State::Error, "{name}");
        assert!(matches!(end.events[..], [Event::TerminateSent(_)]), "{name}: {:?}", end.events);
        let wrong = end.all().iter().zip(before).position(|(is, was)| is != was);
        assert_eq!(wrong, None, "{name}: memory was changed");
        assert_eq!(end.sends.len(), 1, "{name}: the Read was completed");
        assert_eq!(end.received.last().unwrap().id, 50, "{name}: the receive was completed");
        assert_ne!(end.received.last().unwrap().status, Status::Success, "{name}");
        // Nothing is received or sent any more.
        end.input(&fpdu(&write(self.window.0, end.address(WINDOW.start), &[1; 8])));
        assert!(end.output().is_empty(), "{name}: a second message after the Terminate");
        assert_eq!(end.all(), before, "{name}: a Write after the Terminate");
        let refused =
            end.machine.post_send(request(1, Operation::Immediate { data: [0; 8], solicited: false }));
        assert_eq!(refused, Err(PostError::NotConnected), "{name}");
        self.end
    }
}

/// One faulty ULPDU in a correct FPDU.
fn wrong(name: &str, ulpdu: &[u8], error: [u8; 3], quote: &Quote) -> End {
    victim().errs(name, &fpdu(ulpdu), error, quote, ulpdu)
}

#[test]
fn a_write_that_may_not_be_placed_ends_the_stream() {
    type Make = fn(&Victim) -> (u32, u64, usize);
    let cases: [(&str, Make, [u8; 3]); 10] = [
        ("key", |v| (v.window.0 ^ 1, v.end.address(WINDOW.start), 8), [1, 1, 0]),
        ("index", |v| (0x00ff_ff00, v.end.address(WINDOW.start), 8), [1, 1, 0]),
        ("zero", |v| (0, v.end.address(WINDOW.start), 8), [1, 1, 0]),
        ("before", |v| (v.window.0, v.end.address(WINDOW.start - 1), 8), [1, 1, 1]),
        ("behind", |v| (v.window.0, v.end.address(WINDOW.end - 7), 8), [1, 1, 1]),
        ("far", |v| (v.window.0, 1, 8), [1, 1, 1]),
        ("domain", |v| (v.foreign.0, v.end.address(WINDOW.start), 8), [1, 1, 2]),
        ("queue pair", |v| (v.window_of_another.0, v.end.address(WINDOW.start), 8), [1, 1, 2]),
        ("wrap", |v| (v.window.0, u64::MAX - 3, 8), [1, 1, 3]),
        ("rights", |v| (v.local_only.0, v.end.address(WINDOW.start), 8), [0, 1, 2]),
    ];
    for (name, make, error) in cases {
        let victim = victim();
        let (stag, offset, length) = make(&victim);
        let ulpdu = write(stag, offset, &vec![0xee; length]);
        victim.errs(name, &fpdu(&ulpdu), error, &Quote::Header, &ulpdu);
    }
}

#[test]
fn a_long_write_past_the_end_does_not_overwrite_what_follows() {
    let victim = victim();
    let ulpdu = write(victim.window.0, victim.end.address(WINDOW.start), &[0xee; 1025]);
    victim.errs("too long", &fpdu(&ulpdu), [1, 1, 1], &Quote::Header, &ulpdu);
}

#[test]
fn an_empty_write_needs_no_tag() {
    let mut victim = victim();
    victim.end.input(&fpdu(&write(0xdead_beef, 3, &[])));
    assert_eq!(victim.end.machine.state(), State::Rts);
}

#[test]
fn headers_of_another_version_end_the_stream() {
    let payload = [0; 8];
    let of = |ddp: u8, rdmap: u8| untagged(ddp | LAST, rdmap, 0, [0, 1, 0], &payload);
    wrong("DDP untagged", &of(0x02, RDMAP | 3), [1, 2, 6], &Quote::Header);
    wrong("DDP untagged 0", &of(0x00, RDMAP | 3), [1, 2, 6], &Quote::Header);
    wrong("DDP tagged", &tagged(0x82 | LAST, RDMAP, 1, 0, &payload), [1, 1, 4], &Quote::Header);
    wrong("RDMAP 0", &of(UNTAGGED, 3), [0, 2, 5], &Quote::Header);
    wrong("RDMAP 2", &of(UNTAGGED, 0x80 | 3), [0, 2, 5], &Quote::Header);
}

#[test]
fn operations_in_the_wrong_place_end_the_stream() {
    let body = [0; 8];
    for opcode in 12..16 {
        wrong(
            "unknown",
            &untagged(UNTAGGED | LAST, RDMAP | opcode, 0, [0, 1, 0], &body),
            [0, 2, 6],
            &Quote::Header,
        );
    }
    for opcode in [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] {
        wrong("tagged", &tagged(TAGGED | LAST, RDMAP | opcode, 1, 0, &body), [0, 2, 6], &Quote::Header);
    }
    for (opcode, queue) in [(0, 0), (2, 0), (3, 1), (1, 0), (7, 0), (3, 2), (10, 0), (11, 1), (8, 1)] {
        let ulpdu = untagged(UNTAGGED | LAST, RDMAP | opcode, 0, [queue, 1, 0], &body);
        wrong("queue", &ulpdu, [0, 2, 6], &Quote::Header);
    }
    // Without a request.
    let ulpdu = untagged(UNTAGGED | LAST, RDMAP | 11, 0, [3, 1, 0], &[0; 12]);
    wrong("atomic response", &ulpdu, [0, 2, 6], &Quote::Header);
}

#[test]
fn queues_numbers_and_offsets_are_checked() {
    let body = [0xee; 8];
    let of = |numbers| untagged(UNTAGGED | LAST, RDMAP | 3, 0, numbers, &body);
    for queue in [4, 5, u32::MAX] {
        wrong("queue", &of([queue, 1, 0]), [1, 2, 1], &Quote::Header);
    }
    for msn in [0, 2, u32::MAX] {
        wrong("number", &of([0, msn, 0]), [1, 2, 3], &Quote::Header);
    }
    for offset in [101, u32::MAX] {
        wrong("offset", &of([0, 1, offset]), [1, 2, 4], &Quote::Header);
    }
    for offset in [93, 100] {
        let end = wrong("too long", &of([0, 1, offset]), [1, 2, 5], &Quote::Header);
        assert_eq!(end.received[0].status, Status::LocalLength);
    }
    wrong("request number", &read(2, &[0; 28]), [1, 2, 3], &Quote::Header);
    wrong(
        "terminate number",
        &untagged(UNTAGGED | LAST, RDMAP | 7, 0, [2, 2, 0], &[0; 4]),
        [1, 2, 3],
        &Quote::Header,
    );
    wrong(
        "request offset",
        &untagged(UNTAGGED | LAST, RDMAP | 1, 0, [1, 1, 4], &[0; 28]),
        [1, 2, 4],
        &Quote::Header,
    );
    wrong("request too long", &read(1, &[0; 29]), [1, 2, 5], &Quote::Header);
    wrong(
        "immediate data in pieces",
        &untagged(UNTAGGED, RDMAP | 8, 0, [0, 1, 0], &body),
        [0, 2, 0xff],
        &Quote::Header,
    );
}

#[test]
fn a_message_longer_than_the_receive_fills_it_and_no_more() {
    let victim = victim();
    let ulpdu = send(1, &[0xee; 101]);
    let end = victim.errs("too long", &fpdu(&ulpdu), [1, 2, 5], &Quote::Header, &ulpdu);
    assert_eq!(end.received[0].status, Status::LocalLength);
}

#[test]
fn a_message_without_a_receive_ends_the_stream() {
    for ulpdu in [send(2, &[1; 8]), untagged(UNTAGGED | LAST, RDMAP | 8, 0, [0, 1, 0], &[7; 8])] {
        let mut end = End::new(&negotiated(true), 1400, REGION);
        let mut number = 1;
        if ulpdu[13] == 2 {
            end.post_receive(1, 0, 8);
            end.input(&fpdu(&send(1, &[1; 8])));
            number = 2;
        }
        end.input(&fpdu(&ulpdu));
        let (error, _, quoted) = terminate(&ulpdus(&end.output())[0]);
        assert_eq!(error, [1, 2, 2], "no buffer for message {number}");
        assert_eq!(quoted[2..], ulpdu[..18]);
    }
}

#[test]
fn sources_of_reads_are_checked_and_the_request_is_quoted() {
    type Make = fn(&Victim) -> (u32, u64, u32);
    let cases: [(&str, Make, [u8; 3]); 7] = [
        ("tag", |v| (v.window.0 ^ 1, v.end.address(WINDOW.start), 8), [0, 1, 0]),
        ("behind", |v| (v.window.0, v.end.address(WINDOW.start), 1025), [0, 1, 1]),
        ("huge", |v| (v.window.0, v.end.address(WINDOW.start), u32::MAX), [0, 1, 1]),
        ("rights", |v| (v.local_only.0, v.end.address(WINDOW.start), 8), [0, 1, 2]),
        ("domain", |v| (v.foreign.0, v.end.address(WINDOW.start), 8), [0, 1, 3]),
        ("queue pair", |v| (v.window_of_another.0, v.end.address(WINDOW.start), 8), [0, 1, 3]),
        ("wrap", |v| (v.window.0, u64::MAX, 2), [0, 1, 4]),
    ];
    for (name, make, error) in cases {
        let victim = victim();
        let (stag, offset, length) = make(&victim);
        let ulpdu = read(1, &read_body((9, 9), length, (stag, offset)));
        victim.errs(name, &fpdu(&ulpdu), error, &Quote::Request, &ulpdu);
    }
}

#[test]
fn targets_of_atomics_are_checked() {
    type Make = fn(&Victim) -> (u32, u64);
    let cases: [(&str, Make, [u8; 3]); 4] = [
        ("tag", |v| (v.window.0 ^ 1, v.end.address(WINDOW.start)), [0, 1, 0]),
        ("behind", |v| (v.window.0, v.end.address(WINDOW.end)), [0, 1, 1]),
        ("rights", |v| (v.local_only.0, v.end.address(WINDOW.start)), [0, 1, 2]),
        ("domain", |v| (v.foreign.0, v.end.address(WINDOW.start)), [0, 1, 3]),
    ];
    for (name, make, error) in cases {
        let victim = victim();
        let (stag, offset) = make(&victim);
        let ulpdu = atomic(1, &fetch_add_body(77, stag, offset));
        // RFC 7306, section 8.1: the DDP header, and no RDMA header.
        victim.errs(name, &fpdu(&ulpdu), error, &Quote::Header, &ulpdu);
    }
    // RFC 7306, section 8.2, and RFC 5040, figures 9 and 10.
    let victim = victim();
    let ulpdu = atomic(1, &fetch_add_body(77, victim.window.0, victim.end.address(WINDOW.start + 4)));
    victim.errs("misaligned", &fpdu(&ulpdu), [0, 2, 7], &Quote::Header, &ulpdu);
    // RFC 7306, section 5.2.1, rule 4: an undefined operation.
    let victim = self::victim();
    let mut body = fetch_add_body(77, victim.window.0, victim.end.address(WINDOW.start));
    body[3] = 1;
    let ulpdu = atomic(1, &body);
    victim.errs("unknown", &fpdu(&ulpdu), [0, 2, 6], &Quote::Header, &ulpdu);
}

#[test]
fn more_requests_than_negotiated_end_the_stream() {
    let victim = victim();
    let body = read_body((9, 9), 8, (victim.window.0, victim.end.address(WINDOW.start)));
    let last = read(3, &body);
    let stream = [fpdu(&read(1, &body)), fpdu(&read(2, &body)), fpdu(&last)].concat();
    victim.errs("IRD", &stream, [1, 2, 2], &Quote::Header, &last);
}

#[test]
fn tags_that_may_not_be_invalidated_stay_valid() {
    type Make = fn(&Victim) -> Stag;
    let cases: [(&str, Make, u8); 4] = [
        ("unknown", |_| Stag(0x00ff_ff00), 0),
        // RFC 5040, section 5.3: "STag Cannot be Invalidated", if it "is not
        // associated with the RDMAP Stream".
        ("domain", |v| v.foreign, 9),
        ("queue pair", |v| v.window_of_another, 9),
        ("windows are bound to it", |v| v.end.stag, 9),
    ];
    for (name, make, code) in cases {
        let mut victim = victim();
        let stag = make(&victim);
        victim.end.post_receive(50, RECEIVE.start, RECEIVE.len());
        let ulpdu = untagged(UNTAGGED | LAST, RDMAP | 4, stag.0, [0, 1, 0], &[]);
        let end = victim.errs(name, &fpdu(&ulpdu), [0, 1, code], &Quote::Header, &ulpdu);
        if code != 0 {
            assert!(end.table.registration(stag).is_some_and(|found| found.valid), "{name}");
        }
    }
}

#[test]
fn responses_are_placed_only_into_the_sink() {
    let response = |ddp: u8, stag: Stag, offset: u64, length: usize| {
        tagged(ddp, RDMAP | 2, stag.0, offset, &vec![0xee; length])
    };
    type Make = fn(&Victim) -> (u8, Stag, u64, usize);
    let cases: [(&str, Make, [u8; 3]); 6] = [
        ("other tag", |v| (TAGGED | LAST, v.window, v.end.address(SINK.start), 100), [1, 1, 0]),
        ("before", |v| (TAGGED | LAST, v.end.stag, v.end.address(SINK.start - 1), 100), [1, 1, 1]),
        ("behind", |v| (TAGGED | LAST, v.end.stag, v.end.address(SINK.start + 1), 100), [1, 1, 1]),
        ("too long", |v| (TAGGED | LAST, v.end.stag, v.end.address(SINK.start), 101), [1, 1, 1]),
        ("too short", |v| (TAGGED | LAST, v.end.stag, v.end.address(SINK.start), 99), [1, 1, 1]),
        ("wrap", |v| (TAGGED, v.end.stag, u64::MAX, 8), [1, 1, 1]),
    ];
    for (name, make, error) in cases {
        let victim = victim();
        let (ddp, stag, offset, length) = make(&victim);
        let ulpdu = response(ddp, stag, offset, length);
        victim.errs(name, &fpdu(&ulpdu), error, &Quote::Header, &ulpdu);
    }
    // The right one is accepted, a second one was not requested.
    let mut victim = victim();
    let ulpdu = response(TAGGED | LAST, victim.end.stag, victim.end.address(SINK.start), 100);
    victim.end.input(&fpdu(&ulpdu));
    assert_eq!(victim.end.sends[0].status, Status::Success);
    assert_eq!(victim.end.region.to_vec(SINK.start, 100), [0xee; 100]);
    victim.errs("second", &fpdu(&ulpdu), [0, 2, 6], &Quote::Header, &ulpdu);
}

#[test]
fn a_wrong_crc_is_reported_without_a_quote() {
    let victim = victim();
    let ulpdu = send(1, &[1; 8]);
    for bit in [0, 20, 150, 200, 230] {
        let victim = self::victim();
        let mut stream = fpdu(&ulpdu);
        stream[2 + bit / 8] ^= 1 << (bit % 8);
        let mut end = victim.end;
        end.input(&stream);
        let (error, bits, _) = terminate(&ulpdus(&end.output())[0]);
        assert_eq!((error, bits), ([2, 0, 2], 0), "bit {bit}");
        assert_eq!(end.received[0].status, Status::Flushed);
    }
    // Also when the preceding header was wrong: the CRC error takes precedence.
    let wrong = write(0, 0, &[1; 8]);
    let mut stream = fpdu(&wrong);
    *stream.last_mut().unwrap() ^= 1;
    victim.errs("CRC of a wrong header", &stream, [2, 0, 2], &Quote::Nothing, &wrong);
}

#[test]
fn without_crcs_the_field_is_not_checked() {
    let mut end = End::new(&Negotiated { crc: false, ..negotiated(true) }, 1400, REGION);
    end.post_receive(1, 0, 8);
    let mut stream = fpdu(&send(1, &[9; 8]));
    *stream.last_mut().unwrap() ^= 1;
    end.input(&stream);
    assert_eq!(end.received[0].status, Status::Success);
    // And is sent as zeros (RFC 5044, section 4.4).
    let data = inline(&[1; 8]);
    end.machine.post_send(request(1, Operation::Send { data, solicited: false, invalidate: None })).unwrap();
    let sent = end.output();
    assert_eq!(sent[sent.len() - 4..], [0; 4]);
}

#[test]
fn a_ulpdu_shorter_than_its_header_ends_the_stream() {
    for ulpdu in
        [&[][..], &[UNTAGGED | LAST], &[TAGGED | LAST, RDMAP, 0, 0], &[UNTAGGED | LAST, RDMAP | 3, 0]]
    {
        let victim = victim();
        victim.errs("short", &fpdu(ulpdu), [2, 0, 3], &Quote::Nothing, ulpdu);
    }
}

#[test]
fn a_marker_that_points_elsewhere_ends_the_stream() {
    let victim = victim_with(&Negotiated { markers_in: true, ird: 2, ..negotiated(true) });
    // The stream begins with a marker; it points to the FPDU after it.
    let mut stream = vec![0, 0, 0, 4];
    stream.extend_from_slice(&fpdu(&send(1, &[1; 8])));
    victim.errs("marker", &stream, [2, 0, 3], &Quote::Nothing, &[]);

    // RFC 5044, section 4.2: "receivers MUST always treat these as zero", the
    // lowest two bits; and the reserved half is ignored.
    let mut end = End::new(&Negotiated { markers_in: true, crc: false, ..negotiated(true) }, 1400, REGION);
    end.post_receive(1, 0, 8);
    let mut stream = vec![0xff, 0xff, 0, 3];
    stream.extend_from_slice(&fpdu(&send(1, &[1; 8])));
    end.input(&stream);
    assert_eq!(end.received[0].status, Status::Success);
}
