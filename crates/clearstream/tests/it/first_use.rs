//! First use of the program: messages that fit, a unit for
//! systemd, one name for one thing.

use crate::common;
use std::{
    collections::BTreeSet,
    fs,
    os::unix::{fs::PermissionsExt, net::UnixDatagram},
    process::{Command, Stdio},
    time::Duration,
};

use crate::common::{Lab, clearstream, finish, program, run, signal};
use clap::CommandFactory as _;
use clearstream::verbs::Cli;
use clearstream_testkit::lab::two_hosts;

/// A copy where everybody may run it: the build folder may be private.
fn as_nobody(arguments: &[&str]) -> common::Run {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("clearstream");
    fs::copy(program(), &copy).unwrap();
    for path in [folder.path(), &copy] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(arguments);
    command.env_remove("XDG_RUNTIME_DIR").stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command.spawn().unwrap(), Duration::from_secs(20))
}

#[test]
fn root_the_built_in_labs_are_listed_for_everybody() {
    let listed = as_nobody(&["lab", "list"]);
    assert!(listed.ok().contains("wan-1650km") && listed.stdout.contains("built in"), "{}", listed.stdout);
    as_nobody(&["lab", "list", "--json"]).json();
}

#[test]
fn root_a_lab_that_there_is_not_is_not_offered() {
    let down = run(&["lab", "down", "nosuch"]);
    down.refused(9, &["no lab \"nosuch\" is running", "clearstream lab list"]);
    assert!(!down.stderr.contains("lab up"), "{}", down.stderr);
    run(&["lab", "show", "two-hots"]).refused(9, &["did you mean `two-hosts`?"]);
    run(&["lab", "show", "two-hosts"]).refused(9, &["clearstream lab up two-hosts"]);
}

#[test]
fn root_times_of_a_lab_are_written_as_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e2e-times.toml");
    fs::write(&path, two_hosts("e2e-times", "delay = \"8500us\"")).unwrap();
    let up = run(&["lab", "up", path.to_str().unwrap()]);
    let _lab = Lab("e2e-times".to_owned());
    assert!(up.ok().contains("8.50 ms"), "{}", up.stdout);
    assert!(!up.stdout.contains("8500us") && !up.stdout.contains("0ns"), "{}", up.stdout);
}

#[test]
fn verify_and_revert_each_name_what_cannot_be_done() {
    let folder = tempfile::tempdir().unwrap();
    for (verb, action) in [("plan", "verify"), ("route", "verify"), ("plan", "revert")] {
        let mut command = clearstream(&[verb, action]);
        command.env("CLEARSTREAM_PLANS", folder.path());
        let ended = finish(command.spawn().unwrap(), Duration::from_secs(20));
        let participle = if action == "verify" { "could be verified" } else { "could be reverted" };
        ended.refused(2, &[participle, "clearstream plan history"]);
    }
}

/// Its long names and aliases, of every verb that has a port of the data.
#[test]
fn the_port_has_one_name_everywhere() {
    let mut root = Cli::command();
    root.build();
    let mut seen = BTreeSet::new();
    let mut verbs: Vec<(String, &clap::Command)> = vec![(String::new(), &root)];
    while let Some((path, command)) = verbs.pop() {
        verbs.extend(command.get_subcommands().map(|verb| (format!("{path} {}", verb.get_name()), verb)));
        for arg in command.get_arguments() {
            let Some(long) = arg.get_long() else { continue };
            assert_ne!(long, "destination-port", "{path}: an alias of --port");
            let aliases = arg.get_all_aliases().unwrap_or_default();
            if long == "port" && aliases.contains(&"destination-port") {
                assert_eq!(arg.get_short(), Some('p'), "{path}");
                seen.insert(path.trim().to_owned());
            }
        }
    }
    let wanted = [
        "flow",
        "probe",
        "message",
        "overlap",
        "diagnose",
        "improve",
        "place ports",
        "rdma ping",
        "rdma write",
    ];
    for verb in wanted {
        assert!(seen.contains(verb), "{verb} has no --port: {seen:?}");
    }
}

#[test]
fn the_daemons_unit_is_one_that_systemd_takes() {
    let folder = tempfile::tempdir().unwrap();
    let text = run(&["serve", "--listen", "192.0.2.1:5740", "--queue", "--unit"]);
    let unit = folder.path().join("clearstream-serve.service");
    fs::write(&unit, text.ok()).unwrap();
    for part in ["Type=notify", "--listen 192.0.2.1:5740 --queue", "--identity /var/lib/clearstream/serve"] {
        assert!(text.stdout.contains(part), "{part}: {}", text.stdout);
    }
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let about: Vec<&str> = stderr.lines().filter(|line| line.contains("clearstream")).collect();
    assert!(output.status.success() && about.is_empty(), "{stderr}");
}

#[test]
fn the_daemon_notifies_its_service_manager() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = clearstream(&["serve", "--listen", "127.0.0.1:0", "--identity"]);
    command.arg(folder.path().join("identity")).env("NOTIFY_SOCKET", &socket);
    let daemon = command.spawn().unwrap();
    let notice = || {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let ready = notice();
    assert!(ready.starts_with("READY=1\nSTATUS=listening on 127.0.0.1:"), "{ready}");
    signal(daemon.id(), "TERM");
    assert_eq!(notice(), "STOPPING=1\n");
    finish(daemon, Duration::from_secs(20)).ok();
}
