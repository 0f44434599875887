//! Reading a run folder.

use std::path::{Component, Path, PathBuf};

use clearstream_schema::{
    flow::Interval,
    record::{RECORD_VERSION, RUN_SCHEMA, RunDocument, TrialDocument},
};
use clearstream_sys::file;
use serde_json::Value;

use crate::{RecordError, Records, Side};

/// Larger than the document of any study: it holds two hosts and the schedule.
const RUN_BYTES: u64 = 64 << 20;

/// A run folder opened for reading. Only `run.json` is held in memory; trials
/// and samples are streamed, as often as asked for.
#[derive(Debug)]
pub struct Reader {
    folder: PathBuf,
    run: RunDocument,
}

impl Reader {
    /// Opens a run folder.
    pub fn open(folder: &Path) -> Result<Self, RecordError> {
        let path = folder.join("run.json");
        let text = file::read(&path, RUN_BYTES).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => RecordError::NoRun { path: folder.to_owned() },
            _ => RecordError::read(&path, source),
        })?;
        let malformed = |error: serde_json::Error| RecordError::Malformed {
            path: path.clone(),
            line: error.line() as u64,
            message: error.to_string(),
        };
        // Version first: a later one need not have the shape of this one.
        let document: Value = serde_json::from_slice(&text).map_err(malformed)?;
        let schema = document["schema"].as_str().unwrap_or("of no format").to_owned();
        let version = document["version"].as_u64().unwrap_or(0);
        if schema != RUN_SCHEMA || version == 0 || version > u64::from(RECORD_VERSION) {
            let (expected, newest) = (RUN_SCHEMA, RECORD_VERSION);
            return Err(RecordError::Version { path, schema, version, expected, newest });
        }
        let run = serde_json::from_slice(&text).map_err(malformed)?;
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

    /// The intervals of a trial in order; none when it left no samples.
    pub fn samples(&self, trial: &TrialDocument) -> Result<Records<Interval>, RecordError> {
        let name = trial.samples.clone().unwrap_or_else(|| sample_name(trial.trial));
        // A record comes from elsewhere: its names must not lead out of it.
        if !Path::new(&name).components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(RecordError::Outside { trial: trial.trial, name });
        }
        Records::open(&self.folder.join(name))
    }

    /// The capture of a host, when one was made.
    pub fn capture(&self, side: Side) -> Option<PathBuf> {
        let path = self.folder.join(side.capture_name());
        path.is_file().then_some(path)
    }
}

/// Samples file of a trial, relative to the run folder.
pub(crate) fn sample_name(trial: u32) -> String {
    format!("samples/{trial:06}.jsonl")
}
