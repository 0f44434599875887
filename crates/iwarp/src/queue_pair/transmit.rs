//! Transmit scheduling: requests of the send queue in order, alternating with
//! the responses to the peer's Reads and atomics.

use super::batch::{Batch, NO_REQUEST, Withdrawn};
use super::machine::Machine;
use super::message::{Kind, Message, Source, Spans};
use super::send_queue::Awaited;
use super::teardown::protection;
use super::{Failure, State};
use crate::ddp::Header;
use crate::memory::{Access, AccessError, Invalidator, MemoryTable, Span};
use crate::mpa::Rtr;
use crate::rdmap::{AtomicOperation, AtomicRequest, AtomicResponse, Opcode, ReadRequest, queue};
use crate::stag::{DomainId, Stag};
use crate::work::{Data, Operation, Remote, Segment, Status};

/// A Read or atomic request of the peer without a response yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum PeerRequest {
    Read { msn: u32, request: ReadRequest },
    Atomic { msn: u32, request: AtomicRequest },
}

/// Result of selecting the next message.
#[derive(PartialEq, Eq)]
pub(super) enum Next {
    /// A message was made current.
    Message,
    /// An operation without a message was processed.
    Done,
    Nothing,
}

impl Machine {
    /// Returns the current batch; builds the next one if the last was sent.
    pub fn outgoing(&mut self) -> &Batch {
        if self.batch.is_empty() {
            self.fill();
        }
        &self.batch
    }

    /// Accounts for sent bytes of the batch. Sends and Writes whose last byte
    /// was sent are complete.
    pub fn sent(&mut self, bytes: usize) {
        self.batch.sent(bytes);
        while let Some(serial) = self.batch.next_sent() {
            self.queue.mark_sent(serial);
        }
        self.queue.retire(self.id, &mut self.completions);
        if self.batch.is_empty() {
            self.batch.clear();
            self.all_sent();
        }
    }

    fn fill(&mut self) {
        if matches!(self.state, State::Idle | State::Error) {
            return;
        }
        // A responder sends nothing before the initiator's first FPDU was
        // received (RFC 5044, section 7.1.2).
        if self.first_missing && self.state != State::Terminate {
            return;
        }
        if let Some(rtr) = self.ready_to_receive.take() {
            self.send_ready(rtr);
        }
        while !self.batch.is_full(self.checked) && self.state != State::Terminate {
            if self.current.is_none() && !self.next_message() || !self.is_still_readable() {
                break;
            }
            if let Some(message) = &mut self.current {
                match message.segment(self.mulpdu, &mut self.framer, &mut self.batch) {
                    Ok(true) => self.current = self.following.take().map(|following| *following),
                    Ok(false) => {}
                    Err(error) => self.read_failed(error),
                }
            }
        }
        if self.state == State::Terminate {
            self.send_terminate();
        }
        self.batch.close_bytes();
        if self.batch.is_empty() {
            self.batch.rest();
        }
        self.queue.retire(self.id, &mut self.completions);
    }

    /// Requests and responses alternate, a message each, so that neither
    /// starves. Messages are not interleaved (RFC 5041, section 5.3: in the
    /// order in which they were handed down).
    fn next_message(&mut self) -> bool {
        self.responses_first = !self.responses_first;
        for respond in [self.responses_first, !self.responses_first] {
            loop {
                match if respond { self.next_response() } else { self.next_request() } {
                    Next::Message => return true,
                    Next::Done => {}
                    Next::Nothing => break,
                }
            }
            if self.state == State::Terminate {
                return false;
            }
        }
        false
    }

    /// Sends the initiator's ready-to-receive message of a peer-to-peer setup:
    /// zero length (RFC 6581, section 9.2).
    fn send_ready(&mut self, rtr: Rtr) {
        // A zero-length Write needs no valid STag; Linux' siw uses this one.
        const ANY: Stag = Stag(1);
        let mut message = match rtr {
            Rtr::Write => Message::of_bytes(
                Kind::Tagged { opcode: Opcode::Write, stag: ANY, address: 0 },
                &[],
                NO_REQUEST,
            ),
            Rtr::Send => {
                let msn = next(&mut self.send_msn);
                Message::of_bytes(untagged(Opcode::Send, queue::SEND, msn), &[], NO_REQUEST)
            }
            Rtr::Read => {
                self.awaited.push_back(Awaited::Ready);
                let request =
                    ReadRequest { sink: ANY, sink_offset: 0, length: 0, source: ANY, source_offset: 0 };
                let msn = next(&mut self.request_msn);
                Message::of_bytes(
                    untagged(Opcode::ReadRequest, queue::REQUEST, msn),
                    &request.encode(),
                    NO_REQUEST,
                )
            }
        };
        // Inline bytes cannot be withdrawn.
        let _built = message.segment(self.mulpdu, &mut self.framer, &mut self.batch);
    }

    fn next_request(&mut self) -> Next {
        let Some((serial, entry)) = self.queue.waiting() else { return Next::Nothing };
        if entry.request.fence && !self.awaited.is_empty() {
            return Next::Nothing;
        }
        let has_response = super::send_queue::expects_response(&entry.request.operation);
        if has_response && self.awaited.len() >= self.ord {
            return Next::Nothing;
        }
        entry.progress = super::send_queue::Progress::Sending;
        let begun = match &mut entry.request.operation {
            Operation::Send { data, solicited, invalidate } => {
                let opcode = match (*solicited, *invalidate) {
                    (false, None) => Opcode::Send,
                    (false, Some(_)) => Opcode::SendInvalidate,
                    (true, None) => Opcode::SendSolicited,
                    (true, Some(_)) => Opcode::SendSolicitedInvalidate,
                };
                let kind = Kind::Untagged {
                    opcode,
                    queue: queue::SEND,
                    msn: self.send_msn,
                    invalidate: invalidate.unwrap_or_default(),
                };
                gathered(&self.memory, self.domain, data).map(|(source, length)| {
                    next(&mut self.send_msn);
                    Message::new(kind, source, length, serial)
                })
            }
            Operation::Write { data, remote } => {
                let kind = Kind::Tagged { opcode: Opcode::Write, stag: remote.stag, address: remote.address };
                gathered(&self.memory, self.domain, data)
                    .map(|(source, length)| Message::new(kind, source, length, serial))
            }
            Operation::Immediate { data, solicited } => {
                let opcode = if *solicited { Opcode::ImmediateSolicited } else { Opcode::Immediate };
                let msn = next(&mut self.send_msn);
                Ok(Message::of_bytes(untagged(opcode, queue::SEND, msn), data, serial))
            }
            Operation::SendImmediate { .. } | Operation::WriteImmediate { .. } => {
                return self.next_with_immediate(serial);
            }
            Operation::LocalInvalidate { .. } | Operation::BindWindow { .. } => {
                return self.local_operation(serial);
            }
            Operation::Read { sink, remote, invalidate } => {
                let (sink, remote, invalidate) = (*sink, *remote, *invalidate);
                self.begin_read(serial, sink, remote, invalidate)
            }
            Operation::FetchAdd { sink, remote, add, mask } => {
                let operation = AtomicOperation::FetchAdd { add: *add, mask: *mask };
                let (sink, remote) = (*sink, *remote);
                self.begin_atomic(serial, sink, remote, operation)
            }
            Operation::CompareSwap { sink, remote, compare, compare_mask, swap, swap_mask } => {
                let operation = AtomicOperation::CompareSwap {
                    swap: *swap,
                    swap_mask: *swap_mask,
                    compare: *compare,
                    compare_mask: *compare_mask,
                };
                let (sink, remote) = (*sink, *remote);
                self.begin_atomic(serial, sink, remote, operation)
            }
        };
        match begun {
            Ok(message) => {
                let bytes = if has_response { self.response_length(serial) } else { message.length };
                self.current = Some(message);
                self.queue.length(serial, bytes);
                self.queue.begun();
                Next::Message
            }
            Err(_) => self.local_failure(serial, Status::LocalProtection),
        }
    }

    /// Processes an operation without a message: in order, after everything
    /// before it was handed to the socket.
    fn local_operation(&mut self, serial: u64) -> Next {
        let Some((_, entry)) = self.queue.waiting() else { return Next::Nothing };
        let failed = match &entry.request.operation {
            Operation::LocalInvalidate { stag } => {
                let done = self.memory.invalidate(self.domain, self.id, *stag, Invalidator::Local);
                done.is_err().then_some(Status::LocalOperation)
            }
            Operation::BindWindow { window, memory, access } => {
                let bound = self.memory.bind_window(self.id, self.domain, *window, *memory, *access);
                bound.is_err().then_some(Status::WindowBind)
            }
            _ => None,
        };
        if let Some(status) = failed {
            return self.local_failure(serial, status);
        }
        self.queue.begun();
        self.queue.done(serial, Status::Success);
        Next::Done
    }

    /// Handles a local error, which ends the stream; the Terminate reports that
    /// the peer did not cause it (RFC 5040, section 7.2).
    pub(super) fn local_failure(&mut self, serial: u64, status: Status) -> Next {
        self.queue.begun();
        self.queue.done(serial, status);
        self.terminate_locally();
        Next::Nothing
    }

    fn begin_read(
        &mut self,
        serial: u64,
        sink: Segment,
        remote: Remote,
        invalidate: bool,
    ) -> Result<Message, AccessError> {
        // A zero-length Read accesses no memory (RFC 5040, section 5.2).
        let span = match sink.length {
            0 => None,
            _ => Some(self.memory.local(self.domain, sink, true)?),
        };
        let request = ReadRequest {
            sink: sink.stag,
            sink_offset: sink.address,
            length: sink.length,
            source: remote.stag,
            source_offset: remote.address,
        };
        let msn = next(&mut self.request_msn);
        self.awaited.push_back(Awaited::Read { serial, sink, span, received: 0, invalidate });
        let kind = untagged(Opcode::ReadRequest, queue::REQUEST, msn);
        Ok(Message::of_bytes(kind, &request.encode(), serial))
    }

    fn begin_atomic(
        &mut self,
        serial: u64,
        sink: Segment,
        remote: Remote,
        operation: AtomicOperation,
    ) -> Result<Message, AccessError> {
        let span = self.memory.local(self.domain, sink, true)?;
        let msn = next(&mut self.request_msn);
        let request = AtomicRequest { operation, request: msn, stag: remote.stag, offset: remote.address };
        self.awaited.push_back(Awaited::Atomic { serial, identifier: msn, span });
        let kind = untagged(Opcode::AtomicRequest, queue::REQUEST, msn);
        Ok(Message::of_bytes(kind, &request.encode(), serial))
    }

    /// Returns the length of the response to the request that was just started.
    fn response_length(&self, serial: u64) -> u32 {
        match self.awaited.back() {
            Some(Awaited::Read { serial: of, sink, .. }) if *of == serial => sink.length,
            _ => 8,
        }
    }

    /// Starts the next response, in the order of the requests (RFC 5040,
    /// section 5.5).
    fn next_response(&mut self) -> Next {
        let Some(peer_request) = self.peer_requests.pop_front() else { return Next::Nothing };
        match peer_request {
            PeerRequest::Read { request, .. } => match self.source_of(&request, 0) {
                Ok(source) => {
                    let kind = Kind::Tagged {
                        opcode: Opcode::ReadResponse,
                        stag: request.sink,
                        address: request.sink_offset,
                    };
                    self.responding = Some(peer_request);
                    self.current = Some(Message::new(kind, source, request.length, NO_REQUEST));
                    Next::Message
                }
                Err(error) => self.reject(peer_request, error, 0),
            },
            PeerRequest::Atomic { request, .. } => match self.execute(&request) {
                Ok(original) => {
                    let response = AtomicResponse { request: request.request, original };
                    let msn = next(&mut self.response_msn);
                    let kind = untagged(Opcode::AtomicResponse, queue::ATOMIC_RESPONSE, msn);
                    self.current = Some(Message::of_bytes(kind, &response.encode(), NO_REQUEST));
                    Next::Message
                }
                Err(error) => self.reject(peer_request, error, 0),
            },
        }
    }

    /// Looks up the source of a Read, from an offset on.
    pub(super) fn source_of(&self, request: &ReadRequest, done: u32) -> Result<Source, AccessError> {
        if request.length == done {
            return Ok(Source::Bytes(crate::work::InlineData::new()));
        }
        let address = request.source_offset.wrapping_add(u64::from(done));
        let length = request.length - done;
        self.memory
            .remote(self.domain, self.id, request.source, address, length, Access::REMOTE_READ)
            .map(|span| Source::memory(std::iter::once(span).collect()))
    }

    fn execute(&self, request: &AtomicRequest) -> Result<u64, AccessError> {
        let span: Span = self.memory.remote(
            self.domain,
            self.id,
            request.stag,
            request.offset,
            8,
            Access::REMOTE_ATOMIC,
        )?;
        match request.operation {
            AtomicOperation::FetchAdd { add, mask } => span.fetch_add(add, mask),
            AtomicOperation::CompareSwap { swap, swap_mask, compare, compare_mask } => {
                span.compare_swap(compare, compare_mask, swap, swap_mask)
            }
        }
    }

    /// Repeats the lookup of a long response's STag for each batch: memory
    /// deregistered meanwhile is not sent.
    fn is_still_readable(&mut self) -> bool {
        let (Some(message), Some(PeerRequest::Read { request, .. })) = (&self.current, self.responding)
        else {
            return true;
        };
        if !self.batch.is_empty() || message.done == 0 || message.serial != NO_REQUEST {
            return true;
        }
        match self.source_of(&request, message.done) {
            Ok(source) => {
                if let Some(message) = &mut self.current {
                    message.source = source;
                }
                true
            }
            Err(error) => {
                self.read_failed(error);
                false
            }
        }
    }

    /// Handles the loss of access to the current message's memory, whole or in
    /// part.
    fn read_failed(&mut self, error: AccessError) {
        let Some(message) = self.current.take() else { return };
        if message.serial == NO_REQUEST {
            if let Some(peer_request) = self.responding.take() {
                self.reject(peer_request, error, message.done);
            }
        } else {
            self.queue.done(message.serial, Status::LocalProtection);
            self.terminate_locally();
        }
    }

    /// Handles a socket error caused by withdrawn memory: FPDUs before it are
    /// still sent, then the Terminate.
    pub fn send_failed(&mut self) {
        let Some(Withdrawn { serial, partly_sent }) = self.batch.withdraw() else {
            // It is registered, and is not at its address any more.
            if !self.batch.take_held() {
                self.fail(Failure::MemoryWithdrawn);
            }
            return;
        };
        if serial != NO_REQUEST {
            self.queue.done(serial, Status::LocalProtection);
        }
        if partly_sent {
            self.fail(Failure::MemoryWithdrawn);
        } else if serial == NO_REQUEST {
            // A response to one of several Reads, so none is quoted.
            self.terminate_stream(protection(AccessError::InvalidStag));
        } else {
            self.terminate_locally();
        }
        self.queue.retire(self.id, &mut self.completions);
    }

    /// Rejects a request of the peer: the stream ends, and the Terminate quotes
    /// the request; of a Read with `done` bytes sent, the remainder (RFC 5040,
    /// section 4.8).
    fn reject(&mut self, peer_request: PeerRequest, error: AccessError, done: u32) -> Next {
        let (opcode, msn, body) = match &peer_request {
            PeerRequest::Read { msn, request } => {
                (Opcode::ReadRequest, *msn, &request.behind(done).encode()[..])
            }
            PeerRequest::Atomic { msn, request } => (Opcode::AtomicRequest, *msn, &request.encode()[..]),
        };
        let header = Header::Untagged {
            last: true,
            queue: queue::REQUEST,
            msn,
            offset: 0,
            ulp: opcode.control(),
            ulp_reserved: 0,
        };
        self.terminate_request(protection(error), &header, body);
        Next::Nothing
    }
}

/// Looks up the data of a request; returns the source and its length.
pub(super) fn gathered(
    memory: &MemoryTable,
    domain: DomainId,
    data: &mut Data,
) -> Result<(Source, u32), AccessError> {
    match data {
        Data::Inline(bytes) => {
            let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            Ok((Source::Bytes(std::mem::take(bytes)), length))
        }
        Data::Gather(segments) => {
            let mut spans = Spans::new();
            let mut length = 0;
            for segment in segments.iter().filter(|segment| segment.length > 0) {
                spans.push(memory.local(domain, *segment, false)?);
                length += segment.length;
            }
            Ok((Source::memory(spans), length))
        }
    }
}

pub(super) fn untagged(opcode: Opcode, queue: u32, msn: u32) -> Kind {
    Kind::Untagged { opcode, queue, msn, invalidate: Stag::default() }
}

/// Returns the next sequence number of a queue (RFC 5041, section 4.3: starts
/// at one, wraps from 2^32 - 1 to zero).
pub(super) fn next(msn: &mut u32) -> u32 {
    let this = *msn;
    *msn = msn.wrapping_add(1);
    this
}
