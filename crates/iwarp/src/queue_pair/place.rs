//! Data placement: the destination of a segment's payload is checked when its
//! header is complete, and again for every part that arrives later, because an
//! STag may be invalidated in between.

use smallvec::SmallVec;

use super::machine::Machine;
use super::message::Spans;
use super::receive::BODY_BYTES;
use super::send_queue::Awaited;
use super::{Event, Side, State, teardown};
use crate::ddp::Header;
use crate::memory::{Access, AccessError, Placements, Span};
use crate::mpa::Rtr;
use crate::rdmap::{
    AtomicRequest, AtomicResponse, ErrorCode, IMMEDIATE_BYTES, Opcode, ReadRequest, TERMINATE_MAX, queue,
};
use crate::stag::Stag;
use crate::work::{Completion, Status};

/// Destination of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// None: no payload.
    Nothing,
    /// Registered memory addressed by the peer.
    Tagged { stag: Stag, address: u64 },
    /// Sink of the oldest outstanding Read, from this byte on.
    Response { at: usize },
    /// Current receive, from this byte on.
    Receive { at: usize },
    /// The body of a request, a response or a Terminate.
    Body,
}

/// A receive consumed by a message.
#[derive(Debug)]
pub(super) struct Receiving {
    pub id: u64,
    pub spans: Spans,
    /// Total length of the spans.
    pub capacity: usize,
    /// Payload received so far.
    pub received: usize,
    /// Length of the message, once its last segment was received.
    pub end: Option<usize>,
    pub opcode: Opcode,
    /// Immediate data that came before the Send that it belongs to.
    pub immediate: Option<[u8; IMMEDIATE_BYTES]>,
    /// Error of the receive.
    pub failure: Option<Status>,
}

impl Machine {
    /// Returns the operation of a segment. DDP checks the queue first (RFC
    /// 5041, section 7.1), RDMAP the rest (RFC 5040, section 7.2).
    pub(super) fn operation(&self, header: &Header) -> Result<Opcode, ErrorCode> {
        if let Header::Untagged { queue, .. } = header
            && *queue > queue::ATOMIC_RESPONSE
        {
            return Err(ErrorCode::UntaggedQueue);
        }
        Opcode::of(header).map_err(|error| error.code())
    }

    /// Returns the destination of the segment's payload, after the access
    /// checks.
    pub(super) fn target(&mut self, header: &Header, opcode: Opcode) -> Result<Target, ErrorCode> {
        let payload = self.fpdu.payload();
        if self.first_missing && opcode != Opcode::Terminate {
            self.check_ready(opcode, payload)?;
        }
        match *header {
            Header::Tagged { stag, offset, .. } if opcode == Opcode::Write => {
                self.write_target(stag, offset, payload)
            }
            Header::Tagged { last, stag, offset, .. } => self.response_target(last, stag, offset, payload),
            Header::Untagged { last, msn, offset, .. } => match opcode.queue() {
                Some(queue::SEND) => self.send_target(opcode, msn, offset as usize, payload, last),
                queue => self.body_target(queue, opcode, msn, offset, payload, last),
            },
        }
    }

    /// Checks that the first FPDU of a peer-to-peer setup is of the negotiated
    /// type and has no payload (RFC 6581, section 9.2).
    fn check_ready(&self, opcode: Opcode, payload: usize) -> Result<(), ErrorCode> {
        let expected = match self.expected_rtr {
            None => return Ok(()),
            Some(Rtr::Send) => (Opcode::Send, 0),
            Some(Rtr::Write) => (Opcode::Write, 0),
            Some(Rtr::Read) => (Opcode::ReadRequest, ReadRequest::BYTES),
        };
        if (opcode, payload) == expected { Ok(()) } else { Err(ErrorCode::MpaNoMatchingRtr) }
    }

    /// Checks a Write. Without payload its STag is not validated (RFC 5040,
    /// section 5.1).
    fn write_target(&mut self, stag: Stag, address: u64, payload: usize) -> Result<Target, ErrorCode> {
        if payload == 0 {
            return Ok(Target::Nothing);
        }
        let found = self.writable(stag, address, payload).map_err(tagged)?;
        self.fpdu.found = Some((found, 0));
        Ok(Target::Tagged { stag, address })
    }

    fn writable(&self, stag: Stag, address: u64, length: usize) -> Result<Span, AccessError> {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        self.memory.remote(self.domain, self.id, stag, address, length, Access::REMOTE_WRITE)
    }

    /// Checks the response to the oldest outstanding Read: no other response is
    /// allowed, and nothing outside its sink is written.
    fn response_target(
        &mut self,
        last: bool,
        stag: Stag,
        offset: u64,
        payload: usize,
    ) -> Result<Target, ErrorCode> {
        match self.awaited.front() {
            Some(Awaited::Ready) if payload == 0 && last => Ok(Target::Nothing),
            Some(Awaited::Read { sink, .. }) if sink.length == 0 => {
                if payload == 0 && last {
                    Ok(Target::Nothing)
                } else {
                    Err(ErrorCode::TaggedBounds)
                }
            }
            Some(Awaited::Read { sink, received, .. }) => {
                let left = sink.length as usize - *received as usize;
                if stag != sink.stag && payload > 0 {
                    return Err(ErrorCode::TaggedStag);
                }
                if payload > left || (last && payload != left) {
                    return Err(ErrorCode::TaggedBounds);
                }
                if payload == 0 {
                    return Ok(Target::Nothing);
                }
                let at = usize::try_from(offset.wrapping_sub(sink.address)).unwrap_or(usize::MAX);
                let inside = at.checked_add(payload).is_some_and(|end| end <= sink.length as usize);
                if inside { Ok(Target::Response { at }) } else { Err(ErrorCode::TaggedBounds) }
            }
            _ => Err(ErrorCode::UnexpectedOpcode),
        }
    }

    /// Checks a Send or immediate data, which consumes the next receive at its
    /// beginning. The segments of a message may arrive in any order (RFC 5041,
    /// section 5.3).
    fn send_target(
        &mut self,
        opcode: Opcode,
        msn: u32,
        offset: usize,
        payload: usize,
        last: bool,
    ) -> Result<Target, ErrorCode> {
        if msn != self.peer_send_msn {
            return Err(ErrorCode::UntaggedMsn);
        }
        if self.first_missing && self.expected_rtr.is_some() {
            // The ready-to-receive message is not delivered to the consumer.
            return Ok(Target::Nothing);
        }
        if self.receiving.is_none() {
            self.take_receive(opcode)?;
        }
        if self.excess.receiver_not_ready {
            return Ok(Target::Nothing);
        }
        let Some(receiving) = &mut self.receiving else { return Err(ErrorCode::UntaggedNoBuffer) };
        if receiving.opcode != opcode {
            receiving.begin_announced(opcode)?;
        }
        if opcode.is_immediate() {
            if receiving.immediate.is_some() {
                return Err(ErrorCode::UnexpectedOpcode);
            }
            return match (offset, payload, last) {
                (0, IMMEDIATE_BYTES, true) => Ok(Target::Body),
                (0, _, _) => Err(ErrorCode::OperationUnspecified),
                _ => Err(ErrorCode::UntaggedOffset),
            };
        }
        if offset > receiving.capacity {
            return Err(ErrorCode::UntaggedOffset);
        }
        let long = offset + payload > receiving.capacity && !self.limits.receives_extend;
        if long || receiving.end.is_some_and(|end| offset + payload > end) {
            receiving.failure = Some(Status::LocalLength);
            return Err(ErrorCode::UntaggedTooLong);
        }
        if last {
            receiving.end = Some(offset + payload);
        }
        Ok(Target::Receive { at: offset })
    }

    /// Consumes a receive for a new message.
    fn take_receive(&mut self, opcode: Opcode) -> Result<(), ErrorCode> {
        let (request, low) = self.receives.take();
        if low {
            self.events.push_back(Event::ReceivesLow);
        }
        // A consumer that closes the connection posts no more receives.
        if request.is_none() && self.limits.receives_wait && self.state == State::Rts {
            self.excess.receiver_not_ready = true;
            return Ok(());
        }
        let request = request.ok_or(ErrorCode::UntaggedNoBuffer)?;
        let receiving = self.receiving.insert(Receiving {
            id: request.id,
            spans: Spans::new(),
            capacity: 0,
            received: 0,
            end: None,
            opcode,
            immediate: None,
            failure: None,
        });
        for segment in request.segments.iter().filter(|segment| segment.length > 0) {
            // An error of the local consumer, not of the peer.
            receiving.add(self.memory.local(self.domain, *segment, true))?;
        }
        Ok(())
    }

    /// Checks a message that RDMAP itself processes: one segment of a known
    /// length.
    fn body_target(
        &mut self,
        queue: Option<u32>,
        opcode: Opcode,
        msn: u32,
        offset: u32,
        payload: usize,
        last: bool,
    ) -> Result<Target, ErrorCode> {
        let (next, expected) = match (queue, opcode) {
            (Some(queue::REQUEST), Opcode::AtomicRequest) => (self.peer_request_msn, AtomicRequest::BYTES),
            (Some(queue::REQUEST), _) => (self.peer_request_msn, ReadRequest::BYTES),
            (Some(queue::ATOMIC_RESPONSE), _) => (self.peer_response_msn, AtomicResponse::BYTES),
            // A stream has at most one Terminate.
            _ => (1, payload.min(TERMINATE_MAX)),
        };
        if msn != next {
            return Err(ErrorCode::UntaggedMsn);
        }
        // The ready-to-receive message does not count as an outstanding Read
        // (RFC 6581, section 9.2).
        let ready = self.first_missing && self.expected_rtr.is_some();
        if queue == Some(queue::REQUEST) && self.peer_requests.len() >= self.ird && !ready {
            return Err(ErrorCode::UntaggedNoBuffer);
        }
        if offset > 0 {
            return Err(ErrorCode::UntaggedOffset);
        }
        if payload > expected {
            return Err(ErrorCode::UntaggedTooLong);
        }
        if payload < expected || !last {
            return Err(ErrorCode::OperationUnspecified);
        }
        Ok(Target::Body)
    }

    /// Places payload.
    pub(super) fn place(&mut self, bytes: &[u8]) {
        let bytes = self.keep_excess(bytes);
        let done = self.fpdu.done;
        let placed = match self.fpdu.target {
            Target::Nothing => Ok(()),
            Target::Tagged { stag, address } => match self.found(stag, address) {
                Ok(()) => match &self.fpdu.found {
                    Some((span, from)) => self.placements.write(span, done - from, bytes),
                    None => Err(AccessError::InvalidStag),
                },
                Err(error) => Err(error),
            },
            Target::Response { at } => match self.awaited.front() {
                Some(Awaited::Read { span: Some(span), .. }) => self.placements.write(span, at + done, bytes),
                _ => Ok(()),
            },
            Target::Receive { at } => match &self.receiving {
                Some(receiving) => receiving.write(at + done, bytes, &mut self.placements),
                None => Ok(()),
            },
            Target::Body => {
                let fpdu = &mut self.fpdu;
                let room = BODY_BYTES - fpdu.body_have;
                let kept = &bytes[..bytes.len().min(room)];
                fpdu.body[fpdu.body_have..fpdu.body_have + kept.len()].copy_from_slice(kept);
                fpdu.body_have += kept.len();
                Ok(())
            }
        };
        if let Err(error) = placed {
            self.placement_failed(error);
        }
        self.fpdu.done += bytes.len();
    }

    /// Handles payload that cannot be placed. For memory addressed by the peer
    /// the Terminate has the access error (RFC 5041, section 7.1). If a local
    /// receive or sink was withdrawn by its owner, that request fails and the
    /// Terminate has DDP's error, for a sink an invalid STag.
    fn placement_failed(&mut self, error: AccessError) {
        self.fpdu.fault = Some(tagged(error));
        match self.fpdu.target {
            Target::Response { .. } => {
                if let Some(Awaited::Read { serial, .. }) = self.awaited.front() {
                    self.queue.done(*serial, Status::LocalProtection);
                }
            }
            Target::Receive { .. } => {
                self.fpdu.fault = Some(ErrorCode::DdpCatastrophic);
                if let Some(receiving) = &mut self.receiving {
                    receiving.failure = Some(Status::LocalProtection);
                }
            }
            Target::Nothing | Target::Tagged { .. } | Target::Body => {}
        }
    }

    /// Handles a socket error on memory lent by [`Machine::straight`]: its
    /// owner withdrew it. The payload is discarded, and the stream ends after
    /// the segment's CRC was verified.
    pub fn receive_failed(&mut self) {
        self.lent.clear();
        self.placement_failed(AccessError::InvalidStag);
    }

    /// Writes what was kept of the payload, before anybody hears of it. Where that is not possible, all fails that ended
    /// since it was possible: which of it is in its memory is not known, and a receive may be about a Write before it.
    pub(super) fn settle_placements(&mut self) {
        let flushed = self.placements.flush();
        let Unsettled { receives, reads } = std::mem::take(&mut self.unsettled);
        if self.placements.is_lost() {
            let is_received = |(side, done): &&mut (Side, Completion)| {
                *side == Side::Receive && done.status == Status::Success
            };
            for (_, completion) in self.completions.iter_mut().rev().filter(is_received).take(receives) {
                (completion.status, completion.bytes) = (Status::LocalProtection, 0);
            }
            for serial in reads {
                self.queue.done(serial, Status::LocalProtection);
            }
        }
        if let Err(error) = flushed {
            self.terminate_stream(tagged(error));
        }
    }

    /// Completes a receive, once the payload is in its memory.
    pub(super) fn push_received(&mut self, completion: Completion) {
        self.unsettled.receives += 1;
        self.completions.push_back((Side::Receive, completion));
    }

    /// Looks up the memory of a Write, once per call, with the payload
    /// offset at which it starts.
    fn found(&mut self, stag: Stag, address: u64) -> Result<(), AccessError> {
        if self.fpdu.found.is_none() {
            let done = self.fpdu.done;
            let left = self.fpdu.payload() - done;
            let span = self.writable(stag, address.wrapping_add(done as u64), left)?;
            self.fpdu.found = Some((span, done));
        }
        Ok(())
    }

    /// Adds the destination of the next `length` bytes of payload to `lent`.
    pub(super) fn destinations(&mut self, length: usize) -> Option<()> {
        let done = self.fpdu.done;
        match self.fpdu.target {
            Target::Tagged { stag, address } => {
                self.fpdu.found = None;
                let found = self.writable(stag, address.wrapping_add(done as u64), length);
                match found {
                    Ok(span) => self.lent.push(span),
                    Err(error) => {
                        self.fpdu.fault = Some(tagged(error));
                        return None;
                    }
                }
            }
            Target::Response { at } => match self.awaited.front() {
                Some(Awaited::Read { span: Some(span), .. }) => self.lent.push(span.slice(at + done, length)),
                _ => return None,
            },
            Target::Receive { at } => {
                let receiving = self.receiving.as_ref()?;
                if at + done + length > receiving.capacity {
                    return None;
                }
                receiving.each(at + done, length, |span, from, now| self.lent.push(span.slice(from, now)));
            }
            Target::Nothing | Target::Body => return None,
        }
        Some(())
    }
}

/// Requests that ended while payload is kept.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// Completions of receives.
    receives: usize,
    /// Reads, by their serial numbers.
    pub reads: SmallVec<[u64; 4]>,
}

impl Receiving {
    /// Adds memory at the end.
    pub(super) fn add(&mut self, memory: Result<Span, AccessError>) -> Result<(), ErrorCode> {
        let Ok(span) = memory else {
            self.failure = Some(Status::LocalProtection);
            return Err(ErrorCode::DdpCatastrophic);
        };
        self.capacity += span.len();
        self.spans.push(span);
        Ok(())
    }

    /// Copies bytes into the message's memory.
    fn write(&self, at: usize, bytes: &[u8], into: &mut Placements) -> Result<(), AccessError> {
        if let [span] = &self.spans[..] {
            return into.write(span, at, bytes);
        }
        let (mut rest, mut written) = (bytes, Ok(()));
        self.each(at, bytes.len(), |span, from, now| {
            let (first, later) = rest.split_at(now);
            written = written.and_then(|()| into.write(span, from, first));
            rest = later;
        });
        written
    }

    /// Passes the parts of the spans that a range of the message covers.
    fn each(&self, at: usize, length: usize, mut take: impl FnMut(&Span, usize, usize)) {
        let (mut skip, mut left) = (at, length);
        for span in &self.spans {
            if skip >= span.len() {
                skip -= span.len();
                continue;
            }
            let now = left.min(span.len() - skip);
            if now == 0 {
                return;
            }
            take(span, skip, now);
            (skip, left) = (0, left - now);
        }
    }
}

/// Maps the access error of a Write to the Terminate code: DDP's codes for
/// errors found by DDP, RDMAP's for the access rights (RFC 5040, section 7.2).
fn tagged(error: AccessError) -> ErrorCode {
    match error {
        AccessError::InvalidStag => ErrorCode::TaggedStag,
        AccessError::BaseOrBounds => ErrorCode::TaggedBounds,
        AccessError::NotAssociated => ErrorCode::TaggedNotAssociated,
        AccessError::AddressWrap => ErrorCode::TaggedWrap,
        AccessError::AccessRights | AccessError::CannotInvalidate | AccessError::Misaligned => {
            teardown::protection(error)
        }
    }
}
