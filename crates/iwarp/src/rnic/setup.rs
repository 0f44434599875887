//! Sockets and setup frames: code common to initiator and responder.

use std::{
    io,
    net::SocketAddr,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::{
    mpa::{Kind, MpaError, Negotiated, SetupFrame, mulpdu},
    queue_pair::{Machine, Receives},
    rnic::{ConnectError, Established, RnicOptions, SocketOptions, link::Link},
};

/// Larger than a frame, so that early bytes after it are seen too.
const CHUNK_BYTES: usize = 1024;
/// Keepalive probes per keepalive time.
const KEEPALIVE_PROBES: u32 = 3;
/// Time for which the TCP of a peer that is to reply may acknowledge nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// Creates a non-blocking TCP socket with the RNIC's options.
pub(super) fn socket(address: SocketAddr, options: &RnicOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Before the handshake, because it determines the window scale.
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

/// Sets the options of a connected socket.
pub(super) fn connected(socket: &Socket, options: &RnicOptions) -> io::Result<()> {
    // FPDUs are sent without delay (RFC 5044, section 5.1).
    socket.set_tcp_nodelay(true)?;
    match options.keepalive {
        Some(silence) => keep_alive(socket, silence / (KEEPALIVE_PROBES + 1), KEEPALIVE_PROBES),
        None => socket.set_keepalive(false),
    }
}

fn keep_alive(socket: &Socket, interval: Duration, probes: u32) -> io::Result<()> {
    // Whole seconds, at least one (tcp(7)).
    let interval = interval.max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(interval).with_interval(interval).with_retries(probes);
    socket.set_tcp_keepalive(&keepalive)
}

/// Sets the options that end the wait for a program that takes its time when its host is gone.
pub(super) fn awaits_reply(socket: &Socket) -> io::Result<()> {
    keep_alive(socket, Duration::ZERO, SILENCE.as_secs() as u32)?;
    socket.set_tcp_user_timeout(Some(SILENCE))
}

/// Sets the options that the consumer chose for the socket of a connection.
pub(super) fn chosen(socket: &Socket, options: &SocketOptions) -> io::Result<()> {
    socket.set_tcp_user_timeout(options.user_timeout)?;
    type_of_service(socket, options)
}

/// Sets the type of service, which concerns all packets of a connection: before its first one.
pub(super) fn type_of_service(socket: &Socket, options: &SocketOptions) -> io::Result<()> {
    let Some(class) = options.type_of_service.map(u32::from) else { return Ok(()) };
    if socket.domain()? == Domain::IPV6 {
        socket.set_tclass_v6(class)?;
    }
    // An IPv6 socket has one too, for peers whose IPv4 addresses are mapped.
    socket.set_tos_v4(class)
}

/// Error of sending or receiving a setup frame.
#[derive(Debug)]
pub(super) enum SetupError {
    Closed,
    Frame(MpaError),
    System(io::Error),
}

impl SetupError {
    pub(super) fn of(self, peer: SocketAddr, awaited: &'static str) -> ConnectError {
        match self {
            Self::Closed => ConnectError::Closed { peer, awaited },
            Self::Frame(source) => ConnectError::Setup { peer, source },
            Self::System(source)
                if matches!(source.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
            {
                ConnectError::Closed { peer, awaited }
            }
            Self::System(source) => ConnectError::Tcp { step: awaited, peer, source },
        }
    }
}

/// Reads the peer's setup frame.
#[derive(Debug)]
pub(super) struct FrameReader {
    kind: Kind,
    bytes: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, bytes: Vec::new() }
    }

    /// Whether nothing was received yet.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads available bytes: returns the frame once it is complete, with the
    /// bytes after it.
    pub(super) fn read(&mut self, socket: &Socket) -> Result<Option<(SetupFrame, Vec<u8>)>, SetupError> {
        let mut chunk = [0u8; CHUNK_BYTES];
        loop {
            let count = match recv(socket, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(SetupError::Closed),
                Ok((count, _)) => count,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(SetupError::System(error.into())),
            };
            self.bytes.extend_from_slice(&chunk[..count]);
            if let Some((frame, used)) =
                SetupFrame::decode(self.kind, &self.bytes).map_err(SetupError::Frame)?
            {
                return Ok(Some((frame, self.bytes.split_off(used))));
            }
        }
    }
}

/// Sends a frame. The send buffer of a new connection has room for all of it.
pub(super) fn send_all(socket: &Socket, bytes: &[u8]) -> Result<(), SetupError> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(SetupError::System(io::ErrorKind::WriteZero.into())),
        Err(error) => Err(SetupError::System(error.into())),
    }
}

/// Sends a Reply. To a peer that has given up by a reset meanwhile it is sent in vain, as to one that has closed: the end of
/// the connection follows.
pub(super) fn answer(socket: &Socket, bytes: &[u8]) -> Result<(), SetupError> {
    match send_all(socket, bytes) {
        Err(SetupError::System(error))
            if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
        {
            Ok(())
        }
        sent => sent,
    }
}

/// Waits for a socket, at most until `end`.
pub(super) fn await_socket(socket: BorrowedFd<'_>, write: bool, end: Instant) {
    let flags = if write { PollFlags::OUT } else { PollFlags::IN };
    let left = end.saturating_duration_since(Instant::now());
    if let Ok(left) = left.try_into() {
        // The caller checks the socket and the clock next.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&left));
    }
}

/// Result of the setup, for the connection.
pub(super) struct Prepared {
    pub(super) socket: Socket,
    pub(super) negotiated: Negotiated,
    pub(super) private_data: Vec<u8>,
    pub(super) peer: SocketAddr,
}

impl Prepared {
    /// Creates the state machine and the description for the consumer.
    pub(super) fn machine(&self, link: &Link) -> io::Result<(Machine, Established)> {
        let local = self.socket.local_addr()?.as_socket();
        let mss = match self.negotiated.large_fpdus {
            true => usize::from(u16::MAX),
            false => usize::try_from(self.socket.tcp_mss()?).unwrap_or(0),
        };
        let mulpdu = mulpdu(mss, self.negotiated.markers_out);
        let receives = match link.shared {
            Some(_) => Receives::Shared(link.queue.clone()),
            None => Receives::Own(link.queue.clone()),
        };
        let memory = link.domain.device.memory.clone();
        let machine =
            Machine::new(link.id, link.domain.id, memory, &self.negotiated, mulpdu, link.limits, receives);
        let established = Established {
            local: local.unwrap_or(self.peer),
            peer: self.peer,
            private_data: self.private_data.clone(),
            crc: self.negotiated.crc,
            markers_out: self.negotiated.markers_out,
            markers_in: self.negotiated.markers_in,
            revision: self.negotiated.revision,
            ird: self.negotiated.ird,
            ord: self.negotiated.ord,
            peer_to_peer: self.negotiated.rtr.is_some(),
            initiator: self.negotiated.initiator,
            immediate_data: self.negotiated.immediate_data,
            mulpdu_bytes: mulpdu,
        };
        Ok((machine, established))
    }
}
