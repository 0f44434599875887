//! C programs over the library: queues, events and errors as programs expect
//! them, and the programs that need no connection.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
};

use crate::common::{self, Network, Program, SERVER, c};

fn run(program: &str, settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", common::library()).envs(settings.iter().copied());
    command.output().unwrap_or_else(|error| panic!("{program}: {error}: .ci/install test"))
}

#[test]
fn queues_events_and_errors_are_those_of_the_manual_pages() {
    let program = c::compile(include_str!("../c/verbs.c"), &["-libverbs", "-lrdmacm", "-lpthread"]);
    for mode in ["adaptive", "offloaded"] {
        let output = run(program.path.to_str().unwrap(), &[("CLEARSTREAM_VERBS_PROGRESS", mode)]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode}: {errors}");
        assert_eq!(output.stdout, b"verbs\n");
        // Each of the rejected uses is reported once.
        assert_eq!(errors.matches("use Send, RDMA Write and RDMA Read").count(), 1, "{errors}");
        assert_eq!(errors.matches("child of a fork").count(), 1, "{errors}");
    }
}

/// The commands of docs/guide/verbs-c.md, with a compiler that warns of all that C99 does not have.
#[test]
fn the_example_of_the_guide_runs_with_every_kind_of_progress() {
    let options = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-lrdmacm", "-libverbs"];
    let program = c::compile(include_str!("../../examples/pingpong.c"), &options);
    for (mode, port) in [("adaptive", "7261"), ("inline", "7262"), ("offloaded", "7263")] {
        let start = |role: &str| {
            let mut command = Command::new(&program.path);
            command.args([role, "127.0.0.1", port, "100"]);
            command.env("LD_PRELOAD", common::library()).env("CLEARSTREAM_VERBS_PROGRESS", mode);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let mut listener = start("listen");
        let mut lines = BufReader::new(listener.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "listening", "{mode}");
        let peer = start("connect").wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&peer.stdout);
        assert!(peer.status.success() && said.starts_with("100 rounds, "), "{mode}: {peer:?}");
        assert_eq!(lines.next().unwrap().unwrap(), "served 100 rounds", "{mode}");
        assert!(listener.wait().unwrap().success(), "{mode}");
    }
}

/// Another thread may follow an event until it acknowledges it.
#[test]
fn an_object_is_destroyed_when_its_events_are_acknowledged() {
    let program = c::compile(include_str!("../c/held.c"), &["-libverbs", "-lpthread"]);
    let output = run(program.path.to_str().unwrap(), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"held\n");
}

/// A thousand connections one after the other leave no descriptor and no thread; eight threads on one queue pair, and
/// eight with one each, lose and mix nothing.
#[test]
fn root_many_connections_and_threads_lose_and_leave_nothing() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/many.c"), &["-libverbs", "-lrdmacm", "-lpthread"]);
    let many = |mode: &str, connections: u32| {
        let line = format!("{} {SERVER} {connections}", program.path.display());
        let ended =
            Program::start(&network.server, &[("CLEARSTREAM_VERBS_PROGRESS", mode)], &line).succeeds();
        assert_eq!(ended.stdout, "many\n", "{mode}: {ended:?}");
    };
    many("adaptive", 1000);
    for mode in ["adaptive", "inline", "offloaded"] {
        many(mode, 0);
    }
}

/// Eight queue pairs receive from one shared receive queue: messages of every length come whole, in the order of their
/// queue pair, by polling and by events.
#[test]
fn root_queue_pairs_that_share_receives_keep_their_messages_apart() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/shared.c"), &["-libverbs", "-lrdmacm", "-lpthread"]);
    for mode in ["adaptive", "inline", "offloaded"] {
        for method in ["poll", "sleep"] {
            let line = format!("{} {SERVER} {method}", program.path.display());
            let ended =
                Program::start(&network.server, &[("CLEARSTREAM_VERBS_PROGRESS", mode)], &line).succeeds();
            assert_eq!(ended.stdout, "shared\n", "{mode}, {method}: {ended:?}");
        }
    }
}

#[test]
fn the_device_is_listed_with_its_attributes() {
    let settings = [("CLEARSTREAM_VERBS_DEVICE", "soft7"), ("CLEARSTREAM_VERBS_ADDRESS", "192.0.2.7")];
    let listed = run("ibv_devices", &settings);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.status.success() && text.contains("soft7"), "{text}");
    // 192.0.2.7 ends the GUID.
    assert!(text.contains("c0000207"), "{text}");
    let shown = run("ibv_devinfo", &[settings[0], settings[1], ("IBV_DEVINFO", "-v")]);
    let text = String::from_utf8(shown.stdout).unwrap();
    for expected in ["soft7", "iWARP (1)", "PORT_ACTIVE (4)", "Ethernet"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn invalid_settings_leave_no_device_and_a_reason() {
    let listed = run("ibv_devices", &[("CLEARSTREAM_VERBS_PROGRESS", "fast")]);
    let errors = String::from_utf8_lossy(&listed.stderr);
    assert!(errors.contains("CLEARSTREAM_VERBS_PROGRESS=fast is invalid: use adaptive"), "{errors}");
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("clearstream0"));
}
