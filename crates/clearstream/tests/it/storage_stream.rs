//! `clearstream storage stream` against what other programs and the kernel see of its files.

use crate::common;
use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, Mount, assert_valid, clearstream, eventually, finish, run, signal};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// A folder on the disk that the sources are on.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn stream(directory: &Path, arguments: &[&str]) -> Value {
    let own = ["storage", "stream", directory.to_str().unwrap(), "--json"];
    let document = run(&[&own[..], arguments].concat()).json();
    assert_valid("storage-stream", &document);
    document
}

fn points(document: &Value) -> &[Value] {
    document["points"].as_array().unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

fn notices(document: &Value) -> Vec<&str> {
    let all = document["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|notice| notice["id"].as_str().unwrap()).collect()
}

fn entries(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The kernel's sizes of what was kept, and every back end reads what another one wrote.
#[test]
fn files_have_the_layout_of_ior_and_every_backend_reads_them() {
    let folder = disk();
    let shape = ["-N", "3", "-t", "8k", "-b", "64k", "-s", "2", "-W"];
    for (number_of, backend) in ["posix", "mmap", "io-uring"].into_iter().enumerate() {
        for per_process in [false, true] {
            let name = format!("kept-{number_of}-{per_process}");
            let layout: &[&str] = if per_process { &["-F"] } else { &[] };
            let own = [&shape[..], layout, &["--name", &name]].concat();
            let written =
                stream(folder.path(), &[&own[..], &["-w", "-k", "-z", "--backend", backend]].concat());
            assert_eq!(number(&points(&written)[0], "bytes"), 3 * 128 * 1024, "{backend}");
            let kept = folder.path().join(&name);
            let files = entries(&kept).into_iter().filter(|name| name.starts_with("data"));
            let sizes: Vec<u64> = files.map(|file| fs::metadata(kept.join(file)).unwrap().size()).collect();
            let expected: &[u64] = if per_process { &[131_072; 3] } else { &[3 * 131_072] };
            assert_eq!(sizes, expected, "{backend}");
            for reader in ["posix", "mmap", "io-uring"] {
                let read = stream(folder.path(), &[&own[..], &["-r", "-k", "--backend", reader]].concat());
                assert_eq!(number(&points(&read)[0], "bytes"), 3 * 131_072, "{backend} by {reader}");
            }
        }
    }
    // A byte that another program changes is named by its offset: rank 1 has block 64 to 128 KiB.
    let path: PathBuf = folder.path().join("kept-0-false/data");
    let file = fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 70_000).unwrap();
    file.write_all_at(&[byte[0] ^ 0xff], 70_000).unwrap();
    let damaged = [&["storage", "stream", folder.path().to_str().unwrap()], &shape[..]].concat();
    run(&[&damaged[..], &["-r", "-k", "--name", "kept-0-false"]].concat())
        .refused(7, &["rank 1", "differs at offset 70000", &format!("{:#04x}", byte[0])]);
}

/// Calls of a stranger's eye: strace.
#[test]
fn direct_and_fsync_are_what_the_kernel_sees() {
    let folder = disk();
    let log = folder.path().join("calls");
    let test = folder.path().join("test");
    fs::create_dir(&test).unwrap();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=openat,pwrite64,pread64,fsync", "-o"]).arg(&log);
    command.arg(common::program()).args(["storage", "stream"]).arg(&test);
    command.args(["-N", "2", "-t", "16k", "-b", "64k", "-e", "--direct", "-F", "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child, LIMIT).ok();
    let calls = fs::read_to_string(&log).unwrap();
    let opened: Vec<&str> = calls.lines().filter(|line| line.contains("data.0.")).collect();
    assert!(opened.len() == 4 && opened.iter().all(|line| line.contains("O_DIRECT")), "{opened:#?}");
    // A call that another thread interrupts has two lines, the second with the result.
    let count = |call: &str, result: &str| {
        calls.lines().filter(|line| line.contains(call) && line.trim_end().ends_with(result)).count()
    };
    assert_eq!(
        (count("pwrite64", "= 16384"), count("pread64", "= 16384")),
        (8, 8),
        "four of each by each rank"
    );
    assert_eq!(count("fsync", "= 0"), 2, "one by each rank");
    assert!(entries(&test).is_empty());
}

#[test]
fn a_stonewall_is_read_back_as_far_as_it_was_written() {
    let folder = disk();
    // Of IOR's own line: blocks that nobody writes to the end, read by another rank.
    let line = ["-N", "2", "-F", "-i", "2", "-b", "1024g", "-t", "256k", "-Z", "-g", "-D", "200ms", "-W"];
    for wear_out in [&[][..], &["--wear-out"]] {
        let document = stream(folder.path(), &[&line[..], wear_out].concat());
        assert_eq!(document["complete"], true);
        let all = points(&document);
        let phases: Vec<_> = all.iter().map(|point| point["phase"].as_str().unwrap()).collect();
        assert_eq!(phases, ["write", "read", "write", "read"]);
        for pair in all.chunks(2) {
            // Reading ends after that time as well.
            let (written, read) = (number(&pair[0], "bytes"), number(&pair[1], "bytes"));
            assert!(read > 0 && read <= written, "{pair:?}");
            let ranks = pair[0]["ranks"].as_array().unwrap();
            let bytes: Vec<u64> = ranks.iter().map(|rank| number(rank, "bytes")).collect();
            assert!(bytes.iter().all(|bytes| *bytes > 0 && bytes % 262_144 == 0), "{bytes:?}");
            if !wear_out.is_empty() {
                assert_eq!(bytes[0], bytes[1], "as much as the fastest");
                let wall = &pair[0]["stonewall"];
                assert!(
                    number(wall, "bytes") <= written
                        && number(wall, "time_ns") <= number(&pair[0], "total_ns")
                );
            }
        }
        assert!(notices(&document).contains(&"reorder-within-host"), "{:?}", notices(&document));
    }
    assert!(entries(folder.path()).is_empty());
}

/// Rates and times follow from counts; IOR's table has the same numbers.
#[test]
fn every_figure_follows_from_counts_and_times() {
    let folder = disk();
    let document = stream(folder.path(), &["-N", "2", "-t", "64k", "-b", "1m", "-i", "3"]);
    for point in points(&document) {
        let (bytes, total) = (number(point, "bytes"), number(point, "total_ns"));
        assert_eq!((bytes, number(point, "operation_count")), (2 << 20, 32));
        let expected = bytes as f64 * 8e9 / total as f64;
        assert!((point["bandwidth_bps"].as_f64().unwrap() / expected - 1.0).abs() < 1e-9, "{point}");
        for rank in point["ranks"].as_array().unwrap() {
            let parts = ["open_ns", "transfer_ns", "close_ns"].map(|key| number(rank, key));
            assert!(parts.iter().sum::<u64>() <= total, "{point}");
        }
        let times = &point["latency"];
        let order = ["min_ns", "p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|key| number(times, key));
        assert!(order.is_sorted(), "{times}");
    }
    for statistics in document["statistics"].as_array().unwrap() {
        let of: Vec<f64> = points(&document)
            .iter()
            .filter(|point| point["phase"] == statistics["phase"])
            .map(|point| point["bandwidth_bps"].as_f64().unwrap())
            .collect();
        let mean = of.iter().sum::<f64>() / 3.0;
        let deviation = (of.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 3.0).sqrt();
        assert!((statistics["bandwidth_bps"]["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
        assert!(
            (statistics["bandwidth_bps"]["standard_deviation"].as_f64().unwrap() - deviation).abs()
                < 1e-6 * mean
        );
    }
    let table = run(&["storage", "stream", folder.path().to_str().unwrap(), "-b", "1m", "-i", "2", "--ior"]);
    let rows: Vec<Vec<&str>> = table.ok().lines().map(|line| line.split_whitespace().collect()).collect();
    let of: Vec<&Vec<&str>> = rows.iter().filter(|row| row.len() == 11 && row[0] == "write").collect();
    assert_eq!((of.len(), of[0][4], of[0][5], of[1][10]), (2, "1024.00", "1024.00", "1"), "{rows:?}");
    let max = of.iter().map(|row| row[1].parse::<f64>().unwrap()).fold(0.0, f64::max);
    let line = rows.iter().find(|row| row.starts_with(&["Max", "Write:"])).unwrap();
    assert!((line[2].parse::<f64>().unwrap() - max).abs() < 0.01, "{line:?}");
}

#[test]
fn root_a_full_disk_foreign_files_and_a_folder_that_is_not_writable() {
    let folder = disk();
    let mount = folder.path().join("small");
    fs::create_dir(&mount).unwrap();
    let mounted = Mount::tmpfs(mount.clone(), "size=4m");
    fs::write(mount.join("mine"), "of somebody else").unwrap();
    for backend in ["posix", "mmap", "io-uring"] {
        let path = mount.to_str().unwrap();
        let own = ["storage", "stream", path, "-N", "2", "-b", "8m", "-t", "64k", "--backend", backend];
        run(&own).refused(7, &["rank", "data", "No space left on device"]);
        assert_eq!(entries(&mount), ["mine"], "{backend}");
    }
    assert_eq!(fs::read_to_string(mount.join("mine")).unwrap(), "of somebody else");
    drop(mounted);
    // A folder of the name that is there already is not touched.
    fs::create_dir(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("taken/data"), "precious").unwrap();
    let path = folder.path().to_str().unwrap();
    run(&["storage", "stream", path, "--name", "taken"]).refused(2, &["taken exists already", "--name"]);
    assert_eq!(fs::read_to_string(folder.path().join("taken/data")).unwrap(), "precious");
    run(&["storage", "stream", path, "-r", "--name", "never"]).refused(7, &["never", "No such file"]);
    run(&["storage", "stream", "/proc", "-b", "1m"]).refused(7, &["/proc"]);
    run(&["storage", "stream", path, "-b", "1000000"]).refused(2, &["multiple of the transfer"]);
}

#[test]
fn signals_end_it_with_what_was_measured_and_without_files() {
    for name in ["INT", "TERM", "HUP"] {
        let folder = disk();
        let path = folder.path().to_str().unwrap();
        let arguments = ["storage", "stream", path, "-b", "1m", "-i", "1000000", "-N", "2", "--json"];
        let child = clearstream(&arguments).spawn().unwrap();
        eventually(Duration::from_secs(10), "files are there", || !entries(folder.path()).is_empty());
        std::thread::sleep(Duration::from_millis(300));
        signal(child.id(), name);
        let ended = finish(child, Duration::from_secs(20));
        assert_eq!(ended.status.code(), Some(130), "{name}: {}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(document["complete"], false);
        assert!(entries(folder.path()).is_empty(), "{name}: {:?}", entries(folder.path()));
    }
}

/// Through the client of a file system and through a projection, as a user and as a study runs it.
#[test]
fn root_mounts_of_a_lab_are_measured_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../../../../labs/native-client.toml");
    let path = folder.path().join("lab.toml");
    fs::write(&path, text.replace("name = \"native-client\"", "name = \"stream-test\"")).unwrap();
    let lab = Lab::up(&path, "stream-test");
    let sent = |host: &str| -> u64 {
        let file = "cat /sys/class/net/compute0/statistics/tx_bytes";
        run(&["lab", "exec", &lab.0, host, "--", "sh", "-c", file]).ok().trim().parse().unwrap()
    };
    for mount in ["native", "projected"] {
        let before = sent("compute-2");
        let own = ["storage", "stream", mount, "--lab", &lab.0, "--client", "compute-2", "-N", "2", "-F"];
        let document = run(&[&own[..], &["-b", "4m", "-e", "-W", "--json"]].concat()).json();
        assert_eq!(document["complete"], true, "{mount}");
        assert!(document["file_system"].as_str().unwrap().starts_with("fuse"), "{}", document["file_system"]);
        assert!(sent("compute-2") - before > 8 << 20, "{mount}: what is written leaves the client");
    }
    let study = folder.path().join("mounts.toml");
    fs::write(&study, STUDY).unwrap();
    let runs = folder.path().join("runs");
    let arguments = ["study", "run", study.to_str().unwrap(), "--lab", &lab.0, "--client", "compute-1"];
    let child = clearstream(&[&arguments[..], &["--runs", runs.to_str().unwrap()]].concat()).spawn().unwrap();
    finish(child, LIMIT).ok();
    let record = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let trials = fs::read_to_string(record.join("trials.jsonl")).unwrap();
    assert_eq!(trials.lines().count(), 2);
    for line in trials.lines() {
        let trial: Value = serde_json::from_str(line).unwrap();
        let measured = &trial["outcome"]["measured"];
        assert_eq!(measured["metrics"][0]["name"], "write-bandwidth", "{line}");
        assert_eq!(measured["complete"], true, "{line}");
    }
}

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "mounts"
title = "Native and projected"
[[experiment]]
name = "streaming"
title = "Streaming by mount"
workload = "storage-stream"
figure = "bars"
repetitions = 1
[experiment.storage-stream]
block = "4MiB"
fsync = true
[experiment.factors]
directory = ["native", "projected"]
"#;

/// Both directories in turns, in an order that alternates; the ratio of two pairs is the geometric mean of theirs (the
/// Hodges-Lehmann estimate on logarithms).
#[test]
fn two_directories_are_compared_in_turns() {
    let folder = disk();
    let [first, second] = ["first", "second"].map(|name| {
        fs::create_dir(folder.path().join(name)).unwrap();
        folder.path().join(name)
    });
    let own = ["storage", "stream", first.to_str().unwrap(), "--against", second.to_str().unwrap()];
    let shape = ["-b", "256KiB", "-t", "64KiB", "-i", "2", "--json"];
    let document = run(&[&own[..], &shape].concat()).json();
    assert_valid("storage-comparison", &document);
    assert_eq!((&document["complete"], &document["workload"]), (&true.into(), &"storage-stream".into()));
    let metrics = document["metrics"].as_array().unwrap();
    assert_eq!(metrics.len(), 6, "{document}");
    for metric in metrics {
        let values = |side: &str| -> Vec<f64> {
            metric[side].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
        };
        let (first, second) = (values("first"), values("second"));
        assert_eq!((first.len(), second.len()), (2, 2), "{metric}");
        let expected = (second[0] / first[0] * second[1] / first[1]).sqrt();
        let found = metric["ratio"]["value"].as_f64().unwrap();
        assert!((found / expected - 1.0).abs() < 1e-9, "{metric}");
        assert_eq!(metric["ratio"]["pair_count"], 2, "{metric}");
    }
    // The order of the files that appear, as the kernel logs it.
    let log = folder.path().join("log");
    let traced = ["-f", "-qq", "-y", "-e", "trace=mkdirat", "-o", log.to_str().unwrap()];
    let mut command = Command::new("strace");
    command.args(traced).arg(common::program()).args(own).args(shape).stdout(Stdio::null());
    assert!(command.status().unwrap().success());
    let log = fs::read_to_string(&log).unwrap();
    let made = log.lines().filter(|line| line.contains(", \"clearstream-stream-"));
    let order: Vec<bool> = made.map(|line| line.contains("/second>")).collect();
    assert_eq!(order, [false, true, true, false], "{log}");
    run(&[&own[..], &["--keep"]].concat()).refused(2, &["--against", "leave --keep"]);
    assert_eq!((entries(&first), entries(&second)), (Vec::new(), Vec::new()));
}
