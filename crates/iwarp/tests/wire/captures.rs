//! Conversations of two Linux siw peers, which nobody here wrote: they decode
//! completely and re-encode byte for byte.

use std::path::PathBuf;

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{
    Agreed, Deframer, Framed, Framer, Kind, Offer, SetupFrame, conclude, initiate, respond,
};
use clearstream_iwarp::rdmap::{Opcode, ReadRequest};
use clearstream_testkit::pcap::{Stream, streams};

use crate::conversation::fpdu_padded;

/// The captured connections of MPA; the first of each file is a probe that
/// ends at once.
pub(crate) fn conversations(name: &str) -> Vec<Stream> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/iwarp").join(name);
    let mut all = streams(&path);
    all.retain(|stream| stream.sent[0].starts_with(b"MPA ID Req Frame"));
    all
}

/// Both set-up frames and where the FPDUs begin.
pub(crate) fn setup_frames(stream: &Stream) -> ([SetupFrame; 2], [usize; 2]) {
    // A Request is followed by nothing until the Reply is there: as it came.
    let first = stream.turns[0];
    assert_eq!(first.0, 0);
    let (request, request_bytes) =
        SetupFrame::decode(Kind::Request, &stream.sent[0][..first.1]).unwrap().unwrap();
    let (reply, reply_bytes) = SetupFrame::decode(Kind::Reply, &stream.sent[1]).unwrap().unwrap();
    ([request, reply], [request_bytes, reply_bytes])
}

/// What siw brings to a set-up, as far as its frames show it.
pub(crate) fn offer(frame: &SetupFrame) -> Offer {
    let enhanced = frame.enhanced.unwrap();
    Offer {
        markers: frame.markers,
        crc: frame.crc,
        large_fpdus: frame.large_fpdus,
        revision: frame.revision,
        ird: enhanced.ird,
        ord: enhanced.ord,
        peer_to_peer: None,
        private_data: frame.private_data.clone(),
    }
}

/// The agreement as either side (0: the client) has it.
pub(crate) fn agreement(stream: &Stream) -> [Agreed; 2] {
    let ([request, reply], _) = setup_frames(stream);
    let client = conclude(&offer(&request), &reply).unwrap();
    let (_, server) = respond(&offer(&reply), &request).unwrap();
    [client, server]
}

/// The ULPDUs that one side sent, with the pads behind them.
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

/// Each side's stream made again, from nothing but what was decoded.
pub(crate) fn encode_again(stream: &Stream, side: usize) -> (Vec<u8>, Vec<Opcode>) {
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
            // With `crc`, every one of them was also checked on the way.
            assert_eq!(agreement(stream).map(|agreed| agreed.crc), [crc; 2], "{name}");
            for side in [0, 1] {
                let (bytes, opcodes) = encode_again(stream, side);
                assert!(bytes == stream.sent[side], "{name} {:?} side {side}", stream.client);
                for opcode in opcodes {
                    *operations.entry(opcode as u8).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(operations.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3], "{name}");
    }
}

/// siw as initiator and as responder came to the same agreement as we do from
/// its frames, and our answer to its Request is its own.
#[test]
fn siw_negotiates_as_we_do() {
    for name in ["siw.pcap", "siw-crc.pcap"] {
        for stream in conversations(name) {
            let ([request, reply], _) = setup_frames(&stream);
            assert_eq!(initiate(&offer(&request)), request);
            // siw serves and asks for up to 128 Reads.
            let siw = Offer { ird: 128, ord: 128, ..offer(&reply) };
            let (answer, _) = respond(&siw, &request).unwrap();
            assert_eq!(answer, reply);
            let [client, server] = agreement(&stream);
            assert_eq!((client.ird, client.ord), (server.ord, server.ird));
        }
    }
}

/// Any cut of the stream gives the same FPDUs.
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
