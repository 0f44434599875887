//! Setup frames: MPA Request and Reply.

use super::MpaError;

/// Maximum private data of a frame, including the enhanced fields (RFC 5044,
/// section 7.1.1: PD_Length is at most 512).
pub const PRIVATE_DATA_MAX: usize = 512;

/// IRD or ORD value "not negotiated" (RFC 6581, section 9.1: all fourteen bits
/// set).
pub const NOT_NEGOTIATED: u16 = 0x3fff;

const KEY_REQUEST: &str = "MPA ID Req Frame";
const KEY_REPLY: &str = "MPA ID Rep Frame";
const HEADER_BYTES: usize = 20;
const ENHANCED_BYTES: usize = 4;

const FLAG_MARKERS: u8 = 0x80;
const FLAG_CRC: u8 = 0x40;
const FLAG_REJECT: u8 = 0x20;
const FLAG_ENHANCED: u8 = 0x10;
const FLAG_LARGE: u8 = 0x08;
const FLAG_READY: u8 = 0x04;
const FLAG_IMMEDIATE: u8 = 0x02;

const PEER_TO_PEER: u16 = 0x8000;
const RTR_SEND: u16 = 0x4000;
const RTR_WRITE: u16 = 0x8000;
const RTR_READ: u16 = 0x4000;

/// Frame type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sent by the initiator.
    Request,
    /// Sent by the responder.
    Reply,
}

impl Kind {
    fn key(self) -> &'static str {
        match self {
            Self::Request => KEY_REQUEST,
            Self::Reply => KEY_REPLY,
        }
    }
}

/// The two 16-bit fields before the private data of an enhanced frame (RFC
/// 6581, section 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enhanced {
    /// Maximum number of the peer's outstanding Reads that the sender of the
    /// frame serves.
    pub ird: u16,
    /// Maximum number of outstanding Reads that it requests.
    pub ord: u16,
    /// Bit A: peer-to-peer, either side may send first once the initiator has
    /// sent its ready-to-receive (RTR) message.
    pub peer_to_peer: bool,
    /// Bit B: the RTR message may be a zero-length Send.
    pub rtr_send: bool,
    /// Bit C: a zero-length Write.
    pub rtr_write: bool,
    /// Bit D: a zero-length Read.
    pub rtr_read: bool,
}

/// An MPA Request or Reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupFrame {
    /// Frame type.
    pub kind: Kind,
    /// Bit M: the sender requests markers in its incoming stream.
    pub markers: bool,
    /// Bit C: the sender requests CRCs, in both directions.
    pub crc: bool,
    /// Bit R: the responder rejects the connection.
    pub reject: bool,
    /// A reserved bit by which Linux' siw signals that it accepts FPDUs larger
    /// than a segment.
    pub large_fpdus: bool,
    /// A reserved bit by which a responder of this implementation says in its Reply that it reads what follows at once.
    /// It is no bit of a Request, because siw returns all of those.
    pub ready: bool,
    /// A reserved bit by which an end of this implementation offers immediate data with Sends and Writes. In a Reply it
    /// counts only beside `ready`, because siw returns that of the Request.
    pub immediate_data: bool,
    /// 0, 1 or 2.
    pub revision: u8,
    /// Bit S and the fields it announces; revision 2 only.
    pub enhanced: Option<Enhanced>,
    /// Private data of the consumer.
    pub private_data: Vec<u8>,
}

impl SetupFrame {
    /// Encodes the frame.
    ///
    /// # Errors
    ///
    /// [`MpaError::PrivateData`] when the private data does not fit.
    pub fn encode(&self) -> Result<Vec<u8>, MpaError> {
        let before = if self.enhanced.is_some() { ENHANCED_BYTES } else { 0 };
        let (length, max) = (self.private_data.len(), PRIVATE_DATA_MAX - before);
        if length > max {
            return Err(MpaError::PrivateData { length, max });
        }
        let mut bytes = Vec::with_capacity(HEADER_BYTES + before + length);
        bytes.extend_from_slice(self.kind.key().as_bytes());
        bytes.push(self.flags());
        bytes.push(self.revision);
        bytes.extend_from_slice(&(((before + length) & 0x3ff) as u16).to_be_bytes());
        if let Some(enhanced) = self.enhanced {
            bytes.extend_from_slice(&enhanced.encode());
        }
        bytes.extend_from_slice(&self.private_data);
        Ok(bytes)
    }

    fn flags(&self) -> u8 {
        [
            (self.markers, FLAG_MARKERS),
            (self.crc, FLAG_CRC),
            (self.reject, FLAG_REJECT),
            (self.enhanced.is_some(), FLAG_ENHANCED),
            (self.large_fpdus, FLAG_LARGE),
            (self.ready, FLAG_READY),
            (self.immediate_data, FLAG_IMMEDIATE),
        ]
        .into_iter()
        .fold(0, |flags, (set, bit)| if set { flags | bit } else { flags })
    }

    /// Decodes the frame at the beginning of `bytes` and returns it with its
    /// length; `None` when more bytes are needed. Errors are reported as soon
    /// as they are detected: a peer of another protocol is rejected without
    /// waiting for a whole frame.
    ///
    /// # Errors
    ///
    /// The key, the revision or the length of the private data is invalid.
    pub fn decode(kind: Kind, bytes: &[u8]) -> Result<Option<(Self, usize)>, MpaError> {
        let key = kind.key().as_bytes();
        let seen = bytes.len().min(key.len());
        if bytes[..seen] != key[..seen] {
            return Err(MpaError::Key { expected: kind.key() });
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let (flags, revision) = (header[16], header[17]);
        let length = usize::from(u16::from_be_bytes([header[18], header[19]]));
        if length > PRIVATE_DATA_MAX {
            return Err(MpaError::PrivateData { length, max: PRIVATE_DATA_MAX });
        }
        let Some(mut private_data) = bytes.get(HEADER_BYTES..HEADER_BYTES + length) else { return Ok(None) };
        // RFC 5044, section 7.1.2: the initiator sends nothing more before it
        // has the Reply. After a Reply the stream of FPDUs may begin.
        let behind = bytes.len() - HEADER_BYTES - length;
        if kind == Kind::Request && behind > 0 {
            return Err(MpaError::EarlyData { bytes: behind });
        }
        let mut enhanced = None;
        // RFC 6581, section 6: bit S is defined from revision 2 on; in revision
        // 1 it is one of the reserved bits, which are not checked.
        if revision >= 2 && flags & FLAG_ENHANCED != 0 {
            let (fields, rest) = private_data.split_first_chunk().ok_or(MpaError::Enhanced)?;
            enhanced = Some(Enhanced::decode(*fields));
            private_data = rest;
        }
        let frame = Self {
            kind,
            markers: flags & FLAG_MARKERS != 0,
            crc: flags & FLAG_CRC != 0,
            reject: flags & FLAG_REJECT != 0,
            large_fpdus: flags & FLAG_LARGE != 0,
            ready: kind == Kind::Reply && flags & FLAG_READY != 0,
            immediate_data: flags & FLAG_IMMEDIATE != 0,
            revision,
            enhanced,
            private_data: private_data.to_vec(),
        };
        Ok(Some((frame, HEADER_BYTES + length)))
    }
}

impl Enhanced {
    fn encode(self) -> [u8; ENHANCED_BYTES] {
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        let first =
            bit(self.peer_to_peer, PEER_TO_PEER) | bit(self.rtr_send, RTR_SEND) | self.ird & NOT_NEGOTIATED;
        let second =
            bit(self.rtr_write, RTR_WRITE) | bit(self.rtr_read, RTR_READ) | self.ord & NOT_NEGOTIATED;
        let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
        [a, b, c, d]
    }

    fn decode([a, b, c, d]: [u8; ENHANCED_BYTES]) -> Self {
        let (first, second) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        Self {
            ird: first & NOT_NEGOTIATED,
            ord: second & NOT_NEGOTIATED,
            peer_to_peer: first & PEER_TO_PEER != 0,
            rtr_send: first & RTR_SEND != 0,
            rtr_write: second & RTR_WRITE != 0,
            rtr_read: second & RTR_READ != 0,
        }
    }
}
