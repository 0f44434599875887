//! Unmodified programs of fabtests over the provider, on two hosts: messages, tags, peeks and cancels, reads and writes of
//! registered memory, with each byte verified where the program can.

use crate::hosts;

use std::path::{Path, PathBuf};

use crate::common::Provider;
use hosts::{Capture, Ended, MPA_REQUEST, Network, Program, SERVER, count};

/// Port of the endpoint, and of the TCP connection beside it that some programs have.
const PORTS: [u16; 2] = [9228, 3000];

/// Pairs of programs, with `-v` where they verify each byte. Ping-pongs have one message in flight (`-W`): for 64 of
/// the longest, which is the default, they clear a gigabyte each.
const PAIRS: [&str; 19] = [
    "fi_rdm",
    "fi_av_xfer -e rdm",
    "fi_rdm_tagged_peek",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -i 10",
    "fi_inj_complete -e rdm",
    "fi_resmgmt_test -e rdm",
    "fi_cq_data -e rdm",
    "fi_multi_recv -e rdm -I 5",
    "fi_bw -e rdm -v -T 0 -I 20",
    "fi_bw -e rdm -v -T 0 -I 5 -S 1048576",
    "fi_rdm_cntr_pingpong -I 5 -S 65536",
    "fi_rdm_pingpong -I 5 -v -W 1",
    "fi_rdm_tagged_pingpong -I 5 -v -W 1",
    "fi_rdm_tagged_pingpong -I 5 -v -S 65537",
    "fi_rdm_tagged_bw -I 5 -v -S 1048576",
    "fi_rma_bw -e rdm -o write -v -I 20",
    "fi_rma_bw -e rdm -o writedata -v -I 20 -S 1048576",
    "fi_rma_bw -e rdm -o read -v -I 20",
];

/// What the provider does not offer: the programs say so, `FI_ENODATA`.
const NOT_OFFERED: [&str; 3] = ["fi_rdm_atomic -o all", "fi_rdm_rma_event", "fi_msg"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/fabtests")
}

/// The hosts, unless `.ci/install` could not get the source package: `.ci/test` reports that.
fn network() -> Option<Network> {
    (!folder().join("unavailable").exists()).then(Network::new)
}

fn line(line: &str, source: Option<&str>) -> String {
    let bin = folder().join("bin");
    assert!(bin.join("fi_rdm").exists(), "no fabtests in {}: .ci/install test", bin.display());
    let (program, options) = line.split_once(' ').unwrap_or((line, ""));
    let source = source.map_or_else(String::new, |address| format!("-s {address}"));
    format!("{}/{program} -p clearstream {source} {options}", bin.display())
}

fn server(network: &Network, provider: &Provider, options: &str) -> Program {
    let mut server =
        Program::start_alone(&network.server, &provider.settings(), &line(options, Some(SERVER)));
    server.await_listening_on_one(&network.server, &PORTS);
    server
}

fn client(network: &Network, provider: &Provider, options: &str) -> Program {
    let line = format!("{} {SERVER}", line(options, None));
    Program::start_alone(&network.client, &provider.settings(), &line)
}

#[test]
fn root_fabtests_of_messages_tags_and_memory_pass() {
    let Some(network) = network() else { return };
    let provider = Provider::new();
    let capture = Capture::start(&network.client);
    for options in PAIRS {
        let server = server(&network, &provider, options);
        client(&network, &provider, options).succeeds();
        server.succeeds();
    }
    // At least one iWARP connection each; some programs have several endpoints.
    let requests = count(&capture.packets(), MPA_REQUEST);
    assert!(requests >= PAIRS.len(), "{requests}");
}

#[test]
fn root_what_is_not_offered_is_refused() {
    let Some(network) = network() else { return };
    let provider = Provider::new();
    for options in NOT_OFFERED {
        let ended: Ended = client(&network, &provider, options).end();
        assert_eq!(ended.code, Some(61), "{options}: {ended:?}");
    }
}

#[test]
fn root_a_peer_that_is_not_there_is_an_error() {
    let Some(network) = network() else { return };
    let provider = Provider::new();
    let ended = client(&network, &provider, "fi_rdm_tagged_pingpong -I 5").end();
    assert_eq!(ended.code, Some(104), "{ended:?}");
}
