//! The face of the protocol machine, and everything it remembers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Batch;
use super::message::{Message, Spans};
use super::place::Receiving;
use super::receive::Fpdu;
use super::receives::Receives;
use super::send_queue::{Awaited, SendQueue};
use super::transmit::Asked;
use super::{Event, Limits, PostError, Side, State};
use crate::memory::MemoryTable;
use crate::mpa::{Agreed, Deframer, Framer, Rtr};
use crate::rdmap::Terminate;
use crate::stag::{DomainId, QueuePairId};
use crate::work::{Completion, ReceiveRequest, SendRequest};

/// The smallest MULPDU that holds every header with its body; MPA promises 128
/// (RFC 5044, section 4.5).
const SMALLEST_MULPDU: usize = 128;

/// The protocol of one established connection.
///
/// Whoever drives it sends what [`Machine::outgoing`] lends and tells
/// [`Machine::sent`]; hands what came to [`Machine::consume`], or receives it
/// right where [`Machine::straight`] says; and takes completions and events
/// away. When [`Machine::wants_close`] says so it shuts the socket down for
/// writing, goes on reading to the end of the stream (or gives up after a
/// while), and closes: a socket that is closed with bytes unread resets the
/// connection, and the peer may lose the Terminate.
#[derive(Debug)]
pub struct Machine {
    pub(super) id: QueuePairId,
    pub(super) domain: DomainId,
    pub(super) memory: Arc<MemoryTable>,
    pub(super) limits: Limits,
    pub(super) state: State,
    /// CRCs are in use.
    pub(super) checked: bool,

    // Sending.
    pub(super) mulpdu: usize,
    pub(super) framer: Framer,
    pub(super) batch: Batch,
    pub(super) queue: SendQueue,
    /// Reads and atomics that may be outstanding.
    pub(super) ord: usize,
    pub(super) awaited: VecDeque<Awaited>,
    /// The message that did not fit the last batch.
    pub(super) current: Option<Message>,
    /// The Read whose response was begun last.
    pub(super) answering: Option<Asked>,
    pub(super) answers_first: bool,
    /// The initiator's first message is still to be sent.
    pub(super) ready_to_receive: Option<Rtr>,
    pub(super) terminate: Option<Terminate>,
    pub(super) terminate_built: bool,
    /// Numbers of the next messages that go out: Sends, requests, atomic
    /// responses.
    pub(super) send_msn: u32,
    pub(super) request_msn: u32,
    pub(super) response_msn: u32,

    // Receiving.
    pub(super) deframer: Deframer,
    pub(super) fpdu: Fpdu,
    pub(super) receives: Receives,
    pub(super) receiving: Option<Receiving>,
    /// Where the socket was told to put payload.
    pub(super) lent: Spans,
    /// A responder has not seen the initiator's first FPDU yet.
    pub(super) first_missing: bool,
    /// The message that FPDU must be.
    pub(super) expected_rtr: Option<Rtr>,
    /// Reads and atomics of the peer's that are served at once.
    pub(super) ird: usize,
    pub(super) asked: VecDeque<Asked>,
    /// The last segment of the peer's Write under way is missing.
    pub(super) writing: bool,
    pub(super) peer_closed: bool,
    /// Numbers of the next messages that come in.
    pub(super) peer_send_msn: u32,
    pub(super) peer_request_msn: u32,
    pub(super) peer_response_msn: u32,

    pub(super) completions: VecDeque<(Side, Completion)>,
    pub(super) events: VecDeque<Event>,
}

impl Machine {
    /// A connection whose set-up frames are exchanged: the next byte each way
    /// is of an FPDU. `mulpdu` is the most a ULPDU may have
    /// ([`crate::mpa::mulpdu`]).
    #[must_use]
    pub fn new(
        id: QueuePairId,
        domain: DomainId,
        memory: Arc<MemoryTable>,
        agreed: &Agreed,
        mulpdu: usize,
        limits: Limits,
        receives: Receives,
    ) -> Self {
        let rtr = |wanted: bool| agreed.rtr.filter(|_| agreed.initiator == wanted);
        Self {
            id,
            domain,
            memory,
            limits,
            state: State::Rts,
            checked: agreed.crc,
            mulpdu: mulpdu.clamp(SMALLEST_MULPDU, usize::from(u16::MAX)),
            framer: Framer::new(agreed),
            batch: Batch::default(),
            queue: SendQueue::new(limits.send_queue),
            ord: usize::from(agreed.ord),
            awaited: VecDeque::new(),
            current: None,
            answering: None,
            answers_first: false,
            ready_to_receive: rtr(true),
            terminate: None,
            terminate_built: false,
            send_msn: 1,
            request_msn: 1,
            response_msn: 1,
            deframer: Deframer::new(agreed),
            fpdu: Fpdu::default(),
            receives,
            receiving: None,
            lent: Spans::new(),
            first_missing: !agreed.initiator,
            expected_rtr: rtr(false),
            ird: usize::from(agreed.ird),
            asked: VecDeque::new(),
            writing: false,
            peer_closed: false,
            peer_send_msn: 1,
            peer_request_msn: 1,
            peer_response_msn: 1,
            completions: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The TCP segments of the connection hold `mss` bytes now: FPDUs may grow
    /// with them (RFC 5044, section 5.1). They do not shrink: a receiver takes
    /// FPDUs of any length, and their alignment is a matter of speed.
    pub fn grow(&mut self, mss: usize) {
        let mulpdu = crate::mpa::mulpdu(mss, !self.framer.is_plain());
        self.mulpdu = self.mulpdu.max(mulpdu.min(usize::from(u16::MAX)));
    }

    /// A responder that does not wait for the initiator's first FPDU: the
    /// consumer's exchange has it begin.
    pub fn speak_first(&mut self) {
        if std::mem::replace(&mut self.first_missing, false) {
            self.events.push_back(Event::Established);
        }
    }

    /// Takes a request for the send queue. Its memory is looked at when its
    /// turn comes.
    ///
    /// # Errors
    /// The queue pair is not ready to send, the queue is full, or
    /// [`Limits::check`] refuses the request.
    pub fn post_send(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.state != State::Rts || self.peer_closed {
            return Err(PostError::NotConnected);
        }
        self.limits.check(&request, u16::try_from(self.ord).unwrap_or(u16::MAX))?;
        self.queue.push(request)
    }

    /// Takes a request for the queue pair's own receive queue.
    ///
    /// # Errors
    /// The connection is over, the queue is full, the request has too many
    /// segments, or the receives are shared.
    pub fn post_receive(&mut self, request: ReceiveRequest) -> Result<(), PostError> {
        if matches!(self.state, State::Idle | State::Error) {
            return Err(PostError::NotConnected);
        }
        self.receives.post(request)
    }

    /// Takes away what completed, oldest first.
    pub fn completions(&mut self) -> impl Iterator<Item = (Side, Completion)> + '_ {
        self.completions.drain(..)
    }

    /// Takes away what happened beside the requests, oldest first.
    pub fn events(&mut self) -> impl Iterator<Item = Event> + '_ {
        self.events.drain(..)
    }

    /// The state of the queue pair.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Requests that take room in the send queue.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.queue.len()
    }
}
