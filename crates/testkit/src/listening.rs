//! Ports that nobody has, and whether a program listens on one, asked of the kernel: a connection would be taken for a
//! client.

use std::net::{Ipv4Addr, TcpListener};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP_FLAGS: u16 = 0x301;
/// State LISTEN of TCP.
const LISTEN: u32 = 1 << 10;
/// Bytes of `struct nlmsghdr` and `struct inet_diag_req_v2`, and where the local port is in them.
const REQUEST: usize = 16 + 56;
const PORT: usize = 16 + 8;

/// TCP ports of loopback that nobody had just now, each another one.
pub fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let held = [(); COUNT].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}

/// One of these.
pub fn free_port() -> u16 {
    let [port] = free_ports();
    port
}

/// Whether a TCP socket of the thread's network namespace listens on one of the ports (sock_diag(7)). The table in
/// `/proc/net` costs milliseconds: the kernel goes through the connections of all namespaces for it.
pub fn is_listening(ports: &[u16]) -> bool {
    ports.iter().any(|port| [AddressFamily::INET, AddressFamily::INET6].iter().any(|of| listens(*of, *port)))
}

fn listens(family: AddressFamily, port: u16) -> bool {
    const TCP: u8 = 6;
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        Some(netlink::SOCK_DIAG),
    )
    .unwrap();
    let mut request = Vec::with_capacity(REQUEST);
    request.extend_from_slice(&(REQUEST as u32).to_ne_bytes());
    request.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&DUMP_FLAGS.to_ne_bytes());
    // Sequence and port: the kernel's answer has them again.
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[family.as_raw() as u8, TCP, 0, 0]);
    request.extend_from_slice(&LISTEN.to_ne_bytes());
    request.resize(REQUEST, 0);
    request[PORT..PORT + 2].copy_from_slice(&port.to_be_bytes());
    send(&socket, &request, SendFlags::empty()).unwrap();
    let mut reply = vec![0; 32 << 10];
    let (length, _) = recv(&socket, &mut reply, RecvFlags::empty()).unwrap();
    assert!(length >= 16, "a reply of {length} bytes");
    match u16::from_ne_bytes([reply[4], reply[5]]) {
        BY_FAMILY => true,
        DONE => false,
        kind => panic!("kind {kind} (kernel option INET_TCP_DIAG)"),
    }
}

#[test]
fn a_port_is_listened_on_once_it_is_and_no_longer_when_it_is_connected_or_closed() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let listener = std::net::TcpListener::bind(address).unwrap();
        let at = listener.local_addr().unwrap();
        let connection = std::net::TcpStream::connect(at).unwrap();
        assert!(is_listening(&[at.port()]) && is_listening(&[1, at.port()]) && !is_listening(&[]));
        assert!(!is_listening(&[connection.local_addr().unwrap().port()]));
        drop(listener);
        assert!(!is_listening(&[at.port()]));
    }
}
