//! `clearstream improve` as a person runs it.

use crate::common;
use std::time::Duration;

use crate::common::{clearstream, finish, run, signal};
use clearstream_improve::{PeersTestbed, Testbed as _};
use clearstream_schema::{
    diagnosis::End,
    plan::{Effect, Setting, Step, Value},
};
use clearstream_testkit::again::one_test;
use clearstream_workload::HostSet;

/// The operator's terminal has gone while a change is in test: it is restored, and
/// nothing is left to recover.
#[test]
fn root_a_hangup_restores_the_change_in_test() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lab.toml");
    let known = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../labs/wan-1650km-defaults.toml");
    let text = std::fs::read_to_string(known).unwrap();
    std::fs::write(&path, text.replace("\"wan-1650km-defaults\"", "\"e2e-improve-hangup\"")).unwrap();
    let lab = common::Lab::up(&path, "e2e-improve-hangup");
    let plans = folder.path().join("plans");
    let at = |host: &str, arguments: &[&str]| {
        let mut command = clearstream(&[&["lab", "exec", &lab.0, host, "--"], arguments].concat());
        command.env("CLEARSTREAM_PLANS", &plans);
        finish(command.spawn().unwrap(), Duration::from_secs(30)).ok().to_owned()
    };
    let keys = ["sysctl", "net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem", "net.ipv4.tcp_congestion_control"];
    let shown = || ["alpha", "beta"].map(|host| at(host, &keys));
    let before = shown();
    let mut child = None;
    // Where other programs leave no processor time, it may find nothing to try.
    for _ in 0..3 {
        let mut command = clearstream(&["improve", "--lab", &lab.0, "-t", "1s", "-O", "1s"]);
        command.args(["--diagnosis-budget", "15s", "--budget", "120s"]).env("CLEARSTREAM_PLANS", &plans);
        let mut program = command.spawn().unwrap();
        let mut is_changed = false;
        common::eventually(Duration::from_secs(150), "a change is in test", || {
            is_changed = shown()[0].lines().next() != before[0].lines().next();
            is_changed || program.try_wait().unwrap().is_some()
        });
        if is_changed {
            child = Some(program);
            break;
        }
    }
    let child = child.expect("tcp_wmem is changed");
    signal(child.id(), "HUP");
    let ended = finish(child, Duration::from_secs(60));
    assert_eq!(ended.code(), 130, "{}", ended.stderr);
    assert_eq!(shown(), before);
    for host in ["alpha", "beta"] {
        let recovered = at(host, &[common::program().to_str().unwrap(), "plan", "recover"]);
        assert!(recovered.contains("nothing was interrupted"), "{recovered}");
    }
}

#[test]
fn hosts_are_not_changed_without_confirmation() {
    run(&["improve", "localhost"]).refused(2, &["--yes"]);
}

#[test]
fn too_few_pairs_are_refused_with_the_reason() {
    run(&["improve", "localhost", "--yes", "--pairs", "3"]).refused(2, &["at least 4"]);
}

/// The lab of the process that tests a change, in its environment.
const TESTER: &str = "IMPROVE_TEST_LAB";

/// What `improve` does when it measures with a change: it is effective on a host, and
/// the program is busy elsewhere.
fn tester(lab: &str) {
    let agent = |host: &str| {
        let mut command = std::process::Command::new(common::program());
        command.args(["lab", "exec", lab, host, "--"]).arg(common::program()).arg("agent");
        clearstream_control::spawn(command, host).unwrap()
    };
    let (mut client, mut server) = (agent("here"), agent("there"));
    let address = "10.0.0.2".parse().unwrap();
    let budget = Duration::from_secs(1);
    let hosts = HostSet::pair((&mut client, None), (&mut server, address), None);
    let mut testbed = PeersTestbed::open(hosts, budget, None).unwrap();
    let step = |key: &str, value: &str| Step {
        setting: Setting::Sysctl(key.to_owned()),
        current: None,
        desired: Some(Value::Text(value.to_owned())),
        reason: "a test".to_owned(),
        effect: Effect::Now,
    };
    let kept = testbed.apply(End::Client, &[step("net.ipv4.tcp_sack", "0")]).unwrap().unwrap();
    testbed.keep(End::Client, &kept).unwrap();
    testbed.apply(End::Client, &[step("net.ipv4.tcp_wmem", "4096 16384 67108864")]).unwrap();
    testbed.apply(End::Server, &[step("net.ipv4.tcp_rmem", "4096 131072 67108864")]).unwrap();
    std::thread::sleep(Duration::from_secs(120));
}

/// kill -9 of the program while changes are in test on both hosts: what was kept
/// stays, nothing unproven does, and there is nothing left to recover.
#[test]
fn root_killed_while_a_change_is_in_test_nothing_unproven_stays() {
    if let Ok(lab) = std::env::var(TESTER) {
        return tester(&lab);
    }
    let folder = tempfile::tempdir().unwrap();
    let lab = common::Lab::of_two_hosts(folder.path(), "e2e-improve-killed");
    let plans = folder.path().join("plans");
    let shown = |host: &str| -> String {
        let keys = ["net.ipv4.tcp_sack", "net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"];
        run(&[&["lab", "exec", &lab.0, host, "--", "sysctl"], &keys[..]].concat()).ok().to_owned()
    };
    let before = (shown("here").replace("tcp_sack = 1", "tcp_sack = 0"), shown("there"));
    let [program, arguments @ ..] =
        one_test(module_path!(), "root_killed_while_a_change_is_in_test_nothing_unproven_stays");
    let mut command = std::process::Command::new(program);
    command.args(arguments);
    command.env(TESTER, &lab.0).env("CLEARSTREAM_PLANS", &plans);
    let mut program = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    common::eventually(Duration::from_secs(60), "changes are in test on both hosts", || {
        shown("here").contains("67108864") && shown("there").contains("67108864")
    });
    program.kill().unwrap();
    program.wait().unwrap();
    common::eventually(Duration::from_secs(20), "what was not kept is restored", || {
        (shown("here"), shown("there")) == before
    });
    for host in ["here", "there"] {
        let program = common::program().to_str().unwrap();
        let mut recover = clearstream(&["lab", "exec", &lab.0, host, "--", program, "plan", "recover"]);
        recover.env("CLEARSTREAM_PLANS", &plans);
        let recovered = finish(recover.spawn().unwrap(), Duration::from_secs(30));
        assert!(recovered.ok().contains("nothing was interrupted"), "{}", recovered.stdout);
    }
}
