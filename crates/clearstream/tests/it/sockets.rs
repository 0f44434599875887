//! `clearstream diagnose --socket`: connections of programs that are not ours, and what ss(8) shows of them.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::common::{Lab, assert_published, clearstream, eventually, finish, program, run, signal};
use clearstream_testkit::lab::two_hosts;
use serde_json::Value;

/// Reads 64 KiB at a time: port, pause after each in milliseconds, SO_RCVBUF (0: the kernel's).
const READER: &str = "
import socket, sys, time
port, pause, size = map(int, sys.argv[1:4])
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
if size: listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
listener.bind(('0.0.0.0', port))
listener.listen()
one, _ = listener.accept()
while one.recv(65536): time.sleep(pause / 1000)
";

/// Writes all of the time: address, port, SO_SNDBUF.
const WRITER: &str = "
import socket, sys
one = socket.socket()
size = int(sys.argv[3])
if size: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
one.connect((sys.argv[1], int(sys.argv[2])))
data = bytes(65536)
while True: one.sendall(data)
";

/// A program of a test, killed whatever happens.
struct Running(Child);

impl Running {
    /// Starts it here, or in a host of a lab: `lab exec` becomes the program.
    fn start(host: Option<(&str, &str)>, line: &[&str]) -> Self {
        let mut command = match host {
            Some((lab, host)) => {
                let mut command = clearstream(&["lab", "exec", lab, host, "--"]);
                command.args(line);
                command
            }
            None => {
                let mut command = Command::new(line[0]);
                command.args(&line[1..]);
                command
            }
        };
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap_or_else(|error| panic!("{line:?}: {error}: `.ci/install test`")))
    }

    fn pid(&self) -> u64 {
        self.0.id().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The system's iperf3, or the first of those that `IPERF3` names.
fn iperf3() -> String {
    let listed = std::env::var("IPERF3").ok();
    listed.and_then(|list| list.split(':').next().map(str::to_owned)).unwrap_or_else(|| "iperf3".to_owned())
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// Waits for a listener in the kernel's tables: a connection would be taken for a client.
fn wait_for_listener(host: Option<(&str, &str)>, port: &str) {
    let filter = format!("sport = {port}");
    eventually(Duration::from_secs(20), "a listener", || !ss(host, &["-Htln", &filter]).trim().is_empty());
}

fn ss(host: Option<(&str, &str)>, arguments: &[&str]) -> String {
    match host {
        Some((lab, host)) => {
            run(&[&["lab", "exec", lab, host, "--", "ss"], arguments].concat()).ok().to_owned()
        }
        None => {
            let output = Command::new("ss").args(arguments).output().unwrap();
            assert!(output.status.success(), "ss {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap()
        }
    }
}

/// A reader or iperf3 server with a writer or client of it, both started and past slow start.
struct Pair {
    receiver: Running,
    sender: Running,
    port: String,
}

impl Pair {
    fn python(lab: Option<&str>, pause: &str, receive: &str, send: &str) -> Self {
        let port = free_port();
        let [here, there] = ["here", "there"].map(|host| lab.map(|lab| (lab, host)));
        let receiver = Running::start(there, &["python3", "-c", READER, &port, pause, receive]);
        wait_for_listener(there, &port);
        let to = if lab.is_some() { "10.0.0.2" } else { "127.0.0.1" };
        let sender = Running::start(here, &["python3", "-c", WRITER, to, &port, send]);
        Self::settled(receiver, sender, port)
    }

    fn iperf3(lab: Option<&str>, options: &[&str]) -> Self {
        let (port, program) = (free_port(), iperf3());
        let [here, there] = ["here", "there"].map(|host| lab.map(|lab| (lab, host)));
        let receiver = Running::start(there, &[&program, "-s", "-1", "-p", &port]);
        wait_for_listener(there, &port);
        let to = if lab.is_some() { "10.0.0.2" } else { "127.0.0.1" };
        let line = [&[&*program, "-c", to, "-p", &port, "-t", "60"], options].concat();
        Self::settled(receiver, Running::start(here, &line), port)
    }

    fn settled(receiver: Running, sender: Running, port: String) -> Self {
        thread::sleep(Duration::from_secs(2));
        Self { receiver, sender, port }
    }
}

fn starts(host: Option<(&str, &str)>, filter: &str, more: &[&str]) -> Child {
    let arguments = [&["diagnose", "--socket", filter, "-t", "2", "--json"], more].concat();
    match host {
        Some((lab, host)) => {
            let exec = ["lab", "exec", lab, host, "--", program().to_str().unwrap()];
            clearstream(&[&exec, &arguments[..]].concat()).spawn().unwrap()
        }
        None => clearstream(&arguments).spawn().unwrap(),
    }
}

/// The document of a child of [`starts`].
fn document(child: Child) -> Value {
    let document = finish(child, Duration::from_secs(30)).json();
    assert_published(&document);
    document
}

fn diagnose(host: Option<(&str, &str)>, filter: &str, more: &[&str]) -> Value {
    document(starts(host, filter, more))
}

/// The kind of the cause, `unknown` or `idle`.
fn kind(connection: &Value) -> String {
    let verdict = &connection["verdict"];
    match verdict["found"]["cause"]["kind"].as_str() {
        Some(kind) => kind.to_owned(),
        None if verdict == "idle" => "idle".to_owned(),
        None => "unknown".to_owned(),
    }
}

/// Of ss: `word:NUMBER`, up to a character that is none of a number.
fn shown(text: &str, key: &str) -> f64 {
    let (_, rest) = text.split_once(key).unwrap_or_else(|| panic!("no {key} in: {text}"));
    let end = rest.find(|one: char| !one.is_ascii_digit() && one != '.').unwrap_or(rest.len());
    rest[..end].parse().unwrap()
}

/// What does not change in the course of a connection, and that ss names the same owner.
fn agrees_with_ss(host: Option<(&str, &str)>, end: &Value) {
    let port = |end: &Value| end.as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let filter = format!("sport = {} and dport = {}", port(&end["local"]), port(&end["remote"]));
    let text = ss(host, &["-HtinmepO", &filter]);
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    assert_eq!(shown(&text, "ino:"), end["inode"].as_f64().unwrap(), "{text}");
    assert_eq!(shown(&text, " mss:"), end["send_mss_bytes"].as_f64().unwrap(), "{text}");
    assert_eq!(shown(&text, ",pid="), end["owners"][0]["pid"].as_f64().unwrap(), "{text}");
    assert!(text.contains(&format!(" {} ", end["congestion_control"].as_str().unwrap())), "{text}");
    let minimum = shown(&text, "minrtt:");
    let ours = end["min_rtt_ns"].as_f64().unwrap() / 1e6;
    assert!(ours >= minimum * 0.999, "{ours} {text}");
}

#[test]
fn a_healthy_flow_on_loopback_is_explained_once_with_both_ends() {
    let pair = Pair::iperf3(None, &[]);
    let document = diagnose(None, &format!("port={}", pair.port), &[]);
    // iperf3 has a control connection beside that of the data.
    assert_eq!(document["matched_count"], 2, "{document:#}");
    let busiest = &document["connections"][0];
    let (end, peer) = (&busiest["end"], &busiest["peer"]);
    assert_eq!(end["local"], peer["remote"]);
    assert!(end["out_bps"].as_f64().unwrap() > 1e8, "{end:#}");
    let ratio = end["out_bps"].as_f64().unwrap() / peer["in_bps"].as_f64().unwrap();
    assert!((0.7..1.4).contains(&ratio), "what one end sends the other receives: {ratio}");
    assert_eq!(end["owners"][0]["pid"], pair.sender.pid());
    assert_eq!(peer["owners"][0]["pid"], pair.receiver.pid());
    let healthy = ["cpu", "unknown", "sender-application", "receiver-application"];
    assert!(healthy.contains(&&*kind(busiest)), "{busiest:#}");
    assert_eq!(kind(&document["connections"][1]), "idle");
    agrees_with_ss(None, end);
    agrees_with_ss(None, peer);
}

#[test]
fn a_writer_with_a_rate_is_the_limit() {
    let pair = Pair::iperf3(None, &["-b", "20M"]);
    let document = diagnose(None, &format!("pid={},remote-port={}", pair.sender.pid(), pair.port), &[]);
    let busiest = &document["connections"][0];
    assert_eq!(kind(busiest), "sender-application", "{busiest:#}");
    let ratio = busiest["end"]["out_bps"].as_f64().unwrap() / 20e6;
    assert!((0.7..1.3).contains(&ratio), "{busiest:#}");
}

#[test]
fn a_reader_that_sleeps_and_one_that_is_stopped_are_the_limit() {
    let pair = Pair::python(None, "20", "0", "0");
    let filter = format!("local-port={}", pair.port);
    let document = diagnose(None, &filter, &[]);
    let slow = &document["connections"][0];
    assert_eq!(kind(slow), "receiver-application", "{slow:#}");
    assert_eq!(slow["verdict"]["found"]["cause"]["stopped"], false);
    assert!(slow["verdict"]["found"]["evidence"].as_array().unwrap().len() >= 3);

    signal(pair.receiver.0.id(), "STOP");
    thread::sleep(Duration::from_secs(1));
    let document = diagnose(None, &filter, &[]);
    let stopped = &document["connections"][0];
    assert_eq!(kind(stopped), "receiver-application", "{stopped:#}");
    assert_eq!(stopped["verdict"]["found"]["cause"]["stopped"], true);
    // Nothing moves now: queues are those that ss shows.
    let queues = |filter: &str| {
        let text = ss(None, &["-Htn", filter]);
        let fields: Vec<f64> =
            text.split_whitespace().skip(1).take(2).map(|it| it.parse().unwrap()).collect();
        (fields[0], fields[1])
    };
    let number = |end: &Value, key: &str| end[key].as_f64().unwrap();
    let (end, peer) = (&stopped["end"], &stopped["peer"]);
    assert_eq!(queues(&format!("dport = {}", pair.port)).1, number(end, "send_queue_bytes"));
    assert_eq!(
        queues(&format!("sport = {} and dport > 0", pair.port)).0,
        number(peer, "receive_queue_bytes")
    );
    signal(pair.receiver.0.id(), "CONT");
}

/// A download that its client takes slowly on purpose.
#[test]
fn curl_with_a_rate_limit_is_a_slow_reader_of_a_file_server() {
    let folder = tempfile::tempdir().unwrap();
    File::create(folder.path().join("large")).unwrap().set_len(4 << 30).unwrap();
    let port = free_port();
    let directory = folder.path().to_str().unwrap();
    let server = ["python3", "-m", "http.server", &port, "-b", "127.0.0.1", "-d", directory];
    let server = Running::start(None, &server);
    wait_for_listener(None, &port);
    let url = format!("http://127.0.0.1:{port}/large");
    let curl = Running::start(None, &["curl", "-s", "-o", "/dev/null", "--limit-rate", "3M", &url]);
    thread::sleep(Duration::from_secs(2));
    let document = diagnose(None, "program=curl", &["--count", "1000"]);
    let of_curl = |one: &&Value| one["peer"]["owners"][0]["pid"] == curl.pid();
    let found = document["connections"].as_array().unwrap().iter().find(of_curl);
    let found = found.unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!(kind(found), "receiver-application", "{found:#}");
    assert_eq!(found["end"]["owners"][0]["pid"], server.pid());
    let sentence = found["verdict"]["found"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("curl["), "{sentence}");
}

/// RFC 9293 counts every segment: an observed connection that is idle sends none.
#[test]
fn an_idle_connection_stays_idle_while_it_is_observed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut two = listener.accept().unwrap().0;
    one.write_all(b"x").unwrap();
    two.read_exact(&mut [0]).unwrap();
    thread::sleep(Duration::from_millis(300));
    let filter = format!("sport = {} and dport > 0", listener.local_addr().unwrap().port());
    let segments = || {
        let text = ss(None, &["-HtinO", &filter]);
        (shown(&text, "segs_out:"), shown(&text, "segs_in:"))
    };
    let before = segments();
    let port = listener.local_addr().unwrap().port();
    let document = diagnose(None, &format!("port={port}"), &[]);
    assert_eq!(kind(&document["connections"][0]), "idle", "{document:#}");
    assert_eq!(document["connections"][0]["end"]["owners"][0]["pid"], std::process::id());
    assert_eq!(segments(), before);
}

/// The same connection by an agent, and by its lab.
#[test]
fn root_an_agent_explains_connections_of_its_host() {
    let pair = Pair::python(None, "20", "0", "0");
    let filter = format!("local-port={}", pair.port);
    let arguments = ["diagnose", "localhost", "--socket", &filter, "-t", "1", "--json"];
    let found = run(&arguments).json();
    assert_published(&found);
    assert_eq!(kind(&found["connections"][0]), "receiver-application", "{found:#}");
    assert_eq!(found["provenance"]["hosts"].as_array().unwrap().len(), 2);

    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "sockets-agent");
    let pair = Pair::python(Some(&lab.0), "20", "0", "0");
    let filter = format!("port={}", pair.port);
    for (server, local) in [("here", "10.0.0.1:"), ("there", "10.0.0.2:")] {
        let lab = ["diagnose", "--lab", &lab.0, "--server", server, "--client", server];
        let found = run(&[&lab, &["--socket", &*filter, "-t", "1", "--json"][..]].concat()).json();
        let end = &found["connections"][0]["end"];
        assert!(end["local"].as_str().unwrap().starts_with(local), "{found:#}");
    }
}

/// One connection by the agents of both its hosts: filters of either end find it, and each end is that of its host.
#[test]
fn root_agents_of_both_hosts_explain_a_connection_together() {
    let folder = tempfile::tempdir().unwrap();
    let lab = Lab::of_two_hosts(folder.path(), "sockets-both");
    let pair = Pair::python(Some(&lab.0), "20", "0", "0");
    let ends =
        ["diagnose", "--lab", &lab.0, "--client", "here", "--server", "there", "--both-ends", "-t", "1"];
    for filter in [
        format!("local-port={}", pair.port),
        format!("remote-port={}", pair.port),
        format!("pid={}", pair.sender.pid()),
        format!("program=python3,address=10.0.0.0/24,port={}", pair.port),
        "all".to_owned(),
    ] {
        let found = run(&[&ends[..], &["--socket", &filter, "--json"]].concat()).json();
        assert_published(&found);
        let busiest = &found["connections"][0];
        assert_eq!(kind(busiest), "receiver-application", "{filter}: {found:#}");
        assert_eq!((&busiest["end"]["host"], &busiest["peer"]["host"]), (&"here".into(), &"there".into()));
        assert_eq!(busiest["end"]["owners"][0]["pid"], pair.sender.pid(), "{filter}");
        assert_eq!(busiest["peer"]["owners"][0]["pid"], pair.receiver.pid(), "{filter}");
        agrees_with_ss(Some((&lab.0, "here")), &busiest["end"]);
        agrees_with_ss(Some((&lab.0, "there")), &busiest["peer"]);
    }
    let found = run(&[&ends[..], &["--socket", "address=192.0.2.0/24", "--json"]].concat()).json();
    assert_eq!(found["matched_count"], 0, "{found:#}");
    // Both agents on one host: each socket is there once.
    let pair = Pair::python(None, "20", "0", "0");
    let filter = format!("port={}", pair.port);
    let found =
        run(&["diagnose", "localhost", "--socket", &filter, "--both-ends", "-t", "1", "--json"]).json();
    assert_eq!(found["matched_count"], 1, "{found:#}");
    assert_eq!(kind(&found["connections"][0]), "receiver-application", "{found:#}");
    run(&["diagnose", "--socket", "all", "--both-ends"]).refused_by_usage("the other end");
}

#[test]
fn a_stream_of_events_ends_with_the_document() {
    let run = run(&["diagnose", "--socket", "port=1", "-t", "300ms", "--json-stream"]);
    let last: Value = serde_json::from_str(run.ok().lines().last().unwrap()).unwrap();
    assert_eq!((&last["kind"], &last["payload"]["matched_count"]), (&"result".into(), &0.into()));
    assert_published(&last["payload"]);
}

#[test]
fn a_filter_or_option_that_has_no_meaning_is_refused() {
    for (line, hint) in [
        ("diagnose --socket port=x", "local-port=N"),
        ("diagnose --socket all --flows 2", "only --duration"),
        ("diagnose --socket all --ssh-option -p2222", "name the host"),
        ("diagnose --socket all --budget 9s", "--socket"),
        ("diagnose --count 3", "--socket"),
    ] {
        run(&line.split(' ').collect::<Vec<_>>()).refused_by_usage(hint);
    }
}

/// A path of 16 ms, observed on each host alone and on both together.
#[test]
fn root_limits_of_a_long_path_are_named_by_the_ends_that_show_them() {
    let folder = tempfile::tempdir().unwrap();
    // Linux lets a socket exceed its send buffer while the cores are busy: without a rate that fills nothing.
    let lab = long_lab(folder.path(), "sockets-buffers", "");
    let python = |receive, send| Pair::python(Some(&*lab.0), "0", receive, send);
    explained(&lab.0, "SO_RCVBUF", &python("65536", "0"), "receiver-window", "receiver-window");
    explained(&lab.0, "SO_SNDBUF", &python("0", "65536"), "send-buffer", "unknown");
    let lab = long_lab(folder.path(), "sockets", "rate = \"200Mb/s\"\nqueue = \"34ms\"");
    let name = Some(&*lab.0);
    // One after the other: together they would fill the path.
    explained(&lab.0, "-b", &Pair::iperf3(name, &["-b", "10M"]), "sender-application", "unknown");
    explained(&lab.0, "rate", &Pair::iperf3(name, &[]), "path-capacity", "unknown");
    // `-w` makes both buffers equally small: either end may hold the other for most of the time.
    let pair = Pair::iperf3(name, &["-w", "64K"]);
    let filter = format!("remote-port={}", pair.port);
    let namespace = pair.receiver.pid().to_string();
    let found = diagnose(Some((&*lab.0, "here")), &filter, &["--namespace", &namespace]);
    let found = &found["connections"][0];
    assert!(["receiver-window", "send-buffer"].contains(&&*kind(found)), "{found:#}");
    let [out, bound] = [&found["end"]["out_bps"], &found["verdict"]["found"]["cause"]["bound_bps"]];
    let ratio = bound.as_f64().unwrap() / out.as_f64().unwrap();
    // Delayed acknowledgements of a few segments leave pauses: the rate may be well below the bound.
    assert!(ratio >= 0.6, "the buffer over the round trip bounds the rate: {found:#}");
}

fn explained(lab: &str, what: &str, pair: &Pair, by_sender: &str, by_receiver: &str) {
    let [here, there] = ["here", "there"].map(|host| Some((lab, host)));
    let [remote, local] = ["remote", "local"].map(|end| format!("{end}-port={}", pair.port));
    let one = starts(here, &remote, &[]);
    let two = starts(there, &local, &[]);
    let namespace = pair.receiver.pid().to_string();
    let both = starts(here, &remote, &["--namespace", &namespace]);
    let [one, two, both] = [one, two, both].map(document);
    let [one, two, both] = [&one, &two, &both].map(|document| &document["connections"][0]);
    assert_eq!(kind(one), by_sender, "{what}: {one:#}");
    assert_eq!(kind(two), by_receiver, "{what}: {two:#}");
    assert_eq!(kind(both), by_sender, "{what}, both ends: {both:#}");
    assert_eq!(both["peer"]["owners"][0]["pid"], pair.receiver.pid(), "{what}");
    assert_eq!(both["peer"]["namespace"], pair.receiver.pid(), "{what}");
    agrees_with_ss(here, &one["end"]);
    agrees_with_ss(there, &two["end"]);
    if by_sender == "receiver-window" {
        // The kernel's clocks since the connection began, as ss adds them up.
        let text = ss(here, &["-HtinO", &format!("dport = {}", pair.port)]);
        let line =
            text.lines().find(|line| line.contains("rwnd_limited")).unwrap_or_else(|| panic!("{text}"));
        let (_, share) = line.split_once("rwnd_limited:").unwrap();
        assert!(shown(share, "(") >= 40.0, "{line}");
        let cause = &both["verdict"]["found"]["cause"];
        assert_eq!(cause["buffer_bytes"], both["peer"]["memory"]["receive_limit_bytes"], "{both:#}");
        let bound = cause["bound_bps"].as_f64().unwrap() / both["end"]["out_bps"].as_f64().unwrap();
        assert!((0.6..4.0).contains(&bound), "window * 8 / round trip is the rate: {both:#}");
    }
}

/// A reader that stopped is seen as such with both ends, and as a closed window by the sender alone.
#[test]
fn root_a_stopped_peer_and_a_cut_path_differ() {
    let folder = tempfile::tempdir().unwrap();
    let lab = long_lab(folder.path(), "sockets-stop", "rate = \"200Mb/s\"");
    let pair = Pair::python(Some(&lab.0), "0", "0", "0");
    let here = Some((&*lab.0, "here"));
    let filter = format!("remote-port={}", pair.port);
    let namespace = pair.receiver.pid().to_string();
    signal(pair.receiver.0.id(), "STOP");
    let closed = || ss(here, &["-Htno", &format!("dport = {}", pair.port)]).contains("persist");
    eventually(Duration::from_secs(30), "a closed window", closed);
    thread::sleep(Duration::from_secs(1));
    let one = diagnose(here, &filter, &[]);
    assert_eq!(kind(&one["connections"][0]), "zero-window", "{one:#}");
    let both = diagnose(here, &filter, &["--namespace", &namespace]);
    assert_eq!(kind(&both["connections"][0]), "receiver-application", "{both:#}");
    assert_eq!(both["connections"][0]["verdict"]["found"]["cause"]["stopped"], true);
    signal(pair.receiver.0.id(), "CONT");
    eventually(Duration::from_secs(30), "an open window", || !closed());

    run(&["lab", "fault", &lab.0, "here:eth0", "cut"]).ok();
    let silent = || ss(here, &["-Htno", &format!("dport = {}", pair.port)]).contains("timer:(on,");
    eventually(Duration::from_secs(30), "retransmissions", silent);
    thread::sleep(Duration::from_secs(2));
    let cut = diagnose(here, &filter, &[]);
    assert_eq!(kind(&cut["connections"][0]), "no-acknowledgement", "{cut:#}");
}

#[test]
fn root_losses_are_the_limit_of_a_lossy_path() {
    let folder = tempfile::tempdir().unwrap();
    let lab = long_lab(folder.path(), "sockets-loss", "loss-ratio = 0.001");
    let pair = Pair::iperf3(Some(&lab.0), &[]);
    let here = Some((&*lab.0, "here"));
    let document = diagnose(here, &format!("remote-port={}", pair.port), &[]);
    let busiest = &document["connections"][0];
    assert_eq!(kind(busiest), "loss", "{busiest:#}");
    let lost = busiest["verdict"]["found"]["cause"]["loss_ratio"].as_f64().unwrap();
    assert!((1e-4..1e-2).contains(&lost), "the line loses 0.001: {lost}");
    assert!(busiest["end"]["retransmit_count"].as_u64().unwrap() > 0);
}

fn long_lab(folder: &std::path::Path, name: &str, link: &str) -> Lab {
    let link = format!("delay = \"8ms\"\nbackend = \"delay-line\"\n{link}");
    let cubic = |text: String, host: &str| {
        let line = format!("name = \"{host}\"\n");
        text.replace(&line, &format!("{line}congestion-control = \"cubic\"\n"))
    };
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, cubic(cubic(two_hosts(name, &link), "here"), "there")).unwrap();
    Lab::up(&path, name)
}
