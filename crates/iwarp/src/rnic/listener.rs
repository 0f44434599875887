//! Listening endpoint: connection requests in the order in which they are
//! complete.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::event::epoll;
use socket2::Socket;

use crate::{
    mpa::{Kind, SetupFrame, reject},
    rnic::{
        ConnectError, Rnic, VerbsError, after,
        channel::{self, readable},
        device::Device,
        locked,
        setup::{FrameReader, SetupError, connected, send_all, socket},
    },
};

/// Backlog of the listening socket.
const BACKLOG: i32 = 1024;
/// Maximum number of incomplete requests; the oldest is dropped.
const PENDING_MAX: usize = 1024;
/// Maximum number of recorded failures.
const FAILURES_MAX: usize = 64;
/// Epoll identifier of the listening socket; peers count up from 1.
const LISTENING: u64 = 0;

/// A listening endpoint. A peer that sends nothing, sends an invalid request or
/// disconnects is dropped and does not block others ([`Listener::failures`]
/// reports it). Its descriptor is readable when [`Listener::accept`] can make
/// progress.
#[derive(Debug)]
pub struct Listener {
    device: Arc<Device>,
    socket: Socket,
    address: SocketAddr,
    epoll: OwnedFd,
    /// Connections from other addresses are dropped when accepted.
    only: Option<IpAddr>,
    state: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    last: u64,
    /// By identifier, which is also the order of their deadlines.
    pending: BTreeMap<u64, Pending>,
    /// At most one: requests not accepted keep the descriptor readable.
    complete: Option<Incoming>,
    failures: VecDeque<ConnectError>,
    ready: Vec<u64>,
}

/// A peer with an incomplete request.
#[derive(Debug)]
struct Pending {
    socket: Socket,
    peer: SocketAddr,
    request: FrameReader,
    end: Instant,
}

impl Listener {
    /// Binds and listens; port 0 selects a free port.
    ///
    /// # Errors
    /// Error of the system call.
    pub fn bind(rnic: &Rnic, address: SocketAddr) -> Result<Self, VerbsError> {
        let failed = |source| VerbsError::System { step: "listen", source };
        let bound = || -> io::Result<_> {
            let socket = socket(address, &rnic.device.options)?;
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            Ok(socket)
        };
        Self::listen(rnic, bound().map_err(failed)?)
    }

    /// Listens on a bound TCP socket, which reserved its port before.
    ///
    /// # Errors
    /// Error of the system call.
    pub fn from_bound(rnic: &Rnic, socket: OwnedFd) -> Result<Self, VerbsError> {
        let socket = Socket::from(socket);
        socket.set_nonblocking(true).map_err(|source| VerbsError::System { step: "listen", source })?;
        Self::listen(rnic, socket)
    }

    fn listen(rnic: &Rnic, socket: Socket) -> Result<Self, VerbsError> {
        let listen = || -> io::Result<_> {
            socket.listen(BACKLOG)?;
            let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(LISTENING), epoll::EventFlags::IN)?;
            Ok((address, epoll))
        };
        let (address, epoll) = listen().map_err(|source| VerbsError::System { step: "listen", source })?;
        Ok(Self { device: rnic.device.clone(), socket, address, epoll, only: None, state: Mutex::default() })
    }

    /// Admits only peers of one address from now on: other connections are
    /// closed before a byte is read.
    pub fn admit_only(&mut self, peer: IpAddr) {
        self.only = Some(peer.to_canonical());
    }

    /// Returns its local address.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next complete request; waits up to `timeout` (`None`:
    /// without limit). Timeouts of pending peers are also checked here.
    ///
    /// # Errors
    /// Error of a system call, such as when no descriptors are left.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Incoming>, VerbsError> {
        let end = timeout.map(after);
        loop {
            let next = {
                let mut peers = locked(&self.state);
                let polled = self.poll(&mut peers);
                if let Some(incoming) = peers.complete.take() {
                    return Ok(Some(incoming));
                }
                polled.map_err(|source| VerbsError::System { step: "accept", source })?;
                peers.pending.values().next().map(|pending| pending.end)
            };
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(None);
            }
            readable(self.epoll.as_fd(), end.into_iter().chain(next).min());
        }
    }

    /// Returns the errors of peers without a complete request since the last
    /// call, the latest 64.
    pub fn failures(&self) -> Vec<ConnectError> {
        locked(&self.state).failures.drain(..).collect()
    }

    fn poll(&self, peers: &mut Peers) -> io::Result<()> {
        let mut ready = std::mem::take(&mut peers.ready);
        ready.clear();
        channel::ready(self.epoll.as_fd(), &mut ready)?;
        let mut outcome = Ok(());
        for number in &ready {
            if peers.complete.is_some() {
                break;
            }
            match *number {
                LISTENING => outcome = self.take(peers),
                number => {
                    if let Some(pending) = peers.pending.remove(&number) {
                        self.read(peers, number, pending, true);
                    }
                }
            }
        }
        peers.ready = ready;
        let now = Instant::now();
        while let Some(silent) = peers.pending.first_entry().filter(|first| first.get().end <= now) {
            let Pending { peer, .. } = silent.remove();
            let after = self.device.options.request_timeout;
            peers.fail(ConnectError::TimedOut { peer, awaited: "request", after });
        }
        outcome
    }

    /// Accepts pending connections, up to the first with a complete request.
    fn take(&self, peers: &mut Peers) -> io::Result<()> {
        while peers.complete.is_none() {
            let (socket, peer) = match self.socket.accept() {
                Ok((socket, peer)) => (socket, peer),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // Closed before it was accepted (accept(2)).
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => continue,
                    _ => return Err(error),
                },
            };
            let Some(peer) = peer.as_socket() else { continue };
            if self.only.is_some_and(|only| only != peer.ip().to_canonical()) {
                continue;
            }
            if let Err(source) = connected(&socket, &self.device.options) {
                peers.fail(ConnectError::Tcp { step: "accept", peer, source });
                continue;
            }
            peers.last += 1;
            let end = after(self.device.options.request_timeout);
            let pending = Pending { socket, peer, request: FrameReader::new(Kind::Request), end };
            self.read(peers, peers.last, pending, false);
        }
        Ok(())
    }

    /// Reads what a peer has sent so far.
    fn read(&self, peers: &mut Peers, number: u64, mut pending: Pending, watched: bool) {
        let peer = pending.peer;
        match pending.request.read(&pending.socket) {
            Ok(Some((request, _))) => {
                if watched {
                    // Known to be registered.
                    let _ = epoll::delete(&self.epoll, &pending.socket);
                }
                let local = pending.socket.local_addr().ok().and_then(|local| local.as_socket());
                let incoming = Incoming::new(pending.socket, request, local.unwrap_or(self.address), peer);
                peers.complete = Some(incoming);
            }
            Ok(None) => {
                let data = epoll::EventData::new_u64(number);
                if !watched
                    && let Err(error) = epoll::add(&self.epoll, &pending.socket, data, epoll::EventFlags::IN)
                {
                    return peers.fail(SetupError::System(error.into()).of(peer, "request"));
                }
                peers.pending.insert(number, pending);
                if peers.pending.len() > PENDING_MAX
                    && let Some((_, Pending { peer, end, .. })) = peers.pending.pop_first()
                {
                    let left = end.saturating_duration_since(Instant::now());
                    let after = self.device.options.request_timeout.saturating_sub(left);
                    peers.fail(ConnectError::TimedOut { peer, awaited: "request", after });
                }
            }
            Err(error) => peers.fail(error.of(peer, "request")),
        }
    }
}

impl Peers {
    fn fail(&mut self, error: ConnectError) {
        if self.failures.len() == FAILURES_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back(error);
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// A connection request. Pass it to `accept` of a queue pair, or reject it;
/// dropping it closes the connection without a Reply.
#[derive(Debug)]
pub struct Incoming {
    /// Local address.
    pub local: SocketAddr,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Private data of the peer's application.
    pub private_data: Vec<u8>,
    /// MPA revision.
    pub revision: u8,
    /// Whether the peer requests CRC32C.
    pub crc: bool,
    /// Whether the peer requests markers in its incoming stream.
    pub markers: bool,
    /// The peer's IRD, if negotiated (RFC 6581).
    pub ird: Option<u16>,
    /// The peer's ORD, if negotiated.
    pub ord: Option<u16>,
    /// Whether the peer requests a connection on which either side may send
    /// first.
    pub peer_to_peer: bool,
    socket: Socket,
    request: SetupFrame,
}

impl Incoming {
    fn new(socket: Socket, request: SetupFrame, local: SocketAddr, peer: SocketAddr) -> Self {
        Self {
            local,
            peer,
            private_data: request.private_data.clone(),
            revision: request.revision,
            crc: request.crc,
            markers: request.markers,
            ird: request.enhanced.map(|enhanced| enhanced.ird),
            ord: request.enhanced.map(|enhanced| enhanced.ord),
            peer_to_peer: request.enhanced.is_some_and(|enhanced| enhanced.peer_to_peer),
            socket,
            request,
        }
    }

    /// Rejects the connection with private data: up to 512 bytes, 4 of which
    /// revision 2 uses.
    ///
    /// # Errors
    /// The private data is too long, or the connection was lost.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let reply = reject(&self.request, private_data.to_vec()).encode().map_err(ConnectError::Option)?;
        send_all(&self.socket, &reply).map_err(|error| error.of(self.peer, "connection"))
    }

    pub(super) fn into_parts(self) -> (Socket, SetupFrame) {
        (self.socket, self.request)
    }
}
