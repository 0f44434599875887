//! How a connection ends (RFC 5040, section 6.2): in order, by a Terminate, or
//! abruptly; and what becomes of its requests.

use super::batch::NO_REQUEST;
use super::machine::Machine;
use super::message::{Kind, Message};
use super::place::Receiving;
use super::send_queue::{Awaited, answered};
use super::{Event, Failure, Side, State};
use crate::ddp::{Header, UNTAGGED_BYTES};
use crate::memory::AccessError;
use crate::rdmap::{ErrorCode, Opcode, ReadRequest, Terminate, queue};
use crate::stag::Stag;
use crate::work::{Completed, Status};

impl Machine {
    /// Closes in order: what was posted is still carried out and the peer's
    /// requests are answered; then [`Machine::wants_close`] says so.
    pub fn close(&mut self) {
        if self.state == State::Rts {
            self.state = State::Closing;
            self.settle();
        }
    }

    /// Nothing more will be sent: the socket is to be shut down for writing.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        match self.state {
            State::Idle | State::Error => true,
            State::Closing => self.is_drained(),
            State::Rts | State::Terminate => false,
        }
    }

    /// The peer sends nothing any more (FIN). Between two messages that is a
    /// close in order; in the middle of one, or with answers due, it is an
    /// error (RFC 5040, section 6.2.3).
    pub fn end_of_stream(&mut self) {
        if self.peer_closed || !matches!(self.state, State::Rts | State::Closing) {
            return;
        }
        let owed =
            !self.awaited.is_empty() || self.queue.unsent().any(|entry| answered(&entry.request.operation));
        // Without a first message a responder was never allowed to send.
        let mute = self.first_missing && (self.expected_rtr.is_some() || !self.queue.is_empty());
        let amid = !self.deframer.between() || self.receiving.is_some() || self.writing;
        if owed || mute || amid {
            self.fail(Failure::Truncated);
            return;
        }
        self.peer_closed = true;
        self.state = State::Closing;
        self.events.push_back(Event::PeerClosed);
        self.settle();
    }

    /// The connection is over: RST, out of patience, or the consumer's wish.
    /// Every request comes back at once.
    pub fn fail(&mut self, reason: Failure) {
        if !matches!(self.state, State::Idle | State::Error) {
            self.state = State::Error;
            self.events.push_back(Event::Failed(reason));
            self.flush();
        }
    }

    /// Everything of the batch is gone.
    pub(super) fn all_sent(&mut self) {
        if self.state == State::Terminate && self.terminate_built {
            if let Some(terminate) = self.terminate.take() {
                self.events.push_back(Event::TerminateSent(terminate));
            }
            self.state = State::Error;
            self.flush();
        }
        self.settle();
    }

    /// Both sides have closed and nothing is left to do.
    fn settle(&mut self) {
        if self.state == State::Closing && self.peer_closed && self.is_drained() {
            self.state = State::Idle;
            self.flush();
        }
    }

    fn is_drained(&self) -> bool {
        self.queue.is_empty()
            && self.batch.is_empty()
            && self.current.is_none()
            && self.asked.is_empty()
            && self.awaited.is_empty()
            && self.ready_to_receive.is_none()
    }

    /// An error of the stream: no segment is quoted.
    pub(super) fn terminate_stream(&mut self, code: ErrorCode) {
        self.start_terminate(Terminate::alone(code));
    }

    /// An error in the segment that was just received.
    pub(super) fn terminate_segment(&mut self, code: ErrorCode) {
        let fpdu = &self.fpdu;
        let ulpdu = u16::try_from(fpdu.ulpdu).unwrap_or(u16::MAX);
        let head = &fpdu.head[..fpdu.have];
        let asks = matches!(fpdu.header, Some((_, Opcode::ReadRequest)));
        let body = if asks { &fpdu.body[..fpdu.body_have] } else { &[] };
        self.start_terminate(Terminate::about(code, ulpdu, head, body));
    }

    /// An error in a request of the peer's that came some time ago.
    pub(super) fn terminate_request(&mut self, code: ErrorCode, header: &Header, body: &[u8]) {
        let (head, length) = header.encode();
        let ulpdu = u16::try_from(UNTAGGED_BYTES + body.len()).unwrap_or(u16::MAX);
        self.start_terminate(Terminate::about(code, ulpdu, &head[..length], body));
    }

    /// An error of this side (RFC 5040, section 7.1: a local catastrophic
    /// error).
    pub(super) fn terminate_locally(&mut self) {
        self.start_terminate(Terminate::alone(ErrorCode::RdmapCatastrophic));
    }

    /// The first error counts; the stream ends after the FPDUs that are
    /// already built (RFC 5040, section 5.4: the Terminate is the last message
    /// of the stream).
    fn start_terminate(&mut self, terminate: Terminate) {
        if matches!(self.state, State::Rts | State::Closing) {
            self.state = State::Terminate;
            self.terminate = Some(terminate);
            self.current = None;
            self.asked.clear();
            self.ready_to_receive = None;
        }
    }

    /// Builds the Terminate, once.
    pub(super) fn send_terminate(&mut self) {
        if let Some(terminate) = &self.terminate
            && !self.terminate_built
        {
            self.terminate_built = true;
            let kind = Kind::Untagged {
                opcode: Opcode::Terminate,
                queue: queue::TERMINATE,
                msn: 1,
                invalidate: Stag::default(),
            };
            let mut message = Message::of_bytes(kind, &terminate.encode(), NO_REQUEST);
            // Bytes of its own: nobody takes them back.
            let _built = message.segment(self.mulpdu, &mut self.framer, &mut self.batch);
        }
    }

    /// The peer ended the stream. Where it quotes a request of ours, that one
    /// gets its error; everything else is flushed.
    pub(super) fn terminated(&mut self, terminate: Terminate) {
        if let Some(serial) = self.quoted_request(&terminate) {
            let [_, kind, _] = terminate.error.numbers();
            let status = if kind == 1 { Status::RemoteAccess } else { Status::RemoteOperation };
            self.queue.done(serial, status);
        }
        self.state = State::Error;
        self.events.push_back(Event::TerminateReceived(terminate));
        self.flush();
    }

    /// The outstanding request that a Terminate quotes: a Read by where it goes,
    /// because Linux' siw quotes another sequence number than the request's;
    /// others by the DDP header. Of a Read that was answered in part, what is
    /// left is quoted (RFC 5040, section 4.8): it ends where the Read ends.
    fn quoted_request(&self, terminate: &Terminate) -> Option<u64> {
        if let Ok(quoted) = ReadRequest::decode(&terminate.quoted.rdmap) {
            let end = |address: u64, length: u32| address.wrapping_add(u64::from(length));
            return self.awaited.iter().find_map(|awaited| match awaited {
                Awaited::Read { serial, sink, .. }
                    if sink.stag == quoted.sink
                        && end(sink.address, sink.length) == end(quoted.sink_offset, quoted.length)
                        && quoted.length <= sink.length =>
                {
                    Some(*serial)
                }
                _ => None,
            });
        }
        let Ok(Some((Header::Untagged { queue: queue::REQUEST, msn, .. }, _))) =
            Header::decode(&terminate.quoted.ddp)
        else {
            return None;
        };
        // The youngest has the number before the next one's.
        let age = usize::try_from(self.request_msn.wrapping_sub(msn)).ok()?;
        let index = self.awaited.len().checked_sub(age)?;
        match self.awaited.get(index)? {
            Awaited::Read { serial, .. } | Awaited::Atomic { serial, .. } => Some(*serial),
            Awaited::Ready => None,
        }
    }

    /// Gives every request back. Their memory is let go before.
    fn flush(&mut self) {
        self.batch.clear();
        self.current = None;
        self.asked.clear();
        self.awaited.clear();
        self.lent.clear();
        self.fpdu.found = None;
        self.queue.flush(self.id, &mut self.completions);
        if let Some(Receiving { id, failure, .. }) = self.receiving {
            let status = failure.unwrap_or(Status::Flushed);
            let completion = self.received(id, Completed::Receive, status);
            self.completions.push_back((Side::Receive, completion));
        }
        while let Some(request) = self.receives.flushed() {
            let completion = self.received(request.id, Completed::Receive, Status::Flushed);
            self.completions.push_back((Side::Receive, completion));
        }
    }
}

/// What a Terminate says of memory that a peer may not reach (RFC 5040,
/// section 4.8). RFC 7306, section 8.2, of an atomic operation at a place that is
/// no multiple of eight: "RDMA Layer Remote Operation Error with Error Code Name
/// 'Catastrophic error, localized to RDMAP Stream'".
pub(super) fn protection(error: AccessError) -> ErrorCode {
    match error {
        AccessError::InvalidStag => ErrorCode::ProtectionStag,
        AccessError::BaseOrBounds => ErrorCode::ProtectionBounds,
        AccessError::AccessRights => ErrorCode::ProtectionAccess,
        AccessError::NotAssociated => ErrorCode::ProtectionNotAssociated,
        AccessError::AddressWrap => ErrorCode::ProtectionWrap,
        AccessError::CannotInvalidate => ErrorCode::ProtectionInvalidate,
        AccessError::Misaligned => ErrorCode::OperationStream,
    }
}
