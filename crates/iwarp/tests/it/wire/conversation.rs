//! Helpers of several tests: hexadecimal, negotiated parameters, messages as
//! FPDUs.

use clearstream_iwarp::ddp::Header;
use clearstream_iwarp::mpa::{Framer, Negotiated};
use clearstream_iwarp::rdmap::Opcode;
use clearstream_iwarp::stag::Stag;

/// Decodes hexadecimal digits; white space is ignored.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Negotiated parameters of revision 2, the same in both directions.
pub(crate) fn negotiated(crc: bool, markers: bool) -> Negotiated {
    Negotiated {
        crc,
        markers_out: markers,
        markers_in: markers,
        large_fpdus: false,
        immediate_data: false,
        revision: 2,
        ird: 4,
        ord: 4,
        rtr: None,
        initiator: true,
    }
}

/// Frames one segment.
pub(crate) fn fpdu(framer: &mut Framer, header: Header, payload: &[u8]) -> Vec<u8> {
    fpdu_padded(framer, header, payload, [0; 3])
}

/// Like [`fpdu`], with a recorded pad.
pub(crate) fn fpdu_padded(framer: &mut Framer, header: Header, payload: &[u8], pad: [u8; 3]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (head, length) = header.encode();
    framer.begin(u16::try_from(length + payload.len()).unwrap(), &mut bytes);
    framer.bytes(&head[..length], &mut bytes);
    framer.bytes(payload, &mut bytes);
    framer.finish_padded(pad, &mut bytes);
    bytes
}

/// The header of a tagged segment.
pub(crate) fn tagged(opcode: Opcode, stag: u32, offset: u64, last: bool) -> Header {
    Header::Tagged { last, stag: Stag(stag), offset, ulp: opcode.control() }
}

/// The header of an untagged segment, in the operation's queue.
pub(crate) fn untagged(opcode: Opcode, msn: u32, offset: u32, last: bool) -> Header {
    let queue = opcode.queue().unwrap();
    Header::Untagged { last, queue, msn, offset, ulp: opcode.control(), ulp_reserved: 0 }
}
