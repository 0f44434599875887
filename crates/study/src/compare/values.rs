//! The values of a record: one number per trial.

use std::collections::BTreeMap;

use clearstream_record::{Reader, RecordError};
use clearstream_schema::{
    probe::ProbeSummary,
    record::{TrialDocument, TrialOutcome},
};
use serde_json::Value;

use super::Metric;

/// A trial's number and where it belongs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Observation {
    pub(super) experiment: String,
    pub(super) factors: BTreeMap<String, Value>,
    pub(super) metric: Metric,
    pub(super) repetition: u32,
    pub(super) value: f64,
    /// A delay line of the lab, not the path that it models, was the limit.
    pub(super) is_delay_line_limited: bool,
    /// Start of the trial, RFC 3339.
    pub(super) started: String,
}

/// Trials are streamed; only what is compared is kept, in the order of the study.
pub(super) fn read(reader: &Reader) -> Result<Vec<Observation>, RecordError> {
    let mut all = Vec::new();
    for trial in reader.trials()? {
        let trial = trial?;
        if let Some((metric, value)) = value(&trial) {
            all.push(Observation {
                experiment: trial.experiment,
                factors: trial.factors,
                metric,
                repetition: trial.repetition,
                value,
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

fn value(trial: &TrialDocument) -> Option<(Metric, f64)> {
    match &trial.outcome {
        TrialOutcome::Flow(summary) => summary.complete.then_some((Metric::GoodputBps, summary.goodput_bps)),
        TrialOutcome::Probe(summary) => Some((Metric::RoundTripNs, round_trip(summary)?)),
        // A gap is a matter of retransmission times: medians of cells say little.
        TrialOutcome::Gateways(_) | TrialOutcome::Inspect | TrialOutcome::Failed(_) => None,
    }
}

fn round_trip(summary: &ProbeSummary) -> Option<f64> {
    Some(summary.directions.first()?.udp.as_ref()?.p50_ns as f64)
}
