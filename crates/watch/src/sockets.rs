//! The sockets of a watch: probes of others and replies to its own, by UDP, TCP and ICMP echo, and the packet socket that
//! bypasses the routing tables.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use clearstream_sys::{
    datagram_batch::{Datagram, DatagramBatch, stamp_arrivals},
    link_packet::{LinkPacket, LinkSender},
    timestamp,
};
use rustix::event::{Timespec, epoll};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    WatchError,
    packet::{self, ProbePacket, Segment},
    ports::{self, HeldPort},
    probe_kind::Transport,
    tcp,
};

/// Receive buffer: holds replies while the program is not scheduled.
const RECEIVE_BUFFER_BYTES: usize = 1 << 20;
/// Longest packet.
const MOST_BYTES: usize = 1 << 16;
/// Packets received by one call.
const BATCH: usize = 32;

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
    /// Sender, with its port unless it is an echo.
    pub(super) from: SocketAddr,
    /// It is the payload of an ICMP echo reply.
    pub(super) echo: bool,
    /// The segment that carried it, if received by TCP.
    pub(super) segment: Option<Segment>,
    /// When it arrived, ns since 1970.
    pub(super) arrived_ns: Option<u64>,
}

impl Received {
    /// Time since it arrived, ns; 0 where the kernel did not say.
    pub(super) fn age_ns(&self) -> u64 {
        self.arrived_ns.map_or(0, |arrived| timestamp::now_ns().saturating_sub(arrived))
    }
}

/// The sockets of the families that are watched.
#[derive(Debug)]
pub(super) struct Sockets {
    sender: LinkSender,
    receivers: Vec<Receiver>,
    /// Which receivers have something.
    arrivals: OwnedFd,
    batch: DatagramBatch,
    /// Packets to be sent.
    queue: Vec<LinkPacket>,
    port: u16,
    own: Vec<HeldPort>,
    /// The same in every segment of this run.
    sequence: u32,
    _port_holders: Vec<Socket>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Datagrams,
    Segments,
    Echoes,
}

#[derive(Debug)]
struct Receiver {
    socket: Socket,
    ipv6: bool,
    content: Content,
    /// Receives replies to own probes; otherwise probes of others.
    is_for_replies: bool,
}

impl Sockets {
    /// Opens them in the network namespace of this thread.
    pub(super) fn open(port: u16, families: &[bool]) -> Result<Self, WatchError> {
        let fail = |what: &str| {
            let what = what.to_owned();
            move |source| WatchError::Socket { what, source }
        };
        let sender = LinkSender::open().map_err(fail("a packet socket for probes"))?;
        let mut own = ports::hold_all(families).map_err(fail("ports for probes"))?;
        let numbers: Vec<u16> = own.iter().map(|held| held.number).collect();
        let (mut receivers, mut holders) = (Vec::new(), Vec::new());
        for &ipv6 in families {
            let receiver =
                |socket, content, is_for_replies| Receiver { socket, ipv6, content, is_for_replies };
            let datagrams = ports::open_datagrams(port, ipv6).map_err(fail(&format!("UDP port {port}")))?;
            holders.push(tcp::hold(port, ipv6).map_err(fail(&format!("TCP port {port}")))?);
            let packets = |to: &[u16], from: Option<u16>| {
                tcp::open_packets(to, from, ipv6).map_err(fail("a packet socket for TCP"))
            };
            let echoes = open_echoes(ipv6).map_err(fail("a raw ICMP socket"))?;
            receivers.extend([
                receiver(datagrams, Content::Datagrams, false),
                receiver(packets(&[port], None)?, Content::Segments, false),
                receiver(packets(&numbers, Some(port))?, Content::Segments, true),
                receiver(echoes, Content::Echoes, true),
            ]);
        }
        for (ipv6, socket) in own.iter_mut().flat_map(|held| held.datagrams.drain(..)) {
            receivers.push(Receiver { socket, ipv6, content: Content::Datagrams, is_for_replies: true });
        }
        let arrivals = arrivals(&receivers).map_err(fail("an epoll instance"))?;
        let batch = DatagramBatch::new(BATCH, MOST_BYTES);
        let (queue, sequence) = (Vec::new(), rand::random());
        Ok(Self { sender, receivers, arrivals, batch, queue, port, own, sequence, _port_holders: holders })
    }

    /// Descriptors of what has to be served at once: probes of others. Replies to own probes wait until the next round
    /// or timeout, which decides: nothing is gained by looking at each.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.receivers
            .iter()
            .filter(|receiver| !receiver.is_for_replies)
            .map(|receiver| receiver.socket.as_fd())
    }

    /// Receives everything that has arrived.
    pub(super) fn receive(&mut self, mut take: impl FnMut(Received)) {
        let mut ready = Vec::with_capacity(self.receivers.len());
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let buffer = rustix::buffer::spare_capacity(&mut ready);
        // Interrupted by a signal: the next call finds the same.
        let _ = epoll::wait(&self.arrivals, buffer, Some(&now));
        for event in ready {
            let Some(receiver) = self.receivers.get(event.data.u64() as usize) else { continue };
            let mut found =
                |datagram: Datagram<'_>| receiver.read(&datagram, self.port).into_iter().for_each(&mut take);
            while self.batch.receive(&receiver.socket, &mut found) {}
        }
    }

    /// Prepares a probe from `from` to `to` through the gateway at `place`, for [`flush`](Self::flush).
    pub(super) fn send(
        &mut self,
        place: &LinkPlace,
        from: IpAddr,
        to: IpAddr,
        transport: Transport,
        probe: ProbePacket,
    ) {
        let Some(own) = self.own.get(usize::from(probe.port)).map(|held| held.number) else { return };
        let packet = match transport {
            Transport::Udp => packet::udp(SocketAddr::new(from, own), SocketAddr::new(to, self.port), probe),
            Transport::Tcp => {
                let (from_port, to_port, sequence) = (own, self.port, self.sequence);
                packet::tcp(&Segment { from, to, from_port, to_port, sequence, acknowledged: None }, probe)
            }
        };
        self.add(place, from, packet);
    }

    /// Prepares the reply to a probe, by the transport that carried it and as long as it is.
    pub(super) fn reply(&mut self, place: &LinkPlace, from: IpAddr, request: &Received) {
        let held_us = u16::try_from(request.age_ns() / 1000).unwrap_or(u16::MAX);
        let probe = ProbePacket { is_reply: true, held_us, ..request.probe };
        let packet = match &request.segment {
            Some(segment) => {
                let reply = Segment {
                    from,
                    to: segment.from,
                    from_port: self.port,
                    to_port: segment.from_port,
                    sequence: self.sequence,
                    // The data of a SYN need not be accepted; the SYN counts as one octet.
                    acknowledged: Some(segment.sequence.wrapping_add(1)),
                };
                packet::tcp(&reply, probe)
            }
            None => packet::udp(SocketAddr::new(from, self.port), request.from, probe),
        };
        self.add(place, from, packet);
    }

    /// Prepares the same as an ICMP echo request, to which the remote host's kernel replies.
    pub(super) fn send_echo(&mut self, place: &LinkPlace, from: IpAddr, to: IpAddr, probe: ProbePacket) {
        self.add(place, from, packet::echo(from, to, probe.run as u16, probe.round as u16, probe));
    }

    fn add(&mut self, place: &LinkPlace, from: IpAddr, packet: Option<Vec<u8>>) {
        self.queue.extend(packet.map(|bytes| LinkPacket {
            interface_index: place.interface_index,
            ether_type: packet::ether_type(from),
            link_address: place.link_address.clone(),
            bytes,
        }));
    }

    /// Sends what was prepared. What cannot be sent counts as lost.
    pub(super) fn flush(&mut self) {
        if !self.queue.is_empty() {
            self.sender.send(&self.queue);
            self.queue.clear();
        }
    }
}

impl Receiver {
    /// Reads a packet; `port` is that on which watches are probed.
    fn read(&self, datagram: &Datagram<'_>, port: u16) -> Option<Received> {
        let Datagram { bytes, from, arrived_ns } = *datagram;
        let (payload, segment) = match self.content {
            Content::Datagrams => (bytes, None),
            Content::Echoes => (packet::echo_reply_payload(self.ipv6, bytes)?, None),
            Content::Segments => {
                let (segment, data) = packet::tcp_segment(self.ipv6, bytes)?;
                (data, Some(segment))
            }
        };
        let probe = ProbePacket::parse(payload)?;
        let echo = self.content == Content::Echoes;
        // An echo reply returns the payload as it was sent: a request.
        if probe.is_reply != (self.is_for_replies && !echo) {
            return None;
        }
        let from = match segment {
            Some(segment) => SocketAddr::new(segment.from, segment.from_port),
            None => from?,
        };
        let is_expected = echo || !self.is_for_replies || from.port() == port;
        is_expected.then_some(Received { probe, from, echo, segment, arrived_ns })
    }
}

fn open_echoes(ipv6: bool) -> io::Result<Socket> {
    let (domain, protocol) =
        if ipv6 { (Domain::IPV6, Protocol::ICMPV6) } else { (Domain::IPV4, Protocol::ICMPV4) };
    let socket = Socket::new(domain, Type::RAW, Some(protocol))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
    Ok(socket)
}

fn arrivals(receivers: &[Receiver]) -> io::Result<OwnedFd> {
    let arrivals = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (place, receiver) in receivers.iter().enumerate() {
        stamp_arrivals(&receiver.socket)?;
        let data = epoll::EventData::new_u64(place as u64);
        epoll::add(&arrivals, &receiver.socket, data, epoll::EventFlags::IN)?;
    }
    Ok(arrivals)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use clearstream_sys::namespace::{Holder, NamespaceSet};

    use super::*;
    use crate::{packet::PROBE_BYTES, probe_kind::PORT_COUNT};

    fn received(sockets: &mut Sockets) -> Vec<Received> {
        let mut found = Vec::new();
        for _ in 0..1000 {
            sockets.receive(|received| found.push(received));
            if !found.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        found
    }

    /// Probes of every transport, port and size over the loopback interface get their replies, as large as they are,
    /// and no kernel sends anything; other TCP connections are neither received nor affected.
    #[test]
    fn root_probes_and_replies_are_exchanged_by_every_kind() {
        let holder = Holder::start().unwrap();
        let set = NamespaceSet::of_process(holder.pid()).unwrap();
        set.run(|| {
            for line in [
                "link set lo up",
                "address add 10.9.9.9/32 dev lo",
                "address add 10.9.9.8/32 dev lo",
                "address add fd99::9/128 dev lo nodad",
                "address add fd99::8/128 dev lo nodad",
            ] {
                assert!(std::process::Command::new("ip").args(line.split(' ')).status().unwrap().success());
            }
            // Both ends are this host's.
            std::fs::write("/proc/sys/net/ipv4/conf/all/accept_local", "1").unwrap();
            let mut sockets = Sockets::open(7117, &[false, true]).unwrap();
            assert!(Sockets::open(7117, &[false]).is_err(), "the port is taken");
            let other = TcpListener::bind("10.9.9.9:0").unwrap();
            TcpStream::connect(other.local_addr().unwrap()).unwrap();
            let place = LinkPlace { interface_index: 1, link_address: vec![0; 6] };
            let cases =
                [("10.9.9.8", "10.9.9.9"), ("fd99::8", "fd99::9")].into_iter().flat_map(|addresses| {
                    (0..PORT_COUNT as u8).flat_map(move |port| {
                        [PROBE_BYTES as u16, 8000, 65_000]
                            .map(|payload_bytes| (addresses, port, payload_bytes))
                    })
                });
            for ((from, to), port, payload_bytes) in cases {
                let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
                for transport in [Transport::Udp, Transport::Tcp] {
                    let (fabric, run, round, path, gateway, sent_ns) = (1, 2, 3, 4, 5, 6);
                    let probe = ProbePacket {
                        is_reply: false,
                        fabric,
                        run,
                        round,
                        path,
                        gateway,
                        reply_via: to,
                        sent_ns,
                        port,
                        payload_bytes,
                        held_us: 0,
                    };
                    sockets.send(&place, from, to, transport, probe);
                    sockets.flush();
                    let found = received(&mut sockets);
                    let [request] = found[..] else {
                        panic!("one request: {probe:?} {transport:?} {found:?}")
                    };
                    let own = sockets.own[usize::from(port)].number;
                    assert_eq!((request.probe, request.from), (probe, SocketAddr::new(from, own)));
                    assert_eq!(request.segment.is_some(), transport == Transport::Tcp);
                    sockets.reply(&place, to, &request);
                    sockets.flush();
                    let [reply] = received(&mut sockets)[..] else { panic!("one reply") };
                    assert_eq!(
                        ProbePacket { held_us: 0, ..reply.probe },
                        ProbePacket { is_reply: true, ..probe }
                    );
                    assert!(reply.arrived_ns.is_some());
                    // It has the address that was probed as its source.
                    assert_eq!(reply.from, SocketAddr::new(to, 7117));
                    let sequences = reply.segment.zip(request.segment);
                    assert!(sequences.is_none_or(|(reply, request)| {
                        reply.acknowledged == Some(request.sequence.wrapping_add(1))
                    }));
                }
            }
            let counters = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
            let count = |table: &str, name: &str| {
                let lines: Vec<&str> = counters.lines().filter(|line| line.starts_with(table)).collect();
                let place = lines[0].split(' ').position(|field| field == name).unwrap();
                lines[1].split(' ').nth(place).unwrap().to_owned()
            };
            for (table, name) in [("Tcp:", "OutRsts"), ("Icmp:", "OutMsgs"), ("Udp:", "InErrors")] {
                assert_eq!(count(table, name), "0", "{table} {name}");
            }
        })
        .unwrap();
    }
}
