//! Preamble of a data connection: the test's cookie from the client, one byte
//! from the server that has admitted it.

use clearstream_control::encoding::from_hex;
use clearstream_schema::control::{Cookie, Failure, FailureKind};

/// Length of a preamble.
pub(super) const PREAMBLE_BYTES: usize = 16;
/// The server's reply to the preamble of its client.
pub(super) const ADMITTED: u8 = 0x06;

/// The cookie of a test as bytes.
#[derive(Clone, Copy)]
pub struct Secret([u8; PREAMBLE_BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads the 32 hexadecimal digits of a cookie.
    ///
    /// # Errors
    /// Anything else.
    pub fn parse(cookie: &Cookie) -> Result<Self, Failure> {
        let bytes = from_hex(&cookie.0).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| {
            Failure::new(FailureKind::Invalid, "the test's cookie must be 32 hexadecimal digits")
        })
    }

    /// Returns the client's preamble: the bytes of the cookie.
    pub fn preamble(self) -> [u8; PREAMBLE_BYTES] {
        self.0
    }

    /// Whether these bytes are the preamble. Compared in constant time, so that
    /// timing reveals nothing.
    pub fn admits(self, bytes: &[u8]) -> bool {
        let differing = bytes.iter().zip(self.0).fold(0, |all, (a, b)| all | (a ^ b));
        bytes.len() == PREAMBLE_BYTES && differing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_cookie_is_admitted() {
        let secret = Secret::parse(&Cookie("000102030405060708090a0b0c0d0e0f".into())).unwrap();
        let preamble = secret.preamble();
        assert_eq!(preamble, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert!(secret.admits(&preamble));
        assert!(!Secret::parse(&Cookie("f".repeat(32))).unwrap().admits(&preamble));
        for short in [&preamble[..15], &[]] {
            assert!(!secret.admits(short));
        }
        for bad in ["", "abc", &"g".repeat(32), &"0".repeat(34)] {
            assert!(Secret::parse(&Cookie(bad.to_owned())).is_err(), "{bad}");
        }
    }
}
