//! What belongs to whom: a run removes what it made, and nothing else, whatever it finds; what `--keep` leaves is read by
//! any later run, after any end of the one that wrote it.

use crate::common;
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use crate::common::{Mount, assert_valid, clearstream, descendants, finish, inventory, run, signal};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn stream<'a>(directory: &'a Path, own: &[&'a str]) -> Vec<&'a str> {
    let verb = ["storage", "stream", directory.to_str().unwrap()];
    [&verb[..], own].concat()
}

fn ran(directory: &Path, own: &[&str]) -> Value {
    let document = run(&stream(directory, &[own, &["--json"]].concat())).json();
    assert_valid("storage-stream", &document);
    document
}

fn bytes_read(document: &Value) -> u64 {
    let points = document["points"].as_array().unwrap();
    points.iter().find(|point| point["phase"] == "read").unwrap()["bytes"].as_u64().unwrap()
}

/// Whatever is in the folder of that name, and however reading it ends.
#[test]
fn a_reading_run_leaves_everything_as_it_was() {
    let folder = disk();
    let contents: [(&str, &[(&str, usize)]); 5] = [
        ("empty", &[]),
        ("short", &[("data", 9), ("notes.txt", 2)]),
        ("whole", &[("data", 4096)]),
        ("per-process", &[("data.0.00000000", 4096), ("thesis.tex", 5)]),
        ("damaged", &[("data", 4096), ("clearstream-kept.json", 7)]),
    ];
    for (name, files) in contents {
        fs::create_dir(folder.path().join(name)).unwrap();
        for (file, length) in files {
            fs::write(folder.path().join(name).join(file), vec![b'x'; *length]).unwrap();
        }
    }
    let before = inventory(folder.path());
    for (name, _) in contents {
        for own in [
            &[][..],
            &["-F"],
            &["-N", "2"],
            &["--backend", "mmap"],
            &["--backend", "io-uring"],
            &["-W"],
            &["-k"],
        ] {
            let own = [&["-r", "--name", name, "-b", "4k", "-t", "4k"], own].concat();
            let ended = run(&stream(folder.path(), &own));
            if name == "short" && !own.contains(&"-F") {
                ended.refused(7, &["data has 9 bytes and ends before offset"]);
            }
            assert_eq!(inventory(folder.path()), before, "{own:?}");
        }
    }
}

/// Shapes that are kept, ways to end, and readers that differ in ranks, transfers and order.
#[test]
fn what_is_kept_is_read_by_other_ranks_after_any_end() {
    let folder = disk();
    let layouts = [&["-F"][..], &[], &["-F", "-z"], &["-z", "-s", "2"]];
    let ends = ["whole", "iterations", "stonewall", "wear-out", "interrupted"];
    for (number, layout) in layouts.iter().enumerate() {
        for end in ends {
            let name = format!("{end}-{number}");
            let case = format!("{name} {layout:?}");
            let kept = ["-w", "--keep", "--name", &name, "-N", "3", "-t", "16k", "-W"];
            let many: &[&str] = match end {
                "whole" => &["-b", "96k"],
                "iterations" => &["-b", "96k", "-i", "3"],
                "stonewall" => &["-b", "1g", "-D", "50ms"],
                "wear-out" => &["-b", "1g", "-D", "50ms", "--wear-out"],
                _ => &["-b", "8g"],
            };
            let own = [&kept[..], layout, many, &["--json"]].concat();
            let child = clearstream(&stream(folder.path(), &own)).spawn().unwrap();
            if end == "interrupted" {
                let file = folder.path().join(&name).join(if own.contains(&"-F") {
                    "data.0.00000000"
                } else {
                    "data"
                });
                common::eventually(LIMIT, "something is written", || {
                    fs::metadata(&file).is_ok_and(|found| found.len() > 1 << 20)
                });
                signal(child.id(), "INT");
            }
            let ended = finish(child, LIMIT);
            assert_eq!(ended.code(), if end == "interrupted" { 130 } else { 0 }, "{case}: {}", ended.stderr);
            let record: Value = serde_json::from_slice(
                &fs::read(folder.path().join(&name).join("clearstream-kept.json")).unwrap(),
            )
            .unwrap();
            let counts: Vec<u64> =
                record["written"].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect();
            let written: u64 = counts.iter().sum::<u64>() * 16384;
            assert!(written > 0, "{case}");
            let is_whole = matches!(end, "whole" | "iterations");
            for ranks in ["1", "2", "3", "5"] {
                // Without the writer's bounds: they are in the record.
                let own = ["-r", "--name", &name, "-N", ranks, "-t", "16k", "-W"];
                assert_eq!(bytes_read(&ran(folder.path(), &own)), written, "{case} by {ranks}");
            }
            if is_whole {
                for transfer in ["8k", "32k"] {
                    let own = [
                        "-r",
                        "--name",
                        &name,
                        "-N",
                        "2",
                        "-t",
                        transfer,
                        "-W",
                        "-z",
                        "--backend",
                        "io-uring",
                    ];
                    assert_eq!(bytes_read(&ran(folder.path(), &own)), written, "{case} by {transfer}");
                }
            }
            fs::remove_dir_all(folder.path().join(&name)).unwrap();
        }
    }
}

/// All processes of the writer are killed: the record has the shape, and the files say how far they go.
#[test]
fn files_of_a_killed_writer_are_read_as_far_as_they_go() {
    let folder = disk();
    let own = ["-w", "--keep", "--name", "killed", "-N", "2", "-F", "-t", "64k", "-b", "8g", "-W"];
    let child = clearstream(&stream(folder.path(), &own)).spawn().unwrap();
    let files = ["data.0.00000000", "data.0.00000001"].map(|name| folder.path().join("killed").join(name));
    common::eventually(LIMIT, "something is written", || {
        files.iter().all(|file| fs::metadata(file).is_ok_and(|found| found.len() > 1 << 20))
    });
    for process in descendants(child.id()) {
        signal(process, "KILL");
    }
    let _ = finish(child, LIMIT);
    let whole = files.each_ref().map(|file| fs::metadata(file).unwrap().len() / 65536);
    let there = whole.iter().sum::<u64>() * 65536;
    let own = ["-r", "--name", "killed", "-N", "2", "-t", "64k", "-W"];
    assert_eq!(bytes_read(&ran(folder.path(), &own)), there);
    // Data that the file system lost, by a mapping too: an error with the place, no signal.
    fs::OpenOptions::new().write(true).open(&files[1]).unwrap().set_len(65536).unwrap();
    let record = folder.path().join("killed/clearstream-kept.json");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replacen('}', &format!(",\"written\":[1,{}]}}", whole[1]), 1)).unwrap();
    for backend in ["posix", "mmap", "io-uring"] {
        let arguments =
            stream(folder.path(), &["-r", "--name", "killed", "-N", "2", "-t", "64k", "--backend", backend]);
        run(&arguments).refused(7, &["rank 1", "data.0.00000001 has ", "and ends before offset "]);
    }
}

/// IOR's users write, and read from other nodes, in jobs of their own; what is there is written over and stays.
#[test]
fn existing_files_are_written_over_and_stay() {
    let folder = disk();
    ran(folder.path(), &["-w", "-k", "--name", "x", "-N", "2", "-F", "-b", "64k", "-t", "16k", "-i", "2"]);
    let before: Vec<PathBuf> = inventory(folder.path()).into_keys().collect();
    ran(folder.path(), &["-w", "-E", "--name", "x", "-N", "2", "-F", "-b", "64k", "-t", "16k", "-W"]);
    assert_eq!(inventory(folder.path()).into_keys().collect::<Vec<_>>(), before);
    let read = ran(folder.path(), &["-r", "--name", "x", "-N", "2", "-t", "16k", "-W", "-i", "3"]);
    assert_eq!((bytes_read(&read), read["points"].as_array().unwrap().len()), (2 * 65536, 3));
    // A folder of others is not written over.
    fs::create_dir(folder.path().join("results")).unwrap();
    fs::write(folder.path().join("results/data"), "precious").unwrap();
    let before = inventory(folder.path());
    let arguments = stream(folder.path(), &["-w", "-E", "--name", "results", "-b", "4k", "-t", "4k"]);
    run(&arguments).refused(2, &["no record", "--keep"]);
    assert_eq!(inventory(folder.path()), before);
    let arguments = stream(folder.path(), &["-w", "-E", "--name", "never"]);
    run(&arguments).refused(7, &["never", "No such file"]);
}

/// What a compressor that we did not write makes of it.
#[test]
fn what_is_written_does_not_compress_unless_it_is_to() {
    let folder = disk();
    for (kind, low, high) in [("random", 0.99, 1.01), ("compress:4", 3.5, 4.5), ("zero", 500.0, 1e9)] {
        for transfer in ["4k", "1m"] {
            for backend in ["posix", "mmap", "io-uring"] {
                let own = [
                    "-w",
                    "-k",
                    "--name",
                    "x",
                    "-b",
                    "4m",
                    "-t",
                    transfer,
                    "--data",
                    kind,
                    "--backend",
                    backend,
                ];
                ran(folder.path(), &own);
                let path = folder.path().join("x/data");
                let packed =
                    std::process::Command::new("gzip").arg("-c").arg(&path).output().unwrap().stdout.len();
                let ratio = fs::metadata(&path).unwrap().len() as f64 / packed as f64;
                assert!(ratio > low && ratio < high, "{kind} {transfer} {backend}: {ratio}");
                fs::remove_dir_all(folder.path().join("x")).unwrap();
            }
        }
    }
}

/// The disk fills after some iterations: they are printed when they are done, and in the document.
#[test]
fn root_what_was_measured_before_a_failure_is_there() {
    let folder = disk();
    for json in [false, true] {
        let directory = folder.path().join(if json { "a" } else { "b" });
        fs::create_dir(&directory).unwrap();
        let mount = Mount::tmpfs(directory, "size=40m");
        let form = if json { "--json-stream" } else { "-g" };
        let own = ["-N", "2", "-F", "-b", "4m", "-t", "1m", "-i", "100000", "-d", "20ms", form];
        let mut child = clearstream(&stream(&mount.0, &own))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let is_phase = |line: &str| match json {
            true => line.contains("\"interval\""),
            false => line.split_whitespace().nth(1) == Some("read"),
        };
        assert!(lines.any(|line| is_phase(&line)), "a phase is printed as soon as it is measured");
        let rest = fs::File::create(mount.0.join("others")).unwrap();
        let is_over = AtomicBool::new(false);
        let more: Vec<String> = std::thread::scope(|scope| {
            // What an iteration's files leave when they are removed, too.
            scope.spawn(|| {
                let block = vec![1; 1 << 16];
                while !is_over.load(Relaxed) {
                    if rest.write_at(&block, rest.metadata().unwrap().len()).is_err() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            });
            let more = lines.collect();
            is_over.store(true, Relaxed);
            more
        });
        let ended = child.wait_with_output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(7), "{errors}");
        assert!(errors.contains("No space left on device") || json, "{errors}");
        if json {
            let last: Value = serde_json::from_str(more.last().unwrap()).unwrap();
            let document = &last["payload"];
            assert_eq!(document["complete"], false, "{last}");
            assert_eq!(document["failure"]["kind"], "file", "{document}");
            assert!(!document["points"].as_array().unwrap().is_empty(), "{document}");
        } else {
            assert!(more.iter().any(|line| line.contains("partial: ")), "{more:#?}");
        }
    }
}

/// IOR 4's summary has these columns (its src/ior-output.c), and a row has a field for each.
#[test]
fn tables_of_ior_and_mdtest_have_their_columns() {
    let folder = disk();
    let path = folder.path().to_str().unwrap();
    let found = run(&["storage", "stream", path, "-N", "2", "-b", "64k", "-t", "16k", "-i", "2", "--ior"]);
    let text = found.ok();
    let columns = "Operation Max(MiB) Min(MiB) Mean(MiB) StdDev Max(OPs) Min(OPs) Mean(OPs) StdDev Mean(s) Stonewall(s) \
                   Stonewall(MiB) Test# #Tasks tPN reps fPP reord reordoff reordrand seed segcnt blksiz xsize aggs(MiB) \
                   API RefNum";
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let columns: Vec<&str> = columns.split_whitespace().collect();
    assert!(lines.contains(&columns), "{text}");
    let rows =
        lines.iter().filter(|line| line.len() == columns.len() && ["write", "read"].contains(&line[0]));
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), 2, "{text}");
    let of = |row: &[&str], name: &str| {
        let at = columns.iter().position(|column| *column == name).unwrap();
        row[at].to_owned()
    };
    for (name, value) in
        [("#Tasks", "2"), ("reps", "2"), ("xsize", "16384"), ("blksiz", "65536"), ("API", "POSIX")]
    {
        assert_eq!(of(rows[0], name), value, "{name}");
    }
    assert!(text.lines().any(|line| line == "Options: "), "{text}");
    assert!(text.lines().any(|line| line == "xfersize            : 16 KiB"), "{text}");
    // Notes are beside the tables of another tool, not in them.
    assert!(!text.contains("note") && found.stderr.contains("note: "), "{}", found.stderr);

    let found = run(&["storage", "metadata", path, "-n", "20", "-F", "-i", "2", "--mdtest"]);
    let text = found.ok();
    assert!(text.starts_with("SUMMARY rate (in ops/sec): (of 2 iterations)\n"), "{text}");
    let row = text.lines().find(|line| line.trim_start().starts_with("File creation")).unwrap();
    let values: Vec<f64> = row.split_whitespace().skip(2).map(|value| value.parse().unwrap()).collect();
    // Of two values the standard deviation of the sample is their distance by the root of two.
    let expected = (values[0] - values[1]) / 2f64.sqrt();
    assert!((values[3] - expected).abs() < 0.01, "{row}");
    assert!(!text.contains("note") && found.stderr.contains("note: "), "{}", found.stderr);
}
