//! Batch of outgoing bytes: headers and small payload in one arena, large
//! payload by reference to registered memory.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::memory::{Piece, Span};

/// Maximum length of a batch: what a socket buffer accepts at once. With longer
/// calls the socket processes fewer acknowledgements one by one, and more of
/// its pages return to the sending core.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Maximum number of pieces that one socket call should gather.
const PIECES_MAX: usize = 128;
/// Size at which the arena is full; exceeded by at most one FPDU.
const ARENA_BYTES: usize = 48 << 10;
/// With CRCs the arena holds all payload, and the first byte waits for the
/// last: initial limit, doubled after every full batch.
const ARENA_CRC_INITIAL_BYTES: usize = 128 << 10;
const ARENA_CRC_BYTES: usize = 1 << 20;

thread_local! {
    /// Unused arena of this thread. Only a batch that waits for its socket
    /// holds one: an idle queue pair needs none, and the queue pairs of one
    /// thread reuse an arena that is in its core's cache.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Serial of an FPDU that completes no request.
pub(super) const NO_REQUEST: u64 = u64::MAX;

/// Contiguous part of the batch.
#[derive(Debug)]
enum Part {
    /// Range of the arena.
    Bytes { from: usize, to: usize },
    /// Payload in registered memory, by its address.
    Memory(Span),
    /// Payload in registered memory, by the pages that the kernel holds.
    Pages(Span),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Bytes { from, to } => to - from,
            Self::Memory(span) | Self::Pages(span) => span.len(),
        }
    }
}

/// End of an FPDU in the batch.
#[derive(Clone, Copy, Debug)]
struct FpduEnd {
    end: usize,
    /// Serial of its request, or [`NO_REQUEST`].
    serial: u64,
    /// Whether it is the last FPDU of its message.
    last: bool,
}

/// Result of removing FPDUs whose memory was withdrawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withdrawn {
    /// Serial of the request, or [`NO_REQUEST`].
    pub(super) serial: u64,
    /// The FPDU was partly sent: nothing can follow.
    pub(super) partly_sent: bool,
}

/// FPDUs to be sent.
#[derive(Debug, Default)]
pub struct Batch {
    arena: Vec<u8>,
    /// Number of times the limit with CRCs was doubled.
    doublings: u32,
    /// Offset in the arena of bytes that belong to no part yet.
    open: usize,
    parts: Vec<Part>,
    first_part: usize,
    fpdu_ends: Vec<FpduEnd>,
    first_fpdu_end: usize,
    /// Length of all parts, and number of bytes sent.
    length: usize,
    sent_bytes: usize,
}

impl Batch {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of bytes not sent yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length - self.sent_bytes
    }

    /// Appends the pieces to send next, in order.
    pub fn pieces<'a>(&'a self, into: &mut SmallVec<[Piece<'a>; 64]>) {
        into.clear();
        into.extend(self.parts[self.first_part..].iter().map(|part| match part {
            Part::Bytes { from, to } => Piece::Bytes(&self.arena[*from..*to]),
            Part::Memory(span) => Piece::Memory(span),
            Part::Pages(span) => Piece::Pages(span),
        }));
    }

    /// Returns the arena to append an FPDU to.
    pub(super) fn arena(&mut self) -> &mut Vec<u8> {
        if self.arena.capacity() == 0 {
            // The thread-local value is gone when the thread exits.
            self.arena = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        &mut self.arena
    }

    /// Whether the next FPDU should go to the next batch.
    pub(super) fn is_full(&self, checked: bool) -> bool {
        let arena = if checked { ARENA_CRC_INITIAL_BYTES << self.doublings } else { ARENA_BYTES };
        self.length + (self.arena.len() - self.open) >= BATCH_BYTES_MAX
            || self.parts.len() + 2 > PIECES_MAX
            || self.arena.len() >= arena
    }

    /// Appends payload by reference.
    pub(super) fn memory(&mut self, span: Span, by_pages: bool) {
        self.close_bytes();
        self.length += span.len();
        self.parts.push(if by_pages { Part::Pages(span) } else { Part::Memory(span) });
    }

    /// Marks the end of an FPDU.
    pub(super) fn end_fpdu(&mut self, serial: u64, last: bool) {
        let end = self.length + (self.arena.len() - self.open);
        self.fpdu_ends.push(FpduEnd { end, serial, last });
    }

    /// Ends the batch.
    pub(super) fn close_bytes(&mut self) {
        if self.open < self.arena.len() {
            self.length += self.arena.len() - self.open;
            self.parts.push(Part::Bytes { from: self.open, to: self.arena.len() });
            self.open = self.arena.len();
        }
    }

    /// Accounts for sent bytes, at most [`Batch::len`].
    pub(super) fn sent(&mut self, bytes: usize) {
        let mut left = bytes.min(self.len());
        self.sent_bytes += left;
        while left > 0 {
            let part = &mut self.parts[self.first_part];
            let length = part.len();
            if left >= length {
                left -= length;
                // Releases the memory: its request may complete now.
                *part = Part::Bytes { from: 0, to: 0 };
                self.first_part += 1;
                continue;
            }
            match part {
                Part::Bytes { from, .. } => *from += left,
                Part::Memory(span) | Part::Pages(span) => *span = span.slice(left, length - left),
            }
            left = 0;
        }
    }

    /// Returns the next request whose last byte was sent.
    pub(super) fn next_sent(&mut self) -> Option<u64> {
        while let Some(fpdu) = self.fpdu_ends.get(self.first_fpdu_end) {
            if fpdu.end > self.sent_bytes {
                return None;
            }
            self.first_fpdu_end += 1;
            if fpdu.last && fpdu.serial != NO_REQUEST {
                return Some(fpdu.serial);
            }
        }
        None
    }

    /// The socket found nothing at the address of what is to be sent next. Where the kernel holds its pages they are
    /// copied, and sent; false where they are not held.
    pub(super) fn take_held(&mut self) -> bool {
        let mut parts = self.parts[self.first_part..].iter_mut();
        let part = parts.find(|part| matches!(part, Part::Memory(span) if !span.is_direct()));
        let Some(part) = part else { return false };
        let Part::Memory(span) = part else { return false };
        let from = self.arena.len();
        if !span.is_held() || span.append_to(&mut self.arena).is_err() {
            return false;
        }
        *part = Part::Bytes { from, to: self.arena.len() };
        self.open = self.arena.len();
        true
    }

    /// Removes the first FPDU whose memory was withdrawn by its owner, and all
    /// after it.
    pub(super) fn withdraw(&mut self) -> Option<Withdrawn> {
        let mut at = self.sent_bytes;
        let lost = self.parts[self.first_part..].iter().find_map(|part| match part {
            Part::Memory(span) | Part::Pages(span) if span.is_withdrawn() => Some(at),
            _ => {
                at += part.len();
                None
            }
        })?;
        let index = self.fpdu_ends.iter().position(|fpdu| fpdu.end > lost)?;
        let serial = self.fpdu_ends[index].serial;
        let from = index.checked_sub(1).map_or(0, |before| self.fpdu_ends[before].end);
        if from < self.sent_bytes {
            return Some(Withdrawn { serial, partly_sent: true });
        }
        self.truncate(from);
        self.fpdu_ends.truncate(index);
        Some(Withdrawn { serial, partly_sent: false })
    }

    /// Truncates unsent bytes from an offset on.
    fn truncate(&mut self, from: usize) {
        let mut at = self.sent_bytes;
        for index in self.first_part..self.parts.len() {
            let left = from - at;
            if left < self.parts[index].len() {
                if let Part::Bytes { from, to } = &mut self.parts[index] {
                    *to = *from + left;
                }
                self.parts.truncate(if left == 0 { index } else { index + 1 });
                break;
            }
            at += self.parts[index].len();
        }
        self.length = from;
    }

    /// Clears the batch and returns the arena to the thread.
    pub(super) fn clear(&mut self) {
        if self.arena.len() >= ARENA_CRC_INITIAL_BYTES << self.doublings
            && ARENA_CRC_INITIAL_BYTES << self.doublings < ARENA_CRC_BYTES
        {
            self.doublings += 1;
        }
        self.arena.clear();
        let arena = std::mem::take(&mut self.arena);
        let _ = SPARE.try_with(|spare| {
            let other = spare.take();
            spare.set(if other.capacity() > arena.capacity() { other } else { arena });
        });
        self.parts.clear();
        self.fpdu_ends.clear();
        (self.open, self.first_part, self.first_fpdu_end) = (0, 0, 0);
        (self.length, self.sent_bytes) = (0, 0);
    }

    /// Resets the limit with CRCs when there was nothing to send: the next
    /// message is sent with little delay.
    pub(super) fn rest(&mut self) {
        self.doublings = 0;
    }
}
