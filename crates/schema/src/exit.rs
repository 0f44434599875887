//! Exit codes of the command: one number for each outcome, so that
//! scripts need not read messages.

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
    /// A name is taken or does not exist (lab, run, experiment).
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
