//! `clearstream tune apply`, `verify`, `revert`, `history`, `recover`: what
//! changes the host, and what looks at the changes.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use clearstream_plan::{Event, Options, Permitted, PlanError, Reverted, history, plan_of, recover, verify};
use clearstream_route::guard::Danger;
use clearstream_schema::{
    human::count,
    plan::{JournalEntry, JournalState, PLAN_SCHEMA, Plan},
};

use super::documents;
use crate::{
    exit::CommandError,
    files,
    guarded::{Allowed, Guard, RevertAllowed},
    output::{self, Output, Paint, tune},
};

/// Apply a plan, all or nothing, with a journal that puts it back. Shows the
/// changes first and asks.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    /// The plan, from `tune plan --out` or `place plan --out`
    plan: PathBuf,
    #[command(flatten)]
    allowed: Allowed,
    /// Also settings outside of the families that plans may name (docs/guide/plans.md)
    #[arg(long)]
    allow_any_setting: bool,
    /// Do not ask (needed where standard input or output is not a terminal)
    #[arg(long)]
    yes: bool,
}

impl ApplyArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        if !out.is_human() && !self.yes {
            return Err(CommandError::usage("--json asks nobody: add --yes"));
        }
        let plan = read_plan(&self.plan)?;
        let guard = Guard::new(self.allowed);
        let found = guard.dangers(&plan)?;
        if out.is_human() {
            show_plan(&plan, &found)?;
        }
        guard.refuse(&found)?;
        if !self.yes && !plan.steps.is_empty() && !asked(plan.steps.len())? {
            return Ok(output::line("nothing was changed")?);
        }
        let options = permitting(Options::live()?, self.allow_any_setting);
        let applied = guard.apply(&plan, options, telling(out))?;
        let waits = self.allowed.time_for(&applied);
        let changed_count = applied.changed.len();
        let document = documents::Applied {
            plan: None,
            dangers: None,
            journal: applied.journal,
            changed_count,
            confirm_within_ns: waits.map(|within| within.0),
        };
        let changed = count(changed_count, "setting");
        Ok(out.result(&document, || match (&document.journal, waits) {
            (None, _) => "nothing to change: every setting is as the plan wants it".to_owned(),
            (Some(journal), None) => {
                format!("{changed} changed; clearstream tune revert {journal} puts everything back")
            }
            (Some(_), Some(within)) => format!(
                "{changed} changed; everything is put back in {within} unless you run: clearstream route confirm"
            ),
        })?)
    }
}

/// The families of settings, or any for an operator who has allowed it.
pub(in crate::verbs) fn permitting(options: Options, any: bool) -> Options {
    options.permitting(if any { Permitted::Any } else { Permitted::Families })
}

/// The changes, and what they would do to whoever makes them.
pub(in crate::verbs) fn show_plan(plan: &Plan, found: &[Danger]) -> io::Result<()> {
    output::line(&tune::plan(plan, Paint::for_stdout()))?;
    for danger in found {
        output::line(&format!("\nwarning: {}", danger.words()))?;
    }
    output::line("")
}

/// Reports each setting that was set.
pub(in crate::verbs) fn telling(out: &Output) -> impl Fn(&Event<'_>) + Send + Sync + 'static {
    let out = out.clone();
    move |event| {
        if let Event::ReadBack { setting } = event {
            let setting = setting.to_string();
            out.change(&setting, "set", None, || Some(format!("set {setting}")));
        }
    }
}

/// Asks on the terminal; where there is none, `--yes` is needed.
pub(in crate::verbs) fn asked(step_count: usize) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(CommandError::usage(
            "nothing was changed: not a terminal: re-run with --yes to apply the changes above",
        ));
    }
    print_question(&format!("make {}? [y/N] ", count(step_count, "change")))?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn print_question(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Reads a plan from a file.
pub(in crate::verbs) fn read_plan(path: &Path) -> Result<Plan, CommandError> {
    let text = files::read_text(path)?;
    let read = serde_json::from_str::<serde_json::Value>(&text).and_then(|mut document| {
        // A plan that was printed with --json carries where it comes from, which is none of its settings.
        if let Some(keys) = document.as_object_mut() {
            keys.remove("provenance");
        }
        serde_json::from_value(document)
    });
    read.map_err(|error| {
        CommandError::Usage(format!(
            "{} is no {PLAN_SCHEMA}: {error}: make one with clearstream tune plan --out FILE",
            path.display()
        ))
    })
}

/// Compare a plan with what is in force: values read back, and what a new
/// connection really gets.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The plan, or a journal as `tune history` names it (default: the newest one that is applied here)
    plan: Option<PathBuf>,
}

impl VerifyArgs {
    fn plan(&self, options: &Options) -> Result<Plan, CommandError> {
        match &self.plan {
            Some(path) if path.exists() => read_plan(path),
            // No file, and a name that can be no journal's: a file was meant.
            Some(path) if path.components().count() > 1 || path.extension().is_some() => read_plan(path),
            Some(name) => Ok(plan_of(&name.to_string_lossy(), options)?),
            None => Ok(plan_of(&newest(options)?, options)?),
        }
    }

    /// Does it. What is not as planned ends with exit code 8.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let verification = verify(&self.plan(&options)?, &options)?;
        out.result(&verification, || tune::verification(&verification))?;
        match verification.checks.iter().filter(|check| !check.holds).count() {
            0 => Ok(()),
            failed => Err(CommandError::Partial(format!("{} not as planned", count(failed, "check")))),
        }
    }
}

/// Put back what a journal found before it was applied.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Journal, as `tune history` names it (default: the newest one that is applied here)
    journal: Option<String>,
    #[command(flatten)]
    allowed: RevertAllowed,
}

impl RevertArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let journal = match self.journal {
            Some(journal) => journal,
            None => newest(&options)?,
        };
        revert_and_print(&journal, self.allowed, &options, out)
    }
}

/// Reverts a journal and prints what was restored.
pub(in crate::verbs) fn revert_and_print(
    journal: &str,
    allowed: RevertAllowed,
    options: &Options,
    out: &Output,
) -> Result<(), CommandError> {
    out.state("reverting", None, || None);
    let Reverted { journal, restored_count } = Guard::new(allowed.into()).revert(journal, options)?;
    let waits = allowed.confirm_within().filter(|_| restored_count > 0);
    let confirm_within_ns = waits.map(|within| within.0);
    let document = documents::Reverted { journal, restored_count, confirm_within_ns };
    let (journal, settings) = (&document.journal, count(restored_count, "setting"));
    Ok(out.result(&document, || match waits {
        None => format!("{settings} put back from journal {journal}"),
        Some(within) => format!(
            "{settings} put back from journal {journal}; the plan is in force again in {within} unless you run: \
             clearstream route confirm"
        ),
    })?)
}

fn newest(options: &Options) -> Result<String, CommandError> {
    newest_with(options, "nothing is", |_| true)
}

/// The newest journal that can be put back here, of those that are wanted;
/// `none` begins the sentence that says there is none: "nothing is".
pub(in crate::verbs) fn newest_with(
    options: &Options,
    none: &str,
    wanted: impl Fn(&str) -> bool,
) -> Result<String, CommandError> {
    for JournalEntry { journal, state, .. } in history(options)?.into_iter().rev().filter(|entry| entry.here)
    {
        match state {
            JournalState::Applied | JournalState::Pending if wanted(&journal) => return Ok(journal),
            // Finished where it is what is wanted; an older one is never taken before it.
            JournalState::Applying | JournalState::Reverting if wanted(&journal) => return Ok(journal),
            JournalState::Applying | JournalState::Reverting => {
                return Err(PlanError::Interrupted { journal }.into());
            }
            _ => {}
        }
    }
    Err(CommandError::Usage(format!(
        "{none} applied here that could be put back: clearstream tune history lists all journals"
    )))
}

/// List the journals of this host.
#[derive(Debug, clap::Args)]
pub struct HistoryArgs {}

impl HistoryArgs {
    /// Does it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let entries = history(&Options::live()?)?;
        Ok(out.result(&entries, || tune::history(&entries))?)
    }
}

/// End what was interrupted: an unfinished apply is put back, an unfinished
/// revert is finished.
#[derive(Debug, clap::Args)]
pub struct RecoverArgs {}

impl RecoverArgs {
    /// Does it. A journal that could not be ended makes it end with exit code 8.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let recovered = recover(&Options::live()?)?;
        out.result(&recovered, || tune::recovered(&recovered))?;
        match recovered.iter().filter(|journal| journal.problem.is_some()).count() {
            0 => Ok(()),
            failed => Err(CommandError::Partial(format!("{} could not be ended", count(failed, "journal")))),
        }
    }
}
