//! `clearstream tune`

pub mod lint;
mod plan;

use clap::Subcommand;
use clearstream_schema::{BitRate, TimeSpan, tune::PathGoal};

use super::plan::{ApplyArgs, HistoryArgs, RecoverArgs, RenderArgs, RevertArgs, VerifyArgs};
use crate::{exit::CommandError, output::Output};

/// Check a host's settings for mistakes, and plan the right ones for a path.
#[derive(Debug, Subcommand)]
pub enum TuneVerb {
    /// Check a host's settings, or a file of them, for mistakes
    Lint(lint::LintArgs),
    /// Plan the settings that a path needs
    Plan(plan::PlanArgs),
    /// Apply a plan, all or nothing, with a journal to revert it: the same as `plan apply`
    Apply(ApplyArgs),
    /// Compare a plan with what is in effect: the same as `plan verify`
    Verify(VerifyArgs),
    /// Restore the settings saved in a journal: the same as `plan revert`
    Revert(RevertArgs),
    /// List the journals of this host: the same as `plan history`
    History(HistoryArgs),
    /// Roll back an interrupted apply, or complete an interrupted revert: the same as `plan recover`
    Recover(RecoverArgs),
    /// Write a plan as configuration files that survive a reboot: the same as `plan render`
    Render(RenderArgs),
}

impl TuneVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Lint(args) => args.run(out),
            Self::Plan(args) => args.run(out),
            Self::Apply(args) => args.run(out),
            Self::Verify(args) => args.run(out),
            Self::Revert(args) => args.run(out),
            Self::History(args) => args.run(out),
            Self::Recover(args) => args.run(out),
            Self::Render(args) => args.run(out),
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
