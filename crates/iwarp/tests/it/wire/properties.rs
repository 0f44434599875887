//! Properties: everything round-trips, whatever the segmentation; framing
//! matches a second implementation, written byte by byte after the RFC's text;
//! and damaged FPDUs are not delivered.

use std::sync::LazyLock;

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{
    Deframer, Enhanced, Framed, Framer, Kind, MpaError, NOT_NEGOTIATED, Negotiated, Offer, RtrKinds,
    SetupFrame, conclude, fpdu_length, initiate, mulpdu, respond,
};
use clearstream_iwarp::rdmap::{
    AtomicOperation, AtomicRequest, AtomicResponse, ErrorCode, Opcode, ReadRequest, Terminate,
};
use clearstream_iwarp::stag::Stag;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::wire::conversation::negotiated;

/// CRC32C with a table computed bit by bit (RFC 3720, section 12.1: polynomial
/// 0x11EDC6F41, reflected; initial value all ones; complemented).
fn crc32c(bytes: &[u8]) -> u32 {
    static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
        let bit = |crc: u32, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        std::array::from_fn(|byte| (0..8).fold(byte as u32, bit))
    });
    !bytes.iter().fold(u32::MAX, |crc, byte| crc >> 8 ^ TABLE[(crc as u8 ^ byte) as usize])
}

/// Reference framing: byte by byte, checking before each whether a marker is
/// due.
fn reference_framing(ulpdus: &[Vec<u8>], crc: bool, markers: bool) -> Vec<u8> {
    let mut stream: Vec<u8> = vec![];
    for ulpdu in ulpdus {
        let mut content = (ulpdu.len() as u16).to_be_bytes().to_vec();
        content.extend_from_slice(ulpdu);
        content.resize(content.len().next_multiple_of(4), 0);
        let from = stream.len();
        let mut length_at = None;
        let marker = |stream: &mut Vec<u8>, length_at: Option<usize>| {
            if markers && stream.len().is_multiple_of(512) {
                let back = length_at.map_or(0, |at| stream.len() - at) as u16;
                stream.extend_from_slice(&[0, 0]);
                stream.extend_from_slice(&back.to_be_bytes());
            }
        };
        for byte in content {
            marker(&mut stream, length_at);
            length_at = length_at.or(Some(stream.len()));
            stream.push(byte);
        }
        marker(&mut stream, length_at);
        let crc = if crc { crc32c(&stream[from..]) } else { 0 };
        stream.extend_from_slice(&crc.to_le_bytes());
    }
    stream
}

/// Deframes a stream in the given pieces; returns the complete ULPDUs, and the
/// error that ended it early.
fn deframe(
    stream: &[u8],
    negotiated: &Negotiated,
    pieces: &[usize],
) -> (Vec<Vec<u8>>, Result<bool, MpaError>) {
    let mut deframer = Deframer::new(negotiated);
    let (mut done, mut ulpdu) = (vec![], vec![]);
    let mut rest = stream;
    for &piece in pieces.iter().chain([&stream.len()]) {
        let (mut now, later) = rest.split_at(rest.len().min(piece));
        rest = later;
        loop {
            match deframer.next(&mut now) {
                Ok(Some(Framed::Begin(_))) => ulpdu = vec![],
                Ok(Some(Framed::Bytes(bytes))) => ulpdu.extend_from_slice(bytes),
                Ok(Some(Framed::End)) => done.push(std::mem::take(&mut ulpdu)),
                Ok(None) => break,
                Err(error) => return (done, Err(error)),
            }
        }
        assert!(now.is_empty(), "all of a piece is used up");
    }
    let between = deframer.between();
    (done, Ok(between))
}

fn ulpdus() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(prop_oneof![vec(any::<u8>(), 0..80), vec(any::<u8>(), 400..1600)], 1..8)
}

proptest! {
    #[test]
    fn framing_matches_the_reference_and_decodes_in_any_pieces(
        ulpdus in ulpdus(), crc: bool, markers: bool, pieces in vec(1_usize..700, 0..40),
    ) {
        let negotiated = negotiated(crc, markers);
        let mut framer = Framer::new(&negotiated);
        let mut stream = vec![];
        for ulpdu in &ulpdus {
            framer.begin(ulpdu.len() as u16, &mut stream);
            framer.bytes(ulpdu, &mut stream);
            framer.finish(&mut stream);
        }
        prop_assert_eq!(&stream, &reference_framing(&ulpdus, crc, markers));
        prop_assert_eq!(framer.position(), stream.len() as u64);
        prop_assert_eq!(deframe(&stream, &negotiated, &pieces), (ulpdus, Ok(true)));
    }

    /// Payload by reference, or placed directly, does not change the stream.
    #[test]
    fn payload_by_reference(
        ulpdus in ulpdus(), crc: bool, markers: bool, pieces in vec(1_usize..700, 1..40),
    ) {
        let negotiated = negotiated(crc, markers);
        let mut framer = Framer::new(&negotiated);
        let mut stream = vec![];
        for ulpdu in &ulpdus {
            framer.begin(ulpdu.len() as u16, &mut stream);
            let (head, mut payload) = ulpdu.split_at(ulpdu.len().min(18));
            framer.bytes(head, &mut stream);
            while !payload.is_empty() {
                let now = framer.room(&mut stream).min(payload.len());
                if let Some(crc) = framer.crc() {
                    crc.update(&payload[..now]);
                }
                framer.passed(now);
                stream.extend_from_slice(&payload[..now]);
                payload = &payload[now..];
            }
            framer.finish(&mut stream);
        }
        prop_assert_eq!(&stream, &reference_framing(&ulpdus, crc, markers));

        let mut deframer = Deframer::new(&negotiated);
        let (mut done, mut ulpdu) = (vec![], vec![]);
        let mut rest = stream.as_slice();
        for &piece in pieces.iter().cycle() {
            let straight = deframer.straight().min(piece).min(rest.len());
            if straight > 0 {
                ulpdu.extend_from_slice(&rest[..straight]);
                if let Some(crc) = deframer.crc() {
                    crc.update(&rest[..straight]);
                }
                deframer.placed(straight);
                rest = &rest[straight..];
            }
            let (mut now, later) = rest.split_at(rest.len().min(piece));
            rest = later;
            while let Some(framed) = deframer.next(&mut now).unwrap() {
                match framed {
                    Framed::Begin(length) => {
                        ulpdu = vec![];
                        prop_assert!(deframer.missing() == fpdu_length(usize::from(length)) - 2);
                    }
                    Framed::Bytes(bytes) => ulpdu.extend_from_slice(bytes),
                    Framed::End => done.push(std::mem::take(&mut ulpdu)),
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(done, ulpdus);
        prop_assert!(deframer.between() && deframer.missing() == 0);
    }

    /// Without markers an FPDU can be written and read in one step.
    #[test]
    fn an_fpdu_in_one_step(ulpdus in ulpdus(), crc: bool, cut in 0_usize..2000) {
        let negotiated = negotiated(crc, false);
        let mut framer = Framer::new(&negotiated);
        prop_assert!(framer.is_plain());
        let mut stream = vec![];
        for ulpdu in &ulpdus {
            let from = stream.len();
            stream.extend_from_slice(&(ulpdu.len() as u16).to_be_bytes());
            stream.extend_from_slice(ulpdu);
            framer.seal(from, &mut stream);
        }
        prop_assert_eq!(&stream, &reference_framing(&ulpdus, crc, false));
        prop_assert_eq!(framer.position(), stream.len() as u64);

        // Both methods may be mixed.
        let mut deframer = Deframer::new(&negotiated);
        let (mut done, mut ulpdu) = (vec![], vec![]);
        let (mut first, mut second) = stream.split_at(cut.min(stream.len()));
        for part in [&mut first, &mut second] {
            loop {
                if let Some(whole) = deframer.whole(part).unwrap() {
                    done.push(whole.to_vec());
                    continue;
                }
                match deframer.next(part).unwrap() {
                    Some(Framed::Begin(_)) => ulpdu = vec![],
                    Some(Framed::Bytes(bytes)) => ulpdu.extend_from_slice(bytes),
                    Some(Framed::End) => done.push(std::mem::take(&mut ulpdu)),
                    None => break,
                }
            }
        }
        prop_assert_eq!(done, ulpdus);
    }

    /// A flipped bit never changes what is delivered: CRC or marker detect it,
    /// or the length makes the stream wait for bytes that never arrive.
    #[test]
    fn damage_is_not_delivered(ulpdus in ulpdus(), markers: bool, at: prop::sample::Index, bit in 0_u8..8) {
        let negotiated = negotiated(true, markers);
        let mut stream = reference_framing(&ulpdus, true, markers);
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let (done, end) = deframe(&stream, &negotiated, &[]);
        prop_assert!(done.len() < ulpdus.len());
        prop_assert_eq!(&done[..], &ulpdus[..done.len()]);
        prop_assert!(end != Ok(true));
        let mut deframer = Deframer::new(&negotiated);
        let mut rest = stream.as_slice();
        let mut whole = 0;
        while let Ok(Some(ulpdu)) = deframer.whole(&mut rest) {
            prop_assert_eq!(ulpdu, &ulpdus[whole]);
            whole += 1;
        }
        prop_assert!(whole < ulpdus.len());
    }

    /// Arbitrary input: no panic, everything consumed or rejected.
    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..3000), crc: bool, markers: bool, pieces in vec(1_usize..99, 0..9)) {
        let _ = deframe(&bytes, &negotiated(crc, markers), &pieces);
        let _ = Header::decode(&bytes);
        let _ = Terminate::decode(&bytes);
        for kind in [Kind::Request, Kind::Reply] {
            let mut frame = if kind == Kind::Request { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" }.to_vec();
            frame.extend_from_slice(&bytes);
            if let Ok(Some((decoded, length))) = SetupFrame::decode(kind, &frame) {
                // The reserved bits, and in revision 0 and 1 bit S, are not
                // preserved.
                let flags = if decoded.revision >= 2 { 0xfa } else { 0xea };
                let flags = if kind == Kind::Reply { flags | 0x04 } else { flags };
                frame.truncate(length);
                frame[16] &= flags;
                prop_assert_eq!(decoded.encode().unwrap(), frame);
            }
        }
    }

    #[test]
    fn setup_frames_round_trip(frame in setup_frame(), behind in vec(any::<u8>(), 0..9)) {
        let mut bytes = frame.encode().unwrap();
        let length = bytes.len();
        for cut in 0..length {
            prop_assert_eq!(SetupFrame::decode(frame.kind, &bytes[..cut]), Ok(None));
        }
        if frame.kind == Kind::Reply {
            bytes.extend_from_slice(&behind);
        }
        prop_assert_eq!(SetupFrame::decode(frame.kind, &bytes), Ok(Some((frame, length))));
    }

    /// Whatever two sides offer, they negotiate the same parameters.
    #[test]
    fn both_sides_negotiate_the_same(ours in offer(1..=2), theirs in offer(2..=2)) {
        let (reply, server) = respond(&theirs, &initiate(&ours)).unwrap();
        let client = match conclude(&ours, &reply) {
            Ok(client) => client,
            Err(error) => {
                let common = |a: RtrKinds, b: RtrKinds| a.send && b.send || a.write && b.write || a.read && b.read;
                let none = ours.peer_to_peer.zip(theirs.peer_to_peer).is_some_and(|(a, b)| !common(a, b));
                prop_assert!(error == MpaError::NoMatchingRtr && none, "{error}");
                return Ok(());
            }
        };
        prop_assert_eq!(client.crc, server.crc);
        prop_assert_eq!(client.crc, ours.crc || theirs.crc);
        prop_assert_eq!((client.markers_in, client.markers_out), (server.markers_out, server.markers_in));
        prop_assert_eq!((client.revision, client.rtr), (server.revision, server.rtr));
        prop_assert_eq!((client.initiator, server.initiator), (true, false));
        prop_assert!(client.ird <= ours.ird && client.ord <= ours.ord);
        prop_assert!(server.ird <= theirs.ird && server.ord <= theirs.ord);
        if ours.revision == 2 && ![ours.ird, ours.ord].contains(&NOT_NEGOTIATED) {
            prop_assert!(client.ord <= server.ird && server.ord <= client.ird);
        }
    }

    #[test]
    fn ddp_and_rdmap_headers_round_trip(
        last: bool, fields: [u32; 4], long: [u64; 5], ulp: u8, tagged: bool, swap: bool,
    ) {
        let header = if tagged {
            Header::Tagged { last, stag: Stag(fields[0]), offset: long[0], ulp }
        } else {
            let [queue, msn, offset, ulp_reserved] = fields;
            Header::Untagged { last, queue, msn, offset, ulp, ulp_reserved }
        };
        let (bytes, length) = header.encode();
        prop_assert_eq!(Header::decode(&bytes[..length]), Ok(Some((header, length))));

        let [sink_offset, source_offset, ..] = long;
        let (sink, source, length) = (Stag(fields[0]), Stag(fields[1]), fields[2]);
        let read = ReadRequest { sink, sink_offset, length, source, source_offset };
        prop_assert_eq!(ReadRequest::decode(&read.encode()), Ok(read));
        let [offset, a, b, c, d] = long;
        let operation = if swap {
            AtomicOperation::CompareSwap { swap: a, swap_mask: b, compare: c, compare_mask: d }
        } else {
            AtomicOperation::FetchAdd { add: a, mask: b }
        };
        let atomic = AtomicRequest { operation, request: fields[3], stag: source, offset };
        prop_assert_eq!(AtomicRequest::decode(&atomic.encode()), Ok(atomic));
        let response = AtomicResponse { request: fields[3], original: a };
        prop_assert_eq!(AtomicResponse::decode(&response.encode()), Ok(response));
    }

    #[test]
    fn terminates_round_trip(error in error(), ulpdu: u16, tagged: bool, quoted in vec(any::<u8>(), 52)) {
        let (header, request) = if tagged {
            (Header::Tagged { last: true, stag: Stag(1), offset: 2, ulp: Opcode::Write.control() }, vec![])
        } else {
            let ulp = Opcode::ReadRequest.control();
            let header = Header::Untagged { last: true, queue: 1, msn: 1, offset: 0, ulp, ulp_reserved: 0 };
            (header, quoted[..28].to_vec())
        };
        let (ddp, length) = header.encode();
        let terminate = Terminate::about(error, ulpdu, &ddp[..length], &request);
        prop_assert_eq!(Terminate::decode(&terminate.encode()), Ok(terminate));
    }

    /// RFC 5044, section 4.5: an FPDU of that size fits in a segment at any
    /// stream position, and four bytes more would not always.
    #[test]
    fn mulpdu_is_the_largest_that_always_fits(mss in 300_usize..9000, quarter in 0_usize..128) {
        for markers in [false, true] {
            let ulpdu = vec![0; mulpdu(mss, markers)];
            let before = vec![0; quarter * 4];
            let both = [before, ulpdu];
            let alone = reference_framing(&both[..1], false, markers).len();
            prop_assert!(reference_framing(&both, false, markers).len() - alone <= mss);
        }
        prop_assert!(fpdu_length(mulpdu(mss, false) + 4) > mss);
    }
}

/// A defined error, or one with quoted headers. (An undefined one without
/// quoted headers may be decoded in siw's layout.)
fn error() -> impl Strategy<Value = ErrorCode> {
    let numbers = (0_u8..2, 1_u8..16, any::<u8>());
    let numbered = numbers.prop_map(|(layer, kind, code)| ErrorCode::from_numbers([layer, kind, code]));
    prop_oneof![prop::sample::select(ErrorCode::all().collect::<Vec<_>>()), numbered]
}

fn setup_frame() -> impl Strategy<Value = SetupFrame> {
    let enhanced = (0..=NOT_NEGOTIATED, 0..=NOT_NEGOTIATED, any::<[bool; 4]>()).prop_map(
        |(ird, ord, [peer_to_peer, rtr_send, rtr_write, rtr_read])| Enhanced {
            ird,
            ord,
            peer_to_peer,
            rtr_send,
            rtr_write,
            rtr_read,
        },
    );
    let fields = prop_oneof![
        (0_u8..=1).prop_map(|revision| (revision, None)),
        enhanced.prop_map(|fields| (2, Some(fields)))
    ];
    (any::<[bool; 7]>(), fields, vec(any::<u8>(), 0..=508)).prop_map(
        |(
            [request, markers, crc, reject, large_fpdus, ready, immediate_data],
            (revision, enhanced),
            private_data,
        )| {
            SetupFrame {
                kind: if request { Kind::Request } else { Kind::Reply },
                markers,
                crc,
                reject,
                large_fpdus,
                // Of a Reply only.
                ready: ready && !request,
                immediate_data,
                revision,
                enhanced,
                private_data,
            }
        },
    )
}

fn offer(revision: std::ops::RangeInclusive<u8>) -> impl Strategy<Value = Offer> {
    let reads = prop_oneof![0_u16..200, Just(NOT_NEGOTIATED)];
    let kinds =
        prop::option::of(any::<[bool; 3]>().prop_map(|[send, write, read]| RtrKinds { send, write, read }));
    (any::<[bool; 4]>(), revision, reads.clone(), reads, kinds).prop_map(
        |([markers, crc, large_fpdus, immediate_data], revision, ird, ord, peer_to_peer)| Offer {
            markers,
            crc,
            large_fpdus,
            immediate_data,
            revision,
            ird,
            ord,
            peer_to_peer,
            private_data: vec![],
        },
    )
}
