//! What changing a host leaves, as documents: the same ones for every verb that does.

use clearstream_schema::JsonSchema;
use clearstream_schema::plan::{Gone, JournalEntry, Plan, Recovered};
use serde::Serialize;

/// What applying a plan did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Applied<'a> {
    /// The plan; only of `route apply`, which makes it, and of a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<&'a Plan>,
    /// What the plan would do to anyone who applies it; beside the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dangers: Option<Vec<String>>,
    /// Journal that restores everything; null when nothing was changed.
    pub journal: Option<String>,
    /// Settings that were changed.
    pub changed_count: usize,
    /// Nanoseconds within which it has to be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_ns: Option<u64>,
}

/// What reverting a journal did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Reverted {
    /// The journal.
    pub journal: String,
    /// Settings that were restored.
    pub restored_count: u64,
    /// What is no more, so that nothing had to be restored on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
    /// Nanoseconds within which it has to be confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm_within_ns: Option<u64>,
    /// Why the journal is not marked as reverted; everything is restored all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmarked: Option<String>,
}

/// What was confirmed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Confirmed {
    /// The journal.
    pub journal: String,
    /// Nanoseconds that were left.
    pub left_ns: u64,
    /// The journal that is reverted by it, where it was a revert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<String>,
    /// Why the journals are not marked so; the change is kept all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmarked: Option<String>,
}

/// The journals of this host's plans.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Journals {
    /// Oldest first.
    pub journals: Vec<JournalEntry>,
}

/// Journals that were interrupted, and what became of them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RecoveredJournals {
    /// Oldest first.
    pub journals: Vec<Recovered>,
}

/// A plan as files of the operator's system.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RenderedPlan {
    /// What was written.
    pub files: Vec<RenderedFile>,
    /// Steps that are in none of them.
    pub left_out: Vec<LeftOut>,
}

/// One file of a rendered plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RenderedFile {
    /// Where it was written.
    pub path: String,
    /// Where it belongs on the host.
    pub belongs_at: String,
}

/// A step that cannot be expressed.
#[derive(Debug, Serialize, JsonSchema)]
pub struct LeftOut {
    /// The setting as an operator names it.
    pub setting: String,
    /// Cause.
    pub reason: String,
}
