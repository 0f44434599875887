//! `clearstream study check`: one run against a good one, with an exit code for CI and cron.

use std::path::{Path, PathBuf};

use clearstream_record::{CHECK, CatalogueEntry, Reader, catalogue};
use clearstream_study::{CheckedCell, ReferenceCheck, Verdict, check_against};

use super::{RUNS, compare::verdict_name};
use crate::{
    exit::CommandError,
    files,
    output::{
        self, Output, Unwritten,
        quantity::{count, factor_level},
        table::table,
    },
    verbs::runs::is_like,
};

/// The reference is the newest good run before this one.
const LAST_GOOD: &str = "last-good";
/// Good runs whose values show how much runs differ by themselves.
const HISTORY: usize = 20;

/// Check a run against a reference.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Run folder, or a folder of runs, of which the newest is checked
    #[arg(default_value = RUNS, value_name = "RUN")]
    run: PathBuf,
    /// Run folder of the reference, or last-good: the newest earlier run of the same study, mode and hosts that
    /// passed its own check
    #[arg(long, value_name = "RUN", default_value = LAST_GOOD)]
    against: String,
    /// Check this metric, such as rtt or server-cpu, instead of each workload's headline
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    /// Smallest change that counts, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent_value)]
    tolerance: f64,
}

fn percent_value(text: &str) -> Result<f64, String> {
    let value = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let value = value.filter(|value| value.is_finite() && (0.0..=100.0).contains(value));
    value.ok_or_else(|| "write a number of percent from 0 to 100, as in 5".to_owned())
}

impl CheckArgs {
    pub(super) fn run(self, out: &Output) -> Result<(), CommandError> {
        let folder = self.folder()?;
        let run = Reader::open(&folder)?;
        let (reference, good) = self.reference(&folder)?;
        let metric = self.metric.as_deref();
        let found = check_against(&run, reference.as_ref(), &good, metric, self.tolerance / 100.0)?;
        let text = clearstream_schema::json::to_string(&found).map_err(Unwritten::from)?;
        files::write(&folder.join(CHECK), &format!("{text}\n"))?;
        out.document(&found)?;
        if out.is_human() {
            show(&found)?;
        }
        if found.passed {
            Ok(())
        } else {
            Err(CommandError::Threshold(reason(&found, run.run().ended.is_some())))
        }
    }

    /// The checked run.
    fn folder(&self) -> Result<PathBuf, CommandError> {
        if self.run.join("run.json").is_file() {
            return Ok(self.run.clone());
        }
        let newest = catalogue(&self.run)?.into_iter().find(|run| run.planned_trial_count > 0);
        let none = || CommandError::no_name(format!("{} has no run of a study", self.run.display()));
        Ok(self.run.join(newest.ok_or_else(none)?.name))
    }

    /// The reference, and good runs before it.
    fn reference(&self, folder: &Path) -> Result<(Option<Reader>, Vec<Reader>), CommandError> {
        if self.against != LAST_GOOD {
            return Ok((Some(Reader::open(Path::new(&self.against))?), Vec::new()));
        }
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let parent = folder.parent().unwrap_or(Path::new("."));
        let runs = catalogue(parent)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let Some(checked) = runs.iter().find(|run| run.name == name) else { return Ok((None, Vec::new())) };
        let is_good = |run: &&CatalogueEntry| {
            is_like(run, checked) && run.started < checked.started && run.passed == Some(true)
        };
        let good = runs.iter().filter(is_good).take(HISTORY);
        let mut good =
            good.map(|run| Reader::open(&parent.join(&run.name))).collect::<Result<Vec<_>, _>>()?;
        Ok(if good.is_empty() { (None, good) } else { (Some(good.remove(0)), good) })
    }
}

fn show(found: &ReferenceCheck) -> Result<(), CommandError> {
    output::line(&format!("run:       {}", found.run))?;
    match &found.reference {
        Some(reference) => output::line(&format!("reference: {reference}"))?,
        None => {
            output::line("reference: no good run before this one; it becomes the reference if it passes")?
        }
    }
    if !found.good_runs.is_empty() {
        output::line(&format!("range:     with {} before it", count(found.good_runs.len(), "good run")))?;
    }
    let row = |cell: &CheckedCell| {
        let levels = cell.factors.iter().map(|(name, level)| factor_level(name, level));
        let place: Vec<String> = std::iter::once(cell.experiment.clone()).chain(levels).collect();
        let text = |value: f64| cell.metric.unit.text(value);
        vec![
            place.join(" "),
            cell.reference_median.map_or_else(|| "-".to_owned(), text),
            cell.range
                .map_or_else(|| "-".to_owned(), |[low, high]| format!("{} to {}", text(low), text(high))),
            cell.median.map_or_else(|| "-".to_owned(), text),
            match (cell.median, cell.reference_median) {
                (None, _) => "missing",
                (_, None) => "new",
                _ => verdict_name(cell.verdict),
            }
            .to_owned(),
        ]
    };
    let header = ["cell", ">reference", ">range", ">this run", "verdict"];
    output::line(&table(&header, found.cells.iter().map(row).collect()))?;
    output::line(if found.passed { "passed" } else { "did not pass" }).map_err(CommandError::from)
}

/// Why it did not pass.
fn reason(found: &ReferenceCheck, has_end: bool) -> String {
    let worse = found.cells.iter().filter(|cell| cell.verdict == Verdict::Worse).count();
    let missing = found.cells.iter().filter(|cell| cell.median.is_none()).count();
    let mut reasons = Vec::new();
    if worse > 0 {
        reasons.push(format!(
            "{} worse than {}",
            count(worse, "cell"),
            found.reference.as_deref().unwrap_or("-")
        ));
    }
    if missing > 0 {
        reasons.push(format!("{} without a value", count(missing, "cell")));
    }
    if found.failed_trial_count > 0 {
        reasons.push(format!("{} failed", count(found.failed_trial_count, "trial")));
    }
    if found.cells.is_empty() {
        reasons.push("no trial has a value".to_owned());
    }
    if !has_end {
        reasons.push("it has no end; --resume continues it".to_owned());
    }
    format!("{}: {}", found.run, reasons.join(", "))
}
