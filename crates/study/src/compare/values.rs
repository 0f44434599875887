//! The values of a record: one number per trial.

use std::collections::{BTreeMap, BTreeSet};

use clearstream_configfile::did_you_mean;
use clearstream_record::Reader;
use clearstream_schema::{
    human::list,
    outcome::{Metric, Outcome},
};
use serde_json::Value;

use super::{CompareError, Compared};

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
pub(super) fn read(reader: &Reader, metric: Option<&str>) -> Result<Vec<Observation>, CompareError> {
    let mut all = Vec::new();
    let mut known = BTreeSet::new();
    for trial in reader.trials()? {
        let trial = trial?;
        let measured = trial.outcome.measured().filter(|outcome| outcome.complete);
        known.extend(
            measured.into_iter().flat_map(|outcome| &outcome.metrics).map(|metric| metric.name.clone()),
        );
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
    if let (Some(metric), true, false) = (metric, all.is_empty(), known.is_empty()) {
        return Err(CompareError::UnknownMetric {
            run: reader.run().id.clone(),
            metric: metric.to_owned(),
            suggestion: did_you_mean(metric, known.iter().map(String::as_str)),
            known: list(&known),
        });
    }
    let place =
        |name: &str| reader.run().study.experiments.iter().position(|experiment| experiment.name == name);
    all.sort_by_cached_key(|one| (place(&one.experiment), one.repetition, key(&one.factors)));
    Ok(all)
}

/// Text that is the same for the same levels.
pub(super) fn key(factors: &BTreeMap<String, Value>) -> String {
    clearstream_schema::json::to_string(factors).unwrap_or_default()
}

fn chosen<'a>(outcome: &'a Outcome, metric: Option<&str>) -> Option<&'a Metric> {
    match metric {
        Some(name) => outcome.metric(name),
        None => outcome.headline(),
    }
}
