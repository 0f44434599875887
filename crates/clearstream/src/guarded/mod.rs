//! Changes to what a host routes by, with a guard of the connections by which
//! they are made: looked at on paper before, watched by a guardian meanwhile,
//! asked of the kernel afterwards. One way for every plan and journal, whoever
//! carries it out: `route`, `tune`, or an agent for its controller.

pub mod controller;
pub mod guardian;
mod tested;
mod ways;

use std::{
    thread,
    time::{Duration, Instant},
};

use clearstream_host::HostRoot;
use clearstream_plan::{
    Applied, Event, Options, Permitted, PlanError, Reverted, apply, apply_back, begin_trial, expire,
    plan_back, plan_of, revert, trials,
};
use clearstream_route::{
    guard::{Controlling, Danger, controlling, dangers, of_this_process},
    live,
};
use clearstream_schema::{
    TimeSpan,
    plan::{Plan, Setting},
};

use self::{guardian::Guardian, ways::Ways};
use crate::exit::CommandError;

/// How far a plan may go.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Allowed {
    /// Also where it cuts or moves the controlling connection or the default route
    #[arg(long)]
    force: bool,
    /// Restore everything unless `route confirm` comes within this time, as in 60s
    #[arg(long, value_name = "TIME")]
    confirm_within: Option<TimeSpan>,
}

/// What a revert may do.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct RevertAllowed {
    /// Also where the live value is neither ours nor the old one, or where it
    /// cuts or moves the controlling connection or the default route
    #[arg(long)]
    force: bool,
    /// Put the plan in force again unless `route confirm` comes within this time, as in 60s
    #[arg(long, value_name = "TIME")]
    confirm_within: Option<TimeSpan>,
}

impl RevertAllowed {
    /// The time for confirming.
    pub(crate) fn confirm_within(&self) -> Option<TimeSpan> {
        self.confirm_within
    }
}

impl From<RevertAllowed> for Allowed {
    fn from(RevertAllowed { force, confirm_within }: RevertAllowed) -> Self {
        Self { force, confirm_within }
    }
}

/// Longest time for a guardian to recover what a program that died has left half
/// done, before the operator is advised to; a busy host may need seconds.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two looks whether it has.
const GUARDIAN_INTERVAL: Duration = Duration::from_millis(50);

impl Allowed {
    /// The time for confirming, where something was changed.
    pub(crate) fn time_for(&self, applied: &Applied) -> Option<TimeSpan> {
        self.confirm_within.filter(|_| applied.journal.is_some())
    }
}

/// Guards the controlling connections and the default routes of this host.
#[derive(Debug)]
pub(crate) struct Guard {
    root: HostRoot,
    sessions: Vec<Controlling>,
    force: bool,
    within: Option<Duration>,
}

impl Guard {
    /// For somebody who sits at this host, or has come by ssh.
    pub(crate) fn new(allowed: Allowed) -> Self {
        let root = HostRoot::live();
        let sessions = controlling(&root, std::env::var("SSH_CONNECTION").ok().as_deref());
        let within = allowed.confirm_within.map(|within| Duration::from_nanos(within.0));
        Self { root, sessions, force: allowed.force, within }
    }

    /// For an agent, whose controller can neither force nor confirm.
    fn of_agent() -> Self {
        let mut guard = Self::new(Allowed::default());
        guard.sessions.extend(of_this_process(&guard.root));
        guard
    }

    /// What a plan would do to them.
    pub(crate) fn dangers(&self, plan: &Plan) -> Result<Vec<Danger>, CommandError> {
        if !changes_routes(plan) {
            return Ok(Vec::new());
        }
        Ok(dangers(&live::live(&self.root)?, plan, &self.sessions))
    }

    /// What is cut is refused unless forced; what goes another way is also let
    /// through where it comes back unless confirmed.
    pub(crate) fn refuse(&self, found: &[Danger]) -> Result<(), CommandError> {
        let way_out = if found.iter().any(|danger| danger.is_cut) {
            "--force does it all the same"
        } else {
            "add --confirm-within 60s, which puts everything back unless you confirm, or --force"
        };
        self.refuse_with(found, way_out)
    }

    fn refuse_with(&self, found: &[Danger], way_out: &str) -> Result<(), CommandError> {
        let is_refused = |danger: &&Danger| !self.force && (danger.is_cut || self.within.is_none());
        let refused: Vec<String> = found.iter().filter(is_refused).map(Danger::words).collect();
        if refused.is_empty() {
            return Ok(());
        }
        Err(CommandError::Guarded(format!("nothing was changed: {}; {way_out}", refused.join("; "))))
    }

    /// Applies a plan. One that changes routes or is on trial has a guardian, and
    /// is put back where the controlling connections do not go as they went.
    pub(crate) fn apply(
        &self,
        plan: &Plan,
        options: Options,
        tell: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Result<Applied, CommandError> {
        self.carry_out(plan, None, options, tell)
    }

    /// Applies a plan, or the one that reverts the journal `of`.
    fn carry_out(
        &self,
        plan: &Plan,
        of: Option<&str>,
        options: Options,
        tell: impl Fn(&Event<'_>) + Send + Sync + 'static,
    ) -> Result<Applied, CommandError> {
        let apply = |options: &Options| {
            once_recovered(|| match of {
                Some(of) => apply_back(plan, of, options),
                None => apply(plan, options),
            })
        };
        if !changes_routes(plan) && self.within.is_none() {
            return Ok(apply(&options.telling(move |event| tell(&event)))?);
        }
        settle(&options)?;
        let within = self.within;
        let guardian = Guardian::start()?;
        let (told, folder) = (guardian.teller(), options.clone());
        let options = options.telling(move |event| {
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
        let before = Ways::of(&self.sessions);
        let applied = apply(&options)?;
        let Some(journal) = &applied.journal else {
            guardian.done();
            return Ok(applied);
        };
        let after = Ways::of(&self.sessions);
        let lost = if self.force { None } else { before.lost(&after, within.is_some()) };
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

    /// Puts back what a journal found; `over_others` also where the live value is
    /// neither ours nor the old one. `way_out` is for who is refused.
    fn put_back(
        &self,
        journal: &str,
        over_others: bool,
        way_out: &str,
        options: &Options,
    ) -> Result<Reverted, CommandError> {
        let back = inverse(plan_of(journal, options)?);
        if !changes_routes(&back) {
            return Ok(revert(journal, over_others, options)?);
        }
        // A plan that waits for confirmation goes back anyhow.
        if !trials(options)?.iter().any(|trial| trial.journal == journal) {
            self.refuse_with(&self.dangers(&back)?, way_out)?;
        }
        let before = Ways::of(&self.sessions);
        let guardian = Guardian::start()?;
        guardian.teller().journal(journal);
        let done = revert(journal, over_others, options);
        guardian.done();
        let done = done?;
        match before.lost(&Ways::of(&self.sessions), true) {
            Some(lost) => Err(CommandError::Partial(format!("everything was put back, but {lost}"))),
            None => Ok(done),
        }
    }

    /// Restores what a journal found, for somebody who sits here. With a deadline
    /// the plan is in force again unless that is confirmed.
    pub(crate) fn revert(&self, journal: &str, options: &Options) -> Result<Reverted, CommandError> {
        if self.within.is_none() {
            return self.put_back(journal, self.force, "--force does it all the same", options);
        }
        let back = plan_back(journal, self.force, options)?;
        self.refuse(&self.dangers(&back)?)?;
        // The journal is this host's own, whatever the operator allowed it to name.
        let options = options.clone().permitting(Permitted::Any);
        let applied = self.carry_out(&back, Some(journal), options, |_| {})?;
        Ok(Reverted { journal: journal.to_owned(), restored_count: applied.changed.len() as u64 })
    }
}

/// Repeats what an interrupted journal stops, while a guardian is about to recover
/// it, and what the lock stops that it holds meanwhile.
fn once_recovered<T>(mut work: impl FnMut() -> Result<T, PlanError>) -> Result<T, PlanError> {
    let until = Instant::now() + GUARDIAN_TIMEOUT;
    loop {
        match work() {
            Err(PlanError::Interrupted { .. } | PlanError::Busy { .. }) if Instant::now() < until => {
                thread::sleep(GUARDIAN_INTERVAL);
            }
            other => return other,
        }
    }
}

/// Ends what earlier commands left: an overdue plan is put back, and one that
/// waits for confirmation is not built upon.
pub(crate) fn settle(options: &Options) -> Result<(), CommandError> {
    for trial in trials(options)? {
        if trial.left.is_zero() {
            expire(&trial.journal, options)?;
        } else {
            return Err(CommandError::Guarded(format!(
                "journal {} waits for confirmation, {:.0} s left: run clearstream route confirm, or route revert",
                trial.journal,
                trial.left.as_secs_f64()
            )));
        }
    }
    Ok(())
}

/// Whether a plan changes what the host routes by.
fn changes_routes(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| {
        matches!(
            step.setting,
            Setting::Nexthop { .. }
                | Setting::Route { .. }
                | Setting::Rule { .. }
                | Setting::Address { .. }
                | Setting::NetfilterTable { .. }
        )
    })
}

/// The plan that leads back, the last step first.
fn inverse(mut plan: Plan) -> Plan {
    plan.steps.reverse();
    for step in &mut plan.steps {
        std::mem::swap(&mut step.current, &mut step.desired);
    }
    plan
}
