//! `clearstream runs trend`: a metric over runs, and where its level changed.

use std::{collections::BTreeSet, path::PathBuf};

use clearstream_record::{CatalogueEntry, Reader, catalogue};
use clearstream_schema::human::{list, percent};
use clearstream_study::{Trend, TrendCell, TrendChange, trend};

use super::list::date;
use crate::{
    exit::CommandError,
    output::{
        Output,
        quantity::{count, factor_level},
        sparkline::sparkline,
        table::table,
    },
    verbs::study::RUNS,
};

/// Runs of a trend, unless given: months of nightly runs.
const RUN_LIMIT: usize = 200;
/// Columns of a sparkline.
const COLUMNS: usize = 20;

/// Which runs and what of them.
#[derive(Debug, clap::Args)]
pub struct TrendArgs {
    /// Folder of runs
    #[arg(default_value = RUNS)]
    folder: PathBuf,
    /// Runs of this study [default: that of the newest run]
    #[arg(long, value_name = "NAME")]
    study: Option<String>,
    /// This metric, such as rtt or server-cpu, instead of each workload's headline
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
    /// Only this experiment; may be repeated
    #[arg(long = "experiment", value_name = "NAME")]
    experiments: Vec<String>,
    /// The newest runs
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = RUN_LIMIT)]
    limit: usize,
}

impl TrendArgs {
    pub(super) fn run(self, out: &Output) -> Result<(), CommandError> {
        let mut runs = catalogue(&self.folder)?;
        runs.retain(|run| run.trial_count > 0 && self.study.as_ref().is_none_or(|study| run.study == *study));
        let Some(newest) = runs.first().cloned() else {
            let of = self.study.as_ref().map_or_else(String::new, |study| format!(" of the study {study}"));
            return Err(CommandError::no_name(format!(
                "{} has no run{of} with trials; `clearstream runs list {}` shows what it has",
                self.folder.display(),
                self.folder.display()
            )));
        };
        runs.retain(|run| is_like(run, &newest));
        runs.truncate(self.limit);
        let readers: Result<Vec<Reader>, _> =
            runs.iter().map(|run| Reader::open(&self.folder.join(&run.name))).collect();
        let mut found = trend(&readers?, self.metric.as_deref())?;
        let known: BTreeSet<&str> = found.cells.iter().map(|cell| cell.experiment.as_str()).collect();
        if let Some(unknown) = self.experiments.iter().find(|name| !known.contains(name.as_str())) {
            let known = list(&known);
            return Err(CommandError::no_name(format!(
                "the runs have no experiment {unknown}; they have {known}"
            )));
        }
        found.cells.retain(|cell| self.experiments.is_empty() || self.experiments.contains(&cell.experiment));
        Ok(out.result(&found, || text(&newest, &found))?)
    }
}

/// Runs whose values are comparable: of one study, in one mode, between the same hosts.
pub(in crate::verbs) fn is_like(run: &CatalogueEntry, other: &CatalogueEntry) -> bool {
    (&run.study, &run.mode, &run.hosts) == (&other.study, &other.mode, &other.hosts)
}

fn text(newest: &CatalogueEntry, found: &Trend) -> String {
    let mut text = format!(
        "{} ({}), hosts {}: {}",
        newest.study,
        newest.mode,
        newest.hosts.join(", "),
        count(found.runs.len(), "run")
    );
    if let [first, .., last] = found.runs.as_slice() {
        text.push_str(&format!(", {} to {}", date(&first.started), date(&last.started)));
    }
    let row = |cell: &TrendCell| {
        let values: Vec<f64> = cell.points.iter().map(|point| point.value).collect();
        let change = cell.changes.last().map_or_else(String::new, |change| {
            format!("{} since {}", ratio(change), found.runs[change.run].run)
        });
        vec![
            place(cell),
            cell.metric.name.clone(),
            values.len().to_string(),
            sparkline(&values, COLUMNS),
            cell.metric.unit.text(cell.level),
            change,
        ]
    };
    let header = ["cell", "metric", ">runs", "trend", ">level", "last change"];
    text.push_str(&format!("\n{}", table(&header, found.cells.iter().map(row).collect())));
    for cell in &found.cells {
        for change in &cell.changes {
            text.push_str(&format!("\n{}", sentence(found, cell, change)));
        }
    }
    if found.runs.len() < found.least_run_count {
        text.push_str(&format!("\na change is claimed from {} runs on", found.least_run_count));
    }
    text
}

fn place(cell: &TrendCell) -> String {
    let levels = cell.factors.iter().map(|(name, level)| factor_level(name, level));
    std::iter::once(cell.experiment.clone()).chain(levels).collect::<Vec<_>>().join(" ")
}

fn ratio(change: &TrendChange) -> String {
    if change.before == 0.0 {
        return "from zero".to_owned();
    }
    let by = change.after / change.before - 1.0;
    format!("{}{}", if by < 0.0 { "-" } else { "+" }, percent(by.abs()))
}

fn sentence(found: &Trend, cell: &TrendCell, change: &TrendChange) -> String {
    let (run, unit) = (&found.runs[change.run], cell.metric.unit);
    format!(
        "{}: {} from {} to {} ({}) with {}, {}; probability by chance {:.4}",
        place(cell),
        cell.metric.name,
        unit.text(change.before),
        unit.text(change.after),
        ratio(change),
        run.run,
        date(&run.started),
        change.probability_ratio
    )
}
