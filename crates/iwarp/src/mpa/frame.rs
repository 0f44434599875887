//! Framing of FPDUs in the stream: length, markers, pad and CRC, computed from
//! the stream position.
//!
//! A marker is four bytes at every multiple of 512 of the stream, counted from
//! the first byte after the setup frames (RFC 5044, section 4.3). An FPDU is a
//! multiple of four bytes long, so that a marker never splits a length field or
//! a CRC; but it splits headers, payload and pad, or precedes the length (it
//! then belongs to that FPDU) or the CRC. The CRC covers the markers (section
//! 4.4).

use super::crc::Crc;
use super::mulpdu::{CRC_BYTES, LENGTH_BYTES, MARKER_BYTES};
use super::{MpaError, Negotiated};

/// Distance between markers in the stream (RFC 5044, section 4.3).
pub(super) const MARKER_SPACING: u64 = 512;

/// State common to both directions: the stream position, the start of the
/// current FPDU and its CRC so far.
#[derive(Clone, Debug)]
struct Place {
    markers: bool,
    /// Position of the next byte.
    position: u64,
    /// Position of the length field of the current FPDU.
    began: u64,
    crc: Option<Crc>,
}

impl Place {
    fn new(crc: bool, markers: bool) -> Self {
        Self { markers, position: 0, began: 0, crc: crc.then(Crc::new) }
    }

    /// Returns the number of bytes before the next marker: 0 when one is due.
    fn room(&self) -> usize {
        if !self.markers {
            return usize::MAX;
        }
        let into = self.position % MARKER_SPACING;
        usize::try_from(if into == 0 { 0 } else { MARKER_SPACING - into }).unwrap_or(0)
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
        self.position += bytes.len() as u64;
    }

    /// Advances past the CRC; returns its expected value.
    fn close(&mut self) -> Option<u32> {
        self.position += CRC_BYTES as u64;
        let crc = self.crc.as_mut()?;
        let finished = crc.finish();
        crc.restart();
        Some(finished)
    }

    /// Returns the FPDU pointer of a marker at this position. An FPDU of more
    /// than 64 KiB with its markers is legal; its last pointers wrap.
    fn pointer(&self) -> u16 {
        ((self.position - self.began) & 0xffff) as u16
    }
}

/// Frames the outgoing stream. An FPDU is `begin`, `bytes` (or, for payload
/// that is not copied, `room`, `crc` and `passed`), `finish`.
#[derive(Clone, Debug)]
pub struct Framer {
    place: Place,
    /// ULPDU bytes of the current FPDU.
    ulpdu: usize,
}

impl Framer {
    /// Starts at the first byte after the setup frames.
    #[must_use]
    pub fn new(negotiated: &Negotiated) -> Self {
        Self { place: Place::new(negotiated.crc, negotiated.markers_out), ulpdu: 0 }
    }

    /// Appends the beginning of an FPDU: a marker if one is due, and the length
    /// of its ULPDU.
    pub fn begin(&mut self, ulpdu: u16, out: &mut Vec<u8>) {
        // A marker between two FPDUs belongs to the second, and points to the
        // length field that follows it (RFC 5044, section 4.3).
        self.place.began = self.place.position;
        if self.place.room() == 0 {
            self.marker(out);
            self.place.began = self.place.position;
        }
        self.ulpdu = usize::from(ulpdu);
        self.raw(&ulpdu.to_be_bytes(), out);
    }

    /// Appends bytes of the ULPDU, with the markers that fall between them.
    pub fn bytes(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            self.due(out);
            let (now, later) = bytes.split_at(bytes.len().min(self.place.room()));
            self.raw(now, out);
            bytes = later;
        }
    }

    /// Appends a marker if one is due, and returns the number of ULPDU bytes
    /// that can follow before the next one (without markers: unlimited).
    pub fn room(&mut self, out: &mut Vec<u8>) -> usize {
        self.due(out);
        self.place.room()
    }

    /// Returns the CRC of the FPDU, for payload that is not appended here;
    /// `None` when CRCs are disabled.
    pub fn crc(&mut self) -> Option<&mut Crc> {
        self.place.crc.as_mut()
    }

    /// Accounts for payload sent from elsewhere, at most [`Framer::room`]
    /// bytes. The caller has added them to [`Framer::crc`].
    pub fn passed(&mut self, bytes: usize) {
        self.place.position += bytes as u64;
    }

    /// Discards the current FPDU.
    pub fn discard(&mut self) {
        self.place.position = self.place.began;
        if let Some(crc) = &mut self.place.crc {
            crc.restart();
        }
    }

    /// Appends the pad, which is zero (RFC 5044, section 4.1), and the CRC.
    /// Without CRCs the four bytes are zero (section 4.4: the field is always
    /// there).
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.finish_padded([0; 3], out);
    }

    /// Like [`Framer::finish`] with a recorded pad ([`Deframer::pad`]),
    /// truncated to the required length.
    pub fn finish_padded(&mut self, pad: [u8; 3], out: &mut Vec<u8>) {
        let length = LENGTH_BYTES + self.ulpdu;
        self.bytes(&pad[..length.next_multiple_of(4) - length], out);
        self.due(out);
        // Least significant byte first, as in RFC 3720.
        out.extend_from_slice(&self.place.close().unwrap_or(0).to_le_bytes());
    }

    /// Whether there are no markers: an FPDU can be written in one piece and
    /// sealed.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.place.markers
    }

    /// Appends pad and CRC to an FPDU without markers whose length and ULPDU
    /// are in `out` at `from`.
    pub fn seal(&mut self, from: usize, out: &mut Vec<u8>) {
        let length = out.len() - from;
        out.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
        let crc = if self.place.crc.is_some() { Crc::of(&out[from..]) } else { 0 };
        out.extend_from_slice(&crc.to_le_bytes());
        self.place.position += (out.len() - from) as u64;
    }

    /// Returns the stream position of the next byte.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.place.position
    }

    fn due(&mut self, out: &mut Vec<u8>) {
        if self.place.room() == 0 {
            self.marker(out);
        }
    }

    fn marker(&mut self, out: &mut Vec<u8>) {
        let [high, low] = self.place.pointer().to_be_bytes();
        self.raw(&[0, 0, high, low], out);
    }

    fn raw(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.place.add_bytes(bytes);
        out.extend_from_slice(bytes);
    }
}

/// Next element of a decoded stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed<'a> {
    /// Beginning of an FPDU, with the length of its ULPDU.
    Begin(u16),
    /// Next bytes of the ULPDU.
    Bytes(&'a [u8]),
    /// End of the FPDU; its CRC matches.
    End,
}

/// Field at the current position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Length,
    Ulpdu,
    Pad,
    Crc,
}

/// Decodes the incoming stream, however it is split into pieces.
#[derive(Clone, Debug)]
pub struct Deframer {
    place: Place,
    field: Field,
    /// Bytes of the current field or marker received so far.
    partial: [u8; 4],
    have: usize,
    in_marker: bool,
    /// Bytes of the ULPDU or pad still missing.
    left: usize,
    pad: usize,
    padded: [u8; 3],
}

impl Deframer {
    /// Starts at the first byte after the setup frames.
    #[must_use]
    pub fn new(negotiated: &Negotiated) -> Self {
        Self {
            place: Place::new(negotiated.crc, negotiated.markers_in),
            field: Field::Length,
            partial: [0; 4],
            have: 0,
            in_marker: false,
            left: 0,
            pad: 0,
            padded: [0; 3],
        }
    }

    /// Returns the next element and removes it from the front of `stream`;
    /// `None` when all of it is consumed.
    ///
    /// # Errors
    ///
    /// A CRC or a marker is wrong. The stream cannot be decoded any further.
    pub fn next<'a>(&mut self, stream: &mut &'a [u8]) -> Result<Option<Framed<'a>>, MpaError> {
        loop {
            if self.in_marker || (self.have == 0 && self.place.room() == 0) {
                self.in_marker = true;
                if !self.marker(stream)? {
                    return Ok(None);
                }
            }
            match self.field {
                Field::Length => {
                    if !self.gather(stream, LENGTH_BYTES) {
                        return Ok(None);
                    }
                    return Ok(Some(Framed::Begin(self.begun())));
                }
                Field::Ulpdu if self.left > 0 => {
                    let bytes = self.cut(stream);
                    return Ok((!bytes.is_empty()).then_some(Framed::Bytes(bytes)));
                }
                Field::Pad if self.left > 0 => {
                    let at = self.pad - self.left;
                    let bytes = self.cut(stream);
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    self.padded[at..at + bytes.len()].copy_from_slice(bytes);
                }
                Field::Ulpdu => (self.field, self.left) = (Field::Pad, self.pad),
                Field::Pad => self.field = Field::Crc,
                Field::Crc => return self.trailer(stream),
            }
        }
    }

    /// Returns the ULPDU of a complete FPDU at the front of `stream` in one
    /// step and removes the FPDU; `None` when [`Deframer::next`] has to decode
    /// it: markers are enabled, or it is incomplete.
    ///
    /// # Errors
    ///
    /// Its CRC is wrong.
    pub fn whole<'a>(&mut self, stream: &mut &'a [u8]) -> Result<Option<&'a [u8]>, MpaError> {
        if self.place.markers || !self.between() {
            return Ok(None);
        }
        let Some((&length, _)) = stream.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let ulpdu = LENGTH_BYTES..LENGTH_BYTES + usize::from(u16::from_be_bytes(length));
        let padded = ulpdu.end.next_multiple_of(4);
        let Some((fpdu, later)) = stream.split_at_checked(padded + CRC_BYTES) else { return Ok(None) };
        if let Some(&received) = fpdu.last_chunk()
            && self.place.crc.is_some()
        {
            let (received, computed) = (u32::from_le_bytes(received), Crc::of(&fpdu[..padded]));
            if received != computed {
                return Err(MpaError::Crc { received, computed });
            }
        }
        self.place.position += fpdu.len() as u64;
        *stream = later;
        Ok(fpdu.get(ulpdu))
    }

    /// Returns the number of contiguous ULPDU bytes that follow next: they can
    /// be received directly into their destination. 0 outside a ULPDU.
    #[must_use]
    pub fn straight(&self) -> usize {
        match self.field {
            Field::Ulpdu => self.left.min(self.place.room()),
            _ => 0,
        }
    }

    /// Returns the CRC of the current FPDU, for bytes placed directly; `None`
    /// when CRCs are disabled.
    pub fn crc(&mut self) -> Option<&mut Crc> {
        self.place.crc.as_mut()
    }

    /// Accounts for ULPDU bytes placed directly, at most
    /// [`Deframer::straight`]. The caller has added them to [`Deframer::crc`].
    pub fn placed(&mut self, bytes: usize) {
        self.left -= bytes;
        self.place.position += bytes as u64;
    }

    /// Returns the number of missing bytes of the current FPDU, without
    /// markers; 0 between two FPDUs.
    #[must_use]
    pub fn missing(&self) -> usize {
        match self.field {
            Field::Length => 0,
            Field::Ulpdu => self.left + self.pad + CRC_BYTES,
            Field::Pad => self.left + CRC_BYTES,
            Field::Crc => CRC_BYTES - self.have,
        }
    }

    /// Returns the pad of the FPDU that [`Deframer::next`] completed last. It
    /// is not checked (RFC 5044, section 4.1); Linux' siw leaves old bytes
    /// there.
    #[must_use]
    pub fn pad(&self) -> [u8; 3] {
        self.padded
    }

    /// Whether the position is between two FPDUs, where the stream may end.
    #[must_use]
    pub fn between(&self) -> bool {
        self.field == Field::Length && self.have == 0
    }

    /// Consumes a marker; false when it is incomplete.
    fn marker(&mut self, stream: &mut &[u8]) -> Result<bool, MpaError> {
        // A marker between two FPDUs belongs to the second; its pointer is
        // zero.
        let actual = if self.field == Field::Length { 0 } else { self.place.pointer() };
        if !self.gather(stream, MARKER_BYTES) {
            return Ok(false);
        }
        self.in_marker = false;
        let [_, _, high, low] = self.partial;
        let marker = u16::from_be_bytes([high, low]);
        // RFC 5044, section 4.2: the reserved half is ignored, and the lowest
        // two bits of the pointer are treated as zero; section 8, error 0x03.
        if marker & !0b11 == actual { Ok(true) } else { Err(MpaError::Marker { marker, actual }) }
    }

    /// Collects a field or marker in `partial` and adds it to the CRC; false
    /// when it is incomplete.
    fn gather(&mut self, stream: &mut &[u8], bytes: usize) -> bool {
        let chunk = take(stream, bytes - self.have);
        self.partial[self.have..self.have + chunk.len()].copy_from_slice(chunk);
        self.have += chunk.len();
        if self.have < bytes {
            return false;
        }
        self.have = 0;
        let partial = self.partial;
        self.place.add_bytes(&partial[..bytes]);
        true
    }

    /// Returns the next run of the ULPDU or pad, up to the next marker.
    fn cut<'a>(&mut self, stream: &mut &'a [u8]) -> &'a [u8] {
        let bytes = take(stream, self.left.min(self.place.room()));
        self.place.add_bytes(bytes);
        self.left -= bytes.len();
        bytes
    }

    fn begun(&mut self) -> u16 {
        let [high, low, ..] = self.partial;
        let ulpdu = u16::from_be_bytes([high, low]);
        self.place.began = self.place.position - LENGTH_BYTES as u64;
        let length = LENGTH_BYTES + usize::from(ulpdu);
        self.pad = length.next_multiple_of(4) - length;
        self.padded = [0; 3];
        (self.field, self.left) = (Field::Ulpdu, usize::from(ulpdu));
        ulpdu
    }

    fn trailer<'a>(&mut self, stream: &mut &'a [u8]) -> Result<Option<Framed<'a>>, MpaError> {
        let chunk = take(stream, CRC_BYTES - self.have);
        self.partial[self.have..self.have + chunk.len()].copy_from_slice(chunk);
        self.have += chunk.len();
        if self.have < CRC_BYTES {
            return Ok(None);
        }
        self.have = 0;
        self.field = Field::Length;
        let received = u32::from_le_bytes(self.partial);
        match self.place.close() {
            Some(computed) if computed != received => Err(MpaError::Crc { received, computed }),
            _ => Ok(Some(Framed::End)),
        }
    }
}

fn take<'a>(stream: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (now, later) = stream.split_at(stream.len().min(most));
    *stream = later;
    now
}
