//! `clearstream plan apply`, and the same for a plan that `route apply` makes.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use clearstream_plan::{Applied, Danger, Event, Options, Permitted};
use clearstream_schema::{TimeSpan, human::count, plan::Plan};
use clearstream_sys::lines;

use super::{documents, file::read_plan, guard::guarded};
use crate::{
    exit::{CommandError, cannot},
    output::{self, Output, Paint, Unwritten, tune},
};

/// Apply a plan, all or nothing, with a journal to revert it. Shows the changes
/// first and requests confirmation.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// The plan, from `tune plan --out`, `place plan --out` or `route apply --dry-run --out`
    plan: PathBuf,
    #[command(flatten)]
    applying: Applying,
}

impl ApplyArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        self.applying.check(out)?;
        self.applying.carry_out(&read_plan(&self.plan)?, Source::File, out)
    }
}

/// Options and steps of applying a plan.
#[derive(Debug, clap::Args)]
pub struct Applying {
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Apply even if it cuts or moves the controlling connection or the default route
    #[arg(long)]
    force: bool,
    /// Revert the changes unless `plan confirm` is run within this time, as in 60s
    #[arg(long, value_name = "TIME")]
    confirm_within: Option<TimeSpan>,
    /// Allow settings outside of the families that plans may change (docs/guide/plans.md)
    #[arg(long)]
    allow_any_setting: bool,
    /// Apply without confirmation (needed where standard input or output is not a terminal)
    #[arg(long)]
    yes: bool,
}

/// Origin of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A file of the operator.
    File,
    /// The verb itself: its document includes the plan.
    Made,
}

impl Applying {
    /// Fails where no confirmation is possible: called before a plan is made.
    pub(in crate::verbs) fn check(&self, out: &Output) -> Result<(), CommandError> {
        if out.is_human() || self.yes || self.dry_run {
            return Ok(());
        }
        Err(CommandError::usage("--json cannot confirm: add --yes or --dry-run"))
    }

    /// Shows the plan, requests confirmation, applies it under the guard and prints the result.
    pub(in crate::verbs) fn carry_out(
        &self,
        plan: &Plan,
        source: Source,
        out: &Output,
    ) -> Result<(), CommandError> {
        let guarded = guarded().forcing(self.force).confirmed_within(self.confirm_within.map(duration));
        let found = guarded.dangers(plan)?;
        if out.is_human() {
            output::line(&shown(plan, &found))?;
            output::line("")?;
        }
        guarded.refuse(found.clone())?;
        if self.dry_run {
            return self.print(plan, &found, Source::Made, None, out);
        }
        if !self.yes && !plan.steps.is_empty() && !is_confirmed(plan.steps.len())? {
            return Ok(output::line("nothing was changed")?);
        }
        let permitted = if self.allow_any_setting { Permitted::Any } else { Permitted::Families };
        let options = Options::live()?.permitting(permitted).on_event(report_changes(out));
        let applied = guarded.apply(plan, &options)?;
        self.print(plan, &found, source, Some(applied), out)
    }

    /// Prints the result; `applied` is absent in a dry run.
    fn print(
        &self,
        plan: &Plan,
        found: &[Danger],
        source: Source,
        applied: Option<Applied>,
        out: &Output,
    ) -> Result<(), CommandError> {
        let is_dry = applied.is_none();
        let Applied { journal, changed } = applied.unwrap_or(Applied { journal: None, changed: Vec::new() });
        let waits = self.confirm_within.filter(|_| journal.is_some());
        let is_made = source == Source::Made;
        let document = documents::Applied {
            plan: is_made.then_some(plan),
            dangers: is_made.then(|| found.iter().map(Danger::to_string).collect()),
            journal,
            changed_count: changed.len(),
            confirm_within_ns: waits.map(|within| within.0),
        };
        let changed = count(changed.len(), "setting");
        Ok(out.result(&document, || match (&document.journal, waits) {
            _ if is_dry => "nothing was changed".to_owned(),
            (None, _) => "nothing to change: every setting has its planned value".to_owned(),
            (Some(journal), None) => {
                format!("{changed} changed; clearstream plan revert {journal} restores the old values")
            }
            (Some(_), Some(within)) => format!(
                "{changed} changed; everything is restored in {within} unless you run: clearstream plan confirm"
            ),
        })?)
    }
}

pub(super) fn duration(time: TimeSpan) -> Duration {
    Duration::from_nanos(time.0)
}

/// The changes, and their effect on the guarded paths.
pub(super) fn shown(plan: &Plan, found: &[Danger]) -> String {
    let mut text = tune::plan(plan, Paint::for_stdout());
    for danger in found {
        text.push_str(&format!("\n\nwarning: {danger}"));
    }
    text
}

/// Reports each setting that was set.
fn report_changes(out: &Output) -> impl Fn(Event<'_>) + Send + Sync + 'static {
    let out = out.clone();
    move |event| {
        if let Event::ReadBack { setting } = event {
            let setting = setting.to_string();
            out.change(&setting, "set", None, || Some(format!("set {setting}")));
        }
    }
}

/// Requests confirmation on the terminal; without one, `--yes` is needed.
fn is_confirmed(step_count: usize) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(not_a_terminal());
    }
    print_question(&format!("make {}? [y/N] ", count(step_count, "change"))).map_err(Unwritten::from)?;
    Ok(matches!(lines::answer(io::stdin()).map_err(cannot("read the answer"))?.as_str(), "y" | "Y" | "yes"))
}

fn not_a_terminal() -> CommandError {
    CommandError::usage("nothing was changed: not a terminal: re-run with --yes to apply the changes above")
}

fn print_question(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_terminal_the_correction_is_yes() {
        assert_eq!(
            not_a_terminal().to_string(),
            "nothing was changed: not a terminal: re-run with --yes to apply the changes above"
        );
    }
}
