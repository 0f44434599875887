//! `clearstream study compare`: what differs, in at most 80 columns.

use std::path::{Path, PathBuf};

use clearstream_record::Reader;
use clearstream_schema::{lab::DELAY_LINE_LIMIT_NOTICE, record::TREATMENT};
use clearstream_study::{
    CellComparison, CompareError, Comparison, EffectComparison, LevelEffect, PRACTICAL_RATIO, Pairing,
    Verdict, compare_levels, compare_runs,
};

use crate::{
    exit::CommandError,
    output::{
        self, Output,
        quantity::{self, factor_level},
        table::table,
        tune::fold,
    },
};

/// Marks cells with trials that a delay line limited.
const DELAY_LINE_MARK: &str = "+";

/// What is compared.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Run folder, or a folder of runs of the first side
    first: PathBuf,
    /// The other side's run or folder of runs; or a level of the run, as in flows=1
    second: String,
    /// Second level, compared with the first, as in flows=2
    level: Option<String>,
    /// Compare this metric, such as rtt or server-cpu, instead of each workload's headline
    #[arg(long, value_name = "METRIC")]
    metric: Option<String>,
}

impl CompareArgs {
    pub(in crate::verbs) fn run(&self, out: &Output) -> Result<(), CommandError> {
        let (second, metric) = (self.second.as_str(), self.metric.as_deref());
        let comparison = match self.level.as_deref() {
            Some(level) => {
                let run = Reader::open(&self.first)?;
                compare_levels(&run, second, level, metric, PRACTICAL_RATIO)?
            }
            None if second.contains('=') && !Path::new(second).exists() => {
                return Err(CommandError::Usage(format!(
                    "{second} is one level: write two, as in `study compare RUN flows=1 flows=2`"
                )));
            }
            None => compare_runs(&open(&self.first)?, &open(Path::new(second))?, metric, PRACTICAL_RATIO)?,
        };
        if out.is_human() { show(&comparison) } else { Ok(out.document(&comparison)?) }
    }
}

/// What the second command of a run changed, a line per experiment.
pub(super) fn treatments(reader: &Reader) -> Result<(), CommandError> {
    let level = |level: &str| format!("{TREATMENT}={level}");
    let comparison = match compare_levels(reader, &level("before"), &level("after"), None, PRACTICAL_RATIO) {
        // Stopped before there was one of each.
        Err(CompareError::UnknownLevel { .. }) => return Ok(()),
        found => found?,
    };
    for notice in comparison.notices.iter().filter(|notice| notice.id == DELAY_LINE_LIMIT_NOTICE) {
        prose(&format!("note: {}", notice.message))?;
    }
    for effect in &comparison.effects {
        // A level a line where the effect depends on one.
        sentence(effect).lines().try_for_each(prose)?;
    }
    Ok(())
}

/// The run of a folder, or every run in it.
fn open(folder: &Path) -> Result<Vec<Reader>, CommandError> {
    let is_run = |path: &Path| path.join("run.json").is_file();
    let mut runs: Vec<PathBuf> = Vec::new();
    if !is_run(folder) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        runs.extend(entries.map(|entry| entry.path()).filter(|path| is_run(path)));
        runs.sort();
    }
    if runs.is_empty() {
        // Its error names what is missing.
        return Ok(vec![Reader::open(folder)?]);
    }
    Ok(runs.iter().map(|path| Reader::open(path)).collect::<Result<_, _>>()?)
}

fn show(comparison: &Comparison) -> Result<(), CommandError> {
    output::line(&format!("first:  {}", comparison.base))?;
    output::line(&format!("second: {}", comparison.changed))?;
    output::line(match comparison.pairing {
        Pairing::Repetitions => "pairs:  trials of one repetition with the same other levels",
        Pairing::Runs => "pairs:  runs that followed one another",
    })?;
    let (limits, notices): (Vec<_>, Vec<_>) =
        comparison.notices.iter().partition(|notice| notice.id == DELAY_LINE_LIMIT_NOTICE);
    // A limit of the lab qualifies all figures below it.
    for notice in limits {
        prose(&format!("note: {}", notice.message))?;
    }
    for effect in &comparison.effects {
        // A level a line where the effect depends on one.
        sentence(effect).lines().try_for_each(prose)?;
    }
    if !comparison.cells.is_empty() {
        output::line("")?;
        output::line(&cells(&comparison.cells))?;
    }
    if comparison.cells.iter().any(CellComparison::is_delay_line_limited) {
        prose(&format!(
            "{DELAY_LINE_MARK} a delay line of the lab was the limit of some trials: compares this machine, not the path"
        ))?;
    }
    if comparison.cells.iter().any(is_range) {
        output::line("* range of fewer than six pairs: proves nothing")?;
    }
    for (reason, cells) in reasons(&comparison.cells) {
        prose(&format!("unknown ({}): {reason}", quantity::count(cells, "cell")))?;
    }
    if comparison.unmatched_count > 0 {
        output::line(&format!("{} cells have values on one side only", comparison.unmatched_count))?;
    }
    for notice in notices {
        prose(&format!("note: {}", notice.message))?;
    }
    Ok(())
}

fn cells(cells: &[CellComparison]) -> String {
    let row = |cell: &CellComparison| {
        let levels = cell.factors.iter().map(|(name, level)| factor_level(name, level));
        let place: Vec<String> = std::iter::once(cell.experiment.clone()).chain(levels).collect();
        let value = |median: f64| cell.metric.unit.text(median);
        let mark = if is_range(cell) { "*" } else { "" };
        vec![
            place.join(" "),
            value(cell.base_median),
            value(cell.changed_median),
            cell.median_ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            cell.low_ratio
                .zip(cell.high_ratio)
                .map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.2}-{high:.2}{mark}")),
            cell.pair_count.to_string(),
            format!(
                "{}{}",
                verdict_name(cell.verdict),
                if cell.is_delay_line_limited() { DELAY_LINE_MARK } else { "" }
            ),
        ]
    };
    let header = ["cell", ">first", ">second", ">ratio", ">95 %", ">pairs", "verdict"];
    table(&header, cells.iter().map(row).collect())
}

fn is_range(cell: &CellComparison) -> bool {
    cell.confidence_ratio.is_some_and(|confidence| confidence < 0.95)
}

pub(super) fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same => "same",
        Verdict::Unknown => "unknown",
    }
}

/// Each reason once, with how many cells have it.
fn reasons(cells: &[CellComparison]) -> Vec<(&str, usize)> {
    let mut all: Vec<(&str, usize)> = Vec::new();
    for reason in cells.iter().filter_map(|cell| cell.reason.as_deref()) {
        match all.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => all.push((reason, 1)),
        }
    }
    all
}

/// All cells of an experiment together, or the effect per level where there is no one effect.
fn sentence(effect: &EffectComparison) -> String {
    let how = |found: &LevelEffect| {
        let ends = format!("{:.2} to {:.2}", found.low_ratio, found.high_ratio);
        let kind = if found.confidence_ratio >= 0.95 { "95 % interval" } else { "range" };
        let pairs = quantity::count(found.pair_count, "pair");
        format!("{:.2} ({pairs}, {kind} {ends})", found.ratio)
    };
    let name = &effect.experiment;
    if let Some(on) = &effect.depends_on {
        let levels: Vec<String> = on
            .levels
            .iter()
            .map(|level| {
                let name = level.level.as_deref().unwrap_or("-");
                format!("\n- {}: {}", factor_level(&on.factor, &name.into()), how(level))
            })
            .collect();
        return format!("{name}: no single ratio, it depends on {}:{}", on.factor, levels.concat());
    }
    let found = effect.effect.as_ref().map_or_else(|| "-".to_owned(), how);
    match &effect.reason {
        Some(reason) => format!("{name}: {found}: {}, {reason}", verdict_name(effect.verdict)),
        None => format!("{name}: {found}: {}", verdict_name(effect.verdict)),
    }
}

/// Prose in lines that fit a terminal.
fn prose(text: &str) -> Result<(), CommandError> {
    Ok(output::line(fold(text, 0, 80).trim_end())?)
}
