//! What requests carry, and the books of what is in flight.

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

/// What a Send or Write carries.
#[derive(Debug)]
pub enum Source {
    /// Copied while it is posted.
    Inline(InlineData),
    /// Moved in, gathered in order, and returned with the completion.
    Buffers(Buffers),
    /// Ranges of a [`Region`](super::Region), which stays in reach and may
    /// change while it is sent.
    Region(Segments),
}

/// Where a Receive, Read or atomic puts what comes.
#[derive(Debug)]
pub enum Sink {
    /// Moved in, filled in order, and returned with the completion. A Read
    /// and an atomic take one buffer.
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

/// Lends buffers; their places in order.
pub(super) fn lend(buffers: Buffers) -> (Loans, Segments) {
    let loans: Loans = buffers.into_iter().map(Buffer::lend).collect();
    let segments = loans.iter().map(Loan::segment).collect();
    (loans, segments)
}

/// Takes loans back whose request is over.
pub(super) fn take_back(loans: Loans, into: &mut Buffers) {
    for mut loan in loans {
        // Whoever drives the connection lets go of the memory before the
        // completion; a request that was refused was never looked at.
        loop {
            match loan.take_back() {
                Ok(buffer) => break into.push(buffer),
                Err(lent) => loan = lent,
            }
            thread::yield_now();
        }
    }
}

/// What is in flight on the send queue of a queue pair: completions come in
/// the order of posting, and speak for the requests before them.
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
    /// The number under which the next request is posted.
    pub(super) fn serial(&self) -> u64 {
        self.next
    }

    /// It was posted.
    pub(super) fn push(&mut self, id: u64, loans: Loans) {
        self.entries.push_back(Entry { serial: self.next, id, loans });
        self.next += 1;
    }

    /// All requests up to `serial` are over: gives their buffers back, and the
    /// consumer's number of the last.
    pub(super) fn finish(&mut self, serial: u64, into: &mut Buffers) -> Option<u64> {
        let mut id = None;
        while let Some(entry) = self.entries.pop_front_if(|entry| entry.serial <= serial) {
            take_back(entry.loans, into);
            id = Some(entry.id);
        }
        id
    }
}

/// What is posted to a receive queue, by place; places are used again.
#[derive(Debug, Default)]
pub(super) struct Posted {
    slots: Vec<Option<(u64, Loans)>>,
    free: Vec<usize>,
}

impl Posted {
    /// Keeps a request; the number under which it is posted.
    pub(super) fn insert(&mut self, id: u64, loans: Loans) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some((id, loans));
        slot as u64
    }

    /// Lets go of a request that is over: the consumer's number and the loans.
    pub(super) fn remove(&mut self, number: u64) -> Option<(u64, Loans)> {
        let slot = usize::try_from(number).ok()?;
        let taken = self.slots.get_mut(slot)?.take()?;
        self.free.push(slot);
        Some(taken)
    }
}

/// The books of one queue pair.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) sends: Mutex<Sends>,
    pub(super) receives: Arc<Mutex<Posted>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
