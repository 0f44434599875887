//! Tests that need a second process, or a network namespace: this program is
//! restarted with a role.

use std::process::{Command, Stdio};

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
    in_role(Command::new(this_program()), role)
}

/// As root, with nothing but a loopback that is down.
pub(crate) fn in_a_namespace(role: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--net", &this_program()]);
    in_role(command, role)
}

pub(crate) fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

fn in_role(mut command: Command, role: &str) -> Command {
    command.args(["--exact", "processes::role", "--nocapture"]).env(ROLE, role).stdin(Stdio::piped());
    command
}

fn this_program() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}
