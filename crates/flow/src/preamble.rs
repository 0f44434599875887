//! The first bytes of every data socket: who does not know the test's cookie
//! is a stranger.

use clearstream_schema::control::{Cookie, Failure, FailureKind};

use crate::failure;

/// Bytes of a preamble: cookie and flow number.
pub(crate) const PREAMBLE_BYTES: usize = 20;
/// What the server answers on a TCP connection that it has taken.
pub(crate) const ACCEPTED: u8 = 0x06;
/// Set in the flow number of an answer over UDP.
const ANSWER: u32 = 1 << 31;

/// The cookie of a test as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret([u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the 32 hexadecimal digits of a cookie.
    pub(crate) fn parse(cookie: &Cookie) -> Result<Self, Failure> {
        let digits = cookie.0.as_bytes();
        let number = (digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
            .then(|| u128::from_str_radix(&cookie.0, 16).ok())
            .flatten();
        number
            .map(|number| Self(number.to_be_bytes()))
            .ok_or_else(|| failure(FailureKind::Invalid, "the test's cookie must be 32 hexadecimal digits"))
    }

    /// What the client says first on the socket of flow `flow`.
    pub(crate) fn preamble(self, flow: u32) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..16].copy_from_slice(&self.0);
        bytes[16..].copy_from_slice(&flow.to_be_bytes());
        bytes
    }

    /// What the server answers over UDP.
    pub(crate) fn answer(self, flow: u32) -> [u8; PREAMBLE_BYTES] {
        self.preamble(flow | ANSWER)
    }

    /// The flow number of a preamble that carries this cookie.
    pub(crate) fn flow_of(self, bytes: &[u8]) -> Option<u32> {
        let (cookie, flow) = bytes.split_at_checked(16)?;
        let flow = u32::from_be_bytes(flow.try_into().ok()?);
        // Compared without a branch per byte: how long it takes tells nothing.
        let differing = cookie.iter().zip(self.0).fold(0, |all, (a, b)| all | (a ^ b));
        (differing == 0).then_some(flow)
    }

    /// The part that each data datagram carries; a preamble starts otherwise.
    pub(crate) fn tag(self) -> [u8; 8] {
        let mut tag = [0; 8];
        tag.copy_from_slice(&self.0[8..]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_cookie_opens() {
        let secret = Secret::parse(&Cookie("000102030405060708090a0b0c0d0e0f".into())).unwrap();
        let said = secret.preamble(7);
        assert_eq!(said[..16], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(secret.flow_of(&said), Some(7));
        let other = Secret::parse(&Cookie("f".repeat(32))).unwrap();
        assert_eq!(other.flow_of(&said), None);
        for wrong in [&said[..19], &said[..0], &[0; 21]] {
            assert_eq!(secret.flow_of(wrong), None);
        }
        assert_eq!(secret.flow_of(&secret.answer(7)), Some(7 | ANSWER), "an answer is no preamble");
    }

    #[test]
    fn a_cookie_that_is_none_is_refused() {
        for bad in ["", "abc", &"g".repeat(32), &"0".repeat(33), "+0000000000000000000000000000000"] {
            assert!(Secret::parse(&Cookie(bad.to_owned())).is_err(), "{bad}");
        }
    }
}
