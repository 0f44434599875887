//! `clearstream storage metadata` against the system calls and names that other programs see.

use crate::common;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Mount, assert_valid, clearstream, eventually, finish, run, signal};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const OPERATIONS: [&str; 5] = ["create", "stat", "read", "rename", "remove"];

/// A folder on the disk that the sources are on.
fn disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn metadata(directory: &Path, arguments: &[&str]) -> Value {
    let own = ["storage", "metadata", directory.to_str().unwrap(), "--json"];
    let document = run(&[&own[..], arguments].concat()).json();
    assert_valid("storage-metadata", &document);
    document
}

fn phases(document: &Value) -> &[Value] {
    document["phases"].as_array().unwrap()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Phases of a kind, with their operations.
fn of<'a>(document: &'a Value, kind: &str) -> Vec<(&'a str, u64)> {
    let of_kind = phases(document).iter().filter(|phase| phase["kind"] == kind);
    of_kind.map(|phase| (phase["operation"].as_str().unwrap(), number(phase, "operation_count"))).collect()
}

/// A measurement, and the most memory that its process of ranks has had (VmHWM, proc_pid_status(5)), in KiB.
fn with_peak_memory(directory: &Path, arguments: &[&str]) -> (Value, u64) {
    let own = ["storage", "metadata", directory.to_str().unwrap(), "--json", "--tasks", "2"];
    let mut child = clearstream(&[&own[..], arguments].concat()).spawn().unwrap();
    let mut peak_kib = 0;
    while child.try_wait().unwrap().is_none() {
        for agent in common::children(child.id()) {
            let status = fs::read_to_string(format!("/proc/{agent}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let found = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
            peak_kib = peak_kib.max(found.unwrap_or(0));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    (finish(child, LIMIT).json(), peak_kib)
}

/// A stonewall keeps the number of those created small: what is planned has no size in memory, and what is created
/// neither.
#[test]
fn ten_million_items_are_planned_in_the_memory_of_some_thousands() {
    let folder = disk();
    let (few, small) = with_peak_memory(folder.path(), &["-n", "3000", "-F"]);
    let (many, large) =
        with_peak_memory(folder.path(), &["-n", "5000000", "-z", "3", "-b", "10", "-F", "-W", "300ms"]);
    assert_eq!((number(&few, "item_count"), number(&many, "item_count")), (3000, 5_000_000));
    assert_eq!(of(&many, "file").len(), 5, "{many}");
    assert!(small > 1024 && large < small + 8192, "{small} and {large} KiB");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Every operation is one system call of an item, by strace: 2 ranks, 30 items each, 3 directories below a root.
#[test]
fn operations_are_the_system_calls_of_every_item() {
    let folder = disk();
    let (log, test) = (folder.path().join("calls"), folder.path().join("test"));
    fs::create_dir(&test).unwrap();
    let mut command = Command::new("strace");
    let calls = "trace=mkdirat,openat,newfstatat,renameat,unlinkat,write,read";
    command.args(["-f", "-qq", "-s", "200", "-e", calls, "-o"]).arg(&log).arg(common::program());
    command.args(["storage", "metadata"]).arg(&test);
    command.args(["--tasks", "2", "-n", "30", "-z", "1", "-b", "3", "-w", "77", "-e", "77", "--json"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let document: Value = finish(child, LIMIT).json();
    assert_eq!((number(&document, "tree_count"), number(&document, "item_count")), (4, 30));
    for kind in ["file", "directory"] {
        assert_eq!(of(&document, kind), OPERATIONS.map(|operation| (operation, 60)), "{kind}");
    }
    let calls = fs::read_to_string(&log).unwrap();
    // A call that another thread interrupts has its arguments in the first of two lines.
    let count = |call: &str, of: &[&str]| {
        let begins =
            |line: &&str| line.contains(&format!(" {call}(")) && of.iter().all(|text| line.contains(text));
        calls.lines().filter(begins).count()
    };
    assert_eq!(count("openat", &["/file.", "O_CREAT|O_EXCL"]), 60);
    assert_eq!(count("openat", &["/file."]), 120, "created and read");
    assert_eq!(count("mkdirat", &["/directory."]), 60);
    assert_eq!(count("newfstatat", &["/file."]), 60);
    assert_eq!(count("renameat", &[".renamed"]), 120);
    assert_eq!(count("unlinkat", &["/file."]), 60);
    assert_eq!(count("unlinkat", &["/directory.", "AT_REMOVEDIR"]), 60);
    let written = calls.lines().filter(|line| line.contains("write") && line.ends_with(" = 77")).count();
    let read = calls.lines().filter(|line| line.contains("read") && line.ends_with(" = 77")).count();
    assert_eq!((written, read), (60, 60));
    // Directories of the tree, by their names: a root with three, items in each of them.
    let made = |text: &str| calls.lines().any(|line| line.contains("mkdirat") && line.contains(text));
    assert!(made("tree.0\"") && (1..=3).all(|number| made(&format!("tree.0/level.{number}\""))));
    assert_eq!(fs::read_dir(&test).unwrap().count(), 0);
}

#[test]
fn every_figure_follows_from_counts_and_times() {
    let folder = disk();
    fs::write(folder.path().join("mine"), "of somebody else").unwrap();
    let document = metadata(folder.path(), &["--tasks", "3", "-n", "20", "-i", "3", "-F", "-u", "-N", "1"]);
    assert_eq!(document["complete"], true);
    for phase in phases(&document) {
        let (count, total) = (number(phase, "operation_count"), number(phase, "total_ns"));
        let rate = count as f64 * 1e9 / total as f64;
        assert!((phase["operations_per_second"].as_f64().unwrap() / rate - 1.0).abs() < 1e-9, "{phase}");
        let latency = &phase["latency"];
        let order = ["min_ns", "p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|key| number(latency, key));
        assert!(order.is_sorted() && number(latency, "sample_count") == count, "{phase}");
        let ranks: u64 =
            phase["rank_counts"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(ranks, count, "{phase}");
    }
    for summary in document["summary"].as_array().unwrap() {
        let same =
            |phase: &&Value| phase["kind"] == summary["kind"] && phase["operation"] == summary["operation"];
        let rates: Vec<f64> = phases(&document)
            .iter()
            .filter(same)
            .map(|phase| phase["operations_per_second"].as_f64().unwrap())
            .collect();
        assert_eq!(rates.len(), 3);
        let mean = rates.iter().sum::<f64>() / 3.0;
        assert!((summary["operations_per_second"]["mean"].as_f64().unwrap() / mean - 1.0).abs() < 1e-9);
    }
    let notices = document["notices"].to_string();
    assert!(notices.contains("new-trees") && notices.contains("stride-within-host"), "{notices}");
    assert_eq!(fs::read_to_string(folder.path().join("mine")).unwrap(), "of somebody else");
    // A stonewall: what was created until then is what later phases are of.
    let walled = metadata(folder.path(), &["-n", "50000000", "-F", "-W", "200ms"]);
    let counts: Vec<u64> = of(&walled, "file").into_iter().map(|(_, count)| count).collect();
    assert!(counts[0] < 50_000_000 && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    let table = run(&["storage", "metadata", folder.path().to_str().unwrap(), "-n", "10", "--mdtest"]);
    for line in [
        "SUMMARY rate (in ops/sec): (of 1 iterations)",
        "File creation",
        "Directory removal",
        "Tree creation",
    ] {
        assert!(table.ok().contains(line), "{}", table.stdout);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the foreign file");
}

/// Files are removed under the name that they have, and without a phase of their own.
#[test]
fn phases_are_those_that_are_chosen() {
    let folder = disk();
    let chosen = [
        ("stat,remove", vec!["create", "stat", "remove"]),
        ("create,rename", vec!["create", "rename"]),
        ("create", vec!["create"]),
        ("remove,rename", vec!["create", "rename", "remove"]),
    ];
    for (phases, expected) in chosen {
        let options = ["--tasks", "2", "-n", "20", "-z", "1", "-i", "2", "-N", "1", "--phases", phases];
        let document = metadata(folder.path(), &options);
        assert_eq!(document["complete"], true);
        for kind in ["file", "directory"] {
            let twice: Vec<_> =
                [&expected[..], &expected[..]].concat().into_iter().map(|it| (it, 40)).collect();
            assert_eq!(of(&document, kind), twice, "{kind} of {phases}");
        }
        // All that was created is gone before the tree is.
        assert_eq!(of(&document, "tree"), [("create", 2), ("remove", 2)].repeat(2), "{phases}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{phases}");
    }
    let path = folder.path().to_str().unwrap();
    let refused = run(&["storage", "metadata", path, "--phases", "stat,move"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(refused.stderr.contains("'move' for '--phases") && refused.stderr.contains("rename, remove"));
}

#[test]
fn root_no_inodes_are_left_and_signals_leave_nothing() {
    let folder = disk();
    let mount = folder.path().join("small");
    fs::create_dir(&mount).unwrap();
    let mounted = Mount::tmpfs(mount.clone(), "size=4m,nr_inodes=40");
    let path = mount.to_str().unwrap();
    run(&["storage", "metadata", path, "-n", "100", "--tasks", "2"])
        .refused(7, &["rank", "create the directory", "No space left on device"]);
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 0);
    let in_memory = metadata(&mount, &["-n", "10"]);
    assert!(in_memory["notices"].to_string().contains("in-memory"), "{}", in_memory["notices"]);
    drop(mounted);
    for name in ["INT", "TERM", "HUP"] {
        let folder = disk();
        let path = folder.path().to_str().unwrap();
        let arguments = ["storage", "metadata", path, "-n", "10000000", "--tasks", "2", "--json"];
        let child = clearstream(&arguments).spawn().unwrap();
        eventually(Duration::from_secs(10), "a tree is there", || {
            fs::read_dir(folder.path()).unwrap().count() == 1
        });
        std::thread::sleep(Duration::from_millis(300));
        signal(child.id(), name);
        let ended = finish(child, Duration::from_secs(30));
        assert_eq!(ended.status.code(), Some(130), "{name}: {}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(document["complete"], false);
        // By the command itself, or by the guard of what it left to it after two seconds.
        eventually(Duration::from_secs(30), "the files are removed", || {
            fs::read_dir(folder.path()).unwrap().count() == 0
        });
    }
    run(&["storage", "metadata", "/proc", "-n", "1"]).refused(7, &["/proc"]);
    run(&["storage", "metadata", "/tmp", "-z", "40", "-b", "10"]).refused(2, &["directories"]);
}

/// Every operation is a line of CSV with its rank, its item and its time, in the order in which the rank did it.
#[test]
fn every_operation_is_a_line_of_the_log() {
    let folder = disk();
    let log = folder.path().join("operations.csv");
    let test = folder.path().join("test");
    fs::create_dir(&test).unwrap();
    let own = ["--tasks", "2", "-n", "3", "-w", "77", "-e", "77", "-N", "1", "--name", "x"];
    let own = [&own[..], &["--operations", log.to_str().unwrap()]].concat();
    let document = metadata(&test, &own);
    let text = fs::read_to_string(&log).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let columns =
        ["rank", "phase", "iteration", "operation", "file", "offset", "bytes", "begin_ns", "end_ns"];
    assert_eq!(lines[0], columns);
    for phase in phases(&document) {
        let (kind, operation) = (phase["kind"].as_str().unwrap(), phase["operation"].as_str().unwrap());
        let name = format!("{kind} {operation}");
        let of_phase: Vec<&Vec<&str>> = lines.iter().filter(|line| line[1] == name).collect();
        assert_eq!(of_phase.len() as u64, number(phase, "operation_count"), "{name}");
        for line in &of_phase {
            assert_eq!((line[2], line[3]), ("0", operation), "{line:?}");
            let has_bytes = kind == "file" && ["create", "read"].contains(&operation);
            assert_eq!(line[6], if has_bytes { "77" } else { "0" }, "{line:?}");
            let times: [i64; 2] = [line[7], line[8]].map(|time| time.parse().unwrap());
            assert!(times[0] <= times[1], "{line:?}");
        }
        let mut items: Vec<&str> = of_phase.iter().map(|line| line[4]).collect();
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), of_phase.len(), "{name}: each item once");
    }
    // By the stride rank 0 has the items of rank 1 in the second phase; in the last one they have another name.
    let first = |rank: &str, phase: &str| lines.iter().find(|line| line[..2] == [rank, phase]).unwrap()[4];
    assert_eq!(first("0", "file create"), "x/tree.0/file.0.0");
    assert_eq!(first("0", "file stat"), "x/tree.0/file.1.0");
    assert_eq!(first("0", "file remove"), "x/tree.0/file.0.0.renamed");
    let path = test.to_str().unwrap();
    run(&["storage", "metadata", path, "--operations", "/nowhere/log.csv"]).refused(7, &["/nowhere/log.csv"]);
    run(&["storage", "metadata", path, "--operations", "log.csv", "--against", path])
        .refused(2, &["--operations"]);
    assert_eq!(fs::read_dir(&test).unwrap().count(), 0);
}
