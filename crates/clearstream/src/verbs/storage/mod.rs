//! `clearstream storage`

mod place;
pub mod semantics;
pub mod stream;

use clap::Subcommand;

use crate::{exit::CommandError, output::Output};

/// Measure a mounted file system, and check what it gives.
#[derive(Debug, Subcommand)]
pub enum StorageVerb {
    /// Measure streaming to and from files by many ranks, with IOR's model and options
    Stream(Box<stream::StreamArgs>),
    /// Check which file semantics a mount gives: locks, atomicity, coherence, features
    Semantics(semantics::SemanticsArgs),
}

impl StorageVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Stream(args) => args.run(out),
            Self::Semantics(args) => args.run(out),
        }
    }
}
