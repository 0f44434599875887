//! The send queue: requests in the order in which they were posted, which is
//! the order in which they complete.

use std::collections::VecDeque;

use super::{PostError, Side};
use crate::memory::Span;
use crate::stag::QueuePairId;
use crate::work::{Completion, Operation, Segment, SendRequest, Status};

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Not begun.
    Waiting,
    /// Its message is being sent.
    Sending,
    /// Its message was sent; the peer's answer is missing.
    Answer,
    /// Waits for the requests before it to complete.
    Done(Status),
}

/// A request and how far it is.
#[derive(Debug)]
pub(super) struct Entry {
    pub request: SendRequest,
    pub progress: Progress,
    pub bytes: u32,
}

/// Requests, oldest first. Each has a serial number: how many were posted
/// before it.
#[derive(Debug)]
pub(super) struct SendQueue {
    entries: VecDeque<Entry>,
    capacity: usize,
    /// Serial number of the oldest request.
    oldest: u64,
    /// Serial number of the first request that was not begun.
    next: u64,
}

/// An answer that the peer owes, in the order in which the requests were
/// sent (RFC 5040, section 5.5: responses come in the order of the requests;
/// RFC 7306, section 5: atomic responses among them).
#[derive(Debug)]
pub(super) enum Awaited {
    /// The response to the zero-length Read that made the peer ready.
    Ready,
    /// A Read Response.
    Read {
        serial: u64,
        /// Where it goes; a Read of no bytes needs no memory.
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

    /// The first request that was not begun, and its serial number.
    pub(super) fn waiting(&mut self) -> Option<(u64, &mut Entry)> {
        let index = usize::try_from(self.next - self.oldest).ok()?;
        self.entries.get_mut(index).map(|entry| (self.next, entry))
    }

    /// The request that [`SendQueue::waiting`] gave is begun.
    pub(super) fn begun(&mut self) {
        self.next += 1;
    }

    /// Requests not begun yet, oldest first.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().skip(usize::try_from(self.next - self.oldest).unwrap_or(usize::MAX))
    }

    /// The last byte of a request's message was handed to the socket.
    pub(super) fn gone(&mut self, serial: u64) {
        if let Some(entry) = self.entry(serial)
            && entry.progress == Progress::Sending
        {
            // A Send or Write completes when its memory is free again; the
            // peer's part is TCP's promise (RFC 5040, section 5.5).
            entry.progress = if answered(&entry.request.operation) {
                Progress::Answer
            } else {
                Progress::Done(Status::Success)
            };
        }
    }

    /// How many bytes a request moves.
    pub(super) fn length(&mut self, serial: u64, bytes: u32) {
        if let Some(entry) = self.entry(serial) {
            entry.bytes = bytes;
        }
    }

    /// A request ended.
    pub(super) fn done(&mut self, serial: u64, status: Status) {
        if let Some(entry) = self.entry(serial) {
            entry.progress = Progress::Done(status);
        }
    }

    /// Takes off the completed requests at the front. Requests that were not
    /// to be signalled are silent unless they failed.
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

    /// Ends every request that is not done.
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

/// Whether the peer answers.
pub(super) fn answered(operation: &Operation) -> bool {
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
