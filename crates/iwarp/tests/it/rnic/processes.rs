//! Tests that need a second process, or a network namespace: this program is
//! restarted with a role.

use std::process::{Command, Stdio};

use clearstream_testkit::again::one_test;

use crate::rnic::{capture, faults};

const ROLE: &str = "RNIC_TEST_ROLE";

/// Entry point of the second process; without a role it does nothing.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        Ok("to be killed") => faults::to_be_killed(),
        Ok("half open") => faults::half_open(),
        Ok("captured") => capture::captured(),
        _ => {}
    }
}

pub(crate) fn second_process(role: &str) -> Command {
    let [program, arguments @ ..] = one_test(module_path!(), "role");
    let mut command = Command::new(program);
    command.args(arguments);
    in_role(command, role)
}

/// As root, with nothing but a loopback that is down.
pub(crate) fn in_a_namespace(role: &str) -> Command {
    let mut command = Command::new("unshare");
    command.arg("--net").args(one_test(module_path!(), "role"));
    in_role(command, role)
}

pub(crate) fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

fn in_role(mut command: Command, role: &str) -> Command {
    command.env(ROLE, role).stdin(Stdio::piped());
    command
}
