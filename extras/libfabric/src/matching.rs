//! Matching of messages with receives: first posted, first matched, by source and tag.

use std::{
    collections::VecDeque,
    ffi::c_void,
    ptr,
    sync::{Arc, Mutex},
};

use smallvec::{SmallVec, smallvec};

use crate::{
    abi::*,
    completion::{Completions, locked},
};

/// Memory of the program, in pieces.
pub type Pieces = SmallVec<[(*mut u8, usize); 1]>;

/// Length of all pieces.
pub fn length(pieces: &Pieces) -> usize {
    pieces.iter().map(|(_, length)| length).sum()
}

/// A posted receive.
pub struct Receive {
    /// The program's context.
    pub context: *mut c_void,
    /// Where the message goes.
    pub pieces: Pieces,
    /// Address of the only peer that it takes messages from, or `FI_ADDR_UNSPEC`.
    pub source: u64,
    /// Tag that the message must have.
    pub tag: u64,
    /// Bits of the tag that do not matter.
    pub ignore: u64,
    /// Whether success is reported.
    pub reported: bool,
    /// The buffer takes messages one behind the other (`FI_MULTI_RECV`).
    pub several: Option<Arc<Several>>,
}

/// A buffer for several messages, shared by the posted receive and the messages under way into it. The last of them
/// reports that the program may use it again: an entry of its own, without a message (fi_cq(3)).
pub struct Several {
    /// The program's context.
    pub context: *mut c_void,
    /// Where it is reported, unless the program cancelled it.
    pub report: Mutex<Option<Arc<Completions>>>,
}

// SAFETY: the program's pointer is passed through, never followed.
unsafe impl Send for Several {}
// SAFETY: as above; the other member is behind a mutex.
unsafe impl Sync for Several {}

impl Drop for Several {
    fn drop(&mut self) {
        if let Some(completions) = locked(&self.report).take() {
            let (buf, flags) = (ptr::null_mut(), FI_MULTI_RECV);
            let entry = fi_cq_tagged_entry { op_context: self.context, flags, len: 0, buf, data: 0, tag: 0 };
            completions.push(entry, FI_ADDR_UNSPEC);
        }
    }
}

/// What a message says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Index of the peer that sent it.
    pub peer: usize,
    /// Its tag, 0 without one.
    pub tag: u64,
    /// Data for the completion.
    pub data: u64,
    /// `TAGGED`, `WITH_DATA`.
    pub flags: u8,
}

/// Payload of a message that no receive was posted for.
#[derive(Debug)]
pub enum Body {
    /// A copy.
    Copied(Box<[u8]>),
    /// Arrives in the engine's memory: the length of the message.
    Arriving(usize),
    /// Still in the sender's memory.
    Remote(Remote),
}

/// A message in the sender's memory.
#[derive(Clone, Copy, Debug)]
pub struct Remote {
    /// Tag of the sender's memory.
    pub stag: u32,
    /// Address in it.
    pub address: u64,
    /// Bytes.
    pub length: u32,
    /// The sender's number of the message.
    pub number: u64,
}

impl Body {
    /// Length of the message.
    pub fn length(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Arriving(length) => *length,
            Self::Remote(remote) => remote.length as usize,
        }
    }
}

/// A message that arrived before its receive.
#[derive(Debug)]
pub struct Arrival {
    /// What it says about itself.
    pub label: Label,
    /// Its payload.
    pub body: Body,
    /// Context of the peek that claimed it.
    pub claimed: Option<*mut c_void>,
}

/// Receives and messages of one kind, tagged or not.
#[derive(Default)]
pub struct Queue {
    /// Receives without a message, oldest first.
    pub posted: VecDeque<Receive>,
    /// Messages without a receive, oldest first.
    pub arrived: VecDeque<Arrival>,
    /// A buffer for several messages with less room than this is done (`FI_OPT_MIN_MULTI_RECV`).
    pub least_room: usize,
}

fn fits(wanted: u64, source: u64, tags: (u64, u64), ignore: u64) -> bool {
    (wanted == FI_ADDR_UNSPEC || wanted == source) && (tags.0 ^ tags.1) & !ignore == 0
}

impl Queue {
    /// Takes the first receive for a message, or a part of one for several messages.
    pub fn receive_for(&mut self, source: u64, tag: u64, length: usize) -> Option<Receive> {
        let at = self
            .posted
            .iter()
            .position(|posted| fits(posted.source, source, (posted.tag, tag), posted.ignore))?;
        let posted = &mut self.posted[at];
        let (Some(several), [(base, room)]) = (&posted.several, &mut posted.pieces[..]) else {
            return self.posted.remove(at);
        };
        let taken = length.min(*room);
        let part = Receive {
            pieces: smallvec![(*base, taken)],
            several: Some(several.clone()),
            context: posted.context,
            source: posted.source,
            tag: posted.tag,
            ignore: posted.ignore,
            reported: posted.reported,
        };
        (*base, *room) = (base.wrapping_add(taken), *room - taken);
        if *room < self.least_room.max(1) {
            self.posted.remove(at);
        }
        Some(part)
    }

    /// Position of the first unclaimed message for a receive; `source_of` returns a peer's address.
    pub fn find(
        &self,
        wanted: u64,
        tag: u64,
        ignore: u64,
        source_of: impl Fn(usize) -> u64,
    ) -> Option<usize> {
        self.arrived.iter().position(|arrival| {
            arrival.claimed.is_none()
                && (tag ^ arrival.label.tag) & !ignore == 0
                && (wanted == FI_ADDR_UNSPEC || wanted == source_of(arrival.label.peer))
        })
    }
}
