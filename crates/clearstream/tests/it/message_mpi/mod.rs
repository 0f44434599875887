//! `clearstream message --transport mpi` with each MPI library that Debian has,
//! on one host and over a lab's link, against what the kernel counts.

use crate::common;
mod library;
mod over_iwarp;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{Lab, assert_valid, clearstream, eventually, finish, run, signal};
use library::libraries;
use serde_json::Value;

fn notices(document: &Value) -> Vec<&str> {
    let all = document["notices"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|notice| notice["id"].as_str().unwrap()).collect()
}

#[test]
fn results_are_those_of_tcp_with_the_library_and_its_ranks() {
    for library in libraries() {
        let document = library.measure(&["localhost", "--sizes", "1B-64B", "-n", "20", "--verify"]);
        let points = document["points"].as_array().unwrap();
        let tcp =
            run(&["message", "localhost", "--sizes", "1B-64B", "-n", "20", "-O", "1ms", "--json"]).json();
        let sizes = |document: &Value| -> Vec<(u64, bool)> {
            let points = document["points"].as_array().unwrap();
            let of = |point: &Value| {
                (point["size_bytes"].as_u64().unwrap(), point["is_perturbed"].as_bool().unwrap())
            };
            points.iter().map(of).collect()
        };
        assert_eq!(sizes(&document), sizes(&tcp), "{}", library.name);
        for point in points {
            assert_eq!(point["server_received_count"], 20);
            assert_eq!(point["client_received_count"], 20);
            let latency = |name: &str| point["latency"][name].as_u64().unwrap();
            assert!(
                latency("min_ns") <= latency("p50_ns") && latency("p50_ns") <= latency("p99_ns"),
                "{point}"
            );
            assert!(2 * latency("mean_ns") * 20 <= point["elapsed_ns"].as_u64().unwrap(), "{point}");
        }
        let version = document["mpi"]["library"].as_str().unwrap().to_lowercase();
        let expected = if library.name == "openmpi" { "open mpi v" } else { "mpich version" };
        assert!(version.contains(expected), "{version}");
        assert_eq!(document["mpi"]["ranks"].as_array().unwrap().len(), 2);
        assert!(notices(&document).contains(&"verified"), "{document}");
        assert!(notices(&document).contains(&"not-on-the-network"), "one host: {document}");
        for kind in ["stream", "bidirectional"] {
            let document = library.measure(&[
                "localhost",
                "-s",
                "4KiB",
                "-n",
                "5",
                "-w",
                "8",
                "--kind",
                kind,
                "--verify",
            ]);
            let point = &document["points"][0];
            assert_eq!(point["server_received_count"], 40, "{kind}");
            assert_eq!(point["client_received_count"], if kind == "stream" { 0 } else { 40 }, "{kind}");
        }
    }
}

/// Bytes that an interface of a lab's host has received and sent, as `ip` counts them.
fn interface_bytes(lab: &str, host: &str) -> (u64, u64) {
    let link = run(&["lab", "exec", lab, host, "--", "ip", "-s", "-j", "link", "show", "eth0"]);
    let links: Value = serde_json::from_str(link.ok()).unwrap();
    let counter = |direction: &str| links[0]["stats64"][direction]["bytes"].as_u64().unwrap();
    (counter("rx"), counter("tx"))
}

#[test]
fn root_messages_cross_the_link_of_a_lab() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-bytes");
    for library in libraries() {
        for (kind, is_returned) in [("ping-pong", true), ("stream", false), ("bidirectional", true)] {
            let (received_before, sent_before) = interface_bytes(&lab.0, "there");
            let mut options = vec!["--lab", &lab.0, "--kind", kind, "-s", "64KiB", "-n", "40", "--verify"];
            if kind != "ping-pong" {
                options.extend(["-w", "8"]);
            }
            let document = library.measure(&options);
            let (received, sent) = interface_bytes(&lab.0, "there");
            let messages = if kind == "ping-pong" { 40 } else { 320 } * (64 << 10);
            let what = format!("{} {kind}", library.name);
            assert!(received - received_before >= messages, "{what}: {}", received - received_before);
            assert_eq!(sent - sent_before >= messages, is_returned, "{what}: {}", sent - sent_before);
            // What the ranks read of their interfaces is within what `ip` saw of the whole job.
            let interfaces = &document["points"][0]["interfaces"];
            let read = interfaces["client_sent_bytes"].as_u64().unwrap();
            assert!((messages..=received - received_before).contains(&read), "{what}: {read}");
            assert_eq!(interfaces["server_sent_bytes"].as_u64().unwrap() >= messages, is_returned, "{what}");
            assert!(!notices(&document).contains(&"not-on-the-network"), "{what}: {document}");
            let hosts: Vec<&str> = document["mpi"]["ranks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|rank| rank["host"].as_str().unwrap())
                .collect();
            assert_eq!(hosts, ["here", "there"], "{what}");
        }
        assert_eq!(library.ranks(), Vec::<u32>::new(), "{}", library.name);
    }
}

#[test]
fn root_a_killed_rank_ends_the_job_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-killed");
    for library in libraries() {
        for (host, number) in [("there", 1), ("here", 0)] {
            let arguments = ["--lab", &lab.0, "--sizes", "1B-2B", "-t", "300s"];
            let child = clearstream(&library.arguments(&arguments)).spawn().unwrap();
            let id = child.id();
            eventually(Duration::from_secs(30), "both ranks run", || library.ranks().len() == 2);
            let rank = rank_on(&library.ranks(), host);
            // The job is set up when the ranks have exchanged messages; before, the launcher
            // itself may fail first.
            std::thread::sleep(Duration::from_secs(2));
            let begin = Instant::now();
            signal(rank, "KILL");
            let ended = finish(child, Duration::from_secs(30));
            assert!(begin.elapsed() < Duration::from_secs(10), "{} took {:?}", library.name, begin.elapsed());
            assert_ne!(ended.code(), 0);
            let expected = format!("rank {number} on {host}: ended by signal 9");
            assert!(ended.stderr.contains(&expected), "{} of {id}: {}", library.name, ended.stderr);
            eventually(Duration::from_secs(10), "no rank is left", || library.ranks().is_empty());
        }
    }
}

/// Hosts that `mpirun` reaches by ssh. In the place of ssh stands a program that enters the
/// other host of a lab, as ssh would: options, host, command line for a shell there.
#[test]
fn root_the_launcher_reaches_the_other_host_by_ssh() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-ssh");
    let (ssh, log, own) = (folder.path().join("ssh"), folder.path().join("log"), common::program().display());
    let script = format!(
        "#!/bin/sh\nwhile :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done\n\
         host=$1; shift; [ \"$1\" = -- ] && shift\necho \"$host $*\" >>{}\n\
         exec {own} lab exec {} \"$host\" -- sh -c \"$*\"\n",
        log.display(),
        lab.0
    );
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    for library in libraries() {
        let own = own.to_string();
        let mut arguments = vec!["lab", "exec", &lab.0, "here", "--", &own];
        let measured = ["there", "--address", "10.0.0.2", "--remote-program", &own, "-s", "1KiB", "-n", "20"];
        arguments.extend(library.arguments(&measured));
        let child = clearstream(&arguments).env("PATH", &path).spawn().unwrap();
        let document = finish(child, Duration::from_secs(60)).json();
        let ranks = document["mpi"]["ranks"].as_array().unwrap();
        let hosts: Vec<&str> = ranks.iter().map(|rank| rank["host"].as_str().unwrap()).collect();
        assert_eq!(hosts, ["here", "there"], "{}", library.name);
        let daemon = if library.name == "openmpi" { "orted" } else { "hydra_pmi_proxy" };
        let calls = fs::read_to_string(&log).unwrap();
        assert!(calls.lines().any(|line| line.starts_with("there ") && line.contains(daemon)), "{calls}");
    }
}

/// Trials of the built-in study, started by `mpirun` of the PATH with the library beside the program.
#[test]
fn root_the_study_of_the_paper_measures_over_mpi_in_a_lab() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-study");
    for library in libraries() {
        let beside = common::program().with_file_name(library.library.file_name().unwrap());
        // Another test may be loading the one that is there.
        let whole = tempfile::NamedTempFile::new_in(beside.parent().unwrap()).unwrap();
        fs::copy(&library.library, whole.path()).unwrap();
        whole.persist(beside).unwrap();
    }
    let runs = folder.path().join("runs");
    let arguments =
        ["study", "run", "iwarp-verbs", "--lab", &lab.0, "--quick", "--experiment", "mpi-latency"];
    let arguments = [&arguments[..], &["--runs", runs.to_str().unwrap()]].concat();
    let child = clearstream(&arguments).spawn().unwrap();
    finish(child, Duration::from_secs(120)).ok();
    let run = fs::read_dir(&runs).unwrap().next().unwrap().unwrap().path();
    let trials = fs::read_to_string(run.join("trials.jsonl")).unwrap();
    // Five sizes, twice.
    assert_eq!(trials.lines().count(), 10);
    for line in trials.lines() {
        let trial: Value = serde_json::from_str(line).unwrap();
        let measured = &trial["outcome"]["measured"];
        assert_eq!(measured["complete"], true, "{line}");
        let ranks = &measured["detail"]["document"]["mpi"]["ranks"];
        assert_eq!((&ranks[0]["host"], &ranks[1]["host"]), (&"here".into(), &"there".into()), "{line}");
        assert!(!line.contains("not-on-the-network"), "{line}");
    }
}

/// Every message of the methods of COMB arrives, undamaged.
#[test]
fn ranks_work_beside_messages_by_both_methods() {
    for library in libraries() {
        for method in ["polling", "post-work-wait"] {
            let own = ["overlap", "localhost", "--method", method, "-s", "4KiB", "-w", "8", "--work", "1000"];
            let measured = ["-n", "20", "-O", "0ms", "--verify", "--json"];
            let document = run(&[&own[..], &measured, &library.options()].concat()).json();
            assert_valid("overlap", &document);
            let case = format!("{} {method}: {document}", library.name);
            let point = &document["points"][0];
            assert_eq!(point["server_received_count"], point["client_received_count"], "{case}");
            assert_eq!((&point["work_count"], &point["cycle_count"]), (&1000.into(), &20.into()), "{case}");
            let number = |name: &str| point[name].as_f64().unwrap();
            let elapsed = number("elapsed_ns");
            let availability = number("work_alone_ns") / elapsed;
            assert!((number("availability_ratio") - availability).abs() < 1e-3, "{case}");
            if method == "post-work-wait" {
                // Windows of 8 messages in each direction; the times of a cycle are all there is.
                assert_eq!(point["client_received_count"], 20 * 8, "{case}");
                let cycles = number("post_ns") + number("work_ns") + number("wait_ns");
                assert!((cycles - elapsed).abs() < 10.0, "{case}");
            }
        }
    }
}

/// The rank on a host.
fn rank_on(processes: &[u32], host: &str) -> u32 {
    let is_there = |id: &&u32| {
        let name = Command::new("nsenter").args(["-u", "-t", &id.to_string(), "hostname"]).output().unwrap();
        String::from_utf8(name.stdout).unwrap().trim() == host
    };
    *processes.iter().find(is_there).unwrap()
}

/// An interrupt keeps what was measured; SIGKILL leaves no time for anything, and nothing stays.
#[test]
fn an_end_of_the_command_ends_the_ranks() {
    for library in libraries() {
        for name in ["INT", "KILL"] {
            let arguments = ["localhost", "--sizes", "1B-2B", "-t", "300s"];
            let mut child = clearstream(&library.arguments(&arguments)).spawn().unwrap();
            eventually(Duration::from_secs(30), "both ranks run", || library.ranks().len() == 2);
            signal(child.id(), name);
            if name == "INT" {
                assert_eq!(finish(child, Duration::from_secs(30)).code(), 130);
            } else {
                child.wait().unwrap();
            }
            eventually(Duration::from_secs(20), "no rank is left", || library.ranks().is_empty());
        }
    }
}

#[test]
fn mistakes_are_reported_with_what_to_do() {
    let here = |options: &[&str]| {
        let mut arguments = vec!["message", "localhost", "-s", "1B", "-n", "1"];
        arguments.extend(options);
        run(&arguments)
    };
    let [openmpi, mpich] = libraries() else { panic!("two") };
    let none = ["--transport", "mpi", "--mpirun", "mpirun.nobody"];
    here(&none).refused(5, &["mpirun.nobody is not on this host", "apt-get install"]);
    let missing = ["--transport", "mpi", "--mpirun", &openmpi.mpirun, "--mpi-library", "/nonexistent.so"];
    here(&missing).refused(5, &["/nonexistent.so", "make extras"]);
    for (launcher, built) in [(openmpi, mpich), (mpich, openmpi)] {
        let wrong = ["--transport", "mpi", "--mpirun", &launcher.mpirun, "--mpi-library", built.path()];
        here(&wrong).refused(5, &["is of another MPI than the launcher"]);
    }
    here(&["--mpirun", "mpirun.mpich"]).refused(2, &["--transport mpi"]);
    here(&["--transport", "mpi", "--nagle"]).refused(2, &["nagle is an option of TCP"]);
    let mut core = openmpi.options().to_vec();
    core.extend(["--server-core", "4095"]);
    here(&core).refused(2, &["rank 1", "core 4095"]);
}

/// A network that changes a byte which its checksums do not see is simulated by a library
/// between the program and MPI that changes a received byte once.
#[test]
fn a_changed_byte_of_a_verified_message_ends_the_job() {
    const CHANGED: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <mpi.h>
        int MPI_Recv(void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status *s) {
            static int (*next)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *);
            static int count;
            if (!next) *(void **)&next = dlsym(RTLD_NEXT, "MPI_Recv");
            int code = next(b, n, t, from, tag, c, s);
            if (n == 64 && ++count == 3) ((unsigned char *)b)[17] ^= 1;
            return code;
        }"#;
    let folder = tempfile::tempdir().unwrap();
    for library in libraries() {
        let source = folder.path().join("changed.c");
        fs::write(&source, CHANGED).unwrap();
        let object = folder.path().join(format!("changed.{}.so", library.name));
        let mut command = Command::new(&library.compiler);
        command.args(["-shared", "-fPIC", "-o"]).arg(&object).arg(&source).arg("-ldl");
        assert!(command.status().unwrap().success(), "{}", library.compiler);
        // The launcher has the ranks load it before everything else.
        let object = object.display();
        let launcher = match library.name {
            "openmpi" => format!("{} -x LD_PRELOAD={object}", library.mpirun),
            _ => format!("{} -genv LD_PRELOAD {object}", library.mpirun),
        };
        let arguments = ["message", "localhost", "-s", "64B", "-n", "20", "-O", "0ms", "--verify"];
        let job = ["--transport", "mpi", "--mpirun", &launcher, "--mpi-library", library.path()];
        let mut all = [&arguments[..], &job].concat();
        let ended = run(&all);
        assert_ne!(ended.code(), 0);
        let named = ended.stderr.contains("message 1 of 64 bytes: byte 17 is");
        assert!(named, "{}: {}", library.name, ended.stderr);
        // Without verification nobody sees it.
        all.retain(|option| *option != "--verify");
        run(&all).ok();
    }
}

/// The transport is a factor of studies.
#[test]
fn root_a_study_compares_tcp_with_mpi() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "mpi-study");
    let (study, runs) = (folder.path().join("transports.toml"), folder.path().join("runs"));
    let library = &libraries()[1];
    let text = STUDY.replace("LIBRARY", library.path()).replace("MPIRUN", &library.mpirun);
    fs::write(&study, text).unwrap();
    run(&["study", "run", study.to_str().unwrap(), "--lab", &lab.0, "--runs", runs.to_str().unwrap()]).ok();
    let record = fs::read_dir(&runs).unwrap().flatten().next().unwrap().path();
    let trials = BufReader::new(fs::File::open(record.join("trials.jsonl")).unwrap());
    let mut transports = Vec::new();
    for line in trials.lines() {
        let trial: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(metrics) = trial["outcome"]["measured"]["metrics"].as_array() else { continue };
        let names: Vec<&str> = metrics.iter().map(|metric| metric["name"].as_str().unwrap()).collect();
        assert_eq!(
            names,
            ["latency", "latency-p99", "latency-min", "throughput", "client-cpu", "server-cpu"]
        );
        transports.push(trial["factors"]["transport"].as_str().unwrap().to_owned());
    }
    transports.sort();
    assert_eq!(transports, ["mpi", "mpi", "tcp", "tcp"]);
}

const STUDY: &str = r#"schema = "clearstream.study"
version = 1
name = "transports"
title = "Transports"
[[experiment]]
name = "by-size"
title = "Latency"
workload = "message"
figure = "curve"
[experiment.message]
iterations = 20
warm-up = "1ms"
mpirun = "MPIRUN"
mpi-library = "LIBRARY"
[experiment.factors]
size = ["1B", "1KiB"]
transport = ["tcp", "mpi"]
"#;
