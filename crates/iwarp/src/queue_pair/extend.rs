//! Receives that get their memory while their message arrives.
//!
//! A consumer whose messages say in their first bytes where they belong posts receives for these bytes only. When a
//! receive is full and its message goes on, a completion says so, and the stream waits until the consumer has named
//! memory for the rest: DDP leaves it to the receiver which buffers are queued (RFC 5041, section 5.3), and TCP's
//! window stops the peer.

use super::machine::Machine;
use super::place::Target;
use super::{PostError, Side};
use crate::work::{Completed, Completion, Segment};

/// Bytes that were received from the socket and wait for memory.
#[derive(Debug, Default)]
pub(super) struct Excess {
    /// The current FPDU is of a Send without a receive.
    pub receiver_not_ready: bool,
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
        (self.excess.receiver_not_ready || !self.excess.payload.is_empty()) && self.is_receiving()
    }

    /// Returns the payload that fits into the current receive; keeps the rest, and reports it.
    pub(super) fn keep_excess<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.excess.receiver_not_ready {
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
        if !self.is_waiting() || self.excess.receiver_not_ready {
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
    pub(super) fn place_excess(&mut self) {
        let payload = std::mem::take(&mut self.excess.payload);
        if self.fpdu.fault.is_none() {
            self.place(&payload);
        }
        if self.is_waiting() {
            self.settle_placements();
            return;
        }
        if std::mem::take(&mut self.excess.ends_fpdu) {
            self.end();
        }
        let later = std::mem::take(&mut self.excess.later);
        self.consume(&later);
    }
}
