//! `clearstream runs list`

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clearstream_record::{CatalogueEntry, catalogue};
use clearstream_schema::JsonSchema;
use jiff::Timestamp;
use serde::Serialize;

use crate::{
    exit::CommandError,
    output::{Output, quantity::long_time, table::table},
    verbs::study::RUNS,
};

/// Which runs.
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    /// Folder of runs
    #[arg(default_value = RUNS)]
    folder: PathBuf,
    /// Only runs of this study
    #[arg(long, value_name = "NAME")]
    study: Option<String>,
    /// Only runs with this host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Only the newest
    #[arg(short = 'n', long, value_name = "COUNT")]
    limit: Option<usize>,
}

/// Runs of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunList {
    /// The newest first.
    runs: Vec<CatalogueEntry>,
}

impl ListArgs {
    pub(super) fn run(self, out: &Output) -> Result<(), CommandError> {
        let mut runs = catalogue(&self.folder)?;
        runs.retain(|run| {
            self.study.as_ref().is_none_or(|study| run.study == *study)
                && self.host.as_ref().is_none_or(|host| run.hosts.contains(host))
        });
        runs.truncate(self.limit.unwrap_or(usize::MAX));
        let list = RunList { runs };
        Ok(out.result(&list, || list.text(&self.folder))?)
    }
}

impl RunList {
    fn text(&self, folder: &Path) -> String {
        if self.runs.is_empty() {
            return format!("no runs in {}", folder.display());
        }
        let row = |run: &CatalogueEntry| {
            vec![
                run.name.clone(),
                date(&run.started),
                duration(run).map_or_else(String::new, |duration| long_time(duration.as_secs())),
                run.hosts.join(", "),
                format!("{} of {}", run.trial_count, run.planned_trial_count),
                state(run),
            ]
        };
        table(
            &["run", "started (UTC)", ">took", "hosts", ">trials", "state"],
            self.runs.iter().map(row).collect(),
        )
    }
}

fn state(run: &CatalogueEntry) -> String {
    let end = match (&run.ended, run.trial_count < u64::from(run.planned_trial_count)) {
        (None, _) => "no end",
        (Some(_), true) => "stopped early",
        (Some(_), false) => "complete",
    };
    match run.passed {
        Some(true) => format!("{end}, good"),
        Some(false) => format!("{end}, worse"),
        None => end.to_owned(),
    }
}

/// Time from start to end.
fn duration(run: &CatalogueEntry) -> Option<Duration> {
    let [started, ended] = [&run.started, run.ended.as_ref()?].map(|time| time.parse::<Timestamp>().ok());
    Duration::try_from(ended?.duration_since(started?)).ok()
}

/// An RFC 3339 time without its fractions and letters.
pub(super) fn date(time: &str) -> String {
    time.get(..19).unwrap_or(time).replace('T', " ")
}
