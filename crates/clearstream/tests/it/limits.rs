//! Limits made for real in labs, and what the diagnosis calls them.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::common::{clearstream, finish};

/// 17 ms as on the wide-area path of the papers, at a rate that any machine can carry.
pub(crate) const LONG: &str =
    "delay = \"8.5ms\"\nrate = \"2Gb/s\"\nqueue = \"34ms\"\nbackend = \"delay-line\"";
pub(crate) const AMPLE: &str = "268435456";

/// A limit and how it is made.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) link: &'static str,
    pub(crate) receive_most: &'static str,
    pub(crate) send_most: &'static str,
    pub(crate) options: &'static str,
    /// Cause that must be named first, and parts of its sentence.
    pub(crate) cause: &'static str,
    pub(crate) expected: &'static [&'static str],
}

pub(crate) const fn row(
    name: &'static str,
    link: &'static str,
    options: &'static str,
    cause: &'static str,
) -> Row {
    Row { name, link, receive_most: AMPLE, send_most: AMPLE, options, cause, expected: &[] }
}

pub(crate) const ROWS: [Row; 11] = [
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

pub(crate) fn lab_file(folder: &Path, name: &str, row: &Row) -> PathBuf {
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
pub(crate) fn diagnose(row: &Row) -> Value {
    within("diagnose", row, &["--budget", "10s"])
}

/// The document of a command over a row's path, in a lab of its own.
pub(crate) fn within(verb: &str, row: &Row, more: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = lab_file(folder.path(), &format!("limit-{}", row.name), row);
    let mut command = clearstream(&[verb, "--json"]);
    command.args(more).arg("--lab").arg(path).args(row.options.split_whitespace());
    finish(command.spawn().unwrap(), Duration::from_secs(60)).json()
}

/// Why this machine could not make a limit now: other tests run beside this
/// one. What is named must be others' and much.
pub(crate) fn not_made(document: &Value) -> Option<String> {
    let (cause, sentence) = first_cause(document);
    let held = document.pointer("/primary/found/cause/foreign_core_count").and_then(Value::as_f64);
    let processes = document.pointer("/primary/found/cause/processes").and_then(Value::as_array);
    let name = |process: &Value| process["name"].as_str().unwrap_or_default().to_owned();
    let others = processes.into_iter().flatten().any(|process| !name(process).starts_with("clearstream"));
    (cause == "contention" && others && held >= Some(0.3)).then_some(sentence)
}

/// Attempts at a limit that the machine did not produce.
pub(crate) const ATTEMPTS: usize = 3;

pub(crate) fn first_cause(document: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found = &document["primary"]["found"];
    match found["cause"]["kind"].as_str() {
        Some(kind) => (kind.to_owned(), text(&found["sentence"])),
        None => ("unknown".to_owned(), text(&document["primary"]["unknown"]["because"])),
    }
}

/// Why the diagnosis of a row is wrong: nothing when it names what was made first.
pub(crate) fn misnamed(row: &Row) -> Option<String> {
    for attempt in 1..=ATTEMPTS {
        let document = diagnose(row);
        let (cause, sentence) = first_cause(&document);
        if cause == row.cause && row.expected.iter().all(|part| sentence.contains(part)) {
            return None;
        }
        let why = not_made(&document);
        if why.is_none() || attempt == ATTEMPTS {
            return Some(format!("{}: {cause}: {sentence}\n{:#}", row.name, document["primary"]));
        }
    }
    None
}

/// Makes the limit of this name, which must be named first.
pub(crate) fn assert_named_first(name: &str) {
    let row = ROWS.iter().find(|row| row.name == name).unwrap();
    assert_eq!(misnamed(row), None);
}
