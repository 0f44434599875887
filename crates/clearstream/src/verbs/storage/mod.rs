//! `clearstream storage`

pub mod semantics;

use clap::Subcommand;

use crate::{exit::CommandError, output::Output};

/// Check what a mounted file system gives.
#[derive(Debug, Subcommand)]
pub enum StorageVerb {
    /// Check which file semantics a mount gives: locks, atomicity, coherence, features
    Semantics(semantics::SemanticsArgs),
}

impl StorageVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Semantics(args) => args.run(out),
        }
    }
}
