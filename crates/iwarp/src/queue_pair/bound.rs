//! Sends and Writes with immediate data: two messages for one request, and one receive.
//!
//! A Write is followed by its immediate data, as RFC 7306, section 6 has it. The immediate data of a Send comes before
//! it, so that its receive is complete as soon as the Send is. It does not write to the receive that it consumes, which
//! then takes the Send: which buffers are queued is up to the receiver (RFC 5041, section 5.3).

use super::batch::NO_REQUEST;
use super::machine::Machine;
use super::message::{Kind, Message};
use super::place::Receiving;
use super::transmit::{Next, gathered, next, untagged};
use crate::rdmap::{BoundImmediate, ErrorCode, IMMEDIATE_BYTES, Opcode, queue};
use crate::work::{Completed, Completion, Operation, Status};

impl Machine {
    /// Starts the request with immediate data that waits.
    pub(super) fn next_with_immediate(&mut self, serial: u64) -> Next {
        let Some((_, entry)) = self.queue.waiting() else { return Next::Nothing };
        let msn = &mut self.send_msn;
        let begun = match &mut entry.request.operation {
            Operation::SendImmediate { data, immediate, solicited } => {
                gathered(&self.memory, self.domain, data).map(|(source, length)| {
                    let opcode = if *solicited { Opcode::SendSolicited } else { Opcode::Send };
                    let announced = untagged(Opcode::Immediate, queue::SEND, next(msn));
                    let bytes = BoundImmediate::Send(*immediate).encode();
                    let send = Message::new(untagged(opcode, queue::SEND, next(msn)), source, length, serial);
                    (Message::of_bytes(announced, &bytes, NO_REQUEST), send, length)
                })
            }
            Operation::WriteImmediate { data, remote, immediate, solicited } => {
                gathered(&self.memory, self.domain, data).map(|(source, length)| {
                    let opcode = if *solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                    let kind =
                        Kind::Tagged { opcode: Opcode::Write, stag: remote.stag, address: remote.address };
                    let mut write = Message::new(kind, source, length, serial);
                    write.ends_request = false;
                    let bytes = BoundImmediate::Write(*immediate).encode();
                    let announced = untagged(opcode, queue::SEND, next(msn));
                    (write, Message::of_bytes(announced, &bytes, serial), length)
                })
            }
            _ => return Next::Nothing,
        };
        match begun {
            Ok((first, second, bytes)) => {
                (self.current, self.following) = (Some(first), Some(Box::new(second)));
                self.queue.length(serial, bytes);
                self.queue.begun();
                Next::Message
            }
            Err(_) => self.local_failure(serial, Status::LocalProtection),
        }
    }

    /// Delivers immediate data of a Write, or keeps it and the receive for its Send.
    pub(super) fn deliver_bound(&mut self, opcode: Opcode) -> Result<(), ErrorCode> {
        let bytes: [u8; IMMEDIATE_BYTES] =
            self.body().first_chunk().copied().ok_or(ErrorCode::OperationUnspecified)?;
        match BoundImmediate::decode(bytes) {
            Some(BoundImmediate::Send(_)) => {
                if let Some(receiving) = &mut self.receiving {
                    receiving.immediate = Some(bytes);
                }
            }
            Some(BoundImmediate::Write(_)) if !self.writing => {
                if let Some(Receiving { id, .. }) = self.receiving {
                    let completion = Completion {
                        bytes: std::mem::take(&mut self.written),
                        immediate: Some(bytes),
                        solicited: opcode.solicited(),
                        ..self.received(id, Completed::ReceiveWritten, Status::Success)
                    };
                    self.push_received(completion);
                }
            }
            _ => return Err(ErrorCode::OperationUnspecified),
        }
        Ok(())
    }
}

impl Receiving {
    /// Begins the Send whose immediate data was received.
    pub(super) fn begin_announced(&mut self, opcode: Opcode) -> Result<(), ErrorCode> {
        if self.immediate.is_none() || !self.opcode.is_immediate() || opcode.is_immediate() {
            return Err(ErrorCode::UnexpectedOpcode);
        }
        self.opcode = opcode;
        Ok(())
    }
}
