//! CRC32C, a running digest. `crc-fast` folds with carry-less multiplication
//! where the processor has it, and with tables elsewhere.

use crc_fast::{CrcAlgorithm, Digest};

/// A running CRC32C (RFC 5044, section 4.4: the polynomial of iSCSI, RFC 3720,
/// section 12.1).
#[derive(Clone, Debug)]
pub struct Crc {
    digest: Digest,
}

impl Crc {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc32Iscsi) }
    }

    /// Of bytes that stand together.
    #[must_use]
    pub fn of(bytes: &[u8]) -> u32 {
        crc_fast::crc32_iscsi(bytes)
    }

    /// Takes more bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The CRC of all bytes so far.
    #[must_use]
    pub fn finish(&self) -> u32 {
        (self.digest.finalize() & 0xffff_ffff) as u32
    }

    /// Begins again with nothing: cheaper than a new one, which looks the
    /// machine's instructions up.
    pub fn restart(&mut self) {
        self.digest.reset();
    }
}

impl Default for Crc {
    fn default() -> Self {
        Self::new()
    }
}
