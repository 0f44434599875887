//! A pairing as one line of text:
//! `clearstream-1-` and base64url of pin (32 bytes), certificate and key (each
//! with a 16-bit length before it), address as text, and the first four bytes
//! of the SHA-256 of all that, so that a line cut short is noticed.

use sha2::{Digest, Sha256};

use super::{Pairing, PairingError, Pin, identity::Identity};
use crate::encoding;

const PREFIX: &str = "clearstream-1-";
const CHECK_BYTES: usize = 4;

pub(super) fn write(pairing: &Pairing) -> String {
    let mut bytes = pairing.server.0.to_vec();
    for part in [pairing.identity.certificate(), pairing.identity.private_key()] {
        // Our certificates and keys are some hundred bytes.
        bytes.extend_from_slice(&u16::try_from(part.len()).unwrap_or(u16::MAX).to_be_bytes());
        bytes.extend_from_slice(part);
    }
    bytes.extend_from_slice(pairing.address.to_string().as_bytes());
    let check = Sha256::digest(&bytes);
    bytes.extend(check.iter().take(CHECK_BYTES));
    format!("{PREFIX}{}", encoding::base64_url(&bytes))
}

pub(super) fn read(token: &str) -> Result<Pairing, PairingError> {
    let fail = |reason: &str| PairingError::Token { reason: reason.to_owned() };
    let text =
        token.trim().strip_prefix(PREFIX).ok_or_else(|| fail("it does not begin with clearstream-1-"))?;
    let bytes = encoding::from_base64_url(text).map_err(|error| fail(&error.to_string()))?;
    let damaged = || fail("a part is missing or changed");
    let split = bytes.len().checked_sub(CHECK_BYTES).ok_or_else(damaged)?;
    let (body, check) = bytes.split_at(split);
    if !Sha256::digest(body).starts_with(check) {
        return Err(damaged());
    }
    let (pin, rest) = body.split_first_chunk::<32>().ok_or_else(damaged)?;
    let (certificate, rest) = part(rest).ok_or_else(damaged)?;
    let (private_key, rest) = part(rest).ok_or_else(damaged)?;
    let address = std::str::from_utf8(rest).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
    Ok(Pairing {
        address,
        server: Pin(*pin),
        identity: Identity::from_parts(certificate.to_vec(), private_key.to_vec()),
    })
}

fn part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}
