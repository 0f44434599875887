//! Unmodified programs of fabtests over libfabric's verbs provider and the library: endpoints of type `msg` on
//! `verbs`, and of type `rdm` on `verbs;ofi_rxm`.

use std::path::{Path, PathBuf};

use crate::common::{Capture, Ended, MPA_REQUEST, Network, Program, SERVER, count};

/// Port of the endpoint, and of the TCP connection beside it that some programs have.
const PORTS: [u16; 2] = [9228, 3000];
const MSG: &str = "verbs";
const RDM: &str = "verbs;ofi_rxm";

/// Connected endpoints: a server and a client. Servers allocate messages of the size before they accept, and the
/// client waits 5 s for that.
const CONNECTED: [&str; 8] = [
    "fi_msg",
    "fi_msg_epoll",
    "fi_cm_data",
    "fi_rma_bw -e msg -o write -I 5 -S 1048576",
    "fi_rma_bw -e msg -o read -I 5 -S 1048576",
    // These send while the peer has no receive posted.
    "fi_msg_pingpong -I 5 -v -W 1",
    "fi_msg_bw -I 5 -v -S 65536",
    "fi_bw -e msg -I 5 -v -T 0",
];

/// Messages without connections, with `-v` where the program verifies each byte, and `-W` for no more of the longest
/// messages than are in flight: the programs clear the memory of 64 each.
const DATAGRAMS: [&str; 19] = [
    "fi_rdm",
    "fi_av_xfer -e rdm",
    "fi_poll -t queue",
    "fi_poll -t counter",
    "fi_rdm_tagged_peek",
    "fi_recv_cancel -e rdm -V",
    "fi_unexpected_msg -e rdm -i 10",
    "fi_inj_complete -e rdm",
    "fi_resmgmt_test -e rdm",
    "fi_multi_recv -e rdm -I 5",
    "fi_bw -e rdm -v -T 0 -I 20",
    "fi_rma_bw -e rdm -o write -I 5 -W 16",
    "fi_rma_bw -e rdm -o writedata -I 5 -W 16",
    "fi_rma_bw -e rdm -o read -I 5 -U -S 1048576",
    "fi_rdm_atomic -I 5 -o all",
    "fi_rdm_cntr_pingpong -I 5 -S 65536",
    "fi_rdm_pingpong -I 5 -v -W 1",
    "fi_rdm_tagged_pingpong -I 5 -v -S 65536",
    "fi_rdm_tagged_bw -I 5 -v -S 1048576",
];

/// Programs of one host, and the number of their tests that pass.
const UNITS: [(&str, &str, usize); 9] = [
    (MSG, "fi_getinfo_test -s 10.77.0.1 10.77.0.2", 34),
    (MSG, "fi_dom_test -n 2", 0),
    (MSG, "fi_eq_test", 8),
    (MSG, "fi_cq_test", 3),
    (MSG, "fi_mr_test", 3),
    (RDM, "fi_cq_test", 3),
    (RDM, "fi_mr_test", 3),
    (RDM, "fi_cntr_test", 0),
    (RDM, "fi_av_test -g 10.77.0.2 -n 1 -s 10.77.0.1", 20),
];

/// What libfabric 1.17 does not offer over an iWARP device, whichever it is: it says so, `FI_ENODATA`.
const NOT_OFFERED: [(&str, &str, &str); 16] = [
    (MSG, "fi_cq_data -e msg", "libfabric asks no iWARP device for immediate data"),
    (MSG, "fi_rma_bw -e msg -o writedata", "the same"),
    (MSG, "fi_shared_ctx -e msg", "no shared send queues in verbs"),
    (MSG, "fi_shared_ctx -e msg --no-rx-shared-ctx", "the same"),
    (MSG, "fi_inj_complete -e msg", "the program needs FI_INJECT_COMPLETE"),
    (MSG, "fi_resmgmt_test -e msg", "the program needs FI_RM_ENABLED, which ofi_rxm adds"),
    (MSG, "fi_multi_mr -e msg", "no FI_RMA_EVENT"),
    (RDM, "fi_multi_mr -e rdm", "the same"),
    (MSG, "fi_stream_msg", "streams are of the provider tcp alone"),
    (RDM, "fi_rdm_rma_event", "no FI_RMA_EVENT"),
    (RDM, "fi_rdm_rma_trigger", "no FI_TRIGGER"),
    (RDM, "fi_shared_ctx", "ofi_rxm has no shared contexts"),
    (RDM, "fi_scalable_ep", "ofi_rxm has no scalable endpoints"),
    (RDM, "fi_rdm_shared_av", "no address vectors shared by processes"),
    (RDM, "fi_rdm_multi_domain", "the program needs FI_RMA_EVENT"),
    (MSG, "fi_dgram", "no datagrams (UD) in iWARP"),
];

/// Programs that cannot run here, not started.
const EXCLUDED: [(&str, &str); 8] = [
    ("fi_unexpected_msg -e msg, fi_multi_recv -e msg", "FI_RM_ENABLED and FI_MULTI_RECV, which ofi_rxm adds"),
    // libfabric 1.17 offers it.
    ("fi_cq_data -e rdm", "the data is dropped by the provider verbs over iWARP devices"),
    (
        "fi_shared_ctx -e msg --no-tx-shared-ctx",
        "the client sends to all endpoints at once, whether the server has posted its receives or not",
    ),
    ("fi_multi_ep -e rdm", "hangs over the provider tcp too"),
    ("fi_msg_sockets", "a handle of the provider sockets"),
    ("fi_rdm_deferred_wq", "no triggered operations"),
    ("fi_unmap_mem", "allocates a registration cache that this build of libfabric does not have"),
    ("fi_dgram_pingpong, fi_dgram_waitset, fi_mcast", "no datagrams (UD) in iWARP"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/fabtests")
}

/// The hosts, unless `.ci/install` could not get the source package: `.ci/test` reports that.
fn network() -> Option<Network> {
    (!folder().join("unavailable").exists()).then(Network::new)
}

/// A program is run, or its exclusion has a reason.
#[test]
fn every_program_of_fabtests_is_in_a_list() {
    let Ok(programs) = std::fs::read_dir(folder().join("bin")) else { return };
    let listed: Vec<&str> = CONNECTED
        .iter()
        .chain(&DATAGRAMS)
        .copied()
        .chain(UNITS.iter().map(|(_, line, _)| *line))
        .chain(NOT_OFFERED.iter().map(|(_, line, _)| *line))
        .chain(EXCLUDED.iter().flat_map(|(lines, _)| lines.split(", ")))
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    for program in programs {
        let name = program.unwrap().file_name().into_string().unwrap();
        assert!(listed.contains(&name.as_str()), "{name} is neither run nor excluded");
    }
}

/// Command line of a program.
fn line(provider: &str, line: &str, source: Option<&str>) -> String {
    let bin = folder().join("bin");
    assert!(bin.join("fi_msg").exists(), "no fabtests in {}: .ci/install test", bin.display());
    let (program, options) = line.split_once(' ').unwrap_or((line, ""));
    let source = source.map_or_else(String::new, |address| format!("-s {address}"));
    format!("{}/{program} -p {provider} {source} {options}", bin.display())
}

/// Runs a server and a client, which both must succeed.
fn pair(network: &Network, provider: &str, options: &str) -> [Ended; 2] {
    let mut server = Program::start(&network.server, &[], &line(provider, options, Some(SERVER)));
    server.await_listening_on_one(&network.server, &PORTS);
    let client = format!("{} {SERVER}", line(provider, options, None));
    let client = Program::start(&network.client, &[], &client).succeeds();
    [server.succeeds(), client]
}

#[test]
fn root_fabtests_of_connected_endpoints_pass() {
    let Some(network) = network() else { return };
    let capture = Capture::start(&network.client);
    for options in CONNECTED {
        let [_, client] = pair(&network, MSG, options);
        assert!(!client.stderr.contains("cq_readerr"), "{options}: {client:?}");
    }
    // One iWARP connection each; fi_cm_data tries sizes of private data.
    let requests = count(&capture.packets(), MPA_REQUEST);
    assert!(requests >= CONNECTED.len(), "{requests}");
}

#[test]
fn root_fabtests_of_unconnected_endpoints_pass() {
    let Some(network) = network() else { return };
    let capture = Capture::start(&network.client);
    for options in &DATAGRAMS {
        pair(&network, RDM, options);
    }
    let requests = count(&capture.packets(), MPA_REQUEST);
    assert!(requests >= DATAGRAMS.len(), "{requests}");
}

#[test]
fn root_fabtests_of_one_host_pass() {
    let Some(network) = network() else { return };
    for (provider, options, passed) in UNITS {
        let ended = Program::start(&network.server, &[], &line(provider, options, None)).succeeds();
        assert_eq!(ended.stdout.matches("PASS").count(), passed, "{options}: {ended:?}");
    }
}

#[test]
fn root_fabtests_of_what_iwarp_has_not_are_refused() {
    let Some(network) = network() else { return };
    let start = |(provider, options, _): &(&str, &str, &str)| {
        Program::start(&network.client, &[], &format!("{} {SERVER}", line(provider, options, None)))
    };
    for few in NOT_OFFERED.chunks(4) {
        let programs: Vec<_> = few.iter().map(start).collect();
        for (program, (_, options, reason)) in programs.into_iter().zip(few) {
            let ended = program.end();
            assert_eq!(ended.code, Some(61), "{options} ({reason}): {ended:?}");
        }
    }
}
