//! A study of gateways with the whole binary: what it is refused for. `tests/accept/gateways.rs` runs it.

use crate::common::run;

#[test]
fn gateways_fail_in_a_lab_only() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let arguments = ["study", "run", "native-client", "--to", "localhost", "--runs", runs.to_str().unwrap()];
    run(&arguments).refused(2, &["--lab gateways-6"]);
    assert!(!runs.exists());
}
