//! What controllers may do: the table of SECURITY.md against the requests that
//! there are, a hostile paired controller against a daemon that runs as root, and
//! strangers against what an agent opens for RDMA.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;
mod rights {
    pub(crate) mod hostile;
    pub(crate) mod requests;
    pub(crate) mod world;
}

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::AtomicBool,
    time::Duration,
};

use clearstream::endpoints::agent_command;
use clearstream_control::{Peer, PeerError, encoding, spawn};
use clearstream_schema::{
    TimeSpan,
    control::{Cookie, FailureKind, Reply, Request},
    plan::PlanRequest,
    rdma::{RdmaConfig, RdmaOperation},
    scope::Right,
    wire::RouteRequest,
};
use rights::requests::samples;
use schemars::{JsonSchema, schema_for};

/// Names of an enum's variants as they are on the wire.
fn variants<T: JsonSchema>() -> BTreeSet<String> {
    let schema = schema_for!(T);
    let mut found = BTreeSet::new();
    for variant in schema.as_value()["oneOf"].as_array().unwrap() {
        let names = variant["enum"].as_array().into_iter().flatten().chain(variant.get("const"));
        found.extend(names.map(|name| name.as_str().unwrap().to_owned()));
        found.extend(variant["properties"].as_object().into_iter().flat_map(|fields| fields.keys().cloned()));
    }
    assert!(!found.is_empty(), "the schema of the enum was not understood");
    found
}

/// Every request of the protocol, by the name that the table uses.
fn protocol() -> BTreeSet<String> {
    let mut names = variants::<Request>();
    assert!(names.remove("plan") && names.remove("route"));
    names.extend(variants::<PlanRequest>().iter().map(|name| format!("plan {name}")));
    names.extend(variants::<RouteRequest>().iter().map(|name| format!("route {name}")));
    names
}

/// Rows of the table of requests in SECURITY.md: name and scope.
fn table() -> BTreeMap<String, String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| request ")).skip(2);
    let mut found = BTreeMap::new();
    for row in rows.take_while(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "four cells: {row}");
        for name in cells[0].split(", ") {
            let name = name.trim_matches('`').to_owned();
            assert!(found.insert(name, cells[1].to_owned()).is_none(), "twice: {row}");
        }
    }
    found
}

#[test]
fn the_table_of_security_md_has_every_request_with_its_scope() {
    let table = table();
    assert_eq!(table.keys().cloned().collect::<BTreeSet<_>>(), protocol());
    let mut sampled = BTreeSet::new();
    for request in samples() {
        let (name, right) = request.needs();
        assert_eq!(table[name], right.to_string(), "{name}");
        sampled.insert(name.to_owned());
    }
    assert_eq!(sampled, protocol(), "the hostile controller of the test sends every request");
    // What can change the host, by name, so that a mistake in both is seen too.
    let change: Vec<&str> =
        table.iter().filter(|(_, scope)| *scope == "change").map(|(name, _)| name.as_str()).collect();
    assert_eq!(change, ["plan apply", "plan apply-pending", "plan keep", "plan recover", "plan revert"]);
    assert_eq!(Right::Change.to_string(), "change");
}

/// An agent on standard streams that is the far end of RDMA tests.
fn far_end(cookie: [u8; 16]) -> (Peer, SocketAddr) {
    let mut command = agent_command().unwrap();
    // The test program is not the program.
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = std::process::Command::new(common::program());
    command.args(arguments);
    let mut agent = spawn(command, "far end").unwrap();
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let cookie = Some(Cookie(encoding::hex(&cookie)));
    match agent.request(Request::RdmaServe { address, cookie, peer: Some(address) }).unwrap() {
        Reply::RdmaListening { address } => (agent, address),
        other => panic!("{other:?}"),
    }
}

/// A connection request of MPA revision 1 (RFC 5044, section 7.1) with CRC.
fn request_frame(private_data: &[u8]) -> Vec<u8> {
    let mut frame = b"MPA ID Req Frame".to_vec();
    frame.extend([0x40, 1]);
    frame.extend(u16::try_from(private_data.len()).unwrap().to_be_bytes());
    frame.extend(private_data);
    frame
}

/// Purposes of a connection in its private data.
const CONTROL: u8 = 0;
const DATA: u8 = 1;
const PING: u8 = 2;

/// A connection request of a measurement: name, version, purpose, cookie, index of
/// the queue pair.
fn opening(cookie: [u8; 16], purpose: u8) -> Vec<u8> {
    request_frame(&[b"clearstream rdma".as_slice(), &[1, purpose], &cookie, &[0, 0]].concat())
}

/// Whatever a stranger sends, he gets no byte and the connection ends.
fn is_dropped(mut socket: TcpStream, bytes: &[u8]) {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // It may be gone before it is written to.
    let _ = socket.write_all(bytes);
    let mut answer = Vec::new();
    match socket.read_to_end(&mut answer) {
        Ok(_) => assert!(answer.is_empty(), "{answer:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn strangers_are_dropped_by_the_far_end_of_an_agent_and_disturb_no_test() {
    let cookie = *b"0123456789abcdef";
    let (agent, address) = far_end(cookie);
    let strange = [
        // As rping, as clearstream with another cookie, as another program.
        request_frame(&[]),
        opening([7; 16], CONTROL),
        opening([7; 16], DATA),
        opening([7; 16], PING),
        request_frame(b"something else"),
        request_frame(&cookie),
    ];
    let config = RdmaConfig {
        duration: TimeSpan::from_seconds(1),
        warm_up: TimeSpan(0),
        verify: true,
        ..RdmaConfig::default()
    };
    let stop = AtomicBool::new(false);
    let summary = std::thread::scope(|scope| {
        let test = scope.spawn(|| {
            clearstream_rdma::measure(address, cookie, RdmaOperation::Send, &config, &stop, &mut |_| {})
        });
        let strangers = scope.spawn(|| {
            for bytes in strange.iter().cycle().take(60) {
                is_dropped(TcpStream::connect(address).unwrap(), bytes);
            }
        });
        strangers.join().unwrap();
        test.join().unwrap()
    });
    let summary = summary.unwrap();
    assert!(summary.complete && summary.results.iter().all(|result| result.verified == Some(true)));
    // The right cookie from another address.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&address.into()).unwrap();
    is_dropped(socket.into(), &opening(cookie, CONTROL));
    agent.shutdown();
}

#[test]
fn nothing_is_opened_for_rdma_without_a_cookie_and_a_peer() {
    let (mut agent, _) = far_end([1; 16]);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let hex = |text: &str| Some(Cookie(text.to_owned()));
    for (cookie, peer, part) in [
        (None, Some(address), "without a cookie"),
        (hex(""), Some(address), "16 bytes"),
        (hex("00"), Some(address), "16 bytes"),
        (hex("no hexadecimal"), Some(address), "16 bytes"),
        (hex(&"0".repeat(32)), None, "no address"),
    ] {
        let error = agent.request(Request::RdmaServe { address, cookie, peer }).unwrap_err();
        let PeerError::Refused { failure, .. } = error else { panic!("{error}") };
        assert!(failure.kind == FailureKind::Invalid && failure.message.contains(part), "{failure}");
    }
    agent.shutdown();
}
