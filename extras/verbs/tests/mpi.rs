//! Two ranks of Open MPI over libfabric's verbs provider and the library.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{path::Path, process::Command};

use common::{Capture, MPA_REQUEST, Network, Program, count};

/// Builds the program of `clearstream message --transport mpi`.
fn ranks(folder: &Path) -> String {
    let program = folder.join("clearstream-mpi");
    let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mpi/build");
    let output = Command::new(build).arg("mpicc.openmpi").arg(&program).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "apt-get install libopenmpi-dev openmpi-bin (.ci/install test): {errors}"
    );
    program.to_str().unwrap().to_owned()
}

/// Both ranks are on one host: without an address libfabric 1.17 listens on 127.0.0.1, which
/// the library accepts.
#[test]
fn root_verified_messages_of_open_mpi_are_iwarp() {
    const MESSAGES: u64 = 20;
    const SIZE: u64 = 65536;
    let network = Network::new();
    let folder = tempfile::tempdir().unwrap();
    let program = ranks(folder.path());
    let capture = Capture::start(&network.server);
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("CLEARSTREAM_VERBS_STATISTICS", "1"),
        ("FI_PROVIDER", "verbs;ofi_rxm"),
    ];
    let line = format!(
        "mpirun.openmpi -np 2 -H localhost:2 --bind-to none --mca pml cm --mca mtl ofi {program} \
         --sizes {SIZE} --iterations {MESSAGES} --warm-up-ns 0 --verify"
    );
    let ended = Program::start(&network.server, &settings, &line).succeeds();
    let is_result = |line: &&str| line.contains("\"event\":\"size\"");
    let result = ended.stdout.lines().find(is_result).unwrap_or_else(|| panic!("{ended:?}"));
    assert!(result.contains(&format!("\"server_received_count\":{MESSAGES}")), "{result}");
    // Each rank reports the connection: at least the messages went each way.
    let sent: Vec<u64> = ended
        .stderr
        .lines()
        .filter_map(|line| line.split_once(" bytes sent").filter(|_| line.contains("statistics: ")))
        .map(|(before, _)| before.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(sent.len(), 2, "{ended:?}");
    assert!(sent.iter().all(|bytes| *bytes > MESSAGES * SIZE), "{sent:?}");
    // One connection, which the MPA Request opens; loopback shows a packet twice.
    let requests = count(&capture.packets(), MPA_REQUEST);
    assert!((1..=2).contains(&requests), "{requests}");
}
