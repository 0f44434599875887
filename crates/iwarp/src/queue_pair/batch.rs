//! The bytes that go out next: headers and small payload in one arena, large
//! payload where it lies in registered memory.

use std::cell::Cell;

use smallvec::SmallVec;

use crate::memory::{Piece, Span};

/// A batch is not made longer than this many bytes: what a socket buffer takes
/// at once. The longer a call, the fewer acknowledgements does the socket take
/// up one by one, and the more of its pages come back to the sending core.
const LONGEST_BYTES: usize = 1 << 20;
/// Nor is it made of more pieces than one call of a socket should gather.
const MOST_PIECES: usize = 128;
/// Nor does the arena grow beyond this, by more than one FPDU.
const ARENA_BYTES: usize = 48 << 10;
/// With CRCs it holds all payload, and the first byte waits for the last: so
/// much in the beginning, twice as much after every batch that was full.
const ARENA_CHECKED_FIRST_BYTES: usize = 128 << 10;
const ARENA_CHECKED_BYTES: usize = 1 << 20;

thread_local! {
    /// An arena that is used by none. Only a batch that waits for its socket
    /// has one: a queue pair at rest costs none, and those that one thread
    /// serves in turn share what is in its core's cache.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// No request ends with this FPDU.
pub(super) const NO_REQUEST: u64 = u64::MAX;

/// A part of the batch.
#[derive(Debug)]
enum Part {
    /// Bytes of the arena.
    Bytes { from: usize, to: usize },
    /// Payload in registered memory.
    Memory(Span),
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Self::Bytes { from, to } => to - from,
            Self::Memory(span) => span.len(),
        }
    }
}

/// Where an FPDU of the batch ends.
#[derive(Clone, Copy, Debug)]
struct Border {
    end: usize,
    /// The request that this FPDU is of, or [`NO_REQUEST`].
    serial: u64,
    /// It is the last one of its message.
    last: bool,
}

/// What can not be sent any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Withdrawn {
    /// The request that it is of, or [`NO_REQUEST`].
    pub(super) serial: u64,
    /// The socket has the beginning of the FPDU already: nothing can follow.
    pub(super) amid: bool,
}

/// FPDUs that wait for the socket.
#[derive(Debug, Default)]
pub struct Batch {
    arena: Vec<u8>,
    /// How often the bound of what is checked has doubled.
    doublings: u32,
    /// Bytes of the arena from here on are in no part yet.
    open: usize,
    parts: Vec<Part>,
    first_part: usize,
    borders: Vec<Border>,
    first_border: usize,
    /// Bytes of parts, and how many of them the socket took.
    length: usize,
    gone: usize,
}

impl Batch {
    /// Nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the socket has not taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length - self.gone
    }

    /// What a socket is to send next, in order.
    pub fn pieces<'a>(&'a self, into: &mut SmallVec<[Piece<'a>; 64]>) {
        into.clear();
        into.extend(self.parts[self.first_part..].iter().map(|part| match part {
            Part::Bytes { from, to } => Piece::Bytes(&self.arena[*from..*to]),
            Part::Memory(span) => Piece::Memory(span),
        }));
    }

    /// Where an FPDU is appended.
    pub(super) fn arena(&mut self) -> &mut Vec<u8> {
        if self.arena.capacity() == 0 {
            // A thread that ends has none any more.
            self.arena = SPARE.try_with(Cell::take).unwrap_or_default();
        }
        &mut self.arena
    }

    /// Whether another FPDU should wait for the next batch.
    pub(super) fn is_full(&self, checked: bool) -> bool {
        let arena = if checked { ARENA_CHECKED_FIRST_BYTES << self.doublings } else { ARENA_BYTES };
        self.length + (self.arena.len() - self.open) >= LONGEST_BYTES
            || self.parts.len() + 2 > MOST_PIECES
            || self.arena.len() >= arena
    }

    /// Payload that stays where it is.
    pub(super) fn memory(&mut self, span: Span) {
        self.close_bytes();
        self.length += span.len();
        self.parts.push(Part::Memory(span));
    }

    /// An FPDU is complete.
    pub(super) fn border(&mut self, serial: u64, last: bool) {
        let end = self.length + (self.arena.len() - self.open);
        self.borders.push(Border { end, serial, last });
    }

    /// The batch is complete.
    pub(super) fn close_bytes(&mut self) {
        if self.open < self.arena.len() {
            self.length += self.arena.len() - self.open;
            self.parts.push(Part::Bytes { from: self.open, to: self.arena.len() });
            self.open = self.arena.len();
        }
    }

    /// The socket took so many bytes, at most [`Batch::len`].
    pub(super) fn sent(&mut self, bytes: usize) {
        let mut left = bytes.min(self.len());
        self.gone += left;
        while left > 0 {
            let part = &mut self.parts[self.first_part];
            let length = part.len();
            if left >= length {
                left -= length;
                // Lets go of the memory: its request may complete now.
                *part = Part::Bytes { from: 0, to: 0 };
                self.first_part += 1;
                continue;
            }
            match part {
                Part::Bytes { from, .. } => *from += left,
                Part::Memory(span) => *span = span.slice(left, length - left),
            }
            left = 0;
        }
    }

    /// The next request whose last byte the socket took.
    pub(super) fn gone(&mut self) -> Option<u64> {
        while let Some(border) = self.borders.get(self.first_border) {
            if border.end > self.gone {
                return None;
            }
            self.first_border += 1;
            if border.last && border.serial != NO_REQUEST {
                return Some(border.serial);
            }
        }
        None
    }

    /// Takes away the first FPDU whose memory was taken back by its owner, and
    /// all behind it.
    pub(super) fn withdraw(&mut self) -> Option<Withdrawn> {
        let mut at = self.gone;
        let lost = self.parts[self.first_part..].iter().find_map(|part| match part {
            Part::Memory(span) if span.is_taken_back() => Some(at),
            _ => {
                at += part.len();
                None
            }
        })?;
        let index = self.borders.iter().position(|border| border.end > lost)?;
        let serial = self.borders[index].serial;
        let from = index.checked_sub(1).map_or(0, |before| self.borders[before].end);
        if from < self.gone {
            return Some(Withdrawn { serial, amid: true });
        }
        self.truncate(from);
        self.borders.truncate(index);
        Some(Withdrawn { serial, amid: false })
    }

    /// Forgets everything from a byte of the batch on that was not sent yet.
    fn truncate(&mut self, from: usize) {
        let mut at = self.gone;
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

    /// Forgets everything, and gives the arena to whoever sends next.
    pub(super) fn clear(&mut self) {
        if self.arena.len() >= ARENA_CHECKED_FIRST_BYTES << self.doublings
            && ARENA_CHECKED_FIRST_BYTES << self.doublings < ARENA_CHECKED_BYTES
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
        self.borders.clear();
        (self.open, self.first_part, self.first_border) = (0, 0, 0);
        (self.length, self.gone) = (0, 0);
    }

    /// There was nothing to send: what comes next does not wait for much.
    pub(super) fn rest(&mut self) {
        self.doublings = 0;
    }
}
