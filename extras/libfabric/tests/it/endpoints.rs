//! Programs of libfabric over the provider: messages of every way of transport, simultaneous connects, and peers that are
//! killed, come back, have their address inserted twice, are named by receives, or have their memory read.

use std::{path::Path, process::Command};

use crate::common::Provider;

/// Builds a program of `tests/c` and runs it.
fn succeeds(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
    let output = compiler.arg("-lfabric").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "apt-get install libfabric-dev (.ci/install test): {errors}");
    let provider = Provider::new();
    let ended = Command::new(&program).envs(provider.settings()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn bytes_arrive_and_requests_of_a_killed_peer_fail() {
    succeeds("killed");
}

#[test]
fn a_peer_is_its_address_however_often_it_is_inserted_or_started() {
    succeeds("peers");
}

#[test]
fn eight_bytes_of_data_come_with_a_message_of_every_kind_and_length() {
    succeeds("data");
}

#[test]
fn a_receive_that_names_a_peer_takes_no_message_of_another() {
    succeeds("directed");
}

#[test]
fn a_send_that_asks_for_delivery_is_complete_when_its_receive_is() {
    succeeds("delivered");
}

#[test]
fn attributes_that_are_not_served_are_refused_when_an_object_is_opened() {
    succeeds("refused");
}

#[test]
fn registered_memory_is_read_within_its_bounds_while_it_is_open() {
    succeeds("fetched");
}

#[test]
fn registered_memory_is_written_within_its_bounds_in_order_while_it_is_open() {
    succeeds("written");
}
