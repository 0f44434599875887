//! Errors between the program and the kernel.

use std::{io, path::PathBuf};

use clearstream_schema::ExitCode;

/// Errors of loading or unloading a congestion control.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Unknown algorithm.
    #[error("unknown congestion control {algorithm}; available: htcp")]
    Unknown {
        /// Requested name.
        algorithm: String,
    },
    /// The name is registered already.
    #[error("{name} is loaded in the kernel already; `clearstream cc list` shows it")]
    Present {
        /// Registered name.
        name: &'static str,
    },
    /// The congestion control is not loaded.
    #[error("{name} was not loaded by clearstream: {} does not exist", path.display())]
    Absent {
        /// Registered name.
        name: &'static str,
        /// Expected pin.
        path: PathBuf,
    },
    /// The pin was removed, the name is still registered.
    #[error("{name} is still registered: another program holds its link (`bpftool link show` lists it)")]
    Held {
        /// Registered name.
        name: &'static str,
    },
    /// The kernel lacks a feature.
    #[error("this kernel cannot load a congestion control: {what}; {instead}")]
    Unsupported {
        /// Missing feature.
        what: &'static str,
        /// Suggested remedy.
        instead: &'static str,
    },
    /// A capability is missing.
    #[error(
        "{what} needs CAP_BPF and CAP_NET_ADMIN (and CAP_SYS_ADMIN to mount the BPF file system): run it as root"
    )]
    Privilege {
        /// Operation without permission.
        what: &'static str,
    },
    /// The kernel rejected the program.
    #[error("the kernel rejected {name}: {source}; {message}")]
    Kernel {
        /// Registered name.
        name: &'static str,
        /// Message of libbpf.
        message: String,
        /// Error of libbpf.
        source: libbpf_rs::Error,
    },
    /// The compiled program lacks what its source declares.
    #[error("the compiled program does not contain {name}")]
    Program {
        /// Registered name.
        name: &'static str,
    },
    /// The pin could not be created or removed.
    #[error("cannot pin the congestion control at {}: {source}", path.display())]
    Pin {
        /// Path of the pin.
        path: PathBuf,
        /// Cause.
        source: libbpf_rs::Error,
    },
    /// A file of the kernel could not be accessed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `mount`, `remove`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

impl LoadError {
    /// Returns the documented exit code (docs/guide/exit-codes.md).
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
