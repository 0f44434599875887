//! What can go wrong between the program and the kernel.

use std::{io, path::PathBuf};

use clearstream_schema::ExitCode;

/// Why a congestion control was not loaded or taken out.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// No such algorithm here.
    #[error("there is no congestion control {algorithm} to load; there is htcp")]
    Unknown {
        /// As typed.
        algorithm: String,
    },
    /// The name is registered already.
    #[error("{name} is in the kernel already; `clearstream cc list` shows it")]
    Present {
        /// Registered name.
        name: &'static str,
    },
    /// Nothing to take out.
    #[error("{name} was not loaded by clearstream: there is no {}", path.display())]
    Absent {
        /// Registered name.
        name: &'static str,
        /// Pin that was looked for.
        path: PathBuf,
    },
    /// The pin is gone, the name is not.
    #[error("{name} is still registered: another program holds its link (`bpftool link show` tells which)")]
    Held {
        /// Registered name.
        name: &'static str,
    },
    /// A feature of the kernel.
    #[error("this kernel cannot load a congestion control: {what}; {instead}")]
    Unsupported {
        /// What is missing.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// A capability.
    #[error(
        "{what} needs CAP_BPF and CAP_NET_ADMIN (and CAP_SYS_ADMIN to mount the BPF file system): run it as root"
    )]
    Privilege {
        /// What was refused.
        what: &'static str,
    },
    /// The kernel did not take the program.
    #[error("the kernel did not take {name}: {source}; {said}")]
    Kernel {
        /// Registered name.
        name: &'static str,
        /// What the library said of it.
        said: String,
        /// Error number.
        source: libbpf_rs::Error,
    },
    /// The compiled program lacks what its source declares.
    #[error("the compiled program holds no {name}")]
    Program {
        /// Registered name.
        name: &'static str,
    },
    /// The pin.
    #[error("cannot pin the congestion control at {}: {source}", path.display())]
    Pin {
        /// Where.
        path: PathBuf,
        /// Why.
        source: libbpf_rs::Error,
    },
    /// A file of the kernel.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `mount`, `remove`.
        what: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl LoadError {
    /// The documented exit code (docs/guide/exit-codes.md).
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unknown { .. } | Self::Present { .. } | Self::Absent { .. } => ExitCode::Name,
            Self::Held { .. } => ExitCode::Refused,
            Self::Unsupported { .. } | Self::Privilege { .. } | Self::Kernel { .. } => ExitCode::Unsupported,
            Self::Program { .. } => ExitCode::Internal,
            Self::Pin { .. } | Self::File { .. } => ExitCode::File,
        }
    }
}
