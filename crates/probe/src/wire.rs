//! Wire format of probes and replies: one fixed header in network byte order, padded to the requested size.
//!
//! ```text
//!  0 magic "CSPR"        24 sequence          u32   40 size   u32
//!  4 version  u8         28 probes seen       u32   44 padding ...
//!  5 kind     u8         32 turnaround in ns  u64
//!  6 time-to-live sent with, 7 time-to-live arrived with
//!  8 cookie   16 bytes
//! ```
//!
//! A responder fills in `seen`, `turnaround_ns` and `arrived_time_to_live`, as a stateful reflector of RFC
//! 8762 does, and never replies with more bytes than it received, so that it cannot be used to amplify
//! traffic with a forged source address.

use clearstream_schema::control::Cookie;

/// Bytes of the header, and so the smallest probe.
pub const HEADER_BYTES: usize = 44;
/// Largest UDP payload over IPv4: 65535 less 20 (IP) and 8 (UDP).
pub(crate) const LARGEST_BYTES: usize = 65_507;
const MAGIC: [u8; 4] = *b"CSPR";
const VERSION: u8 = 1;
const REPLY_BIT: u8 = 0x80;

/// Purpose of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Checks whether the responder replies; never counted.
    Greeting,
    /// Measures a delay; the reply has the same size.
    Delay,
    /// Measures whether a size passes; the reply is the header alone, so that only the forward path is
    /// tested.
    Size,
}

/// Sixteen random bytes shared by the two ends of a test.
#[derive(Debug, Clone, Copy)]
pub struct Secret([u8; 16]);

/// Header of a probe or of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub(crate) kind: Kind,
    pub(crate) is_reply: bool,
    pub(crate) sent_time_to_live: u8,
    pub(crate) arrived_time_to_live: u8,
    pub(crate) sequence: u32,
    /// Delay probes that the responder has received from this prober.
    pub(crate) seen: u32,
    /// Time between arrival of the probe and sending of the reply.
    pub(crate) turnaround_ns: u64,
    /// Bytes of the whole message.
    pub(crate) size: u32,
}

impl Secret {
    /// `None` unless the cookie is 32 hexadecimal digits.
    pub fn parse(cookie: &Cookie) -> Option<Self> {
        let text = cookie.0.as_bytes();
        if text.len() != 32 {
            return None;
        }
        let mut bytes = [0u8; 16];
        for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let high = char::from(digits[0]).to_digit(16)?;
            let low = char::from(digits[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(bytes))
    }

    /// Constant-time comparison.
    fn matches(&self, other: &[u8]) -> bool {
        other.len() == self.0.len()
            && self.0.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

impl Header {
    /// A probe; `size` is at least [`HEADER_BYTES`].
    pub(crate) fn probe(kind: Kind, sequence: u32, time_to_live: u8, size: u32) -> Self {
        Self {
            kind,
            is_reply: false,
            sent_time_to_live: time_to_live,
            arrived_time_to_live: 0,
            sequence,
            seen: 0,
            turnaround_ns: 0,
            size,
        }
    }

    /// Size of the reply to this probe.
    pub fn reply_size(&self) -> usize {
        match self.kind {
            Kind::Size => HEADER_BYTES,
            Kind::Greeting | Kind::Delay => self.size as usize,
        }
    }

    /// Writes to the head of `buffer`, which is at least [`HEADER_BYTES`] long.
    pub(crate) fn write(&self, secret: &Secret, buffer: &mut [u8]) {
        let kind = match self.kind {
            Kind::Greeting => 1,
            Kind::Delay => 2,
            Kind::Size => 3,
        };
        buffer[0..4].copy_from_slice(&MAGIC);
        buffer[4] = VERSION;
        buffer[5] = kind | if self.is_reply { REPLY_BIT } else { 0 };
        buffer[6] = self.sent_time_to_live;
        buffer[7] = self.arrived_time_to_live;
        buffer[8..24].copy_from_slice(&secret.0);
        buffer[24..28].copy_from_slice(&self.sequence.to_be_bytes());
        buffer[28..32].copy_from_slice(&self.seen.to_be_bytes());
        buffer[32..40].copy_from_slice(&self.turnaround_ns.to_be_bytes());
        buffer[40..44].copy_from_slice(&self.size.to_be_bytes());
    }

    /// Parses the head of `buffer`; `None` for anything invalid, which must get no reply.
    pub fn read(secret: &Secret, buffer: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = buffer.first_chunk()?;
        if header[0..4] != MAGIC || header[4] != VERSION || !secret.matches(&header[8..24]) {
            return None;
        }
        let kind = match header[5] & !REPLY_BIT {
            1 => Kind::Greeting,
            2 => Kind::Delay,
            3 => Kind::Size,
            _ => return None,
        };
        let number = |at: usize| header[at..].first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let size = number(40)?;
        if !(HEADER_BYTES..=LARGEST_BYTES).contains(&(size as usize)) {
            return None;
        }
        Some(Self {
            kind,
            is_reply: header[5] & REPLY_BIT != 0,
            sent_time_to_live: header[6],
            arrived_time_to_live: header[7],
            sequence: number(24)?,
            seen: number(28)?,
            turnaround_ns: u64::from_be_bytes(*header[32..].first_chunk()?),
            size,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COOKIE: &str = "000102030405060708090a0b0c0d0e0f";

    fn secret() -> Secret {
        Secret::parse(&Cookie(COOKIE.to_owned())).unwrap()
    }

    #[test]
    fn the_layout_is_as_documented() {
        let mut header = Header::probe(Kind::Delay, 0x0102_0304, 255, 64);
        header.is_reply = true;
        header.arrived_time_to_live = 62;
        header.seen = 5;
        header.turnaround_ns = 0x1122;
        let mut buffer = [0u8; HEADER_BYTES];
        header.write(&secret(), &mut buffer);
        let by_hand = [
            b'C', b'S', b'P', b'R', 1, 0x82, 255, 62, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
            1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0x11, 0x22, 0, 0, 0, 64,
        ];
        assert_eq!(buffer, by_hand);
        assert_eq!(Header::read(&secret(), &buffer), Some(header));
    }

    #[test]
    fn foreign_packets_are_not_parsed() {
        let mut buffer = [0u8; HEADER_BYTES];
        Header::probe(Kind::Size, 1, 255, 1472).write(&secret(), &mut buffer);
        let other = Secret::parse(&Cookie("f".repeat(32))).unwrap();
        assert_eq!(Header::read(&other, &buffer), None);
        for (at, value) in [(0, b'X'), (4, 2), (5, 0), (5, 9), (8, 1), (23, 0), (40, 1), (43, 3)] {
            let mut wrong = buffer;
            wrong[at] = value;
            if at == 43 {
                wrong[42] = 0;
            }
            assert_eq!(Header::read(&secret(), &wrong), None, "byte {at} = {value}");
        }
        assert_eq!(Header::read(&secret(), &buffer[..HEADER_BYTES - 1]), None);
        for bad in ["", "00", &"g".repeat(32), &"0".repeat(33)] {
            assert!(Secret::parse(&Cookie(bad.to_owned())).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_reply_is_larger_than_its_probe(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            // The worst case is a stranger that has the cookie.
            if bytes.len() >= HEADER_BYTES {
                bytes[0..4].copy_from_slice(&MAGIC);
                bytes[4] = VERSION;
                bytes[5] = 1 + bytes[5] % 3;
                bytes[8..24].copy_from_slice(&secret().0);
            }
            if let Some(header) = Header::read(&secret(), &bytes) {
                prop_assert!(header.reply_size() <= header.size as usize);
            }
        }
    }
}
