//! The first bytes on every data socket: the test's cookie identifies its own connections.

use clearstream_schema::control::{Cookie, Failure, FailureKind};

/// Bytes of a preamble: cookie and flow number.
pub const PREAMBLE_BYTES: usize = 20;
/// The server's reply on an accepted TCP connection.
pub(crate) const ACCEPTED: u8 = 0x06;
/// Flag in the flow number of a reply over UDP.
const REPLY_FLAG: u32 = 1 << 31;

/// The cookie of a test as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; 16]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the 32 hexadecimal digits of a cookie.
    pub fn parse(cookie: &Cookie) -> Result<Self, Failure> {
        let digits = cookie.0.as_bytes();
        let number = (digits.len() == 32 && digits.iter().all(u8::is_ascii_hexdigit))
            .then(|| u128::from_str_radix(&cookie.0, 16).ok())
            .flatten();
        number.map(|number| Self(number.to_be_bytes())).ok_or_else(|| {
            Failure::new(FailureKind::Invalid, "the test's cookie must be 32 hexadecimal digits")
        })
    }

    /// The client's preamble for flow `flow`.
    pub fn preamble(self, flow: u32) -> [u8; PREAMBLE_BYTES] {
        let mut bytes = [0; PREAMBLE_BYTES];
        bytes[..16].copy_from_slice(&self.0);
        bytes[16..].copy_from_slice(&flow.to_be_bytes());
        bytes
    }

    /// The server's reply over UDP.
    pub fn reply(self, flow: u32) -> [u8; PREAMBLE_BYTES] {
        self.preamble(flow | REPLY_FLAG)
    }

    /// The flow number of a preamble that carries this cookie.
    pub fn flow_of(self, bytes: &[u8]) -> Option<u32> {
        let (cookie, flow) = bytes.split_at_checked(16)?;
        let flow = u32::from_be_bytes(flow.try_into().ok()?);
        // Constant-time comparison.
        let differing = cookie.iter().zip(self.0).fold(0, |all, (a, b)| all | (a ^ b));
        (differing == 0).then_some(flow)
    }

    /// The tag of each data datagram; a preamble starts differently.
    pub fn tag(self) -> [u8; 8] {
        let mut tag = [0; 8];
        tag.copy_from_slice(&self.0[8..]);
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_cookie_is_accepted() {
        let secret = Secret::parse(&Cookie("000102030405060708090a0b0c0d0e0f".into())).unwrap();
        let preamble = secret.preamble(7);
        assert_eq!(preamble[..16], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(secret.flow_of(&preamble), Some(7));
        let other = Secret::parse(&Cookie("f".repeat(32))).unwrap();
        assert_eq!(other.flow_of(&preamble), None);
        for wrong in [&preamble[..19], &preamble[..0], &[0; 21]] {
            assert_eq!(secret.flow_of(wrong), None);
        }
        assert_eq!(secret.flow_of(&secret.reply(7)), Some(7 | REPLY_FLAG), "a reply is no preamble");
    }

    #[test]
    fn an_invalid_cookie_is_rejected() {
        for bad in ["", "abc", &"g".repeat(32), &"0".repeat(33), "+0000000000000000000000000000000"] {
            assert!(Secret::parse(&Cookie(bad.to_owned())).is_err(), "{bad}");
        }
    }
}
