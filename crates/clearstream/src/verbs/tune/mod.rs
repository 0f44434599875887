//! `clearstream tune`

pub mod lint;
mod plan;

use clap::Subcommand;
use clearstream_schema::{BitRate, TimeSpan, tune::PathGoal};

use crate::{exit::CommandError, output::Output};

/// Check a host's settings for mistakes, and plan the right ones for a path.
#[derive(Debug, Subcommand)]
pub enum TuneVerb {
    /// Check a host's settings, or a file of them, for mistakes
    Lint(lint::LintArgs),
    /// Plan the settings that a path needs
    Plan(plan::PlanArgs),
}

impl TuneVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Lint(args) => args.run(out),
            Self::Plan(args) => args.run(out),
        }
    }
}

/// The path to plan for.
fn goal(rate: BitRate, rtt: TimeSpan, flow_count: u32) -> Result<PathGoal, CommandError> {
    if rate.0 == 0 || rtt.0 == 0 {
        return Err(CommandError::usage(
            "a path has a rate and a round trip above zero, as in --rate 40Gb/s --rtt 17ms",
        ));
    }
    Ok(PathGoal { rate, rtt, flow_count })
}
