//! The published shapes: generated from the types, committed, kept.
//!
//! `UPDATE_SCHEMAS=1 cargo test -p clearstream-record --test schemas` writes
//! them anew after a type was changed. A change must only add what readers of
//! older records can do without; the golden record below proves it.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use clearstream_record::{Reader, Side};
use clearstream_schema::{
    congestion::CongestionControls,
    diagnosis::Diagnosis,
    fabric::FabricFile,
    flow::{FlowSummary, Interval},
    host::HostReport,
    improvement::Improvement,
    lab::LabFile,
    place::{Placement, Ranking, SteeredPorts},
    plan::Plan,
    probe::ProbeSummary,
    proof::RouteProof,
    rdma::{PingSummary, RdmaSummary},
    record::{RunDocument, TrialDocument, TrialOutcome},
    route_plan::RoutePlan,
    study::StudyFile,
    tune::LintReport,
    watch::{WatchEvent, WatchStatus},
};
use jsonschema::Validator;
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn schema<T: JsonSchema>() -> Value {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value()
}

fn all() -> [(&'static str, Value); 23] {
    [
        ("congestion-controls", schema::<CongestionControls>()),
        ("diagnosis", schema::<Diagnosis>()),
        ("fabric", schema::<FabricFile>()),
        ("flow-summary", schema::<FlowSummary>()),
        ("host", schema::<HostReport>()),
        ("improvement", schema::<Improvement>()),
        ("interval", schema::<Interval>()),
        ("lab", schema::<LabFile>()),
        ("lint", schema::<LintReport>()),
        ("placement", schema::<Placement>()),
        ("plan", schema::<Plan>()),
        ("ports", schema::<SteeredPorts>()),
        ("probe", schema::<ProbeSummary>()),
        ("ranking", schema::<Ranking>()),
        ("rdma", schema::<RdmaSummary>()),
        ("rdma-ping", schema::<PingSummary>()),
        ("route-plan", schema::<RoutePlan>()),
        ("route-proof", schema::<RouteProof>()),
        ("run", schema::<RunDocument>()),
        ("study", schema::<StudyFile>()),
        ("trial", schema::<TrialDocument>()),
        ("watch-event", schema::<WatchEvent>()),
        ("watch-status", schema::<WatchStatus>()),
    ]
}

fn path(name: &str) -> PathBuf {
    root().join(format!("schemas/v1/{name}.schema.json"))
}

#[test]
fn committed_schemas_are_those_of_the_types() {
    for (name, schema) in all() {
        // Sorted, whatever order the build of the JSON library keeps.
        let mut schema = serde_json::to_value(&schema).unwrap();
        schema.sort_all_objects();
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::create_dir_all(root().join("schemas/v1")).unwrap();
            fs::write(path(name), &text).unwrap();
        }
        let committed = fs::read_to_string(path(name)).unwrap_or_default();
        assert!(
            committed == text,
            "{} differs from the types: run the tests of this package with UPDATE_SCHEMAS=1 and look at the difference",
            path(name).display()
        );
    }
    let count = fs::read_dir(root().join("schemas/v1")).unwrap().count();
    assert_eq!(count, all().len(), "a schema without a type");
}

fn validator(name: &str) -> Validator {
    let text = fs::read_to_string(path(name)).unwrap();
    jsonschema::validator_for(&serde_json::from_str(&text).unwrap()).unwrap()
}

fn assert_valid(validator: &Validator, document: &str, what: &str) {
    let document: Value = serde_json::from_str(document).unwrap();
    let problems: Vec<String> =
        validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(problems.is_empty(), "{what}: {problems:?}");
}

fn golden() -> PathBuf {
    root().join("fixtures/records/v1/clearstream-40ge")
}

/// Written once, never rewritten: every later version must read it.
#[test]
fn the_golden_record_is_read() {
    let reader = Reader::open(&golden()).unwrap();
    assert_eq!(reader.run().study.name, "clearstream-40ge");
    let trials: Vec<TrialDocument> = reader.trials().unwrap().collect::<Result<_, _>>().unwrap();
    let mut kinds = [0; 4];
    for trial in &trials {
        let samples: Vec<Interval> = reader.samples(trial).unwrap().collect::<Result<_, _>>().unwrap();
        match &trial.outcome {
            TrialOutcome::Inspect => kinds[0] += 1,
            TrialOutcome::Probe(_) => kinds[1] += 1,
            TrialOutcome::Gateways(_) => panic!("a study without gateways"),
            TrialOutcome::Failed(_) => kinds[2] += 1,
            TrialOutcome::Flow(summary) => {
                kinds[3] += 1;
                assert!(summary.goodput_bps > 0.0);
                assert!(!samples.is_empty(), "trial {}", trial.trial);
            }
        }
    }
    assert!(kinds.iter().all(|count| *count > 0), "every kind of trial: {kinds:?}");
    assert!(reader.capture(Side::Client).is_none());
}

#[test]
fn the_golden_record_keeps_to_the_schemas() {
    let read = |name: &str| fs::read_to_string(golden().join(name)).unwrap();
    assert_valid(&validator("run"), &read("run.json"), "run.json");
    let trial = validator("trial");
    for (line, text) in read("trials.jsonl").lines().enumerate() {
        assert_valid(&trial, text, &format!("trials.jsonl line {}", line + 1));
    }
    let interval = validator("interval");
    for entry in fs::read_dir(golden().join("samples")).unwrap() {
        let path = entry.unwrap().path();
        for text in fs::read_to_string(&path).unwrap().lines() {
            assert_valid(&interval, text, &path.display().to_string());
        }
    }
}

/// The validator is not asleep.
#[test]
fn a_wrong_document_is_refused_by_its_schema() {
    let document: Value =
        serde_json::from_str(&fs::read_to_string(golden().join("run.json")).unwrap()).unwrap();
    let run = validator("run");
    for (key, value) in [("seed", Value::from("one")), ("study", Value::Null), ("client", Value::from(1))] {
        let mut wrong = document.clone();
        wrong[key] = value;
        assert!(!run.is_valid(&wrong), "{key}");
    }
}
