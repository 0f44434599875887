//! Requests of the program: sends and receives, and what is known of those under way.

use std::{ptr, sync::Arc};

use clearstream_iwarp::{
    memory::{Access, raw},
    stag::Stag,
    work::InlineData,
};

use super::{
    Context, Engine,
    peer::{Outgoing, Phase},
};
use crate::{
    abi::*,
    completion::{Completions, locked},
    counter::Counts,
    info::INJECT_BYTES,
    matching::{self, Body, Label, Pieces, Receive, Remote},
    wire::{self, Header, Kind},
};

/// Where requests of one direction are reported.
#[derive(Default)]
pub struct Report {
    /// The queue, if one is bound.
    pub completions: Option<Arc<Completions>>,
    /// Success only of requests with `FI_COMPLETION`.
    pub selective: bool,
    /// The counter, if one is bound.
    pub counts: Option<Arc<Counts>>,
}

impl Report {
    /// Reports a success; counters count those too that have no entry.
    pub fn success(&self, entry: Option<fi_cq_tagged_entry>, source: u64) {
        if let Some(counts) = &self.counts {
            counts.count(false);
        }
        if let (Some(completions), Some(entry)) = (&self.completions, entry) {
            completions.push(entry, source);
        }
    }

    /// Reports a failure.
    pub fn failure(&self, entry: fi_cq_err_entry) {
        if let Some(counts) = &self.counts {
            counts.count(true);
        }
        if let Some(completions) = &self.completions {
            completions.fail(entry);
        }
    }
}

/// A send of the program.
pub struct Message {
    /// Its bytes.
    pub pieces: Pieces,
    /// Number of the receiver in the address vector.
    pub destination: u64,
    /// Tag, of a tagged one.
    pub tag: Option<u64>,
    /// Data for the receiver's completion.
    pub data: Option<u64>,
    /// The program's context.
    pub context: Context,
    /// Flags of the request.
    pub flags: u64,
    /// The buffer is the program's again when the call returns, and nothing is reported.
    pub injected: bool,
}

/// A send as it is reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) context: Context,
    pub(super) flags: u64,
    pub(super) reported: bool,
    /// It has no context that a failure could be reported with.
    pub(super) injected: bool,
}

/// A request of the RNIC, or a message, that is not complete.
pub(super) enum Operation {
    /// A Send from the program's memory.
    Eager { peer: usize, sent: Sent, header: Box<Header> },
    /// A message that the receiver reads: the registration of its memory, and that memory if it is a copy.
    Rendezvous { peer: usize, sent: Sent, stag: Stag, _copy: Option<Box<[u8]>> },
    /// A Read of a peer's message.
    Read { receive: Receive, label: Label, remote: Remote, copy: Option<Box<[u8]>> },
    /// A read of a peer's memory.
    Fetch { peer: usize, sent: Sent, pieces: Pieces },
    /// A write to a peer's memory: what its Send is made of, until that is out, and the peer's answer, if that is earlier.
    Write { peer: usize, sent: Sent, source: Option<Source>, answer: Option<i32> },
    /// The answer to a read of a peer's, from the memory of a region.
    Served { peer: usize, region: u64, is_sparse: bool, header: Box<Header>, state: Serving },
}

/// Progress of an answer to a read of a peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serving {
    /// Its Send is not posted.
    Waits,
    /// It is.
    Sent,
    /// The region was closed before that.
    Withdrawn,
}

/// What the Send of a write is made of beside the program's memory.
pub(super) struct Source {
    pub(super) header: Box<Header>,
    /// Bytes that the program may change meanwhile.
    pub(super) _copy: Box<[u8]>,
}

/// Operations by number.
#[derive(Default)]
pub(super) struct Operations {
    list: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Operations {
    pub(super) fn insert(&mut self, operation: Operation) -> u64 {
        match self.free.pop() {
            Some(at) => {
                self.list[at] = Some(operation);
                at as u64
            }
            None => {
                self.list.push(Some(operation));
                self.list.len() as u64 - 1
            }
        }
    }

    pub(super) fn take(&mut self, number: u64) -> Option<Operation> {
        let at = usize::try_from(number).ok()?;
        let operation = self.list.get_mut(at)?.take()?;
        self.free.push(at);
        Some(operation)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Operation> {
        self.list.get_mut(usize::try_from(number).ok()?)?.as_mut()
    }

    /// Whether one is a message that is sent.
    pub(super) fn is_message(&mut self, number: u64) -> bool {
        matches!(self.get_mut(number), Some(Operation::Eager { .. }))
    }

    /// Header of one whose Send is to be posted now, and the tag of the memory that follows it: of `all`, or of memory that is
    /// perhaps not mapped.
    pub(super) fn source(&mut self, number: u64, all: Stag, sparse: Stag) -> Option<(&mut Header, Stag)> {
        match self.get_mut(number)? {
            Operation::Eager { header, .. }
            | Operation::Write { source: Some(Source { header, .. }), .. } => Some((header, all)),
            Operation::Served { header, state, is_sparse, .. } => {
                *state = Serving::Sent;
                Some((header, if *is_sparse { sparse } else { all }))
            }
            _ => None,
        }
    }

    /// Numbers of those for which `select` is true.
    pub(super) fn numbers(&self, select: impl Fn(&Operation) -> bool) -> Vec<u64> {
        let selected = |(at, operation): (usize, &Option<Operation>)| {
            operation.as_ref().is_some_and(&select).then_some(at as u64)
        };
        self.list.iter().enumerate().filter_map(selected).collect()
    }
}

/// Copies pieces of the program's memory.
///
/// # Safety
/// They are readable.
pub(super) unsafe fn gather(pieces: &Pieces, mut take: impl FnMut(&[u8])) {
    for (base, length) in pieces {
        if *length > 0 {
            // SAFETY: as required of the caller.
            take(unsafe { std::slice::from_raw_parts(*base, *length) });
        }
    }
}

/// Copies bytes into pieces of the program's memory; returns the number that fitted.
///
/// # Safety
/// They are writable.
pub(super) unsafe fn scatter(pieces: &Pieces, mut bytes: &[u8]) -> usize {
    let all = bytes.len();
    for (base, length) in pieces {
        let count = bytes.len().min(*length);
        // SAFETY: as required of the caller.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), *base, count) };
        bytes = &bytes[count..];
    }
    all - bytes.len()
}

impl Engine {
    /// Sends a message, or queues it until its peer is ready.
    ///
    /// # Errors
    /// The code of libfabric.
    pub fn send(&mut self, message: Message) -> Result<(), i32> {
        let length = matching::length(&message.pieces);
        let must_copy = message.injected || message.flags & FI_INJECT != 0;
        if u32::try_from(length).is_err() || must_copy && length > INJECT_BYTES {
            return Err(FI_EINVAL);
        }
        let peer = self.peer_of(message.destination)?;
        let copied = length <= INJECT_BYTES;
        let mut flags = 0;
        if message.tag.is_some() {
            flags |= wire::TAGGED;
        }
        if message.data.is_some() {
            flags |= wire::WITH_DATA;
        }
        let header = Header {
            kind: Kind::Eager as u8,
            flags,
            length: length as u32,
            tag: message.tag.unwrap_or(0),
            data: message.data.unwrap_or(0),
            ..Header::default()
        };
        let kind = if message.tag.is_some() { FI_TAGGED } else { FI_MSG };
        let sent = Sent {
            context: message.context,
            flags: kind | FI_SEND,
            reported: !message.injected && (!self.sends.selective || message.flags & FI_COMPLETION != 0),
            injected: message.injected,
        };
        if !self.is_awaited(peer, sent)? {
            return Ok(());
        }
        if message.flags & FI_DELIVERY_COMPLETE != 0 && !message.injected {
            // Its receiver says that it has read it, whatever the length.
            let offer = self.offer(peer, header, sent, &message.pieces, must_copy)?;
            self.put(peer, offer);
        } else if copied {
            let mut bytes = InlineData::with_capacity(wire::EAGER_BYTES + length);
            bytes.extend_from_slice(header.bytes());
            // SAFETY: the program's buffer.
            unsafe { gather(&message.pieces, |piece| bytes.extend_from_slice(piece)) };
            self.put(peer, Outgoing::Copied { bytes, sent: Some(sent) });
        } else if length <= self.settings.eager_bytes {
            let number = self.operations.insert(Operation::Eager { peer, sent, header: Box::new(header) });
            self.put(peer, Outgoing::Gathered { number, pieces: message.pieces });
        } else {
            let offer = self.offer(peer, header, sent, &message.pieces, false)?;
            self.put(peer, offer);
        }
        Ok(())
    }

    /// Offers a message that waited to be sent; `None` if it failed.
    pub(super) fn offer_queued(&mut self, peer: usize, number: u64, pieces: &Pieces) -> Option<Outgoing> {
        let Some(Operation::Eager { sent, header, .. }) = self.operations.take(number) else { return None };
        self.offer(peer, *header, sent, pieces, false).inspect_err(|code| self.report_sent(sent, *code)).ok()
    }

    /// Connects to a peer whose connection has ended; returns whether a send may wait for it, or is reported. An injected
    /// send has no completion that could say whether it arrived: it is tried again until the connection is known.
    pub(super) fn is_awaited(&mut self, peer: usize, sent: Sent) -> Result<bool, i32> {
        if matches!(self.peers[peer].phase, Phase::Ended) {
            if std::mem::take(&mut self.peers[peer].is_untold) && sent.injected {
                return Err(FI_ECONNRESET);
            }
            self.connect(Some(peer), self.peers[peer].address)?;
        }
        let of = &mut self.peers[peer];
        match of.phase {
            Phase::Ended if sent.injected => Err(FI_ECONNRESET),
            Phase::Ended => {
                of.is_untold = false;
                self.report_sent(sent, FI_ECONNRESET);
                Ok(false)
            }
            Phase::Connected => Ok(true),
            _ if sent.injected && of.is_lost => Err(FI_EAGAIN),
            _ => Ok(true),
        }
    }

    /// Offers a message to be read by its receiver; from a copy, where the program's buffers are not one or may change.
    fn offer(
        &mut self,
        peer: usize,
        header: Header,
        sent: Sent,
        pieces: &Pieces,
        must_copy: bool,
    ) -> Result<Outgoing, i32> {
        let length = matching::length(pieces);
        let copy = (must_copy || pieces.len() != 1 || length == 0).then(|| {
            // Nobody reads the byte of an empty message: memory without a length cannot be registered.
            let mut bytes = Vec::with_capacity(length.max(1));
            // SAFETY: the program's buffers.
            unsafe { gather(pieces, |piece| bytes.extend_from_slice(piece)) };
            bytes.resize(length.max(1), 0);
            bytes.into_boxed_slice()
        });
        let (base, length) = match &copy {
            Some(copy) => (copy.as_ptr().cast_mut(), copy.len()),
            None => pieces[0],
        };
        // SAFETY: the program keeps the buffer until the send is reported, and this deregisters it before.
        let (stag, address) = unsafe { self.expose(base, length)? };
        let number = self.operations.insert(Operation::Rendezvous { peer, sent, stag, _copy: copy });
        let header = Header { kind: Kind::Rendezvous as u8, stag: stag.0, address, number, ..header };
        Ok(Outgoing::Copied { bytes: InlineData::from_slice(header.bytes()), sent: None })
    }

    /// Registers memory that a peer is to read; returns its tag and address.
    ///
    /// # Safety
    /// It is there until it is deregistered.
    unsafe fn expose(&self, base: *mut u8, length: usize) -> Result<(Stag, u64), i32> {
        let base = ptr::NonNull::new(base).ok_or(FI_EINVAL)?;
        let address = base.as_ptr().addr() as u64;
        // SAFETY: as required of the caller.
        let stag = unsafe {
            raw::memory(base, length, address, None).and_then(|memory| {
                self.rnic.memory().register(self.domain.id(), memory, Access::REMOTE_READ, 0)
            })
        };
        Ok((stag.map_err(|_| FI_ENOMEM)?, address))
    }

    /// Posts a receive, or gives it a message that has arrived.
    pub fn receive(&mut self, tagged: bool, receive: Receive) {
        if receive.several.is_some() {
            self.untagged.posted.push_back(receive);
            return self.hand_over_arrived();
        }
        let found = {
            let numbers = self.sources();
            let queue = if tagged { &self.tagged } else { &self.untagged };
            queue.find(receive.source, receive.tag, receive.ignore, |peer| numbers[peer])
        };
        let queue = if tagged { &mut self.tagged } else { &mut self.untagged };
        match found.and_then(|at| queue.arrived.remove(at)) {
            Some(arrival) => self.hand_over(receive, arrival.label, arrival.body),
            None => queue.posted.push_back(receive),
        }
    }

    /// Gives untagged messages that have arrived to a buffer for several of them.
    fn hand_over_arrived(&mut self) {
        let numbers = self.sources();
        let mut at = 0;
        while let Some(arrival) = self.untagged.arrived.get(at) {
            let (source, tag) = (numbers[arrival.label.peer], arrival.label.tag);
            let length = arrival.body.length();
            let Some(receive) = self.untagged.receive_for(source, tag, length) else {
                at += 1;
                continue;
            };
            if let Some(arrival) = self.untagged.arrived.remove(at) {
                self.hand_over(receive, arrival.label, arrival.body);
            }
        }
    }

    /// Address numbers of all peers, when a search needs them.
    fn sources(&mut self) -> Vec<u64> {
        if self.tagged.arrived.is_empty() && self.untagged.arrived.is_empty() {
            return Vec::new();
        }
        (0..self.peers.len()).map(|peer| self.number_of(peer)).collect()
    }

    /// Gives a message that had to wait to a receive.
    pub(super) fn hand_over(&mut self, receive: Receive, label: Label, body: Body) {
        self.release_held(label.peer, &body);
        match body {
            Body::Copied(bytes) => self.finish_copy(&receive, label, &bytes),
            Body::Arriving(_) => self.attach(label.peer, receive),
            Body::Remote(remote) => self.start_read(receive, label, remote),
        }
    }

    /// A message that was held has its receive.
    fn release_held(&mut self, peer: usize, body: &Body) {
        if !matches!(body, Body::Remote(_)) {
            self.peers[peer].held_bytes -= body.length();
        }
    }

    /// `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD` of a tagged receive.
    pub fn peek(&mut self, flags: u64, receive: Receive) {
        let numbers = self.sources();
        let found = if flags & FI_PEEK != 0 {
            self.tagged.find(receive.source, receive.tag, receive.ignore, |peer| numbers[peer])
        } else {
            self.tagged.arrived.iter().position(|arrival| arrival.claimed == Some(receive.context))
        };
        let Some(at) = found else {
            return self.report_failed(true, receive.context, receive.tag, FI_ENOMSG);
        };
        let (label, length) = {
            let arrival = &mut self.tagged.arrived[at];
            if flags & FI_PEEK != 0 && flags & FI_CLAIM != 0 {
                arrival.claimed = Some(receive.context);
            }
            (arrival.label, arrival.body.length())
        };
        let discard = flags & FI_DISCARD != 0;
        if flags & FI_PEEK != 0 || discard {
            self.report_received(&receive, label, length);
        }
        if discard || flags & FI_PEEK == 0 {
            let Some(arrival) = self.tagged.arrived.remove(at) else { return };
            match (discard, arrival.body) {
                (false, body) => self.hand_over(receive, label, body),
                (true, Body::Remote(remote)) => self.acknowledge(label.peer, remote.number),
                (true, body) => self.release_held(label.peer, &body),
            }
        }
    }

    /// Cancels a receive; returns whether it was posted.
    pub fn cancel(&mut self, context: Context) -> bool {
        for tagged in [true, false] {
            let queue = if tagged { &mut self.tagged } else { &mut self.untagged };
            let at = queue.posted.iter().position(|posted| posted.context == context);
            if let Some(receive) = at.and_then(|at| queue.posted.remove(at)) {
                if let Some(several) = &receive.several {
                    *locked(&several.report) = None;
                }
                self.report_failed(tagged, context, receive.tag, FI_ECANCELED);
                return true;
            }
        }
        false
    }
}
