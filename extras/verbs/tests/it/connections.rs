//! The connection manager as programs find it: identifiers in every state, options, ports, limits, and peers that are slow,
//! silent, or speak first.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use crate::common::{Network, Program, SERVER, c};

/// Port of `cm.c`.
const PORT: u16 = 7333;
const LIBRARIES: [&str; 4] = ["-libverbs", "-lrdmacm", "-lpthread", "-ldl"];

/// Runs cases of `cm.c` on a host, by IPv4, by IPv6, and by an IPv6 address of the link alone; each writes its name.
fn run(cases: &[&str], addresses: &[&str], mode: &str) {
    let network = Network::new();
    let program = c::compile(include_str!("../c/cm.c"), &LIBRARIES);
    for address in addresses {
        for case in cases {
            let line = format!("{} {address} {case}", program.path.display());
            let settings = [("CLEARSTREAM_VERBS_PROGRESS", mode)];
            let ended = Program::start(&network.server, &settings, &line).succeeds();
            assert!(ended.stdout.ends_with(&format!("{case}\n")), "{address} {case}: {ended:?}");
        }
    }
}

/// The address of the server's link, with its interface.
const LINK: &str = "fe80::77%cs-verbs-a";

#[test]
fn root_identifiers_options_ports_reads_and_limits_are_those_of_the_kernel() {
    run(&["states", "options", "port", "reads", "limits", "backlog"], &[SERVER, "fd77::1"], "adaptive");
}

#[test]
fn root_an_address_of_the_link_keeps_its_interface() {
    let network = Network::new();
    network.server.tool("ip address add fe80::77/64 dev cs-verbs-a nodad");
    network.client.tool("ip address add fe80::78/64 dev cs-verbs-b nodad");
    let mut server = Program::start(&network.server, &[], &format!("rping -s -V -C 3 -a {LINK}"));
    server.await_listening(&network.server, 7174);
    Program::start(&network.client, &[], "rping -c -V -C 3 -a fe80::77%cs-verbs-b").succeeds();
    server.succeeds();
    let program = c::compile(include_str!("../c/cm.c"), &LIBRARIES);
    for case in ["options", "port"] {
        let line = format!("{} {LINK} {case}", program.path.display());
        Program::start(&network.server, &[], &line).succeeds();
    }
}

/// Functions that no version of this library knows, of whichever version the installed one is.
#[test]
fn root_functions_of_the_real_library_refuse_its_objects() {
    run(&["refuse"], &[SERVER], "adaptive");
}

/// Programs wait for the events of a setup by poll(2), where the library cannot see it.
#[test]
fn root_a_program_that_waits_by_poll_is_connected_in_each_mode() {
    for mode in ["adaptive", "inline", "offloaded"] {
        run(&["connects"], &[SERVER], mode);
    }
}

/// Longer than a silent peer has.
#[test]
fn root_a_server_may_take_its_time_to_accept() {
    run(&["slow"], &[SERVER], "adaptive");
}

/// Accepting is paused, not tried again and again.
#[test]
fn root_a_listener_without_descriptors_waits_and_says_so() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/cm.c"), &LIBRARIES);
    let line = format!("{} {SERVER} descriptors", program.path.display());
    let ended = Program::start(&network.server, &[], &line).succeeds();
    assert!(ended.stderr.contains("connections wait to be accepted: Too many open files"), "{ended:?}");
}

/// As long as a thread has its event: one that takes seconds, which is said.
#[test]
fn root_the_destruction_of_an_identifier_waits_for_its_events() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/cm.c"), &LIBRARIES);
    let line = format!("{} {SERVER} held", program.path.display());
    let ended = Program::start(&network.server, &[], &line).succeeds();
    assert!(ended.stderr.contains("rdma_destroy_id waits for events"), "{ended:?}");
}

/// An initiator without a peer-to-peer setup, as siw's are, that waits for the responder's first message: revision 2, CRC
/// off, IRD and ORD of 1 (RFC 6581, section 9).
#[test]
fn root_a_responder_that_speaks_first_is_heard_by_an_initiator_that_waits() {
    const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x01\x00\x01";
    let network = Network::new();
    let program = c::compile(include_str!("../c/cm.c"), &LIBRARIES);
    let line = format!("{} {SERVER} first", program.path.display());
    for mode in ["adaptive", "offloaded"] {
        let mut server = Program::start(&network.server, &[("CLEARSTREAM_VERBS_PROGRESS", mode)], &line);
        server.await_listening(&network.server, PORT);
        let mut peer = network.client.run(|| TcpStream::connect((SERVER, PORT)).unwrap());
        peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        peer.write_all(REQUEST).unwrap();
        let mut reply = [0; 24];
        peer.read_exact(&mut reply).unwrap();
        assert_eq!(&reply[..16], b"MPA ID Rep Frame");
        // Length, untagged header of 18 bytes, payload, padding, and a CRC that is off.
        let mut message = [0; 2 + 18 + 12 + 4];
        peer.read_exact(&mut message).unwrap();
        assert_eq!(&message[20..32], b"speaks first");
        drop(peer);
        let ended = server.succeeds();
        assert_eq!(ended.stderr.matches("so that this side sends first").count(), 1, "{ended:?}");
    }
}
