//! A stream that waits for memory: of a full receive, or of the next one.
//!
//! A consumer whose messages say in their first bytes where they belong posts receives for these bytes only. When a
//! receive is full and its message goes on, a completion says so, and the stream waits until the consumer has named
//! memory for the rest: DDP leaves it to the receiver which buffers are queued (RFC 5041, section 5.3), and TCP's
//! window stops the peer.
//!
//! A Send that finds no receive may wait for one in the same way: when a segment is processed is up to the receiver.
//! Programs made for InfiniBand rely on it, where the sender of such a message is told that the receiver is not ready,
//! and retries.

use super::machine::Machine;
use super::place::Target;
use super::{PostError, Side};
use crate::rdmap::ErrorCode;
use crate::work::{Completed, Completion, Segment};

/// Bytes that were received from the socket and wait for memory.
#[derive(Debug, Default)]
pub(super) struct Excess {
    /// The current FPDU is of a Send without a receive.
    pub starved: bool,
    /// Payload of the current FPDU.
    payload: Vec<u8>,
    /// They are its last bytes, and its CRC was verified.
    pub ends_fpdu: bool,
    /// What follows in the stream.
    pub later: Vec<u8>,
}

impl Machine {
    /// Whether the stream waits for [`Machine::extend_receive`] or a receive: nothing is read.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        (self.excess.starved || !self.excess.payload.is_empty()) && self.is_receiving()
    }

    /// Whether a Send waits for a receive; [`Machine::resume`] is to be called when one is posted.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        self.excess.starved && self.is_receiving()
    }

    /// A receive was posted: processes the Send that waits for it, if there is one.
    pub fn resume(&mut self) {
        if !self.is_starved() {
            return;
        }
        self.excess.starved = false;
        if let Some((header, opcode)) = self.fpdu.header {
            match self.target(&header, opcode) {
                Ok(target) => self.fpdu.target = target,
                Err(code) => self.fpdu.fault = Some(code),
            }
        }
        if !self.excess.starved {
            self.place_excess();
        }
    }

    /// No receive will be posted: the Send that waits for it ends the connection.
    pub fn give_up(&mut self) {
        if self.is_starved() {
            self.excess.starved = false;
            self.fpdu.fault = Some(ErrorCode::UntaggedNoBuffer);
            self.place_excess();
        }
    }

    /// Returns the payload that fits into the current receive; keeps the rest, and reports it.
    pub(super) fn keep_excess<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.excess.starved {
            self.excess.payload.extend_from_slice(bytes);
            return &[];
        }
        let (Target::Receive { at }, Some(receiving)) = (self.fpdu.target, &self.receiving) else {
            return bytes;
        };
        let room = receiving.capacity.saturating_sub(at + self.fpdu.done);
        if bytes.len() <= room {
            return bytes;
        }
        let (fits, excess) = bytes.split_at(room);
        self.excess.payload.extend_from_slice(excess);
        let completion = Completion {
            id: receiving.id,
            queue_pair: self.id,
            completed: Completed::ReceiveFull,
            bytes: u32::try_from(receiving.capacity).unwrap_or(u32::MAX),
            ..Completion::EMPTY
        };
        self.completions.push_back((Side::Receive, completion));
        fits
    }

    /// Names memory for the rest of a message, or a part of it, whose receive is full.
    ///
    /// # Errors
    /// No receive waits, or the segments are too many: nothing is changed.
    pub fn extend_receive(&mut self, segments: &[Segment]) -> Result<(), PostError> {
        if !self.is_waiting() || self.excess.starved {
            return Err(PostError::NotFull);
        }
        let Some(receiving) = &mut self.receiving else { return Err(PostError::NotFull) };
        if segments.len() > self.limits.segments {
            return Err(PostError::Segments);
        }
        for segment in segments.iter().filter(|segment| segment.length > 0) {
            let added = receiving.add(self.memory.local(self.domain, *segment, true));
            if let Err(code) = added {
                // Reported when the segment ends.
                self.fpdu.fault = Some(code);
            }
        }
        self.place_excess();
        Ok(())
    }

    /// Processes what has waited, as far as there is memory.
    fn place_excess(&mut self) {
        let payload = std::mem::take(&mut self.excess.payload);
        if self.fpdu.fault.is_none() {
            self.place(&payload);
        }
        if self.is_waiting() {
            return;
        }
        if std::mem::take(&mut self.excess.ends_fpdu) {
            self.end();
        }
        let later = std::mem::take(&mut self.excess.later);
        self.consume(&later);
    }
}
