//! A run folder written, read, torn, resumed and filled up.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, lchown, symlink},
    path::Path,
    process::Command,
};

use clearstream_record::{MAX_LINE_BYTES, Reader, RecordError, Writer, synthetic};
use clearstream_schema::{
    flow::{FLOW_SUMMARY_SCHEMA, FlowSummary, Interval},
    host::{HOST_SCHEMA, HostReport},
    record::{TrialDocument, TrialOutcome},
};
use tempfile::TempDir;

fn host(name: &str) -> HostReport {
    HostReport { schema: HOST_SCHEMA.to_owned(), version: 1, name: name.to_owned(), ..HostReport::default() }
}

fn small() -> synthetic::Shape {
    synthetic::Shape { seconds: 3, matrices: vec![8], sampled_cores: 2, ..synthetic::Shape::default() }
}

fn written(shape: &synthetic::Shape) -> (TempDir, Reader) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("run");
    let reader = synthetic::clearstream_40ge(&path, &host("geneva"), &host("amsterdam"), shape).unwrap();
    (folder, reader)
}

fn trials(reader: &Reader) -> Vec<TrialDocument> {
    reader.trials().unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_run_reads_back_as_it_was_written() {
    let (_folder, reader) = written(&small());
    let trials = trials(&reader);
    assert_eq!(trials.len() as u32, reader.run().planned_trial_count);
    assert_eq!(trials.iter().filter(|trial| trial.experiment == "pin-matrix").count(), 64);
    for trial in &trials {
        let samples: Vec<Interval> = reader.samples(trial).unwrap().collect::<Result<_, _>>().unwrap();
        let outcome = trial.outcome.measured().unwrap();
        match outcome.detail::<FlowSummary>(FLOW_SUMMARY_SCHEMA) {
            Some(summary) => {
                let summary = summary.unwrap();
                let measured: u64 = samples
                    .iter()
                    .filter(|interval| !interval.warm_up)
                    .flat_map(|interval| &interval.server.flows)
                    .map(|flow| flow.received_bytes)
                    .sum();
                let lost_in_division = summary.received_bytes - measured;
                assert!(lost_in_division < 100, "samples add up to the summary: {lost_in_division}");
                assert_eq!(samples.len(), 3);
            }
            None => assert!(samples.is_empty()),
        }
    }
    assert!(reader.run().ended.is_some());
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    let (_one, first) = written(&small());
    let (_two, second) = written(&small());
    let read = |reader: &Reader, name: &str| fs::read(reader.folder().join(name)).unwrap();
    for name in ["run.json", "trials.jsonl", "samples/000020.jsonl"] {
        assert_eq!(read(&first, name), read(&second, name), "{name}");
    }
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_torn_last_line_is_skipped_and_reported() {
    let (_folder, reader) = written(&small());
    let whole = trials(&reader).len();
    append(&reader.folder().join("trials.jsonl"), "{\"schema\":\"clearstream.trial\",\"vers");
    let mut lines = reader.trials().unwrap();
    assert_eq!(lines.by_ref().filter(Result::is_ok).count(), whole);
    assert!(lines.torn());
}

#[test]
fn damage_in_the_middle_is_named_by_line() {
    let (_folder, reader) = written(&small());
    let whole = trials(&reader).len() as u64;
    append(&reader.folder().join("trials.jsonl"), "garbage\n");
    let error = reader.trials().unwrap().find_map(Result::err).unwrap();
    assert!(matches!(error, RecordError::Malformed { line, .. } if line == whole + 1), "{error}");
    assert!(error.to_string().contains("trials.jsonl"), "{error}");
}

#[test]
fn an_endless_line_is_rejected_without_reading_it() {
    let (_folder, reader) = written(&small());
    fs::write(reader.folder().join("trials.jsonl"), vec![b'['; MAX_LINE_BYTES + 10]).unwrap();
    let error = reader.trials().unwrap().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[test]
fn resuming_keeps_what_is_done_and_drops_what_failed_or_was_torn() {
    let shape = synthetic::Shape { failing_trial: Some(5), ..small() };
    let (_folder, reader) = written(&shape);
    let before = trials(&reader);
    assert!(matches!(before[5].outcome, TrialOutcome::Failed(_)));
    append(&reader.folder().join("trials.jsonl"), "{\"torn");
    let mut kept = Vec::new();
    let mut writer = Writer::resume(reader.folder(), &mut |trial| kept.push(trial.trial)).unwrap();
    assert!(writer.run().ended.is_none(), "it is resumed");
    assert_eq!(kept.len(), before.len() - 1);
    assert!(!kept.contains(&5));
    writer.trial(&before[5]).unwrap();
    let after = trials(&Reader::open(reader.folder()).unwrap());
    assert_eq!(after.len(), before.len());
    assert_eq!(after.last().unwrap().trial, 5);
}

#[test]
fn a_full_disk_is_reported_and_keeps_the_rest() {
    let (_folder, reader) = written(&small());
    let samples = reader.folder().join("samples/000900.jsonl");
    // full(4): "Writes to the /dev/full device fail with an ENOSPC error."
    symlink("/dev/full", samples).unwrap();
    let writer = Writer::resume(reader.folder(), &mut |_| {}).unwrap();
    let mut file = writer.samples(900).unwrap();
    let trial = trials(&reader).remove(10);
    let interval: Interval = reader.samples(&trial).unwrap().next().unwrap().unwrap();
    let error = file.write(&serde_json::to_string(&interval).unwrap()).unwrap_err();
    assert!(matches!(error, RecordError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("000900.jsonl") && error.to_string().contains("kept"), "{error}");
    assert_eq!(trials(&reader).len() as u32, reader.run().planned_trial_count);
}

/// A full disk of its own, unmounted at the end.
struct FullDisk(TempDir);

impl FullDisk {
    fn new() -> Self {
        let disk = Self(TempDir::new().unwrap());
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "none"]).arg(disk.0.path());
        assert!(mount.status().unwrap().success());
        let written = fs::write(disk.0.path().join("fill"), vec![0; 1 << 20]);
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        disk
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

#[test]
fn root_a_full_disk_at_the_start_advises_no_resume() {
    let (_folder, reader) = written(&small());
    let disk = FullDisk::new();
    let folder = disk.0.path().join("run");
    let error = Writer::create(&folder, reader.run().clone()).unwrap_err();
    assert!(matches!(error, RecordError::FullAtStart { .. }), "{error:?}");
    assert!(error.to_string().contains("restart") && !error.to_string().contains("resume"), "{error}");
    fs::remove_file(disk.0.path().join("fill")).unwrap();
    // With space available the same folder accepts the run.
    Writer::create(&folder, reader.run().clone()).unwrap();
}

#[test]
fn wrong_folders_are_distinguished() {
    let folder = TempDir::new().unwrap();
    let error = Reader::open(folder.path()).unwrap_err();
    assert!(matches!(error, RecordError::NoRun { .. }), "{error}");
    fs::write(folder.path().join("run.json"), "{\"schema\":\"clearstream.run\",\"version\":3}").unwrap();
    let error = Reader::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("use the program that wrote it"), "{error}");
    fs::write(folder.path().join("run.json"), "{").unwrap();
    assert!(matches!(Reader::open(folder.path()).unwrap_err(), RecordError::Malformed { line: 1, .. }));
    let (_other, reader) = written(&small());
    let error = Writer::create(reader.folder(), reader.run().clone()).unwrap_err();
    assert!(error.to_string().contains("resume it"), "{error}");
}

#[test]
fn a_record_cannot_name_files_outside_its_folder() {
    let (_folder, reader) = written(&small());
    let mut trial = trials(&reader).remove(10);
    for name in ["../run.json", "/etc/passwd", "samples/../../x"] {
        trial.samples = Some(name.to_owned());
        assert!(matches!(reader.samples::<Interval>(&trial), Err(RecordError::Outside { .. })), "{name}");
    }
}

fn busy(result: Result<Writer, RecordError>, what: &str) {
    match result {
        Err(error @ RecordError::Busy { process: Some(id), .. }) => {
            assert_eq!(id, std::process::id(), "{what}");
            assert!(error.to_string().contains(&format!("process {id}")), "{what}: {error}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_run_has_one_writer_and_keeps_what_that_has_written() {
    let (_folder, reader) = written(&small());
    let (path, all) = (reader.folder().to_owned(), trials(&reader));
    let mut first = Writer::resume(&path, &mut |_| {}).unwrap();
    let before = fs::read_to_string(path.join("trials.jsonl")).unwrap();
    busy(Writer::resume(&path, &mut |_| panic!("read by the second")), "a second resume");
    busy(Writer::create(&path, reader.run().clone()), "a start");
    assert!(
        matches!(
            clearstream_record::remove(path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap()),
            Err(RecordError::Busy { .. })
        ),
        "a removal"
    );
    first.trial(&all[0]).unwrap();
    let after = fs::read_to_string(path.join("trials.jsonl")).unwrap();
    assert!(after.starts_with(&before) && after.lines().count() == before.lines().count() + 1);
    first.finish("2026-01-01T00:00:00Z".to_owned()).unwrap();
    assert!(!path.join(".writer").exists());
    Writer::resume(&path, &mut |_| {}).unwrap();
}

#[test]
fn of_starts_at_the_same_time_in_one_folder_one_is_first() {
    let (_folder, reader) = written(&small());
    for _ in 0..20 {
        let folder = TempDir::new().unwrap();
        let place = folder.path().join("run");
        let results: Vec<_> = std::thread::scope(|scope| {
            let start = || scope.spawn(|| Writer::create(&place, reader.run().clone()));
            let threads: Vec<_> = (0..4).map(|_| start()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
        let refused = results.iter().filter_map(|result| result.as_ref().err());
        for error in refused {
            assert!(matches!(error, RecordError::Busy { .. } | RecordError::Exists { .. }), "{error}");
        }
    }
}

/// A run of somebody else, or a folder of it, may hold links to anywhere.
#[test]
fn files_of_a_run_are_new_ones_and_no_links_are_followed_for_drafts() {
    let (_folder, reader) = written(&small());
    let victim = TempDir::new().unwrap();
    fs::write(victim.path().join("file"), "old").unwrap();
    for name in ["run.json.partial", "trials.jsonl.partial"] {
        std::os::unix::fs::symlink(victim.path().join("file"), reader.folder().join(name)).unwrap();
    }
    Writer::resume(reader.folder(), &mut |_| {}).unwrap();
    let index = reader.folder().parent().unwrap().join(".runs-index.json.partial");
    std::os::unix::fs::symlink(victim.path().join("file"), &index).unwrap();
    clearstream_record::catalogue(reader.folder().parent().unwrap()).unwrap();
    assert_eq!(fs::read_to_string(victim.path().join("file")).unwrap(), "old");
}

/// A folder that everybody may write: what a stranger has put where a run begins leads nowhere.
#[test]
fn root_a_strangers_links_in_a_shared_folder_are_refused_by_the_writer() {
    const STRANGER: u32 = 65_534;
    let (_folder, reader) = written(&small());
    let shared = TempDir::new().unwrap();
    fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let victim = TempDir::new().unwrap();
    fs::write(victim.path().join("file"), "old").unwrap();
    let refused = |name: &str, to: &Path| {
        let folder = shared.path().join("run");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
        symlink(to, folder.join(name)).unwrap();
        lchown(folder.join(name), Some(STRANGER), Some(STRANGER)).unwrap();
        let written = Writer::create(&folder, reader.run().clone())
            .and_then(|mut writer| {
                writer.capture(0, b"bundle")?;
                let mut samples = writer.samples(0)?;
                samples.write("{}")?;
                samples.finish()
            })
            .map(drop);
        fs::remove_dir_all(&folder).unwrap();
        written.unwrap_err()
    };
    for name in [".writer", "trials.jsonl", "samples", "hosts"] {
        for to in [victim.path().join("file"), victim.path().join("new"), victim.path().to_owned()] {
            let error = refused(name, &to);
            assert!(matches!(error, RecordError::Write { .. }), "{name}: {error}");
        }
    }
    assert!(matches!(refused("run.json", &victim.path().join("new")), RecordError::Write { .. }));
    assert_eq!(fs::read_to_string(victim.path().join("file")).unwrap(), "old");
    assert_eq!(fs::read_dir(victim.path()).unwrap().count(), 1);
}
