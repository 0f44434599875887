//! What a command tells the guardian process, one JSON line each, and the word by
//! which the guardian says that it has read the first.

use serde::{Deserialize, Serialize};

use crate::{
    confirm::Deadline,
    journal::{Head, LARGEST_HEAD_BYTES},
};

/// The guardian knows what has to be restored: changes may begin.
pub(super) const READY: &str = "ready";

/// Of the longest report: what a journal begins with, its name, and how it ends.
pub(super) const LARGEST_BYTES: usize = LARGEST_HEAD_BYTES + (4 << 10);

/// A message to the guardian.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Report {
    /// The journal is on disk and the first change comes next. The guardian keeps
    /// what it says: the file may be out of reach when it is needed.
    Begun(Box<Change>),
    /// Everything is applied; the time to confirm it counts from now.
    Waits(Deadline),
    /// Apply or revert is complete.
    Done,
}

/// A change, and how it ends when its command cannot end it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Change {
    pub(super) journal: String,
    pub(super) head: Head,
    pub(super) kind: Kind,
}

/// What is done with a change whose command is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Restored unless it is applied whole.
    Applied,
    /// The same, and restored at its deadline unless it is confirmed.
    Confirmed(Deadline),
    /// Restored unless it was kept.
    Tested,
    /// A revert: it is finished, forced as it was begun.
    Reverted { force: bool },
}
