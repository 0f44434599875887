//! Reads of memory that a peer has registered (fi_rma(3)).
//!
//! The initiator asks for a range of a region ([`Kind::Fetch`]). Its target looks up the key and answers with the bytes, if
//! they are few. Otherwise it registers that range, for the time of the read alone, as it does with a message that is to be
//! read; the initiator reads it by RDMA Read and says so. A region that is closed meanwhile is closed at once: the Read then
//! fails, and its connection with it.

use std::ptr;

use clearstream_iwarp::work::InlineData;

use super::{
    Context, Engine,
    peer::Outgoing,
    requests::{Operation, Sent, scatter},
    write::COPIED_BYTES,
};
use crate::{
    abi::*,
    matching::{self, Pieces, Remote},
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

impl Engine {
    /// Reads memory of a peer.
    ///
    /// # Errors
    /// The code of libfabric.
    pub fn fetch(&mut self, fetch: Fetch) -> Result<(), i32> {
        let Fetch { pieces, target, key, offset, context, flags } = fetch;
        let length = u32::try_from(matching::length(&pieces)).map_err(|_| FI_EINVAL)?;
        let peer = self.peer_of(target)?;
        let reported = !self.fetches.selective || flags & FI_COMPLETION != 0;
        let sent = Sent { context, flags: FI_RMA | FI_READ, reported, injected: false };
        if !self.is_awaited(peer, sent)? {
            return Ok(());
        }
        let operation = Operation::Fetch { peer, sent, pieces, remote: None, copy: None };
        let number = self.operations.insert(operation);
        let kind = Kind::Fetch as u8;
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
            false => self.open_range(peer, asked, part),
        });
        match answer {
            Some(bytes) => self.put(peer, Outgoing::Copied { bytes, sent: None }),
            None => self.refuse(peer, asked.number),
        }
    }

    /// The answer with the bytes of a range; `None` if they are not mapped.
    fn bytes_of(&self, part: Part, asked: &Header) -> Option<InlineData> {
        let &Header { length, number, .. } = asked;
        let header = Header { kind: Kind::Fetched as u8, length, number, ..Header::default() };
        let mut bytes = InlineData::from_slice(header.bytes());
        bytes.resize(wire::FULL_BYTES + length as usize, 0);
        if length > 0 {
            self.span(part, length as usize, false)?.read(0, &mut bytes[wire::FULL_BYTES..]).ok()?;
        }
        Some(bytes)
    }

    /// Tells a peer that this side's memory is not for what it asked.
    pub(super) fn refuse(&mut self, peer: usize, number: u64) {
        self.put_header(peer, &Header { kind: Kind::Refused as u8, number, ..Header::default() });
    }

    /// The offer of a range of a region; `None` if nothing is left to register it with.
    fn open_range(&mut self, peer: usize, asked: &Header, part: Part) -> Option<InlineData> {
        let Part { region, base, is_sparse } = part;
        let base = ptr::with_exposed_provenance_mut(base);
        // SAFETY: the program keeps the memory until it closes the region, which withdraws it before.
        let (stag, address) = unsafe { self.expose(base, asked.length as usize, is_sparse) }.ok()?;
        let number = self.operations.insert(Operation::Served { peer, region, stag: Some(stag) });
        let offer = Header {
            kind: Kind::Rendezvous as u8,
            flags: wire::FETCHED,
            length: asked.length,
            data: asked.number,
            stag: stag.0,
            address,
            number,
            ..Header::default()
        };
        Some(InlineData::from_slice(offer.bytes()))
    }

    /// A region is closed: what peers asked for of it cannot be read any more, and nothing writes there.
    pub fn withdraw(&mut self, region: u64) {
        self.end_writes(region);
        let of_region = |operation: &Operation| matches!(operation, Operation::Served { region: of, .. } if *of == region);
        for number in self.operations.numbers(of_region) {
            // The peer's word that it has read it may still come: the operation stays.
            if let Some(Operation::Served { stag, .. }) = self.operations.get_mut(number) {
                let stag = stag.take();
                self.deregister(stag);
            }
        }
    }

    /// The peer has said where the memory is: reads it.
    pub(super) fn start_fetched(&mut self, peer: usize, header: &Header) {
        let number = header.data;
        let Some(Operation::Fetch { peer: of, pieces, remote: remote @ None, copy, .. }) =
            self.operations.get_mut(number)
        else {
            return self.fail(peer);
        };
        let length = matching::length(pieces);
        if *of != peer || length == 0 || length != header.length as usize {
            return self.fail(peer);
        }
        let &Header { stag, address, length: bytes, number: of_peer, .. } = header;
        *remote = Some(Remote { stag, address, length: bytes, number: of_peer });
        *copy = (pieces.len() > 1).then(|| vec![0; length].into_boxed_slice());
        self.peers[peer].reads_waiting.push_back(number);
        self.start_reads(peer);
    }

    /// The peer has answered with the bytes: from one place to another of its posted buffer.
    pub(super) fn take_fetched(&mut self, peer: usize, header: &Header, (from, to): (usize, usize)) {
        match self.operations.get_mut(header.number) {
            Some(Operation::Fetch { peer: of, pieces, remote: None, .. })
                if *of == peer && matching::length(pieces) == to - from => {}
            _ => return self.fail(peer),
        }
        if let Some(Operation::Fetch { sent, pieces, .. }) = self.operations.take(header.number) {
            // SAFETY: the program keeps the buffers of a read until it is reported.
            unsafe { scatter(&pieces, &self.peers[peer].buffers[from..to]) };
            self.report_sent(sent, 0);
        }
    }

    /// The memory is read.
    pub(super) fn finish_fetch(
        &mut self,
        peer: usize,
        sent: Sent,
        pieces: &Pieces,
        remote: Remote,
        copy: Option<&[u8]>,
    ) {
        if let Some(copy) = copy {
            // SAFETY: the program keeps the buffers of a read until it is reported.
            unsafe { scatter(pieces, copy) };
        }
        self.acknowledge(peer, remote.number);
        self.report_sent(sent, 0);
    }

    /// The peer does not let its memory be read or written.
    pub(super) fn finish_refused(&mut self, peer: usize, number: u64) {
        match self.operations.get_mut(number) {
            Some(Operation::Fetch { peer: of, remote: None, .. }) if *of == peer => {}
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
