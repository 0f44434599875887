//! Reads of memory that a peer has registered (fi_rma(3)).
//!
//! The initiator asks for a range of a region ([`Kind::Fetch`]). Its target looks up the key and answers by a Send of the bytes:
//! of a copy, if they are few, of the region itself otherwise. The initiator knows where they go when the header is there, so
//! they are received into that memory, as a long message is received into its buffer ([`super::long`]). A region that is
//! closed meanwhile refuses what is not on its way; what is ends its connection.

use clearstream_iwarp::work::InlineData;

use super::{
    Context, Engine,
    long::{Long, Segments},
    peer::Outgoing,
    requests::{Operation, Sent, Serving, scatter},
    write::COPIED_BYTES,
};
use crate::{
    abi::*,
    info::MESSAGE_MAX,
    matching::{self, Pieces},
    memory::Part,
    wire::{self, Header, Kind},
};

/// A read of the program.
pub struct Fetch {
    /// Where the bytes go; their number.
    pub pieces: Pieces,
    /// Number of the target in the address vector.
    pub target: u64,
    /// Key of the region there, and the first byte in it.
    pub key: u64,
    /// See `key`.
    pub offset: u64,
    /// The program's context.
    pub context: Context,
    /// Flags of the request.
    pub flags: u64,
}

/// Polls for Sends that are out, before what a region is sent from is closed.
const DRAIN_POLLS: u32 = 1024;

impl Engine {
    /// Reads memory of a peer.
    ///
    /// # Errors
    /// The code of libfabric.
    pub fn fetch(&mut self, fetch: Fetch) -> Result<(), i32> {
        let Fetch { pieces, target, key, offset, context, flags } = fetch;
        let length = matching::length(&pieces);
        if length > MESSAGE_MAX {
            return Err(FI_EINVAL);
        }
        let peer = self.peer_of(target)?;
        let reported = !self.fetches.selective || flags & FI_COMPLETION != 0;
        let sent = Sent { context, flags: FI_RMA | FI_READ, reported, injected: false };
        if !self.is_awaited(peer, sent)? {
            return Ok(());
        }
        let number = self.operations.insert(Operation::Fetch { peer, sent, pieces });
        let (kind, length) = (Kind::Fetch as u8, length as u32);
        self.put_header(
            peer,
            &Header { kind, length, tag: key, address: offset, number, ..Header::default() },
        );
        Ok(())
    }

    /// Answers a peer that asks for memory of this side.
    pub(super) fn serve(&mut self, peer: usize, asked: &Header) {
        let length = asked.length as usize;
        let part = self.regions.range(asked.tag, asked.address, length, FI_REMOTE_READ);
        let answer = part.and_then(|part| match length <= COPIED_BYTES {
            true => self.bytes_of(part, asked),
            false => Some(self.range_of(peer, part, asked)),
        });
        match answer {
            Some(answer) => self.put(peer, answer),
            None => self.refuse(peer, asked.number),
        }
    }

    /// Tells a peer that this side's memory is not for what it asked.
    pub(super) fn refuse(&mut self, peer: usize, number: u64) {
        self.put(peer, refusal(number));
    }

    /// The answer with a copy of the bytes; `None` if they are not mapped.
    fn bytes_of(&self, part: Part, asked: &Header) -> Option<Outgoing> {
        let length = asked.length as usize;
        let mut bytes = InlineData::from_slice(fetched(asked).bytes());
        bytes.resize(wire::FULL_BYTES + length, 0);
        if length > 0 {
            self.span(part, length, false)?.read(0, &mut bytes[wire::FULL_BYTES..]).ok()?;
        }
        Some(Outgoing::Copied { bytes, sent: None })
    }

    /// The answer with the bytes themselves: the program keeps them until it closes the region, which withdraws them before.
    fn range_of(&mut self, peer: usize, part: Part, asked: &Header) -> Outgoing {
        let Part { region, base, is_sparse } = part;
        let (header, state) = (Box::new(fetched(asked)), Serving::Waits);
        let number = self.operations.insert(Operation::Served { peer, region, is_sparse, header, state });
        let base = std::ptr::with_exposed_provenance_mut(base);
        Outgoing::Gathered { number, pieces: [(base, asked.length as usize)].into_iter().collect() }
    }

    /// A region is closed: nothing of it is sent any more, and nothing writes there.
    pub fn withdraw(&mut self, region: u64) {
        self.end_writes(region);
        let of_region = |operation: &Operation| matches!(operation, Operation::Served { region: of, .. } if *of == region);
        let is_on_its_way = |operation: &Operation| {
            of_region(operation) && matches!(operation, Operation::Served { state: Serving::Sent, .. })
        };
        for number in self.operations.numbers(of_region) {
            if let Some(Operation::Served { state: state @ Serving::Waits, .. }) =
                self.operations.get_mut(number)
            {
                *state = Serving::Withdrawn;
            }
        }
        // A peer that has all of an answer may say so before this side has looked after its Send.
        for _ in 0..DRAIN_POLLS {
            if self.operations.numbers(is_on_its_way).is_empty() || self.progress() == 0 {
                break;
            }
        }
        for number in self.operations.numbers(is_on_its_way) {
            if let Some(Operation::Served { peer, .. }) = self.operations.get_mut(number) {
                let peer = *peer;
                self.fail(peer);
            }
        }
    }

    /// What is sent instead of an answer whose region was closed while it waited.
    pub(super) fn withdrawn(&mut self, number: u64) -> Option<Outgoing> {
        let Some(Operation::Served { state: Serving::Withdrawn, header, .. }) =
            self.operations.get_mut(number)
        else {
            return None;
        };
        let asked = header.number;
        self.operations.take(number);
        Some(refusal(asked))
    }

    /// The pieces of a read that a peer answers; `None` if it is not one of that length.
    fn fetched_into(&mut self, peer: usize, header: &Header) -> Option<&Pieces> {
        match self.operations.get_mut(header.number) {
            Some(Operation::Fetch { peer: of, pieces, .. })
                if *of == peer && matching::length(pieces) == header.length as usize =>
            {
                Some(pieces)
            }
            _ => None,
        }
    }

    /// The peer has answered with the bytes: from one place to another of its posted buffer.
    pub(super) fn take_fetched(&mut self, peer: usize, header: &Header, (from, to): (usize, usize)) {
        if self.fetched_into(peer, header).is_none() {
            return self.fail(peer);
        }
        if let Some(Operation::Fetch { sent, pieces, .. }) = self.operations.take(header.number) {
            // SAFETY: the program keeps the buffers of a read until it is reported.
            unsafe { scatter(&pieces, &self.peers[peer].buffers[from..to]) };
            self.report_sent(sent, 0);
        }
    }

    /// The peer answers with more than its posted buffer holds: returns the memory of the rest.
    pub(super) fn take_long_fetched(
        &mut self,
        peer: usize,
        header: &Header,
        first: &[u8],
    ) -> Option<Segments> {
        let length = header.length as usize;
        let pieces = self.fetched_into(peer, header)?;
        // SAFETY: the program keeps the buffers of a read until it is reported.
        unsafe { scatter(pieces, first) };
        let rest = super::long::part(pieces, first.len(), length);
        self.peers[peer].long = Some(Long::Fetched(header.number));
        Some(self.segments(&rest))
    }

    /// A long answer of a peer is complete.
    pub(super) fn finish_fetched(&mut self, number: u64) {
        if let Some(Operation::Fetch { sent, .. }) = self.operations.take(number) {
            self.report_sent(sent, 0);
        }
    }

    /// The peer does not let its memory be read or written.
    pub(super) fn finish_refused(&mut self, peer: usize, number: u64) {
        match self.operations.get_mut(number) {
            Some(Operation::Fetch { peer: of, .. }) if *of == peer => {}
            Some(Operation::Write { peer: of, .. }) if *of == peer => {
                return self.answer_write(number, FI_EACCES);
            }
            _ => return self.fail(peer),
        }
        if let Some(Operation::Fetch { sent, .. }) = self.operations.take(number) {
            self.report_sent(sent, FI_EACCES);
        }
    }
}

/// The header of an answer.
fn fetched(asked: &Header) -> Header {
    let &Header { length, number, .. } = asked;
    Header { kind: Kind::Fetched as u8, length, number, ..Header::default() }
}

fn refusal(number: u64) -> Outgoing {
    let header = Header { kind: Kind::Refused as u8, number, ..Header::default() };
    Outgoing::Copied { bytes: InlineData::from_slice(header.bytes()), sent: None }
}
