//! Calls of a controller to an agent that change its host. The agent refuses what
//! would cut the connection and what belongs to no family of settings
//! ([`Plans`](crate::Plans) serves them).

use clearstream_control::{Call, Done};
use clearstream_schema::{
    plan::{Gone, JournalEntry, Plan, Recovered, Setting, Verification},
    scope::Right,
};
use serde::{Deserialize, Serialize};

/// Reads settings; those that do not exist are omitted from the reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The settings.
    pub settings: Vec<Setting>,
}

impl Call for Read {
    const NAME: &'static str = "plan read";
    const NEEDS: Right = Right::Measure;
    type Reply = Values;
}

/// Values of settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// Each with its value.
    pub values: Vec<(Setting, String)>,
}

/// Applies a plan; all or nothing. It is kept when the agent has a further request
/// of the session, or its [end in order](clearstream_control::Shutdown), after the
/// reply; if the session ends before, for example cut by the change, the change is
/// reverted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apply {
    /// The plan.
    pub plan: Plan,
}

impl Call for Apply {
    const NAME: &'static str = "plan apply";
    const NEEDS: Right = Right::Change;
    type Reply = Applied;
}

/// Result of an apply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The journal's name; absent when everything was as desired already.
    pub journal: Option<String>,
    /// Steps that changed something.
    pub changed_count: u64,
}

/// Applies a plan, pending: what is changed is restored when the session ends, however it
/// ends, unless [`Keep`] comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyPending {
    /// The plan.
    pub plan: Plan,
}

impl Call for ApplyPending {
    const NAME: &'static str = "plan apply-pending";
    const NEEDS: Right = Right::Change;
    type Reply = Applied;
}

/// Keeps what was applied pending in this session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    /// As [`Applied`] gave it.
    pub journal: String,
}

impl Call for Keep {
    const NAME: &'static str = "plan keep";
    const NEEDS: Right = Right::Change;
    type Reply = Done;
}

/// Compares a plan with the effective settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verify {
    /// The plan.
    pub plan: Plan,
}

impl Call for Verify {
    const NAME: &'static str = "plan verify";
    const NEEDS: Right = Right::Measure;
    type Reply = Verification;
}

/// Restores the settings saved in a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revert {
    /// As [`Applied`] gave it.
    pub journal: String,
    /// Also where the live value is neither ours nor the old one.
    pub force: bool,
}

impl Call for Revert {
    const NAME: &'static str = "plan revert";
    const NEEDS: Right = Right::Change;
    type Reply = Reverted;
}

/// Result of a revert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reverted {
    /// Steps that were restored.
    pub restored_count: u64,
    /// What is no more, so that nothing had to be restored on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<Gone>,
}

/// Lists the journals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {}

impl Call for History {
    const NAME: &'static str = "plan history";
    const NEEDS: Right = Right::Measure;
    type Reply = Journals;
}

/// The journals of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journals {
    /// The oldest first.
    pub journals: Vec<JournalEntry>,
}

/// Recovers interrupted journals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recover {}

impl Call for Recover {
    const NAME: &'static str = "plan recover";
    const NEEDS: Right = Right::Change;
    type Reply = Recoveries;
}

/// Result of a recovery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recoveries {
    /// Each of them.
    pub journals: Vec<Recovered>,
}
