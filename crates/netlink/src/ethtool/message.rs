//! Generic netlink messages on the wire (linux/netlink.h, linux/genetlink.h):
//! a message header of 16 bytes, a generic header of 4, attributes of type,
//! length and value, each padded to 4 bytes, in the host's byte order.

use crate::refusal::Refusal;

const MESSAGE_HEADER: usize = 16;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_ACK`: success is reported, too.
const ACKNOWLEDGE: u16 = 4;
/// `NLM_F_DUMP`: all objects, in several messages.
const DUMP: u16 = 0x300;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLMSG_DONE`, the end of a dump.
const DONE: u16 = 3;
/// `NLA_F_NESTED`, and the mask that leaves the attribute's type.
const NESTED: u16 = 0x8000;
const TYPE_MASK: u16 = 0x3fff;

/// A request in wire format.
pub(crate) fn request(family: u16, command: u8, sequence: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&family.to_ne_bytes());
    out.extend_from_slice(&REQUEST.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]); // port: the kernel fills it in
    out.extend_from_slice(&[command, 1, 0, 0]); // command, version, reserved
    fill(&mut out);
    let length = u32::try_from(out.len()).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_ne_bytes());
    out
}

/// A dump request in wire format.
pub(crate) fn dump_request(
    family: u16,
    command: u8,
    sequence: u32,
    fill: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut out = request(family, command, sequence, fill);
    out[6..8].copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
    out
}

/// Adds `NLM_F_ACK` to a change: its success is reported, too, by error number 0.
pub(super) fn with_acknowledgement(mut request: Vec<u8>) -> Vec<u8> {
    request[6..8].copy_from_slice(&(REQUEST | ACKNOWLEDGE).to_ne_bytes());
    request
}

/// Appends an attribute.
pub(crate) fn put(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    nest_as(out, kind, |out| out.extend_from_slice(value));
}

/// Appends an attribute that holds attributes.
pub(crate) fn nest(out: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    nest_as(out, kind | NESTED, fill);
}

fn nest_as(out: &mut Vec<u8>, kind: u16, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&kind.to_ne_bytes());
    fill(out);
    let length = u16::try_from(out.len() - start).unwrap_or(u16::MAX);
    out[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    out.resize(out.len().next_multiple_of(4), 0);
}

/// A name with its terminating zero.
pub(crate) fn text(name: &str) -> Vec<u8> {
    name.bytes().chain([0]).collect()
}

/// Content of a datagram received for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Attributes of the reply.
    Data(Vec<u8>),
    /// Error number 0: the change was made.
    Acknowledged,
    /// The kernel refused.
    Refused(Refusal),
    /// Belongs to another request.
    NotOurs,
    /// Invalid lengths.
    Garbled,
}

/// Parses a datagram of the kernel as the reply to `request`.
pub(crate) fn reply(datagram: &[u8], request: &[u8]) -> Reply {
    let Some(sequence) = request.get(8..).and_then(|rest| rest.first_chunk()) else { return Reply::Garbled };
    let sequence = u32::from_ne_bytes(*sequence);
    let mut rest = datagram;
    while let Some(header) = rest.first_chunk::<MESSAGE_HEADER>() {
        let [a, b, c, d, e, f, _, _, g, h, i, j, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let Some(body) = rest.get(MESSAGE_HEADER..length) else { return Reply::Garbled };
        if u32::from_ne_bytes([g, h, i, j]) == sequence {
            if u16::from_ne_bytes([e, f]) == ERROR {
                return match Refusal::read(&rest[..length], request) {
                    Some(Ok(())) => Reply::Acknowledged,
                    Some(Err(refusal)) => Reply::Refused(refusal),
                    None => Reply::Garbled,
                };
            }
            return body
                .get(GENERIC_HEADER..)
                .map_or(Reply::Garbled, |attributes| Reply::Data(attributes.to_owned()));
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    if rest.is_empty() { Reply::NotOurs } else { Reply::Garbled }
}

/// Objects of a dump in a datagram; true when it was the last one. `None` for an error or invalid lengths.
pub(crate) fn dumped(datagram: &[u8], sequence: u32) -> Option<(Vec<&[u8]>, bool)> {
    let mut objects = Vec::new();
    let mut rest = datagram;
    while let Some(header) = rest.first_chunk::<MESSAGE_HEADER>() {
        let [a, b, c, d, e, f, _, _, g, h, i, j, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let body = rest.get(MESSAGE_HEADER..length)?;
        if u32::from_ne_bytes([g, h, i, j]) == sequence {
            match u16::from_ne_bytes([e, f]) {
                DONE => return Some((objects, true)),
                ERROR => return None,
                _ => objects.push(body.get(GENERIC_HEADER..)?),
            }
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some((objects, false))
}

/// The attributes in a body, type and value; ends at the first invalid one.
pub(crate) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let [a, b, c, d] = *rest.first_chunk::<ATTRIBUTE_HEADER>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & TYPE_MASK, value))
    })
}

/// A number of 1, 2 or 4 bytes.
pub(crate) fn number(value: &[u8]) -> Option<u32> {
    match *value {
        [a] => Some(u32::from(a)),
        [a, b] => Some(u32::from(u16::from_ne_bytes([a, b]))),
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip() {
        let out = request(0x15, 4, 7, |out| {
            nest(out, 1, |out| put(out, 2, &text("eth0.7")));
            put(out, 5, &40_000u32.to_ne_bytes());
        });
        assert_eq!(out.len() % 4, 0);
        let Reply::Data(body) = reply(&out, &out) else { panic!("no data in {out:?}") };
        let found: Vec<_> = attributes(&body).collect();
        assert_eq!((found[0].0, found[1].0, number(found[1].1)), (1, 5, Some(40_000)));
        assert_eq!(attributes(found[0].1).next(), Some((2, b"eth0.7\0".as_slice())));
        assert_eq!(reply(&out, &request(0x15, 4, 8, |_| ())), Reply::NotOurs);
    }

    #[test]
    fn accepts_any_bytes() {
        let out = request(2, 4, 7, |out| put(out, 1, &[0; 5]));
        for cut in 0..out.len() {
            assert_ne!(reply(&out[..cut], &out), Reply::Acknowledged);
        }
        let mut short = out.clone();
        short[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert_eq!(reply(&short, &out), Reply::Garbled);
        assert_eq!(attributes(&[0, 0, 0, 0]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0, 9]).count(), 0);
    }
}
