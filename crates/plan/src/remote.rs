//! Errors as reported to a controller.

use clearstream_schema::control::{Failure, FailureKind};

use crate::PlanError;

/// An error as it is reported to a controller.
pub fn failure(error: &PlanError) -> Failure {
    Failure { kind: kind(error), message: error.to_string() }
}

/// None is a fault of this program: what the host, its kernel, its folders or the request are has a kind of its own.
fn kind(error: &PlanError) -> FailureKind {
    match error {
        PlanError::Busy { .. } => FailureKind::Busy,
        PlanError::Unfit(error) if error.is_outside_families() => FailureKind::Forbidden,
        PlanError::Unfit(error) if error.is_forbidden() => FailureKind::Unsupported,
        PlanError::NoFolder
        | PlanError::StepFailed { .. }
        | PlanError::NotRestored { .. }
        | PlanError::Identity { .. }
        | PlanError::LostByRevert { .. }
        | PlanError::Netlink(_)
        | PlanError::Connection { .. } => FailureKind::Unsupported,
        PlanError::Damaged { .. }
        | PlanError::Folder { .. }
        | PlanError::Storage { .. }
        | PlanError::JournalFailed { .. }
        | PlanError::NotKept { .. }
        | PlanError::Guardian { .. } => FailureKind::File,
        PlanError::Unfit(_)
        | PlanError::OtherHost { .. }
        | PlanError::OtherKernel { .. }
        | PlanError::OtherSchema { .. }
        | PlanError::TooLarge { .. }
        | PlanError::Twice { .. }
        | PlanError::Conflicts { .. }
        | PlanError::Booted { .. }
        | PlanError::Elsewhere { .. }
        | PlanError::RevertedAlready { .. }
        | PlanError::Interrupted { .. }
        | PlanError::NotRecovered { .. }
        | PlanError::NoJournal { .. }
        | PlanError::Superseded { .. }
        | PlanError::Dangerous { .. }
        | PlanError::Lost { .. }
        | PlanError::Unconfirmed { .. }
        | PlanError::NothingToConfirm
        | PlanError::TooLate { .. }
        | PlanError::NotUnderTest { .. } => FailureKind::Invalid,
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
            (PlanError::Unfit(failed(Fault::Absent)), Kind::Invalid),
            (PlanError::NoFolder, Kind::Unsupported),
            (PlanError::StepFailed { step: 1, source: failed(rejected()) }, Kind::Unsupported),
            (
                PlanError::NotRestored {
                    reason: text(),
                    journal: text(),
                    source: Box::new(failed(rejected())),
                },
                Kind::Unsupported,
            ),
            (PlanError::Identity { what: text(), source: source() }, Kind::Unsupported),
            (PlanError::LostByRevert { lost: text() }, Kind::Unsupported),
            (PlanError::Netlink(NetlinkError::Garbled(text())), Kind::Unsupported),
            (PlanError::Connection { source: source() }, Kind::Unsupported),
            (PlanError::Damaged { path: path(), reason: text() }, Kind::File),
            (PlanError::Folder { step: "make", path: path(), source: source() }, Kind::File),
            (*storage(), Kind::File),
            (PlanError::JournalFailed { source: storage() }, Kind::File),
            (PlanError::NotKept { journal: text(), left, source: storage() }, Kind::File),
            (PlanError::Guardian { source: source() }, Kind::File),
            (PlanError::TooLarge { bytes: 2, limit_bytes: 1 }, Kind::Invalid),
            (PlanError::Conflicts { journal: text(), conflicts: Vec::new() }, Kind::Invalid),
            (PlanError::Dangerous { dangers: Vec::new(), remedy: "" }, Kind::Invalid),
            (PlanError::NothingToConfirm, Kind::Invalid),
        ];
        for (error, kind) in cases {
            let failure = failure(&error);
            assert_eq!((failure.kind, failure.message), (kind, error.to_string()), "{error:?}");
        }
    }
}
