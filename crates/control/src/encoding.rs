//! Bytes as text: base64 for captures and keys, hexadecimal for pins and cookies.

use data_encoding::{BASE64, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};

/// Text that is not valid base64 or hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {expected}: {reason}")]
pub struct EncodingError {
    expected: &'static str,
    reason: String,
}

/// Base64 with padding (RFC 4648 section 4).
pub fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// The bytes of base64 with padding.
///
/// # Errors
/// On any character or length that [`base64`] would not have written.
pub fn from_base64(text: &str) -> Result<Vec<u8>, EncodingError> {
    decode(&BASE64, "base64", text)
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

/// The bytes of hexadecimal in either case.
///
/// # Errors
/// On any other input.
pub fn from_hex(text: &str) -> Result<Vec<u8>, EncodingError> {
    decode(&HEXLOWER_PERMISSIVE, "hexadecimal", text)
}

/// Base64 for one-line tokens: URL-safe alphabet, no padding, no shell metacharacters (RFC 4648 section 5).
pub(crate) fn base64_url(bytes: &[u8]) -> String {
    BASE64URL_NOPAD.encode(bytes)
}

pub(crate) fn from_base64_url(text: &str) -> Result<Vec<u8>, EncodingError> {
    decode(&BASE64URL_NOPAD, "base64url", text)
}

/// Makes text chosen by the peer safe for a log or a terminal: truncates it to `most_chars` characters and
/// replaces what is not printable.
pub(crate) fn printable(text: &str, most_chars: usize) -> String {
    let mut shown = String::new();
    for character in text.chars().take(most_chars) {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

fn decode(
    encoding: &data_encoding::Encoding,
    expected: &'static str,
    text: &str,
) -> Result<Vec<u8>, EncodingError> {
    encoding.decode(text.as_bytes()).map_err(|error| EncodingError { expected, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_vectors_of_rfc_4648() {
        // Section 10.
        for (text, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(text.as_bytes()), encoded);
            assert_eq!(from_base64(encoded).unwrap(), text.as_bytes());
        }
        assert_eq!(hex(b"foobar"), "666f6f626172");
        assert_eq!(from_hex("666F6F626172").unwrap(), b"foobar");
    }

    #[test]
    fn peer_text_is_printable_and_bounded() {
        assert_eq!(printable("unknown variant `größe`, \"x\"", 100), "unknown variant `größe`, \"x\"");
        assert_eq!(printable("a\n\u{1b}[2J\u{202e}b\0", 100), r"a\n\u{1b}[2J\u{202e}b\0");
        assert_eq!(printable(&"x".repeat(1000), 7), "xxxxxxx");
    }

    #[test]
    fn rejects_other_encodings() {
        for text in ["Zg", "Zh==", "Z g==", "Zm9v\n", "Zm9-"] {
            assert!(from_base64(text).is_err(), "{text:?}");
        }
        assert!(from_hex("abc").is_err());
        assert!(from_hex("zz").is_err());
    }
}
