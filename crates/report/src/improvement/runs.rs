//! Runs as numbers: pair by pair, and their medians.

use clearstream_schema::improvement::Runs;

use crate::{
    estimate::median,
    figure::{Row, Table},
    format::{gbps, number},
};

const NOT_THERE: &str = "\u{2013}";

/// Measures of a run, as text: goodput, CPU time, retransmits, round trip.
const MEASURES: usize = 4;

fn cells(runs: &Runs, of: impl Fn(&[f64]) -> Option<f64>) -> [String; MEASURES] {
    let text = |values: &[f64], unit: fn(f64) -> String| {
        of(values).filter(|value| value.is_finite()).map_or_else(|| NOT_THERE.to_owned(), unit)
    };
    // A run without a round trip keeps its place; it is no number.
    let rtt: Vec<f64> = runs.rtt_ns.iter().map(|rtt| rtt.map_or(f64::NAN, |ns| ns as f64)).collect();
    let milliseconds = |ns: f64| number(ns / 1e6);
    [
        text(&runs.goodput_bps, gbps),
        text(&runs.cpu_seconds_per_gb, number),
        text(&runs.retransmits_per_gb, number),
        text(&rtt, milliseconds),
    ]
}

/// Medians of all that is measured, in the order of the table's columns.
pub(super) fn medians(runs: &Runs) -> [String; MEASURES] {
    cells(runs, |values| {
        let known: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        median(&known)
    })
}

/// A line per pair, baseline and treatment; the last line has the medians.
pub(super) fn table(caption: &str, before: &Runs, after: &Runs) -> Table {
    let mut table = Table::new(
        format!("{caption}, pair by pair without and with"),
        &[
            "Pair",
            "#Gb/s without",
            "#with",
            "#CPU s/GB without",
            "#with",
            "#Retransmits/GB without",
            "#with",
            "#RTT ms without",
            "#with",
        ],
    );
    let count = before.goodput_bps.len().max(after.goodput_bps.len());
    let line = |name: String, without: [String; MEASURES], with: [String; MEASURES]| {
        let pairs = without.into_iter().zip(with).flat_map(|(without, with)| [without, with]);
        Row { cells: std::iter::once(name).chain(pairs).collect(), highlighted: false }
    };
    for index in 0..count {
        let one = |runs| cells(runs, |values| values.get(index).copied());
        table.rows.push(line((index + 1).to_string(), one(before), one(after)));
    }
    table.rows.push(line("median".to_owned(), medians(before), medians(after)));
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_different_length_leave_gaps_not_wrong_numbers() {
        let before = Runs {
            goodput_bps: vec![1e9, 3e9],
            cpu_seconds_per_gb: vec![0.5],
            retransmits_per_gb: vec![0.0, 10.0],
            rtt_ns: vec![None, Some(17_000_000)],
        };
        let after = Runs { goodput_bps: vec![2e9], ..Runs::default() };
        let table = table("t", &before, &after);
        assert_eq!(table.rows[0].cells, ["1", "1.00", "2.00", "0.50", "–", "0", "–", "–", "–"]);
        assert_eq!(table.rows[1].cells, ["2", "3.00", "–", "–", "–", "10.0", "–", "17.0", "–"]);
        assert_eq!(table.rows[2].cells, ["median", "2.00", "2.00", "0.50", "–", "5.00", "–", "17.0", "–"]);
        assert!(table.rows.iter().all(|row| row.cells.len() == table.columns.len()));
    }
}
