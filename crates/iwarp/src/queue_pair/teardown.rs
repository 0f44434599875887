//! Connection teardown (RFC 5040, section 6.2): graceful close, Terminate, or
//! abrupt loss; and the completion of outstanding requests.

use super::batch::NO_REQUEST;
use super::machine::Machine;
use super::message::{Kind, Message};
use super::place::Receiving;
use super::send_queue::{Awaited, expects_response};
use super::{Event, Failure, Side, State};
use crate::ddp::{Header, UNTAGGED_BYTES};
use crate::memory::AccessError;
use crate::rdmap::{ErrorCode, Opcode, ReadRequest, Terminate, queue};
use crate::stag::Stag;
use crate::work::{Completed, Status};

impl Machine {
    /// Starts a graceful close: posted requests are still processed and the
    /// peer's requests are served; then [`Machine::wants_close`] returns true.
    /// A Send that waits for a receive ends it by a Terminate then.
    pub fn close(&mut self) {
        if self.state == State::Rts {
            self.state = State::Closing;
            self.settle();
        }
    }

    /// Whether nothing more will be sent and the socket should be shut down for
    /// writing.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        match self.state {
            State::Idle | State::Error => true,
            State::Closing => self.is_drained(),
            State::Rts | State::Terminate => false,
        }
    }

    /// Processes the peer's end of stream (FIN). Between two messages that is a
    /// graceful close; within one, or with responses outstanding, it is an
    /// error (RFC 5040, section 6.2.3).
    pub fn end_of_stream(&mut self) {
        if self.peer_closed || !matches!(self.state, State::Rts | State::Closing) {
            return;
        }
        let owed = !self.awaited.is_empty()
            || self.queue.unsent().any(|entry| expects_response(&entry.request.operation));
        // Without the initiator's first message a responder may not send.
        let not_ready = self.first_missing && (self.expected_rtr.is_some() || !self.queue.is_empty());
        let mid_message = !self.deframer.between() || self.receiving.is_some() || self.writing;
        if owed || not_ready || mid_message {
            self.fail(Failure::Truncated);
            return;
        }
        self.peer_closed = true;
        self.state = State::Closing;
        self.events.push_back(Event::PeerClosed);
        self.settle();
    }

    /// Fails the connection: RST, timeout, or at the consumer's request. Every
    /// request completes immediately.
    pub fn fail(&mut self, reason: Failure) {
        if !matches!(self.state, State::Idle | State::Error) {
            self.state = State::Error;
            self.events.push_back(Event::Failed(reason));
            self.flush();
        }
    }

    /// The whole batch was sent.
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

    /// Reaches the final state once both sides have closed and no work is left.
    fn settle(&mut self) {
        // A consumer that closes the connection posts no more receives.
        if self.state == State::Closing && self.is_receiver_not_ready() && self.is_drained() {
            self.give_up();
        }
        if self.state == State::Closing && self.peer_closed && self.is_drained() {
            self.state = State::Idle;
            self.flush();
        }
    }

    fn is_drained(&self) -> bool {
        self.queue.is_empty()
            && self.batch.is_empty()
            && self.current.is_none()
            && self.peer_requests.is_empty()
            && self.awaited.is_empty()
            && self.ready_to_receive.is_none()
    }

    /// Terminates for an error of the stream: no segment is quoted.
    pub(super) fn terminate_stream(&mut self, code: ErrorCode) {
        self.start_terminate(Terminate::alone(code));
    }

    /// Terminates for an error in the current segment.
    pub(super) fn terminate_segment(&mut self, code: ErrorCode) {
        let fpdu = &self.fpdu;
        let ulpdu = u16::try_from(fpdu.ulpdu).unwrap_or(u16::MAX);
        let head = &fpdu.head[..fpdu.have];
        let is_read = matches!(fpdu.header, Some((_, Opcode::ReadRequest)));
        let body = if is_read { &fpdu.body[..fpdu.body_have] } else { &[] };
        self.start_terminate(Terminate::about(code, ulpdu, head, body));
    }

    /// Terminates for an error in an earlier request of the peer.
    pub(super) fn terminate_request(&mut self, code: ErrorCode, header: &Header, body: &[u8]) {
        let (head, length) = header.encode();
        let ulpdu = u16::try_from(UNTAGGED_BYTES + body.len()).unwrap_or(u16::MAX);
        self.start_terminate(Terminate::about(code, ulpdu, &head[..length], body));
    }

    /// Terminates for a local error (RFC 5040, section 7.1: a local
    /// catastrophic error).
    pub(super) fn terminate_locally(&mut self) {
        self.start_terminate(Terminate::alone(ErrorCode::RdmapCatastrophic));
    }

    /// Records the first error; the stream ends after the FPDUs that are
    /// already built (RFC 5040, section 5.4: the Terminate is the last message
    /// of the stream).
    fn start_terminate(&mut self, terminate: Terminate) {
        if matches!(self.state, State::Rts | State::Closing) {
            self.state = State::Terminate;
            self.terminate = Some(terminate);
            (self.current, self.following) = (None, None);
            self.peer_requests.clear();
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
            // Inline bytes cannot be withdrawn.
            let _built = message.segment(self.mulpdu, &mut self.framer, &mut self.batch);
        }
    }

    /// Processes a Terminate of the peer. The local request that it quotes, if
    /// any, completes with its error; all others are flushed.
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

    /// Returns the outstanding request that a Terminate quotes: a Read by its
    /// data sink, because Linux' siw quotes a sequence number other than the
    /// request's; others by the DDP header. Of a partly served Read the
    /// remainder is quoted (RFC 5040, section 4.8): its end is the end of the
    /// Read.
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
        // The latest request has the number before the next one's.
        let age = usize::try_from(self.request_msn.wrapping_sub(msn)).ok()?;
        let index = self.awaited.len().checked_sub(age)?;
        match self.awaited.get(index)? {
            Awaited::Read { serial, .. } | Awaited::Atomic { serial, .. } => Some(*serial),
            Awaited::Ready => None,
        }
    }

    /// Completes every request as flushed, after releasing its memory.
    fn flush(&mut self) {
        self.batch.clear();
        (self.current, self.following) = (None, None);
        self.peer_requests.clear();
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

/// Maps an access error of the peer to the Terminate code (RFC 5040, section
/// 4.8). For an atomic operation at a misaligned address RFC 7306, section 8.2
/// requires "RDMA Layer Remote Operation Error with Error Code Name
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
