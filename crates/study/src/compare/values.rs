//! The values of a record: one number per trial.

use std::collections::BTreeMap;

use clearstream_record::{Reader, RecordError};
use clearstream_schema::outcome::{Metric, Outcome};
use serde_json::Value;

use super::Compared;

/// A trial's number and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observation {
    pub(super) experiment: String,
    pub(super) factors: BTreeMap<String, Value>,
    pub(super) metric: Compared,
    pub(super) repetition: u32,
    pub(super) value: f64,
    /// A delay line of the lab, not the path that it models, was the limit.
    pub(super) is_delay_line_limited: bool,
    /// Start of the trial, RFC 3339.
    pub(super) started: String,
}

/// Trials are streamed; only what is compared is kept, in the order of the study:
/// the metric of this name, or each workload's headline.
pub(super) fn read(reader: &Reader, metric: Option<&str>) -> Result<Vec<Observation>, RecordError> {
    let mut all = Vec::new();
    for trial in reader.trials()? {
        let trial = trial?;
        let measured = trial.outcome.measured().filter(|outcome| outcome.complete);
        if let Some(found) = measured.and_then(|outcome| chosen(outcome, metric)) {
            all.push(Observation {
                metric: Compared::from(found),
                value: found.value,
                experiment: trial.experiment,
                factors: trial.factors,
                repetition: trial.repetition,
                is_delay_line_limited: trial.delay_lines.iter().any(|line| line.relay_limited),
                started: trial.started,
            });
        }
    }
    let place =
        |name: &str| reader.run().study.experiments.iter().position(|experiment| experiment.name == name);
    all.sort_by_cached_key(|one| (place(&one.experiment), one.repetition, key(&one.factors)));
    Ok(all)
}

/// Text that is the same for the same levels.
pub(super) fn key(factors: &BTreeMap<String, Value>) -> String {
    serde_json::to_string(factors).unwrap_or_default()
}

fn chosen<'a>(outcome: &'a Outcome, metric: Option<&str>) -> Option<&'a Metric> {
    match metric {
        Some(name) => outcome.metric(name),
        None => outcome.headline(),
    }
}
