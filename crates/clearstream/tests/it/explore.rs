//! `clearstream explore` by threads and by the ranks of each MPI that Debian has, against SPIN.

use crate::common;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::LazyLock,
    time::{Duration, Instant},
};

use crate::common::{
    Lab, Run, assert_valid, children, clearstream, eventually, finish, program, run, signal,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Launcher and library of an MPI.
struct Library {
    mpirun: &'static str,
    path: PathBuf,
}

/// Built as a site does it (`extras/mpi/library/build`).
static LIBRARIES: LazyLock<Vec<Library>> = LazyLock::new(|| {
    let launchers = [("mpicc.openmpi", "mpirun.openmpi"), ("mpicc.mpich", "mpirun.mpich")];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let build = |(compiler, mpirun): (&str, &'static str)| {
        let path = folder.join(format!("explore-{}-{compiler}.so", std::process::id()));
        common::build_mpi_library(compiler, &path);
        Library { mpirun, path }
    };
    launchers.map(build).into()
});

fn mpirun(library: &Library, ranks: u32, arguments: &[&str]) -> Command {
    let mut command = common::mpirun(library.mpirun, ranks);
    command.arg(program()).args(["explore", "--mpi", "--mpi-library"]).arg(&library.path).args(arguments);
    command
}

fn counts(document: &Value) -> [u64; 4] {
    ["state_count", "transition_count", "deadlock_count", "accepting_count"]
        .map(|key| document[key].as_u64().unwrap())
}

/// Records are a state and its predecessor's number.
fn assert_traffic(document: &Value, ranks: usize) {
    let record = document["state_bytes"].as_u64().unwrap() + 4;
    let most = document["message_bytes"].as_u64().unwrap();
    let all = document["ranks"].as_array().unwrap();
    assert_eq!(all.len(), ranks);
    let number = |value: &Value| value.as_u64().unwrap();
    let mut records = 0;
    for (rank, report) in all.iter().enumerate() {
        let messages: Vec<u64> = report["sent_messages"].as_array().unwrap().iter().map(number).collect();
        let bytes: Vec<u64> = report["sent_bytes"].as_array().unwrap().iter().map(number).collect();
        assert_eq!((messages.len(), messages[rank], bytes[rank]), (ranks, 0, 0), "none to itself");
        for (messages, bytes) in messages.iter().zip(&bytes) {
            assert_eq!(bytes % record, 0, "whole records");
            assert!(*bytes <= messages * most.max(record), "{bytes} in {messages} messages");
            records += bytes / record;
        }
    }
    let transitions = number(&document["transition_count"]);
    assert!(
        records <= transitions && (ranks == 1 || records > transitions / 4),
        "{records} of {transitions}"
    );
}

#[test]
fn threads_and_mpi_find_the_same_states_and_their_traffic_adds_up() {
    for model in [&["leader", "-D", "N=5", "--cycles"][..], &["sliding_window", "-D", "W=3", "--cycles"]] {
        let one = run(&[&["explore", "--json"], model].concat()).json();
        assert_valid("exploration", &one);
        assert_traffic(&one, 1);
        let options = ["explore", "--json", "--ranks", "3", "--message-size", "1KiB"];
        let three = run(&[&options, model].concat()).json();
        assert_eq!(counts(&three), counts(&one), "{model:?}");
        assert_traffic(&three, 3);
        for library in LIBRARIES.iter() {
            let all = [&["--json", "--message-size", "1KiB"], model].concat();
            let found = finish(mpirun(library, 3, &all).spawn().unwrap(), LIMIT).json();
            assert_valid("exploration", &found);
            assert_eq!(counts(&found), counts(&one), "{model:?} {:?}", library.mpirun);
            assert_eq!(found["accepting_cycle"], one["accepting_cycle"]);
            assert_traffic(&found, 3);
            let transport = found["transport"].as_str().unwrap();
            assert!(transport.starts_with("Open MPI v") || transport.starts_with("MPICH"), "{transport}");
        }
    }
}

/// States and transitions by SPIN's full search, without reductions.
fn spin(text: &str) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("twin.pml"), text).unwrap();
    let mut command = Command::new("spin");
    command.args(["-search", "-DNOREDUCE", "-DSAFETY", "-E", "twin.pml"]).current_dir(folder.path());
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |what: &str| {
        let line = text.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{what}: {text}"));
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    // SPIN counts the arrival in the initial state as one.
    (number("states, stored"), number("transitions (= stored+matched)") - 1)
}

#[test]
fn models_have_the_states_and_transitions_that_spin_finds() {
    let philosophers = |seats: u32| {
        format!(
            "#define N {seats}\nbit taken[N];\nactive [N] proctype philosopher() {{ do ::\n\
             d_step {{ taken[_pid] == 0 -> taken[_pid] = 1 }};\n\
             d_step {{ taken[(_pid + 1) % N] == 0 -> taken[(_pid + 1) % N] = 1 }};\n\
             d_step {{ taken[_pid] = 0; taken[(_pid + 1) % N] = 0 }} od }}"
        )
    };
    let peterson = "bit wants[2]; bit turn;\nactive [2] proctype p() { do :: wants[_pid] = 1; turn = 1 - _pid;\n\
                    (wants[1 - _pid] == 0 || turn == _pid); wants[_pid] = 0 od }";
    let mut twins = vec![(vec!["peterson"], peterson.to_owned())];
    for (value, seats) in [("N=4", 4), ("N=7", 7)] {
        twins.push((vec!["philosophers", "-D", value], philosophers(seats)));
    }
    for (model, twin) in twins {
        let found = run(&[&["explore", "--json", "--ranks", "2"], &model[..]].concat()).json();
        let [states, transitions, ..] = counts(&found);
        assert_eq!((states, transitions), spin(&twin), "{model:?}");
    }
}

#[test]
fn a_path_leads_from_the_initial_state_to_the_deadlock() {
    let document = run(&["explore", "philosophers", "-D", "N=3", "--ranks", "2", "--json"]).json();
    let path: Vec<&str> =
        document["path"].as_array().unwrap().iter().map(|state| state.as_str().unwrap()).collect();
    // Each of three takes one fork: three steps, in whichever order.
    assert_eq!(path.len(), 4, "{path:?}");
    assert_eq!(path[0].matches(".thinks").count(), 3);
    assert_eq!(path[3].matches(".has_left").count(), 3);
    let text = run(&["explore", "philosophers", "-D", "N=3"]);
    assert!(text.ok().contains("path of 4 states to the first deadlock"), "{}", text.stdout);
}

#[test]
fn mistakes_are_named_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.model");
    let path = path.to_str().unwrap();
    let refused = |text: &str, expected: &[&str]| {
        fs::write(path, text).unwrap();
        run(&["explore", path]).refused(2, expected);
    };
    refused(
        "model m\nprocess p { state a\n a -> c }",
        &["mine.model: line 3, column 2", "no state `c`", "it has: a"],
    );
    refused(
        "model m\nvariable x : 0..2\nprocess p { state a\n a -> a { y = 1 } }",
        &["line 4", "`y` is not declared"],
    );
    refused(
        "model m\nvariable x : 0..2\nprocess p { state a\n a -> a { x = x + 1 } }",
        &["line 4", "3 is outside the range 0..2", "in the state p.a x=2"],
    );
    refused("model m\nprocess p { state a\n a -> a when 1 / 0 == 1 }", &["line 3", "no result"]);
    refused("model m", &["no process"]);
    refused("modell m", &["line 1, column 1", "expected `model`"]);
    run(&["explore", "petersen"]).refused(2, &["did you mean `peterson`"]);
    run(&["explore", "philosophers", "-D", "M=3"]).refused(2, &["no parameter `M`"]);
    run(&["explore", "philosophers", "--memory", "1KiB", "-D", "N=8"]).refused(8, &["more than 1024 bytes"]);
    run(&["explore", "peterson", "--mpi", "--mpi-library", "/nosuch.so"]).refused(5, &["/nosuch.so"]);
}

/// Enough states that it runs until it is ended.
const LONG: [&str; 3] = ["philosophers", "-D", "N=18"];

#[test]
fn an_interrupted_exploration_keeps_its_counts() {
    for ranks in ["1", "3"] {
        let child =
            clearstream(&[&["explore", "--json", "--ranks", ranks][..], &LONG].concat()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        signal(child.id(), "INT");
        let ended = finish(child, LIMIT);
        assert_eq!(ended.code(), 130, "{}", ended.stderr);
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(document["complete"], false);
        assert!(document["state_count"].as_u64().unwrap() > 0, "{document}");
    }
}

/// Processes of a job's ranks.
fn ranks_of(job: &Child) -> Vec<u32> {
    let mut found = children(job.id());
    for child in found.clone() {
        found.extend(children(child));
    }
    let is_rank = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/exe"))
            .is_ok_and(|path| path == fs::canonicalize(program()).unwrap())
    };
    found.into_iter().filter(is_rank).collect()
}

/// Rank 0, or another one.
#[test]
fn a_rank_that_is_not_heard_of_is_named() {
    let silenced = |rank: u32| {
        let job = mpirun(&LIBRARIES[0], 2, &LONG).spawn().unwrap();
        eventually(LIMIT, "two ranks run", || ranks_of(&job).len() == 2);
        std::thread::sleep(Duration::from_secs(2));
        let own = format!("OMPI_COMM_WORLD_RANK={rank}");
        let is_it = |pid: &u32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|one| one == own.as_bytes())
        };
        signal(ranks_of(&job).into_iter().find(is_it).unwrap(), "STOP");
        let ended = finish(job, LIMIT);
        assert_eq!(ended.code(), 6, "{}", ended.stderr);
        assert!(ended.stderr.contains(&format!("nothing was heard of rank {rank} for")), "{}", ended.stderr);
    };
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            scope.spawn(move || silenced(rank));
        }
    });
}

#[test]
fn a_killed_rank_ends_the_job() {
    for library in LIBRARIES.iter() {
        let job = mpirun(library, 3, &LONG).spawn().unwrap();
        eventually(LIMIT, "three ranks run", || ranks_of(&job).len() == 3);
        std::thread::sleep(Duration::from_millis(300));
        let victims = ranks_of(&job);
        let killed = Instant::now();
        signal(victims[1], "KILL");
        let ended: Run = finish(job, LIMIT);
        assert!(!ended.status.success(), "{:?}: {}", library.mpirun, ended.stdout);
        assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
        eventually(Duration::from_secs(10), "no rank is left", || {
            victims.iter().all(|pid| !common::alive(*pid))
        });
    }
}

/// A study's trials between the hosts of a lab, over MPI's own TCP and over iWARP, by message size.
#[test]
fn root_a_study_explores_between_hosts_over_tcp_and_over_iwarp() {
    common::link_provider();
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "explore-study");
    let library = &LIBRARIES[0];
    let text = STUDY.replace("MPIRUN", library.mpirun).replace("LIBRARY", library.path.to_str().unwrap());
    let study = folder.path().join("exploring.toml");
    fs::write(&study, text).unwrap();
    let runs = folder.path().join("runs");
    let arguments = ["study", "run", study.to_str().unwrap(), "--lab", &lab.0];
    let child = clearstream(&[&arguments[..], &["--runs", runs.to_str().unwrap()]].concat()).spawn().unwrap();
    finish(child, LIMIT).ok();
    let alone = run(&["explore", "philosophers", "-D", "N=7", "--json"]).json();
    let record = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let trials = fs::read_to_string(record.join("trials.jsonl")).unwrap();
    let mut seen = Vec::new();
    for line in trials.lines() {
        let trial: Value = serde_json::from_str(line).unwrap();
        let measured = &trial["outcome"]["measured"];
        assert_eq!(measured["complete"], true, "{line}");
        let document = &measured["detail"]["document"];
        assert_eq!(counts(document), counts(&alone), "{line}");
        let hosts: Vec<_> = document["ranks"].as_array().unwrap().iter().map(|rank| &rank["host"]).collect();
        assert_eq!(hosts, ["here", "there"], "{line}");
        assert_traffic(document, 2);
        let metric = |name: &str| {
            let all = measured["metrics"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).unwrap()["value"].as_f64().unwrap()
        };
        let sent = document["ranks"].as_array().unwrap().iter().flat_map(|rank| {
            rank["sent_bytes"].as_array().unwrap().iter().map(|bytes| bytes.as_f64().unwrap())
        });
        assert!((metric("sent-bytes") - sent.sum::<f64>()).abs() < 0.5, "{line}");
        assert!(metric("state-rate") > 0.0 && metric("duration") > 0.0, "{line}");
        seen.push((document["message_bytes"].as_u64().unwrap(), metric("sent-messages")));
    }
    assert_eq!(seen.len(), 4, "two transports, two sizes");
    let most = |bytes| seen.iter().filter(|one| one.0 == bytes).map(|one| one.1).fold(0.0, f64::max);
    assert!(most(64) > most(16384), "smaller messages are more: {seen:?}");
    let wrong = fs::read_to_string(&study).unwrap().replace("N=7", "N=x");
    fs::write(&study, wrong).unwrap();
    let arguments = ["study", "run", study.to_str().unwrap(), "--lab", &lab.0];
    run(&[&arguments[..], &["--runs", runs.to_str().unwrap()]].concat()).refused(2, &["NAME=VALUE"]);
}

/// The study [`BESIDE`] in a lab of its own.
struct Beside {
    folder: tempfile::TempDir,
    lab: Lab,
}

impl Beside {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let lab = Lab::of_two_hosts(folder.path(), name);
        Self { folder, lab }
    }

    /// Starts it with these options of the application, and this length of the trial.
    fn start(&self, options: &str, length: &str) -> Child {
        let (study, runs) = (self.folder.path().join("beside.toml"), self.folder.path().join("runs"));
        fs::write(&study, format!("{BESIDE}{options}\n{length}\n")).unwrap();
        let _ = fs::remove_dir_all(&runs);
        let arguments = ["study", "run", study.to_str().unwrap(), "--lab", &self.lab.0];
        clearstream(&[&arguments[..], &["--runs", runs.to_str().unwrap()]].concat()).spawn().unwrap()
    }

    /// The record's folder, its one trial, and the report.
    fn record(&self) -> (PathBuf, Value, String) {
        let record = fs::read_dir(self.folder.path().join("runs")).unwrap().next().unwrap().unwrap().path();
        let trials = fs::read_to_string(record.join("trials.jsonl")).unwrap();
        let page = fs::read_to_string(record.join("report.html")).unwrap();
        (record, serde_json::from_str(trials.trim()).unwrap(), page)
    }

    /// The trial has failed because of its application: in the record, the exit code, the summary and the report.
    fn assert_failed(&self, run: &Run, expected: &str) {
        assert_eq!(run.code(), 8, "{}", run.stderr);
        let all = format!("{}{}", run.stdout, run.stderr);
        assert!(all.contains("0 of 1 trials done, 1 failed"), "{all}");
        let (_, trial, page) = self.record();
        let failed = trial["outcome"]["failed"]["message"].as_str().unwrap_or_else(|| panic!("{trial}"));
        assert!(failed.contains("the application beside the flows failed"), "{failed}");
        assert!(failed.contains(expected), "{failed}");
        assert!(!page.contains("id=\"figure-beside-live\""), "no figure of an application that failed");
        assert!(page.contains("the application beside the flows failed"), "the report names it");
    }
}

/// Bulk flows and an application at a time: the counters of the interfaces have both, and the report draws them.
#[test]
fn root_a_study_explores_beside_bulk_flows() {
    let beside = Beside::new("explore-beside");
    let of_mpi = options_of_mpi(LIBRARIES[0].mpirun, &LIBRARIES[0].path);
    for options in ["", &of_mpi] {
        let metric = |trial: &Value, name: &str| {
            let all = trial["outcome"]["measured"]["metrics"].as_array().unwrap();
            all.iter().find(|one| one["name"] == name).and_then(|one| one["value"].as_f64())
        };
        // Beside much else the first exploration may take longer than a short trial.
        let mut trials = [SHORT, SHORT_ON_BUSY_CORES].into_iter().map(|length| {
            finish(beside.start(options, length), LIMIT).ok();
            beside.record()
        });
        let (record, trial, page) = trials
            .find(|(_, trial, _)| metric(trial, "explorations") >= Some(1.0))
            .expect("an exploration ended");
        let metric = |name: &str| metric(&trial, name);
        assert!(metric("goodput").unwrap() > 0.0, "{trial}");
        assert!(metric("application-rate").unwrap() > 0.0, "{trial}");
        // The sender's interface carried what the flows sent, but for what their sockets hold at most at the end.
        let samples = fs::read_to_string(record.join(trial["samples"].as_str().unwrap())).unwrap();
        let (mut flows, mut interface, mut held) = (0, 0, 0);
        for line in samples.lines() {
            let client = &serde_json::from_str::<Value>(line).unwrap()["client"];
            let sum = |list: &Value, key: &str| -> u64 {
                list.as_array().unwrap().iter().map(|one| one[key].as_u64().unwrap_or(0)).sum()
            };
            flows += sum(&client["flows"], "sent_bytes");
            interface += sum(&client["interfaces"], "send_bytes");
            let sockets = client["flows"].as_array().unwrap().iter();
            held = sockets.map(|flow| flow["memory"]["send_limit_bytes"].as_u64().unwrap()).sum();
        }
        // The two counters are read one after the other: on busy cores the sampler may have to wait in between.
        let apart = flows / 50;
        assert!(
            interface + held + apart > flows,
            "{interface} of the interface, {flows} of the flows, {held} held"
        );
        assert!(interface < flows + flows / 4, "{interface} of the interface, {flows} of the flows");
        assert!(page.contains("id=\"figure-beside-live\""), "figure 7");
        assert!(page.contains("the application beside the flows explored"), "and what it shows");
    }
}

/// Without a launcher, without the library, and with a rank that is killed.
#[test]
fn root_a_trial_whose_application_fails_has_failed() {
    let beside = Beside::new("explore-fails");
    let library = &LIBRARIES[0];
    let run = |options: &str| finish(beside.start(options, SHORT), LIMIT);
    beside.assert_failed(&run(&options_of_mpi("no-such-mpirun", &library.path)), "no-such-mpirun");
    let absent = beside.folder.path().join("absent.so");
    beside.assert_failed(&run(&options_of_mpi(library.mpirun, &absent)), "absent.so");
    let own = beside.folder.path().join("killed.so");
    fs::copy(&library.path, &own).unwrap();
    let child = beside.start(&options_of_mpi(library.mpirun, &own), LASTING);
    eventually(LIMIT, "a rank of this study runs", || !ranks_with(&own).is_empty());
    // They have found each other by now, or the job fails as one whose rank never came.
    std::thread::sleep(Duration::from_millis(500));
    ranks_with(&own).into_iter().for_each(|rank| signal(rank, "KILL"));
    beside.assert_failed(&finish(child, LIMIT), "");
}

/// Processes of this program that are ranks with this library.
fn ranks_with(library: &Path) -> Vec<u32> {
    let is_rank = |pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
        line.contains("--mpi\0")
            && line.contains(library.to_str().unwrap())
            && exe == fs::canonicalize(program()).ok()
    };
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_rank).collect()
}

fn options_of_mpi(mpirun: &str, library: &Path) -> String {
    format!("transport = \"mpi\"\nmpirun = \"{mpirun}\"\nmpi-library = \"{}\"", library.display())
}

/// Explorations that end several times meanwhile.
const SHORT: &str = "define = \"N=7\"\nduration = \"5s\"";
const SHORT_ON_BUSY_CORES: &str = "define = \"N=7\"\nduration = \"25s\"";
/// An exploration that takes longer than the flows, which last until a launcher has noticed that its ranks are gone.
const LASTING: &str = "define = \"N=20\"\nduration = \"15s\"";

const BESIDE: &str = r#"
schema = "clearstream.study"
version = 1
name = "beside"
title = "An application beside bulk flows"
[[experiment]]
name = "beside"
title = "Bulk flows beside an application"
workload = "live-traffic"
[experiment.live-traffic]
flows = 1
warm-up = "500ms"
interval = "500ms"
pause = "300ms"
"#;

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "exploring"
title = "Exploration between two hosts"
[[experiment]]
name = "exploration"
title = "By message size"
workload = "explore"
[experiment.explore]
define = "N=7"
mpirun = "MPIRUN"
mpi-library = "LIBRARY"
[experiment.factors]
transport = ["mpi", "mpi-iwarp"]
message-size = ["64B", "16KiB"]
"#;
