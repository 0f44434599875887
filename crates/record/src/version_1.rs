//! Conversion of records of version 1 to version 2.
//!
//! Version 1 had two hosts, in `client` and `server` of `run.json`, and four workloads, whose results were
//! variants of a trial's `outcome`. All other keys are unchanged.

use std::collections::BTreeMap;

use clearstream_schema::{
    control::Failure,
    flow::FlowSummary,
    gateways::GatewaySummary,
    outcome::Outcome,
    probe::ProbeSummary,
    record::{RECORD_VERSION, TrialOutcome},
};
use serde::{Deserialize, de::Error as _};
use serde_json::{Value, json};

/// Converts a `run.json` of version 1 to version 2. What is no object stays as it is, and is no run document.
pub(crate) fn run(document: &mut Value) {
    let Some(keys) = document.as_object_mut() else { return };
    let hosts: Vec<Value> = ["client", "server"]
        .into_iter()
        .filter_map(|role| {
            let report = keys.remove(role)?;
            let name = report.get("name").cloned().unwrap_or_default();
            let capture = format!("hosts/{role}.tar.gz");
            Some(json!({"name": name, "role": role, "report": report, "capture": capture}))
        })
        .collect();
    keys.insert("hosts".to_owned(), Value::Array(hosts));
    keys.insert("version".to_owned(), RECORD_VERSION.into());
}

/// Converts a line of `trials.jsonl` of version 1 to version 2.
///
/// `workloads` are those of the experiments.
///
/// # Errors
/// It is no object, or its outcome is not one of version 1.
pub(crate) fn trial(
    document: &mut Value,
    workloads: &BTreeMap<String, String>,
) -> Result<(), serde_json::Error> {
    let Some(keys) = document.as_object_mut() else {
        return Err(serde_json::Error::custom("a trial is an object"));
    };
    let old = clearstream_schema::json::from_value(keys.remove("outcome").unwrap_or_default())?;
    let measured = |outcome| TrialOutcome::Measured(Box::new(outcome));
    let outcome = match old {
        OldOutcome::Flow(summary) => measured(summary.outcome()?),
        OldOutcome::Probe(summary) => measured(summary.outcome()?),
        OldOutcome::Gateways(summary) => measured(summary.outcome()?),
        OldOutcome::Inspect => measured(Outcome::default()),
        OldOutcome::Failed(failure) => TrialOutcome::Failed(failure),
    };
    let experiment = keys.get("experiment").and_then(Value::as_str).unwrap_or_default();
    let workload = workloads.get(experiment).cloned().unwrap_or_default();
    keys.insert("workload".to_owned(), workload.into());
    keys.insert("outcome".to_owned(), clearstream_schema::json::to_value(outcome)?);
    keys.insert("version".to_owned(), RECORD_VERSION.into());
    Ok(())
}

/// Outcome of a trial in version 1.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OldOutcome {
    Flow(Box<FlowSummary>),
    Probe(Box<ProbeSummary>),
    Gateways(Box<GatewaySummary>),
    Inspect,
    Failed(Failure),
}
