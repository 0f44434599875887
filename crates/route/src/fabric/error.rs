//! Errors of fabric files.

use clearstream_configfile::ConfigError;
use clearstream_schema::{control::FailureKind, failure::Classified};

/// A fabric could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A fabric file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No host of this name in the fabric.
    #[error("the fabric {fabric} has no host \"{name}\"{hint}: its classes are {known}")]
    NoHost {
        /// Fabric.
        fabric: String,
        /// As requested.
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
        /// As requested.
        name: String,
        /// Its classes.
        known: String,
    },
}

impl Classified for FabricError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Config(error) => error.failure_kind(),
            Self::NoHost { .. } | Self::NoClass { .. } => FailureKind::Name,
        }
    }
}
