//! Maximum FPDU size.

use super::frame::MARKER_SPACING;

/// Bytes of the length field before a ULPDU.
pub(super) const LENGTH_BYTES: usize = 2;
/// Bytes of the CRC after it.
pub(super) const CRC_BYTES: usize = 4;
/// Bytes of a marker.
pub(super) const MARKER_BYTES: usize = 4;

/// Returns the largest ULPDU whose FPDU fits in one TCP segment of `mss` bytes
/// (RFC 5044, section 4.5): with markers `EMSS - (6 + 4 * Ceiling(EMSS / 512) +
/// EMSS mod 4)`, without `EMSS - (6 + EMSS mod 4)`; at least 128 bytes, which
/// the section requires for any segment size.
#[must_use]
pub fn mulpdu(mss: usize, markers: bool) -> usize {
    let spacing = usize::try_from(MARKER_SPACING).unwrap_or(512);
    // The marker's FPDU pointer and the length field have 16 bits.
    let mss = mss.min(usize::from(u16::MAX));
    let of_markers = if markers { MARKER_BYTES * mss.div_ceil(spacing) } else { 0 };
    mss.saturating_sub(LENGTH_BYTES + CRC_BYTES + of_markers + mss % 4).max(128)
}

/// Returns the length of an FPDU without markers: length, ULPDU, pad to a
/// multiple of four, CRC (RFC 5044, section 4.1).
#[must_use]
pub fn fpdu_length(ulpdu: usize) -> usize {
    (LENGTH_BYTES + ulpdu).next_multiple_of(4) + CRC_BYTES
}
