//! What kind of failure an error of a plan is.

use clearstream_schema::{control::FailureKind, failure::Classified};

use crate::PlanError;

/// None is a fault of this program: what the host, its kernel, its folders or the request are has a kind of its own.
impl Classified for PlanError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Busy { .. } => FailureKind::Busy,
            Self::Unfit(error) => error.failure_kind(),
            Self::OtherHost { .. }
            | Self::OtherKernel { .. }
            | Self::OtherSchema { .. }
            | Self::TooLarge { .. }
            | Self::Twice { .. }
            | Self::NothingToConfirm
            | Self::NoFolder => FailureKind::Invalid,
            Self::StepFailed { .. } | Self::Identity { .. } | Self::Connection { .. } => {
                FailureKind::Unsupported
            }
            Self::Conflicts { .. }
            | Self::Booted { .. }
            | Self::Elsewhere { .. }
            | Self::RevertedAlready { .. }
            | Self::Interrupted { .. }
            | Self::NotRecovered { .. }
            | Self::Dangerous { .. }
            | Self::Lost { .. }
            | Self::Unconfirmed { .. }
            | Self::TooLate { .. }
            | Self::Superseded { .. }
            | Self::NotUnderTest { .. } => FailureKind::Refused,
            Self::Netlink(error) => error.failure_kind(),
            Self::NotRestored { .. } | Self::LostByRevert { .. } => FailureKind::Partial,
            Self::NoJournal { .. } => FailureKind::Name,
            Self::Damaged { .. }
            | Self::Folder { .. }
            | Self::Storage { .. }
            | Self::NotKept { .. }
            | Self::JournalFailed { .. }
            | Self::Guardian { .. } => FailureKind::File,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use clearstream_netlink::NetlinkError;
    use clearstream_schema::plan::Setting;

    use super::*;
    use crate::{Fault, SettingError};

    fn source() -> io::Error {
        io::Error::from_raw_os_error(28)
    }

    fn failed(fault: Fault) -> SettingError {
        fault.of(&Setting::Sysctl("net.core.rmem_max".to_owned()))
    }

    /// Every one of the environment and of the host that is asked.
    #[test]
    fn what_a_host_cannot_do_is_no_fault_of_this_program() {
        use FailureKind as Kind;
        let (text, path, left) = (|| "x".to_owned(), || "/x".into(), Duration::from_secs(1));
        let storage = || Box::new(PlanError::Storage { step: "write", path: path(), source: source() });
        let rejected = || Fault::Rejected { value: text(), source: source() };
        let cases = [
            (PlanError::Busy { path: path(), holder: text() }, Kind::Busy),
            (PlanError::Unfit(failed(Fault::OutsideFamilies)), Kind::Forbidden),
            (PlanError::Unfit(failed(Fault::NotPermitted)), Kind::Unsupported),
            (PlanError::Unfit(failed(Fault::ReadOnly { path: path() })), Kind::Unsupported),
            (PlanError::Unfit(failed(Fault::Absent)), Kind::Unsupported),
            (PlanError::NoFolder, Kind::Invalid),
            (PlanError::StepFailed { step: 1, source: failed(rejected()) }, Kind::Unsupported),
            (
                PlanError::NotRestored {
                    reason: text(),
                    journal: text(),
                    source: Box::new(failed(rejected())),
                },
                Kind::Partial,
            ),
            (PlanError::Identity { what: text(), source: source() }, Kind::Unsupported),
            (PlanError::LostByRevert { lost: text() }, Kind::Partial),
            (PlanError::Netlink(NetlinkError::Garbled(text())), Kind::Unsupported),
            (PlanError::Connection { source: source() }, Kind::Unsupported),
            (PlanError::Damaged { path: path(), reason: text() }, Kind::File),
            (PlanError::Folder { step: "make", path: path(), source: source() }, Kind::File),
            (*storage(), Kind::File),
            (PlanError::JournalFailed { source: storage() }, Kind::File),
            (PlanError::NotKept { journal: text(), left, source: storage() }, Kind::File),
            (PlanError::Guardian { source: source() }, Kind::File),
            (PlanError::TooLarge { bytes: 2, limit_bytes: 1 }, Kind::Invalid),
            (PlanError::Conflicts { journal: text(), conflicts: Vec::new() }, Kind::Refused),
            (PlanError::Dangerous { dangers: Vec::new(), remedy: "" }, Kind::Refused),
            (PlanError::NothingToConfirm, Kind::Invalid),
        ];
        for (error, kind) in cases {
            let failure = error.to_failure();
            assert_eq!((failure.kind, failure.message), (kind, error.to_string()), "{error:?}");
        }
    }
}
