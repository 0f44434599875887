//! Two ranks of Open MPI over libfabric's verbs provider and the library.

use std::{path::Path, process::Command};

use crate::common::{Capture, MPA_REQUEST, Network, Program, SERVER, count};

/// Builds the program that exchanges messages by MPI.
fn ranks(folder: &Path) -> String {
    let program = folder.join("exchange");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../libfabric/tests/c/exchange.c");
    let mut compiler = Command::new("mpicc.openmpi");
    let output = compiler.args(["-std=gnu11", "-O1", "-o"]).arg(&program).arg(source).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "apt-get install libopenmpi-dev openmpi-bin (.ci/install test): {errors}"
    );
    program.to_str().unwrap().to_owned()
}

/// Messages that ranks exchange one at a time, and again at once, and their size.
const MESSAGES: u64 = 20;
const SIZE: u64 = 65536;

/// Starts both ranks from the server and checks what they report: every byte of every message,
/// and one iWARP connection for them.
fn exchange(network: &Network, folder: &Path, hosts: &str) {
    let program = ranks(folder);
    let capture = Capture::start(&network.server);
    let settings = [
        ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
        ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
        ("CLEARSTREAM_VERBS_STATISTICS", "1"),
        ("FI_PROVIDER", "verbs;ofi_rxm"),
    ];
    let line = format!(
        "mpirun.openmpi -np 2 {hosts} --bind-to none --mca pml cm --mca mtl ofi -x LD_PRELOAD -x FI_PROVIDER \
         -x CLEARSTREAM_VERBS_STATISTICS {program} {MESSAGES} {SIZE}"
    );
    let ended = Program::start(&network.server, &settings, &line).succeeds();
    let all = format!("exchange: {} messages of {SIZE} bytes, 0 bytes differ", 2 * MESSAGES);
    assert!(ended.stdout.lines().any(|line| line == all), "{ended:?}");
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

#[test]
fn root_verified_messages_of_open_mpi_on_one_host_are_iwarp() {
    let network = Network::new();
    let folder = tempfile::tempdir().unwrap();
    exchange(&network, folder.path(), "-H localhost:2");
}

#[test]
fn root_verified_messages_of_open_mpi_on_two_hosts_are_iwarp() {
    let network = Network::new();
    let folder = tempfile::tempdir().unwrap();
    // What the launcher takes for ssh: options, a host, and fields that a shell there reads.
    let agent = folder.path().join("enter-client");
    let script = format!(
        "#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\nshift\n\
         exec nsenter --target {} --all sh -c \"$*\"\n",
        network.client.pid()
    );
    std::fs::write(&agent, script).unwrap();
    std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let hosts = format!(
        "-H {SERVER}:1,10.77.0.2:1 --mca plm_rsh_agent {} --mca oob_tcp_if_include 10.77.0.0/24",
        agent.display()
    );
    exchange(&network, folder.path(), &hosts);
}
