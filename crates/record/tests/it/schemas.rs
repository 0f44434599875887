//! Records stay readable and match the committed schemas (generated from the types by
//! `crates/clearstream/tests/it/schemas.rs`).

use std::{
    fs,
    path::{Path, PathBuf},
};

use clearstream_record::{Reader, Writer};
use clearstream_schema::{
    flow::{FLOW_SUMMARY_SCHEMA, FlowSummary, Interval},
    probe::{PROBE_SUMMARY_SCHEMA, ProbeSummary},
    record::{TrialDocument, TrialOutcome},
};
use jsonschema::Validator;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Documents in version 2.
const VERSION_2: [&str; 2] = ["run", "trial"];

fn path(name: &str) -> PathBuf {
    let version = if VERSION_2.contains(&name) { 2 } else { 1 };
    root().join(format!("schemas/v{version}/{name}.schema.json"))
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
    root().join("fixtures/records/clearstream-40ge")
}

#[test]
fn the_golden_record_is_read() {
    let reader = Reader::open(&golden()).unwrap();
    assert_eq!(reader.run().study.name, "clearstream-40ge");
    let trials: Vec<TrialDocument> = reader.trials().unwrap().collect::<Result<_, _>>().unwrap();
    let mut kinds = [0; 4];
    for trial in &trials {
        let samples: Vec<Interval> = reader.samples(trial).unwrap().collect::<Result<_, _>>().unwrap();
        match (&trial.outcome, trial.workload.as_str()) {
            (TrialOutcome::Failed(_), workload) => {
                kinds[2] += 1;
                assert_eq!(workload, "flow", "as in its experiment");
            }
            (TrialOutcome::Measured(_), "inspect") => kinds[0] += 1,
            (TrialOutcome::Measured(outcome), "probe") => {
                kinds[1] += 1;
                outcome.detail::<ProbeSummary>(PROBE_SUMMARY_SCHEMA).unwrap().unwrap();
            }
            (TrialOutcome::Measured(outcome), "flow") => {
                kinds[3] += 1;
                let summary: FlowSummary = outcome.detail(FLOW_SUMMARY_SCHEMA).unwrap().unwrap();
                assert!(summary.goodput_bps > 0.0);
                assert_eq!(outcome.headline().unwrap().value, summary.goodput_bps);
                assert!(!samples.is_empty(), "trial {}", trial.trial);
            }
            (_, other) => panic!("a study without {other}"),
        }
    }
    assert!(kinds.iter().all(|count| *count > 0), "every kind of trial: {kinds:?}");
    assert!(reader.capture("client").is_none());
}

#[test]
fn the_golden_record_matches_the_schemas() {
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

/// What is read is written the same, and a resume keeps it.
#[test]
fn a_record_that_is_resumed_is_the_same_record() {
    let reader = Reader::open(&golden()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["run.json", "trials.jsonl"] {
        fs::copy(golden().join(name), folder.path().join(name)).unwrap();
    }
    let before: Vec<TrialDocument> = reader.trials().unwrap().collect::<Result<_, _>>().unwrap();
    let trial = validator("trial");
    for document in &before {
        let text = serde_json::to_string(document).unwrap();
        assert_valid(&trial, &text, &format!("trial {}", document.trial));
    }
    let mut kept = Vec::new();
    drop(Writer::resume(folder.path(), &mut |trial| kept.push(trial)).unwrap());
    let resumed = Reader::open(folder.path()).unwrap();
    let after: Vec<TrialDocument> = resumed.trials().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(after, kept);
    assert_eq!(after.len(), before.iter().filter(|trial| trial.outcome.is_complete()).count());
}

/// A record of another version is named, and nothing of it is taken for one of this.
#[test]
fn a_record_of_another_version_is_refused() {
    for version in [0, 1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let mut run: Value =
            serde_json::from_str(&fs::read_to_string(golden().join("run.json")).unwrap()).unwrap();
        run["version"] = version.into();
        fs::write(folder.path().join("run.json"), run.to_string()).unwrap();
        let message = Reader::open(folder.path()).unwrap_err().to_string();
        assert!(
            message.contains(&format!("is clearstream.run version {version}, this program reads")),
            "{message}"
        );
    }
}

/// The validator rejects invalid documents.
#[test]
fn a_wrong_document_is_rejected_by_its_schema() {
    let document: Value = serde_json::to_value(Reader::open(&golden()).unwrap().run()).unwrap();
    let run = validator("run");
    assert!(run.is_valid(&document));
    for (key, value) in [("seed", Value::from("one")), ("study", Value::Null), ("hosts", Value::from(1))] {
        let mut wrong = document.clone();
        wrong[key] = value;
        assert!(!run.is_valid(&wrong), "{key}");
    }
}
