//! `clearstream live`: samples compared with the kernel's counters as ip(8) prints them, an agent that is killed, the
//! record and its report, and the screen of a terminal.

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use crate::common::{
    Lab, alive, assert_valid, children, clearstream, eventually, finish, program, run, signal,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Bytes received and sent of an interface of a lab's host, by ip(8).
fn interface_bytes(lab: &str, host: &str, interface: &str) -> [u64; 2] {
    let run = run(&["lab", "exec", lab, host, "--", "ip", "-j", "-s", "link", "show", interface]);
    let links: Value = serde_json::from_str(run.ok()).unwrap();
    ["rx", "tx"].map(|direction| links[0]["stats64"][direction]["bytes"].as_u64().unwrap())
}

/// Reads events of a stream until one is found.
fn until(lines: &mut impl BufRead, what: impl Fn(&Value) -> bool) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the stream ended");
        let event: Value = serde_json::from_str(&line).unwrap();
        if what(&event) {
            return event;
        }
    }
}

/// `live`, killed where the test fails: it has no end of its own.
struct Running(Option<Child>);

impl Running {
    fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    fn stdout(&mut self) -> BufReader<ChildStdout> {
        BufReader::new(self.0.as_mut().unwrap().stdout.take().unwrap())
    }

    /// Its exit code.
    fn finish(mut self) -> Option<i32> {
        let child = self.0.as_mut().unwrap();
        eventually(LIMIT, "it ends", || child.try_wait().unwrap().is_some());
        self.0.take().unwrap().wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

fn started(arguments: &[&str]) -> Running {
    let mut command = clearstream(arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    Running(Some(child))
}

#[test]
fn root_sums_of_samples_are_the_counters_of_the_kernel() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "live-sums");
    let hosts = ["here", "there"];
    let interfaces = hosts.map(|host| {
        let text = run(&["lab", "exec", &lab.0, host, "--", "ip", "-j", "link"]);
        let links: Value = serde_json::from_str(text.ok()).unwrap();
        let mut names =
            links.as_array().unwrap().iter().map(|link| link["ifname"].as_str().unwrap().to_owned());
        names.rfind(|name| name != "lo").unwrap()
    });
    let counters = || [0, 1].map(|host| interface_bytes(&lab.0, hosts[host], &interfaces[host]));
    let before = counters();
    let record = folder.path().join("record");
    let line = ["live", "--lab", &lab.0, "-t", "5s", "-i", "500ms", "--record", record.to_str().unwrap()];
    let mut live = started(&[&line[..], &["--json-stream"]].concat());
    let mut lines = live.stdout();
    let first = until(&mut lines, |event| event["kind"] == "interval");
    assert_valid("live-sample", &first["payload"]);
    run(&["flow", "--lab", &lab.0, "-t", "1s", "--json"]).ok();
    let result = until(&mut lines, |event| event["kind"] == "result");
    let after = counters();
    assert_eq!(live.finish(), Some(0));
    let document = &result["payload"];
    assert_valid("live", document);
    for (place, host) in document["hosts"].as_array().unwrap().iter().enumerate() {
        assert_eq!(host["host"], hosts[place]);
        let all = host["counters"]["interfaces"].as_array().unwrap();
        let found = all.iter().find(|one| one["name"] == interfaces[place]).unwrap();
        for (direction, key) in ["receive_bytes", "send_bytes"].into_iter().enumerate() {
            let (sum, kernel) =
                (found[key].as_u64().unwrap(), after[place][direction] - before[place][direction]);
            // Before the first sample and after the last one only a neighbour's request can be.
            assert!(
                kernel > 100_000 && sum <= kernel && sum * 100 >= kernel * 99,
                "{host}: {sum} of {kernel}"
            );
        }
    }
    // The record: a curve per interface and direction, and all samples.
    let samples = fs::read_to_string(record.join("samples/000000.jsonl")).unwrap();
    for line in samples.lines() {
        assert_valid("live-sample", &serde_json::from_str(line).unwrap());
    }
    assert!(samples.lines().count() >= 18, "{}", samples.lines().count());
    run(&["report", record.to_str().unwrap()]).ok();
    let page = fs::read_to_string(record.join("report.html")).unwrap();
    for part in ["Rates of interfaces over time", "Busy cores over time", "host there", "observed together"] {
        assert!(page.contains(part), "{part}");
    }
    run(&line).refused(9, &["already contains a run"]);
}

/// SIGKILL of a host's agent: the stream says so, samples go on, and the totals have the gap.
#[test]
fn root_a_killed_agent_is_restarted() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "live-killed");
    let mut live = started(&["live", "there", "--lab", &lab.0, "-i", "200ms", "--web", "--json-stream"]);
    let mut lines = live.stdout();
    let link = until(&mut lines, |event| event["payload"]["name"] == "page");
    let link = link["payload"]["detail"].as_str().unwrap().to_owned();
    until(&mut lines, |event| event["kind"] == "interval");
    let agents = children(live.id());
    assert_eq!(agents.len(), 1);
    signal(agents[0], "KILL");
    let lost = until(&mut lines, |event| event["kind"] == "state");
    assert!(lost.to_string().contains("there: no samples"), "{lost}");
    until(&mut lines, |event| event["kind"] == "interval");
    // The page has the same: samples, the loss, samples.
    let names = page_events(&link, &["sample", "lost", "sample"]);
    assert!(names.iter().all(|name| ["sample", "lost"].contains(&&**name)), "{names:?}");
    signal(live.id(), "INT");
    let result = until(&mut lines, |event| event["kind"] == "result");
    assert!(result["payload"]["hosts"][0]["gap_count"].as_u64().unwrap() >= 1, "{result}");
    // Stopping is how it is meant to end.
    assert_eq!(live.finish(), Some(0));
    eventually(Duration::from_secs(5), "its agents end with it", || agents.iter().all(|pid| !alive(*pid)));
}

/// Names of the events of a page, until these were among them in this order.
fn page_events(link: &str, wanted: &[&str]) -> Vec<String> {
    let (address, token) = link.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET /events?token={token} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut names: Vec<String> = Vec::new();
    let mut next = wanted.iter().peekable();
    for line in BufReader::new(stream).lines() {
        if let Some(name) = line.unwrap().strip_prefix("event: ") {
            next.next_if(|wanted| **wanted == name);
            names.push(name.to_owned());
        }
        if next.peek().is_none() {
            return names;
        }
    }
    panic!("the stream ended: {names:?}");
}

/// In a terminal of 80 columns, left with `q`; the terminal is as it was before (xterm's private modes 1049 and 25).
#[test]
fn the_screen_is_left_by_a_key() {
    let line = format!("stty rows 24 cols 80; exec {} live -i 200ms -n 2", program().display());
    let mut script = Command::new("script")
        .args(["-qec", &format!("sh -c '{line}'"), "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    script.stdin.as_mut().unwrap().write_all(b"q").unwrap();
    let run = finish(script, LIMIT);
    assert_eq!(run.code(), 0, "{}", run.stdout);
    for part in [
        "\u{1b}[?1049h",
        "interface",
        "cores: u user",
        "q quit",
        "\u{1b}[?1049l",
        "\u{1b}[?25h",
        "samples over",
    ] {
        assert!(run.stdout.contains(part), "{part:?}:\n{}", run.stdout);
    }
}

#[test]
fn lines_without_a_terminal_and_wrong_options() {
    let run_of_two = run(&["live", "localhost", "-t", "400ms", "-i", "200ms", "-n", "0"]);
    let text = run_of_two.ok();
    assert_eq!(
        text.lines().filter(|line| line.contains(" localhost  ") && line.contains("cores ")).count(),
        2,
        "{text}"
    );
    assert!(text.contains("localhost: 2 samples over"), "{text}");
    let document = run(&["live", "-t", "200ms", "-i", "100ms", "--json"]).json();
    assert_eq!(document["hosts"][0]["sample_count"], 2);
    run(&["live", "-i", "1ms"]).refused(2, &["--interval"]);
    run(&["live", "a", "a"]).refused(2, &["a is named twice"]);
}
