//! Reading a run folder.

use std::path::{Component, Path, PathBuf};

use clearstream_schema::record::{RECORD_VERSION, RUN_SCHEMA, RunDocument, TrialDocument};
use clearstream_sys::document;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{RecordError, Records};

/// Maximum size of `run.json`: it holds two hosts and the schedule.
pub(crate) const RUN_BYTES: u64 = 64 << 20;

/// A run folder opened for reading. Only `run.json` is held in memory; trials and samples are streamed, any
/// number of times.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    run: RunDocument,
}

impl Reader {
    /// Opens a run folder.
    pub fn open(folder: &Path) -> Result<Self, RecordError> {
        let path = folder.join("run.json");
        let text = document::read(&path, RUN_BYTES).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => RecordError::NoRun { path: folder.to_owned() },
            _ => RecordError::read(&path, source),
        })?;
        let malformed = |error: serde_json::Error| RecordError::Malformed {
            path: path.clone(),
            line: error.line() as u64,
            message: error.to_string(),
        };
        // Version first: another one may have another structure.
        let untyped: Value = clearstream_schema::json::from_slice(&text).map_err(malformed)?;
        let schema = untyped.get("schema").and_then(Value::as_str).unwrap_or("unknown format").to_owned();
        let version = untyped.get("version").and_then(Value::as_u64).unwrap_or(0);
        let (expected, known) = (RUN_SCHEMA, RECORD_VERSION);
        if schema != expected || version != u64::from(known) {
            return Err(RecordError::Version { path, schema, version, expected, known });
        }
        // Parsed from the text, so that an error has its line.
        let run = clearstream_schema::json::from_slice(&text).map_err(malformed)?;
        Ok(Self { folder: folder.to_owned(), run })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// `run.json`.
    pub fn run(&self) -> &RunDocument {
        &self.run
    }

    /// The trials in the order they ended.
    pub fn trials(&self) -> Result<Records<TrialDocument>, RecordError> {
        Records::open(&self.folder.join("trials.jsonl"))
    }

    /// Samples of a trial, one per interval; empty when there are none.
    pub fn samples<T: DeserializeOwned>(&self, trial: &TrialDocument) -> Result<Records<T>, RecordError> {
        let name = trial.samples.clone().unwrap_or_else(|| sample_name(trial.trial));
        // Names in a foreign record must not lead out of it.
        if !is_inside(&name) {
            return Err(RecordError::Outside { trial: trial.trial, name });
        }
        Records::open(&self.folder.join(name))
    }

    /// The capture of the host of a role, if any.
    pub fn capture(&self, role: &str) -> Option<PathBuf> {
        let name = self.run.hosts.iter().find(|host| host.role == role)?.capture.as_deref()?;
        let path = self.folder.join(name);
        (is_inside(name) && path.is_file()).then_some(path)
    }
}

/// Whether a name refers to a file in the run folder.
fn is_inside(name: &str) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Samples file of a trial, relative to the run folder.
pub(crate) fn sample_name(trial: u32) -> String {
    format!("samples/{trial:06}.jsonl")
}
