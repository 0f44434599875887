//! The connections by which this host is controlled.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use clearstream_host::HostRoot;

/// Number of the TCP state "established", and of "listen" (tcp_states.h).
const ESTABLISHED: &str = "01";
const LISTEN: &str = "0A";
/// Where sshd listens unless specified otherwise (RFC 4250, section 4.1).
const SSH_PORT: u16 = 22;

/// A connection that must not be lost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Controlling {
    /// Kind of connection: `the ssh session`.
    pub what: &'static str,
    /// Address of the peer.
    pub peer: IpAddr,
    /// Local address.
    pub local: IpAddr,
}

/// The connection that `SSH_CONNECTION` names (`CLIENT PORT SERVER PORT`,
/// ssh(1)); where it is not set, as under sudo(8), every established session of
/// an ssh server of this network namespace. Loopback is left out.
pub fn controlling(root: &HostRoot, ssh_connection: Option<&str>) -> Vec<Controlling> {
    if let Some(named) = ssh_connection.and_then(named) {
        return vec![named];
    }
    let sockets = sockets(root);
    let ports = server_ports(root, &sockets);
    let found: BTreeSet<Controlling> = sockets
        .into_iter()
        .filter(|socket| socket.is_established && ports.contains(&socket.local.1))
        .map(|socket| Controlling { what: "an ssh session", peer: socket.peer.0, local: socket.local.0 })
        .filter(|session| !session.peer.is_loopback())
        .collect();
    found.into_iter().collect()
}

/// Established connections of this process: those of an agent that its
/// controller has reached over the network. Loopback is left out.
pub fn of_this_process(root: &HostRoot) -> Vec<Controlling> {
    let own = inodes(root, "self");
    let found: BTreeSet<Controlling> = sockets(root)
        .into_iter()
        .filter(|socket| socket.is_established && own.contains(&socket.inode))
        .map(|socket| Controlling {
            what: "a connection of this agent",
            peer: socket.peer.0,
            local: socket.local.0,
        })
        .filter(|session| !session.peer.is_loopback())
        .collect();
    found.into_iter().collect()
}

/// Every TCP socket of this network namespace.
fn sockets(root: &HostRoot) -> Vec<Socket> {
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|file| root.read(&format!("proc/thread-self/net/{file}")).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(socket).collect::<Vec<_>>())
        .collect()
}

/// Inodes of the sockets that a process holds.
fn inodes(root: &HostRoot, process: &str) -> BTreeSet<u64> {
    let descriptors = root.list(&format!("proc/{process}/fd")).unwrap_or_default();
    let inode = |descriptor: &String| {
        let target = root.link_target(&format!("proc/{process}/fd/{descriptor}")).ok()?;
        target.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
    };
    descriptors.iter().filter_map(inode).collect()
}

fn named(text: &str) -> Option<Controlling> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [peer, _, local, _] = fields.as_slice() else { return None };
    // A zone of a link-local address is not part of the address.
    let address =
        |text: &str| text.split('%').next()?.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let session = Controlling { what: "the ssh session", peer: address(peer)?, local: address(local)? };
    (!session.peer.is_loopback()).then_some(session)
}

struct Socket {
    local: (IpAddr, u16),
    peer: (IpAddr, u16),
    is_established: bool,
    is_listening: bool,
    inode: u64,
}

/// A line of `/proc/net/tcp` (Documentation/networking/proc_net_tcp.rst).
fn socket(line: &str) -> Option<Socket> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let state = *fields.get(3)?;
    Some(Socket {
        local: end(fields.get(1)?)?,
        peer: end(fields.get(2)?)?,
        is_established: state == ESTABLISHED,
        is_listening: state == LISTEN,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// `0100007F:0016`: 32-bit words of the address in the host's byte order, the port
/// as a number.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let u32_at = |at: usize| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok();
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(u32_at(0)?.to_ne_bytes()).into(),
        32 => {
            let mut octets = [0; 16];
            for (at, part) in octets.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *part = u32_at(at)?.to_ne_bytes();
            }
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    Some((address.to_canonical(), port))
}

/// Port 22, and those on which a process called sshd listens.
fn server_ports(root: &HostRoot, sockets: &[Socket]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::from([SSH_PORT]);
    let listening: Vec<&Socket> = sockets.iter().filter(|socket| socket.is_listening).collect();
    for process in root.list("proc").unwrap_or_default() {
        if !process.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let name = root.read(&format!("proc/{process}/comm")).unwrap_or_default();
        if name.trim() != "sshd" {
            continue;
        }
        let held = inodes(root, &process);
        ports.extend(
            listening.iter().filter(|socket| held.contains(&socket.inode)).map(|socket| socket.local.1),
        );
    }
    ports
}
