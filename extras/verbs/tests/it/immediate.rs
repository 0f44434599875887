//! Sends and Writes with immediate data, between ends of this library and towards others.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use crate::common::{Network, Program, SERVER, c};

const LIBRARIES: [&str; 3] = ["-libverbs", "-lrdmacm", "-lpthread"];
/// Port of a peer of another make.
const PORT: u16 = 7334;

/// With a queue of the queue pair's own, with a shared one, and with receives that are posted when the requests have come.
#[test]
fn root_requests_with_immediate_data_take_one_receive_and_complete_once() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/immediate.c"), &LIBRARIES);
    for mode in ["adaptive", "inline", "offloaded"] {
        for (method, receives) in
            [("poll", "own"), ("sleep", "own"), ("poll", "shared"), ("sleep", "shared"), ("poll", "late")]
        {
            let line = format!("{} {SERVER} {method} {receives}", program.path.display());
            let settings = [("CLEARSTREAM_VERBS_PROGRESS", mode)];
            let ended = Program::start(&network.server, &settings, &line).succeeds();
            assert_eq!(ended.stdout, "immediate\n", "{mode}, {method}, {receives}: {ended:?}");
        }
    }
}

/// A responder as siw, which returns the reserved bits of the Request.
fn reply(listener: &TcpListener) -> TcpStream {
    let (mut peer, _) = listener.accept().unwrap();
    let mut request = [0; 24];
    peer.read_exact(&mut request).unwrap();
    assert_eq!(request[16..18], [0x1a, 2]);
    request[..16].copy_from_slice(b"MPA ID Rep Frame");
    // Without peer-to-peer setup, as siw answers (RFC 6581, section 9.2).
    (request[20], request[22]) = (0, 0);
    peer.write_all(&request).unwrap();
    peer
}

#[test]
fn root_a_peer_that_does_not_offer_immediate_data_gets_none() {
    let network = Network::new();
    let program = c::compile(include_str!("../c/immediate.c"), &LIBRARIES);
    let line = format!("{} {SERVER} refused {PORT}", program.path.display());
    let listener = network.server.run(|| TcpListener::bind((SERVER, PORT)).unwrap());
    for mode in ["adaptive", "inline", "offloaded"] {
        let client = Program::start(&network.client, &[("CLEARSTREAM_VERBS_PROGRESS", mode)], &line);
        let mut peer = reply(&listener);
        let stream = thread::spawn(move || {
            let mut bytes = Vec::new();
            peer.read_to_end(&mut bytes).unwrap();
            bytes
        });
        let ended = client.succeeds();
        assert_eq!(ended.stdout, "immediate\n", "{mode}: {ended:?}");
        assert_eq!(
            ended.stderr.matches("immediate data to a peer other than ClearStream").count(),
            1,
            "{ended:?}"
        );
        // The two Writes before what was refused, without bytes: length, tagged header, no CRC.
        assert_eq!(stream.join().unwrap().len(), 2 * (2 + 14 + 4), "{mode}");
    }
}
