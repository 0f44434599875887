//! Lockout protection: a change must not cut the connections by which the host is
//! controlled. Routing implements [`Guard`]; [`Guarded`] is the only path by which
//! plans and journals are carried out under it: predicted before, watched by a
//! guardian process meanwhile, checked against the kernel afterwards.

mod duty;
mod guarded;
mod guardian;
mod report;
mod tested;

use std::fmt;

use clearstream_schema::plan::Plan;

pub(crate) use self::tested::Tested;
pub use self::{
    duty::Duty,
    guarded::{Guarded, settle},
};
use crate::PlanError;

/// Protects the connections that a change must not cut.
pub trait Guard {
    /// Whether a plan changes any setting that the guarded paths depend on.
    fn is_touched_by(&self, plan: &Plan) -> bool;

    /// Predicted effects of a plan on the guarded paths. Fails when the state of the
    /// host cannot be read.
    fn dangers(&self, plan: &Plan) -> Result<Vec<Danger>, PlanError>;

    /// Records the guarded paths, for a comparison after the change.
    fn snapshot(&self) -> Box<dyn Snapshot>;
}

/// Guarded paths before a change.
pub trait Snapshot {
    /// First path that is lost now, in one line: removed, or, unless it `may_move`,
    /// changed.
    fn lost(&self, may_move: bool) -> Option<String>;
}

/// Predicted effect of a plan on one guarded path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Danger {
    /// Subject: `the ssh session from 10.0.0.7`, `the IPv4 default route`.
    pub subject: String,
    /// Path now.
    pub before: String,
    /// Path after the change.
    pub after: String,
    /// No path is left; otherwise the path changes.
    pub is_cut: bool,
}

impl fmt::Display for Danger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, before, after, is_cut } = self;
        let verb = if *is_cut { "cut" } else { "move" };
        write!(f, "it would {verb} {subject}: {before} now, {after} afterwards")
    }
}
