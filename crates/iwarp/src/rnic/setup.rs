//! Sockets and set-up frames: what both sides of a set-up have in common.

use std::{io, net::SocketAddr, os::fd::BorrowedFd, time::Instant};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::{
    mpa::{Agreed, Kind, MpaError, SetupFrame, mulpdu},
    queue_pair::{Machine, Receives},
    rnic::{ConnectError, Established, RnicOptions, link::Link},
};

/// More than a frame has; what comes behind it is seen too.
const CHUNK_BYTES: usize = 1024;
/// Looks at a connection per keepalive time.
const KEEPALIVE_LOOKS: u32 = 3;

/// A TCP socket that does not wait, with the RNIC's options.
pub(super) fn socket(address: SocketAddr, options: &RnicOptions) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // Before the handshake, so that the window scale fits.
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(bytes)?;
    }
    Ok(socket)
}

/// What a connected socket needs.
pub(super) fn connected(socket: &Socket, options: &RnicOptions) -> io::Result<()> {
    // An FPDU goes out when it is there (RFC 5044, section 5.1).
    socket.set_tcp_nodelay(true)?;
    if let Some(silence) = options.keepalive {
        let look = silence / (KEEPALIVE_LOOKS + 1);
        // Whole seconds, at least one (tcp(7)).
        let look = look.max(std::time::Duration::from_secs(1));
        let keepalive = TcpKeepalive::new().with_time(look).with_interval(look).with_retries(KEEPALIVE_LOOKS);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

/// Why a set-up frame did not come or go.
#[derive(Debug)]
pub(super) enum Trouble {
    Closed,
    Frame(MpaError),
    System(io::Error),
}

impl Trouble {
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

/// Collects the peer's frame.
#[derive(Debug)]
pub(super) struct FrameReader {
    kind: Kind,
    bytes: Vec<u8>,
}

impl FrameReader {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, bytes: Vec::new() }
    }

    /// Nothing of it has come.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads what is there: the frame once it is complete, and what came
    /// behind it.
    pub(super) fn read(&mut self, socket: &Socket) -> Result<Option<(SetupFrame, Vec<u8>)>, Trouble> {
        let mut chunk = [0u8; CHUNK_BYTES];
        loop {
            let count = match recv(socket, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(Trouble::Closed),
                Ok((count, _)) => count,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Trouble::System(error.into())),
            };
            self.bytes.extend_from_slice(&chunk[..count]);
            if let Some((frame, used)) = SetupFrame::decode(self.kind, &self.bytes).map_err(Trouble::Frame)? {
                return Ok(Some((frame, self.bytes.split_off(used))));
            }
        }
    }
}

/// Sends a frame. The buffer of a fresh connection has room for all of it.
pub(super) fn send_all(socket: &Socket, bytes: &[u8]) -> Result<(), Trouble> {
    match send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Trouble::System(io::ErrorKind::WriteZero.into())),
        Err(error) => Err(Trouble::System(error.into())),
    }
}

/// Waits for a socket, at most until `end`.
pub(super) fn await_socket(socket: BorrowedFd<'_>, write: bool, end: Instant) {
    let flags = if write { PollFlags::OUT } else { PollFlags::IN };
    let left = end.saturating_duration_since(Instant::now());
    if let Ok(left) = left.try_into() {
        // Whoever waits looks at the socket and the clock next.
        let _ = poll(&mut [PollFd::from_borrowed_fd(socket, flags)], Some(&left));
    }
}

/// What goes from the set-up to the connection.
pub(super) struct Prepared {
    pub(super) socket: Socket,
    pub(super) agreed: Agreed,
    pub(super) private_data: Vec<u8>,
    pub(super) peer: SocketAddr,
}

impl Prepared {
    /// The machine for it and what the consumer is told.
    pub(super) fn machine(&self, link: &Link) -> io::Result<(Machine, Established)> {
        let local = self.socket.local_addr()?.as_socket();
        let mss = match self.agreed.large_fpdus {
            true => usize::from(u16::MAX),
            false => usize::try_from(self.socket.tcp_mss()?).unwrap_or(0),
        };
        let mulpdu = mulpdu(mss, self.agreed.markers_out);
        let receives = match link.shared {
            Some(_) => Receives::Shared(link.queue.clone()),
            None => Receives::Own(link.queue.clone()),
        };
        let memory = link.domain.device.memory.clone();
        let machine =
            Machine::new(link.id, link.domain.id, memory, &self.agreed, mulpdu, link.limits, receives);
        let established = Established {
            local: local.unwrap_or(self.peer),
            peer: self.peer,
            private_data: self.private_data.clone(),
            crc: self.agreed.crc,
            markers_out: self.agreed.markers_out,
            markers_in: self.agreed.markers_in,
            revision: self.agreed.revision,
            ird: self.agreed.ird,
            ord: self.agreed.ord,
            peer_to_peer: self.agreed.rtr.is_some(),
            initiator: self.agreed.initiator,
            mulpdu_bytes: mulpdu,
        };
        Ok((machine, established))
    }
}
