//! `study run --web`: events of a run, and its report while it runs and at its end.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::Stdio,
    time::Duration,
};

use crate::common::{clearstream, eventually, run};

const STUDY: &str = r#"
schema = "clearstream.study"
version = 1
name = "page"
title = "page of a test"
[flow]
duration = "300ms"
warm-up = "100ms"
interval = "100ms"
[[experiment]]
name = "flows"
title = "one flow"
workload = "flow"
figure = "throughput"
repetitions = 4
"#;

/// A connection on which a resource was requested.
fn requested(link: &str, path: &str) -> TcpStream {
    let rest = link.strip_prefix("http://").unwrap();
    let (address, token) = rest.split_once("/?token=").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET /{path}?token={token} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    stream
}

fn fetched(link: &str, path: &str) -> String {
    let mut text = String::new();
    requested(link, path).read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200") || head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

#[test]
fn a_page_follows_a_run_to_its_final_report() {
    let folder = tempfile::tempdir().unwrap();
    let (study, runs) = (folder.path().join("page.toml"), folder.path().join("runs"));
    fs::write(&study, STUDY).unwrap();
    let line = ["study", "run", study.to_str().unwrap(), "--to", "localhost", "--web", "--json-stream"];
    let mut child = clearstream(&[&line[..], &["--runs", runs.to_str().unwrap()]].concat())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let found = lines.find(|line| line.contains("/?token=")).unwrap();
    let begin = found.find("http://").unwrap();
    let link = found[begin..].split('"').next().unwrap().to_owned();
    let output = std::thread::spawn(move || lines.count());

    let mut events = requested(&link, "events");
    let (mut all, mut buffer) = (String::new(), vec![0; 1 << 16]);
    let mut so_far = None;
    while !all.contains("event: finished\n") {
        let count = events.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the stream ended early: {all}");
        all.push_str(&String::from_utf8_lossy(&buffer[..count]));
        if so_far.is_none() && all.contains("event: report\n") {
            so_far = Some(fetched(&link, "report"));
        }
    }
    let last = fetched(&link, "report");
    eventually(Duration::from_secs(30), "the command ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(output.join().unwrap() > 4);

    assert!(so_far.unwrap().contains("page of a test"));
    let record = fs::read_dir(&runs).unwrap().flatten().next().unwrap().path();
    assert_eq!(last, fs::read_to_string(record.join("report.html")).unwrap());
    assert_eq!(all.matches("event: trial\n").count(), 4, "{all}");
    for part in [
        "\"planned_count\":4",
        "\"cell\":\"1/4 flows",
        "event: value\n",
        "4 of 4 trials done, 0 failed, 0 skipped",
        "b/s",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
}

#[test]
fn the_page_needs_a_run_and_an_address_of_this_host() {
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("page.toml");
    fs::write(&study, STUDY).unwrap();
    let runs = folder.path().join("runs");
    let line =
        ["study", "run", study.to_str().unwrap(), "--to", "localhost", "--runs", runs.to_str().unwrap()];
    run(&[&line[..], &["--web", "--dry-run"]].concat()).refused_by_usage("--dry-run");
    // TEST-NET-1 of RFC 5737 is nobody's.
    run(&[&line[..], &["--web=192.0.2.1:0"]].concat()).refused(2, &["192.0.2.1"]);
    assert!(!runs.exists(), "no record begins");
}
