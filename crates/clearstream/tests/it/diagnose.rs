//! Limits made for real in labs, and what the diagnosis calls them.
//!
//! Only limits that any machine makes, however busy: an interrupt core that is
//! full is one of speed, and belongs to `make bench BENCH=diagnosis`.
//!
//! `CLEARSTREAM_DIAGNOSE_REPEATS=10 cargo test -p clearstream --test diagnose
//! -- --nocapture` prints the whole table for so many repeats; a path without
//! a fault is diagnosed twice as often.
#![allow(clippy::print_stdout, reason = "the table is for people")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::common::{clearstream, finish, run, signal};
use serde_json::Value;

/// Rows use all cores: one at a time.
static MACHINE: Mutex<()> = Mutex::new(());

/// 17 ms as on the wide-area path of the papers, at a rate that any machine can carry.
const LONG: &str = "delay = \"8.5ms\"\nrate = \"2Gb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"";
const AMPLE: &str = "268435456";

/// A limit and how it is made.
struct Row {
    name: &'static str,
    link: &'static str,
    receive_most: &'static str,
    send_most: &'static str,
    options: &'static str,
    /// Cause that must be named first, and parts of its sentence.
    cause: &'static str,
    expected: &'static [&'static str],
}

const fn row(name: &'static str, link: &'static str, options: &'static str, cause: &'static str) -> Row {
    Row { name, link, receive_most: AMPLE, send_most: AMPLE, options, cause, expected: &[] }
}

const ROWS: [Row; 11] = [
    Row {
        expected: &["SO_RCVBUF", "256 KiB"],
        ..row("rcvbuf", LONG, "--receive-buffer 256KiB", "receiver-window")
    },
    Row {
        receive_most: "524288",
        expected: &["net.ipv4.tcp_rmem"],
        ..row("rmem", LONG, "", "receiver-window")
    },
    Row {
        // The defaults of Linux 6.18: receive 32 MiB, send 4 MiB.
        receive_most: "33554432",
        send_most: "4194304",
        expected: &["net.ipv4.tcp_wmem", "4 MiB"],
        ..row("wmem", "delay = \"8.5ms\"\nrate = \"10Gb/s\"\nbackend = \"delay-line\"", "", "send-buffer")
    },
    row("reader-sleeps", LONG, "--receiver-pause 20ms", "receiver-application"),
    Row {
        expected: &["computes"],
        ..row("reader-computes", LONG, "--receiver-work 20ms", "receiver-application")
    },
    row("writer-pauses", LONG, "--burst-flows 1 --burst-on 1ms --burst-off 99ms", "sender-application"),
    Row {
        expected: &["Mathis"],
        ..row("loss", "delay = \"8.5ms\"\nloss-ratio = 0.0001\nbackend = \"delay-line\"", "", "loss")
    },
    row(
        "rate",
        "delay = \"8.5ms\"\nrate = \"300Mb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"",
        "",
        "path-capacity",
    ),
    Row { expected: &["200 Mb/s"], ..row("pacing", LONG, "--pacing 200Mb/s", "pacing") },
    // A reader that throws away in the kernel copies nothing: the writer, whose
    // core does the softirqs of a veth pair, too, is the busy one.
    Row {
        expected: &["sender CPU"],
        ..row("cpu", "", "--sender-cores 0 --receiver-cores 1 --receive discard", "cpu")
    },
    Row {
        expected: &["1500", "9000"],
        ..row(
            "black-hole",
            "delay = \"8.5ms\"\nblack-hole-above = 1500\nbackend = \"delay-line\"",
            "",
            "path-mtu",
        )
    },
];

fn lab_file(folder: &Path, name: &str, row: &Row) -> PathBuf {
    let host = |name: &str| {
        format!(
            "[[host]]\nname = \"{name}\"\ncongestion-control = \"cubic\"\n[host.sysctls]\n\
             \"net.ipv4.tcp_rmem\" = \"4096 131072 {}\"\n\"net.ipv4.tcp_wmem\" = \"4096 16384 {}\"\n\
             \"net.ipv4.tcp_no_metrics_save\" = \"1\"\n",
            row.receive_most, row.send_most
        )
    };
    let text = format!(
        "schema = \"clearstream.lab\"\nversion = 1\nname = \"{name}\"\ntitle = \"a limit\"\n{}{}\
         [[link]]\nmtu = 9000\n{}\nends = [\n\
         {{ host = \"alpha\", interface = \"wan0\", addresses = [\"10.79.0.1/24\"] }},\n\
         {{ host = \"beta\", interface = \"wan0\", addresses = [\"10.79.0.2/24\"] }},\n]\n",
        host("alpha"),
        host("beta"),
        row.link
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).unwrap();
    path
}

/// Diagnoses a row's path in a lab of its own.
fn diagnose(row: &Row) -> Value {
    within("diagnose", row, &["--budget", "10s"])
}

/// The document of a command over a row's path, in a lab of its own.
fn within(verb: &str, row: &Row, more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = lab_file(folder.path(), &format!("limit-{}", row.name), row);
    let mut command = clearstream(&[verb, "--json"]);
    command.args(more).arg("--lab").arg(path).args(row.options.split_whitespace());
    finish(command.spawn().unwrap(), Duration::from_secs(60)).json()
}

/// Why this machine could not make a limit now: other tests run beside this
/// one. What is named must be others' and much.
fn not_made(document: &Value) -> Option<String> {
    let (cause, sentence) = first_cause(document);
    let held = document.pointer("/primary/found/cause/foreign_core_count").and_then(Value::as_f64);
    let processes = document.pointer("/primary/found/cause/processes").and_then(Value::as_array);
    let name = |process: &Value| process["name"].as_str().unwrap_or_default().to_owned();
    let others = processes.into_iter().flatten().any(|process| !name(process).starts_with("clearstream"));
    (cause == "contention" && others && held >= Some(0.3)).then_some(sentence)
}

/// Attempts at a limit that the machine did not produce.
const ATTEMPTS: usize = 3;

fn first_cause(document: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = &document["primary"]["found"];
    match found["cause"]["kind"].as_str() {
        Some(kind) => (kind.to_owned(), text(&found["sentence"])),
        None => ("unknown".to_owned(), text(&document["primary"]["unknown"]["because"])),
    }
}

fn repeats() -> usize {
    std::env::var("CLEARSTREAM_DIAGNOSE_REPEATS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn root_every_limit_that_is_made_is_named_first() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let only = std::env::var("CLEARSTREAM_DIAGNOSE_ROWS").unwrap_or_default();
    let mut wrong = Vec::new();
    println!("{:<16} {:>7} {:>9}  last verdict", "made", "right", "longest");
    for row in ROWS.iter().filter(|row| only.is_empty() || only.split(',').any(|name| name == row.name)) {
        let (mut right, mut longest, mut last) = (0, Duration::ZERO, String::new());
        for _ in 0..repeats() {
            let begun = Instant::now();
            for attempt in 1..=ATTEMPTS {
                let document = diagnose(row);
                longest = longest.max(begun.elapsed());
                let (cause, sentence) = first_cause(&document);
                last = format!("{cause}: {sentence}");
                if cause == row.cause && row.expected.iter().all(|part| sentence.contains(part)) {
                    right += 1;
                    break;
                }
                let Some(why) = not_made(&document) else {
                    wrong.push(format!("{}: {last}\n{:#}", row.name, document["primary"]));
                    break;
                };
                println!("{:<16} attempt {attempt} of {ATTEMPTS}, not made here: {why}", row.name);
            }
        }
        println!("{:<16} {right:>4}/{:<2} {:>7.1} s  {last}", row.name, repeats(), longest.as_secs_f64());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// bbr over a veth pair of this machine, where cubic carries several times as
/// much: it is named when the experiment with cubic shows that, and a full path
/// never.
#[test]
fn root_a_congestion_control_that_holds_the_path_back_is_named() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let known = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    if !known.split_whitespace().any(|name| name == "bbr") {
        println!("this kernel has no bbr: {known}");
        return;
    }
    let row = row("bbr", "", "-C bbr -t 2s -O 500ms", "congestion-control");
    let document = within("diagnose", &row, &["--budget", "12s"]);
    let (cause, sentence) = first_cause(&document);
    let experiments = document["experiments"].as_array().cloned().unwrap_or_default();
    let rate = |value: &Value| value["goodput_bps"].as_f64().unwrap();
    let requested = experiments
        .iter()
        .filter(|experiment| experiment["kind"] == "again")
        .map(rate)
        .fold(document["observed_bps"].as_f64().unwrap(), f64::max);
    let other = experiments.iter().find(|experiment| experiment["kind"] == "other-congestion-control");
    if other.is_some_and(|other| rate(other) > 1.25 * requested) {
        let allowed = ["congestion-control", "contention"];
        assert!(allowed.contains(&cause.as_str()), "{cause}: {sentence}\n{document:#}");
    } else {
        println!("cubic carries no more here: {cause}: {sentence}");
    }
    let exceeded = experiments.iter().any(|experiment| {
        experiment["kind"] != "reverse"
            && experiment["kind"] != "again"
            && rate(experiment) > 1.25 * requested
    });
    assert!(!(exceeded && cause == "path-capacity"), "{document:#}");
}

/// A control group that may use half a core, made by hand; the quota is named,
/// and with it the group.
#[test]
fn root_a_quota_of_a_control_group_is_named() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let root = Path::new("/sys/fs/cgroup");
    let unified = root.join("cgroup.controllers").exists();
    let name = format!("clearstream-quota-{}", std::process::id());
    let group = if unified { root.join(&name) } else { root.join("cpu").join(&name) };
    if fs::create_dir(&group).is_err() {
        println!("no control group can be made here");
        return;
    }
    let set = if unified {
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        fs::write(group.join("cpu.max"), "50000 100000")
    } else {
        fs::write(group.join("cpu.cfs_quota_us"), "50000")
    };
    if set.is_ok() {
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", "echo $$ > \"$0\"/cgroup.procs; exec \"$@\""])
            .arg(&group)
            .arg(env!("CARGO_BIN_EXE_clearstream"))
            .args(["diagnose", "localhost", "--json", "--budget", "5s", "-t", "2s", "-O", "300ms"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let document = finish(command.spawn().unwrap(), Duration::from_secs(60)).json();
        let found = &document["primary"]["found"];
        assert_eq!(found["cause"]["kind"], "cpu-quota", "{:#}", document["primary"]);
        assert_eq!(found["cause"]["quota_millicores"], 500);
        assert!(found["cause"]["group"].as_str().unwrap().ends_with(&name));
        assert_eq!(found["fault"], true);
    } else {
        println!("this machine has no CPU quotas");
    }
    fs::remove_dir(&group).unwrap();
}

/// Loopback as it is: whatever the machine does meanwhile, no program and no
/// path is at fault.
#[test]
fn loopback_accuses_nobody() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let document =
        run(&["diagnose", "localhost", "--json", "--budget", "5s", "-t", "2s", "-O", "500ms"]).json();
    let fault = document["primary"]["found"]["fault"].as_bool();
    assert_ne!(fault, Some(true), "{:#}", document["primary"]);
    let stages = document["stages"].as_array().unwrap();
    assert!(stages.iter().filter(|stage| stage["limiting"] == true).count() <= 1, "{stages:#?}");
}

/// Full at 300 Mb/s with room in every buffer: the path is the limit, and no
/// host is requested to change anything.
#[test]
fn root_a_path_used_to_its_capacity_accuses_nobody() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let healthy = ROWS.iter().find(|row| row.name == "rate").unwrap();
    let healthy = Row { name: "healthy", ..*healthy };
    let mut accused = Vec::new();
    for _ in 0..2 * repeats() {
        let mut document = diagnose(&healthy);
        if not_made(&document).is_some() {
            document = diagnose(&healthy);
        }
        let fault = document["primary"]["found"]["fault"].as_bool();
        if fault != Some(false) || !document["secondary"].is_null() {
            accused.push(format!("{:#}\n{:#}", document["primary"], document["secondary"]));
        }
    }
    println!("healthy: {} of {} accused", accused.len(), 2 * repeats());
    assert!(accused.is_empty(), "{}", accused.join("\n"));
}

#[test]
fn a_record_is_diagnosed_without_a_host() {
    let record = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/records/v1/clearstream-40ge");
    let document = run(&["diagnose", "--from", record, "--json"]).json();
    assert_eq!(document["schema"], "clearstream.diagnosis");
    assert!(document["observed_bps"].as_f64().unwrap() > 0.0);
    assert!(document["stages"].as_array().unwrap().len() >= 12);
    let page = run(&["diagnose", "--from", record]);
    assert!(page.ok().contains("what each stage can carry"), "{}", page.stdout);
    run(&["diagnose", "--from", record, "--trial", "999999"]).refused(9, &["999999"]);
    run(&["diagnose", "--from", "/nonexistent/run"]).refused(9, &["/nonexistent/run"]);
    run(&["diagnose", "localhost", "--protocol", "udp"]).refused(2, &["TCP"]);
    run(&["diagnose", "localhost", "-t", "60s"]).refused(2, &["--budget"]);
}

#[test]
fn an_interrupted_diagnosis_explains_what_there_is() {
    let _alone = MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let child = clearstream(&["diagnose", "localhost", "--json"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(6));
    signal(child.id(), "INT");
    let ended = finish(child, Duration::from_secs(20));
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["schema"], "clearstream.diagnosis");
    assert_eq!(document["notices"][0]["id"], "interrupted");
}
