//! A program of libfabric (`c/killed.c`): messages of every way of transport, simultaneous connects, and a killed peer.

use std::{path::Path, process::Command};

use crate::common::Provider;

#[test]
fn bytes_arrive_and_requests_of_a_killed_peer_fail() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("killed");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/killed.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
    let output = compiler.arg("-lfabric").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "apt-get install libfabric-dev (.ci/install test): {errors}");
    let provider = Provider::new();
    let ended = Command::new(&program).envs(provider.settings()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}
