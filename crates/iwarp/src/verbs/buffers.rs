//! Payload of requests, and tracking of buffers in flight.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use smallvec::SmallVec;

use crate::{
    memory::{Buffer, Loan},
    work::{InlineData, Segment, Segments},
};

/// Buffers of one request, in order.
pub type Buffers = SmallVec<[Buffer; 1]>;

pub(super) type Loans = SmallVec<[Loan; 1]>;

/// Payload of a Send or Write.
#[derive(Debug)]
pub enum Source {
    /// Copied when posted.
    Inline(InlineData),
    /// Moved in, gathered in order, and returned with the completion.
    Buffers(Buffers),
    /// Ranges of a [`Region`](super::Region), which remains accessible and may
    /// change while it is sent.
    Region(Segments),
}

/// Destination of a Receive, Read or atomic.
#[derive(Debug)]
pub enum Sink {
    /// Moved in, filled in order, and returned with the completion. A Read or
    /// atomic takes one buffer.
    Buffers(Buffers),
    /// Ranges of a [`Region`](super::Region).
    Region(Segments),
}

impl From<Buffer> for Source {
    fn from(buffer: Buffer) -> Self {
        Self::Buffers(SmallVec::from_buf([buffer]))
    }
}

impl From<Buffers> for Source {
    fn from(buffers: Buffers) -> Self {
        Self::Buffers(buffers)
    }
}

impl From<Segment> for Source {
    fn from(segment: Segment) -> Self {
        Self::Region(SmallVec::from_slice(&[segment]))
    }
}

impl From<&[u8]> for Source {
    fn from(bytes: &[u8]) -> Self {
        Self::Inline(SmallVec::from_slice(bytes))
    }
}

impl From<Buffer> for Sink {
    fn from(buffer: Buffer) -> Self {
        Self::Buffers(SmallVec::from_buf([buffer]))
    }
}

impl From<Buffers> for Sink {
    fn from(buffers: Buffers) -> Self {
        Self::Buffers(buffers)
    }
}

impl From<Segment> for Sink {
    fn from(segment: Segment) -> Self {
        Self::Region(SmallVec::from_slice(&[segment]))
    }
}

/// Lends buffers; returns the loans and their segments in order.
pub(super) fn lend(buffers: Buffers) -> (Loans, Segments) {
    let loans: Loans = buffers.into_iter().map(Buffer::lend).collect();
    let segments = loans.iter().map(Loan::segment).collect();
    (loans, segments)
}

/// Reclaims the loans of a completed request.
pub(super) fn reclaim(loans: Loans, into: &mut Buffers) {
    for mut loan in loans {
        // The driver of the connection releases the memory before the
        // completion; a rejected request was never processed.
        loop {
            match loan.reclaim() {
                Ok(buffer) => break into.push(buffer),
                Err(lent) => loan = lent,
            }
            thread::yield_now();
        }
    }
}

/// Requests in flight on a send queue: completions are in posting order, and
/// cover earlier unsignaled requests.
#[derive(Debug, Default)]
pub(super) struct Sends {
    entries: VecDeque<Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    serial: u64,
    id: u64,
    loans: Loans,
}

impl Sends {
    /// Returns the serial of the next request.
    pub(super) fn serial(&self) -> u64 {
        self.next
    }

    /// Records a posted request.
    pub(super) fn push(&mut self, id: u64, loans: Loans) {
        self.entries.push_back(Entry { serial: self.next, id, loans });
        self.next += 1;
    }

    /// Completes all requests up to `serial`: returns their buffers, and the
    /// consumer's identifier of the last.
    pub(super) fn finish(&mut self, serial: u64, into: &mut Buffers) -> Option<u64> {
        let mut id = None;
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.serial <= serial) {
            reclaim(entry.loans, into);
            id = Some(entry.id);
        }
        id
    }
}

/// Requests posted to a receive queue, by slot; slots are reused.
#[derive(Debug, Default)]
pub(super) struct Posted {
    slots: Vec<Option<(u64, Loans)>>,
    free: Vec<usize>,
}

impl Posted {
    /// Stores a request; returns the number under which it is posted.
    pub(super) fn insert(&mut self, id: u64, loans: Loans) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some((id, loans));
        slot as u64
    }

    /// Removes a completed request: the consumer's identifier and the loans.
    pub(super) fn remove(&mut self, number: u64) -> Option<(u64, Loans)> {
        let slot = usize::try_from(number).ok()?;
        let removed = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(removed)
    }
}

/// Requests in flight of one queue pair.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) sends: Mutex<Sends>,
    pub(super) receives: Arc<Mutex<Posted>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
