//! `clearstream diagnose --socket`: connections of programs that are not ours, and what ss(8) shows of them.

pub(crate) mod scene;

use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use serde_json::Value;

use self::scene::{Pair, Running, agrees_with_ss, diagnose, kind, long_lab, shown, ss, wait_for_listener};
use crate::common::{Lab, assert_published, run, signal};

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
    let port = clearstream_testkit::listening::free_port().to_string();
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
