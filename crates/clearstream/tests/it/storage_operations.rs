//! Single operations of `clearstream storage stream`: their log beside the document and the kernel's calls, reads mixed
//! with writes, and what is shown while they run; by threads, by a job of the command and by a launcher of the user.

use crate::common;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Run, assert_valid, clearstream, finish, program, run};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const HEAD: &str = "rank,phase,iteration,operation,file,offset,bytes,begin_ns,end_ns";

/// How ranks are started.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Launcher {
    Threads,
    /// By `--hosts`.
    Job,
    /// `mpirun clearstream ... --mpi`.
    User,
}

struct Place {
    folder: tempfile::TempDir,
    library: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let library = folder.path().join("libclearstream_mpi.so");
        common::build_mpi_library("mpicc.openmpi", &library);
        fs::create_dir(folder.path().join("data")).unwrap();
        Self { folder, library }
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Two ranks.
    fn run(&self, launcher: Launcher, own: &[&str]) -> Run {
        let mut command = match launcher {
            Launcher::User => {
                let mut command = Command::new("mpirun.openmpi");
                command.args(["-H", "localhost:2", "-np", "2"]).arg(program());
                command
            }
            _ => Command::new(program()),
        };
        command.args(["storage", "stream"]).arg(self.directory()).args(own);
        match launcher {
            Launcher::Threads => command.args(["-N", "2"]),
            Launcher::Job => {
                command.args(["-N", "2", "--hosts", "localhost", "--mpirun", "mpirun.openmpi"]);
                command.arg("--mpi-library").arg(&self.library)
            }
            Launcher::User => command.args(["--mpi", "--mpi-library"]).arg(&self.library),
        };
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.current_dir(self.folder.path());
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(command.spawn().unwrap(), LIMIT)
    }

    fn document(&self, launcher: Launcher, own: &[&str]) -> Value {
        let document = self.run(launcher, &[own, &["--json"]].concat()).json();
        assert_valid("storage-stream", &document);
        document
    }
}

/// A line of the log.
#[derive(Debug, Clone)]
struct Row {
    rank: u64,
    phase: (u64, String),
    operation: String,
    file: String,
    offset: Option<u64>,
    bytes: u64,
    begin: u64,
    end: u64,
}

fn rows(path: &Path) -> Vec<Row> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(HEAD));
    lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let number = |place: usize| fields[place].parse().unwrap_or_else(|_| panic!("{line}"));
            Row {
                rank: number(0),
                phase: (number(2), fields[1].to_owned()),
                operation: fields[3].to_owned(),
                file: fields[4].to_owned(),
                offset: (!fields[5].is_empty()).then(|| number(5)),
                bytes: number(6),
                begin: number(7),
                end: number(8),
            }
        })
        .collect()
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Every phase of the document has its operations in the log, within its time.
fn assert_logged(document: &Value, rows: &[Row], case: &str) {
    let mut by_phase: BTreeMap<(u64, String), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        assert!(row.end >= row.begin, "{case}: {row:?}");
        by_phase.entry(row.phase.clone()).or_default().push(row);
    }
    let points = document["points"].as_array().unwrap();
    assert_eq!(by_phase.len(), points.len(), "{case}");
    let mut before = 0;
    for point in points {
        let name = point["phase"].as_str().unwrap();
        let rows = &by_phase[&(number(point, "iteration"), name.to_owned())];
        let (begin, end) =
            (rows.iter().map(|row| row.begin).min().unwrap(), rows.iter().map(|row| row.end).max().unwrap());
        // The microsecond is between two clocks that are read one after the other.
        assert!(end - begin <= number(point, "total_ns") + 1000, "{case}: {begin} {end} {point}");
        assert!(begin >= before, "{case}: phases follow each other");
        before = end;
        let transfers = |rank: Option<u64>| {
            let rows = rows.iter().filter(move |row| rank.is_none_or(|rank| row.rank == rank));
            rows.filter(|row| row.offset.is_some())
        };
        assert_eq!(transfers(None).count() as u64, number(point, "operation_count"), "{case}");
        for (rank, of_rank) in (0..).zip(point["ranks"].as_array().unwrap()) {
            let bytes: u64 = transfers(Some(rank)).map(|row| row.bytes).sum();
            assert_eq!(bytes, number(of_rank, "bytes"), "{case}");
            for operation in ["open", "close"] {
                let found = rows.iter().filter(|row| row.rank == rank && row.operation == operation).count();
                assert_eq!(found, 1, "{case} {operation}");
            }
        }
        let places: BTreeSet<(&str, u64)> =
            transfers(None).map(|row| (row.file.as_str(), row.offset.unwrap())).collect();
        assert_eq!(places.len(), transfers(None).count(), "{case}: each place once");
        let longest = transfers(None).map(|row| row.end - row.begin).max().unwrap();
        let expected = number(&point["latency"], "max_ns");
        assert!(longest.abs_diff(expected) <= expected / 50 + 1000, "{case}: {longest} {expected}");
    }
}

#[test]
fn the_log_has_every_operation_of_every_launcher_and_back_end_on_one_clock() {
    let place = Place::new();
    let log = place.folder.path().join("operations.csv");
    // A path of the working directory is one of the ranks, too.
    let own = ["-t", "16k", "-b", "128k", "-s", "2", "-i", "2", "-e", "-z", "--operations", "operations.csv"];
    for launcher in [Launcher::Threads, Launcher::Job, Launcher::User] {
        for (backend, layout) in [("posix", &[][..]), ("mmap", &["-F"]), ("io-uring", &["-F"])] {
            let document = place.document(launcher, &[&own[..], layout, &["--backend", backend]].concat());
            let case = format!("{launcher:?} {backend}");
            assert!(
                document["requested"]["operations"].as_str().unwrap().ends_with("operations.csv"),
                "{case}"
            );
            let rows = rows(&log);
            assert_logged(&document, &rows, &case);
            let flushed = rows.iter().filter(|row| row.operation == "fsync").count();
            assert_eq!(flushed, 4, "{case}: each rank in both iterations");
        }
    }
    // What another eye sees of one of them.
    let calls = place.folder.path().join("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-e", "trace=pwrite64", "-o"]).arg(&calls).arg(program());
    command.args(["storage", "stream"]).arg(place.directory());
    command.args(["-w", "-t", "16k", "-b", "128k", "-z", "--operations"]).arg(&log);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap(), LIMIT).ok();
    let traced = fs::read_to_string(&calls).unwrap();
    let offset = |line: &str| line.rsplit_once(") = 16384")?.0.rsplit_once(", ")?.1.parse::<u64>().ok();
    let seen: Vec<u64> = traced.lines().filter_map(offset).collect();
    let logged: Vec<u64> = rows(&log).iter().filter_map(|row| row.offset).collect();
    assert_eq!((logged.len(), &logged), (8, &seen), "in the order of the calls");
    let none = ["--operations", "/nowhere/operations.csv", "-b", "1m"];
    for launcher in [Launcher::Threads, Launcher::Job] {
        place.run(launcher, &none).refused(7, &["make /nowhere/operations.csv", "No such file"]);
    }
    let against = [&none[..], &["--against", place.folder.path().to_str().unwrap()]].concat();
    place.run(Launcher::Threads, &against).refused(2, &["--operations", "--against"]);
    assert_eq!(fs::read_dir(place.directory()).unwrap().count(), 0);
}

#[test]
fn reads_are_mixed_with_writes_by_their_share_and_measured_apart() {
    let place = Place::new();
    let shape = ["-F", "-t", "4k", "-b", "800k", "--name", "mixed"];
    let document = place.document(Launcher::Threads, &[&shape[..], &["-w", "-k", "-W"]].concat());
    assert_eq!(number(&document["points"][0], "operation_count"), 400);
    let log = place.folder.path().join("operations.csv");
    for launcher in [Launcher::Threads, Launcher::Job, Launcher::User] {
        for backend in ["posix", "mmap", "io-uring"] {
            let mix = ["-w", "-E", "--mix-reads", "30", "-W", "-i", "2", "--backend", backend];
            let log_to = ["--operations", log.to_str().unwrap()];
            let document = place.document(launcher, &[&shape[..], &mix, &log_to].concat());
            let case = format!("{launcher:?} {backend}");
            assert_eq!(number(&document["requested"], "mix-reads"), 30, "{case}");
            let points = document["points"].as_array().unwrap();
            assert_eq!(points.len(), 2, "{case}");
            let rows = rows(&log);
            assert_logged(&document, &rows, &case);
            for point in points {
                let (read, write) = (&point["mix"]["read"], &point["mix"]["write"]);
                assert_eq!(point["phase"], "mixed");
                assert_eq!(
                    (number(read, "operation_count"), number(write, "operation_count")),
                    (120, 280),
                    "{case}"
                );
                assert_eq!(
                    (number(read, "bytes"), number(write, "bytes")),
                    (120 * 4096, 280 * 4096),
                    "{case}"
                );
                for key in ["bandwidth_bps", "operations_per_second"] {
                    let of = |value: &Value| value[key].as_f64().unwrap();
                    assert!(((of(read) + of(write)) / of(point) - 1.0).abs() < 1e-9, "{case}: {point}");
                }
                for share in [read, write] {
                    assert_eq!(number(&share["latency"], "sample_count"), number(share, "operation_count"));
                }
                let of_phase = rows.iter().filter(|row| row.phase.0 == number(point, "iteration"));
                let reads = of_phase.filter(|row| row.operation == "read").count();
                assert_eq!(reads, 120, "{case}");
            }
        }
    }
    // All of it is as it was written: reads among the writes were checked, and this is the rest.
    let read = place.document(Launcher::Threads, &[&shape[..], &["-r", "-W"]].concat());
    assert_eq!(number(&read["points"][0], "bytes"), 2 * 800 * 1024);
    let shown = place.run(Launcher::Threads, &[&shape[..], &["-w", "-E", "--mix-reads", "50"]].concat());
    for name in ["mixed", "reads", "writes"] {
        let lines = shown.ok().lines().filter(|line| line.starts_with("   "));
        let lines = lines.filter(|line| line.split_whitespace().any(|field| field == name));
        assert_eq!(lines.count(), 1, "{}", shown.stdout);
    }
    let directory = place.directory();
    let refused = |own: &[&str], parts: &[&str]| {
        let verb = ["storage", "stream", directory.to_str().unwrap()];
        run(&[&verb[..], own].concat()).refused(2, parts);
    };
    let alone = run(&["storage", "stream", directory.to_str().unwrap(), "-w", "--mix-reads", "50"]);
    assert!(alone.code() == 2 && alone.stderr.contains("--existing"), "{}", alone.stderr);
    let mix = ["-w", "-E", "--mix-reads", "50", "--name", "mixed", "-t", "4k"];
    refused(&[&mix[..], &["-F", "-b", "1600k", "-N", "2"]].concat(), &["of another shape", "800KiB"]);
    // That run has written other contents than the pattern.
    refused(&[&mix[..], &["-F", "-b", "800k", "-N", "2", "-W"]].concat(), &["another pattern", "--verify"]);
    refused(&["-w", "-E", "--name", "mixed", "--mix-reads", "100"], &["1 to 99"]);
}

/// Long enough to be seen, and no longer.
const METADATA: &[&str] = &[
    "--tasks",
    "2",
    "-n",
    "1000000",
    "-F",
    "-W",
    "1300ms",
    "--phases",
    "create,remove",
    "--live",
    "--json-stream",
];

/// What is shown once per second, by all ranks of it, until the stonewall.
#[test]
fn what_runs_is_shown_each_second_with_the_time_left() {
    let place = Place::new();
    // Slow enough for a disk: each transfer is flushed.
    let own = ["-w", "-F", "-t", "4k", "-b", "1t", "-Y", "-D", "2500ms", "--live"];
    for launcher in [Launcher::Threads, Launcher::Job, Launcher::User] {
        let ran = place.run(launcher, &[&own[..], &["--json-stream"]].concat());
        let events: Vec<Value> = ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_live =
            |event: &&Value| event["payload"]["name"] == "live" && event["payload"]["detail"].is_object();
        let live: Vec<&Value> =
            events.iter().filter(is_live).map(|event| &event["payload"]["detail"]).collect();
        assert!(live.len() >= 2, "{launcher:?}: {}", ran.stdout);
        let mut before = 0;
        // A rank of another process may have told nothing of the phase when it is a second old.
        assert!(live[1..].iter().all(|now| number(now, "rank_count") == 2), "{launcher:?}: {live:#?}");
        for now in live {
            assert_eq!(now["phase"], "write", "{launcher:?}: {now}");
            let (done, elapsed) = (number(now, "operation_count"), number(now, "elapsed_ns"));
            assert!(done > before && number(now, "bytes") == done * 4096, "{launcher:?}: {now}");
            assert!(now["bandwidth_bps"].as_f64().unwrap() > 0.0, "{launcher:?}: {now}");
            let left = now["left_ns"].as_u64();
            assert!(left.is_none_or(|left| left + elapsed <= 2_500_000_000), "{launcher:?}: {now}");
            before = done;
        }
        let last = &events[events.len() - 1]["payload"];
        assert!(
            number(&last["points"][0], "operation_count") >= before,
            "{launcher:?}: of the same transfers"
        );
    }
    let directory = place.directory();
    let ran = run(&[&["storage", "metadata", directory.to_str().unwrap()][..], METADATA].concat());
    let states =
        ran.ok().lines().filter(|line| line.contains("\"live\"") && line.contains("\"file create\""));
    assert!(states.count() >= 1, "{}", ran.stdout);
    let ran = place.run(Launcher::Threads, &own);
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.contains("calls/s")).collect();
    assert!(lines.len() >= 2, "{}", ran.stderr);
    for line in lines {
        assert!(line.len() < 80 && line.starts_with("write 0  ") && line.contains("iB/s"), "{line}");
    }
    ran.ok();
    let ran = place.run(Launcher::Threads, &own[..own.len() - 1]);
    assert!(!ran.stderr.contains("calls/s"), "{}", ran.stderr);
}

/// Open MPI gives ranks a terminal, whatever its own output is.
#[test]
fn ranks_write_nothing_for_the_terminal_of_their_launcher() {
    let place = Place::new();
    let ran = place.run(Launcher::User, &["-b", "1m", "--live"]);
    assert!(ran.ok().contains("note: "), "{}", ran.stdout);
    let wrong = place.run(Launcher::User, &["--tranfser", "1m"]);
    assert!(format!("{}{}", wrong.stdout, wrong.stderr).contains("--transfer"), "{}", wrong.stderr);
    let failed = place.run(Launcher::User, &["-b", "3m", "-t", "2m"]);
    for ran in [ran, wrong, failed] {
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains('\x1b') && !all.contains('\u{fdd0}'), "{all:?}");
    }
}

/// More ranks than limits let be, before there is a folder.
#[test]
fn ranks_without_room_are_refused_before_anything_is_made() {
    let place = Place::new();
    for verb in ["stream", "metadata"] {
        for (limit, parts) in [
            ("--nofile=300:300", ["1024 ranks need", "300 are allowed", "ulimit -Hn"]),
            ("--as=2000000000", ["1024 ranks need", "1.86 GiB are left", "ulimit -v"]),
        ] {
            let mut command = Command::new("prlimit");
            command.arg(limit).arg(program()).args(["storage", verb]).arg(place.directory());
            command.args(["--tasks", "1024"]).stdin(Stdio::null());
            let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            finish(child, LIMIT).refused(5, &parts);
            assert_eq!(fs::read_dir(place.directory()).unwrap().count(), 0);
        }
    }
    // A soft limit is raised where that is enough.
    let mut command = Command::new("prlimit");
    command.arg("--nofile=100:4096").arg(program()).args(["storage", "stream"]).arg(place.directory());
    command.args(["-N", "200", "-F", "-t", "4k", "-b", "4k", "--json"]).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(finish(child, LIMIT).json()["complete"], true);
}

/// A rank that says nothing any more ends the job, rank 0 too, which the others find out; what was measured until then is
/// kept.
#[test]
fn a_rank_that_is_not_heard_of_is_named_and_results_stay() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for (rank, seconds) in [(0, 25), (1, 20)] {
            let place = &place;
            scope.spawn(move || stopped(place, rank, seconds));
        }
    });
}

fn stopped(place: &Place, rank: u32, seconds: u32) {
    let directory = place.directory().join(rank.to_string());
    fs::create_dir(&directory).unwrap();
    let own = ["storage", "stream", directory.to_str().unwrap(), "-N", "2", "-b", "64k", "-t", "4k"];
    let job = [
        "--hosts",
        "localhost",
        "--mpirun",
        "mpirun.openmpi",
        "--mpi-library",
        place.library.to_str().unwrap(),
    ];
    let more = ["-i", "1000000", "--json"];
    let mut command = clearstream(&[&own[..], &job, &more].concat());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let child = command.spawn().unwrap();
    common::eventually(Duration::from_secs(30), "ranks work", || {
        let folders = fs::read_dir(&directory).unwrap().flatten();
        let files = folders.flat_map(|entry| fs::read_dir(entry.path()).into_iter().flatten().flatten());
        // Of the second iteration, or a later one.
        files.map(|entry| entry.file_name().into_string().unwrap()).any(|name| name.starts_with("data."))
    });
    let own_rank = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_it = |id: &u32| {
        let read = |file: &str| fs::read(format!("/proc/{id}/{file}")).unwrap_or_default();
        let (line, environment) = (read("cmdline"), read("environ"));
        let has =
            |bytes: &[u8], text: &str| bytes.split(|byte| *byte == 0).any(|field| field == text.as_bytes());
        has(&environment, &own_rank) && has(&line, directory.to_str().unwrap())
    };
    let ids = fs::read_dir("/proc").unwrap().flatten();
    let mut ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let found = ids.find(is_it).unwrap();
    common::signal(found, "STOP");
    let ended = finish(child, LIMIT);
    assert_eq!(ended.code(), 6, "{}", ended.stderr);
    let lost = format!("is lost: nothing was heard of rank {rank} for {seconds} s");
    for part in [lost.as_str(), "reachable"] {
        assert!(ended.stderr.contains(part), "{}", ended.stderr);
    }
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_valid("storage-stream", &document);
    assert_eq!(document["complete"], false);
    assert!(!document["points"].as_array().unwrap().is_empty());
    assert!(document["failure"]["message"].as_str().unwrap().contains(&format!("rank {rank}")));
    // The launcher may have ended it.
    let _ = Command::new("kill").args(["-KILL", &found.to_string()]).stderr(Stdio::null()).status();
    common::eventually(Duration::from_secs(30), "the files are removed", || {
        fs::read_dir(&directory).unwrap().count() == 0
    });
}
