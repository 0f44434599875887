//! Running CRC32C digest. `crc-fast` folds with carry-less multiplication where
//! the processor supports it, and uses tables elsewhere.

use crc_fast::{CrcAlgorithm, Digest};

/// A running CRC32C (RFC 5044, section 4.4: the polynomial of iSCSI, RFC 3720,
/// section 12.1).
#[derive(Clone, Debug)]
pub struct Crc {
    digest: Digest,
}

impl Crc {
    /// Creates the digest of no bytes.
    #[must_use]
    pub fn new() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc32Iscsi) }
    }

    /// Returns the CRC of contiguous bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u32 {
        crc_fast::crc32_iscsi(bytes)
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// Returns the CRC of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u32 {
        (self.digest.finalize() & 0xffff_ffff) as u32
    }

    /// Returns the remainder of all bytes so far, for a caller that continues by
    /// itself ([`Crc::resume`]).
    pub(crate) fn remainder(&self) -> u32 {
        self.digest.get_state() as u32
    }

    /// Continues behind the bytes of this remainder.
    pub(crate) fn resume(&mut self, remainder: u32) {
        self.digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, remainder.into());
    }

    /// Resets to no bytes: cheaper than a new digest, which detects the
    /// processor's features again.
    pub fn restart(&mut self) {
        self.digest.reset();
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}
