//! The runs of a folder. Whatever is in it may come from elsewhere: each run is read anew, and what cannot be read is no
//! run.

use std::{
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
};

use clearstream_schema::JsonSchema;
use clearstream_schema::record::RUN_SCHEMA;
use clearstream_sys::document;
use serde::{Deserialize, Serialize};

use crate::{MAX_LINE_BYTES, RecordError, reader::RUN_BYTES};

/// A file of this name in a run folder keeps it from being pruned.
pub const KEEP: &str = "keep";
/// The file of a run folder with the result of its check against a reference.
pub const CHECK: &str = "check.json";

/// A run of a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CatalogueEntry {
    /// Name of its folder.
    pub name: String,
    /// Name of the study.
    pub study: String,
    /// `quick`, `standard` or `full`.
    pub mode: String,
    /// Start, RFC 3339 in UTC.
    pub started: String,
    /// End; absent while it runs, or when it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Hosts, in their order.
    pub hosts: Vec<String>,
    /// Trials planned.
    pub planned_trial_count: u32,
    /// Trials in the record, failed ones included.
    pub trial_count: u64,
    /// Version of the program.
    pub program_version: String,
    /// Whether its check against a reference passed; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// A file `keep` is in the folder.
    pub kept: bool,
}

/// What the catalogue needs of `run.json`.
#[derive(Deserialize)]
struct Head {
    schema: String,
    started: String,
    ended: Option<String>,
    program_version: String,
    mode: String,
    study: HeadStudy,
    #[serde(default)]
    hosts: Vec<HeadHost>,
    planned_trial_count: u32,
}

#[derive(Deserialize)]
struct HeadStudy {
    name: String,
}

#[derive(Deserialize)]
struct HeadHost {
    name: String,
}

/// All runs in a folder, the newest first. What is no run is left out.
///
/// # Errors
/// The folder cannot be read.
pub fn catalogue(folder: &Path) -> Result<Vec<CatalogueEntry>, RecordError> {
    let fail = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => RecordError::NoFolder { path: folder.to_owned() },
        _ => RecordError::read(folder, source),
    };
    let mut entries = Vec::new();
    for item in fs::read_dir(folder).map_err(fail)? {
        let item = item.map_err(fail)?;
        // A link could lead anywhere.
        if item.file_type().is_ok_and(|kind| kind.is_dir()) {
            entries.extend(read(&item.path(), &item.file_name().to_string_lossy()));
        }
    }
    entries.sort_by(|one, two| two.started.cmp(&one.started).then_with(|| two.name.cmp(&one.name)));
    Ok(entries)
}

fn read(path: &Path, name: &str) -> Option<CatalogueEntry> {
    let text = document::read(&path.join("run.json"), RUN_BYTES).ok()?;
    let head: Head = serde_json::from_slice(&text).ok()?;
    (head.schema == RUN_SCHEMA).then_some(())?;
    Some(CatalogueEntry {
        name: name.to_owned(),
        study: head.study.name,
        mode: head.mode,
        started: head.started,
        ended: head.ended,
        hosts: head.hosts.into_iter().map(|host| host.name).collect(),
        planned_trial_count: head.planned_trial_count,
        trial_count: lines(&path.join("trials.jsonl"))?,
        program_version: head.program_version,
        passed: check_result(path),
        kept: path.join(KEEP).exists(),
    })
}

/// Whether the check of a run against a reference passed; absent where there was none.
pub fn check_result(run: &Path) -> Option<bool> {
    #[derive(Deserialize)]
    struct Result {
        passed: bool,
    }
    let text = document::read(&run.join(CHECK), document::DOCUMENT_BYTES).ok()?;
    clearstream_schema::json::from_slice::<Result>(&text).ok().map(|result| result.passed)
}

/// Whole lines of a file; the last one of a killed run may be torn. `None` where a line is longer than any of a record,
/// or the file is none.
fn lines(path: &Path) -> Option<u64> {
    let mut file = match document::open(path) {
        Ok(file) => file,
        Err(error) => return (error.kind() == std::io::ErrorKind::NotFound).then_some(0),
    };
    let (mut buffer, mut count, mut length) = (vec![0; 1 << 16], 0, 0);
    loop {
        let read = file.read(&mut buffer).ok()?;
        let bytes = buffer.get(..read)?;
        let mut pieces = bytes.split(|byte| *byte == b'\n').map(<[u8]>::len);
        length += pieces.next()?;
        for piece in pieces {
            count += 1;
            length = piece;
        }
        if bytes.is_empty() {
            return Some(count);
        }
        (length <= MAX_LINE_BYTES).then_some(())?;
    }
}

/// Removes the folder of a run. Under another name first: a removal that is interrupted leaves no half of a record.
///
/// # Errors
/// It is no folder with a `run.json`, is being written, or cannot be removed.
pub fn remove(folder: &Path, name: &str) -> Result<(), RecordError> {
    let path = folder.join(name);
    let fail = |source| RecordError::write(&path, source);
    let found = fs::symlink_metadata(&path).map_err(fail)?;
    if !found.is_dir() || !path.join("run.json").is_file() {
        return Err(fail(std::io::Error::other("it is no run folder")));
    }
    // A run that is being written is nobody's to remove.
    let _lock = crate::writer::lock(&path)?;
    let removed: PathBuf = folder.join(format!(".removed-{name}"));
    fs::rename(&path, &removed).map_err(fail)?;
    fs::remove_dir_all(&removed).map_err(|source| RecordError::write(&removed, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(folder: &Path, name: &str, started: &str, ended: bool) {
        let path = folder.join(name);
        fs::create_dir(&path).unwrap();
        let ended = if ended { ",\"ended\":\"2026-11-24T10:00:00Z\"" } else { "" };
        let text = format!(
            "{{\"schema\":\"clearstream.run\",\"version\":2,\"id\":\"{name}\",\"started\":\"{started}\"{ended},\
             \"program_version\":\"0.1.0\",\"mode\":\"quick\",\"seed\":1,\"study\":{{\"name\":\"nightly\",\"x\":[]}},\
             \"hosts\":[{{\"name\":\"dtn1\",\"report\":{{\"big\":[1,2,3]}}}}],\"planned_trial_count\":4}}"
        );
        fs::write(path.join("run.json"), text).unwrap();
        fs::write(path.join("trials.jsonl"), "{}\n{}\n{\"torn").unwrap();
    }

    #[test]
    fn runs_are_listed_newest_first_and_what_is_none_is_not() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), "b", "2026-11-23T10:00:00Z", true);
        run(folder.path(), "a", "2026-11-24T09:00:00Z", false);
        fs::create_dir(folder.path().join("other")).unwrap();
        fs::create_dir(folder.path().join("broken")).unwrap();
        fs::write(folder.path().join("broken/run.json"), "{").unwrap();
        std::os::unix::fs::symlink(folder.path().join("b"), folder.path().join("link")).unwrap();
        let found = catalogue(folder.path()).unwrap();
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((found[0].trial_count, found[0].ended.is_none()), (2, true));
        assert_eq!(
            (found[1].study.as_str(), found[1].hosts.as_slice()),
            ("nightly", &["dtn1".to_owned()][..])
        );
        assert!(catalogue(&folder.path().join("nowhere")).is_err());
    }

    /// What lies in the folder of runs says nothing about them.
    #[test]
    fn every_run_is_read_anew() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), "a", "2026-11-24T09:00:00Z", false);
        let first = catalogue(folder.path()).unwrap();
        fs::write(folder.path().join("a/trials.jsonl"), "{}\n{}\n{}\n").unwrap();
        fs::write(folder.path().join("a").join(KEEP), "").unwrap();
        fs::write(folder.path().join("a").join(CHECK), "{\"passed\":true}").unwrap();
        let second = catalogue(folder.path()).unwrap();
        let told = |entry: &CatalogueEntry| (entry.trial_count, entry.passed, entry.kept);
        assert_eq!((told(&first[0]), told(&second[0])), ((2, None, false), (3, Some(true), true)));
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        assert_eq!(catalogue(folder.path()).unwrap(), []);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
    }

    #[test]
    fn files_that_never_end_are_no_record() {
        let folder = tempfile::tempdir().unwrap();
        for (name, file) in [("a", "run.json"), ("b", "trials.jsonl"), ("c", CHECK)] {
            run(folder.path(), name, "2026-11-24T09:00:00Z", true);
            let path = folder.path().join(name).join(file);
            let _ = fs::remove_file(&path);
            std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        }
        run(folder.path(), "d", "2026-11-24T09:00:00Z", true);
        fs::File::create(folder.path().join("d/trials.jsonl")).unwrap().set_len(8 << 30).unwrap();
        let found = catalogue(folder.path()).unwrap();
        assert_eq!(
            found.iter().map(|one| (one.name.as_str(), one.passed)).collect::<Vec<_>>(),
            [("c", None)]
        );
    }

    #[test]
    fn only_run_folders_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), "a", "2026-11-24T09:00:00Z", true);
        fs::create_dir(folder.path().join("data")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("a"), folder.path().join("link")).unwrap();
        for name in ["data", "link", "nowhere"] {
            assert!(remove(folder.path(), name).is_err(), "{name}");
        }
        remove(folder.path(), "a").unwrap();
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["data", "link"]);
    }
}
