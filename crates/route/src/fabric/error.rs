//! What can be wrong with a fabric file.

use std::{io, path::PathBuf};

use clearstream_schema::ExitCode;

/// A fabric could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// Neither a built-in fabric nor a file.
    #[error(
        "there is no fabric \"{name}\": built in are {known}; a fabric file is named with its path, as in ./{name}.toml"
    )]
    Unknown {
        /// As typed.
        name: String,
        /// Names of the built-in ones.
        known: String,
    },
    /// The file could not be read from disk.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file says something that cannot be meant.
    #[error("{}:{line}: {key}: {problem}", path.display())]
    BadFile {
        /// File.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Key, as in `class[0].link[0].addresses`.
        key: String,
        /// What is wrong and what to write instead.
        problem: String,
    },
    /// No host of this name in the fabric.
    #[error("the fabric {fabric} has no host \"{name}\"{hint}: its classes are {known}")]
    NoHost {
        /// Fabric.
        fabric: String,
        /// As asked.
        name: String,
        /// The nearest host, or nothing.
        hint: String,
        /// Classes and the hosts at their ends.
        known: String,
    },
    /// No class of this name in the fabric.
    #[error("the fabric {fabric} has no class \"{name}\": it has {known}")]
    NoClass {
        /// Fabric.
        fabric: String,
        /// As asked.
        name: String,
        /// Its classes.
        known: String,
    },
}

impl FabricError {
    /// Exit code of a command for this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::BadFile { .. } => ExitCode::Usage,
            Self::Unknown { .. } | Self::NoHost { .. } | Self::NoClass { .. } => ExitCode::Name,
            Self::Read { .. } => ExitCode::File,
        }
    }
}
