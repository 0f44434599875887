//! `--json` and `--json-stream` of daemons: every line keeps to its schema, sessions
//! and refusals are states, and the last line is the document of `--json`.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use crate::common::{
    assert_published, clearstream, eventually, finish, full_pipe, run, run_with_input, signal,
};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

/// A daemon whose events are read.
struct Daemon {
    child: Child,
    lines: BufReader<ChildStdout>,
    verb: String,
    address: String,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        let mut child = clearstream(&[arguments, &["--json-stream"]].concat()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let names = arguments.iter().take_while(|argument| !argument.starts_with('-')).copied();
        let verb = names.collect::<Vec<_>>().join(" ");
        let mut daemon = Self { child, lines, verb, address: String::new() };
        let listening = daemon.state("listening");
        daemon.address = listening["address"].as_str().unwrap().to_owned();
        daemon
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_published(&event);
        assert_eq!(event["workload"], self.verb.as_str());
        event
    }

    /// The facts of the next event, which is this state.
    fn state(&mut self, name: &str) -> Value {
        let event = self.next();
        assert_eq!((&event["kind"], &event["payload"]["name"]), (&"state".into(), &name.into()), "{event}");
        event["payload"]["detail"].clone()
    }

    /// Stops it; its document, which is the last line.
    fn stop(mut self) -> Value {
        signal(self.child.id(), "TERM");
        let last = self.next();
        assert_eq!(last["kind"], "result", "{last}");
        assert_published(&last["payload"]);
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "", "nothing follows the result");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        last["payload"].clone()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn assert_served(document: &Value, address: &str, [sessions, failed, refused]: [u64; 3]) {
    assert_eq!(document["schema"], "clearstream.served");
    assert_eq!(document["address"], address);
    let counts = ["session_count", "failed_count", "refused_count"].map(|key| document[key].as_u64());
    assert_eq!(counts, [Some(sessions), Some(failed), Some(refused)], "{document}");
}

#[test]
fn serve_streams_its_sessions_its_refusals_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (identity, pairing) = (path("identity"), path("pairing.json"));
    let mut daemon = Daemon::start(&["serve", "--listen", "127.0.0.1:0", "--identity", &identity]);
    let address = daemon.address.clone();
    let token = run(&["pair", "create", "dtn1", "--identity", &identity, "--address", &address]);
    run_with_input(&["pair", "accept", &pairing], token.ok()).ok();

    run(&["probe", &address, "--pairing", &pairing, "--count", "2", "--json"]).ok();
    let started = daemon.state("session-started");
    assert_eq!(started["client"], "dtn1");
    let ended = daemon.state("session-ended");
    assert_eq!((&ended["client"], &ended["peer"]), (&"dtn1".into(), &started["peer"]));

    let mut stranger = TcpStream::connect(&address).unwrap();
    let own = stranger.local_addr().unwrap().to_string();
    let _ = stranger.write_all(b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(daemon.state("peer-refused")["peer"], own.as_str());
    assert_served(&daemon.stop(), &address, [1, 0, 1]);
}

/// The line of a metric that a scraper gets.
fn scraped(link: &str) -> String {
    let address = link.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Exactly the bytes that the flow was limited to are counted, and sessions and refusals as they happen.
#[test]
fn serve_has_metrics_of_what_it_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (identity, pairing) = (path("identity"), path("pairing.json"));
    let line = ["serve", "--listen", "127.0.0.1:0", "--identity", &identity, "--metrics", "127.0.0.1:0"];
    let mut daemon = Daemon::start(&line);
    let link = daemon.state("metrics")["link"].as_str().unwrap().to_owned();
    let has = |line: &str| {
        let text = scraped(&link);
        // Counts are written as floating-point numbers, an empty set of labels as `{}`.
        let plain = |line: &str| line.replace("{}", "").trim_end_matches(".0").to_owned();
        assert!(text.lines().any(|one| plain(one) == line), "{line} is not in:\n{text}");
    };
    has("clearstream_serve_sessions_total 0");
    let address = daemon.address.clone();
    let token = run(&["pair", "create", "dtn1", "--identity", &identity, "--address", &address]);
    run_with_input(&["pair", "accept", &pairing], token.ok()).ok();
    run(&["flow", &address, "--pairing", &pairing, "--bytes", "10MB", "--warm-up", "0s", "--json"]).ok();
    run(&["message", &address, "--pairing", &pairing, "--sizes", "64", "--iterations", "100", "--json"]).ok();
    let mut stranger = TcpStream::connect(&address).unwrap();
    let _ = stranger.write_all(b"GET / HTTP/1.0\r\n\r\n");
    while daemon.next()["payload"]["name"] != "peer-refused" {}
    for line in [
        "clearstream_serve_sessions_total 2",
        "clearstream_serve_sessions_open 0",
        "clearstream_serve_sessions_failed_total 0",
        "clearstream_serve_refused_total 1",
        "clearstream_serve_test_bytes_total{test=\"flow\",direction=\"receive\"} 10000000",
        "clearstream_serve_calls_total{call=\"flow-listen\",outcome=\"served\"} 1",
    ] {
        has(line);
    }
    let text = scraped(&link);
    let messages = text.lines().find_map(|line| {
        line.strip_prefix("clearstream_serve_test_bytes_total{test=\"message\",direction=\"receive\"} ")
    });
    assert!(messages.unwrap().parse::<f64>().unwrap() >= 6400.0, "{text}");
    assert_served(&daemon.stop(), &address, [2, 0, 1]);
    run(&[&line[..6], &["192.0.2.1:1"]].concat()).refused(2, &["cannot serve at 192.0.2.1:1"]);
}

/// Reads the events of a page until each of these texts was in one.
fn page_shows(link: &str, texts: &[&str]) {
    let (address, token) = link.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    write!(stream, "GET /events?token={token} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let (mut all, mut buffer) = (String::new(), vec![0; 1 << 16]);
    let begun = Instant::now();
    while !texts.iter().all(|text| all.contains(text)) {
        // Comments keep the stream alive.
        assert!(begun.elapsed() < LIMIT, "{texts:?} did not come: {all}");
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the stream ended before {texts:?}: {all}");
        all.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

#[test]
fn serve_has_a_page_of_what_it_serves() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (identity, pairing) = (path("identity"), path("pairing.json"));
    let mut daemon = Daemon::start(&["serve", "--listen", "127.0.0.1:0", "--identity", &identity, "--web"]);
    let link = daemon.state("page")["link"].as_str().unwrap().to_owned();
    page_shows(&link, &["\"title\":\"open sessions\",", "\"rows\":[]", "[\"0\",\"0\",\"0\"]"]);
    let address = daemon.address.clone();
    let token = run(&["pair", "create", "dtn1", "--identity", &identity, "--address", &address]);
    run_with_input(&["pair", "accept", &pairing], token.ok()).ok();
    let flow = ["flow", &address, "--pairing", &pairing, "--warm-up", "0s", "--json"];
    let flow = clearstream(&[&flow[..], &["-t", "4s"]].concat()).spawn().unwrap();
    // While it runs the session is in the table, afterwards its bytes are.
    page_shows(&link, &["\"cells\":[\"dtn1\",\"127.0.0.1:"]);
    finish(flow, LIMIT).ok();
    let mut stranger = TcpStream::connect(&address).unwrap();
    let _ = stranger.write_all(b"GET / HTTP/1.0\r\n\r\n");
    while daemon.next()["payload"]["name"] != "peer-refused" {}
    page_shows(
        &link,
        &["[\"1\",\"0\",\"1\"]", "[\"flow-listen\",\"", "\"cells\":[\"flow\",", "\"bad\":true"],
    );
    assert_served(&daemon.stop(), &address, [1, 0, 1]);
}

#[test]
fn rdma_serve_streams_its_sessions_and_its_end() {
    let mut daemon = Daemon::start(&["rdma", "serve", "--port", "0"]);
    let address = daemon.address.clone();
    run(&["rdma", "ping", &address, "--count", "3", "--size", "100"]).ok();
    assert_eq!(daemon.state("session-started")["kind"], "ping");
    let ended = daemon.state("session-ended");
    assert_eq!((&ended["round_count"], &ended["largest_bytes"]), (&3.into(), &100.into()), "{ended}");
    run(&["rdma", "write", &address, "-n", "10", "-O", "0s", "--size", "64"]).ok();
    assert_eq!(daemon.state("session-started")["kind"], "measurement");
    let ended = daemon.state("session-ended");
    assert_eq!((&ended["operation"], &ended["requested"]["iterations"]), (&"write".into(), &10.into()));
    assert_served(&daemon.stop(), &address, [2, 0, 0]);
}

#[test]
fn a_server_of_pings_streams_their_texts_and_its_refusals() {
    let mut daemon = Daemon::start(&["rdma", "ping", "--serve", "--port", "0", "--verbose"]);
    let address = daemon.address.clone();
    run(&["rdma", "ping", &address, "--count", "2", "--size", "32"]).ok();
    daemon.state("session-started");
    // rping(1): "rdma-ping-%d: " and the alphabet from A on, one letter further each time.
    for expected in ["rdma-ping-0: ABC", "rdma-ping-1: BCD"] {
        let text = daemon.state("ping")["text"].as_str().unwrap().to_owned();
        assert!(text.starts_with(expected), "{text}");
    }
    daemon.state("session-ended");
    run(&["rdma", "write", &address]).refused(4, &["only pings"]);
    assert!(daemon.state("peer-refused")["reason"].as_str().unwrap().contains("only pings"));
    assert_served(&daemon.stop(), &address, [1, 0, 1]);
}

#[test]
fn a_server_of_perftest_streams_its_clients() {
    let mut daemon = Daemon::start(&["rdma", "serve", "--port", "0", "--perftest", "ib_write_bw"]);
    let address = daemon.address.clone();
    run(&["rdma", "write", &address, "--perftest", "--size", "64", "-n", "100"]).ok();
    assert_eq!(daemon.state("session-started")["kind"], "perftest");
    assert_eq!(daemon.state("session-ended")["program"], "ib_write_bw");
    assert_served(&daemon.stop(), &address, [1, 0, 0]);
}

#[test]
fn a_client_of_pings_streams_their_texts_too() {
    let ended = run(&["rdma", "ping", "--local", "--count", "2", "--verbose", "--json-stream"]);
    let events: Vec<Value> = ended.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> =
        events.iter().filter_map(|event| event["payload"]["detail"]["text"].as_str()).collect();
    assert!(texts[0].starts_with("rdma-ping-0") && texts.len() == 2, "{texts:?}");
    assert_eq!(events.last().unwrap()["kind"], "result");
}

#[test]
fn a_daemon_has_one_document_at_its_end() {
    // A port that was free a moment ago: nothing is printed before the end.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let port = free.rsplit_once(':').unwrap().1;
    let daemon = clearstream(&["rdma", "serve", "--once", "--port", port, "--json"]).spawn().unwrap();
    eventually(LIMIT, "it listens", || run(&["rdma", "ping", &free, "--count", "1"]).status.success());
    let ended = finish(daemon, LIMIT);
    assert_served(&ended.json(), &free, [1, 0, 0]);

    let folder = tempfile::tempdir().unwrap();
    let identity = folder.path().join("identity");
    let errors = ["serve", "--listen", "192.0.2.1:5740", "--json", "--identity", identity.to_str().unwrap()];
    let failed = run(&errors);
    assert_ne!(failed.code(), 0);
    let document: Value = serde_json::from_str(&failed.stdout).unwrap();
    assert_published(&document);
    assert_eq!(document["schema"], "clearstream.error");
}

/// A terminal stopped with Ctrl-S must not stop the sessions.
#[test]
fn pings_are_served_when_nobody_reads_their_texts() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let port = free.rsplit_once(':').unwrap().1;
    let (_reader, full) = full_pipe();
    let mut command = clearstream(&["rdma", "ping", "--serve", "--verbose", "--port", port]);
    let mut server = command.stdout(full).stderr(Stdio::null()).spawn().unwrap();
    let ping = |count| run(&["rdma", "ping", &free, "--count", count, "--json"]);
    eventually(LIMIT, "it serves", || ping("1").status.success());
    let document = ping("100").json();
    assert_eq!(document["summary"]["round_count"], 100);
    signal(server.id(), "TERM");
    eventually(LIMIT, "it ends", || server.try_wait().unwrap().is_some());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_unit_streams_where_it_is_requested() {
    let unit = run(&["serve", "--unit", "--json-stream"]);
    let started = unit.ok().lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    assert!(started.contains(" serve ") && started.ends_with("--json-stream"), "{started}");
}
