//! Control channel of a measurement: JSON messages in Sends on a separate
//! connection.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{Access, Region},
    work::{Completed, Completion, Data, Operation, ReceiveRequest, SendRequest},
};

use crate::{
    blocking::{BlockingQueuePair, Wait},
    error::RdmaError,
    negotiation::Message,
};

/// Length of the longest message.
const MESSAGE_BYTES: u32 = 8192;
/// Message slots of each direction: neither side sends more than two messages
/// before it gets a reply.
const SLOTS: u32 = 4;
/// Id of send requests; the id of a receive is its slot.
const SEND_ID: u64 = 1 << 32;

/// One side of a control channel.
#[derive(Debug)]
pub(crate) struct ControlChannel {
    queue_pair: BlockingQueuePair,
    /// Slots for receiving, then for sending.
    memory: Region,
    sent_count: u64,
}

impl ControlChannel {
    /// Opens a channel that is not connected yet.
    ///
    /// # Errors
    /// The RNIC's.
    pub(crate) fn open() -> Result<Self, RdmaError> {
        let queue_pair = BlockingQueuePair::open()?;
        let length = 2 * SLOTS as usize * MESSAGE_BYTES as usize;
        let memory = Region::new(queue_pair.domain(), length, Access::LOCAL_WRITE)?;
        let channel = Self { queue_pair, memory, sent_count: 0 };
        for slot in 0..SLOTS {
            channel.post_receive(u64::from(slot))?;
        }
        Ok(channel)
    }

    /// Returns the queue pair, to connect or accept.
    pub(crate) fn queue_pair(&mut self) -> &mut BlockingQueuePair {
        &mut self.queue_pair
    }

    /// Sends a message.
    ///
    /// # Errors
    /// A closed connection.
    pub(crate) fn send(&mut self, message: &Message) -> Result<(), RdmaError> {
        let text =
            clearstream_schema::json::to_vec(message).map_err(|error| RdmaError::Fault(error.to_string()))?;
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if length > MESSAGE_BYTES {
            return Err(RdmaError::Fault(format!("a control message of {length} bytes")));
        }
        let slot = SLOTS as usize + (self.sent_count % u64::from(SLOTS)) as usize;
        self.sent_count += 1;
        let offset = slot * MESSAGE_BYTES as usize;
        self.memory.write(offset, &text);
        let data = Data::Gather([self.memory.segment(offset, length)].into_iter().collect());
        self.queue_pair.send(SendRequest {
            id: SEND_ID,
            operation: Operation::Send { data, solicited: false, invalidate: None },
            signaled: true,
            fence: false,
        })
    }

    /// Polls for the next message.
    ///
    /// # Errors
    /// A closed connection or an invalid message.
    pub(crate) fn try_receive(&mut self) -> Result<Option<Message>, RdmaError> {
        while let Some(wait) = self.queue_pair.try_next()? {
            if let Some(message) = self.message(wait, Duration::ZERO)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// A closed connection, no message within `timeout`, an invalid message, or
    /// the stop flag.
    pub(crate) fn receive(&mut self, timeout: Duration, stop: &AtomicBool) -> Result<Message, RdmaError> {
        loop {
            let wait = self.queue_pair.wait(Some(timeout), stop)?;
            if let Some(message) = self.message(wait, timeout)? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message; `None` when the peer has closed the
    /// connection gracefully.
    ///
    /// # Errors
    /// A lost connection, no message within `timeout`, an invalid message, or
    /// the stop flag.
    pub(crate) fn receive_or_close(
        &mut self,
        timeout: Duration,
        stop: &AtomicBool,
    ) -> Result<Option<Message>, RdmaError> {
        loop {
            match self.queue_pair.wait(Some(timeout), stop)? {
                Wait::Closed(closure) if closure.graceful => return Ok(None),
                wait => {
                    if let Some(message) = self.message(wait, timeout)? {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// Closes the connection gracefully.
    pub(crate) fn close(self, timeout: Duration) {
        self.queue_pair.close(timeout);
    }

    fn message(&self, wait: Wait, waited: Duration) -> Result<Option<Message>, RdmaError> {
        let completion = match wait {
            Wait::Completed(completion) if completion.completed == Completed::Receive => completion,
            Wait::Completed(_) => return Ok(None),
            Wait::Closed(closure) => return Err(self.queue_pair.lost(closure.reason)),
            Wait::TimedOut => return Err(RdmaError::Silent { peer: self.queue_pair.peer(), after: waited }),
        };
        let message = self.decode(&completion)?;
        self.post_receive(completion.id)?;
        Ok(Some(message))
    }

    fn decode(&self, completion: &Completion) -> Result<Message, RdmaError> {
        let offset = completion.id as usize * MESSAGE_BYTES as usize;
        let text = self.memory.to_vec(offset, completion.bytes as usize);
        clearstream_schema::json::from_slice(&text).map_err(|error| RdmaError::OtherPeer {
            peer: self.queue_pair.peer(),
            expected: "clearstream of this version",
            seen: format!(
                "a control message of {} bytes that is invalid at column {}",
                text.len(),
                error.column()
            ),
        })
    }

    fn post_receive(&self, slot: u64) -> Result<(), RdmaError> {
        let segment = self.memory.segment(slot as usize * MESSAGE_BYTES as usize, MESSAGE_BYTES);
        self.queue_pair.receive(ReceiveRequest { id: slot, segments: [segment].into_iter().collect() })
    }
}
