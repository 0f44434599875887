//! The sockets of a watch: its own datagrams, ICMP echo replies, and the packet
//! socket that bypasses the routing tables.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, BorrowedFd},
};

use clearstream_sys::link_packet::LinkSender;
use rustix::{
    io::Errno,
    net::{RecvFlags, SocketAddrAny, recvfrom},
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    WatchError,
    packet::{self, PROBE_BYTES, ProbePacket, Segment},
    tcp::TcpProbes,
};

/// Receive buffer: holds replies while the program is not scheduled.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
/// Maximum datagram length that is parsed: a probe after the longest IPv4 header and
/// an ICMP echo header.
const MOST_BYTES: usize = PROBE_BYTES + 60 + 8;

/// Interface and link address of a gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LinkPlace {
    /// Index of the local interface.
    pub(super) interface_index: u32,
    /// Link address of the gateway; empty while unknown.
    pub(super) link_address: Vec<u8>,
}

/// A received probe or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Received {
    /// The probe.
    pub(super) probe: ProbePacket,
    /// Sender.
    pub(super) from: IpAddr,
    /// It is the payload of an ICMP echo reply.
    pub(super) echo: bool,
    /// The segment that carried it, if received by TCP.
    pub(super) segment: Option<Segment>,
}

/// The sockets of the families that are watched.
#[derive(Debug)]
pub(super) struct Sockets {
    sender: LinkSender,
    receivers: Vec<Receiver>,
    tcp: TcpProbes,
    port: u16,
}

#[derive(Debug)]
struct Receiver {
    socket: Socket,
    ipv6: bool,
    echo: bool,
}

impl Sockets {
    /// Opens them in the network namespace of this thread.
    pub(super) fn open(port: u16, families: &[bool]) -> Result<Self, WatchError> {
        let sender = LinkSender::open()
            .map_err(|source| WatchError::Socket { what: "a packet socket for probes".to_owned(), source })?;
        let mut receivers = Vec::new();
        for &ipv6 in families {
            for echo in [false, true] {
                let socket = open_receiver(port, ipv6, echo).map_err(|source| WatchError::Socket {
                    what: if echo { "a raw ICMP socket".to_owned() } else { format!("UDP port {port}") },
                    source,
                })?;
                receivers.push(Receiver { socket, ipv6, echo });
            }
        }
        let tcp = TcpProbes::open(port, families)?;
        Ok(Self { sender, receivers, tcp, port })
    }

    /// Descriptors to poll before [`receive`](Self::receive).
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers.iter().map(|receiver| receiver.socket.as_fd()).chain(self.tcp.descriptors())
    }

    /// Receives everything that has arrived.
    pub(super) fn receive(&self, mut take: impl FnMut(Received)) {
        for receiver in &self.receivers {
            let mut buffer = [0; MOST_BYTES];
            // Errors (a remote host without a watch rejects the port) mean the same as
            // a missing reply.
            loop {
                match recvfrom(&receiver.socket, &mut buffer, RecvFlags::empty()) {
                    Ok((length, _, Some(from))) => {
                        let bytes = buffer.get(..length).unwrap_or(&buffer);
                        if let Some(received) = read(receiver, bytes, from) {
                            take(received);
                        }
                    }
                    Err(Errno::WOULDBLOCK) => break,
                    Ok(_) | Err(_) => {}
                }
            }
        }
        self.tcp.receive(|received| {
            let (probe, segment) = (received.probe, received.segment);
            take(Received { probe, from: segment.from, echo: false, segment: Some(segment) });
        });
    }

    /// Sends a probe from `from` to `to` through the gateway at `place`.
    pub(super) fn send(
        &self,
        place: &LinkPlace,
        from: IpAddr,
        to: IpAddr,
        probe: &ProbePacket,
    ) -> io::Result<()> {
        self.send_packet(place, from, packet::udp(from, to, self.port, &probe.to_bytes()))
    }

    /// The same by TCP.
    pub(super) fn send_tcp(
        &self,
        place: &LinkPlace,
        from: IpAddr,
        to: IpAddr,
        probe: &ProbePacket,
    ) -> io::Result<()> {
        self.send_packet(place, from, self.tcp.request(from, to, probe))
    }

    /// Replies to a probe by the transport that carried it.
    pub(super) fn reply(
        &self,
        place: &LinkPlace,
        from: IpAddr,
        request: &Received,
        probe: &ProbePacket,
    ) -> io::Result<()> {
        match &request.segment {
            Some(segment) => self.send_packet(place, from, self.tcp.reply(from, segment, probe)),
            None => self.send(place, from, request.from, probe),
        }
    }

    /// The same as an ICMP echo request, to which the remote host's kernel replies.
    pub(super) fn send_echo(
        &self,
        place: &LinkPlace,
        from: IpAddr,
        to: IpAddr,
        probe: &ProbePacket,
    ) -> io::Result<()> {
        let identifier = probe.run as u16;
        self.send_packet(
            place,
            from,
            packet::echo(from, to, identifier, probe.round as u16, &probe.to_bytes()),
        )
    }

    fn send_packet(&self, place: &LinkPlace, from: IpAddr, packet: Option<Vec<u8>>) -> io::Result<()> {
        let packet = packet.ok_or(io::ErrorKind::InvalidInput)?;
        self.sender.send(place.interface_index, packet::ether_type(from), &place.link_address, &packet)
    }
}

fn open_receiver(port: u16, ipv6: bool, echo: bool) -> io::Result<Socket> {
    let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
    let (kind, protocol) = match (echo, ipv6) {
        (false, _) => (Type::DGRAM, Protocol::UDP),
        (true, false) => (Type::RAW, Protocol::ICMPV4),
        (true, true) => (Type::RAW, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, kind, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    if !echo {
        let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        if ipv6 {
            socket.set_only_v6(true)?;
        }
        socket.bind(&SocketAddr::new(any, port).into())?;
    }
    Ok(socket)
}

fn read(receiver: &Receiver, bytes: &[u8], from: SocketAddrAny) -> Option<Received> {
    let payload = if receiver.echo { packet::echo_reply_payload(receiver.ipv6, bytes)? } else { bytes };
    let probe = ProbePacket::parse(payload)?;
    // An echo reply returns the payload as it was sent: a request.
    if receiver.echo && probe.is_reply {
        return None;
    }
    Some(Received { probe, from: SocketAddr::try_from(from).ok()?.ip(), echo: receiver.echo, segment: None })
}
