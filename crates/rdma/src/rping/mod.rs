//! Protocol of rping (librdmacm's example program), both roles. It has no
//! specification; this implementation follows the program and captured
//! connections.
//!
//! One round: the client sends an advert of its text; the server Reads the text
//! and sends a go-ahead; the client sends an advert of the destination of the
//! echo; the server Writes the text there and sends a go-ahead. A go-ahead has
//! the size of an advert and is zero.

mod client;
pub(crate) mod server;

pub use client::{Round, ping};
pub use server::{PingOptions, Served};

use clearstream_iwarp::stag::Stag;
use clearstream_schema::rdma::{PING_LEAST_BYTES, PING_MOST_BYTES};

use crate::error::RdmaError;

/// Length of an advert and of a go-ahead.
pub(crate) const ADVERT_BYTES: usize = 16;
/// Default port of rping.
pub const PORT: u16 = 7174;

/// First and last character of the fill text.
const FIRST: u8 = b'A';
const LAST: u8 = b'z';

/// An advertised range of the sender's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Advert {
    pub(crate) address: u64,
    pub(crate) stag: Stag,
    /// In bytes.
    pub(crate) length: u32,
}

impl Advert {
    /// Encodes it, all big endian: address, STag, length.
    pub(crate) fn encode(self) -> [u8; ADVERT_BYTES] {
        let mut bytes = [0; ADVERT_BYTES];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.stag.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Decodes a received message.
    pub(crate) fn decode(bytes: [u8; ADVERT_BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            address: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            stag: Stag(u32::from_be_bytes([i, j, k, l])),
            length: u32::from_be_bytes([m, n, o, p]),
        }
    }
}

/// Returns the text of a round: its number, then letters whose start advances
/// by one each round, and a zero as the last byte.
pub(crate) fn text(round: u64, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{round}: ").into_bytes();
    let letters = (FIRST..=LAST).cycle().skip((round % u64::from(LAST - FIRST + 1)) as usize);
    text.extend(letters.take(size.saturating_sub(text.len())));
    text.truncate(size);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}

/// Rejects a ping size that rping does not support.
///
/// # Errors
/// [`RdmaError::Option`].
pub fn check_size(bytes: u64) -> Result<(), RdmaError> {
    if (PING_LEAST_BYTES..=PING_MOST_BYTES).contains(&bytes) {
        return Ok(());
    }
    Err(RdmaError::Option(format!(
        "a ping of {bytes} bytes: rping supports {PING_LEAST_BYTES} to {PING_MOST_BYTES}"
    )))
}

/// Returns the echo length of a text: up to and including the first zero, or
/// all of it.
#[must_use]
pub fn echo_length(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == 0).map_or(text.len(), |zero| zero + 1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The first advert and the texts of a captured connection between two
    /// Linux peers (fixtures/iwarp/siw.pcap).
    const CAPTURED_ADVERT: &str = "000055f98acc39a0b152910000000100";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn an_advert_is_that_of_a_capture() {
        let captured: [u8; ADVERT_BYTES] = bytes(CAPTURED_ADVERT).try_into().unwrap();
        let advert = Advert::decode(captured);
        assert_eq!(advert, Advert { address: 0x55f9_8acc_39a0, stag: Stag(0xb152_9100), length: 256 });
        assert_eq!(advert.encode(), captured);
    }

    #[test]
    fn texts_begin_and_go_on_as_captured() {
        let first = text(0, 256);
        assert!(
            first.starts_with(b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABC")
        );
        assert!(text(1, 256).starts_with(b"rdma-ping-1: BCDEFG"));
        assert_eq!((first.len(), first[255], first[254]), (256, 0, b'J'));
        assert!(text(58, 64).starts_with(b"rdma-ping-58: ABC"), "the letters go round after 58");
    }

    #[test]
    fn a_text_is_as_long_as_requested_and_ends_with_a_zero() {
        for size in [26, 64, 65_535] {
            for round in [0, 57, 1 << 40] {
                let text = text(round, size);
                assert_eq!((text.len(), text[size - 1]), (size, 0));
                assert_eq!(echo_length(&text), size);
            }
        }
        assert_eq!(echo_length(b"abc"), 3, "a text without an end is echoed as it is");
    }
}
