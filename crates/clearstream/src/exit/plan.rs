//! Exit codes of changes.

use clearstream_plan::PlanError;
use clearstream_schema::ExitCode;

use super::netlink;

pub(super) fn plan(error: &PlanError) -> ExitCode {
    match error {
        PlanError::OtherHost { .. }
        | PlanError::OtherKernel { .. }
        | PlanError::OtherSchema { .. }
        | PlanError::TooLarge { .. }
        | PlanError::Twice { .. }
        | PlanError::NothingToConfirm
        | PlanError::NoFolder => ExitCode::Usage,
        PlanError::Unfit(error) if error.is_outside_families() => ExitCode::Refused,
        PlanError::Unfit(_)
        | PlanError::StepFailed { .. }
        | PlanError::Identity { .. }
        | PlanError::Connection { .. } => ExitCode::Unsupported,
        PlanError::Conflicts { .. }
        | PlanError::Booted { .. }
        | PlanError::Elsewhere { .. }
        | PlanError::RevertedAlready { .. }
        | PlanError::Interrupted { .. }
        | PlanError::NotRecovered { .. }
        | PlanError::Dangerous { .. }
        | PlanError::Lost { .. }
        | PlanError::Unconfirmed { .. }
        | PlanError::TooLate { .. }
        | PlanError::Superseded { .. }
        | PlanError::NotUnderTest { .. }
        | PlanError::Busy { .. } => ExitCode::Refused,
        PlanError::Netlink(error) => netlink(error),
        PlanError::NotRestored { .. } | PlanError::LostByRevert { .. } => ExitCode::Partial,
        PlanError::NoJournal { .. } => ExitCode::Name,
        PlanError::Damaged { .. }
        | PlanError::Folder { .. }
        | PlanError::Storage { .. }
        | PlanError::NotKept { .. }
        | PlanError::JournalFailed { .. }
        | PlanError::Guardian { .. } => ExitCode::File,
    }
}
