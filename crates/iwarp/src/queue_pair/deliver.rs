//! Delivery at the end of a segment: complete messages are delivered to the
//! consumer, in the order of their queue (RFC 5040, section 5.5).

use super::machine::Machine;
use super::place::Receiving;
use super::send_queue::Awaited;
use super::teardown;
use super::transmit::{PeerRequest, next};
use crate::ddp::Header;
use crate::memory::{AccessError, Invalidator};
use crate::rdmap::{AtomicRequest, AtomicResponse, ErrorCode, Opcode, RdmapError, ReadRequest, Terminate};
use crate::stag::Stag;
use crate::work::{Completed, Completion, Status};

impl Machine {
    /// Processes a segment whose payload was placed completely.
    pub(super) fn deliver(&mut self, header: &Header, opcode: Opcode) -> Result<(), ErrorCode> {
        match opcode {
            Opcode::Write => self.deliver_write(header.last()),
            Opcode::ReadResponse => self.deliver_response(header.last())?,
            Opcode::Send
            | Opcode::SendInvalidate
            | Opcode::SendSolicited
            | Opcode::SendSolicitedInvalidate => self.deliver_send(header, opcode)?,
            Opcode::Immediate | Opcode::ImmediateSolicited => self.deliver_immediate(opcode)?,
            Opcode::ReadRequest => {
                let request = ReadRequest::decode(self.body()).map_err(RdmapError::code)?;
                let msn = next(&mut self.peer_request_msn);
                self.peer_requests.push_back(PeerRequest::Read { msn, request });
            }
            Opcode::AtomicRequest => {
                let request = AtomicRequest::decode(self.body()).map_err(RdmapError::code)?;
                let msn = next(&mut self.peer_request_msn);
                self.peer_requests.push_back(PeerRequest::Atomic { msn, request });
            }
            Opcode::AtomicResponse => self.deliver_original()?,
            Opcode::Terminate => {
                let terminate = Terminate::decode(self.body()).map_err(RdmapError::code)?;
                self.terminated(terminate);
            }
        }
        Ok(())
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.fpdu.body[..self.fpdu.body_have]
    }

    /// Processes a segment of a Write, and counts its bytes.
    fn deliver_write(&mut self, last: bool) {
        let payload = u32::try_from(self.fpdu.payload()).unwrap_or(u32::MAX);
        let before = if self.writing { self.written } else { 0 };
        self.written = before.saturating_add(payload);
        self.writing = !last;
    }

    /// Processes a segment of a Send. The message is complete when its last
    /// segment and all of its bytes were received.
    fn deliver_send(&mut self, header: &Header, opcode: Opcode) -> Result<(), ErrorCode> {
        let payload = self.fpdu.payload();
        let Some(receiving) = &mut self.receiving else {
            // The ready-to-receive message.
            next(&mut self.peer_send_msn);
            return Ok(());
        };
        receiving.received += payload;
        let complete = receiving.end.is_some_and(|end| receiving.received >= end);
        if !complete {
            return Ok(());
        }
        let invalidated = match header {
            Header::Untagged { ulp_reserved, .. } if opcode.invalidates() => Some(Stag(*ulp_reserved)),
            _ => None,
        };
        if let Some(stag) = invalidated {
            // RFC 5040, section 5.3: invalidated before the message is
            // delivered; one that is not of this stream "cannot be invalidated".
            let done = self.memory.invalidate(self.domain, self.id, stag, Invalidator::Remote);
            done.map_err(|error| match error {
                AccessError::NotAssociated => ErrorCode::ProtectionInvalidate,
                error => teardown::protection(error),
            })?;
        }
        next(&mut self.peer_send_msn);
        if let Some(Receiving { id, end, immediate, .. }) = self.receiving {
            let completion = Completion {
                bytes: u32::try_from(end.unwrap_or(0)).unwrap_or(u32::MAX),
                invalidated,
                immediate,
                solicited: opcode.solicited(),
                ..self.received(id, Completed::Receive, Status::Success)
            };
            self.push_received(completion);
        }
        Ok(())
    }

    /// Immediate data consumes a receive and does not write to its memory (RFC
    /// 7306, section 6).
    fn deliver_immediate(&mut self, opcode: Opcode) -> Result<(), ErrorCode> {
        next(&mut self.peer_send_msn);
        if self.immediate_data {
            return self.deliver_bound(opcode);
        }
        let immediate = self.body().first_chunk().copied();
        if let Some(Receiving { id, .. }) = self.receiving {
            let completion = Completion {
                bytes: 8,
                immediate,
                solicited: opcode.solicited(),
                ..self.received(id, Completed::ReceiveImmediate, Status::Success)
            };
            self.push_received(completion);
        }
        Ok(())
    }

    /// Builds the completion of the current receive. Its memory is released
    /// first: the consumer may reuse it as soon as it polls the completion.
    pub(super) fn received(&mut self, id: u64, completed: Completed, status: Status) -> Completion {
        self.lent.clear();
        self.receiving = None;
        Completion {
            id,
            queue_pair: self.id,
            completed,
            status,
            bytes: 0,
            immediate: None,
            invalidated: None,
            solicited: false,
        }
    }

    /// Processes a segment of a Read Response.
    fn deliver_response(&mut self, last: bool) -> Result<(), ErrorCode> {
        let payload = u32::try_from(self.fpdu.payload()).unwrap_or(u32::MAX);
        match self.awaited.front_mut() {
            Some(Awaited::Read { received, .. }) => *received += payload,
            Some(Awaited::Ready) => {}
            _ => return Err(ErrorCode::UnexpectedOpcode),
        }
        if !last {
            return Ok(());
        }
        let Some(Awaited::Read { serial, sink, invalidate, .. }) = self.awaited.pop_front() else {
            return Ok(());
        };
        self.lent.clear();
        let invalid = invalidate
            && self.memory.invalidate(self.domain, self.id, sink.stag, Invalidator::Local).is_err();
        if invalid {
            self.queue.done(serial, Status::LocalOperation);
            self.terminate_locally();
        } else {
            self.queue.done(serial, Status::Success);
            self.unsettled.reads.push(serial);
        }
        Ok(())
    }

    /// Stores the original value returned by an atomic operation.
    fn deliver_original(&mut self) -> Result<(), ErrorCode> {
        let response = AtomicResponse::decode(self.body()).map_err(RdmapError::code)?;
        next(&mut self.peer_response_msn);
        match self.awaited.front() {
            Some(Awaited::Atomic { serial, identifier, span }) if *identifier == response.request => {
                let (serial, written) = (*serial, span.write(0, &response.original.to_ne_bytes()));
                self.awaited.pop_front();
                if written.is_ok() {
                    self.queue.done(serial, Status::Success);
                } else {
                    self.queue.done(serial, Status::LocalProtection);
                    self.terminate_locally();
                }
                Ok(())
            }
            _ => Err(ErrorCode::UnexpectedOpcode),
        }
    }
}
