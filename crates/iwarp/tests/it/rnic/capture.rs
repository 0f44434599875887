//! Every operation on the wire, decoded by tshark.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use clearstream_iwarp::verbs::{AcceptOptions, AsyncEvent, ConnectOptions, SendOptions};
use rustix::process::{Pid, Signal, kill_process};

use crate::rnic::{
    operations::all,
    processes::{in_a_namespace, ip},
    sides::{Side, inline, pair, until},
};

/// Private data of the last connection.
const LAST: &[u8] = b"this is the last connection of the capture";

#[test]
fn root_tshark_reads_every_operation_off_the_wire() {
    let status = in_a_namespace("captured").status().unwrap();
    assert!(status.success());
}

/// In a network namespace of its own.
pub(crate) fn captured() {
    ip("link set lo up");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lo.pcapng");
    let mut dumpcap = Command::new("dumpcap")
        .args(["-q", "-B", "64", "-i", "lo", "-w"])
        .arg(&file)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(dumpcap.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("File:")), "the capture begins");

    // Without markers: with them tshark loses synchronisation as soon as a
    // packet does not end with an FPDU. They are compared packet by packet
    // elsewhere.
    for (revision, peer_to_peer) in [(1, false), (2, false), (2, true)] {
        let connect = ConnectOptions { revision, peer_to_peer, ..ConnectOptions::default() };
        let (left, right) = pair(&inline(), &connect, &AcceptOptions::default());
        all(&left, &right);
        terminate(&left, &right);
    }
    let connect = ConnectOptions { private_data: LAST.to_vec(), ..ConnectOptions::default() };
    pair(&inline(), &connect, &AcceptOptions::default());
    until("the capture is complete", || {
        let bytes = fs::read(&file).unwrap();
        bytes.windows(LAST.len()).any(|window| window == LAST)
    });
    kill_process(Pid::from_child(&dumpcap), Signal::INT).unwrap();
    dumpcap.wait().unwrap();

    let read = tshark(&file, &["-V"]);
    for wrong in ["Bad CRC32", "Malformed", "segment not captured"] {
        let context = read.find(wrong).map(|at| &read[at.saturating_sub(2000)..at + 200]);
        assert_eq!(context, None, "{wrong}");
    }
    assert!(read.matches("Good CRC32").count() > 150, "{}", read.matches("Good CRC32").count());
    let opcodes = tshark(&file, &["-T", "fields", "-e", "iwarp_rdma.opcode", "-Y", "iwarp_rdma"]);
    let opcodes: BTreeSet<_> =
        opcodes.split([',', '\n']).map(str::trim).filter(|opcode| !opcode.is_empty()).collect();
    let expected: Vec<_> = (0..12).map(|opcode| format!("{opcode:#04x}")).collect();
    let missing: Vec<_> = expected.iter().filter(|opcode| !opcodes.contains(opcode.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} of {opcodes:?}");
}

/// Sends a message for which no receive was posted.
fn terminate(left: &Side, right: &Side) {
    left.queue_pair.send(1, &b"nobody waits"[..], SendOptions::default()).unwrap();
    until("the stream is terminated", || {
        right.completions.progress();
        left.completions.progress();
        let event = left.rnic.events().next(Some(Duration::ZERO));
        matches!(event, Some(AsyncEvent::TerminateReceived { .. }))
    });
}

fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .arg("-r")
        .arg(file)
        .args(["--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
