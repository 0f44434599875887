//! The session protocol as a state machine: bytes and time go in, messages, bytes and deadlines come out. It
//! does no I/O and reads no clock, so that every fault can be simulated with virtual time.
//!
//! Sequence: both sides send `Hello` at once; the agent then sends `Ready` (or `Queued`, later `Ready`); the
//! controller sends requests with ascending ids, the agent replies to each exactly once and sends events in
//! between. A side idle for a second sends `KeepAlive`; four seconds without a byte mean that the peer is
//! lost. `Goodbye` ends the session.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use clearstream_schema::control::{Failure, FailureKind};

use crate::{
    frame::{self, Decoder, FRAME_LIMIT, FrameError, HELLO_LIMIT},
    message::{Body, Event, Hello, Message, Outcome, PROTOCOL_MAJOR, PROTOCOL_MINOR},
};
use decode::{Decoded, decode};

mod decode;
mod end;

pub use end::{SessionEnd, VersionMismatch};

/// Idle time after which a side sends `KeepAlive`.
pub(crate) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time without received bytes after which the peer is declared lost.
pub(crate) const PEER_TIMEOUT: Duration = Duration::from_secs(4);
/// Maximum wait for the peer's `Hello`.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum pending requests; a controller that exceeds it is faulty.
const PENDING_REQUESTS: usize = 64;
/// Bytes of events that may wait to be polled before droppable ones are dropped and counted; at four times
/// this much the session ends.
pub(crate) const EVENT_BYTES: usize = 64 << 20;
/// Ticks come at least every [`KEEP_ALIVE_INTERVAL`]. A longer gap means that this process did not run
/// (stopped, starved, suspended) and received nothing for that reason: such a gap does not count towards the
/// peer timeout.
const STALL: Duration = Duration::from_secs(2);

/// Role of this end of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sends requests.
    Controller,
    /// Replies to requests.
    Agent,
}

/// Decoded input from the peer.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// The peer is present and its version is compatible.
    Hello(Hello),
    /// The agent serves requests from now on.
    Ready,
    /// The agent is busy; `Ready` follows.
    Queued {
        /// For people.
        reason: String,
    },
    /// A request, to be completed with a reply.
    Request {
        /// Id to be used in the reply.
        id: u64,
        /// Name of the call.
        name: String,
        /// The call.
        body: Body,
    },
    /// Reply to a request of this side.
    Reply {
        /// Id of the request.
        id: u64,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The agent sent an unsolicited event.
    Event {
        /// The event.
        event: Event,
        /// Bytes of its frame, a measure of the memory that it takes.
        frame_bytes: usize,
    },
}

/// One end of a session.
#[derive(Debug)]
pub struct Session {
    role: Role,
    hello: Hello,
    peer: Option<Hello>,
    decoder: Decoder,
    incoming: VecDeque<Incoming>,
    /// Bytes of the events among `incoming`.
    event_bytes: usize,
    /// Events dropped, here or by the agent.
    dropped_count: u64,
    outgoing: VecDeque<Vec<u8>>,
    outgoing_bytes: usize,
    hello_deadline: Instant,
    last_sent: Instant,
    last_received: Instant,
    last_tick: Instant,
    /// Controller: id of the last request sent. Agent: highest id seen.
    last_id: u64,
    /// Ids of requests without a reply yet.
    pending: BTreeSet<u64>,
    end: Option<SessionEnd>,
}

/// The `Hello` of this program on this host.
pub fn own_hello() -> Hello {
    Hello {
        major: PROTOCOL_MAJOR,
        minor: PROTOCOL_MINOR,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: clearstream_sys::process::host_name(),
        ssh_address: None,
        kernel: Some(clearstream_sys::process::kernel_release()),
    }
}

impl Session {
    /// Starts a session; the `Hello` waits in [`Session::poll_transmit`]. The peer must send its own within
    /// `hello_timeout` (usually [`HELLO_TIMEOUT`]; longer where a person may be typing a password).
    pub fn new(role: Role, hello: Hello, hello_timeout: Duration, now: Instant) -> Self {
        let mut session = Self {
            role,
            hello: hello.clone(),
            peer: None,
            decoder: Decoder::new(HELLO_LIMIT),
            incoming: VecDeque::new(),
            event_bytes: 0,
            dropped_count: 0,
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
            hello_deadline: now + hello_timeout,
            last_sent: now,
            last_received: now,
            last_tick: now,
            last_id: 0,
            pending: BTreeSet::new(),
            end: None,
        };
        session.send_short(&Message::Hello(hello), now);
        session
    }

    /// Skips text in front of the peer's `Hello`, such as a remote shell's start-up files print.
    pub(crate) fn skip_text(&mut self) {
        self.decoder.skip_text();
    }

    /// First line of the text that was skipped, if there was any.
    pub(crate) fn skipped_text(&self) -> Option<String> {
        self.decoder.skipped_text()
    }

    /// Why the session is over, once it is.
    pub fn end(&self) -> Option<&SessionEnd> {
        self.end.as_ref()
    }

    /// Bytes that wait to be sent.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.outgoing_bytes
    }

    /// Feeds received bytes. Ignored after the end.
    pub fn feed(&mut self, bytes: &[u8], now: Instant) {
        if bytes.is_empty() || self.end.is_some() {
            return;
        }
        self.last_received = now;
        self.decoder.push(bytes);
        while self.end.is_none() {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => self.take_frame(&frame, now),
                Ok(None) => return,
                Err(error) => return self.fail(SessionEnd::Frame(error), now),
            }
        }
    }

    /// Reports the end of the peer's stream.
    pub fn feed_end(&mut self, _now: Instant) {
        let inside_frame = !self.decoder.is_empty();
        self.end.get_or_insert(SessionEnd::EndOfStream { inside_frame });
    }

    /// Reports that reading or writing has failed.
    pub(crate) fn feed_error(&mut self, reason: String) {
        self.end.get_or_insert(SessionEnd::Transport(reason));
    }

    /// Ends the session as at the deadline of the peer's `Hello`, unless it has been received.
    pub(crate) fn give_up(&mut self, now: Instant) {
        if self.peer.is_none() && self.end.is_none() {
            self.fail(SessionEnd::NoHello, now);
        }
    }

    /// Advances time: sends `KeepAlive` when due and detects the peer timeout.
    pub fn tick(&mut self, now: Instant) {
        if self.end.is_some() {
            return;
        }
        let gap = now.saturating_duration_since(self.last_tick);
        self.last_tick = now;
        if gap > STALL {
            self.last_received = now.max(self.last_received);
        }
        if self.peer.is_none() {
            if now >= self.hello_deadline {
                return self.fail(SessionEnd::NoHello, now);
            }
        } else if now.saturating_duration_since(self.last_received) >= PEER_TIMEOUT {
            return self.fail(SessionEnd::PeerTimeout, now);
        }
        if now.saturating_duration_since(self.last_sent) >= KEEP_ALIVE_INTERVAL {
            self.send_short(&Message::KeepAlive, now);
        }
    }

    /// Latest time of the next [`Session::tick`] call.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let dead = if self.peer.is_some() { self.last_received + PEER_TIMEOUT } else { self.hello_deadline };
        self.end.is_none().then(|| dead.min(self.last_sent + KEEP_ALIVE_INTERVAL))
    }

    /// The next frame to put on the wire, also after the end (the `Goodbye`).
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        let frame = self.outgoing.pop_front()?;
        self.outgoing_bytes -= frame.len();
        Some(frame)
    }

    /// The next message of the peer.
    pub fn poll_message(&mut self) -> Option<Incoming> {
        let message = self.incoming.pop_front();
        if let Some(Incoming::Event { frame_bytes, .. }) = &message {
            self.event_bytes -= frame_bytes;
        }
        message
    }

    /// Controller: droppable events dropped since the session began, by the agent because this side read too
    /// slowly, or here because they were not polled.
    pub(crate) fn dropped_event_count(&self) -> u64 {
        self.dropped_count
    }

    /// Controller: sends a call; the reply carries the same id.
    pub(crate) fn request(&mut self, name: &str, body: Body, now: Instant) -> Result<u64, FrameError> {
        let id = self.last_id + 1;
        self.send(&Message::Request { id, name: name.to_owned(), body }, now)?;
        self.last_id = id;
        self.pending.insert(id);
        Ok(id)
    }

    /// Agent: replies to a request. A reply too long for a frame is replaced by a failure.
    pub(crate) fn reply(&mut self, id: u64, outcome: Outcome, now: Instant) {
        if !self.pending.remove(&id) {
            return;
        }
        if let Err(error) = self.send(&Message::Reply { id, outcome }, now) {
            let failure = Failure { kind: FailureKind::Internal, message: error.to_string() };
            self.send_short(&Message::Reply { id, outcome: Outcome::Failed(failure) }, now);
        }
    }

    /// Sends any other message. Nothing happens after the end.
    pub(crate) fn send(&mut self, message: &Message, now: Instant) -> Result<(), FrameError> {
        if self.end.is_some() {
            return Ok(());
        }
        self.queue(frame::encode(message)?, now);
        Ok(())
    }

    /// Closes the session gracefully, with a reason for the peer.
    pub(crate) fn goodbye(&mut self, reason: &str, kind: Option<FailureKind>, now: Instant) {
        if self.end.is_none() {
            self.send_short(&Message::Goodbye { reason: reason.chars().take(2000).collect(), kind }, now);
            self.end = Some(SessionEnd::Closed);
        }
    }

    /// Sends one of the short messages, which always fit.
    fn send_short(&mut self, message: &Message, now: Instant) {
        if let Ok(frame) = frame::encode(message) {
            self.queue(frame, now);
        }
    }

    fn queue(&mut self, frame: Vec<u8>, now: Instant) {
        self.outgoing_bytes += frame.len();
        self.outgoing.push_back(frame);
        self.last_sent = now;
    }

    /// Ends the session for a fault and reports it to the peer.
    fn fail(&mut self, end: SessionEnd, now: Instant) {
        self.send_short(&Message::Goodbye { reason: end.to_string(), kind: None }, now);
        self.end = Some(end);
    }

    fn take_frame(&mut self, frame: &[u8], now: Instant) {
        let newer = self.peer.as_ref().filter(|peer| peer.minor > self.hello.minor);
        match decode(frame, newer) {
            Decoded::Known(message) => self.take(*message, frame.len(), now),
            Decoded::UnknownRequest { id, failure } => {
                if self.accept_id(id, now) {
                    self.reply(id, Outcome::Failed(failure), now);
                }
            }
            Decoded::Ignored => {}
            Decoded::Bad(reason) if self.peer.is_none() => {
                self.fail(SessionEnd::Protocol(format!("the first message is not a Hello: {reason}")), now);
            }
            Decoded::Bad(reason) => {
                self.fail(SessionEnd::Protocol(format!("a message could not be read: {reason}")), now);
            }
        }
    }

    fn take(&mut self, message: Message, frame_bytes: usize, now: Instant) {
        if self.peer.is_none() {
            return self.take_first(message, now);
        }
        match (message, self.role) {
            (Message::KeepAlive, _) => {}
            (Message::Goodbye { reason, kind }, _) => {
                self.end = Some(SessionEnd::Goodbye { reason, kind });
            }
            (Message::Request { id, name, body }, Role::Agent) => {
                if self.accept_id(id, now) {
                    self.incoming.push_back(Incoming::Request { id, name, body });
                }
            }
            (Message::Reply { id, outcome }, Role::Controller) => {
                if self.pending.remove(&id) {
                    self.incoming.push_back(Incoming::Reply { id, outcome });
                } else {
                    self.fail(SessionEnd::Protocol(format!("reply {id} has no pending request")), now);
                }
            }
            (Message::Event(event), Role::Controller) => self.take_event(event, frame_bytes, now),
            (Message::EventsDropped { count }, Role::Controller) => self.count_dropped(count),
            (Message::Ready, Role::Controller) => self.incoming.push_back(Incoming::Ready),
            (Message::Queued { reason }, Role::Controller) => {
                self.incoming.push_back(Incoming::Queued { reason });
            }
            (Message::Hello(_), _) => {
                self.fail(SessionEnd::Protocol("a second Hello was received".into()), now)
            }
            (Message::Request { .. }, Role::Controller) => {
                self.fail(SessionEnd::Protocol("an agent sent a request".into()), now);
            }
            (
                Message::Reply { .. }
                | Message::Event(_)
                | Message::EventsDropped { .. }
                | Message::Ready
                | Message::Queued { .. },
                Role::Agent,
            ) => self.fail(SessionEnd::Protocol("a controller sent an agent's message".into()), now),
        }
    }

    fn take_first(&mut self, message: Message, now: Instant) {
        let hello = match message {
            Message::Hello(hello) => hello,
            // A busy or stopping daemon, or one that read our version first.
            Message::Goodbye { reason, kind } => {
                self.end = Some(SessionEnd::Goodbye { reason, kind });
                return;
            }
            _ => {
                let reason = "the first message is not a Hello".to_owned();
                return self.fail(SessionEnd::Protocol(reason), now);
            }
        };
        if hello.major != self.hello.major {
            let mismatch = VersionMismatch { ours: self.hello.clone(), theirs: hello };
            return self.fail(SessionEnd::Version(Box::new(mismatch)), now);
        }
        self.decoder.set_limit(FRAME_LIMIT);
        self.peer = Some(hello.clone());
        self.incoming.push_back(Incoming::Hello(hello));
    }

    fn take_event(&mut self, event: Event, frame_bytes: usize, now: Instant) {
        if self.event_bytes >= EVENT_BYTES && event.droppable {
            self.count_dropped(1);
        } else if self.event_bytes >= 4 * EVENT_BYTES {
            self.fail(SessionEnd::Protocol("the agent sends more events than fit into memory".into()), now);
        } else {
            self.event_bytes += frame_bytes;
            self.incoming.push_back(Incoming::Event { event, frame_bytes });
        }
    }

    fn count_dropped(&mut self, count: u64) {
        self.dropped_count = self.dropped_count.saturating_add(count);
    }

    fn accept_id(&mut self, id: u64, now: Instant) -> bool {
        if self.role == Role::Controller {
            self.fail(SessionEnd::Protocol("an agent sent a request".into()), now);
        } else if id <= self.last_id {
            let last = self.last_id;
            self.fail(
                SessionEnd::Protocol(format!("request id {id} is not above the previous id {last}")),
                now,
            );
        } else if self.pending.len() >= PENDING_REQUESTS {
            let reason = format!("more than {PENDING_REQUESTS} requests are pending");
            self.fail(SessionEnd::Protocol(reason), now);
        } else {
            self.last_id = id;
            self.pending.insert(id);
        }
        self.end.is_none()
    }
}

#[cfg(test)]
mod tests;
