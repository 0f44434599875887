//! Control connection of perftest: the client sends a message, and the server
//! responds with one of the same length.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{AcceptOptions, Access, ConnectOptions, Established, Incoming, Region},
    work::{Completed, Completion, Data, Operation, ReceiveRequest, Remote, SendRequest},
};

use super::{
    Program,
    format::{CACHE_LINE, CYCLE_BUFFER, DESTINATION_BYTES, Destination, MTU, VERSION, version},
};
use crate::{
    blocking::{BlockingQueuePair, Wait},
    data_queue_pairs::Role,
    error::{RdmaError, peer_text},
    negotiation::RemoteMemory,
};

/// Maximum wait for the peer's next message outside of runs.
pub(super) const CONTROL_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Program expected at the peer.
const PERFTEST: &str = "perftest (with -R)";

/// One side of a control connection, with one message in flight at a time.
#[derive(Debug)]
pub(super) struct Control {
    role: Role,
    queue_pair: BlockingQueuePair,
    memory: Region,
}

/// Result of a poll.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    Message(Vec<u8>),
    Nothing,
    /// The peer has closed the connection gracefully.
    Closed,
}

impl Control {
    /// Opens a control connection that is not established yet.
    ///
    /// # Errors
    /// The RNIC's.
    pub(super) fn open(role: Role) -> Result<Self, RdmaError> {
        let queue_pair = BlockingQueuePair::open()?;
        let memory = Region::new(queue_pair.domain(), DESTINATION_BYTES, Access::LOCAL_WRITE)?;
        let control = Self { role, queue_pair, memory };
        control.post_receive()?;
        Ok(control)
    }

    /// Connects as a client.
    ///
    /// # Errors
    /// No connection.
    pub(super) fn connect(
        &mut self,
        peer: SocketAddr,
        options: &ConnectOptions,
        stop: &AtomicBool,
    ) -> Result<&Established, RdmaError> {
        self.queue_pair.connect(peer, options, stop)
    }

    /// Accepts as a server.
    ///
    /// # Errors
    /// No connection.
    pub(super) fn accept(&mut self, request: Incoming) -> Result<&Established, RdmaError> {
        self.queue_pair.accept(request, &AcceptOptions::default())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// A closed connection.
    pub(super) fn send(&self, message: &[u8]) -> Result<(), RdmaError> {
        let data = Data::Inline(message.into());
        self.queue_pair.send(SendRequest {
            id: 0,
            operation: Operation::Send { data, solicited: false, invalidate: None },
            signaled: true,
            fence: false,
        })
    }

    /// Polls for a message.
    ///
    /// # Errors
    /// A lost connection.
    pub(super) fn try_receive(&self) -> Result<Received, RdmaError> {
        while let Some(wait) = self.queue_pair.try_next()? {
            match self.received(wait)? {
                Received::Nothing => {}
                received => return Ok(received),
            }
        }
        Ok(Received::Nothing)
    }

    /// Waits for a message, at most [`CONTROL_REPLY_TIMEOUT`].
    ///
    /// # Errors
    /// A lost connection, no message, or the stop flag.
    fn receive(&self, stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        loop {
            let wait = self.queue_pair.wait(Some(CONTROL_REPLY_TIMEOUT), stop)?;
            if let Wait::TimedOut = wait {
                let seconds = CONTROL_REPLY_TIMEOUT.as_secs();
                return Err(self.other_peer(format!("it sends nothing for {seconds} s")));
            }
            match self.received(wait)? {
                Received::Message(message) => return Ok(message),
                Received::Nothing => {}
                Received::Closed => {
                    return Err(self.queue_pair.lost("it closed the control connection"));
                }
            }
        }
    }

    fn received(&self, wait: Wait) -> Result<Received, RdmaError> {
        match wait {
            Wait::Completed(done) if done.completed == Completed::Receive => {
                self.message(&done).map(Received::Message)
            }
            Wait::Completed(_) | Wait::TimedOut => Ok(Received::Nothing),
            Wait::Closed(closure) if closure.graceful => Ok(Received::Closed),
            Wait::Closed(closure) => Err(self.queue_pair.lost(closure.reason)),
        }
    }

    fn message(&self, done: &Completion) -> Result<Vec<u8>, RdmaError> {
        let message = self.memory.to_vec(0, done.bytes as usize);
        self.post_receive()?;
        Ok(message)
    }

    fn post_receive(&self) -> Result<(), RdmaError> {
        let segment = self.memory.segment(0, DESTINATION_BYTES as u32);
        self.queue_pair.receive(ReceiveRequest { id: 0, segments: [segment].into_iter().collect() })
    }

    /// Exchanges one message each: the client sends first.
    ///
    /// # Errors
    /// A lost connection, no message, one of another length, or the stop flag.
    pub(super) fn exchange(&self, message: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        if self.role == Role::Client {
            self.send(message)?;
        }
        let received = self.receive(stop)?;
        if received.len() != message.len() {
            return Err(self.unexpected_length(received.len()));
        }
        if self.role == Role::Server {
            self.send(message)?;
        }
        Ok(received)
    }

    /// Performs the first exchanges: version, size of the buffer that a client
    /// cycles through, cache line, MTU. Returns the size of the peer's buffer.
    ///
    /// # Errors
    /// As [`Self::exchange`], or an unsupported version of perftest.
    pub(super) fn exchange_parameters(&self, stop: &AtomicBool) -> Result<u32, RdmaError> {
        let theirs = self.exchange(&VERSION, stop)?;
        if version(&theirs).is_none() {
            let text = String::from_utf8_lossy(&theirs);
            let text = peer_text(text.trim_end_matches('\0'));
            return Err(self.other_peer(format!("its version is \"{text}\", and 5.70 is the oldest")));
        }
        let cycle = self.exchange(&CYCLE_BUFFER, stop)?;
        self.exchange(&CACHE_LINE, stop)?;
        self.exchange(&MTU, stop)?;
        let [a, b, c, d] = cycle[..] else { return Err(self.unexpected_length(cycle.len())) };
        Ok(u32::from_be_bytes([a, b, c, d]))
    }

    /// Exchanges one destination each.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(super) fn exchange_destination(
        &self,
        own: Destination,
        stop: &AtomicBool,
    ) -> Result<Destination, RdmaError> {
        let theirs = self.exchange(&own.encode(), stop)?;
        Destination::decode(&theirs).ok_or_else(|| self.unexpected_length(theirs.len()))
    }

    /// Performs an exchange that only synchronizes the two sides.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(super) fn synchronize(&self, stop: &AtomicBool) -> Result<(), RdmaError> {
        self.exchange_destination(Destination::default(), stop).map(drop)
    }

    /// Performs the exchanges after the queue pairs are connected: returns the
    /// peer's memory of each.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(super) fn exchange_destinations(
        &self,
        program: Program,
        own: &[Destination],
        stop: &AtomicBool,
    ) -> Result<Vec<RemoteMemory>, RdmaError> {
        let mut theirs = vec![Destination::default(); own.len()];
        for qp in program.destination_order(own.len()) {
            theirs[qp] = self.exchange_destination(own[qp], stop)?;
        }
        let memory = theirs.into_iter().map(Destination::memory);
        Ok(memory.map(|place: Remote| RemoteMemory { source: place, sink: place }).collect())
    }

    /// Creates the error of a message that is out of sequence.
    pub(super) fn unexpected_length(&self, length: usize) -> RdmaError {
        self.other_peer(format!(
            "it sent {length} bytes where others were expected; start the same program, with as many queue \
             pairs, at both ends"
        ))
    }

    fn other_peer(&self, seen: String) -> RdmaError {
        RdmaError::OtherPeer { peer: self.queue_pair.peer(), expected: PERFTEST, seen }
    }

    /// Closes the connection gracefully.
    pub(super) fn close(self, timeout: Duration) {
        self.queue_pair.close(timeout);
    }
}
