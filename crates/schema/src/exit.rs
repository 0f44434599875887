//! Exit codes of the command: one number for each outcome, so that
//! scripts need not read messages.

use crate::control::FailureKind;

/// Exit code of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Success: all requested work was done.
    Success = 0,
    /// A fault of ClearStream itself; please report it.
    Internal = 1,
    /// The command line or a file could not be understood; nothing was done.
    Usage = 2,
    /// A host could not be found, reached or started on.
    Unreachable = 3,
    /// The peer refused: pairing, version, busy, address in use; or another process writes the same run.
    Refused = 4,
    /// A privilege, kernel feature or program that is needed is missing.
    Unsupported = 5,
    /// The peer died, went silent or broke the protocol; samples taken so far are kept.
    PeerLost = 6,
    /// A file could not be read or written (disk full included).
    File = 7,
    /// Finished, but some trials failed or some parts could not be measured.
    Partial = 8,
    /// A name is taken or does not exist (lab, run, experiment, metric, interface, program).
    Name = 9,
    /// A measured figure is below the threshold of the command line (`flow --fail-below`), or a run is worse than its
    /// reference (`study check`).
    Threshold = 10,
    /// Stopped by SIGINT; samples taken so far are kept.
    Interrupted = 130,
}

impl ExitCode {
    /// Every code, for documentation and tests.
    pub const ALL: [Self; 12] = [
        Self::Success,
        Self::Internal,
        Self::Usage,
        Self::Unreachable,
        Self::Refused,
        Self::Unsupported,
        Self::PeerLost,
        Self::File,
        Self::Partial,
        Self::Name,
        Self::Threshold,
        Self::Interrupted,
    ];

    /// The code of a number that another process of this program has ended with.
    pub fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| *code as i32 == number)
    }

    /// Kind of failure that ended with this code, as far as the code tells kinds apart; `None` for success.
    pub fn failure_kind(self) -> Option<FailureKind> {
        Some(match self {
            Self::Success => return None,
            Self::Internal => FailureKind::Internal,
            Self::Usage => FailureKind::Invalid,
            Self::Unreachable => FailureKind::Unreachable,
            Self::Refused => FailureKind::Refused,
            Self::Unsupported => FailureKind::Unsupported,
            Self::PeerLost => FailureKind::Connection,
            Self::File => FailureKind::File,
            Self::Partial | Self::Threshold => FailureKind::Partial,
            Self::Name => FailureKind::Name,
            Self::Interrupted => FailureKind::Interrupted,
        })
    }

    /// Its name in documents, kebab-case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::PeerLost => "peer-lost",
            Self::File => "file",
            Self::Partial => "partial",
            Self::Name => "name",
            Self::Threshold => "threshold",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The one place where what happened becomes a code.
impl From<FailureKind> for ExitCode {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Invalid => Self::Usage,
            FailureKind::Name => Self::Name,
            FailureKind::Unsupported => Self::Unsupported,
            FailureKind::Busy | FailureKind::InUse | FailureKind::Forbidden | FailureKind::Refused => {
                Self::Refused
            }
            FailureKind::Connection => Self::PeerLost,
            FailureKind::Unreachable => Self::Unreachable,
            FailureKind::File => Self::File,
            FailureKind::Partial => Self::Partial,
            FailureKind::Interrupted => Self::Interrupted,
            FailureKind::Internal => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Code 1 is for faults of this program alone: what a peer or the environment does has a code of its own.
    #[test]
    fn only_our_own_faults_are_internal_and_a_code_is_read_back_as_a_kind_of_its_own() {
        assert_eq!(ExitCode::from(FailureKind::Internal), ExitCode::Internal);
        for code in ExitCode::ALL {
            assert_eq!(ExitCode::of_number(code as i32), Some(code));
            let Some(kind) = code.failure_kind() else {
                assert_eq!(code, ExitCode::Success);
                continue;
            };
            assert_eq!(kind == FailureKind::Internal, code == ExitCode::Internal);
            // A figure below its threshold is no kind of failure.
            if code != ExitCode::Threshold {
                assert_eq!(ExitCode::from(kind), code);
            }
        }
        assert_eq!(ExitCode::of_number(101), None);
    }
}
