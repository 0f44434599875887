//! Completions of the RNIC: arrived messages, finished requests, ended connections.

use std::{collections::VecDeque, ptr};

use clearstream_iwarp::{
    stag::Stag,
    work::{Completed, Completion, Status},
};

use super::{
    Context, Engine,
    peer::{BUFFER_BYTES, CREDITS, Outgoing, Phase},
    requests::{Operation, Sent, scatter},
};
use crate::{
    abi::*,
    matching::{self, Arrival, Body, Label, Receive, Remote},
    wire::{self, Header, Kind},
};

impl Engine {
    /// Handles one completion.
    pub(super) fn complete(&mut self, completion: &Completion) {
        let pair = completion.queue_pair.0 as usize;
        let Some(Some(peer)) = self.by_pair.get(pair).copied() else { return };
        let failed = completion.status != Status::Success;
        match completion.completed {
            Completed::Receive if failed => self.fail(peer),
            Completed::Receive => self.arrive(peer, completion.id as usize, completion.bytes as usize),
            Completed::ReceiveFull => self.receive_long(peer, completion.id as usize),
            Completed::Read => {
                self.peers[peer].reads = self.peers[peer].reads.saturating_sub(1);
                self.finish_read(completion.id, failed);
                self.start_reads(peer);
            }
            Completed::Send if failed => self.fail(peer),
            Completed::Send => self.finish_send(completion.id),
            _ => {}
        }
    }

    /// Handles a Send of a peer, and reposts its receive.
    fn arrive(&mut self, peer: usize, slot: usize, length: usize) {
        let begin = slot * BUFFER_BYTES;
        let Some(header) = Header::read(&self.peers[peer].buffers[begin..begin + length.min(BUFFER_BYTES)])
        else {
            return self.fail(peer);
        };
        self.peers[peer].credits += header.credits & !wire::HOLDS;
        self.peers[peer].holds = header.credits & wire::HOLDS != 0;
        let label = label(peer, &header);
        let payload = (begin + header.bytes().len(), begin + length);
        match header.kind {
            kind if wire::has_payload(kind) && length != header.bytes().len() + header.length as usize => {
                return self.fail(peer);
            }
            kind if wire::has_payload(kind) && length > BUFFER_BYTES => self.finish_long(peer),
            kind if kind == Kind::Eager as u8 => self.deliver(label, Err(payload)),
            kind if kind == Kind::Write as u8 => self.place_write(peer, &header, payload),
            kind if kind == Kind::Fetch as u8 => self.serve(peer, &header),
            kind if kind == Kind::Fetched as u8 => self.take_fetched(peer, &header, payload),
            kind if kind == Kind::Refused as u8 => self.finish_refused(peer, header.number),
            kind if kind == Kind::Rendezvous as u8 => {
                let Header { stag, address, length, number, .. } = header;
                self.deliver(label, Ok(Remote { stag, address, length, number }));
            }
            kind if kind == Kind::Finished as u8 => self.finish_answered(peer, header.number),
            kind if kind == Kind::Credits as u8 => {
                self.post_buffer(peer, slot);
                return self.transmit(peer);
            }
            _ => return self.fail(peer),
        }
        self.post_buffer(peer, slot);
        self.peers[peer].owed += 1;
        self.transmit(peer);
        if self.peers[peer].owed >= CREDITS / 2 {
            self.return_credits(peer);
        }
    }

    /// Gives a message, remote or a range of the peer's buffers, to its receive, or keeps it.
    fn deliver(&mut self, label: Label, message: Result<Remote, (usize, usize)>) {
        let number = self.number_of(label.peer);
        let tagged = label.flags & wire::TAGGED != 0;
        let queue = if tagged { &mut self.tagged } else { &mut self.untagged };
        let length = match &message {
            Ok(remote) => remote.length as usize,
            Err((begin, end)) => end - begin,
        };
        match (queue.receive_for(number, label.tag, length), message) {
            (Some(receive), Ok(remote)) => self.start_read(receive, label, remote),
            (Some(receive), Err((begin, end))) => {
                // Taken for the time of the copy: reporting does not touch the peer's buffers.
                let buffers = std::mem::take(&mut self.peers[label.peer].buffers);
                self.finish_copy(&receive, label, &buffers[begin..end]);
                self.peers[label.peer].buffers = buffers;
            }
            (None, message) => {
                let body = match message {
                    Ok(remote) => Body::Remote(remote),
                    Err((begin, end)) => {
                        self.peers[label.peer].held_bytes += length;
                        Body::Copied(self.peers[label.peer].buffers[begin..end].into())
                    }
                };
                queue.arrived.push_back(Arrival { label, body, claimed: None });
            }
        }
    }

    /// Copies a message to its receive.
    pub(super) fn finish_copy(&mut self, receive: &Receive, label: Label, bytes: &[u8]) {
        // SAFETY: the program keeps the buffer of a receive until it is reported.
        let copied = unsafe { scatter(&receive.pieces, bytes) };
        self.report_message(receive, label, copied, bytes.len());
    }

    /// Reads a message from its sender's memory.
    pub(super) fn start_read(&mut self, receive: Receive, label: Label, remote: Remote) {
        let room = matching::length(&receive.pieces).min(remote.length as usize);
        if room == 0 {
            return self.finish_remote(&receive, label, remote);
        }
        let copy = (receive.pieces.len() > 1).then(|| vec![0; room].into_boxed_slice());
        let number = self.operations.insert(Operation::Read { receive, label, remote, copy });
        self.peers[label.peer].reads_waiting.push_back(number);
        self.start_reads(label.peer);
    }

    fn finish_read(&mut self, number: u64, failed: bool) {
        let Some(Operation::Read { receive, label, remote, copy }) = self.operations.take(number) else {
            return;
        };
        if failed {
            return self.fail_receive(&receive, label);
        }
        if let Some(copy) = &copy {
            // SAFETY: the program keeps the buffer of a receive until it is reported.
            unsafe { scatter(&receive.pieces, copy) };
        }
        self.finish_remote(&receive, label, remote);
    }

    /// What there was room for of an offered message is there.
    fn finish_remote(&mut self, receive: &Receive, label: Label, remote: Remote) {
        self.acknowledge(label.peer, remote.number);
        let room = matching::length(&receive.pieces).min(remote.length as usize);
        self.report_message(receive, label, room, remote.length as usize);
    }

    /// A Send from the program's memory is out.
    fn finish_send(&mut self, number: u64) {
        if let Some(Operation::Write { .. }) = self.operations.get_mut(number) {
            return self.finish_source(number);
        }
        // An answer to a read of a peer's is reported to nobody.
        if let Some(Operation::Eager { sent, .. }) = self.operations.take(number) {
            self.report_sent(sent, 0);
        }
    }

    /// A peer has read what was offered to it, or has what was written to it in place.
    fn finish_answered(&mut self, peer: usize, number: u64) {
        match self.operations.get_mut(number) {
            Some(Operation::Write { peer: of, .. }) if *of == peer => return self.answer_write(number, 0),
            Some(Operation::Rendezvous { peer: of, .. }) if *of == peer => {}
            _ => return,
        }
        if let Some(Operation::Rendezvous { sent, stag, .. }) = self.operations.take(number) {
            self.deregister(stag);
            self.report_sent(sent, 0);
        }
    }

    fn deregister(&self, stag: Stag) {
        // Registered by this side, and no window is bound to it.
        let _ = self.rnic.memory().deregister(stag);
    }

    /// Ends a connection: everything under way over it fails. What arrived stays, but for offers of memory that cannot be
    /// read any more.
    pub(super) fn fail(&mut self, peer: usize) {
        let of = &mut self.peers[peer];
        if matches!(of.phase, Phase::Ended) {
            return;
        }
        let was_connected = matches!(of.phase, Phase::Connected);
        (of.is_lost, of.is_untold) = (of.is_lost || was_connected, !was_connected);
        of.phase = Phase::Ended;
        of.generation = of.generation.saturating_add(1);
        if let Some(pair) = of.pair.take() {
            // What it still reports concerns nobody.
            self.by_pair[pair.id().0 as usize] = None;
        }
        // No driver has the queue pair any more, so that nothing writes there.
        of.buffers = Box::default();
        of.reads = 0;
        of.reads_waiting.clear();
        self.drop_long(peer);
        self.drop_offers(peer);
        for outgoing in std::mem::take(&mut self.peers[peer].pending) {
            self.drop_outgoing(outgoing);
        }
        let of_peer = self.operations.numbers(|operation| match operation {
            Operation::Eager { peer: of, .. }
            | Operation::Rendezvous { peer: of, .. }
            | Operation::Fetch { peer: of, .. }
            | Operation::Write { peer: of, .. }
            | Operation::Served { peer: of, .. } => *of == peer,
            Operation::Read { label, .. } => label.peer == peer,
        });
        for number in of_peer {
            self.fail_operation(number);
        }
        self.fail_directed(peer);
    }

    /// Fails the receives that name a peer.
    fn fail_directed(&mut self, peer: usize) {
        let number = self.number_of(peer);
        for tagged in [true, false] {
            let queue = if tagged { &mut self.tagged } else { &mut self.untagged };
            let posted = std::mem::take(&mut queue.posted);
            let (gone, kept): (VecDeque<Receive>, _) =
                posted.into_iter().partition(|posted| number != FI_ADDR_UNSPEC && posted.source == number);
            queue.posted = kept;
            for receive in gone {
                self.report_failed(tagged, receive.context, receive.tag, FI_ECONNRESET);
            }
        }
    }

    /// Drops what a peer offered and nobody has asked for.
    fn drop_offers(&mut self, peer: usize) {
        let stays =
            |arrival: &Arrival| arrival.label.peer != peer || !matches!(arrival.body, Body::Remote(_));
        self.tagged.arrived.retain(stays);
        self.untagged.arrived.retain(stays);
    }

    /// A Send that cannot be posted any more.
    pub(super) fn drop_outgoing(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Gathered { number, .. } => self.fail_operation(number),
            Outgoing::Copied { sent: Some(sent), .. } if !sent.injected => {
                self.report_sent(sent, FI_ECONNRESET)
            }
            Outgoing::Copied { .. } => {}
        }
    }

    fn fail_operation(&mut self, number: u64) {
        match self.operations.take(number) {
            Some(Operation::Eager { sent, .. } | Operation::Fetch { sent, .. }) => {
                self.report_sent(sent, FI_ECONNRESET);
            }
            Some(Operation::Write { sent, answer, .. }) => {
                self.report_sent(sent, answer.unwrap_or(FI_ECONNRESET));
            }
            Some(Operation::Rendezvous { sent, stag, .. }) => {
                self.deregister(stag);
                self.report_sent(sent, FI_ECONNRESET);
            }
            Some(Operation::Read { receive, label, .. }) => {
                self.fail_receive(&receive, label);
            }
            Some(Operation::Served { .. }) | None => {}
        }
    }

    /// Reports a send, or a read or write of a peer's memory; `code` is 0 on success.
    pub(super) fn report_sent(&self, sent: Sent, code: i32) {
        let report = match sent.flags & (FI_READ | FI_WRITE) {
            FI_READ => &self.fetches,
            FI_WRITE => &self.writes,
            _ => &self.sends,
        };
        if code != 0 {
            return report.failure(error(sent.context, sent.flags, code));
        }
        let entry = fi_cq_tagged_entry {
            op_context: sent.context,
            flags: sent.flags,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
            tag: 0,
        };
        report.success(sent.reported.then_some(entry), FI_ADDR_UNSPEC);
    }

    /// Reports a received message of which `copied` bytes fitted.
    pub(super) fn report_message(&mut self, receive: &Receive, label: Label, copied: usize, length: usize) {
        if copied == length {
            return self.report_received(receive, label, length);
        }
        let mut entry = error(receive.context, flags(label), FI_ETRUNC);
        (entry.len, entry.olen, entry.data, entry.tag) = (copied, length - copied, label.data, label.tag);
        self.receives.failure(entry);
    }

    pub(super) fn report_received(&mut self, receive: &Receive, label: Label, length: usize) {
        let source = self.number_of(label.peer);
        let entry = fi_cq_tagged_entry {
            op_context: receive.context,
            flags: flags(label),
            len: length,
            buf: receive.pieces.first().map_or(ptr::null_mut(), |(base, _)| base.cast()),
            data: label.data,
            tag: label.tag,
        };
        self.receives.success(receive.reported.then_some(entry), source);
    }

    /// Reports the receive of a message whose connection has ended.
    pub(super) fn fail_receive(&self, receive: &Receive, label: Label) {
        let tagged = label.flags & wire::TAGGED != 0;
        self.report_failed(tagged, receive.context, label.tag, FI_ECONNRESET);
    }

    pub(super) fn report_failed(&self, tagged: bool, context: Context, tag: u64, code: i32) {
        let mut entry = error(context, FI_RECV | if tagged { FI_TAGGED } else { FI_MSG }, code);
        entry.tag = tag;
        self.receives.failure(entry);
    }
}

/// What a header says about its message.
pub(super) fn label(peer: usize, header: &Header) -> Label {
    Label { peer, tag: header.tag, data: header.data, flags: header.flags }
}

fn flags(label: Label) -> u64 {
    let kind = if label.flags & wire::TAGGED != 0 { FI_TAGGED } else { FI_MSG };
    let data = if label.flags & wire::WITH_DATA != 0 { FI_REMOTE_CQ_DATA } else { 0 };
    FI_RECV | kind | data
}

fn error(op_context: Context, flags: u64, err: i32) -> fi_cq_err_entry {
    fi_cq_err_entry {
        op_context,
        flags,
        len: 0,
        buf: ptr::null_mut(),
        data: 0,
        tag: 0,
        olen: 0,
        err,
        prov_errno: err,
        err_data: ptr::null_mut(),
        err_data_size: 0,
    }
}
