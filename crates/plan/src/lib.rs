//! Reversible changes of a host: plan, apply, verify, revert, journal.
#![forbid(unsafe_code)]

use clearstream_schema::{
    control::{Failure, FailureKind},
    plan::{PlanReply, PlanRequest},
};

/// Answers a controller's request on this host.
pub fn handle(_request: PlanRequest) -> Result<PlanReply, Failure> {
    Err(Failure { kind: FailureKind::Unsupported, message: "no plans here".to_owned() })
}
