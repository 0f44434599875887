//! Probes by TCP: a SYN segment with the probe as its data, and a SYN-ACK as its
//! reply. Gateways see the beginning of a connection, as of any flow, and then its
//! retransmissions with the same sequence number (RFC 9293, section 3.8.1). There is
//! no connection: packet sockets send and receive the segments, bypassing the routing
//! tables. Sockets whose filter drops everything hold the ports, so that the kernels
//! do not respond.

use std::{
    io,
    mem::MaybeUninit,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use super::{
    WatchError,
    packet::{self, PROBE_BYTES, ProbePacket, Segment},
};

/// Receive buffer: holds segments while the program is not scheduled.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
/// Maximum packet length that is parsed: a probe after the longest IPv4 and TCP headers.
const MOST_BYTES: usize = PROBE_BYTES + 60 + 60;

// linux/filter.h and linux/bpf_common.h: classes, sizes, modes, jumps.
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_BEHIND: u16 = 0x48;
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const TCP: u32 = 6;

/// TCP probes of the watched address families.
#[derive(Debug)]
pub(super) struct TcpProbes {
    families: Vec<OneFamily>,
    port: u16,
    /// The same in every segment of this run.
    sequence: u32,
}

#[derive(Debug)]
struct OneFamily {
    ipv6: bool,
    packets: Socket,
    own_port: u16,
    /// Hold the ports.
    _mute: [Socket; 2],
}

/// A probe or reply received by TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReceivedSegment {
    /// The probe.
    pub(super) probe: ProbePacket,
    /// Its headers.
    pub(super) segment: Segment,
}

impl TcpProbes {
    /// Opens the sockets in the network namespace of this thread.
    pub(super) fn open(port: u16, families: &[bool]) -> Result<Self, WatchError> {
        let families = families.iter().map(|ipv6| OneFamily::open(port, *ipv6)).collect::<Result<_, _>>()?;
        Ok(Self { families, port, sequence: rand::random() })
    }

    /// Descriptors to poll before [`receive`](Self::receive).
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.families.iter().map(|family| family.packets.as_fd())
    }

    /// Receives everything that has arrived.
    pub(super) fn receive(&self, mut take: impl FnMut(ReceivedSegment)) {
        for family in &self.families {
            let mut buffer = [MaybeUninit::uninit(); MOST_BYTES];
            loop {
                match recv(&family.packets, &mut buffer, RecvFlags::empty()) {
                    Ok(((bytes, _), _)) => {
                        let received = packet::tcp_segment(family.ipv6, bytes).and_then(|(segment, data)| {
                            let probe = ProbePacket::parse(data)?;
                            // A request has it as destination port, a reply as source port.
                            let port = if probe.is_reply { segment.from_port } else { segment.to_port };
                            (port == self.port).then_some(ReceivedSegment { probe, segment })
                        });
                        received.into_iter().for_each(&mut take);
                    }
                    Err(Errno::WOULDBLOCK) => break,
                    // ENETDOWN comes once, after an interface went down.
                    Err(_) => {}
                }
            }
        }
    }

    /// The IP packet of a probe.
    pub(super) fn request(&self, from: IpAddr, to: IpAddr, probe: &ProbePacket) -> Option<Vec<u8>> {
        let family = self.families.iter().find(|family| family.ipv6 == from.is_ipv6())?;
        let segment = Segment {
            from,
            to,
            from_port: family.own_port,
            to_port: self.port,
            sequence: self.sequence,
            acknowledged: None,
        };
        packet::tcp(&segment, &probe.to_bytes())
    }

    /// The IP packet of the reply to a probe.
    pub(super) fn reply(&self, from: IpAddr, request: &Segment, probe: &ProbePacket) -> Option<Vec<u8>> {
        let segment = Segment {
            from,
            to: request.from,
            from_port: self.port,
            to_port: request.from_port,
            sequence: self.sequence,
            // The data of a SYN need not be accepted; the SYN counts as one octet.
            acknowledged: Some(request.sequence.wrapping_add(1)),
        };
        packet::tcp(&segment, &probe.to_bytes())
    }
}

impl OneFamily {
    fn open(port: u16, ipv6: bool) -> Result<Self, WatchError> {
        let fail = |what: String| move |source| WatchError::Socket { what, source };
        let (mute, _) = open_mute(port, ipv6).map_err(fail(format!("TCP port {port}")))?;
        let (own, own_port) = open_mute(0, ipv6).map_err(fail("a TCP port for probes".to_owned()))?;
        let packets =
            open_packets([port, own_port], ipv6).map_err(fail("a packet socket for replies".to_owned()))?;
        Ok(Self { ipv6, packets, own_port, _mute: [mute, own] })
    }
}

/// A listening socket that drops what arrives: it reserves the port, and the kernel
/// neither accepts nor resets (`tcp_filter`, net/ipv4/tcp_ipv4.c).
fn open_mute(port: u16, ipv6: bool) -> io::Result<(Socket, u16)> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    if ipv6 {
        socket.set_only_v6(true)?;
    }
    socket.attach_filter(&[SockFilter::new(RETURN, 0, 0, 0)])?;
    socket.bind(&SocketAddr::new(any, port).into())?;
    socket.listen(1)?;
    let bound = socket.local_addr()?.as_socket().map_or(port, |address| address.port());
    Ok((socket, bound))
}

/// A packet socket that receives the segments to two TCP ports.
fn open_packets(ports: [u16; 2], ipv6: bool) -> io::Result<Socket> {
    let ether_type: u16 = if ipv6 { 0x86dd } else { 0x0800 };
    let protocol = Protocol::from(i32::from(ether_type.to_be()));
    let socket = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol))?;
    socket.attach_filter(&filter(ports, ipv6))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}

/// Passes whole TCP packets to one of two ports; a packet of a socket of kind
/// `SOCK_DGRAM` begins with its IP header (packet(7)).
fn filter(ports: [u16; 2], ipv6: bool) -> Vec<SockFilter> {
    let [one, other] = ports.map(u32::from);
    let step = |code, jump_true, jump_false, value| SockFilter::new(code, jump_true, jump_false, value);
    let mut program = if ipv6 {
        vec![step(LOAD_BYTE, 0, 0, 6), step(IF_EQUAL, 0, 3, TCP), step(LOAD_HALF, 0, 0, 42)]
    } else {
        vec![
            step(LOAD_BYTE, 0, 0, 9),
            step(IF_EQUAL, 0, 6, TCP),
            step(LOAD_HALF, 0, 0, 6),
            // Not a part of a fragmented packet.
            step(IF_ANY_BIT, 4, 0, 0x3fff),
            step(LOAD_HEADER_LENGTH, 0, 0, 0),
            step(LOAD_HALF_BEHIND, 0, 0, 2),
        ]
    };
    program.extend([
        step(IF_EQUAL, 2, 0, one),
        step(IF_EQUAL, 1, 0, other),
        step(RETURN, 0, 0, 0),
        step(RETURN, 0, 0, MOST_BYTES as u32),
    ]);
    program
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use clearstream_sys::{
        link_packet::LinkSender,
        namespace::{Holder, NamespaceSet},
    };

    use super::*;

    /// A probe over the loopback interface gets its reply, and no kernel sends anything;
    /// other TCP connections are neither received nor affected.
    #[test]
    fn root_probe_and_reply_are_exchanged_by_tcp() {
        let holder = Holder::start().unwrap();
        let set = NamespaceSet::of_process(holder.pid()).unwrap();
        set.run(|| {
            for line in ["link set lo up", "address add 10.9.9.9/32 dev lo", "address add fd99::9/128 dev lo"]
            {
                assert!(std::process::Command::new("ip").args(line.split(' ')).status().unwrap().success());
            }
            let probes = TcpProbes::open(7117, &[false, true]).unwrap();
            assert!(TcpProbes::open(7117, &[false]).is_err(), "the port is taken");
            let other = TcpListener::bind("10.9.9.9:0").unwrap();
            TcpStream::connect(other.local_addr().unwrap()).unwrap();
            let sender = LinkSender::open().unwrap();
            for (from, to) in [("10.9.9.8", "10.9.9.9"), ("fd99::8", "fd99::9")] {
                let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
                let send = |packet: Option<Vec<u8>>| {
                    sender.send(1, packet::ether_type(from), &[0; 6], &packet.unwrap()).unwrap();
                };
                let probe = ProbePacket {
                    is_reply: false,
                    fabric: 1,
                    run: 2,
                    round: 3,
                    path: 4,
                    gateway: 5,
                    reply_via: to,
                    sent_ns: 6,
                };
                let take = || {
                    let mut found = Vec::new();
                    for _ in 0..100 {
                        probes.receive(|received| found.push(received));
                        if !found.is_empty() {
                            break;
                        }
                        std::thread::sleep(std::time::Duration::from_millis(10));
                    }
                    found
                };
                send(probes.request(from, to, &probe));
                let [request] = take()[..] else { panic!("one request") };
                assert_eq!((request.probe, request.segment.from, request.segment.to), (probe, from, to));
                let expected = ProbePacket { is_reply: true, ..probe };
                // It has the address that was probed as its source.
                send(probes.reply(to, &request.segment, &expected));
                let [reply] = take()[..] else { panic!("one reply") };
                assert_eq!(reply.probe, expected);
                assert_eq!(reply.segment.acknowledged, Some(request.segment.sequence.wrapping_add(1)));
            }
            let counters = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let tcp: Vec<&str> = counters.lines().filter(|line| line.starts_with("Tcp:")).collect();
            let place = tcp[0].split(' ').position(|name| name == "OutRsts").unwrap();
            assert_eq!(tcp[1].split(' ').nth(place), Some("0"), "no kernel resets");
        })
        .unwrap();
    }
}
