//! Probes over a connected UDP socket and over a TCP connection.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use clearstream_sys::timestamp::{self, Family, PathMtu, QueuedError};
use rustix::event::PollFlags;
use socket2::SockRef;

use crate::{
    exchange::{Arrival, Channel},
    order::Order,
    wire::{HEADER_BYTES, Header, Kind, LARGEST_BYTES, Secret},
};

/// Time-to-live of UDP probes: the maximum, as RFC 4656 section 4.1.2 requires for measurement packets. The
/// difference on arrival is the number of routers passed.
const TIME_TO_LIVE: u8 = 255;
/// Maximum unsent bytes buffered for a stalled TCP connection.
const MOST_UNSENT_BYTES: usize = 1 << 20;

/// A UDP socket of the destination's family, connected to it, so that the kernel drops datagrams from other
/// sources.
pub(crate) fn udp_socket(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = if to.is_ipv4() { ([0u8; 4], 0).into() } else { ([0u16; 8], 0).into() };
    udp_socket_from(any, to)
}

/// As [`udp_socket`] from a local address and port: where routes are selected by a hash of the ports, this
/// pair determines the path.
pub(crate) fn udp_socket_from(from: SocketAddr, to: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(from)?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    match Family::of(to) {
        Family::V4 => SockRef::from(&socket).set_ttl_v4(TIME_TO_LIVE.into())?,
        Family::V6 => SockRef::from(&socket).set_unicast_hops_v6(TIME_TO_LIVE.into())?,
    }
    Ok(socket)
}

/// Parses a reply received over UDP.
pub(crate) fn read_reply(secret: &Secret, bytes: &[u8]) -> Option<Header> {
    Header::read(secret, bytes).filter(|header| header.is_reply)
}

/// Encodes a probe of `size` bytes.
pub(crate) fn message(secret: &Secret, kind: Kind, sequence: u32, size: usize, buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.resize(size.max(HEADER_BYTES), 0);
    let size = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
    Header::probe(kind, sequence, TIME_TO_LIVE, size).write(secret, buffer);
}

/// Delay probes over UDP.
pub(crate) struct UdpChannel {
    socket: UdpSocket,
    secret: Secret,
    size: usize,
    /// Sequence number of the n-th datagram, as the kernel numbers its timestamps.
    sent: HashMap<u32, u32>,
    buffer: Vec<u8>,
}

impl UdpChannel {
    pub(crate) fn open(to: SocketAddr, secret: Secret, size: usize) -> io::Result<Self> {
        let socket = udp_socket(to)?;
        timestamp::set_path_mtu(&socket, Family::of(to), PathMtu::Fragment)?;
        // Without timestamps the series falls back to the program's clock and reports it.
        let _ = timestamp::enable(&socket, true);
        Ok(Self { socket, secret, size, sent: HashMap::new(), buffer: vec![0; LARGEST_BYTES + 1] })
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()
    }
}

impl Channel for UdpChannel {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn interest(&self) -> PollFlags {
        PollFlags::IN
    }

    fn send(&mut self, kind: Kind, sequence: u32) -> io::Result<()> {
        let mut bytes = Vec::new();
        message(&self.secret, kind, sequence, self.size, &mut bytes);
        self.socket.send(&bytes)?;
        let number = u32::try_from(self.sent.len()).unwrap_or(u32::MAX);
        self.sent.insert(number, sequence);
        Ok(())
    }

    fn take(&mut self, each: &mut dyn FnMut(Arrival)) -> io::Result<()> {
        take_timestamps(&self.socket, &self.sent, each)?;
        loop {
            match timestamp::receive(&self.socket, &mut self.buffer) {
                Ok(received) => {
                    if let Some(header) = read_reply(&self.secret, &self.buffer[..received.length]) {
                        each(Arrival::Reply { header, stamp_ns: received.stamp_ns });
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // An ICMP error; reading it has cleared it. The probe that caused it stays unanswered.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Delay probes over one TCP connection.
pub(crate) struct TcpChannel {
    stream: TcpStream,
    secret: Secret,
    size: usize,
    /// Sequence number by the offset of a probe's last byte in the stream, as the kernel numbers its
    /// timestamps.
    sent: HashMap<u32, u32>,
    sent_bytes: u64,
    /// Data not yet accepted by the kernel.
    unsent: Vec<u8>,
    incoming: Vec<u8>,
    order: Order,
    buffer: Vec<u8>,
}

impl TcpChannel {
    pub(crate) fn open(to: SocketAddr, secret: Secret, size: usize, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let _ = timestamp::enable(&stream, true);
        Ok(Self {
            stream,
            secret,
            size,
            sent: HashMap::new(),
            sent_bytes: 0,
            unsent: Vec::new(),
            incoming: Vec::new(),
            order: Order::default(),
            buffer: vec![0; LARGEST_BYTES + 1],
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Channel for TcpChannel {
    fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn interest(&self) -> PollFlags {
        if self.unsent.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    fn send(&mut self, kind: Kind, sequence: u32) -> io::Result<()> {
        if self.unsent.len() > MOST_UNSENT_BYTES {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the connection accepts no more data"));
        }
        let mut bytes = Vec::new();
        message(&self.secret, kind, sequence, self.size, &mut bytes);
        self.sent_bytes += bytes.len() as u64;
        // The kernel's number has 32 bits and wraps around.
        self.sent.insert((self.sent_bytes - 1) as u32, sequence);
        self.unsent.extend_from_slice(&bytes);
        self.flush()
    }

    fn take(&mut self, each: &mut dyn FnMut(Arrival)) -> io::Result<()> {
        self.flush()?;
        take_timestamps(&self.stream, &self.sent, each)?;
        loop {
            let received = match timestamp::receive(&self.stream, &mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                other => other?,
            };
            if received.length == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the responder closed the connection",
                ));
            }
            self.incoming.extend_from_slice(&self.buffer[..received.length]);
            // Data that waited for a retransmission was delivered at a time without a kernel timestamp: the
            // time of the read counts.
            let stamp_ns = match self.order.is_in_order(&self.stream) {
                true => received.stamp_ns,
                false => received.stamp_ns.map(|_| timestamp::now_ns()),
            };
            let mut done = 0;
            while self.incoming.len() - done >= HEADER_BYTES {
                let rest = &self.incoming[done..];
                let header = read_reply(&self.secret, rest)
                    .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an invalid reply"))?;
                if rest.len() < header.reply_size() {
                    break;
                }
                done += header.reply_size();
                each(Arrival::Reply { header, stamp_ns });
            }
            self.incoming.drain(..done);
        }
    }
}

/// Software timestamps are on the error queue before `send` returns or soon after, so they are read before
/// replies.
fn take_timestamps(
    socket: impl AsFd,
    sent: &HashMap<u32, u32>,
    each: &mut dyn FnMut(Arrival),
) -> io::Result<()> {
    while let Some(error) = timestamp::take_error(&socket)? {
        if let QueuedError::Sent { stage, id, stamp_ns } = error
            && let Some(&sequence) = sent.get(&id)
        {
            each(Arrival::Sent { sequence, stage, stamp_ns });
        }
    }
    Ok(())
}
