//! `clearstream runs show`

use std::path::PathBuf;

use clearstream_record::Reader;
use clearstream_report::Report;
use clearstream_schema::JsonSchema;
use clearstream_schema::{human::few, notice::Notice, record::TrialOutcome};
use serde::Serialize;

use super::list::date;
use crate::{
    exit::CommandError,
    output::{Output, quantity::count},
};

/// Which run.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Run folder
    run: PathBuf,
}

/// What a run measured.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunOverview {
    /// Its name.
    run: String,
    /// Name of the study.
    study: String,
    /// `quick`, `standard` or `full`.
    mode: String,
    /// Start, RFC 3339 in UTC.
    started: String,
    /// End; absent while it runs, or when it was killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    ended: Option<String>,
    /// Version of the program.
    program_version: String,
    /// Hosts, in their order.
    hosts: Vec<String>,
    /// The lab, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    lab: Option<String>,
    /// Trials planned.
    planned_trial_count: u32,
    /// Trials measured to their end.
    done_trial_count: usize,
    /// Trials that could not be run, with the reason.
    failures: Vec<String>,
    /// Main results, as its report has them.
    headlines: Vec<String>,
    /// What to know before the figures are believed.
    notices: Vec<Notice>,
    /// Whether `study check` passed; absent where it was not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    passed: Option<bool>,
}

impl ShowArgs {
    pub(super) fn run(self, out: &Output) -> Result<(), CommandError> {
        let reader = Reader::open(&self.run)?;
        let (mut done_trial_count, mut failures) = (0, Vec::new());
        for trial in reader.trials()? {
            let trial = trial?;
            done_trial_count += usize::from(trial.outcome.is_complete());
            if let TrialOutcome::Failed(failure) = &trial.outcome {
                failures.push(format!("trial {}: {failure}", trial.trial));
            }
        }
        let run = reader.run();
        let overview = RunOverview {
            run: run.id.clone(),
            study: run.study.name.clone(),
            mode: run.mode.clone(),
            started: run.started.clone(),
            ended: run.ended.clone(),
            program_version: run.program_version.clone(),
            hosts: run.hosts.iter().map(|host| host.name.clone()).collect(),
            lab: run.lab.as_ref().map(|lab| lab.name.clone()),
            planned_trial_count: run.planned_trial_count,
            done_trial_count,
            failures,
            headlines: Report::of(&reader)?.headlines(),
            notices: run.notices.clone(),
            passed: clearstream_record::check_result(&self.run),
        };
        Ok(out.result(&overview, || overview.text())?)
    }
}

impl RunOverview {
    fn text(&self) -> String {
        let ended = self.ended.as_deref().map_or_else(|| "no end".to_owned(), date);
        let mut lines = vec![
            format!(
                "{}: study {} ({}), ClearStream {}",
                self.run, self.study, self.mode, self.program_version
            ),
            format!("{} to {} UTC; hosts {}", date(&self.started), ended, self.hosts.join(", ")),
        ];
        lines.extend(self.lab.iter().map(|lab| format!("in the lab {lab}")));
        let planned = count(self.planned_trial_count, "planned trial");
        lines.push(format!("{} of {planned} done, {} failed", self.done_trial_count, self.failures.len()));
        lines.extend((!self.failures.is_empty()).then(|| format!("failed: {}", few(&self.failures))));
        lines.extend(self.passed.map(|passed| {
            let text = if passed { "passed" } else { "did not pass" };
            format!("study check: {text}")
        }));
        lines.extend(self.headlines.iter().cloned());
        lines.extend(self.notices.iter().map(|notice| format!("note: {}", notice.message)));
        lines.join("\n")
    }
}
