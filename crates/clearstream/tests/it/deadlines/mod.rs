//! Every wait has an end: an agent that lives and does not reply to a call, a login that never comes, a host that
//! prints without end. And the first Ctrl-C ends every verb, wherever it waits.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use crate::{
    common::{Run, clearstream, eventually, finish, program, signal},
    rights::requests::samples,
};

/// More than a command may take from a signal to its end, on a machine that is busy with other tests.
const INTERRUPTED_WITHIN: Duration = Duration::from_secs(4);
/// Longest that a reply here is waited for, and the end of the command.
const LIMIT: Duration = Duration::from_secs(60);

/// Verbs towards a host whose agent ssh starts, and a call that this agent serves.
const VERBS: [(&str, &[&str], &str); 7] = [
    ("diagnose", &["diagnose", "HOST", "--budget", "6s"], "inspect"),
    ("probe", &["probe", "HOST", "--count", "3"], "probe-listen"),
    ("live", &["live", "HOST", "-t", "2s"], "inspect"),
    ("flow", &["flow", "HOST", "-t", "400ms"], "flow-listen"),
    ("message", &["message", "HOST", "--size", "1KiB"], "message-listen"),
    ("overlap", &["overlap", "HOST"], "overlap-listen"),
    ("rdma", &["rdma", "write", "--to", "HOST", "-t", "400ms"], "rdma-serve"),
];

/// A folder with a program `ssh` in it.
struct Ssh {
    folder: tempfile::TempDir,
}

impl Ssh {
    fn of(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ssh");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder }
    }

    /// An agent whose frames are passed on, but for some.
    fn dropping() -> Self {
        Self::of(include_str!("ssh"))
    }

    fn calls(&self) -> PathBuf {
        self.folder.path().join("calls")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let arguments: Vec<&str> = arguments
            .iter()
            .map(|argument| if *argument == "HOST" { "127.0.0.1" } else { *argument })
            .collect();
        let mut command = clearstream(&arguments);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.folder.path().display()));
        command.env("CS", program()).env("CALLS", self.calls());
        command
    }
}

/// The arguments of a verb, with the address of the data where it takes one.
fn towards(verb: &str, arguments: &[&'static str]) -> Vec<&'static str> {
    let address: &[&str] = if verb == "live" { &[] } else { &["--address", "127.0.0.1"] };
    [arguments, address].concat()
}

fn unanswered(verb: &str, arguments: &[&'static str], drop: u32) -> (Run, Duration) {
    let ssh = Ssh::dropping();
    let begun = Instant::now();
    let child = ssh.command(&towards(verb, arguments)).env("DROP_REPLY", drop.to_string()).spawn().unwrap();
    (finish(child, LIMIT), begun.elapsed())
}

#[test]
fn a_call_without_a_reply_ends_the_command_with_its_name() {
    thread::scope(|scope| {
        for (verb, arguments, call) in VERBS {
            scope.spawn(move || {
                let (run, took) = unanswered(verb, arguments, 1);
                run.refused(6, &["127.0.0.1", &format!("no reply to `{call}` within"), " s"]);
                assert!(took < Duration::from_secs(30), "{verb}: {took:?}");
            });
        }
    });
}

/// The budget is shorter than the time that the call has.
#[test]
fn a_budget_bounds_the_whole() {
    let (run, took) = unanswered("diagnose", &["diagnose", "HOST", "--budget", "4s"], 1);
    run.refused(6, &["no reply to `inspect` within"]);
    assert!(took < Duration::from_secs(9), "{took:?}");
}

/// What was measured until then is kept, as at Ctrl-C: here the server's side is not told to stop.
#[test]
fn results_so_far_are_kept() {
    let arguments = ["message", "HOST", "--size", "1KiB", "--duration", "100ms", "--json"];
    let (run, _) = unanswered("message", &arguments, 2);
    run.refused(6, &["no reply to `message-stop`"]);
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&document["points"][0]["size_bytes"], &document["complete"]), (&1024.into(), &false.into()));
}

fn interrupted(mut child: Child, what: &str) -> Run {
    let begun = Instant::now();
    signal(child.id(), "INT");
    eventually(INTERRUPTED_WITHIN, &format!("{what} ends by the first signal"), || {
        child.try_wait().unwrap().is_some()
    });
    let run = finish(child, LIMIT);
    assert_eq!(run.code(), 130, "{what} after {:?}: {}", begun.elapsed(), run.stderr);
    run
}

/// Ctrl-C, and then the server's side is not told to stop: nobody waits for it, and what was measured is kept.
#[test]
fn results_so_far_are_kept_where_a_signal_ends_the_wait() {
    let arguments = ["message", "HOST", "--sizes", "1B-64KiB", "--perturbation", "0B"];
    let ssh = Ssh::dropping();
    let mut command = ssh.command(&towards("message", &arguments));
    let child = command.args(["--duration", "500ms", "--json"]).env("DROP_REPLY", "2").spawn().unwrap();
    eventually(LIMIT, "the server listens", || {
        fs::read_to_string(ssh.calls()).is_ok_and(|calls| calls.contains("message-listen"))
    });
    // Seventeen sizes take eight seconds.
    thread::sleep(Duration::from_secs(3));
    let run = interrupted(child, "message");
    let document: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&document["points"][0]["size_bytes"], &document["complete"]), (&1.into(), &false.into()));
}

#[test]
fn the_first_signal_ends_a_verb_that_waits_for_a_reply() {
    thread::scope(|scope| {
        for (verb, arguments, call) in VERBS {
            scope.spawn(move || {
                let ssh = Ssh::dropping();
                let child = ssh.command(&towards(verb, arguments)).env("DROP_REPLY", "1").spawn().unwrap();
                eventually(LIMIT, &format!("{verb} calls {call}"), || {
                    fs::read_to_string(ssh.calls()).is_ok_and(|calls| calls.contains(call))
                });
                interrupted(child, verb);
            });
        }
    });
}

/// A login that never comes: no agent, and with `deploy` a child whose end is waited for.
#[test]
fn the_first_signal_ends_a_verb_that_waits_for_ssh() {
    let sleeping = "#!/bin/sh\necho begun > \"$CALLS\"\nexec sleep 600\n";
    let deploy = ("deploy", ["deploy", "HOST"].as_slice(), "");
    let improve = ("improve", ["improve", "HOST", "--yes"].as_slice(), "");
    thread::scope(|scope| {
        for (verb, arguments, _) in VERBS.into_iter().chain([deploy, improve]) {
            scope.spawn(move || {
                let ssh = Ssh::of(sleeping);
                let child = ssh.command(arguments).spawn().unwrap();
                eventually(LIMIT, &format!("{verb} starts ssh"), || ssh.calls().exists());
                interrupted(child, verb);
            });
        }
    });
}

#[test]
fn a_copy_to_a_host_that_prints_or_sleeps_has_an_end() {
    // A long message of the day, in front of a shell that reads everything.
    let talkative = Ssh::of("#!/bin/sh\nhead -c 300000 /dev/zero | tr '\\0' x >&2\ncat > /dev/null\n");
    let run = finish(talkative.command(&["deploy", "HOST"]).spawn().unwrap(), LIMIT);
    run.refused(3, &["did not run the script"]);
    assert!(run.stderr.len() < 4000, "only its end is quoted: {} bytes", run.stderr.len());
    let endless = Ssh::of("#!/bin/sh\ncat > /dev/null\nexec yes aaaa\n");
    finish(endless.command(&["deploy", "HOST"]).spawn().unwrap(), LIMIT).refused(3, &["ssh wrote more than"]);
    let sleeping = Ssh::of("#!/bin/sh\nexec sleep 600\n");
    let mut child = sleeping.command(&["deploy", "HOST"]).spawn().unwrap();
    let line = first_line(child.stderr.as_mut().unwrap());
    assert!(line.contains("waiting for ssh to log in to 127.0.0.1"), "{line}");
    interrupted(child, "deploy");
}

fn first_line(stream: &mut impl Read) -> String {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// Short calls: as the samples are, none of them takes longer than a minute or two where everything goes slowly.
#[test]
fn every_call_has_a_time() {
    for sample in samples() {
        let range = Duration::from_secs(2)..=Duration::from_secs(120);
        assert!(range.contains(&sample.within), "{}: {:?}", sample.name, sample.within);
    }
}
