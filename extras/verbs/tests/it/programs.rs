//! Unmodified programs of Debian over the library, on two hosts.

use crate::common::{Capture, Ended, MPA_REQUEST, Network, Program, SERVER, count, pair};

const PORT_RPING: u16 = 7174;
const PORT_CM: u16 = 7471;
const PORT_PERFTEST: u16 = 18515;
const PORT_QPERF: u16 = 19765;

#[test]
fn root_rping_verifies_its_data_and_the_bytes_are_iwarp() {
    let network = Network::new();
    let capture = Capture::start(&network.client);
    let server = format!("rping -s -V -v -C 10 -a {SERVER}");
    let client = format!("rping -c -V -v -C 10 -a {SERVER}");
    let [server, client] = pair(&network, &[], PORT_RPING, [&server, &client]);
    for text in [&server.stdout, &client.stdout] {
        for number in 0..10 {
            assert!(text.contains(&format!("rdma-ping-{number}: ")), "{text}");
        }
    }
    // rping may report the disconnect there; the library has nothing to report.
    assert!(!client.stderr.contains("clearstream-verbs"), "{client:?}");
    let packets = capture.packets();
    assert_eq!(count(&packets, MPA_REQUEST), 1);
    // Each ping is read from the client, and written back to it.
    assert_eq!(count(&packets, b"rdma-ping-7: HIJ"), 2);
}

/// One message each way, by the functions of rdma_verbs.h.
#[test]
fn root_rdma_client_and_rdma_server_pass() {
    let network = Network::new();
    for mode in ["adaptive", "inline", "offloaded"] {
        let settings = [("CLEARSTREAM_VERBS_PROGRESS", mode)];
        let lines = [
            format!("rdma_server -s {SERVER} -p {PORT_CM}"),
            format!("rdma_client -s {SERVER} -p {PORT_CM}"),
        ];
        let [server, client] = pair(&network, &settings, PORT_CM, [&lines[0], &lines[1]]);
        assert!(server.stdout.contains("rdma_server: end 0"), "{mode}: {server:?}");
        assert!(client.stdout.contains("rdma_client: end 0"), "{mode}: {client:?}");
    }
}

#[test]
fn root_rping_runs_with_a_checksum_over_ipv6_and_with_a_queue_pair_of_its_own() {
    let network = Network::new();
    let capture = Capture::start(&network.client);
    let crc = [("CLEARSTREAM_VERBS_CRC", "1")];
    pair(&network, &crc, PORT_RPING, ["rping -s -V -C 5 -a fd77::1", "rping -c -V -C 5 -a fd77::1"]);
    // Key, then the flags C and S of revision 2 (RFC 5044, RFC 6581), and the reserved ones of large FPDUs and immediate data.
    let mut request = MPA_REQUEST.to_vec();
    request.push(0x5a);
    assert_eq!(count(&capture.packets(), &request), 1);
    pair(
        &network,
        &[],
        PORT_RPING,
        [&format!("rping -s -q -V -C 5 -a {SERVER}"), &format!("rping -c -q -V -C 5 -a {SERVER}")],
    );
}

/// Returns the numbers of the statistics line of the only connection: bytes
/// sent, bytes received.
fn bytes_of(ended: &Ended) -> (u64, u64) {
    let lines: Vec<_> = ended.stderr.lines().filter(|line| line.contains("statistics: ")).collect();
    let [line] = lines[..] else { panic!("{ended:?}") };
    let before = |unit: &str| {
        let number = line.split(unit).next().unwrap().rsplit(' ').next().unwrap();
        number.parse().unwrap_or_else(|_| panic!("{line}"))
    };
    (before(" bytes sent"), before(" bytes received"))
}

#[test]
fn root_statistics_and_trace_name_peer_operations_and_bytes() {
    let network = Network::new();
    let server = format!("rping -s -V -C 10 -a {SERVER}");
    let client = format!("rping -c -V -C 10 -a {SERVER}");
    for (mode, mover) in [("adaptive", "; by the "), ("inline", "; by the "), ("offloaded", " the engine ")] {
        let settings = [
            ("CLEARSTREAM_VERBS_PROGRESS", mode),
            ("CLEARSTREAM_VERBS_STATISTICS", "1"),
            ("CLEARSTREAM_VERBS_TRACE", "1"),
        ];
        let [server, client] = pair(&network, &settings, PORT_RPING, [&server, &client]);
        let ((sent, received), theirs) = (bytes_of(&client), bytes_of(&server));
        // One end's bytes are the other's.
        assert_eq!((received, sent), theirs, "{mode}: {client:?} {server:?}");
        // Ten pings of 64 bytes, read and written.
        assert!(sent > 640 && received > 640, "{client:?}");
        let peer = format!(" -> {SERVER}:7174: ");
        let line = |what: &str| client.stderr.lines().find(|line| line.contains(what)).unwrap().to_owned();
        let statistics = line("statistics: ");
        assert!(statistics.contains(&peer) && statistics.contains(mover), "{statistics}");
        // The client sends two messages per ping.
        assert!(statistics.contains(" 20 sends posted, 20 receives completed"), "{statistics}");
        let trace = line("trace: ");
        assert!(trace.contains(&peer) && trace.contains("path RDMA (iWARP, MPA revision 2"), "{trace}");
        assert!(line("statistics of process").contains(&format!("by RDMA: 1, {mode} progress")));
    }
}

#[test]
fn root_ucmatose_connects_sends_and_disconnects() {
    let network = Network::new();
    let lines = [&format!("ucmatose -c 4 -b {SERVER}")[..], &format!("ucmatose -c 4 -s {SERVER}")];
    for ended in pair(&network, &[], PORT_CM, lines) {
        assert!(ended.stdout.contains("test complete"), "{ended:?}");
        assert!(ended.stdout.contains("return status 0"), "{ended:?}");
    }
}

#[test]
fn root_one_hundred_connections_are_made_and_ended() {
    let network = Network::new();
    // The server of cmtime serves until it is stopped.
    let mut server = Program::start(&network.server, &[], &format!("cmtime -b {SERVER}"));
    server.await_listening(&network.server, PORT_CM);
    let client = Program::start(&network.client, &[], &format!("cmtime -c 100 -s {SERVER}"));
    let text = client.succeeds().stdout;
    assert!(text.contains("disconnect"), "{text}");
}

#[test]
fn root_rsockets_carry_streams_with_verified_data() {
    let network = Network::new();
    let capture = Capture::start(&network.client);
    for (program, options) in [("rstream", ""), ("rstream", "-T n"), ("riostream", "")] {
        let common = format!("{program} -S 4096 -I 10 -C 10 -T v {options}");
        let lines = [&format!("{common} -b {SERVER}")[..], &format!("{common} -s {SERVER}")];
        for ended in pair(&network, &[], PORT_CM, lines) {
            assert!(ended.stdout.contains("4k"), "{ended:?}");
        }
    }
    assert_eq!(count(&capture.packets(), MPA_REQUEST), 3);
}

/// Perftest's programs that poll completion queues.
const POLLING: [&str; 5] = ["ib_send_lat", "ib_read_lat", "ib_send_bw", "ib_write_bw", "ib_read_bw"];

/// Runs programs of perftest with 200 messages of 4 KiB.
fn perftest(mode: &str, programs: &[&str]) {
    let network = Network::new();
    let capture = Capture::start(&network.client);
    for program in programs {
        let server = format!("{program} -R -n 200 -s 4096");
        let client = format!("{server} {SERVER}");
        let settings = [("CLEARSTREAM_VERBS_PROGRESS", mode)];
        for ended in pair(&network, &settings, PORT_PERFTEST, [&server, &client]) {
            let reported = ended.stdout.contains(" 4096 ") || *program == "ib_read_lat";
            assert!(reported, "{program}: {ended:?}");
        }
    }
    // A connection for parameters and one for the measurement.
    assert_eq!(count(&capture.packets(), MPA_REQUEST), 2 * programs.len());
}

/// Visits of the longest connection by the program and by the helper.
fn visits_of(ended: &Ended) -> (u64, u64) {
    let by = |line: &str, who: &str| {
        let text = line.split(&format!("by {who} ")).nth(1).unwrap_or("0 in 0 visits");
        text.split_whitespace().skip_while(|field| *field != "in").nth(1).unwrap().parse().unwrap()
    };
    let lines = ended.stderr.lines().filter(|line| line.contains("statistics: "));
    let visits = lines.map(|line| (by(line, "the program"), by(line, "the helper")));
    visits.max_by_key(|(program, helper)| program + helper).unwrap_or_else(|| panic!("{ended:?}"))
}

/// A program that polls moves its bytes; the helper moves those of a program
/// that looks at its memory, or sleeps.
#[test]
fn root_with_adaptive_progress_the_polling_side_moves_the_bytes() {
    let network = Network::new();
    let settings = [("CLEARSTREAM_VERBS_PROGRESS", "adaptive"), ("CLEARSTREAM_VERBS_STATISTICS", "1")];
    let measured = |program: &str| {
        let server = format!("{program} -R -n 3000 -s 64");
        let client = format!("{server} {SERVER}");
        pair(&network, &settings, PORT_PERFTEST, [&server, &client]).map(|ended| visits_of(&ended))
    };
    for (program, helper) in measured("ib_send_lat") {
        // A share remains where the scheduler takes the core of the program.
        assert!(helper < program / 4, "{program} visits by the program, {helper} by the helper");
    }
    // The server of ib_read_lat sleeps: its Reads are served by the helper.
    let [(program, helper), _] = measured("ib_read_lat");
    assert!(helper > 2000 && program < 100, "{program} visits by the program, {helper} by the helper");
}

#[test]
fn root_perftest_runs_with_adaptive_progress() {
    perftest("adaptive", &POLLING);
    // It watches its memory alone.
    perftest("adaptive", &["ib_write_lat"]);
}

#[test]
fn root_perftest_runs_with_offloaded_progress() {
    perftest("offloaded", &POLLING);
    perftest("offloaded", &["ib_write_lat"]);
}

#[test]
fn root_perftest_runs_with_inline_progress() {
    perftest("inline", &POLLING);
}

#[test]
fn root_qperf_measures_sends_reads_atomics_and_writes_with_immediate_data() {
    let network = Network::new();
    // Serves until it is stopped.
    let mut server = Program::start(&network.server, &[], "qperf");
    server.await_listening(&network.server, PORT_QPERF);
    let line = format!(
        "qperf -cm1 -t 1 {SERVER} rc_lat rc_rdma_read_lat rc_rdma_read_bw rc_fetch_add_mr rc_rdma_write_lat rc_rdma_write_bw"
    );
    let text = Program::start(&network.client, &[], &line).succeeds().stdout;
    assert_eq!(text.matches("latency").count(), 3, "{text}");
    assert!(text.contains("bw") && text.contains("msg_rate"), "{text}");
}

/// What the connection manager does not join ends with the reason.
#[test]
fn root_queue_pairs_joined_by_the_program_are_rejected_with_the_reason() {
    let network = Network::new();
    let mut server = Program::start(&network.server, &[], "ib_send_lat -n 10");
    server.await_listening(&network.server, PORT_PERFTEST);
    let ended = Program::start(&network.client, &[], &format!("ib_send_lat -n 10 {SERVER}")).end();
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("use the connection manager (rdma_cm; perftest: -R"), "{ended:?}");
}
