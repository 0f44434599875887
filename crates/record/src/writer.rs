//! Writing a run folder.

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use clearstream_schema::{
    notice::Notice,
    record::{RunDocument, TrialDocument},
};
use clearstream_sys::{
    file,
    writer_lock::{LockError, WriterLock},
};
use serde::Serialize;

use crate::{
    Reader, RecordError, Records,
    file::{replace, replace_with, sync_folder},
    reader::sample_name,
};

/// The lock of a run folder's writer.
const LOCK: &str = ".writer";

/// A run folder being written, by nobody else meanwhile. A trial is on disk when [`Writer::trial`] returns.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    run: RunDocument,
    trials: File,
    trials_path: PathBuf,
    _lock: WriterLock,
}

impl Writer {
    /// Starts a run in a folder without one; the folder is created if needed.
    pub fn create(folder: &Path, run: RunDocument) -> Result<Self, RecordError> {
        // Without run.json there is nothing to resume.
        Self::start(folder, run).map_err(RecordError::before_the_run)
    }

    fn start(folder: &Path, run: RunDocument) -> Result<Self, RecordError> {
        let make =
            |path: &Path| file::make_folders(path, 0o777).map_err(|source| RecordError::write(path, source));
        make(folder)?;
        // Of two that start at once the second sees a writer, or what it has written.
        let lock = lock(folder)?;
        if folder.join("run.json").exists() {
            return Err(RecordError::Exists { path: folder.to_owned() });
        }
        for part in ["samples", "hosts"] {
            make(&folder.join(part))?;
        }
        let writer = Self::append(folder, run, lock)?;
        writer.save()?;
        Ok(writer)
    }

    /// Resumes a run. Trials that failed or are incomplete are removed so that they can be repeated; `kept`
    /// receives every trial that stays.
    pub fn resume(folder: &Path, kept: &mut dyn FnMut(TrialDocument)) -> Result<Self, RecordError> {
        // A folder without a run gets no lock.
        Reader::open(folder)?;
        let lock = lock(folder)?;
        let reader = Reader::open(folder)?;
        let path = folder.join("trials.jsonl");
        replace_with(&path, |output| keep_complete(&reader, &path, output, kept))?;
        let mut run = reader.run().clone();
        run.ended = None;
        let writer = Self::append(folder, run, lock)?;
        writer.save()?;
        Ok(writer)
    }

    fn append(folder: &Path, run: RunDocument, lock: WriterLock) -> Result<Self, RecordError> {
        let trials_path = folder.join("trials.jsonl");
        let trials = file::append(&trials_path).map_err(|source| RecordError::write(&trials_path, source))?;
        Ok(Self { folder: folder.to_owned(), run, trials, trials_path, _lock: lock })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The current run document.
    pub fn run(&self) -> &RunDocument {
        &self.run
    }

    /// Adds a notice about the whole run, once per identity and text.
    pub fn notice(&mut self, notice: Notice) -> Result<(), RecordError> {
        if self.run.notices.contains(&notice) {
            return Ok(());
        }
        self.run.notices.push(notice);
        self.save()
    }

    /// Stores the bundle of a host, by its index in the run document.
    pub fn capture(&mut self, host: usize, bundle: &[u8]) -> Result<(), RecordError> {
        let Some(described) = self.run.hosts.get(host) else { return Ok(()) };
        // Roles are short identifiers; several hosts of one role are distinguished by their index.
        let first = self.run.hosts.iter().position(|other| other.role == described.role) == Some(host);
        let name = match first {
            true => format!("hosts/{}.tar.gz", described.role),
            false => format!("hosts/{}-{host}.tar.gz", described.role),
        };
        replace(&self.folder.join(&name), bundle)?;
        if let Some(described) = self.run.hosts.get_mut(host) {
            described.capture = Some(name);
        }
        self.save()
    }

    /// Opens the samples file of a trial; samples of an earlier attempt are replaced.
    pub fn samples(&self, trial: u32) -> Result<SampleWriter, RecordError> {
        let name = sample_name(trial);
        let path = self.folder.join(&name);
        let file = file::create(&path).map_err(|source| RecordError::write(&path, source))?;
        Ok(SampleWriter { name, path, file: BufWriter::new(file), count: 0 })
    }

    /// Appends a finished trial and syncs it.
    pub fn trial(&mut self, trial: &TrialDocument) -> Result<(), RecordError> {
        let fail = |source| RecordError::write(&self.trials_path, source);
        self.trials.write_all(&line(trial, &self.trials_path)?).map_err(fail)?;
        self.trials.sync_data().map_err(fail)
    }

    /// Ends the run.
    pub fn finish(mut self, ended: String) -> Result<PathBuf, RecordError> {
        self.run.ended = Some(ended);
        self.save()?;
        Ok(self.folder)
    }

    fn save(&self) -> Result<(), RecordError> {
        let path = self.folder.join("run.json");
        let mut text = clearstream_schema::json::to_string_pretty(&self.run)
            .map_err(|error| RecordError::write(&path, error.into()))?;
        text.push('\n');
        replace(&path, text.as_bytes())
    }
}

/// Writer of the samples of one trial.
#[derive(Debug)]
pub struct SampleWriter {
    name: String,
    path: PathBuf,
    file: BufWriter<File>,
    count: u64,
}

impl SampleWriter {
    /// Appends one JSON document without a newline; it survives the death of this process.
    pub fn write(&mut self, json: &str) -> Result<(), RecordError> {
        let fail = |source| RecordError::write(&self.path, source);
        self.file.write_all(json.as_bytes()).map_err(fail)?;
        self.file.write_all(b"\n").map_err(fail)?;
        self.file.flush().map_err(fail)?;
        self.count += 1;
        Ok(())
    }

    /// Number of documents written.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Syncs the file and returns its name relative to the run folder.
    pub fn finish(self) -> Result<String, RecordError> {
        let Self { name, path, file, .. } = self;
        let fail = |source| RecordError::write(&path, source);
        let file = file.into_inner().map_err(|error| fail(error.into_error()))?;
        file.sync_data().map_err(fail)?;
        sync_folder(path.parent().unwrap_or(Path::new(".")))?;
        Ok(name)
    }
}

/// Takes the lock of a folder's writer.
pub(crate) fn lock(folder: &Path) -> Result<WriterLock, RecordError> {
    let path = folder.join(LOCK);
    WriterLock::take(&path).map_err(|error| match error {
        LockError::Held { process } => RecordError::Busy { path: folder.to_owned(), process },
        LockError::File(source) => RecordError::write(&path, source),
    })
}

/// Copies the trials that need not be repeated.
fn keep_complete(
    reader: &Reader,
    path: &Path,
    output: &mut File,
    kept: &mut dyn FnMut(TrialDocument),
) -> Result<(), RecordError> {
    let fail = |source| RecordError::write(path, source);
    let mut output = BufWriter::new(output);
    let mut trials: Records<TrialDocument> = reader.trials()?;
    while let Some(trial) = trials.next() {
        let trial = trial?;
        if trial.outcome.is_complete() {
            output.write_all(trials.text().trim_ascii_end()).map_err(fail)?;
            output.write_all(b"\n").map_err(fail)?;
            kept(trial);
        }
    }
    output.flush().map_err(fail)
}

fn line(document: &impl Serialize, path: &Path) -> Result<Vec<u8>, RecordError> {
    let mut text =
        clearstream_schema::json::to_vec(document).map_err(|error| RecordError::write(path, error.into()))?;
    text.push(b'\n');
    Ok(text)
}
