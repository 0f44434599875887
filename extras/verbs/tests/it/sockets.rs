//! Sockets programs below librspreload: what goes by RDMA, what by TCP, and what the report says.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    process::Command,
    thread,
    time::Duration,
};

use crate::common::{self, Capture, MPA_REQUEST, Network, Program, SERVER, c, count};

/// Port of the program.
const PORT: u16 = 7200;
/// An initiator gives up when its peer's TCP acknowledged nothing for five seconds.
const SILENCE: Duration = Duration::from_secs(8);

/// `LD_PRELOAD` of librspreload, and of the library behind it.
fn preload() -> String {
    let found = Command::new("cc").arg("-print-file-name=rsocket/librspreload.so").output().unwrap();
    format!("{}:{}", String::from_utf8(found.stdout).unwrap().trim(), common::library().display())
}

/// librspreload takes the socket calls of the process, but not those of the
/// library.
#[test]
fn root_a_sockets_program_runs_over_rsockets() {
    let network = Network::new();
    let capture = Capture::start(&network.client);
    let program = c::compile(include_str!("../c/sockets.c"), &[]);
    let path = program.path.to_str().unwrap();
    let preload = preload();
    let settings = [("LD_PRELOAD", &preload[..]), ("CLEARSTREAM_VERBS_SOCKETS", "1")];
    // rsocket of rdma-core 44 rejects SOCK_CLOEXEC: these connections are of TCP.
    for (option, by_rdma, by_tcp) in [("", 1, 0), ("cloexec", 0, 1)] {
        let line = format!("{path} serve {SERVER} {option}");
        let mut server = Program::start(&network.server, &settings, &line);
        server.await_listening(&network.server, 7200);
        let line = format!("{path} connect {SERVER} {option}");
        let client = Program::start(&network.client, &settings, &line).succeeds();
        assert!(client.stdout.contains("echo 19\n"), "{client:?}");
        let server = server.succeeds();
        let expected = format!("sockets: connections by RDMA: {by_rdma}, by TCP: {by_tcp}");
        for ended in [&client, &server] {
            assert!(ended.stderr.contains(&expected), "{ended:?}");
        }
        let reason = format!("1 by TCP with {SERVER}:7200: its socket has SOCK_CLOEXEC");
        assert_eq!(client.stderr.contains(&reason), by_tcp == 1, "{client:?}");
        let reason = "by TCP with 10.77.0.2:";
        assert_eq!(server.stderr.contains(reason), by_tcp == 1, "{server:?}");
    }
    let packets = capture.packets();
    assert_eq!(count(&packets, MPA_REQUEST), 1);
    assert!(count(&packets, b"echo 19") >= 4);
}

/// What a program of plain sockets does with a request for RDMA.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plain {
    /// It takes it for its own protocol.
    Echoes,
    Closes,
    /// Its host is not heard of for a while.
    Silent,
}

/// Serves one client as the program does; returns the number of requests for RDMA before it.
fn serve(network: &Network, listener: &TcpListener, plain: Plain) -> u32 {
    let mut requests = 0;
    loop {
        let (mut peer, _) = listener.accept().unwrap();
        let mut first = [0; MPA_REQUEST.len()];
        peer.read_exact(&mut first).unwrap();
        if first != MPA_REQUEST {
            let mut back = peer.try_clone().unwrap();
            back.write_all(&first).unwrap();
            std::io::copy(&mut peer, &mut back).unwrap();
            return requests;
        }
        requests += 1;
        match plain {
            Plain::Echoes => echo_and_wait(peer, &first),
            Plain::Closes => drop(peer),
            Plain::Silent => {
                // What comes is for no address of this host, and is dropped.
                network.server.tool(&format!("ip address del {SERVER}/24 dev cs-verbs-a"));
                thread::sleep(SILENCE);
                network.server.tool(&format!("ip address add {SERVER}/24 dev cs-verbs-a"));
            }
        }
    }
}

fn echo_and_wait(mut peer: TcpStream, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
    peer.write_all(&[0; 4]).unwrap();
    let _ = peer.read_to_end(&mut Vec::new());
    let _ = peer.shutdown(Shutdown::Both);
}

/// The program connects by TCP then, as librspreload has it, and the report says why.
#[test]
fn root_attempts_by_rdma_that_failed_are_reported_with_the_reason() {
    let network = Network::new();
    // The neighbour's address is known also while it does not answer.
    let links = network.server.tool("ip -br link show dev cs-verbs-a");
    let address = links.split_whitespace().find(|field| field.matches(':').count() == 5).unwrap();
    network
        .client
        .tool(&format!("ip neighbour replace {SERVER} lladdr {address} dev cs-verbs-b nud permanent"));
    let program = c::compile(include_str!("../c/sockets.c"), &[]);
    let preload = preload();
    let settings = [("LD_PRELOAD", &preload[..]), ("CLEARSTREAM_VERBS_SOCKETS", "1")];
    let listener = network.server.run(|| TcpListener::bind(("0.0.0.0", PORT)).unwrap());
    for (plain, attempts, reason) in [
        (Plain::Echoes, 1, "its program may use plain sockets"),
        // With both revisions of the setup.
        (Plain::Closes, 2, "closed without a reply: its program may use plain sockets"),
        (Plain::Silent, 1, "no reply in time"),
    ] {
        let line = format!("{} connect {SERVER}", program.path.display());
        let client = Program::start_alone(&network.client, &settings, &line);
        let served = thread::scope(|scope| {
            let server = scope.spawn(|| serve(&network, &listener, plain));
            let client = client.succeeds();
            assert!(client.stdout.contains("echo 19\n"), "{plain:?}: {client:?}");
            let lines: Vec<&str> = client
                .stderr
                .lines()
                .filter_map(|line| line.split_once("sockets: "))
                .map(|two| two.1)
                .collect();
            let [all, by_tcp, failed] = lines[..] else { panic!("{plain:?}: {client:?}") };
            assert_eq!(all, "connections by RDMA: 0, by TCP: 1, failed attempts by RDMA: 1", "{plain:?}");
            assert_eq!(
                by_tcp,
                format!("1 by TCP with {SERVER}:{PORT}: an attempt by RDMA failed"),
                "{plain:?}"
            );
            let expected = format!("1 failed attempt by RDMA with {SERVER}:{PORT}, replaced by TCP: ");
            let why = failed.strip_prefix(&expected).unwrap_or_else(|| panic!("{plain:?}: {client:?}"));
            assert!(why.ends_with(reason), "{plain:?}: {why}");
            server.join().unwrap()
        });
        assert_eq!(served, attempts, "{plain:?}");
    }
}
