//! `clearstream runs`: the runs of a folder.

mod list;
mod prune;
mod show;
mod trend;

use clap::Subcommand;

use super::study::compare::CompareArgs;
use crate::{exit::CommandError, output::Output};

pub use list::RunList;
pub use prune::PrunedRuns;
pub use show::RunOverview;
pub(super) use trend::is_like;

/// List, show, compare and remove recorded runs.
#[derive(Debug, Subcommand)]
pub enum RunsVerb {
    /// List runs, the newest first
    List(list::ListArgs),
    /// Show what a run measured
    Show(show::ShowArgs),
    /// Show a metric over the runs of a study, and where its level changed
    Trend(trend::TrendArgs),
    /// Compare two levels of one run, or the runs of two sides, as `study compare` does
    Compare(CompareArgs),
    /// Remove old runs: print which, or with --yes do it
    Prune(prune::PruneArgs),
}

impl RunsVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::List(args) => args.run(out),
            Self::Show(args) => args.run(out),
            Self::Trend(args) => args.run(out),
            Self::Compare(args) => args.run(out),
            Self::Prune(args) => args.run(out),
        }
    }
}
