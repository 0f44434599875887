//! An outgoing message, segmented to the MULPDU.

use smallvec::SmallVec;

use super::batch::{Batch, NO_REQUEST};
use crate::ddp::{Header, TAGGED_BYTES, UNTAGGED_BYTES};
use crate::memory::{AccessError, Span};
use crate::mpa::{Crc, Framer};
use crate::rdmap::Opcode;
use crate::stag::Stag;
use crate::work::InlineData;

/// Payload up to this length is copied after its header, so that a small
/// message is one contiguous piece: cheaper than gathering it. With CRCs all
/// payload is copied: registered memory may change before the socket reads it,
/// and the CRC must match the bytes sent.
const COPIED_BYTES: usize = 2048;

/// Scatter/gather list of registered memory.
pub(super) type Spans = SmallVec<[Span; 4]>;

/// Header type of the segments.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Untagged { opcode: Opcode, queue: u32, msn: u32, invalidate: Stag },
    Tagged { opcode: Opcode, stag: Stag, address: u64 },
}

/// Source of the payload.
#[derive(Debug)]
pub(super) enum Source {
    Bytes(InlineData),
    Memory {
        spans: Spans,
        /// Index of the span where the next segment begins.
        span: usize,
        at: usize,
    },
}

/// A message and its segmentation progress.
#[derive(Debug)]
pub(super) struct Message {
    pub kind: Kind,
    pub source: Source,
    pub length: u32,
    pub done: u32,
    /// Serial of its request, or [`NO_REQUEST`].
    pub serial: u64,
    /// Its request is complete with it.
    pub ends_request: bool,
}

impl Message {
    pub(super) fn new(kind: Kind, source: Source, length: u32, serial: u64) -> Self {
        Self { kind, source, length, done: 0, serial, ends_request: true }
    }

    /// Creates a request or response message of a few bytes.
    pub(super) fn of_bytes(kind: Kind, bytes: &[u8], serial: u64) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self::new(kind, Source::Bytes(InlineData::from_slice(bytes)), length, serial)
    }

    /// Appends the next segment as an FPDU of at most `mulpdu` bytes; true when
    /// it was the last one (RFC 5041, section 5.1: the segments of a message in
    /// increasing order).
    ///
    /// # Errors
    /// When its memory was withdrawn: the batch is unchanged.
    pub(super) fn segment(
        &mut self,
        mulpdu: usize,
        framer: &mut Framer,
        batch: &mut Batch,
    ) -> Result<bool, AccessError> {
        let left = (self.length - self.done) as usize;
        let header_bytes = match self.kind {
            Kind::Tagged { .. } => TAGGED_BYTES,
            Kind::Untagged { .. } => UNTAGGED_BYTES,
        };
        // As much as fits, like Linux' siw; a multiple of four, so that an FPDU
        // within a message has no pad and its memory stays aligned.
        let most = (mulpdu - header_bytes) & !3;
        let (payload, last) = if left <= mulpdu - header_bytes { (left, true) } else { (most, false) };
        let (header, _) = self.header(last).encode();
        let header = &header[..header_bytes];
        let ulpdu = u16::try_from(header_bytes + payload).unwrap_or(u16::MAX);
        let is_copied = self.is_copied(payload);
        if framer.is_plain() && is_copied && (payload <= COPIED_BYTES || framer.crc().is_none()) {
            let arena = batch.arena();
            let from = arena.len();
            arena.extend_from_slice(&ulpdu.to_be_bytes());
            arena.extend_from_slice(header);
            if let Err(error) = self.source.copy(self.done as usize, payload, arena) {
                arena.truncate(from);
                return Err(error);
            }
            framer.seal(from, arena);
        } else if framer.is_plain() && framer.crc().is_some() {
            self.append_checked(ulpdu, header, payload, framer, batch.arena())?;
        } else {
            // Payload is sent by reference. With markers it is copied: pieces
            // of 512 bytes are not worth gathering.
            let stays = framer.is_plain() && matches!(self.source, Source::Memory { .. });
            let mut copy = Vec::new();
            if !stays {
                copy.reserve(payload);
                self.source.copy(self.done as usize, payload, &mut copy)?;
            }
            framer.begin(ulpdu, batch.arena());
            framer.bytes(header, batch.arena());
            if stays {
                let by_pages = self.sends_pages();
                self.source.advance(payload, |part| {
                    framer.passed(part.len());
                    batch.memory(part, by_pages);
                });
            } else {
                framer.bytes(&copy, batch.arena());
            }
            framer.finish(batch.arena());
        }
        self.done += u32::try_from(payload).unwrap_or(0);
        batch.end_fpdu(self.serial, last && self.ends_request);
        Ok(last)
    }

    /// Whether the payload of the next segment is copied after its header. What the program may take away goes by
    /// reference where the kernel holds its pages: copying would cost a call for each message. A peer that reads gets
    /// the pages themselves; where the socket would take them by their address, they are copied first.
    fn is_copied(&self, payload: usize) -> bool {
        let Source::Memory { spans, .. } = &self.source else { return payload <= COPIED_BYTES };
        if spans.iter().all(Span::is_direct) {
            return payload <= COPIED_BYTES;
        }
        !spans.iter().all(Span::is_held) || (self.serial == NO_REQUEST && !self.sends_pages())
    }

    /// Whether its payload is sent by the pages that the kernel holds: what a long response has.
    fn sends_pages(&self) -> bool {
        let Source::Memory { spans, .. } = &self.source else { return false };
        self.serial == NO_REQUEST && spans.iter().all(|span| span.sends_pages(self.length as usize))
    }

    /// Appends an FPDU with a CRC, without markers, whose payload is copied.
    ///
    /// # Errors
    /// As for [`Message::segment`].
    fn append_checked(
        &mut self,
        ulpdu: u16,
        header: &[u8],
        payload: usize,
        framer: &mut Framer,
        arena: &mut Vec<u8>,
    ) -> Result<(), AccessError> {
        let from = arena.len();
        framer.begin(ulpdu, arena);
        framer.bytes(header, arena);
        if let Some(crc) = framer.crc()
            && let Err(error) = self.source.copy_checked(self.done as usize, payload, arena, crc)
        {
            arena.truncate(from);
            framer.discard();
            return Err(error);
        }
        framer.passed(payload);
        framer.finish(arena);
        Ok(())
    }

    fn header(&self, last: bool) -> Header {
        match self.kind {
            Kind::Untagged { opcode, queue, msn, invalidate } => Header::Untagged {
                last,
                queue,
                msn,
                offset: self.done,
                ulp: opcode.control(),
                ulp_reserved: invalidate.0,
            },
            Kind::Tagged { opcode, stag, address } => Header::Tagged {
                last,
                stag,
                offset: address.wrapping_add(u64::from(self.done)),
                ulp: opcode.control(),
            },
        }
    }
}

impl Source {
    /// Creates a source from spans.
    pub(super) fn memory(spans: Spans) -> Self {
        Self::Memory { spans, span: 0, at: 0 }
    }

    /// Appends the next bytes; the offset into inline bytes is `done`.
    fn copy(&mut self, done: usize, length: usize, out: &mut Vec<u8>) -> Result<(), AccessError> {
        match self {
            Self::Bytes(bytes) => {
                out.extend_from_slice(bytes.get(done..done + length).unwrap_or_default());
                Ok(())
            }
            Self::Memory { spans, span: 0, at: 0 } if spans.len() == 1 && spans[0].len() == length => {
                spans[0].append_to(out)
            }
            Self::Memory { .. } => {
                let mut copied = Ok(());
                self.advance(length, |part| copied = copied.and_then(|()| part.append_to(out)));
                copied
            }
        }
    }

    /// Like [`Source::copy`], and adds the bytes to a CRC.
    fn copy_checked(
        &mut self,
        done: usize,
        length: usize,
        out: &mut Vec<u8>,
        crc: &mut Crc,
    ) -> Result<(), AccessError> {
        if let Self::Bytes(bytes) = self {
            let bytes = bytes.get(done..done + length).unwrap_or_default();
            out.extend_from_slice(bytes);
            crc.update(bytes);
            return Ok(());
        }
        let mut copied = Ok(());
        self.advance(length, |part| copied = copied.and_then(|()| part.append_checked(out, crc)));
        copied
    }

    /// Passes the next bytes of memory, span by span.
    fn advance(&mut self, length: usize, mut each: impl FnMut(Span)) {
        let Self::Memory { spans, span, at } = self else { return };
        let mut left = length;
        while left > 0 {
            let Some(current) = spans.get(*span) else { return };
            let now = left.min(current.len() - *at);
            if now > 0 {
                each(current.slice(*at, now));
            }
            left -= now;
            *at += now;
            if *at == current.len() {
                (*span, *at) = (*span + 1, 0);
            }
        }
    }
}
