//! TCP sockets of a network namespace with their state (sock_diag(7), `NETLINK_SOCK_DIAG`): what `ss -tin`
//! shows. A dump is read-only and costs some microseconds for each socket; no packet is sent.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use clearstream_schema::{
    connections::{BbrState, TcpSocket},
    flow::SocketMemory,
};
use clearstream_sys::tcp_info;
use netlink_sys::{Socket, SocketAddr as NetlinkAddress, protocols::NETLINK_SOCK_DIAG};

use crate::{NetlinkError, Refusal, ethtool::message::attributes};

/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP_FLAGS: u16 = 0x301;
/// `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Bytes of `struct nlmsghdr` and `struct inet_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
/// `INET_DIAG_*` attributes (linux/inet_diag.h).
const INFO: u16 = 2;
const VEGAS_INFO: u16 = 3;
const CONGESTION: u16 = 4;
const TRAFFIC_CLASS: u16 = 6;
const SOCKET_MEMORY: u16 = 7;
const BBR_INFO: u16 = 16;
const CLASS_ID: u16 = 17;
const CGROUP_ID: u16 = 21;
/// Attributes to return, one bit for each; `VEGAS_INFO` stands for those of any congestion control and
/// `TRAFFIC_CLASS` for the class, too.
const WANTED: u8 = bit(INFO) | bit(VEGAS_INFO) | bit(CONGESTION) | bit(TRAFFIC_CLASS) | bit(SOCKET_MEMORY);
/// States that carry data: all but SYN_RECV (3), TIME_WAIT (6), CLOSE (7), LISTEN (10) and NEW_SYN_RECV (12).
const STATES: u32 = 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11;
/// The kernel fills at most 32 KiB for one read of a dump (`netlink_dump`).
const BUFFER_BYTES: usize = 64 << 10;
/// `AF_INET` and `AF_INET6`.
const IPV4: u8 = 2;
const IPV6: u8 = 10;

const fn bit(attribute: u16) -> u8 {
    1 << (attribute - 1)
}

/// A sock_diag socket in the network namespace of the thread that opened it; it stays in that namespace in
/// any thread.
#[derive(Debug)]
pub struct TcpSockets {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

fn fail(step: &'static str) -> impl Fn(io::Error) -> NetlinkError {
    move |source| NetlinkError::Diagnostics { step, source }
}

impl TcpSockets {
    /// Opens the socket.
    pub fn open() -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG).map_err(fail("open a socket"))?;
        socket.bind_auto().map_err(fail("bind"))?;
        socket.connect(&NetlinkAddress::new(0, 0)).map_err(fail("connect to the kernel"))?;
        Ok(Self { socket, sequence: 0, buffer: Vec::with_capacity(BUFFER_BYTES) })
    }

    /// Passes every socket with a connection to `each`, of IPv4 and IPv6.
    pub fn each(&mut self, mut each: impl FnMut(TcpSocket)) -> Result<(), NetlinkError> {
        [IPV4, IPV6].into_iter().try_for_each(|family| self.dump(family, &mut each))
    }

    fn dump(&mut self, family: u8, each: &mut impl FnMut(TcpSocket)) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request(family, self.sequence), 0).map_err(fail("send"))?;
        loop {
            self.buffer.clear();
            self.socket.recv(&mut self.buffer, 0).map_err(fail("receive"))?;
            if read(&self.buffer, self.sequence, each)? {
                return Ok(());
            }
        }
    }
}

/// `struct inet_diag_req_v2`: family, protocol, attributes, padding, states, and an empty socket identity.
fn request(family: u8, sequence: u32) -> Vec<u8> {
    const TCP: u8 = 6;
    const IDENTITY: usize = 48;
    let mut out = Vec::with_capacity(HEADER + 8 + IDENTITY);
    let length = (HEADER + 8 + IDENTITY) as u32;
    out.extend_from_slice(&length.to_ne_bytes());
    out.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    out.extend_from_slice(&DUMP_FLAGS.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]); // port: the kernel fills it in
    out.extend_from_slice(&[family, TCP, WANTED, 0]);
    out.extend_from_slice(&STATES.to_ne_bytes());
    out.resize(HEADER + 8 + IDENTITY, 0);
    out
}

/// Parses the messages of a datagram; true after the last one of the dump.
fn read(datagram: &[u8], sequence: u32, each: &mut impl FnMut(TcpSocket)) -> Result<bool, NetlinkError> {
    let garbled = || NetlinkError::Garbled("a socket's description ends early".to_owned());
    let mut rest = datagram;
    while let Some(header) = rest.first_chunk::<HEADER>() {
        let [a, b, c, d, e, f, _, _, g, h, i, j, ..] = *header;
        let length = u32::from_ne_bytes([a, b, c, d]) as usize;
        let message = rest.get(..length).filter(|_| length >= HEADER).ok_or_else(garbled)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        if u32::from_ne_bytes([g, h, i, j]) != sequence {
            continue;
        }
        match u16::from_ne_bytes([e, f]) {
            kind @ (DONE | ERROR) => match Refusal::read(message, &[]) {
                Some(Err(source)) => {
                    let action = "list the TCP sockets (kernel option INET_TCP_DIAG)".to_owned();
                    return Err(NetlinkError::Refused { action, source });
                }
                _ if kind == DONE => return Ok(true),
                _ => {}
            },
            BY_FAMILY => each(socket(&message[HEADER..]).ok_or_else(garbled)?),
            _ => {}
        }
    }
    Ok(false)
}

/// A field at an offset of the message.
fn field<const N: usize>(message: &[u8], at: usize) -> Option<[u8; N]> {
    message.get(at..)?.first_chunk().copied()
}

fn u32_at(message: &[u8], at: usize) -> Option<u32> {
    field(message, at).map(u32::from_ne_bytes)
}

/// `struct inet_diag_msg` and its attributes.
fn socket(message: &[u8]) -> Option<TcpSocket> {
    let [family, state, timer, timer_count] = field(message, 0)?;
    let [low, high] = [u32_at(message, 44)?, u32_at(message, 48)?];
    let mut socket = TcpSocket {
        local: end(message, family, 4, 8)?,
        remote: end(message, family, 6, 24)?,
        state,
        timer,
        timer_count,
        cookie: u64::from(high) << 32 | u64::from(low),
        interface_index: u32_at(message, 40)?,
        receive_queue_bytes: u32_at(message, 56)?,
        send_queue_bytes: u32_at(message, 60)?,
        uid: u32_at(message, 64)?,
        inode: u32_at(message, 68)?,
        memory: SocketMemory::default(),
        congestion_control: None,
        bbr: None,
        class_id: None,
        cgroup_id: None,
        tcp: tcp_info::parse(&[]),
    };
    for (kind, value) in attributes(message.get(MESSAGE..)?) {
        match kind {
            INFO => socket.tcp = tcp_info::parse(value),
            SOCKET_MEMORY => socket.memory = memory(value),
            CONGESTION => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion_control = Some(String::from_utf8_lossy(name).into_owned());
            }
            BBR_INFO => socket.bbr = bbr(value),
            CLASS_ID => socket.class_id = u32_at(value, 0).filter(|class| *class != 0),
            CGROUP_ID => socket.cgroup_id = field(value, 0).map(u64::from_ne_bytes),
            _ => {}
        }
    }
    Some(socket)
}

/// An address with its port, both in network byte order. IPv4 over an IPv6 socket is IPv4.
fn end(message: &[u8], family: u8, port_at: usize, address_at: usize) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(field(message, port_at)?);
    let address = if family == IPV4 {
        IpAddr::V4(Ipv4Addr::from(field::<4>(message, address_at)?))
    } else {
        IpAddr::V6(Ipv6Addr::from(field::<16>(message, address_at)?)).to_canonical()
    };
    Some(SocketAddr::new(address, port))
}

/// `SK_MEMINFO_*` (linux/sock_diag.h); forward allocation and options are omitted.
fn memory(value: &[u8]) -> SocketMemory {
    let at = |place: usize| u32_at(value, place * 4).unwrap_or(0);
    SocketMemory {
        receive_used_bytes: at(0),
        receive_limit_bytes: at(1),
        send_used_bytes: at(2),
        send_limit_bytes: at(3),
        send_queued_bytes: at(5),
        backlog_bytes: at(7),
        drop_count: at(8),
    }
}

/// `struct tcp_bbr_info`: bandwidth in bytes per second as two halves, the lowest round-trip time in
/// microseconds, gains in units of 1/256.
fn bbr(value: &[u8]) -> Option<BbrState> {
    let [low, high] = [u32_at(value, 0)?, u32_at(value, 4)?];
    Some(BbrState {
        bandwidth_bps: (u64::from(high) << 32 | u64::from(low)).saturating_mul(8),
        min_rtt_ns: u64::from(u32_at(value, 8)?) * 1000,
        pacing_gain_ratio: f64::from(u32_at(value, 12)?) / 256.0,
        window_gain_ratio: f64::from(u32_at(value, 16)?) / 256.0,
    })
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    fn all() -> Vec<TcpSocket> {
        let mut found = Vec::new();
        TcpSockets::open().unwrap().each(|socket| found.push(socket)).unwrap();
        found
    }

    /// The kernel's dump holds the state that getsockopt(2) returns of the same socket.
    #[test]
    fn a_dump_agrees_with_the_socket_itself() {
        for host in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(host).unwrap();
            let mut one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut two = listener.accept().unwrap().0;
            one.write_all(&[0; 10_000]).unwrap();
            two.read_exact(&mut [0; 4_000]).unwrap();
            let (local, remote) = (two.local_addr().unwrap(), two.peer_addr().unwrap());
            let found = all();
            let matches: Vec<_> =
                found.iter().filter(|socket| (socket.local, socket.remote) == (local, remote)).collect();
            let [seen] = matches[..] else { panic!("{matches:?}") };
            let own = tcp_info::read(&two).unwrap();
            assert_eq!((seen.receive_queue_bytes, seen.tcp.received_bytes), (6_000, Some(10_000)));
            assert_eq!(seen.tcp, own);
            assert_eq!(seen.memory, clearstream_sys::socket::memory(&two).unwrap());
            let inode = rustix::fs::fstat(&two).unwrap().st_ino;
            assert_eq!(u64::from(seen.inode), inode);
            assert!(seen.congestion_control.is_some() && seen.cookie != 0);
            assert!(found.iter().all(|socket| socket.local != listener.local_addr().unwrap()
                || socket.remote == one.local_addr().unwrap()));
        }
    }

    #[test]
    fn accepts_any_bytes() {
        let mut message = request(2, 7);
        message.resize(HEADER + MESSAGE + 30, 3);
        let length = u32::try_from(message.len()).unwrap();
        message[..4].copy_from_slice(&length.to_ne_bytes());
        for cut in 0..message.len() {
            let _ = read(&message[..cut], 7, &mut |_| ());
        }
        message[..4].copy_from_slice(&3u32.to_ne_bytes());
        assert!(read(&message, 7, &mut |_| ()).is_err());
    }
}
