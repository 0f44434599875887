//! Messages of a test: JSON in Sends on a connection of their own.

use std::{sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{Access, ProtectionDomain, Region},
    work::{Completed, Completion, Data, Operation, ReceiveRequest, SendRequest},
};

use crate::{
    blocking::{Waited, Wire},
    error::RdmaError,
    negotiation::Message,
};

/// Bytes of the longest message.
const MESSAGE_BYTES: u32 = 8192;
/// Places for messages, each way: neither end says more than two before it is
/// answered.
const PLACES: u32 = 4;
/// Ids of requests that send begin here; those that receive have the number of
/// their place.
const SENDS: u64 = 1 << 32;

/// The connection that messages go over.
#[derive(Debug)]
pub struct Channel {
    wire: Wire,
    /// Places for receiving, then for sending.
    memory: Region,
    /// Messages sent.
    said: u64,
}

impl Channel {
    /// A channel that is not connected yet.
    ///
    /// # Errors
    /// The RNIC's.
    pub fn new(domain: &ProtectionDomain) -> Result<Self, RdmaError> {
        let wire = Wire::new(domain)?;
        let length = 2 * PLACES as usize * MESSAGE_BYTES as usize;
        let memory = Region::new(domain, length, Access::LOCAL_WRITE)?;
        let channel = Self { wire, memory, said: 0 };
        for place in 0..PLACES {
            channel.post_receive(u64::from(place))?;
        }
        Ok(channel)
    }

    /// The wire below, to connect or accept.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Says something.
    ///
    /// # Errors
    /// A connection that is over.
    pub fn say(&mut self, message: &Message) -> Result<(), RdmaError> {
        let text = serde_json::to_vec(message).map_err(|error| RdmaError::Fault(error.to_string()))?;
        let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
        if length > MESSAGE_BYTES {
            return Err(RdmaError::Fault(format!("a message of {length} bytes between the ends of a test")));
        }
        let place = PLACES as usize + (self.said % u64::from(PLACES)) as usize;
        self.said += 1;
        let offset = place * MESSAGE_BYTES as usize;
        self.memory.write(offset, &text);
        let data = Data::Gather([self.memory.segment(offset, length)].into_iter().collect());
        self.wire.send(SendRequest {
            id: SENDS,
            operation: Operation::Send { data, solicited: false, invalidate: None },
            signaled: true,
            fence: false,
        })
    }

    /// What was said, if there is something.
    ///
    /// # Errors
    /// A connection that is over, or words that are not understood.
    pub fn try_hear(&mut self) -> Result<Option<Message>, RdmaError> {
        while let Some(waited) = self.wire.try_next()? {
            if let Some(message) = self.heard(waited)? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Waits for what is said.
    ///
    /// # Errors
    /// A connection that is over, silence for longer than `limit`, words that
    /// are not understood, or the flag to stop.
    pub fn hear(&mut self, limit: Option<Duration>, stop: &AtomicBool) -> Result<Message, RdmaError> {
        loop {
            let waited = self.wire.wait(limit, stop)?;
            if let Some(message) = self.heard(waited)? {
                return Ok(message);
            }
        }
    }

    /// Waits for what is said, however long that takes; `None` when the other
    /// end has left in order.
    ///
    /// # Errors
    /// A connection that broke, words that are not understood, or the flag to
    /// stop.
    pub fn hear_or_end(&mut self, stop: &AtomicBool) -> Result<Option<Message>, RdmaError> {
        loop {
            match self.wire.wait(None, stop)? {
                Waited::Over(ending) if ending.orderly => return Ok(None),
                waited => {
                    if let Some(message) = self.heard(waited)? {
                        return Ok(Some(message));
                    }
                }
            }
        }
    }

    /// Ends the connection in order.
    pub fn close(self, limit: Duration) {
        self.wire.close(limit);
    }

    fn heard(&self, waited: Waited) -> Result<Option<Message>, RdmaError> {
        let completion = match waited {
            Waited::Done(completion) if completion.completed == Completed::Receive => completion,
            Waited::Done(_) => return Ok(None),
            Waited::Over(ending) => return Err(self.wire.lost(ending.reason)),
            Waited::Late => return Err(self.wire.lost("it is silent")),
        };
        let message = self.read(&completion)?;
        self.post_receive(completion.id)?;
        Ok(Some(message))
    }

    fn read(&self, completion: &Completion) -> Result<Message, RdmaError> {
        let offset = completion.id as usize * MESSAGE_BYTES as usize;
        let text = self.memory.to_vec(offset, completion.bytes as usize);
        serde_json::from_slice(&text).map_err(|error| RdmaError::OtherPeer {
            peer: self.wire.peer(),
            expected: "clearstream of this version",
            seen: format!("{} bytes that are none of its messages ({error})", text.len()),
        })
    }

    fn post_receive(&self, place: u64) -> Result<(), RdmaError> {
        let segment = self.memory.segment(place as usize * MESSAGE_BYTES as usize, MESSAGE_BYTES);
        self.wire.receive(ReceiveRequest { id: place, segments: [segment].into_iter().collect() })
    }
}
