//! What controllers may do: the tables of SECURITY.md against the calls that are
//! served and the sockets that listen, a hostile paired controller against a daemon that
//! runs as root, and strangers against what an agent opens for RDMA.

use crate::common;
mod hostile;
mod listeners;
pub(crate) mod requests;
mod world;

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::atomic::AtomicBool,
    time::Duration,
};

use clearstream::{agent, endpoints::agent_command};
use clearstream_control::{Peer, PeerError, encoding, spawn};
use clearstream_rdma::calls::Serve;
use clearstream_schema::{
    TimeSpan,
    control::{Cookie, FailureKind},
    rdma::{RdmaConfig, RdmaOperation},
    scope::Right,
};
use requests::samples;

/// Every call that an agent serves and the right that it needs; none is there twice.
fn served() -> BTreeMap<&'static str, Right> {
    let mut found = BTreeMap::new();
    for (name, right) in agent::services().calls() {
        assert!(found.insert(name, right).is_none(), "{name} is registered twice");
    }
    assert!(found.len() > 20, "{found:?}");
    found
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
fn the_table_of_security_md_has_every_call_with_its_scope() {
    let (served, table) = (served(), table());
    let rights: BTreeMap<&str, String> =
        served.iter().map(|(name, right)| (*name, right.to_string())).collect();
    let written: BTreeMap<&str, String> =
        table.iter().map(|(name, scope)| (name.as_str(), scope.clone())).collect();
    assert_eq!(written, rights, "SECURITY.md and what an agent serves");
    let sampled: BTreeMap<&str, Right> = samples().iter().map(|sample| (sample.name, sample.needs)).collect();
    assert_eq!(sampled, served, "the hostile controller of the test sends every call");
    // What can change the host, by name, so that a mistake in both is seen too.
    let change: Vec<&str> =
        table.iter().filter(|(_, scope)| *scope == "change").map(|(name, _)| name.as_str()).collect();
    assert_eq!(change, ["plan apply", "plan apply-pending", "plan keep", "plan recover", "plan revert"]);
}

#[test]
fn pairings_are_listed_with_their_scope() {
    let folder = tempfile::tempdir().unwrap();
    let pair = |arguments: &[&str]| {
        common::run(&[&["pair"], arguments, &["--identity", folder.path().to_str().unwrap()]].concat())
    };
    pair(&["create", "observer"]).ok();
    pair(&["create", "operator", "--scope", "measure,change"]).ok();
    pair(&["create", "guest", "--scope", "change"]).refused_by_usage("write `measure` or `measure,change`");
    let shown = pair(&["list"]);
    let mut rows: Vec<Vec<&str>> =
        shown.ok().lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    rows.sort_unstable();
    assert_eq!(rows, [["observer", "measure"], ["operator", "measure,change"]], "{}", shown.stdout);
    let document = pair(&["list", "--json"]).json();
    let listed: BTreeMap<&str, String> = document["pairings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|client| (client["name"].as_str().unwrap(), client["scope"].to_string()))
        .collect();
    assert_eq!(listed["observer"], r#"["measure"]"#);
    assert_eq!(listed["operator"], r#"["measure","change"]"#);
}

/// An agent on standard streams that is the peer of RDMA tests.
fn rdma_server(cookie: [u8; 16]) -> (Peer, SocketAddr) {
    let mut command = agent_command().unwrap();
    // The test program is not the program.
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    command = std::process::Command::new(common::program());
    command.args(arguments);
    let mut agent = spawn(command, "peer").unwrap();
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let cookie = Some(Cookie(encoding::hex(&cookie)));
    let listening = agent.call(&Serve { address, port: None, cookie, peer: Some(address) }).unwrap();
    (agent, listening.address)
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
const VERBS: u8 = 3;

/// A connection request of a measurement: name, version, purpose, cookie, index of
/// the queue pair.
fn opening(cookie: [u8; 16], purpose: u8) -> Vec<u8> {
    request_frame(&[b"clearstream rdma".as_slice(), &[1, purpose], &cookie, &[0, 0]].concat())
}

/// A stranger gets no byte, whatever it sends, and the connection ends.
fn is_dropped(mut socket: TcpStream, bytes: &[u8]) {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // It may be gone before it is written to.
    let _ = socket.write_all(bytes);
    let mut received = Vec::new();
    match socket.read_to_end(&mut received) {
        Ok(_) => assert!(received.is_empty(), "{received:?}"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

#[test]
fn strangers_are_dropped_by_the_server_of_an_agent_and_disturb_no_test() {
    let cookie = *b"0123456789abcdef";
    let (agent, address) = rdma_server(cookie);
    let strange = [
        // As rping, as clearstream with another cookie, as another program.
        request_frame(&[]),
        opening([7; 16], CONTROL),
        opening([7; 16], DATA),
        opening([7; 16], PING),
        opening([7; 16], VERBS),
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
    let (mut agent, _) = rdma_server([1; 16]);
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let hex = |text: &str| Some(Cookie(text.to_owned()));
    for (cookie, peer, part) in [
        (None, Some(address), "without a cookie"),
        (hex(""), Some(address), "16 bytes"),
        (hex("00"), Some(address), "16 bytes"),
        (hex("no hexadecimal"), Some(address), "16 bytes"),
        (hex(&"0".repeat(32)), None, "no address"),
    ] {
        let error = agent.call(&Serve { address, port: None, cookie, peer }).unwrap_err();
        let PeerError::Refused { failure, .. } = error else { panic!("{error}") };
        assert!(failure.kind == FailureKind::Invalid && failure.message.contains(part), "{failure}");
    }
    agent.shutdown();
}
