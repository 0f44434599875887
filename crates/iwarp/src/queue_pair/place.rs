//! Where the payload of a segment goes: checked when its header is there, and
//! again for every part that comes later, since a tag may become invalid in
//! between.

use super::machine::Machine;
use super::message::Spans;
use super::receive::BODY_BYTES;
use super::send_queue::Awaited;
use super::{Event, ending};
use crate::ddp::Header;
use crate::memory::{Access, AccessError, Span};
use crate::mpa::Rtr;
use crate::rdmap::{
    AtomicRequest, AtomicResponse, ErrorCode, IMMEDIATE_BYTES, Opcode, ReadRequest, TERMINATE_MAX, queue,
};
use crate::stag::Stag;
use crate::work::Status;

/// Where payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Nowhere: there is none.
    Nothing,
    /// Registered memory that the peer named.
    Tagged { stag: Stag, address: u64 },
    /// The sink of our oldest Read, from this byte on.
    Response { at: usize },
    /// The receive under way, from this byte on.
    Receive { at: usize },
    /// The body of a request, a response or a Terminate.
    Body,
}

/// A receive that a message has taken.
#[derive(Debug)]
pub(super) struct Receiving {
    pub id: u64,
    pub spans: Spans,
    /// Bytes of the spans.
    pub capacity: usize,
    /// Payload that came.
    pub received: usize,
    /// Length of the message, once its last segment came.
    pub end: Option<usize>,
    pub opcode: Opcode,
    /// What was wrong with it.
    pub failure: Option<Status>,
}

impl Machine {
    /// The operation of a segment. DDP looks at the queue first (RFC 5041,
    /// section 7.1), RDMAP at the rest (RFC 5040, section 7.2).
    pub(super) fn operation(&self, header: &Header) -> Result<Opcode, ErrorCode> {
        if let Header::Untagged { queue, .. } = header
            && *queue > queue::ATOMIC_RESPONSE
        {
            return Err(ErrorCode::UntaggedQueue);
        }
        Opcode::of(header).map_err(|error| error.code())
    }

    /// Where the segment's payload goes, if it may go anywhere.
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

    /// The first FPDU of a peer-to-peer set-up is the one that was agreed, and
    /// has no payload (RFC 6581, section 9.2).
    fn check_ready(&self, opcode: Opcode, payload: usize) -> Result<(), ErrorCode> {
        let wanted = match self.expected_rtr {
            None => return Ok(()),
            Some(Rtr::Send) => (Opcode::Send, 0),
            Some(Rtr::Write) => (Opcode::Write, 0),
            Some(Rtr::Read) => (Opcode::ReadRequest, ReadRequest::BYTES),
        };
        if (opcode, payload) == wanted { Ok(()) } else { Err(ErrorCode::MpaNoMatchingRtr) }
    }

    /// A Write. Without payload its tag is not looked at (RFC 5040, section
    /// 5.1).
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

    /// The response to our oldest Read: nothing else may be answered, and
    /// nothing outside its sink is written.
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

    /// A Send or immediate data: takes the next receive when it begins. The
    /// segments of a message may come in any order (RFC 5041, section 5.3).
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
            // Makes us ready and is not for the consumer.
            return Ok(Target::Nothing);
        }
        if self.receiving.is_none() {
            self.take_receive(opcode)?;
        }
        let Some(receiving) = &mut self.receiving else { return Err(ErrorCode::UntaggedNoBuffer) };
        if receiving.opcode != opcode {
            return Err(ErrorCode::UnexpectedOpcode);
        }
        if matches!(opcode, Opcode::Immediate | Opcode::ImmediateSolicited) {
            return match (offset, payload, last) {
                (0, IMMEDIATE_BYTES, true) => Ok(Target::Body),
                (0, _, _) => Err(ErrorCode::OperationUnspecified),
                _ => Err(ErrorCode::UntaggedOffset),
            };
        }
        if offset > receiving.capacity {
            return Err(ErrorCode::UntaggedOffset);
        }
        if offset + payload > receiving.capacity || receiving.end.is_some_and(|end| offset + payload > end) {
            receiving.failure = Some(Status::LocalLength);
            return Err(ErrorCode::UntaggedTooLong);
        }
        if last {
            receiving.end = Some(offset + payload);
        }
        Ok(Target::Receive { at: offset })
    }

    /// Takes a receive for a message that begins.
    fn take_receive(&mut self, opcode: Opcode) -> Result<(), ErrorCode> {
        let (request, low) = self.receives.take();
        if low {
            self.events.push_back(Event::ReceivesLow);
        }
        let request = request.ok_or(ErrorCode::UntaggedNoBuffer)?;
        let receiving = self.receiving.insert(Receiving {
            id: request.id,
            spans: Spans::new(),
            capacity: 0,
            received: 0,
            end: None,
            opcode,
            failure: None,
        });
        for segment in request.segments.iter().filter(|segment| segment.length > 0) {
            let Ok(span) = self.memory.local(self.domain, *segment, true) else {
                // Our consumer's mistake, not the peer's.
                receiving.failure = Some(Status::LocalProtection);
                return Err(ErrorCode::DdpCatastrophic);
            };
            receiving.capacity += span.len();
            receiving.spans.push(span);
        }
        Ok(())
    }

    /// A message that RDMAP reads itself: one segment of a known length.
    fn body_target(
        &mut self,
        queue: Option<u32>,
        opcode: Opcode,
        msn: u32,
        offset: u32,
        payload: usize,
        last: bool,
    ) -> Result<Target, ErrorCode> {
        let (next, wanted) = match (queue, opcode) {
            (Some(queue::REQUEST), Opcode::AtomicRequest) => (self.peer_request_msn, AtomicRequest::BYTES),
            (Some(queue::REQUEST), _) => (self.peer_request_msn, ReadRequest::BYTES),
            (Some(queue::ATOMIC_RESPONSE), _) => (self.peer_response_msn, AtomicResponse::BYTES),
            // A stream has one.
            _ => (1, payload.min(TERMINATE_MAX)),
        };
        if msn != next {
            return Err(ErrorCode::UntaggedMsn);
        }
        // The message that makes us ready needs no place among the outstanding
        // Reads (RFC 6581, section 9.2).
        let ready = self.first_missing && self.expected_rtr.is_some();
        if queue == Some(queue::REQUEST) && self.asked.len() >= self.ird && !ready {
            return Err(ErrorCode::UntaggedNoBuffer);
        }
        if offset > 0 {
            return Err(ErrorCode::UntaggedOffset);
        }
        if payload > wanted {
            return Err(ErrorCode::UntaggedTooLong);
        }
        if payload < wanted || !last {
            return Err(ErrorCode::OperationUnspecified);
        }
        Ok(Target::Body)
    }

    /// Puts payload where it belongs.
    pub(super) fn place(&mut self, bytes: &[u8]) {
        let done = self.fpdu.done;
        let placed = match self.fpdu.target {
            Target::Nothing => Ok(()),
            Target::Tagged { stag, address } => {
                self.found(stag, address).and_then(|(span, from)| span.write(done - from, bytes))
            }
            Target::Response { at } => match self.awaited.front() {
                Some(Awaited::Read { span: Some(span), .. }) => span.write(at + done, bytes),
                _ => Ok(()),
            },
            Target::Receive { at } => {
                self.receiving.as_ref().map_or(Ok(()), |receiving| receiving.write(at + done, bytes))
            }
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
            self.unplaceable(error);
        }
        self.fpdu.done += bytes.len();
    }

    /// Payload can not go where it belongs. Of memory that the peer named, it is
    /// told why (RFC 5041, section 7.1). A receive or a sink of ours was taken
    /// back by its owner: that request has failed, and DDP tells what it finds,
    /// for a sink that its tag is invalid.
    fn unplaceable(&mut self, error: AccessError) {
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

    /// The socket refused the memory that [`Machine::straight`] lent: its owner
    /// took it back. The payload is dropped, and the stream ends when the
    /// segment's CRC proved right.
    pub fn unreceivable(&mut self) {
        self.lent.clear();
        self.unplaceable(AccessError::InvalidStag);
    }

    /// The memory of a Write, looked up once in a call; and from which byte of
    /// the payload on.
    fn found(&mut self, stag: Stag, address: u64) -> Result<(&Span, usize), AccessError> {
        if self.fpdu.found.is_none() {
            let done = self.fpdu.done;
            let left = self.fpdu.payload() - done;
            let span = self.writable(stag, address.wrapping_add(done as u64), left)?;
            self.fpdu.found = Some((span, done));
        }
        match &self.fpdu.found {
            Some((span, from)) => Ok((span, *from)),
            None => Err(AccessError::InvalidStag),
        }
    }

    /// Where the next `length` bytes of payload go, into `lent`.
    pub(super) fn places(&mut self, length: usize) -> Option<()> {
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
                receiving.each(at + done, length, |span, from, now| self.lent.push(span.slice(from, now)));
            }
            Target::Nothing | Target::Body => return None,
        }
        Some(())
    }
}

impl Receiving {
    /// Copies bytes into the message's memory.
    fn write(&self, at: usize, bytes: &[u8]) -> Result<(), AccessError> {
        if let [span] = &self.spans[..] {
            return span.write(at, bytes);
        }
        let (mut rest, mut written) = (bytes, Ok(()));
        self.each(at, bytes.len(), |span, from, now| {
            let (first, later) = rest.split_at(now);
            written = written.and_then(|()| span.write(from, first));
            rest = later;
        });
        written
    }

    /// The parts of the spans that a range of the message falls into.
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

/// What a Terminate says of a Write that may not be placed: DDP's codes for
/// what DDP finds, RDMAP's for the access rights (RFC 5040, section 7.2).
fn tagged(error: AccessError) -> ErrorCode {
    match error {
        AccessError::InvalidStag => ErrorCode::TaggedStag,
        AccessError::BaseOrBounds => ErrorCode::TaggedBounds,
        AccessError::NotAssociated => ErrorCode::TaggedNotAssociated,
        AccessError::AddressWrap => ErrorCode::TaggedWrap,
        AccessError::AccessRights | AccessError::CannotInvalidate | AccessError::Misaligned => {
            ending::protection(error)
        }
    }
}
