//! A plan of routes, applied with a guard of the connections by which that is
//! done: by the command on its host, or by an agent for a controller.

use std::time::Duration;

use clearstream_host::HostRoot;
use clearstream_plan::{Applied, Event, Options, apply, begin_trial, failure, revert};
use clearstream_route::guard::{Controlling, Danger, controlling, dangers, of_this_process};
use clearstream_schema::{
    control::{Failure, FailureKind},
    plan::{Plan, PlanReply, Setting},
};

use super::{
    apply::settle,
    guardian::Guardian,
    here::{self, Ways},
};
use crate::exit::CommandError;

/// How far a plan may go.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Guard {
    /// Also where a connection is cut.
    pub(super) force: bool,
    /// Everything is put back unless it is confirmed in this time.
    pub(super) within: Option<Duration>,
}

impl Guard {
    /// What is cut is refused unless forced; what goes another way is also let
    /// through where it comes back unless confirmed.
    pub(super) fn refuse(&self, found: &[Danger]) -> Result<(), CommandError> {
        let refused = self.refused(found);
        if refused.is_empty() {
            return Ok(());
        }
        let way_out = if found.iter().any(|danger| danger.is_cut) {
            "--force does it all the same"
        } else {
            "add --confirm-within 60s, which puts everything back unless you confirm, or --force"
        };
        Err(CommandError::Guarded(format!("nothing was changed: {}; {way_out}", refused.join("; "))))
    }

    fn refused(&self, found: &[Danger]) -> Vec<String> {
        let is_refused = |danger: &&Danger| !self.force && (danger.is_cut || self.within.is_none());
        found.iter().filter(is_refused).map(Danger::words).collect()
    }

    /// Applies under the eyes of a guardian, then looks whether the controlling
    /// connections still go as they went.
    pub(super) fn apply(
        &self,
        plan: &Plan,
        sessions: &[Controlling],
        options: &Options,
        tell: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Result<Applied, CommandError> {
        let within = self.within;
        let guardian = Guardian::start()?;
        let (told, folder) = (guardian.teller(), options.clone());
        let options = options.clone().telling(move |event| {
            if let Event::Journaled { journal } = event {
                // Before the first change: a process that dies is put back either
                // way. Whether the deadline could be written is looked at below.
                if let Some(within) = within {
                    drop(begin_trial(journal, within, &folder));
                }
                told.journal(journal);
            }
            tell(&event);
        });
        let before = Ways::of(sessions);
        let applied = apply(plan, &options)?;
        let Some(journal) = &applied.journal else {
            guardian.done();
            return Ok(applied);
        };
        let lost = if self.force { None } else { before.lost(&Ways::of(sessions), within.is_some()) };
        // The time counts from here.
        let begun = within.map_or(Ok(()), |within| begin_trial(journal, within, &options));
        if lost.is_none() && begun.is_ok() {
            guardian.done();
            return Ok(applied);
        }
        let done = revert(journal, true, &options);
        guardian.done();
        done?;
        begun?;
        Err(CommandError::Guarded(format!("everything was put back: {}", lost.unwrap_or_default())))
    }
}

/// Whether a plan changes what the host routes by.
pub(crate) fn changes_routes(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| {
        matches!(
            step.setting,
            Setting::Nexthop { .. } | Setting::Route { .. } | Setting::Rule { .. } | Setting::Address { .. }
        )
    })
}

/// Applies a plan of routes for a controller. Nobody there can force or confirm:
/// a plan that would cut or move the connection, an ssh session or the default
/// route is refused, and put back where the kernel's lookup says so afterwards.
pub(crate) fn apply_for_controller(plan: &Plan) -> Result<PlanReply, Failure> {
    let options = Options::live().map_err(|error| failure(&error))?;
    let root = HostRoot::live();
    let mut sessions = controlling(&root, std::env::var("SSH_CONNECTION").ok().as_deref());
    sessions.extend(of_this_process(&root));
    let guard = Guard::default();
    let done = settle(&options).and_then(|()| {
        let refused = guard.refused(&dangers(&here::live(&root)?, plan, &sessions));
        if !refused.is_empty() {
            return Err(CommandError::Guarded(format!(
                "nothing was changed: {}; run clearstream route apply with --confirm-within 60s on that host",
                refused.join("; ")
            )));
        }
        guard.apply(plan, &sessions, &options, |_| {})
    });
    match done {
        Ok(applied) => {
            Ok(PlanReply::Applied { journal: applied.journal, changed_count: applied.changed.len() as u64 })
        }
        Err(CommandError::Plan(error)) => Err(failure(&error)),
        Err(error @ CommandError::Guarded(_)) => {
            Err(Failure { kind: FailureKind::Invalid, message: error.to_string() })
        }
        Err(error) => Err(Failure { kind: FailureKind::Internal, message: error.to_string() }),
    }
}
