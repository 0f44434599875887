//! Captured connections of two Linux siw peers, an independent implementation:
//! they decode completely and re-encode byte for byte.

use std::path::PathBuf;

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{
    Deframer, Framed, Framer, Kind, Negotiated, Offer, SetupFrame, conclude, initiate, respond,
};
use clearstream_iwarp::rdmap::{Opcode, ReadRequest};
use clearstream_testkit::pcap::{Stream, streams};

use crate::wire::conversation::fpdu_padded;

/// The captured connections of MPA; the first of each file is a probe that
/// ends at once.
pub(crate) fn conversations(name: &str) -> Vec<Stream> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/iwarp").join(name);
    let mut all = streams(&path);
    all.retain(|stream| stream.sent[0].starts_with(b"MPA ID Req Frame"));
    all
}

/// Returns both setup frames and the beginning of the FPDUs.
pub(crate) fn setup_frames(stream: &Stream) -> ([SetupFrame; 2], [usize; 2]) {
    // A Request is followed by nothing until the Reply was received: as
    // captured.
    let first = stream.turns[0];
    assert_eq!(first.0, 0);
    let (request, request_bytes) =
        SetupFrame::decode(Kind::Request, &stream.sent[0][..first.1]).unwrap().unwrap();
    let (reply, reply_bytes) = SetupFrame::decode(Kind::Reply, &stream.sent[1]).unwrap().unwrap();
    ([request, reply], [request_bytes, reply_bytes])
}

/// Returns siw's offer, as far as its frames show it.
pub(crate) fn offer(frame: &SetupFrame) -> Offer {
    let enhanced = frame.enhanced.unwrap();
    Offer {
        markers: frame.markers,
        crc: frame.crc,
        large_fpdus: frame.large_fpdus,
        immediate_data: frame.immediate_data,
        revision: frame.revision,
        ird: enhanced.ird,
        ord: enhanced.ord,
        peer_to_peer: None,
        private_data: frame.private_data.clone(),
    }
}

/// Returns the negotiated parameters of either side (0: the client).
pub(crate) fn agreement(stream: &Stream) -> [Negotiated; 2] {
    let ([request, reply], _) = setup_frames(stream);
    let client = conclude(&offer(&request), &reply).unwrap();
    let (_, server) = respond(&offer(&reply), &request).unwrap();
    [client, server]
}

/// Returns the ULPDUs that one side sent, with their pads.
pub(crate) fn ulpdus(stream: &Stream, side: usize) -> Vec<(Vec<u8>, [u8; 3])> {
    let (_, begin) = setup_frames(stream);
    let mut deframer = Deframer::new(&agreement(stream)[1 - side]);
    let mut bytes = &stream.sent[side][begin[side]..];
    let mut ulpdus = vec![];
    while let Some(framed) = deframer.next(&mut bytes).unwrap() {
        match framed {
            Framed::Begin(_) => ulpdus.push((vec![], [0; 3])),
            Framed::Bytes(bytes) => ulpdus.last_mut().unwrap().0.extend_from_slice(bytes),
            Framed::End => ulpdus.last_mut().unwrap().1 = deframer.pad(),
        }
    }
    assert!(deframer.between(), "the stream ends within an FPDU");
    ulpdus
}

/// Re-encodes each side's stream from the decoded messages.
pub(crate) fn reencode(stream: &Stream, side: usize) -> (Vec<u8>, Vec<Opcode>) {
    let (frames, _) = setup_frames(stream);
    let mut framer = Framer::new(&agreement(stream)[side]);
    let mut bytes = frames[side].encode().unwrap();
    let mut seen = vec![];
    for (ulpdu, pad) in ulpdus(stream, side) {
        let (header, length) = Header::decode(&ulpdu).unwrap().unwrap();
        let opcode = Opcode::of(&header).unwrap();
        let mut payload = ulpdu[length..].to_vec();
        if opcode == Opcode::ReadRequest {
            payload = ReadRequest::decode(&payload).unwrap().encode().to_vec();
        }
        bytes.extend(fpdu_padded(&mut framer, header, &payload, pad));
        seen.push(opcode);
    }
    (bytes, seen)
}

#[test]
fn siw_conversations_decode_and_encode_byte_for_byte() {
    for (name, crc) in [("siw.pcap", false), ("siw-crc.pcap", true)] {
        let conversations = conversations(name);
        assert_eq!(conversations.len(), 7, "{name}");
        let mut operations = std::collections::BTreeMap::new();
        for stream in &conversations {
            // With `crc`, the CRC of each was also checked.
            assert_eq!(agreement(stream).map(|negotiated| negotiated.crc), [crc; 2], "{name}");
            for side in [0, 1] {
                let (bytes, opcodes) = reencode(stream, side);
                assert!(bytes == stream.sent[side], "{name} {:?} side {side}", stream.client);
                for opcode in opcodes {
                    *operations.entry(opcode as u8).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(operations.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3], "{name}");
    }
}

/// siw as initiator and as responder negotiates the same parameters as this
/// implementation does from its frames, and our Reply to its Request is
/// identical.
#[test]
fn siw_negotiates_as_we_do() {
    for name in ["siw.pcap", "siw-crc.pcap"] {
        for stream in conversations(name) {
            let ([request, reply], _) = setup_frames(&stream);
            assert_eq!(initiate(&offer(&request)), request);
            // siw serves and requests up to 128 Reads.
            let siw = Offer { ird: 128, ord: 128, ..offer(&reply) };
            let (own_reply, _) = respond(&siw, &request).unwrap();
            assert_eq!(own_reply, reply);
            let [client, server] = agreement(&stream);
            assert_eq!((client.ird, client.ord), (server.ord, server.ird));
        }
    }
}

/// Any segmentation of the stream gives the same FPDUs.
#[test]
fn siw_streams_may_come_in_any_pieces() {
    for stream in conversations("siw-crc.pcap") {
        let (_, begin) = setup_frames(&stream);
        for side in [0, 1] {
            let whole = ulpdus(&stream, side).into_iter().flat_map(|(ulpdu, _)| ulpdu).collect::<Vec<_>>();
            for piece in [1, 2, 3, 7, 64, 1448] {
                let mut deframer = Deframer::new(&agreement(&stream)[1 - side]);
                let mut came = vec![];
                for mut bytes in stream.sent[side][begin[side]..].chunks(piece) {
                    while let Some(framed) = deframer.next(&mut bytes).unwrap() {
                        if let Framed::Bytes(bytes) = framed {
                            came.extend_from_slice(bytes);
                        }
                    }
                    assert!(bytes.is_empty());
                }
                assert!(came == whole, "pieces of {piece}");
            }
        }
    }
}
