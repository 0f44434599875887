//! `clearstream runs prune`: old runs are removed, others stay.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clearstream_record::{CatalogueEntry, KEEP, RecordError, catalogue, remove};
use clearstream_schema::JsonSchema;
use clearstream_schema::{TimeSpan, human::count};
use clearstream_sys::writer_lock::name_of;
use jiff::Timestamp;
use serde::Serialize;

use crate::{exit::CommandError, output::Output, verbs::study::RUNS};

/// A run without an end whose files did not change for this time was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Which runs are removed.
#[derive(Debug, clap::Args)]
pub struct PruneArgs {
    /// Folder of runs
    #[arg(default_value = RUNS)]
    folder: PathBuf,
    /// Only runs of this study
    #[arg(long, value_name = "NAME")]
    study: Option<String>,
    /// Keep the newest of each study
    #[arg(long, value_name = "COUNT", required_unless_present = "older_than")]
    keep: Option<usize>,
    /// Remove runs that started longer ago than this
    #[arg(long, value_name = "TIME")]
    older_than: Option<TimeSpan>,
    /// Remove them
    #[arg(long)]
    yes: bool,
}

/// Runs that are removed, and those that stay although they are as old.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct PrunedRuns {
    /// False where this is what `--yes` would do.
    done: bool,
    /// Names of their folders.
    removed: Vec<String>,
    /// Names with the reason.
    kept: BTreeMap<String, String>,
}

impl PruneArgs {
    pub(super) fn run(self, out: &Output) -> Result<(), CommandError> {
        let mut pruned = PrunedRuns { done: self.yes, ..PrunedRuns::default() };
        let mut newer: BTreeMap<String, usize> = BTreeMap::new();
        for run in catalogue(&self.folder)? {
            if self.study.as_ref().is_some_and(|study| run.study != *study) {
                continue;
            }
            let newer = newer.entry(run.study.clone()).or_default();
            *newer += 1;
            let too_many = self.keep.is_some_and(|keep| *newer > keep);
            let old = self.older_than.map(TimeSpan::to_std);
            let too_old = old.is_some_and(|old| age(&run).is_some_and(|age| age > old));
            if !too_many && !too_old {
                continue;
            }
            match protection(&self.folder, &run) {
                Some(reason) => drop(pruned.kept.insert(run.name, reason)),
                None => {
                    let removed = if self.yes { remove(&self.folder, &run.name) } else { Ok(()) };
                    match removed {
                        Err(RecordError::Busy { process, .. }) => {
                            let reason = format!("is being written by {}", name_of(process));
                            pruned.kept.insert(run.name, reason);
                        }
                        removed => {
                            removed?;
                            pruned.removed.push(run.name);
                        }
                    }
                }
            }
        }
        Ok(out.result(&pruned, || pruned.text())?)
    }
}

fn age(run: &CatalogueEntry) -> Option<Duration> {
    Duration::try_from(Timestamp::now().duration_since(run.started.parse().ok()?)).ok()
}

/// Why a run stays.
fn protection(folder: &Path, run: &CatalogueEntry) -> Option<String> {
    if run.kept {
        return Some(format!("it has a file `{KEEP}`"));
    }
    // A run that has no end may be running; samples of a trial are written all of the time.
    let is_writing = run.ended.is_none() && !is_abandoned(&folder.join(&run.name));
    is_writing.then(|| "it has no end, and was written to within the last hour".to_owned())
}

fn is_abandoned(run: &Path) -> bool {
    let newest = ["", "run.json", "trials.jsonl", "samples"].iter().filter_map(|name| {
        let folder = run.join(name);
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
        let inside = inside.filter_map(|item| item.metadata().ok()?.modified().ok());
        inside.chain(fs::metadata(&folder).and_then(|found| found.modified())).max()
    });
    let newest = newest.max().unwrap_or_else(SystemTime::now);
    newest.elapsed().is_ok_and(|elapsed| elapsed > ABANDONED)
}

impl PrunedRuns {
    fn text(&self) -> String {
        let mut text = match (self.removed.len(), self.done) {
            (0, _) => "no run to remove".to_owned(),
            (number, true) => format!("removed {}", count(number, "run")),
            (number, false) => format!("{} to remove; --yes removes them", count(number, "run")),
        };
        for name in &self.removed {
            text.push_str(&format!("\n  {name}"));
        }
        for (name, reason) in &self.kept {
            text.push_str(&format!("\n{name} stays: {reason}"));
        }
        text
    }
}
