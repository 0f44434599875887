//! `clearstream storage`

mod against;
mod benchmark;
pub mod metadata;
mod place;
mod ranks;
pub mod semantics;
pub mod stream;

use clap::Subcommand;
use clearstream_schema::TimeSpan;

use crate::{exit::CommandError, output::Output};
pub use ranks::{guardian, operations};

/// Measure a mounted file system, and check what it gives.
#[derive(Debug, Subcommand)]
pub enum StorageVerb {
    /// Measure streaming to and from files by many ranks, with IOR's model and options
    Stream(Box<stream::StreamArgs>),
    /// Measure operations on files and directories by many ranks, with mdtest's model and options
    Metadata(Box<metadata::MetadataArgs>),
    /// Check which file semantics a mount gives: locks, atomicity, coherence, features
    Semantics(Box<semantics::SemanticsArgs>),
    /// Remove the files of ranks that were killed
    #[command(hide = true)]
    Guard(ranks::GuardArgs),
    /// Carry out file operations for the checks of semantics
    #[command(hide = true)]
    Operations(ranks::OperationsArgs),
}

impl StorageVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Stream(args) => args.run(out),
            Self::Metadata(args) => args.run(out),
            Self::Semantics(args) => args.run(out),
            Self::Guard(args) => args.run(),
            Self::Operations(args) => args.run(),
        }
    }
}

/// The whole path of a file that ranks write, which may have another working directory.
fn absolute_file(file: Option<&str>) -> Result<Option<String>, CommandError> {
    let whole = |file: &str| {
        std::path::absolute(file)
            .map(|path| path.to_string_lossy().into_owned())
            .map_err(|error| CommandError::Usage(format!("--operations {file}: {error}")))
    };
    file.map(whole).transpose()
}

/// Each iteration of a comparison would write over the log of the one before.
fn without_operations(file: Option<&str>) -> Result<(), CommandError> {
    let refused = || CommandError::usage("--operations is of one directory: leave it, or --against, out");
    file.map_or(Ok(()), |_| Err(refused()))
}

/// Why later phases did not run.
fn ended_early(is_interrupted: bool, timeout: TimeSpan) -> Result<(), CommandError> {
    Err(match is_interrupted {
        true => CommandError::Interrupted("results cover the phases measured until then".to_owned()),
        false => CommandError::Partial(format!(
            "the phases took longer than {timeout}: later ones did not run (--timeout)"
        )),
    })
}
