//! FPDUs in the stream: length, markers, pad and CRC, as arithmetic on the
//! stream's position.
//!
//! A marker is four bytes that stand at every multiple of 512 of the stream,
//! counted from the first byte behind the set-up frames (RFC 5044, section
//! 4.3). An FPDU is a multiple of four bytes long, so that a marker never cuts
//! a length field or a CRC; but it cuts headers, payload and pad, or stands
//! before the length (it then belongs to that FPDU) or before the CRC. Markers
//! are part of what the CRC protects (section 4.4).

use super::crc::Crc;
use super::mulpdu::{CRC_BYTES, LENGTH_BYTES, MARKER_BYTES};
use super::{Agreed, MpaError};

/// Every so many bytes of the stream begins a marker (RFC 5044, section 4.3).
pub const MARKER_SPACING: u64 = 512;

/// Where a stream stands: its position, where the FPDU under way began, and
/// the CRC over it so far. What both directions have in common.
#[derive(Clone, Debug)]
struct Place {
    markers: bool,
    /// Of the next byte.
    position: u64,
    /// Of the length field of the FPDU under way.
    began: u64,
    crc: Option<Crc>,
}

impl Place {
    fn new(crc: bool, markers: bool) -> Self {
        Self { markers, position: 0, began: 0, crc: crc.then(Crc::new) }
    }

    /// Bytes that can follow before the next marker: 0 when one is due.
    fn room(&self) -> usize {
        if !self.markers {
            return usize::MAX;
        }
        let into = self.position % MARKER_SPACING;
        usize::try_from(if into == 0 { 0 } else { MARKER_SPACING - into }).unwrap_or(0)
    }

    fn take_in(&mut self, bytes: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
        self.position += bytes.len() as u64;
    }

    /// Steps over the CRC; says what it must be.
    fn close(&mut self) -> Option<u32> {
        self.position += CRC_BYTES as u64;
        let crc = self.crc.as_mut()?;
        let finished = crc.finish();
        crc.restart();
        Some(finished)
    }

    /// How far back the FPDU began, as a marker here says it. An FPDU of more
    /// than 64 KiB with its markers is legal; its last pointers wrap.
    fn pointer(&self) -> u16 {
        ((self.position - self.began) & 0xffff) as u16
    }
}

/// Frames what one side sends. An FPDU is `begin`, `bytes` (or, for payload
/// that stays where it is, `room`, `crc` and `passed`), `finish`.
#[derive(Clone, Debug)]
pub struct Framer {
    place: Place,
    /// ULPDU bytes of the FPDU under way.
    ulpdu: usize,
}

impl Framer {
    /// At the first byte behind the set-up frames.
    #[must_use]
    pub fn new(agreed: &Agreed) -> Self {
        Self { place: Place::new(agreed.crc, agreed.markers_out), ulpdu: 0 }
    }

    /// Appends the beginning of an FPDU: a marker if one is due, and the length
    /// of its ULPDU.
    pub fn begin(&mut self, ulpdu: u16, out: &mut Vec<u8>) {
        // A marker that falls between two FPDUs belongs to the second, and
        // points to the length that follows it (RFC 5044, section 4.3).
        self.place.began = self.place.position;
        if self.place.room() == 0 {
            self.marker(out);
            self.place.began = self.place.position;
        }
        self.ulpdu = usize::from(ulpdu);
        self.raw(&ulpdu.to_be_bytes(), out);
    }

    /// Appends bytes of the ULPDU, with the markers that fall into them.
    pub fn bytes(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() {
            self.due(out);
            let (now, later) = bytes.split_at(bytes.len().min(self.place.room()));
            self.raw(now, out);
            bytes = later;
        }
    }

    /// Appends a marker if one is due, and says how many bytes of the ULPDU can
    /// follow before the next one (without markers: any number).
    pub fn room(&mut self, out: &mut Vec<u8>) -> usize {
        self.due(out);
        self.place.room()
    }

    /// The CRC of the FPDU, for payload that is not appended here; `None` when
    /// there are no CRCs.
    pub fn crc(&mut self) -> Option<&mut Crc> {
        self.place.crc.as_mut()
    }

    /// So many bytes of payload go beside, at most [`Framer::room`]. The caller
    /// has taken them into [`Framer::crc`].
    pub fn passed(&mut self, bytes: usize) {
        self.place.position += bytes as u64;
    }

    /// These bytes of the ULPDU were appended by the caller, at most
    /// [`Framer::room`].
    pub fn appended(&mut self, bytes: &[u8]) {
        self.place.take_in(bytes);
    }

    /// Nothing of the FPDU under way will be sent.
    pub fn forget(&mut self) {
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

    /// The same with a pad that was recorded ([`Deframer::pad`]), as much of it
    /// as the length needs.
    pub fn finish_padded(&mut self, pad: [u8; 3], out: &mut Vec<u8>) {
        let length = LENGTH_BYTES + self.ulpdu;
        self.bytes(&pad[..length.next_multiple_of(4) - length], out);
        self.due(out);
        // Least significant byte first, as RFC 3720 has it on the wire.
        out.extend_from_slice(&self.place.close().unwrap_or(0).to_le_bytes());
    }

    /// There are no markers: an FPDU can be written in one piece and sealed.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        !self.place.markers
    }

    /// Appends pad and CRC to an FPDU without markers whose length and ULPDU
    /// stand in `out` from `from` on.
    pub fn seal(&mut self, from: usize, out: &mut Vec<u8>) {
        let length = out.len() - from;
        out.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
        let crc = if self.place.crc.is_some() { Crc::of(&out[from..]) } else { 0 };
        out.extend_from_slice(&crc.to_le_bytes());
        self.place.position += (out.len() - from) as u64;
    }

    /// Position in the stream of the next byte.
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
        self.place.take_in(bytes);
        out.extend_from_slice(bytes);
    }
}

/// What comes next out of a stream that is taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framed<'a> {
    /// An FPDU begins; its ULPDU has so many bytes.
    Begin(u16),
    /// The next bytes of the ULPDU.
    Bytes(&'a [u8]),
    /// The FPDU is complete and its CRC matches.
    End,
}

/// The field in which the stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Length,
    Ulpdu,
    Pad,
    Crc,
}

/// Takes apart what one side receives, however the stream is cut into pieces.
#[derive(Clone, Debug)]
pub struct Deframer {
    place: Place,
    field: Field,
    /// Bytes of the field, or of a marker, that came so far.
    partial: [u8; 4],
    have: usize,
    in_marker: bool,
    /// Bytes of the ULPDU or pad still to come.
    left: usize,
    pad: usize,
    padded: [u8; 3],
}

impl Deframer {
    /// At the first byte behind the set-up frames.
    #[must_use]
    pub fn new(agreed: &Agreed) -> Self {
        Self {
            place: Place::new(agreed.crc, agreed.markers_in),
            field: Field::Length,
            partial: [0; 4],
            have: 0,
            in_marker: false,
            left: 0,
            pad: 0,
            padded: [0; 3],
        }
    }

    /// The next piece of the stream, taken off the front of `stream`; `None`
    /// when all of it is used up.
    ///
    /// # Errors
    ///
    /// A CRC or a marker is wrong. The stream can not be read any further.
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

    /// The ULPDU of a complete FPDU at the front of `stream`, taken off there
    /// in one step; `None` when it has to be taken apart with
    /// [`Deframer::next`]: there are markers, or not all of it has come.
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

    /// Bytes of the ULPDU that follow next without anything between them: so
    /// many can go from the socket to where they belong. 0 outside a ULPDU.
    #[must_use]
    pub fn straight(&self) -> usize {
        match self.field {
            Field::Ulpdu => self.left.min(self.place.room()),
            _ => 0,
        }
    }

    /// The CRC of the FPDU under way, for bytes that went straight; `None` when
    /// there are no CRCs.
    pub fn crc(&mut self) -> Option<&mut Crc> {
        self.place.crc.as_mut()
    }

    /// So many bytes of the ULPDU went straight, at most
    /// [`Deframer::straight`]. The caller has taken them into
    /// [`Deframer::crc`].
    pub fn placed(&mut self, bytes: usize) {
        self.left -= bytes;
        self.place.position += bytes as u64;
    }

    /// Bytes of the FPDU under way that are still to come, without markers; 0
    /// between two FPDUs.
    #[must_use]
    pub fn missing(&self) -> usize {
        match self.field {
            Field::Length => 0,
            Field::Ulpdu => self.left + self.pad + CRC_BYTES,
            Field::Pad => self.left + CRC_BYTES,
            Field::Crc => CRC_BYTES - self.have,
        }
    }

    /// The pad of the FPDU that [`Deframer::next`] ended last. It is not
    /// checked (RFC 5044, section 4.1); Linux' siw leaves there what was before.
    #[must_use]
    pub fn pad(&self) -> [u8; 3] {
        self.padded
    }

    /// The stream stands between two FPDUs: it may end here.
    #[must_use]
    pub fn between(&self) -> bool {
        self.field == Field::Length && self.have == 0
    }

    /// Takes a marker in; false when more of it must come.
    fn marker(&mut self, stream: &mut &[u8]) -> Result<bool, MpaError> {
        // A marker between two FPDUs belongs to the second and points nowhere.
        let actual = if self.field == Field::Length { 0 } else { self.place.pointer() };
        if !self.gather(stream, MARKER_BYTES) {
            return Ok(false);
        }
        self.in_marker = false;
        let [_, _, high, low] = self.partial;
        let marker = u16::from_be_bytes([high, low]);
        // RFC 5044, section 4.2: the reserved half is ignored, and the lowest two
        // bits of the pointer are treated as zero; section 8, error 0x03.
        if marker & !0b11 == actual { Ok(true) } else { Err(MpaError::Marker { marker, actual }) }
    }

    /// Fills `partial` with a field or marker and takes it into the CRC; false
    /// when more of it must come.
    fn gather(&mut self, stream: &mut &[u8], bytes: usize) -> bool {
        let taken = take(stream, bytes - self.have);
        self.partial[self.have..self.have + taken.len()].copy_from_slice(taken);
        self.have += taken.len();
        if self.have < bytes {
            return false;
        }
        self.have = 0;
        let partial = self.partial;
        self.place.take_in(&partial[..bytes]);
        true
    }

    /// The next run of the ULPDU or pad, up to the next marker.
    fn cut<'a>(&mut self, stream: &mut &'a [u8]) -> &'a [u8] {
        let bytes = take(stream, self.left.min(self.place.room()));
        self.place.take_in(bytes);
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
        let taken = take(stream, CRC_BYTES - self.have);
        self.partial[self.have..self.have + taken.len()].copy_from_slice(taken);
        self.have += taken.len();
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
