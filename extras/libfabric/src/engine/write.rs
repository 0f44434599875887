//! Writes to memory that a peer has registered (fi_rma(3)).
//!
//! A write is one Send, whatever its length: its bytes follow a header that names key and offset ([`Kind::Write`]). Where
//! they go is known when the header is there, so they are received into that memory, as a long message is received into its
//! buffer ([`super::long`]). The target answers when they are in place, or that they may not be written; then they go to
//! memory that is given up. A write is complete by that answer alone, which is `FI_DELIVERY_COMPLETE`. A region that is
//! closed while a write to it arrives ends the connection.

use clearstream_iwarp::{
    memory::Span,
    verbs::Attributes,
    work::{InlineData, Segment},
};

use super::{
    Context, Engine,
    long::{Long, LongWrite, Segments},
    peer::Outgoing,
    requests::{Operation, Sent, Source, gather},
};
use crate::{
    abi::*,
    info::{INJECT_BYTES, MESSAGE_MAX},
    matching::{self, Pieces},
    memory::Part,
    wire::{self, Header, Kind},
};

/// Most bytes of the program that are copied behind their header: a short write, or the answer to a short read.
pub(super) const COPIED_BYTES: usize = Attributes::MAX_INLINE_BYTES as usize - wire::FULL_BYTES;

/// A write of the program.
pub struct Write {
    /// Its bytes.
    pub pieces: Pieces,
    /// Number of the target in the address vector.
    pub target: u64,
    /// Key of the region there, and the first byte in it.
    pub key: u64,
    /// See `key`.
    pub offset: u64,
    /// Data for a completion of the target.
    pub data: Option<u64>,
    /// The program's context.
    pub context: Context,
    /// Flags of the request.
    pub flags: u64,
    /// The buffer is the program's again when the call returns, and success is not reported.
    pub injected: bool,
}

impl Engine {
    /// Writes to memory of a peer.
    ///
    /// # Errors
    /// The code of libfabric.
    pub fn write(&mut self, write: Write) -> Result<(), i32> {
        let Write { pieces, target, key, offset, data, context, flags, injected } = write;
        let length = matching::length(&pieces);
        let must_copy = injected || flags & FI_INJECT != 0;
        if length > if must_copy { INJECT_BYTES } else { MESSAGE_MAX } {
            return Err(FI_EINVAL);
        }
        let peer = self.peer_of(target)?;
        let reported = !injected && (!self.writes.selective || flags & FI_COMPLETION != 0);
        // A failure is reported in any case: the answer comes after the call.
        let sent = Sent { context, flags: FI_RMA | FI_WRITE, reported, injected: false };
        if !self.is_awaited(peer, sent)? {
            return Ok(());
        }
        let mut header = Header {
            kind: Kind::Write as u8,
            flags: if data.is_some() { wire::WITH_DATA } else { 0 },
            length: length as u32,
            tag: key,
            data: data.unwrap_or(0),
            address: offset,
            ..Header::default()
        };
        let number = self.operations.insert(Operation::Write { peer, sent, source: None, answer: None });
        header.number = number;
        let outgoing = if length <= COPIED_BYTES {
            let mut bytes = InlineData::with_capacity(wire::FULL_BYTES + length);
            bytes.extend_from_slice(header.bytes());
            // SAFETY: the program's buffers.
            unsafe { gather(&pieces, |piece| bytes.extend_from_slice(piece)) };
            Outgoing::Copied { bytes, sent: None }
        } else {
            self.gathered(number, header, pieces, must_copy)
        };
        self.put(peer, outgoing);
        Ok(())
    }

    /// A write that is sent from the program's memory, or from a copy of it.
    fn gathered(&mut self, number: u64, header: Header, pieces: Pieces, must_copy: bool) -> Outgoing {
        let mut copy = Vec::new();
        if must_copy {
            // SAFETY: the program's buffers.
            unsafe { gather(&pieces, |piece| copy.extend_from_slice(piece)) };
        }
        let mut copy = copy.into_boxed_slice();
        let pieces = if must_copy { [(copy.as_mut_ptr(), copy.len())].into_iter().collect() } else { pieces };
        if let Some(Operation::Write { source, .. }) = self.operations.get_mut(number) {
            *source = Some(Source { header: Box::new(header), _copy: copy });
        }
        Outgoing::Gathered { number, pieces }
    }

    /// The Send of a write is out: what it was made of is not needed any more.
    pub(super) fn finish_source(&mut self, number: u64) {
        let Some(Operation::Write { source, answer, .. }) = self.operations.get_mut(number) else { return };
        *source = None;
        if let Some(code) = *answer {
            self.finish_write(number, code);
        }
    }

    /// The target has answered. A peer's word does not free what is still sent from.
    pub(super) fn answer_write(&mut self, number: u64, code: i32) {
        let Some(Operation::Write { source, answer, .. }) = self.operations.get_mut(number) else { return };
        if source.is_some() {
            *answer = Some(code);
        } else {
            self.finish_write(number, code);
        }
    }

    fn finish_write(&mut self, number: u64, code: i32) {
        if let Some(Operation::Write { sent, .. }) = self.operations.take(number) {
            self.report_sent(sent, code);
        }
    }

    /// Memory of this side that a peer is to write, once the beginning of its bytes is there; `None` if it may not, or if
    /// that is not mapped.
    fn begin_write(&self, header: &Header, first: &[u8]) -> Option<Part> {
        let length = header.length as usize;
        let part = self.regions.range(header.tag, header.address, length, FI_REMOTE_WRITE)?;
        if !first.is_empty() {
            self.span(part, first.len(), true)?.write(0, first).ok()?;
        }
        Some(part)
    }

    /// Memory of this side that a peer asked for: the program keeps it until it closes the region, which takes the lock of
    /// the engine.
    pub(super) fn span(&self, part: Part, length: usize, writes: bool) -> Option<Span> {
        let segment = self.segment_of(part, 0, length);
        self.rnic.memory().local(self.domain.id(), segment, writes).ok()
    }

    fn segment_of(&self, part: Part, from: usize, to: usize) -> Segment {
        let stag = if part.is_sparse { self.sparse } else { self.all };
        Segment { stag, address: (part.base + from) as u64, length: (to - from) as u32 }
    }

    /// A write of a peer that its posted buffer holds: from one place to another of it.
    pub(super) fn place_write(&mut self, peer: usize, header: &Header, (from, to): (usize, usize)) {
        let part = self.begin_write(header, &self.peers[peer].buffers[from..to]);
        self.answer(peer, header, part.is_some());
    }

    /// A write of a peer whose beginning is in its posted buffer: returns the memory of the rest, or `None` if there is
    /// none for one that is refused.
    pub(super) fn place_long_write(
        &mut self,
        peer: usize,
        header: &Header,
        first: &[u8],
    ) -> Option<Segments> {
        let length = header.length as usize;
        let (region, refused, rest) = match self.begin_write(header, first) {
            // The program keeps the memory until it closes the region, which ends the connection before.
            Some(part) => (Some(part.region), Vec::new(), self.segment_of(part, first.len(), length)),
            None => {
                let mut refused = Vec::<u8>::new();
                // Its length is the peer's word.
                refused.try_reserve_exact(length - first.len()).ok()?;
                let rest = refused.spare_capacity_mut().as_mut_ptr().cast();
                (None, refused, self.segment(rest, length - first.len()))
            }
        };
        self.peers[peer].long = Some(Long::Write(LongWrite { header: *header, region, _refused: refused }));
        Some([rest].into_iter().collect())
    }

    /// A long write of a peer is complete.
    pub(super) fn finish_long_write(&mut self, peer: usize, write: &LongWrite) {
        self.answer(peer, &write.header, write.region.is_some());
    }

    /// Tells a peer what became of its write, and the program, if there is data for it.
    fn answer(&mut self, peer: usize, header: &Header, is_in_place: bool) {
        if is_in_place {
            self.acknowledge(peer, header.number);
        } else {
            self.refuse(peer, header.number);
        }
        if !is_in_place || header.flags & wire::WITH_DATA == 0 {
            return;
        }
        let source = self.number_of(peer);
        let entry = fi_cq_tagged_entry {
            op_context: std::ptr::null_mut(),
            flags: FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA,
            len: header.length as usize,
            buf: std::ptr::null_mut(),
            data: header.data,
            tag: 0,
        };
        // No request of this side's: counters of receives do not count it.
        if let Some(completions) = &self.receives.completions {
            completions.push(entry, source);
        }
    }

    /// A region is closed: connections end by which a peer writes to it at this moment.
    pub(super) fn end_writes(&mut self, region: u64) {
        let writes =
            |long: &Long| matches!(long, Long::Write(LongWrite { region: Some(of), .. }) if *of == region);
        for peer in 0..self.peers.len() {
            if self.peers[peer].long.as_ref().is_some_and(writes) {
                self.fail(peer);
            }
        }
    }
}
