//! What listens: every file that opens a socket for others is in the table of exposure
//! of SECURITY.md.

use std::{collections::BTreeMap, fs, path::Path};

/// Calls by which a socket gets an address or listens.
const OPENING: [&str; 5] =
    ["TcpListener::bind(", "UnixListener::bind", "UdpSocket::bind(", "socket.bind(&", "socket.listen("];

/// Files with such a call, outside of tests, and the row of the table by its beginning;
/// or why there is none, in parentheses.
const LISTENERS: [(&str, &str); 25] = [
    ("clearstream/src/endpoints/address.rs", "(finds the own address, sends nothing)"),
    ("clearstream/src/verbs/route/here.rs", "(finds the own address, sends nothing)"),
    ("control/src/tls/serve.rs", "daemon (`clearstream serve`)"),
    (
        "dashboard/src/lib.rs",
        "`clearstream live --web`, `study run --web`, `serve --web`, `route watch --web`",
    ),
    ("failover/src/flows.rs", "labs"),
    ("flow/src/agent/datagram.rs", "data sockets of a flow"),
    ("flow/src/agent/listen.rs", "data sockets of a flow"),
    ("flow/src/agent/open.rs", "data sockets of a flow"),
    ("iperf3/src/server/listener.rs", "`clearstream serve --compat iperf3`"),
    ("iperf3/src/server/streams.rs", "`clearstream serve --compat iperf3`"),
    ("iwarp/src/rnic/connect.rs", "(connects)"),
    ("iwarp/src/rnic/listener.rs", "RDMA listener"),
    ("lab/src/keeper.rs", "labs"),
    ("messages/src/connection/socket.rs", "data sockets of a flow, message, overlap or explore test"),
    ("netlink/src/changes.rs", "(netlink: what the kernel tells of changes)"),
    ("plan/src/families/sysctl/connection.rs", "(loopback, for one connection of its own)"),
    ("plan/src/host.rs", "(finds the own address, sends nothing)"),
    ("probe/src/channel.rs", "(sends probes)"),
    ("probe/src/responder.rs", "data sockets of a flow, message, overlap or explore test, responder sockets"),
    ("prove/src/agent/open.rs", "(connects)"),
    (
        "prove/src/agent/respond.rs",
        "data sockets of a flow, message, overlap or explore test, responder sockets",
    ),
    ("sys/src/timestamp.rs", "(loopback, a socket of its own)"),
    ("watch/src/control.rs", "control socket of `route watch`"),
    ("watch/src/ports.rs", "`clearstream route watch`: probes"),
    ("watch/src/tcp.rs", "`clearstream route watch`: probes"),
];

#[test]
fn every_listener_is_in_the_table_of_exposure() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(crates.join("../SECURITY.md")).unwrap();
    let table: Vec<&str> = page.lines().skip_while(|line| !line.starts_with("| what ")).skip(2).collect();
    let rows: Vec<&str> = table.into_iter().take_while(|line| line.starts_with("| ")).collect();
    let known: BTreeMap<&str, &str> = LISTENERS.into_iter().collect();
    let mut found = Vec::new();
    // The testkit is linked into no program.
    let members = fs::read_dir(&crates).unwrap().flatten().filter(|member| member.file_name() != "testkit");
    for member in members {
        files(&crates, &member.path().join("src"), &mut found);
    }
    found.sort();
    assert_eq!(found, known.keys().copied().collect::<Vec<_>>(), "files that open sockets");
    for (file, row) in known.iter().filter(|(_, row)| !row.starts_with('(')) {
        let begin = format!("| {row}");
        assert!(rows.iter().any(|line| line.starts_with(&begin)), "{file}: no row begins with {begin}");
    }
}

/// Files below a folder that open sockets, relative to the crates.
fn files(crates: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files(crates, &path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = fs::read_to_string(&path).unwrap();
            let code = text.split("\nmod tests {").next().unwrap();
            if OPENING.iter().any(|call| code.contains(call)) {
                found.push(path.strip_prefix(crates).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
}
