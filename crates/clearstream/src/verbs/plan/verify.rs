//! `clearstream plan verify`, and what `route verify` prints too.

use std::path::PathBuf;

use clearstream_plan::{Options, unconfirmed, verify};
use clearstream_schema::{human::count, plan::Verification};

use super::file::chosen;
use crate::{
    exit::CommandError,
    output::{self, Output, tune},
};

/// Compare a plan with what is in effect: values read back, and the values that a
/// new connection gets.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// The plan, or a journal as `plan history` names it (default: the newest one that is applied here)
    plan: Option<PathBuf>,
}

impl VerifyArgs {
    /// Runs it. Exits with code 8 when anything is not as planned.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let options = Options::live()?;
        let plan = chosen(self.plan.as_deref(), &options, "verified")?;
        report(&verify(&plan, &options)?, &options, out)
    }
}

/// Prints what was found, and for people what waits for confirmation.
pub(in crate::verbs) fn report(
    verification: &Verification,
    options: &Options,
    out: &Output,
) -> Result<(), CommandError> {
    out.result(verification, || tune::verification(verification))?;
    if out.is_human() {
        for change in unconfirmed(options)? {
            output::line(&format!(
                "journal {} waits for confirmation, {:.0} s left: clearstream plan confirm",
                change.journal,
                change.left.as_secs_f64()
            ))?;
        }
    }
    match verification.checks.iter().filter(|check| !check.holds).count() {
        0 => Ok(()),
        failed => Err(CommandError::Partial(format!("{} not as planned", count(failed, "check")))),
    }
}
