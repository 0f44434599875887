//! The runs of a folder, by an index: `run.json` has the hosts' whole descriptions, and thousands of them take long.
//!
//! The index is a cache, `.runs-index.json` in the folder: an entry holds for as long as size and time of its run's
//! files are the same. It may be deleted, and a folder that cannot be written works without.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use clearstream_schema::JsonSchema;
use clearstream_schema::record::RUN_SCHEMA;
use serde::{Deserialize, Serialize};

use crate::{RecordError, file::replace};

const INDEX: &str = ".runs-index.json";
/// Raised where an entry changes: the index of another version is made anew.
const VERSION: u32 = 1;
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

#[derive(Default, Serialize, Deserialize)]
struct Index {
    version: u32,
    runs: BTreeMap<String, Indexed>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Indexed {
    /// Size and modification time of `run.json`, `trials.jsonl` and `check.json`.
    files: [Option<(u64, i64, i64)>; 3],
    entry: CatalogueEntry,
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
    let fail = |source| RecordError::read(folder, source);
    let place = folder.join(INDEX);
    let known =
        fs::read(&place).ok().and_then(|text| clearstream_schema::json::from_slice::<Index>(&text).ok());
    let known = known.filter(|index| index.version == VERSION).unwrap_or_default().runs;
    let mut runs = BTreeMap::new();
    for item in fs::read_dir(folder).map_err(fail)? {
        let item = item.map_err(fail)?;
        // A link could lead anywhere.
        if !item.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let name = item.file_name().to_string_lossy().into_owned();
        let path = item.path();
        let files = ["run.json", "trials.jsonl", CHECK].map(|file| stamp(&path.join(file)));
        if files[0].is_none() {
            continue;
        }
        let kept = path.join(KEEP).exists();
        let entry = match known.get(&name).filter(|one| one.files == files) {
            Some(one) => Some(CatalogueEntry { kept, ..one.entry.clone() }),
            None => read(&path, &name, kept),
        };
        runs.extend(entry.map(|entry| (name, Indexed { files, entry })));
    }
    if runs != known {
        let index = Index { version: VERSION, runs: runs.clone() };
        // Without the index the next listing takes longer.
        let _ = clearstream_schema::json::to_vec(&index).map(|text| replace(&place, &text));
    }
    let mut entries: Vec<CatalogueEntry> = runs.into_values().map(|one| one.entry).collect();
    entries.sort_by(|one, two| two.started.cmp(&one.started).then_with(|| two.name.cmp(&one.name)));
    Ok(entries)
}

fn stamp(path: &Path) -> Option<(u64, i64, i64)> {
    let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((found.size(), found.mtime(), found.mtime_nsec()))
}

fn read(path: &Path, name: &str, kept: bool) -> Option<CatalogueEntry> {
    let file = fs::File::open(path.join("run.json")).ok()?;
    let head: Head = serde_json::from_reader(BufReader::new(file)).ok()?;
    (head.schema == RUN_SCHEMA).then(|| CatalogueEntry {
        name: name.to_owned(),
        study: head.study.name,
        mode: head.mode,
        started: head.started,
        ended: head.ended,
        hosts: head.hosts.into_iter().map(|host| host.name).collect(),
        planned_trial_count: head.planned_trial_count,
        trial_count: lines(&path.join("trials.jsonl")),
        program_version: head.program_version,
        passed: check_result(path),
        kept,
    })
}

/// Whether the check of a run against a reference passed; absent where there was none.
pub fn check_result(run: &Path) -> Option<bool> {
    #[derive(Deserialize)]
    struct Result {
        passed: bool,
    }
    let text = fs::read(run.join(CHECK)).ok()?;
    clearstream_schema::json::from_slice::<Result>(&text).ok().map(|result| result.passed)
}

/// Whole lines of a file; the last one of a killed run may be torn.
fn lines(path: &Path) -> u64 {
    let Ok(mut file) = fs::File::open(path) else { return 0 };
    let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
    while let Ok(length @ 1..) = file.read(&mut buffer) {
        count += buffer[..length].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    count
}

/// Removes the folder of a run. Under another name first: a removal that is interrupted leaves no half of a record.
///
/// # Errors
/// It is no folder with a `run.json`, is being written, or cannot be removed.
pub fn remove(folder: &Path, name: &str) -> Result<(), RecordError> {
    let path = folder.join(name);
    let fail = |source| RecordError::write(&path, source);
    let found = fs::symlink_metadata(&path).map_err(fail)?;
    if !found.is_dir() || stamp(&path.join("run.json")).is_none() {
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

    /// Entries of unchanged files come out of the index; changed files, another version and rubbish do not.
    #[test]
    fn the_index_is_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), "a", "2026-11-24T09:00:00Z", false);
        let first = catalogue(folder.path()).unwrap();
        let place = folder.path().join(INDEX);
        let text = fs::read_to_string(&place).unwrap();
        fs::write(&place, text.replace("\"nightly\"", "\"indexed\"")).unwrap();
        assert_eq!(catalogue(folder.path()).unwrap()[0].study, "indexed", "read from the index");
        fs::write(folder.path().join("a/trials.jsonl"), "{}\n{}\n{}\n").unwrap();
        let changed = catalogue(folder.path()).unwrap();
        assert_eq!((changed[0].study.as_str(), changed[0].trial_count), ("nightly", 3));
        for rubbish in ["", "{", "{\"version\":99,\"runs\":{}}"] {
            fs::write(&place, rubbish).unwrap();
            assert_eq!(catalogue(folder.path()).unwrap(), changed, "{rubbish}");
        }
        fs::write(folder.path().join("a").join(KEEP), "").unwrap();
        assert!(catalogue(folder.path()).unwrap()[0].kept && !first[0].kept);
        fs::remove_dir_all(folder.path().join("a")).unwrap();
        assert_eq!(catalogue(folder.path()).unwrap(), []);
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
