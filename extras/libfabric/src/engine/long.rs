//! Long messages that are sent before their receive is known, long writes, and long answers to reads.
//!
//! A posted buffer has room for their beginning. When it is full, the header says which receive the message is for, and
//! the rest goes straight to the program's memory; without a receive, to memory of the engine, from which it is copied
//! later. A connection carries one such message at a time. So it is with a write, and the answer to a read, whose headers say
//! where they go.

use clearstream_iwarp::work::Segment;
use smallvec::SmallVec;

use super::{
    Engine,
    deliver::label,
    peer::{BUFFER_BYTES, Phase},
    requests::scatter,
};
use crate::{
    matching::{self, Arrival, Body, Label, Pieces, Receive},
    wire::{self, Header, Kind},
};

/// Payload of a message in the posted buffer.
pub(super) const FIRST_BYTES: usize = BUFFER_BYTES - wire::EAGER_BYTES;

/// Memory of what arrives.
pub(super) type Segments = SmallVec<[Segment; 4]>;

/// What arrives and is longer than a posted buffer.
pub(super) enum Long {
    Message(LongMessage),
    Write(LongWrite),
    /// The answer to a read of this side, by the number of that.
    Fetched(u64),
}

/// A write to memory of this side.
pub(super) struct LongWrite {
    pub(super) header: Header,
    /// Number of the region, unless it is refused.
    pub(super) region: Option<u64>,
    /// Memory for the bytes of a refused one.
    pub(super) _refused: Vec<u8>,
}

/// A message.
pub(super) struct LongMessage {
    label: Label,
    length: usize,
    /// The receive, once there is one.
    receive: Option<Receive>,
    /// The message, if it does not go to the receive's memory directly; of `length` bytes when it is complete.
    copy: Option<Vec<u8>>,
}

impl Engine {
    /// The buffer of a receive is full: names the memory of the rest.
    pub(super) fn receive_long(&mut self, peer: usize, slot: usize) {
        if matches!(self.peers[peer].phase, Phase::Ended) {
            return;
        }
        // Longer than its header stated.
        if self.peers[peer].long.is_some() {
            return self.fail(peer);
        }
        let begin = slot * BUFFER_BYTES;
        // Taken for the time of the copy: matching does not touch the peer's buffers.
        let buffers = std::mem::take(&mut self.peers[peer].buffers);
        let first = &buffers[begin..begin + BUFFER_BYTES];
        let header =
            Header::read(first).filter(|header| header.bytes().len() + header.length as usize > first.len());
        let rest = header.and_then(|header| match (header.kind, &first[header.bytes().len()..]) {
            (kind, first) if kind == Kind::Eager as u8 => self.place_long(peer, &header, first),
            (kind, first) if kind == Kind::Write as u8 => self.place_long_write(peer, &header, first),
            (kind, first) if kind == Kind::Fetched as u8 => self.take_long_fetched(peer, &header, first),
            _ => None,
        });
        self.peers[peer].buffers = buffers;
        let extended = rest.is_some_and(|segments| {
            self.peers[peer].pair.as_ref().is_some_and(|pair| pair.extend_receive(&segments).is_ok())
        });
        if !extended {
            self.fail(peer);
        }
    }

    /// Copies the beginning of a message to its memory; returns the memory of the rest, or `None` if there is none for
    /// a message without a receive.
    fn place_long(&mut self, peer: usize, header: &Header, first: &[u8]) -> Option<Segments> {
        let (label, length) = (label(peer, header), header.length as usize);
        let number = self.number_of(peer);
        let queue = if label.flags & wire::TAGGED != 0 { &mut self.tagged } else { &mut self.untagged };
        let receive = queue.receive_for(number, label.tag, length);
        let direct = receive.as_ref().filter(|receive| matching::length(&receive.pieces) >= length);
        let (copy, rest) = match direct {
            Some(receive) => {
                // SAFETY: the program keeps the buffer of a receive until it is reported.
                unsafe { scatter(&receive.pieces, first) };
                (None, part(&receive.pieces, first.len(), length))
            }
            None => {
                let mut copy = Vec::new();
                // Its length is the peer's word.
                if copy.try_reserve_exact(length).is_err() {
                    if let Some(receive) = &receive {
                        self.fail_receive(receive, label);
                    }
                    return None;
                }
                copy.extend_from_slice(first);
                if receive.is_none() {
                    self.peers[peer].held_bytes += length;
                    queue.arrived.push_back(Arrival { label, body: Body::Arriving(length), claimed: None });
                }
                let rest = copy.spare_capacity_mut().as_mut_ptr().cast();
                (Some(copy), [(rest, length - first.len())].into_iter().collect())
            }
        };
        self.peers[peer].long = Some(Long::Message(LongMessage { label, length, receive, copy }));
        Some(self.segments(&rest))
    }

    /// Memory of the program.
    pub(super) fn segments(&self, pieces: &Pieces) -> Segments {
        pieces.iter().map(|(base, length)| self.segment(*base, *length)).collect()
    }

    /// Gives the long message that arrives from a peer to a receive.
    pub(super) fn attach(&mut self, peer: usize, receive: Receive) {
        if let Some(Long::Message(long)) = &mut self.peers[peer].long {
            long.receive = Some(receive);
        }
    }

    /// The long message, or write, of a peer is complete.
    pub(super) fn finish_long(&mut self, peer: usize) {
        let LongMessage { label, length, receive, copy } = match self.peers[peer].long.take() {
            Some(Long::Message(message)) => message,
            Some(Long::Write(write)) => return self.finish_long_write(peer, &write),
            Some(Long::Fetched(number)) => return self.finish_fetched(number),
            None => return self.fail(peer),
        };
        match (receive, copy) {
            (Some(receive), None) => self.report_message(&receive, label, length, length),
            (receive, Some(mut copy)) => {
                // SAFETY: `place_long` reserved the bytes, and the RNIC has written all of them.
                unsafe { copy.set_len(length) };
                match receive {
                    Some(receive) => self.finish_copy(&receive, label, &copy),
                    None => self.keep_long(label, copy),
                }
            }
            (None, None) => {}
        }
    }

    /// Keeps a message without a receive; it is not among the arrived ones any more if it was discarded.
    fn keep_long(&mut self, label: Label, copy: Vec<u8>) {
        let queue = if label.flags & wire::TAGGED != 0 { &mut self.tagged } else { &mut self.untagged };
        let arrives = |arrival: &&mut Arrival| {
            arrival.label.peer == label.peer && matches!(arrival.body, Body::Arriving(_))
        };
        if let Some(arrival) = queue.arrived.iter_mut().find(arrives) {
            arrival.body = Body::Copied(copy.into_boxed_slice());
        }
    }

    /// The connection of a peer has ended: the long message that arrived fails.
    pub(super) fn drop_long(&mut self, peer: usize) {
        let Some(Long::Message(long)) = self.peers[peer].long.take() else { return };
        if let Some(receive) = long.receive {
            self.fail_receive(&receive, long.label);
        }
        let of_others =
            |arrival: &Arrival| arrival.label.peer != peer || !matches!(arrival.body, Body::Arriving(_));
        self.tagged.arrived.retain(of_others);
        self.untagged.arrived.retain(of_others);
    }
}

/// The pieces from one offset to another.
pub(super) fn part(pieces: &Pieces, from: usize, to: usize) -> Pieces {
    let (mut at, mut rest) = (0, Pieces::new());
    for (base, length) in pieces {
        let (begin, end) = (from.clamp(at, at + length), to.clamp(at, at + length));
        if begin < end {
            rest.push((base.wrapping_add(begin - at), end - begin));
        }
        at += length;
    }
    rest
}
