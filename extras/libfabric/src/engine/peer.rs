//! Peers: connection, credits, and messages that wait for either.
//!
//! A Send without a posted receive ends an iWARP connection (RFC 5041, section 7.2), so a sender knows the number of
//! receives that its peer has posted: each Send takes a credit, and each header returns those of receives that were
//! reposted. A side that sends nothing returns them by a Send of its own when it owes half of them; such Sends
//! take no credit, for which [`SPARE`] receives are posted: at most two of them are under way.
//!
//! A peer is an address. Its connection may end, and with it what is under way, but the peer stays: the next message to it
//! connects again, and a program that starts anew at that address is served ([`super::setup`]).

use std::{collections::VecDeque, net::SocketAddrV4, time::Instant};

use clearstream_iwarp::{
    stag::Stag,
    verbs::{Connecting, raw::QueuePair},
    work::{self, Data, InlineData, ReceiveRequest, Remote, Segment, SendRequest},
};
use smallvec::{SmallVec, smallvec};

use super::{
    Engine,
    long::{FIRST_BYTES, Long},
    requests::{Operation, Sent},
};
use crate::{
    matching::{self, Pieces},
    wire::{self, Header, Kind},
};

/// Receives that a peer may use.
pub(super) const CREDITS: u16 = 64;
/// Receives for Sends that return credits.
pub(super) const SPARE: u16 = 4;
/// Requests of the send queue.
pub(super) const SEND_DEPTH: u32 = 256;
/// Outstanding Reads (ORD).
pub(super) const READS: u16 = 16;

/// Bytes of a posted receive: a whole short message, or the beginning of a long one. Whole cache lines, apart from the
/// addresses of other buffers' first lines.
pub(super) const BUFFER_BYTES: usize = (4096 + wire::FULL_BYTES).next_multiple_of(64) + 64;
const _: () = assert!(crate::info::INJECT_BYTES + wire::EAGER_BYTES <= BUFFER_BYTES);

/// Sends, and bytes of them, that wait for a poll of the program.
const BATCH_SENDS: usize = 16;
const BATCH_BYTES: usize = 256 << 10;

/// Bytes of a peer's messages without a receive from which on its long ones are to be offered, not sent.
const HELD_BYTES: usize = 16 << 20;

/// State of a connection.
pub(super) enum Phase {
    /// This side connects.
    Connecting(Box<Connecting>),
    /// The peer rejected this side's connection, at that time, as both sides connected at once: its own one is used.
    Awaited(Instant),
    Connected,
    /// The connection ended, or there was none.
    Ended,
}

/// A peer.
pub(super) struct Peer {
    /// Address that it listens on.
    pub(super) address: SocketAddrV4,
    /// Its number in the address vector, or `FI_ADDR_UNSPEC`.
    pub(super) number: u64,
    pub(super) phase: Phase,
    pub(super) pair: Option<QueuePair>,
    /// What tells its present process from those before it at the same address; 0 before it is known.
    pub(super) incarnation: u64,
    /// Connections and attempts that ended, as far as both sides know.
    pub(super) generation: u32,
    /// A connection that was set up has ended, and no other was set up since.
    pub(super) is_lost: bool,
    /// The last attempt to connect failed, and nothing was there to report that with.
    pub(super) is_untold: bool,
    /// Attempts of this side that the peer has rejected.
    pub(super) rejections: u32,
    /// Memory of posted receives.
    pub(super) buffers: Box<[u8]>,
    pub(super) credits: u16,
    /// Receives that were reposted and not announced yet.
    pub(super) owed: u16,
    /// Bytes of its messages that wait here for a receive.
    pub(super) held_bytes: usize,
    /// It reported [`wire::HOLDS`].
    pub(super) holds: bool,
    /// Sends in the order of the program's calls.
    pub(super) pending: VecDeque<Outgoing>,
    /// Bytes of those that were not tried to be posted.
    pub(super) unsent_bytes: usize,
    /// Number of polls at the last Send.
    pub(super) put_at: u64,
    /// It is in [`Engine`]'s list of peers with Sends that wait for a poll.
    pub(super) listed: bool,
    /// Reads under way, and those beyond the limit.
    pub(super) reads: u16,
    pub(super) reads_waiting: VecDeque<u64>,
    /// The long message or write that arrives.
    pub(super) long: Option<Long>,
}

/// A Send that is to be posted.
pub(super) enum Outgoing {
    /// Header and payload; a send of the program is complete when it is posted.
    Copied { bytes: InlineData, sent: Option<Sent> },
    /// A header of an operation, and payload in the program's memory.
    Gathered { number: u64, pieces: Pieces },
}

impl Outgoing {
    fn bytes(&self) -> usize {
        match self {
            Self::Copied { bytes, .. } => bytes.len(),
            Self::Gathered { pieces, .. } => wire::FULL_BYTES + matching::length(pieces),
        }
    }
}

impl Engine {
    /// Memory of this process in a request.
    pub(super) fn segment(&self, base: *mut u8, length: usize) -> Segment {
        Segment { stag: self.all, address: base.expose_provenance() as u64, length: length as u32 }
    }

    /// Posts the receive of a buffer.
    pub(super) fn post_buffer(&mut self, peer: usize, slot: usize) {
        let bytes = BUFFER_BYTES;
        let Peer { pair: Some(pair), buffers, .. } = &mut self.peers[peer] else { return };
        let address = buffers[slot * bytes..].as_mut_ptr().expose_provenance() as u64;
        let length = bytes as u32;
        let segments = smallvec![Segment { stag: self.all, address, length }];
        // A connection that ended takes no receives, and reports that itself.
        let _ = pair.post_receive(ReceiveRequest { id: slot as u64, segments });
    }

    /// Sends to a peer, after what waits for it. The first Send since the program polled goes at once; those after it
    /// wait for the next poll, a full batch, or [`super::setup`]'s thread, and share a system call.
    pub(super) fn put(&mut self, peer: usize, outgoing: Outgoing) {
        let to = &mut self.peers[peer];
        let first = std::mem::replace(&mut to.put_at, self.polls) != self.polls;
        to.unsent_bytes += outgoing.bytes();
        to.pending.push_back(outgoing);
        if first || to.unsent_bytes >= BATCH_BYTES || to.pending.len() >= BATCH_SENDS {
            self.transmit(peer);
        }
        let to = &mut self.peers[peer];
        if !to.pending.is_empty() {
            if !std::mem::replace(&mut to.listed, true) {
                self.unsent.push(peer);
            }
            self.request_attention();
        }
    }

    /// Posts what waits since the last poll.
    pub(super) fn transmit_unsent(&mut self) {
        while let Some(peer) = self.unsent.pop() {
            self.peers[peer].listed = false;
            self.transmit(peer);
        }
    }

    /// Posts what waits for a peer, as far as it can, in batches.
    pub(super) fn transmit(&mut self, peer: usize) {
        self.peers[peer].unsent_bytes = 0;
        let mut requests = SmallVec::<[SendRequest; 1]>::new();
        let mut bytes = 0;
        while let Some(outgoing) = self.peers[peer].pending.pop_front() {
            bytes += outgoing.bytes();
            match self.prepare(peer, outgoing) {
                Ok(request) => requests.extend(request),
                Err(outgoing) => {
                    self.peers[peer].pending.push_front(outgoing);
                    break;
                }
            }
            if bytes >= BATCH_BYTES {
                self.post_requests(peer, requests.drain(..));
                bytes = 0;
            }
        }
        if !requests.is_empty() {
            self.post_requests(peer, requests);
        }
    }

    /// The request of a Send, or `None` if it failed; returns a Send that has to wait.
    fn prepare(&mut self, peer: usize, outgoing: Outgoing) -> Result<Option<SendRequest>, Outgoing> {
        match self.peers[peer].phase {
            Phase::Connected if self.peers[peer].credits > 0 => {}
            Phase::Ended => {
                self.drop_outgoing(outgoing);
                return Ok(None);
            }
            _ => return Err(outgoing),
        }
        let outgoing = match outgoing {
            Outgoing::Gathered { number, pieces }
                if self.peers[peer].holds
                    && matching::length(&pieces) > FIRST_BYTES
                    && self.operations.is_message(number) =>
            {
                match self.offer_queued(peer, number, &pieces) {
                    Some(outgoing) => outgoing,
                    None => return Ok(None),
                }
            }
            Outgoing::Gathered { number, pieces } => {
                self.withdrawn(number).unwrap_or(Outgoing::Gathered { number, pieces })
            }
            outgoing => outgoing,
        };
        self.peers[peer].credits -= 1;
        let owed = self.announced(peer);
        let (id, data, signaled) = match outgoing {
            Outgoing::Copied { mut bytes, sent } => {
                bytes[2..4].copy_from_slice(&owed.to_ne_bytes());
                if let Some(sent) = sent {
                    self.report_sent(sent, 0);
                }
                (0, Data::Inline(bytes), false)
            }
            Outgoing::Gathered { number, pieces } => {
                let (all, sparse) = (self.all, self.sparse);
                let Some((header, stag)) = self.operations.source(number, all, sparse) else {
                    return Ok(None);
                };
                header.credits = owed;
                let address = std::ptr::from_ref(header).expose_provenance() as u64;
                let length = header.bytes().len() as u32;
                let mut segments: work::Segments = smallvec![Segment { stag: all, address, length }];
                let pieces = pieces.iter().map(|(base, length)| self.segment(*base, *length));
                segments.extend(pieces.map(|piece| Segment { stag, ..piece }));
                (number, Data::Gather(segments), true)
            }
        };
        Ok(Some(SendRequest { id, operation: send(data), signaled, fence: false }))
    }

    /// Credits as a header announces them.
    fn announced(&mut self, peer: usize) -> u16 {
        let holds = self.peers[peer].held_bytes > HELD_BYTES;
        std::mem::take(&mut self.peers[peer].owed) | if holds { wire::HOLDS } else { 0 }
    }

    /// Returns credits by a Send of its own.
    pub(super) fn return_credits(&mut self, peer: usize) {
        let credits = self.announced(peer);
        let header = Header { kind: Kind::Credits as u8, credits, ..Header::default() };
        let data = Data::Inline(InlineData::from_slice(header.bytes()));
        self.post_requests(
            peer,
            [SendRequest { id: 0, operation: send(data), signaled: false, fence: false }],
        );
    }

    /// Notifies a peer that its message was read, or its write is in place.
    pub(super) fn acknowledge(&mut self, peer: usize, number: u64) {
        let header = Header { kind: Kind::Finished as u8, number, ..Header::default() };
        self.put_header(peer, &header);
    }

    /// Sends a header without a message.
    pub(super) fn put_header(&mut self, peer: usize, header: &Header) {
        self.put(peer, Outgoing::Copied { bytes: InlineData::from_slice(header.bytes()), sent: None });
    }

    /// Starts Reads that wait, up to the limit of the connection.
    pub(super) fn start_reads(&mut self, peer: usize) {
        while self.peers[peer].reads < READS
            && let Some(number) = self.peers[peer].reads_waiting.pop_front()
        {
            let (pieces, remote, copy) = match self.operations.get_mut(number) {
                Some(Operation::Read { receive, remote, copy, .. }) => (&receive.pieces, remote, copy),
                _ => continue,
            };
            let room = matching::length(pieces).min(remote.length as usize);
            let base = match copy {
                Some(copy) => copy.as_mut_ptr(),
                None => pieces.first().map_or(std::ptr::null_mut(), |(base, _)| *base),
            };
            let remote = Remote { stag: Stag(remote.stag), address: remote.address };
            let sink = self.segment(base, room);
            let operation = work::Operation::Read { sink, remote, invalidate: false };
            self.peers[peer].reads += 1;
            self.post_requests(peer, [SendRequest { id: number, operation, signaled: true, fence: false }]);
        }
    }

    /// Posts to the send queue, which has room: credits limit Sends, and [`READS`] limits Reads.
    fn post_requests(&mut self, peer: usize, requests: impl IntoIterator<Item = SendRequest>) {
        let posted = self.peers[peer].pair.as_ref().is_some_and(|pair| pair.post_sends(requests).is_ok());
        if !posted {
            self.fail(peer);
        }
    }
}

fn send(data: Data) -> work::Operation {
    work::Operation::Send { data, solicited: false, invalidate: None }
}
