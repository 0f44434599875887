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

use clearstream_admission::{Accepting, Limits, Strangers};
use rustix::{
    event::epoll,
    time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    },
};
use socket2::Socket;

use crate::{
    mpa::{Kind, SetupFrame, reject},
    rnic::{
        ConnectError, Rnic, SocketOptions, VerbsError, after,
        channel::{self, readable},
        device::Device,
        locked,
        setup::{FrameReader, SetupError, answer, connected, socket, type_of_service},
    },
};

/// Backlog of the listening socket.
const BACKLOG: i32 = 1024;
/// Maximum number of incomplete requests.
const PENDING_MAX: usize = 1024;
/// Connections accepted in one turn.
const ROUND: usize = 64;
/// Maximum number of recorded failures.
const FAILURES_MAX: usize = 64;
/// Epoll identifier of the listening socket; peers count up from 1.
const LISTENING: u64 = 0;
/// Epoll identifier of the timer.
const TIMER: u64 = u64::MAX;

/// A listening endpoint. A peer that sends nothing, sends an invalid request or
/// disconnects is dropped and does not block others ([`Listener::failures`]
/// reports it); nor do too many of them, or descriptors that have run out. Its descriptor is readable when [`Listener::accept`] can make
/// progress.
#[derive(Debug)]
pub struct Listener {
    device: Arc<Device>,
    socket: Socket,
    address: SocketAddr,
    epoll: OwnedFd,
    /// Expires when a peer's time or a pause of accepting is over, so that the
    /// descriptor is readable then.
    timer: OwnedFd,
    /// Connections from other addresses are dropped when accepted.
    only: Option<IpAddr>,
    state: Mutex<Peers>,
}

#[derive(Debug)]
struct Peers {
    last: u64,
    strangers: Strangers,
    /// Whether connections are waited for.
    listens: bool,
    /// When the timer expires.
    armed: Option<Instant>,
    pending: BTreeMap<u64, Pending>,
    /// At most one: requests not accepted keep the descriptor readable.
    complete: Option<Incoming>,
    failures: VecDeque<ConnectError>,
    /// Why the last connection was not accepted, if not for its peer.
    lack: Option<io::Error>,
    ready: Vec<u64>,
}

/// A peer with an incomplete request.
#[derive(Debug)]
struct Pending {
    socket: Socket,
    peer: SocketAddr,
    request: FrameReader,
    since: Instant,
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

    /// Listens on a bound TCP socket, which reserved its port before. The type of service of the options is that of
    /// accepted connections.
    ///
    /// # Errors
    /// Error of the system call.
    pub fn from_bound(rnic: &Rnic, socket: OwnedFd, options: &SocketOptions) -> Result<Self, VerbsError> {
        let socket = Socket::from(socket);
        let prepared = socket.set_nonblocking(true).and_then(|()| type_of_service(&socket, options));
        prepared.map_err(|source| VerbsError::System { step: "listen", source })?;
        Self::listen(rnic, socket)
    }

    fn listen(rnic: &Rnic, socket: Socket) -> Result<Self, VerbsError> {
        let listen = || -> io::Result<_> {
            socket.listen(BACKLOG)?;
            let address = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::InvalidInput)?;
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(LISTENING), epoll::EventFlags::IN)?;
            let timer =
                timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
            epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), epoll::EventFlags::IN)?;
            Ok((address, epoll, timer))
        };
        let (address, epoll, timer) =
            listen().map_err(|source| VerbsError::System { step: "listen", source })?;
        let device = rnic.device.clone();
        let limits = Limits::of_service(PENDING_MAX, 0, device.options.request_timeout);
        let state = Mutex::new(Peers::new(limits));
        Ok(Self { device, socket, address, epoll, timer, only: None, state })
    }

    /// Admits only peers of one address from now on: other connections are
    /// closed before a byte is read.
    pub fn admit_only(&mut self, peer: IpAddr) {
        self.only = Some(peer.to_canonical());
        let limits = Limits::of_test(PENDING_MAX, 0, self.device.options.request_timeout);
        locked(&self.state).strangers = Strangers::new(limits);
    }

    /// Returns its local address.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the next complete request; waits up to `timeout` (`None`:
    /// without limit). Timeouts of pending peers are also checked here. A lack
    /// of descriptors is no error: a pending peer is closed for the next one, or
    /// a moment waited.
    ///
    /// # Errors
    /// Error of a system call on the listener itself.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Incoming>, VerbsError> {
        let end = timeout.map(after);
        loop {
            {
                let mut peers = locked(&self.state);
                let polled = self.poll(&mut peers);
                if let Some(incoming) = peers.complete.take() {
                    return Ok(Some(incoming));
                }
                polled.map_err(|source| VerbsError::System { step: "accept", source })?;
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(None);
            }
            readable(self.epoll.as_fd(), end);
        }
    }

    /// Returns the errors of peers without a complete request since the last
    /// call, the latest 64.
    pub fn failures(&self) -> Vec<ConnectError> {
        locked(&self.state).failures.drain(..).collect()
    }

    /// Returns what was lacking to accept a connection since the last call: descriptors or memory. Connections wait
    /// meanwhile, or displace peers without a complete request.
    pub fn lack(&self) -> Option<io::Error> {
        locked(&self.state).lack.take()
    }

    fn poll(&self, peers: &mut Peers) -> io::Result<()> {
        let mut ready = std::mem::take(&mut peers.ready);
        ready.clear();
        channel::ready(self.epoll.as_fd(), &mut ready)?;
        for number in &ready {
            if peers.complete.is_some() {
                break;
            }
            match *number {
                LISTENING => self.take(peers),
                TIMER => {
                    // Another thread may have read it.
                    let _ = rustix::io::read(&self.timer, &mut [0; 8]);
                    peers.armed = None;
                }
                number => {
                    if let Some(pending) = peers.pending.remove(&number) {
                        self.read(peers, number, pending, true);
                    }
                }
            }
        }
        peers.ready = ready;
        let now = Instant::now();
        while let Some(silent) = peers.strangers.overdue(now) {
            peers.drop_silent(silent, now);
        }
        self.watch(peers, now)
    }

    /// Waits for connections unless there is a pause, and for the next deadline.
    fn watch(&self, peers: &mut Peers, now: Instant) -> io::Result<()> {
        let listens = peers.strangers.is_accepting(now);
        if listens != peers.listens {
            let events = if listens { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            epoll::modify(&self.epoll, &self.socket, epoll::EventData::new_u64(LISTENING), events)?;
            peers.listens = listens;
        }
        let deadline = peers.strangers.deadline();
        if deadline != peers.armed {
            // A time of zero would disarm it (timerfd_settime(2)).
            let left = deadline.map(|end| end.saturating_duration_since(now).max(Duration::from_nanos(1)));
            let left = left.map_or(Ok(Timespec::default()), Timespec::try_from);
            let once =
                Itimerspec { it_interval: Timespec::default(), it_value: left.map_err(io::Error::other)? };
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            peers.armed = deadline;
        }
        Ok(())
    }

    /// Accepts pending connections, up to the first with a complete request.
    fn take(&self, peers: &mut Peers) {
        for _ in 0..ROUND {
            let now = Instant::now();
            if peers.complete.is_some() || !peers.strangers.is_accepting(now) {
                return;
            }
            let (socket, peer) = match self.socket.accept() {
                Ok((socket, peer)) => (socket, peer),
                Err(error) => match peers.strangers.refused(&error, now) {
                    Accepting::Again => continue,
                    Accepting::Close(number) => {
                        peers.lack = Some(error);
                        peers.drop_silent(number, now);
                        continue;
                    }
                    Accepting::Pause => {
                        peers.lack = Some(error);
                        return;
                    }
                    Accepting::Later => return,
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
            let pending = Pending { socket, peer, request: FrameReader::new(Kind::Request), since: now };
            self.read(peers, peers.last, pending, false);
        }
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
                peers.strangers.leave(number);
                let local = pending.socket.local_addr().ok().and_then(|local| local.as_socket());
                let incoming = Incoming::new(pending.socket, request, local.unwrap_or(self.address), peer);
                peers.complete = Some(incoming);
            }
            Ok(None) if watched => drop(peers.pending.insert(number, pending)),
            Ok(None) => {
                let data = epoll::EventData::new_u64(number);
                if let Err(error) = epoll::add(&self.epoll, &pending.socket, data, epoll::EventFlags::IN) {
                    return peers.fail(SetupError::System(error.into()).of(peer, "request"));
                }
                let since = pending.since;
                if let Some(displaced) = peers.strangers.enter(number, peer.ip(), since) {
                    peers.drop_silent(displaced, since);
                }
                peers.pending.insert(number, pending);
            }
            Err(error) => {
                peers.strangers.leave(number);
                peers.fail(error.of(peer, "request"));
            }
        }
    }
}

impl Peers {
    fn new(limits: Limits) -> Self {
        Self {
            last: 0,
            strangers: Strangers::new(limits),
            listens: true,
            armed: None,
            pending: BTreeMap::new(),
            complete: None,
            failures: VecDeque::new(),
            lack: None,
            ready: Vec::new(),
        }
    }

    /// Closes a peer that was displaced, or whose time is over.
    fn drop_silent(&mut self, number: u64, now: Instant) {
        if let Some(Pending { peer, since, .. }) = self.pending.remove(&number) {
            let after = now.saturating_duration_since(since);
            self.fail(ConnectError::TimedOut { peer, awaited: "request", after });
        }
    }

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
    /// revision 2 uses. The peer may have given up meanwhile.
    ///
    /// # Errors
    /// The private data is too long, or the system has not sent it.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let reply = reject(&self.request, private_data.to_vec()).encode().map_err(ConnectError::Option)?;
        answer(&self.socket, &reply).map_err(|error| error.of(self.peer, "connection"))
    }

    pub(super) fn into_parts(self) -> (Socket, SetupFrame) {
        (self.socket, self.request)
    }
}
