//! A Send that finds no receive, and waits for one.
//!
//! On InfiniBand the sender of such a message gets a negative acknowledgement (RNR NAK: receiver not ready) and
//! retries; programs made for it rely on that. iWARP has no such answer, but when a segment is processed is up to the
//! receiver: here the stream is not read until a receive is posted, and TCP's window stops the peer. Where that is not
//! allowed ([`Limits::receives_wait`](super::Limits::receives_wait)), the Send ends the connection (RFC 5041, section
//! 7.2).

use super::machine::Machine;
use crate::rdmap::ErrorCode;

impl Machine {
    /// Whether a Send waits for a receive; [`Machine::resume`] is to be called when one is posted.
    #[must_use]
    pub fn is_receiver_not_ready(&self) -> bool {
        self.excess.receiver_not_ready && self.is_receiving()
    }

    /// A receive was posted: processes the Send that waits for it, if there is one.
    pub fn resume(&mut self) {
        if !self.is_receiver_not_ready() {
            return;
        }
        self.excess.receiver_not_ready = false;
        if let Some((header, opcode)) = self.fpdu.header {
            match self.target(&header, opcode) {
                Ok(target) => self.fpdu.target = target,
                Err(code) => self.fpdu.fault = Some(code),
            }
        }
        if !self.excess.receiver_not_ready {
            self.place_excess();
        }
    }

    /// No receive will be posted: the Send that waits for it ends the connection.
    pub fn give_up(&mut self) {
        if self.is_receiver_not_ready() {
            self.excess.receiver_not_ready = false;
            self.fpdu.fault = Some(ErrorCode::UntaggedNoBuffer);
            self.place_excess();
        }
    }
}
