//! Send queue: requests in posting order, which is also the completion order.

use std::collections::VecDeque;

use super::{PostError, Side};
use crate::memory::Span;
use crate::stag::QueuePairId;
use crate::work::{Completion, Operation, Segment, SendRequest, Status};

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not started.
    Waiting,
    /// Its message is being sent.
    Sending,
    /// Its message was sent; waiting for the peer's response.
    AwaitingResponse,
    /// Finished; waiting for earlier requests to complete.
    Done(Status),
}

/// A request and its progress.
#[derive(Debug)]
pub(super) struct Entry {
    pub request: SendRequest,
    pub progress: Progress,
    pub bytes: u32,
}

/// Requests, oldest first. The serial of a request is the number of requests
/// posted before it.
#[derive(Debug)]
pub(super) struct SendQueue {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// Serial of the oldest request.
    oldest: u64,
    /// Serial of the first request not started.
    next: u64,
}

/// Response expected from the peer, in the order in which the requests were
/// sent (RFC 5040, section 5.5: responses come in the order of the requests;
/// RFC 7306, section 5: atomic responses among them).
#[derive(Debug)]
pub(super) enum Awaited {
    /// Response to a zero-length Read used as ready-to-receive message.
    Ready,
    /// A Read Response.
    Read {
        serial: u64,
        /// Destination; a zero-length Read needs no memory.
        sink: Segment,
        span: Option<Span>,
        received: u32,
        invalidate: bool,
    },
    /// An atomic response.
    Atomic { serial: u64, identifier: u32, span: Span },
}

impl SendQueue {
    pub(super) fn new(capacity: usize) -> Self {
        Self { entries: VecDeque::new(), capacity, oldest: 0, next: 0 }
    }

    pub(super) fn push(&mut self, request: SendRequest) -> Result<(), PostError> {
        if self.entries.len() >= self.capacity {
            return Err(PostError::Full);
        }
        self.entries.push_back(Entry { request, progress: Progress::Waiting, bytes: 0 });
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the first request not started, and its serial.
    pub(super) fn waiting(&mut self) -> Option<(u64, &mut Entry)> {
        let index = usize::try_from(self.next - self.oldest).ok()?;
        self.entries.get_mut(index).map(|entry| (self.next, entry))
    }

    /// Marks the request returned by [`SendQueue::waiting`] as started.
    pub(super) fn begun(&mut self) {
        self.next += 1;
    }

    /// Iterates over requests not started, oldest first.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip(usize::try_from(self.next - self.oldest).unwrap_or(usize::MAX))
    }

    /// Marks a request whose last byte was handed to the socket.
    pub(super) fn mark_sent(&mut self, serial: u64) {
        if let Some(entry) = self.entry(serial)
            && entry.progress == Progress::Sending
        {
            // A Send or Write completes when its memory is reusable; delivery
            // is left to TCP (RFC 5040, section 5.5).
            entry.progress = if expects_response(&entry.request.operation) {
                Progress::AwaitingResponse
            } else {
                Progress::Done(Status::Success)
            };
        }
    }

    /// Sets the number of bytes that a request transfers.
    pub(super) fn length(&mut self, serial: u64, bytes: u32) {
        if let Some(entry) = self.entry(serial) {
            entry.bytes = bytes;
        }
    }

    /// Marks a request as finished.
    pub(super) fn done(&mut self, serial: u64, status: Status) {
        if let Some(entry) = self.entry(serial) {
            entry.progress = Progress::Done(status);
        }
    }

    /// Retires finished requests at the front. Unsignaled requests generate a
    /// completion only on error.
    pub(super) fn retire(&mut self, id: QueuePairId, into: &mut VecDeque<(Side, Completion)>) {
        while let Some(Entry { progress: Progress::Done(status), .. }) = self.entries.front() {
            let status = *status;
            if let Some(entry) = self.entries.pop_front() {
                self.oldest += 1;
                if entry.request.signaled || status != Status::Success {
                    into.push_back((Side::Send, completion(id, &entry, status)));
                }
            }
        }
        self.next = self.next.max(self.oldest);
    }

    /// Flushes every request that is not finished.
    pub(super) fn flush(&mut self, id: QueuePairId, into: &mut VecDeque<(Side, Completion)>) {
        for entry in &mut self.entries {
            if !matches!(entry.progress, Progress::Done(_)) {
                entry.progress = Progress::Done(Status::Flushed);
            }
        }
        self.retire(id, into);
    }

    fn entry(&mut self, serial: u64) -> Option<&mut Entry> {
        let index = usize::try_from(serial.checked_sub(self.oldest)?).ok()?;
        self.entries.get_mut(index)
    }
}

/// Whether the operation has a response of the peer.
pub(super) fn expects_response(operation: &Operation) -> bool {
    matches!(operation, Operation::Read { .. } | Operation::FetchAdd { .. } | Operation::CompareSwap { .. })
}

fn completion(id: QueuePairId, entry: &Entry, status: Status) -> Completion {
    Completion {
        id: entry.request.id,
        queue_pair: id,
        completed: entry.request.operation.completed(),
        status,
        bytes: if status == Status::Success { entry.bytes } else { 0 },
        immediate: None,
        invalidated: None,
        solicited: false,
    }
}
