//! The journal of one plan: old values, new values, progress. JSON Lines. The first
//! line holds everything that a restore needs and is on disk before the first
//! change; the others are marks that are appended.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use clearstream_schema::plan::{Effect, JournalState, Setting, Value};
use clearstream_sys::document;
use serde::{Deserialize, Serialize};

use crate::{Identity, PlanError, families::same_or_absent};

pub(crate) const SCHEMA: &str = "clearstream.plan-journal";
pub(crate) const VERSION: u32 = 1;
/// Of the names of journals.
pub(crate) const EXTENSION: &str = "jsonl";
/// Maximum size. The largest plans are documents ([`document::DOCUMENT_BYTES`]) that name some ten thousand settings, a
/// few hundred bytes each.
const LARGEST_JOURNAL_BYTES: u64 = 16 << 20;
/// Maximum size of the first line, so that there is room for the marks: they are shorter than the changes.
pub(crate) const LARGEST_HEAD_BYTES: usize = 8 << 20;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Head {
    pub(crate) schema: String,
    pub(crate) version: u32,
    /// RFC 3339, UTC.
    pub(crate) time: String,
    pub(crate) purpose: String,
    pub(crate) identity: Identity,
    /// The journal that this plan reverts, as soon as it is confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reverts: Option<String>,
    /// Interfaces of its settings by name, each with what stays when it gets another name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) interfaces: BTreeMap<String, String>,
    /// In the order of writing.
    pub(crate) changes: Vec<Change>,
}

/// A setting with the value before and after. If both are equal, the plan did not
/// need to change it: it is here because the kernel may couple it to another one,
/// and reverting that one must not leave it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub(crate) struct Change {
    pub(crate) setting: Setting,
    /// Absent where nothing was there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<Value>,
    /// Absent if the plan removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new: Option<Value>,
    /// For a later verification of whether it is effective.
    pub(crate) effect: Effect,
}

/// The same as it is read: the setting tells what its texts mean.
#[derive(Deserialize)]
#[serde(rename = "Change")]
struct Written {
    setting: Setting,
    #[serde(default)]
    old: Option<String>,
    #[serde(default)]
    new: Option<String>,
    effect: Effect,
}

impl From<Written> for Change {
    fn from(Written { setting, old, new, effect }: Written) -> Self {
        let value = |text: Option<String>| text.map(|text| Value::of(&setting, &text));
        Self { old: value(old), new: value(new), setting, effect }
    }
}

impl Change {
    /// The plan had nothing to change here.
    pub(crate) fn was_right(&self) -> bool {
        same_or_absent(&self.setting, self.old.as_ref(), self.new.as_ref())
    }
}

/// The lines after the first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mark {
    /// The change of this index is about to be written.
    Writing(usize),
    /// All changes are made and read back.
    Applied,
    /// From here on old values are restored.
    Reverting {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        force: bool,
        /// Indices of settings that needed no change and have another value now:
        /// changed by others, and left so.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_alone: Vec<usize>,
    },
    /// All old values are restored.
    Reverted,
}

/// A journal as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) head: Head,
    pub(crate) marks: Vec<Mark>,
    /// Size when it was last read or written by this process; absent where it is
    /// known from memory alone.
    size_bytes: Option<u64>,
}

impl Journal {
    /// A journal whose file cannot be read: what it began with is known.
    pub(crate) fn remembered(name: &str, folder: &Path, head: Head) -> Self {
        let path = folder.join(format!("{name}.{EXTENSION}"));
        Self { name: name.to_owned(), path, head, marks: Vec::new(), size_bytes: None }
    }

    pub(crate) fn state(&self) -> JournalState {
        match self.marks.iter().rev().find(|mark| !matches!(mark, Mark::Writing(_))) {
            None => JournalState::Applying,
            Some(Mark::Reverted) => JournalState::Reverted,
            Some(Mark::Reverting { .. }) => JournalState::Reverting,
            Some(Mark::Applied | Mark::Writing(_)) => JournalState::Applied,
        }
    }

    /// It has neither ended in after nor in before.
    pub(crate) fn is_interrupted(&self) -> bool {
        matches!(self.state(), JournalState::Applying | JournalState::Reverting)
    }

    /// Why it was reverted, if the user did not request it.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.marks.iter().rev().find_map(|mark| match mark {
            Mark::Reverting { reason, .. } => reason.as_deref(),
            _ => None,
        })
    }

    /// Settings that the begun revert leaves alone.
    pub(crate) fn left_alone(&self) -> Vec<usize> {
        let begun = self.marks.iter().rev().find_map(|mark| match mark {
            Mark::Reverting { left_alone, .. } => Some(left_alone.clone()),
            _ => None,
        });
        begun.unwrap_or_default()
    }

    /// Whether the begun revert is forced.
    pub(crate) fn is_forced(&self) -> bool {
        self.marks.iter().any(|mark| matches!(mark, Mark::Reverting { force: true, .. }))
    }

    /// The change that was being written last: its live text may be anything.
    pub(crate) fn last_written(&self) -> Option<usize> {
        self.marks.iter().rev().find_map(|mark| match mark {
            Mark::Writing(index) => Some(*index),
            _ => None,
        })
    }

    /// Creates the file: complete and synced under another name first, then
    /// renamed, then the folder synced, so that a journal with its final name is
    /// complete.
    pub(crate) fn create(
        path: PathBuf,
        name: String,
        head: Head,
        begun: impl FnOnce(),
    ) -> Result<Self, PlanError> {
        let unfinished = path.with_extension("new");
        let mut line = clearstream_schema::json::to_string(&head).unwrap_or_default();
        if line.len() > LARGEST_HEAD_BYTES {
            return Err(PlanError::TooLarge { bytes: line.len(), limit_bytes: LARGEST_HEAD_BYTES });
        }
        line.push('\n');
        let write = || {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        write().map_err(unusable("write the journal", &unfinished))?;
        begun();
        fs::rename(&unfinished, &path).map_err(unusable("name the journal", &path))?;
        sync_folder_of(&path)?;
        let size_bytes = Some(line.len() as u64);
        Ok(Self { name, path, head, marks: Vec::new(), size_bytes })
    }

    /// Adds a mark, synced. A torn line that a crash left is ended first. Fails when
    /// another process has added one since: that is a guardian, which no longer waits
    /// for this process.
    pub(crate) fn mark(&mut self, mark: Mark) -> Result<(), PlanError> {
        let text = clearstream_schema::json::to_string(&mark).unwrap_or_default();
        let storage = storage("write the journal", &self.path);
        let mut file = OpenOptions::new().read(true).append(true).open(&self.path).map_err(&storage)?;
        let found = file.metadata().map_err(&storage)?.len();
        if self.size_bytes.is_some_and(|known| known != found) {
            return Err(PlanError::Superseded { journal: self.name.clone() });
        }
        let write = |file: &mut File| {
            let torn = !ends_with_newline(file)?;
            let line = if torn { format!("\n{text}\n") } else { format!("{text}\n") };
            file.write_all(line.as_bytes())?;
            file.sync_data()
        };
        let written = write(&mut file);
        // Also what a full disk took of it.
        self.size_bytes = file.metadata().ok().map(|metadata| metadata.len());
        written.map_err(&storage)?;
        self.marks.push(mark);
        Ok(())
    }

    /// Reads a journal. The first line must be complete; a mark that a crash cut
    /// off is ignored, since the announced change was not begun.
    pub(crate) fn open(path: &Path, name: &str) -> Result<Self, PlanError> {
        let bytes = document::read(path, LARGEST_JOURNAL_BYTES).map_err(storage("read", path))?;
        let damaged = |reason: String| PlanError::Damaged { path: path.to_owned(), reason };
        let mut parts = bytes.splitn(2, |&byte| byte == b'\n');
        let (Some(first), Some(rest)) = (parts.next(), parts.next()) else {
            return Err(damaged("its first line is incomplete".to_owned()));
        };
        let head: Head = clearstream_schema::json::from_slice(first)
            .map_err(|error| damaged(format!("line 1: {error}")))?;
        if head.schema != SCHEMA || head.version != VERSION {
            let found = format!("line 1: schema \"{}\" version {}", head.schema, head.version);
            return Err(damaged(format!("{found}, this version reads \"{SCHEMA}\" version {VERSION}")));
        }
        let mut marks = Vec::new();
        // One after the other: newlines alone would be a list of many times their size.
        let lines = rest.split(|&byte| byte == b'\n').enumerate();
        for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
            match clearstream_schema::json::from_slice(line) {
                Ok(Mark::Writing(step)) if step >= head.changes.len() => {
                    return Err(damaged(format!("line {}: there is no change {step}", index + 2)));
                }
                Ok(mark) => marks.push(mark),
                Err(error) if is_torn(&error, line) => {}
                Err(error) => return Err(damaged(format!("line {}: {error}", index + 2))),
            }
        }
        let size_bytes = Some(bytes.len() as u64);
        Ok(Self { name: name.to_owned(), path: path.to_owned(), head, marks, size_bytes })
    }
}

/// The line ends too early, as an interrupted write leaves it; anything else
/// was not written by this program.
fn is_torn(error: &serde_json::Error, line: &[u8]) -> bool {
    error.is_eof() && line.first().is_some_and(|byte| matches!(byte, b'"' | b'{'))
}

/// Looks at the last byte only: a journal may be large.
fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

pub(crate) fn sync_folder_of(path: &Path) -> Result<(), PlanError> {
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

pub(crate) fn sync_folder(folder: &Path) -> Result<(), PlanError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(storage("sync", folder))
}

pub(crate) fn storage(step: &'static str, path: &Path) -> impl Fn(io::Error) -> PlanError {
    let path = path.to_owned();
    move |source| PlanError::Storage { step, path: path.clone(), source }
}

/// An error of a folder in which no journal can be begun: another one would do.
pub(crate) fn unusable(step: &'static str, path: &Path) -> impl Fn(io::Error) -> PlanError {
    let path = path.to_owned();
    move |source| PlanError::Folder { step, path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A mark does not read what is before it: this file is larger than any memory.
    #[test]
    fn a_mark_ends_a_torn_line_without_reading_the_journal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("huge.jsonl");
        let size = 1_u64 << 40;
        File::create(&path).unwrap().set_len(size).unwrap();
        let mut journal = Journal {
            name: "huge".to_owned(),
            path: path.clone(),
            head: head(""),
            marks: Vec::new(),
            size_bytes: Some(size),
        };
        journal.mark(Mark::Writing(0)).unwrap();
        let mut added = String::new();
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(size)).unwrap();
        file.read_to_string(&mut added).unwrap();
        assert_eq!(added, "\n{\"writing\":0}\n");
    }

    fn head(purpose: &str) -> Head {
        let identity = json!({"name": "", "kernel": "", "boot": ""});
        let head = json!({
            "schema": SCHEMA, "version": VERSION, "time": "", "purpose": purpose, "changes": [],
            "identity": identity,
        });
        clearstream_schema::json::from_value(head).unwrap()
    }

    /// What is written is read back, and what could not be read back is not begun.
    #[test]
    fn a_journal_that_would_be_too_large_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("one.jsonl");
        let begin =
            |length: usize| Journal::create(path.clone(), "one".to_owned(), head(&"x".repeat(length)), || ());
        let error = begin(LARGEST_HEAD_BYTES).unwrap_err();
        assert!(error.to_string().contains("split the plan"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        begin(LARGEST_HEAD_BYTES - 1000).unwrap();
        assert_eq!(Journal::open(&path, "one").unwrap().head.purpose.len(), LARGEST_HEAD_BYTES - 1000);
        OpenOptions::new().write(true).open(&path).unwrap().set_len(LARGEST_JOURNAL_BYTES + 1).unwrap();
        let error = Journal::open(&path, "one").unwrap_err();
        assert!(error.to_string().contains("larger than 16 MiB"), "{error}");
    }
}
