//! Runs of two sides, each run one value per cell.

use std::collections::BTreeMap;

use clearstream_record::Reader;
use clearstream_schema::notice::Notice;
use clearstream_stats::{LEAST_PAIRS, median};
use jiff::Timestamp;
use serde_json::Value;

use super::{
    CellComparison, CellPairs, CompareError, Compared, Comparison, Pairing, adjusted, decide,
    delay_line::{self, Tally},
    too_few,
    values::{self, Observation},
};

/// Required parts of a run.
pub(super) struct Run {
    pub(super) id: String,
    /// First and last start of a trial; the order of runs and their overlap.
    pub(super) span: (Timestamp, Timestamp),
    pub(super) cells: Vec<RunCell>,
}

/// A cell of a run, reduced to the median of its trials.
pub(super) struct RunCell {
    pub(super) experiment: String,
    pub(super) factors: BTreeMap<String, Value>,
    pub(super) metric: Compared,
    pub(super) value: f64,
    /// Least and largest of the trials.
    pub(super) range: [f64; 2],
    pub(super) trial_count: usize,
    pub(super) delay_line_limited_count: usize,
}

/// Compares the runs of two sides. `practical_ratio` is the smallest change
/// that matters ([`PRACTICAL_RATIO`](crate::PRACTICAL_RATIO) if nothing else is known), `metric`
/// what is compared, each workload's headline when absent.
///
/// # Errors
/// When a record cannot be read.
pub fn compare_runs(
    base: &[Reader],
    changed: &[Reader],
    metric: Option<&str>,
    practical_ratio: f64,
) -> Result<Comparison, CompareError> {
    let read = |readers: &[Reader]| {
        readers.iter().map(|reader| Run::read(reader, metric)).collect::<Result<Vec<_>, _>>()
    };
    Ok(compare(&read(base)?, &read(changed)?, practical_ratio))
}

impl Run {
    pub(super) fn read(reader: &Reader, metric: Option<&str>) -> Result<Self, CompareError> {
        Ok(Self::of(reader.run().id.clone(), &reader.run().started, &values::read(reader, metric)?))
    }

    pub(super) fn of(id: String, started: &str, all: &[Observation]) -> Self {
        let parsed = |text: &str| text.parse::<Timestamp>().ok();
        let begin = parsed(started).unwrap_or(Timestamp::UNIX_EPOCH);
        let times = || all.iter().filter_map(|one| parsed(&one.started));
        let span = (times().min().unwrap_or(begin), times().max().unwrap_or(begin));
        let mut order: Vec<(&Observation, Vec<&Observation>)> = Vec::new();
        let mut places: BTreeMap<(&str, &Compared, String), usize> = BTreeMap::new();
        for one in all {
            let key = (one.experiment.as_str(), &one.metric, values::key(&one.factors));
            let place = *places.entry(key).or_insert(order.len());
            if place == order.len() {
                order.push((one, Vec::new()));
            }
            order[place].1.push(one);
        }
        let cells = order
            .into_iter()
            .filter_map(|(one, trials)| {
                let values: Vec<f64> = trials.iter().map(|trial| trial.value).collect();
                Some(RunCell {
                    experiment: one.experiment.clone(),
                    factors: one.factors.clone(),
                    metric: one.metric.clone(),
                    value: median(&values)?,
                    range: [
                        values.iter().copied().fold(f64::INFINITY, f64::min),
                        values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                    ],
                    trial_count: trials.len(),
                    delay_line_limited_count: trials
                        .iter()
                        .filter(|trial| trial.is_delay_line_limited)
                        .count(),
                })
            })
            .collect();
        Self { id, span, cells }
    }

    pub(super) fn cell(&self, cell: &RunCell) -> Option<&RunCell> {
        let same = |other: &&RunCell| {
            (&other.experiment, &other.metric, &other.factors)
                == (&cell.experiment, &cell.metric, &cell.factors)
        };
        self.cells.iter().find(same)
    }
}

pub(super) fn compare(base: &[Run], changed: &[Run], practical_ratio: f64) -> Comparison {
    let mut in_time: Vec<(&Run, bool)> =
        base.iter().map(|run| (run, false)).chain(changed.iter().map(|run| (run, true))).collect();
    in_time.sort_by_key(|(run, _)| run.span);
    let known = |runs: &[&RunCell], cell: &RunCell| {
        runs.iter().any(|other| {
            (&other.experiment, &other.metric, &other.factors)
                == (&cell.experiment, &cell.metric, &cell.factors)
        })
    };
    let mut order: Vec<&RunCell> = Vec::new();
    for cell in base.iter().chain(changed).flat_map(|run| &run.cells) {
        if !known(&order, cell) {
            order.push(cell);
        }
    }
    let all = order.len();
    let mut trials = [0, 0];
    let mut cells: Vec<CellComparison> = Vec::new();
    for cell in order {
        let Some(compared) = of_cell(cell, &in_time).compared() else { continue };
        let counts = tally(cell, &in_time).all;
        trials = [trials[0] + counts[0], trials[1] + counts[1]];
        cells.push(compared);
    }
    let probabilities = adjusted(&cells, &[]);
    decide(&mut cells, &probabilities, practical_ratio, "runs");
    Comparison {
        base: names(base),
        changed: names(changed),
        pairing: Pairing::Runs,
        practical_ratio,
        effects: Vec::new(),
        unmatched_count: all - cells.len(),
        notices: delay_line::notice(&cells, trials)
            .into_iter()
            .chain(notices(base, changed, pairs(in_time.iter().map(|(_, second)| (*second, 0.0))).len()))
            .collect(),
        cells,
    }
}

fn of_cell<'a>(cell: &'a RunCell, in_time: &[(&Run, bool)]) -> CellPairs<'a> {
    let values: Vec<(bool, f64)> =
        in_time.iter().filter_map(|(run, second)| Some((*second, run.cell(cell)?.value))).collect();
    let side =
        |wanted: bool| values.iter().filter(|(second, _)| *second == wanted).map(|one| one.1).collect();
    CellPairs {
        experiment: &cell.experiment,
        factors: cell.factors.clone(),
        metric: cell.metric.clone(),
        base: side(false),
        changed: side(true),
        pairs: pairs(values.iter().copied()),
        delay_line_limited: tally(cell, in_time).limited,
    }
}

/// Trials of a cell on each side.
fn tally(cell: &RunCell, in_time: &[(&Run, bool)]) -> Tally {
    let mut tally = Tally::default();
    for (run, second) in in_time {
        let Some(cell) = run.cell(cell) else { continue };
        tally.all[usize::from(*second)] += cell.trial_count;
        tally.limited[usize::from(*second)] += cell.delay_line_limited_count;
    }
    tally
}

/// Runs of different sides that followed one another, each in one pair: what
/// the machine did from pair to pair is in both, so that runs of one side
/// made after all runs of the other form one pair at most.
fn pairs(in_time: impl Iterator<Item = (bool, f64)>) -> Vec<(f64, f64)> {
    let mut found = Vec::new();
    let mut before: Option<(bool, f64)> = None;
    for (second, value) in in_time {
        match before.take() {
            Some((other, earlier)) if other != second => {
                found.push(if second { (earlier, value) } else { (value, earlier) });
            }
            _ => before = Some((second, value)),
        }
    }
    found
}

fn names(runs: &[Run]) -> String {
    runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>().join(", ")
}

fn notices(base: &[Run], changed: &[Run], pair_count: usize) -> Vec<Notice> {
    let mut found = Vec::new();
    let mut add = |id: &str, message: String| found.push(Notice { id: id.to_owned(), message });
    if base.len() == 1 && changed.len() == 1 {
        add(
            "one-run-each",
            "one run of each side: how much two runs differ by themselves is not included, so nothing is claimed"
                .to_owned(),
        );
    } else if pair_count < LEAST_PAIRS {
        add("too-few-runs", too_few(pair_count, "runs"));
    }
    let span = |runs: &[Run]| {
        let first = runs.iter().map(|run| run.span.0).min();
        first.zip(runs.iter().map(|run| run.span.1).max())
    };
    if let (Some(one), Some(other)) = (span(base), span(changed))
        && (one.1 < other.0 || other.1 < one.0)
    {
        add(
            "no-overlap",
            "the two sides were measured one after the other: what the machine did in between cannot be separated from \
             the change; measure them alternately, with `study run STUDY --before COMMAND --after COMMAND` or by \
             alternating runs"
                .to_owned(),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbours_of_different_sides_are_pairs() {
        let of = |sides: &str| {
            let values = sides.bytes().zip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
            pairs(values.map(|(side, value)| (side == b'B', value)))
        };
        assert_eq!(of("ABAB"), [(1.0, 2.0), (3.0, 4.0)]);
        assert_eq!(of("ABBA"), [(1.0, 2.0), (4.0, 3.0)]);
        assert_eq!(of("AAAABBBB"), [(4.0, 5.0)]);
        assert_eq!(of("AB"), [(1.0, 2.0)]);
        assert!(of("AAAA").is_empty());
    }
}
