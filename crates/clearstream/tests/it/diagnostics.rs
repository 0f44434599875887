//! `--log` and `CLEARSTREAM_LOG`: what agents and daemons do, on standard error.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};

use crate::common::{Lab, clearstream, finish, run, run_with_input, signal};
use clearstream_testkit::lab::two_hosts;

const PROBE: [&str; 4] = ["--count", "2", "--interval", "10ms"];

/// Lines that begin with a time and this level.
fn of_level<'a>(log: &'a str, level: &str) -> Vec<&'a str> {
    log.lines().filter(|line| line.split_whitespace().nth(1) == Some(level)).collect()
}

#[test]
fn nothing_is_logged_unless_it_is_requested() {
    let ended = run(&[["probe", "localhost"].as_slice(), &PROBE].concat());
    ended.ok();
    assert!(!ended.stderr.contains("session{"), "{}", ended.stderr);
}

/// Both agents are children of this command; their lines pass through it.
#[test]
fn lines_of_a_control_session_carry_its_id() {
    let arguments = [["probe", "localhost"].as_slice(), &PROBE].concat();
    let by_option = run(&[&arguments[..], &["--log", "control=debug"]].concat());
    by_option.ok();
    let by_variable = clearstream(&arguments).env("CLEARSTREAM_LOG", "control=debug").spawn().unwrap();
    let by_variable = finish(by_variable, Duration::from_secs(60));
    for log in [by_option.stderr, by_variable.stderr] {
        let lines = of_level(&log, "DEBUG");
        assert!(lines.iter().any(|line| line.contains("calling") && line.contains("Controller")), "{log}");
        assert!(lines.iter().any(|line| line.contains("called") && line.contains("Agent")), "{log}");
        for line in lines {
            assert!(line.contains("session{id=\""), "{line}");
        }
    }
}

#[test]
fn a_filter_that_cannot_be_read_is_refused() {
    run(&["study", "list", "--log", "loud"]).refused(2, &["`loud`", "control=debug"]);
}

/// What an agent logs is no reason of its end: the error stays one clear line.
#[test]
fn errors_stay_as_clear_with_a_log() {
    let ended = run(&["flow", "localhost", "--bind-interface", "none0", "-t", "1s", "--log", "trace"]);
    let quiet = run(&["flow", "localhost", "--bind-interface", "none0", "-t", "1s"]);
    let error = |text: &str| text.lines().find(|line| line.starts_with("clearstream:")).map(str::to_owned);
    assert_eq!(error(&ended.stderr), error(&quiet.stderr));
    assert_eq!(ended.code(), quiet.code());
}

#[test]
fn a_daemon_logs_the_calls_of_its_controllers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (identity, pairing, log) = (path("identity"), path("pairing.json"), path("log"));
    let mut command = clearstream(&["serve", "--listen", "127.0.0.1:0", "--identity", &identity]);
    command.args(["--log", "debug"]).stderr(Stdio::from(File::create(&log).unwrap()));
    let mut daemon = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let address = first.split_whitespace().nth(2).unwrap().trim_end_matches(';').to_owned();
    let token = run(&["pair", "create", "test", "--identity", &identity, "--address", &address]);
    run_with_input(&["pair", "accept", &pairing], token.ok()).ok();
    run(&[["probe", &address, "--pairing", &pairing].as_slice(), &PROBE].concat()).ok();
    signal(daemon.id(), "TERM");
    assert!(daemon.wait().unwrap().success());
    let log = fs::read_to_string(&log).unwrap();
    let opened: Vec<&str> =
        of_level(&log, "INFO").into_iter().filter(|line| line.contains("opened")).collect();
    let [opened] = opened[..] else { panic!("one session: {log}") };
    assert!(opened.contains("client=\"test\""), "{opened}");
    let session = opened.split("id=").nth(1).unwrap().split_whitespace().next().unwrap();
    let calls: Vec<&str> = log.lines().filter(|line| line.contains("called")).collect();
    assert!(!calls.is_empty() && calls.iter().all(|line| line.contains(session)), "{log}");
}

#[test]
fn root_a_keeper_logs_what_it_is_requested() {
    let folder = tempfile::tempdir().unwrap();
    let (lab, log) = (folder.path().join("lab.toml"), folder.path().join("log"));
    fs::write(&lab, two_hosts("e2e-keeper-log", "mtu = 1500")).unwrap();
    let mut command = clearstream(&["lab", "up", lab.to_str().unwrap(), "--log", "lab=debug"]);
    command.stdout(Stdio::null()).stderr(Stdio::from(File::create(&log).unwrap()));
    assert!(command.status().unwrap().success());
    let up = Lab("e2e-keeper-log".to_owned());
    run(&["lab", "show", "e2e-keeper-log"]).ok();
    drop(up);
    let log = fs::read_to_string(&log).unwrap();
    for expected in ["the lab is up", "Stats", "stop requested"] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
}
