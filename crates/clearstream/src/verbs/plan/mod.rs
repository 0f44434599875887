//! `clearstream plan`: the only method of changing a host. Plans of `tune`, `place` and
//! `route` are applied by [`Applying`].

mod apply;
mod documents;
mod file;
mod guard;
mod history;
mod render;
mod revert;
mod show;
mod unfinished;
mod verify;

use clap::Subcommand;

pub use self::{
    apply::{ApplyArgs, Applying, Source},
    documents::{Applied, Confirmed, Journals, RecoveredJournals, RenderedPlan, Reverted},
    guard::guarded_for_agent,
    history::{HistoryArgs, RecoverArgs},
    render::RenderArgs,
    revert::{ConfirmArgs, RevertArgs},
    verify::VerifyArgs,
};
pub(super) use self::{
    file::{newest, read_plan},
    render::write_files,
    unfinished::finish as finish_unfinished,
    verify::report,
};
use crate::{exit::CommandError, output::Output};

/// Change a host by a plan: show, apply, verify, confirm, revert.
#[derive(Debug, Subcommand)]
pub enum PlanVerb {
    /// Show the changes of a plan, their reasons, and the effect on the controlling connection
    Show(show::ShowArgs),
    /// Apply a plan, all or nothing, with a journal to revert it
    Apply(ApplyArgs),
    /// Compare a plan with what is in effect
    Verify(VerifyArgs),
    /// Keep what was applied or reverted with --confirm-within
    Confirm(ConfirmArgs),
    /// Restore the settings saved in a journal
    Revert(RevertArgs),
    /// List the journals of this host
    History(HistoryArgs),
    /// Roll back an interrupted apply, or complete an interrupted revert
    Recover(RecoverArgs),
    /// Write a plan as configuration files that survive a reboot
    Render(RenderArgs),
    /// Guardian process of an apply or revert; started by them
    #[command(hide = true)]
    Guard(guard::GuardArgs),
}

impl PlanVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::Show(args) => args.run(out),
            Self::Apply(args) => args.run(out),
            Self::Verify(args) => args.run(out),
            Self::Confirm(args) => args.run(out),
            Self::Revert(args) => args.run(out),
            Self::History(args) => args.run(out),
            Self::Recover(args) => args.run(out),
            Self::Render(args) => args.run(out),
            Self::Guard(args) => args.run(),
        }
    }
}
