//! `clearstream runs`: the runs of a folder.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use clap::Subcommand;
use clearstream_record::{CatalogueEntry, KEEP, catalogue, remove};
use clearstream_schema::TimeSpan;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::study::{RUNS, compare};
use crate::{
    exit::CommandError,
    output::{
        Output,
        quantity::{count, long_time},
        table::table,
    },
};

/// A run without an end whose files did not change for this time was killed.
const ABANDONED: Duration = Duration::from_secs(3600);

/// List, compare and remove recorded runs.
#[derive(Debug, Subcommand)]
pub enum RunsVerb {
    /// List runs, the newest first
    List(ListArgs),
    /// Compare two levels of one run, or the runs of two sides, as `study compare` does
    Compare {
        /// Run folder, or a folder of runs of the first side
        first: PathBuf,
        /// The other side's run or folder of runs; or a level of the run, as in flows=1
        second: String,
        /// Second level, compared with the first, as in flows=2
        level: Option<String>,
        /// Compare this metric, such as rtt or server-cpu, instead of each workload's headline
        #[arg(long, value_name = "METRIC")]
        metric: Option<String>,
    },
    /// Remove old runs: print which, or with --yes do it
    Prune(PruneArgs),
}

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

/// Runs of a folder.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunList {
    /// The newest first.
    runs: Vec<CatalogueEntry>,
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

impl RunsVerb {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        match self {
            Self::List(args) => args.run(out),
            Self::Compare { first, second, level, metric } => {
                compare::run(&first, &second, level.as_deref(), metric.as_deref(), out)
            }
            Self::Prune(args) => args.run(out),
        }
    }
}

impl ListArgs {
    fn run(self, out: &Output) -> Result<(), CommandError> {
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
            let state = match (&run.ended, run.trial_count < u64::from(run.planned_trial_count)) {
                (None, _) => "no end",
                (Some(_), true) => "stopped early",
                (Some(_), false) => "complete",
            };
            vec![
                run.name.clone(),
                run.started.get(..19).unwrap_or(&run.started).replace('T', " "),
                run.duration().map_or_else(String::new, |duration| long_time(duration.as_secs())),
                run.hosts.join(", "),
                format!("{} of {}", run.trial_count, run.planned_trial_count),
                state.to_owned(),
            ]
        };
        table(
            &["run", "started (UTC)", ">took", "hosts", ">trials", "state"],
            self.runs.iter().map(row).collect(),
        )
    }
}

/// What is computed of an entry.
trait Timed {
    fn duration(&self) -> Option<Duration>;
    fn age(&self) -> Option<Duration>;
}

impl Timed for CatalogueEntry {
    fn duration(&self) -> Option<Duration> {
        let [started, ended] =
            [&self.started, self.ended.as_ref()?].map(|time| time.parse::<Timestamp>().ok());
        Duration::try_from(ended?.duration_since(started?)).ok()
    }

    fn age(&self) -> Option<Duration> {
        Duration::try_from(Timestamp::now().duration_since(self.started.parse().ok()?)).ok()
    }
}

impl PruneArgs {
    fn run(self, out: &Output) -> Result<(), CommandError> {
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
            let too_old = old.is_some_and(|old| run.age().is_some_and(|age| age > old));
            if !too_many && !too_old {
                continue;
            }
            match protection(&self.folder, &run) {
                Some(reason) => drop(pruned.kept.insert(run.name, reason)),
                None => {
                    if self.yes {
                        remove(&self.folder, &run.name)?;
                    }
                    pruned.removed.push(run.name);
                }
            }
        }
        Ok(out.result(&pruned, || pruned.text())?)
    }
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
