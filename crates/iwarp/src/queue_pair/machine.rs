//! The protocol state machine: its state and public interface.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Batch;
use super::extend::Excess;
use super::message::{Message, Spans};
use super::place::{Receiving, Unsettled};
use super::receive::Fpdu;
use super::receives::Receives;
use super::send_queue::{Awaited, SendQueue};
use super::transmit::PeerRequest;
use super::{Event, Limits, PostError, Side, State};
use crate::memory::{MemoryTable, Placements};
use crate::mpa::{Deframer, Framer, Negotiated, Rtr};
use crate::rdmap::Terminate;
use crate::stag::{DomainId, QueuePairId};
use crate::work::{Completion, ReceiveRequest, SendRequest};

/// The smallest MULPDU that holds every header with its body; MPA guarantees
/// 128 (RFC 5044, section 4.5).
const SMALLEST_MULPDU: usize = 128;

/// Protocol state machine of one established connection.
///
/// The driver sends what [`Machine::outgoing`] returns and reports it by
/// [`Machine::sent`]; passes received bytes to [`Machine::consume`], or
/// receives them directly into the spans of [`Machine::straight`]; and takes
/// completions and events. When [`Machine::wants_close`] returns true it shuts
/// the socket down for writing, continues reading to the end of the stream (or
/// until a timeout), and closes: closing a socket with unread bytes resets the
/// connection, and the peer may lose the Terminate.
#[derive(Debug)]
pub struct Machine {
    pub(super) id: QueuePairId,
    pub(super) domain: DomainId,
    pub(super) memory: Arc<MemoryTable>,
    pub(super) limits: Limits,
    pub(super) state: State,
    /// Whether CRCs are enabled.
    pub(super) checked: bool,
    /// Whether immediate data belongs to Sends and Writes.
    pub(super) immediate_data: bool,

    // Sending.
    pub(super) mulpdu: usize,
    pub(super) framer: Framer,
    pub(super) batch: Batch,
    pub(super) queue: SendQueue,
    /// Maximum number of own outstanding Reads and atomics.
    pub(super) ord: usize,
    pub(super) awaited: VecDeque<Awaited>,
    /// Message that did not fit into the last batch.
    pub(super) current: Option<Message>,
    /// The other message of the same request.
    pub(super) following: Option<Box<Message>>,
    /// Read whose response was started last.
    pub(super) responding: Option<PeerRequest>,
    pub(super) responses_first: bool,
    /// Ready-to-receive message that is still to be sent by the initiator.
    pub(super) ready_to_receive: Option<Rtr>,
    pub(super) terminate: Option<Terminate>,
    pub(super) terminate_built: bool,
    /// Next outgoing sequence numbers: Sends, requests, atomic responses.
    pub(super) send_msn: u32,
    pub(super) request_msn: u32,
    pub(super) response_msn: u32,

    // Receiving.
    pub(super) deframer: Deframer,
    pub(super) fpdu: Fpdu,
    pub(super) receives: Receives,
    pub(super) receiving: Option<Receiving>,
    /// What arrived for a full receive, or without one.
    pub(super) excess: Excess,
    /// Spans lent to the socket for payload.
    pub(super) lent: Spans,
    /// Payload of the current message, and of those that ended in this call, that is not in its memory yet.
    pub(super) placements: Placements,
    /// A message ended in this call: its payload must be in its memory before anybody hears of it.
    pub(super) message_ended: bool,
    /// What ended in this call and is not in its memory yet.
    pub(super) unsettled: Unsettled,
    /// Whether a responder still waits for the initiator's first FPDU.
    pub(super) first_missing: bool,
    /// Required type of that FPDU.
    pub(super) expected_rtr: Option<Rtr>,
    /// Maximum number of the peer's outstanding Reads and atomics.
    pub(super) ird: usize,
    pub(super) peer_requests: VecDeque<PeerRequest>,
    /// Whether the last segment of the peer's current Write is missing.
    pub(super) writing: bool,
    /// Bytes of the peer's last Write.
    pub(super) written: u32,
    pub(super) peer_closed: bool,
    /// Next expected incoming sequence numbers.
    pub(super) peer_send_msn: u32,
    pub(super) peer_request_msn: u32,
    pub(super) peer_response_msn: u32,

    pub(super) completions: VecDeque<(Side, Completion)>,
    pub(super) events: VecDeque<Event>,
}

impl Machine {
    /// Creates the state machine of a connection after the setup: the next byte
    /// in each direction is of an FPDU. `mulpdu` is the maximum length of a
    /// ULPDU ([`crate::mpa::mulpdu`]).
    #[must_use]
    pub fn new(
        id: QueuePairId,
        domain: DomainId,
        memory: Arc<MemoryTable>,
        negotiated: &Negotiated,
        mulpdu: usize,
        limits: Limits,
        receives: Receives,
    ) -> Self {
        let rtr = |initiator: bool| negotiated.rtr.filter(|_| negotiated.initiator == initiator);
        Self {
            id,
            domain,
            memory,
            limits,
            state: State::Rts,
            checked: negotiated.crc,
            immediate_data: negotiated.immediate_data,
            mulpdu: mulpdu.clamp(SMALLEST_MULPDU, usize::from(u16::MAX)),
            framer: Framer::new(negotiated),
            batch: Batch::default(),
            queue: SendQueue::new(limits.send_queue),
            ord: usize::from(negotiated.ord),
            awaited: VecDeque::new(),
            current: None,
            following: None,
            responding: None,
            responses_first: false,
            ready_to_receive: rtr(true),
            terminate: None,
            terminate_built: false,
            send_msn: 1,
            request_msn: 1,
            response_msn: 1,
            deframer: Deframer::new(negotiated),
            fpdu: Fpdu::default(),
            receives,
            receiving: None,
            excess: Excess::default(),
            lent: Spans::new(),
            placements: Placements::default(),
            message_ended: false,
            unsettled: Unsettled::default(),
            first_missing: !negotiated.initiator,
            expected_rtr: rtr(false),
            ird: usize::from(negotiated.ird),
            peer_requests: VecDeque::new(),
            writing: false,
            written: 0,
            peer_closed: false,
            peer_send_msn: 1,
            peer_request_msn: 1,
            peer_response_msn: 1,
            completions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Adapts to a segment size of `mss` bytes: FPDUs may grow with the TCP
    /// segments (RFC 5044, section 5.1). They do not shrink: a receiver accepts
    /// FPDUs of any length, and alignment affects performance only.
    pub fn grow(&mut self, mss: usize) {
        let mulpdu = crate::mpa::mulpdu(mss, !self.framer.is_plain());
        self.mulpdu = self.mulpdu.max(mulpdu.min(usize::from(u16::MAX)));
    }

    /// Allows a responder to send before the initiator's first FPDU, for
    /// applications in which the responder sends first.
    pub fn send_first(&mut self) {
        if std::mem::replace(&mut self.first_missing, false) {
            self.events.push_back(Event::Established);
        }
    }

    /// Whether sends of a responder wait for the initiator's first FPDU, which no ready-to-receive message of the setup
    /// will be.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.first_missing && self.expected_rtr.is_none() && self.outstanding() > 0
    }

    /// Posts a request to the send queue. Its memory is validated when it is
    /// processed.
    ///
    /// # Errors
    /// The queue pair is not ready to send, the queue is full, or
    /// [`Limits::check`] rejects the request.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.state != State::Rts || self.peer_closed {
            return Err(PostError::NotConnected);
        }
        let ord = u16::try_from(self.ord).unwrap_or(u16::MAX);
        self.limits.check(&request, ord, self.immediate_data)?;
        self.queue.push(request)
    }

    /// Posts a request to the queue pair's own receive queue.
    ///
    /// # Errors
    /// The connection has ended, the queue is full, the request has too many
    /// segments, or the queue pair uses a shared receive queue.
    pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        if matches!(self.state, State::Idle | State::Error) {
            return Err(PostError::NotConnected);
        }
        self.receives.post(request)?;
        self.resume();
        Ok(())
    }

    /// Drains the completions, oldest first.
    pub fn completions(&mut self) -> impl Iterator<Item = (Side, Completion)> + '_ {
        self.completions.drain(..)
    }

    /// Drains the events, oldest first.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// Returns the state of the queue pair.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the number of requests that occupy the send queue.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.queue.len()
    }
}
