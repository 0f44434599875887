//! Errors as reported to a controller.

use clearstream_schema::control::{Failure, FailureKind};

use crate::PlanError;

/// An error as it is reported to a controller.
pub fn failure(error: &PlanError) -> Failure {
    Failure { kind: kind(error), message: error.to_string() }
}

fn kind(error: &PlanError) -> FailureKind {
    match error {
        PlanError::Busy { .. } => FailureKind::Busy,
        PlanError::Unfit(error) if error.is_outside_families() => FailureKind::Forbidden,
        PlanError::Unfit(error) if error.is_forbidden() => FailureKind::Unsupported,
        PlanError::NoFolder => FailureKind::Unsupported,
        PlanError::NotRestored { .. }
        | PlanError::Storage { .. }
        | PlanError::JournalFailed { .. }
        | PlanError::Identity { .. }
        | PlanError::LostByRevert { .. }
        | PlanError::Netlink(_)
        | PlanError::Guardian { .. }
        | PlanError::Connection { .. } => FailureKind::Internal,
        _ => FailureKind::Invalid,
    }
}
