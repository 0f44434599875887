//! Listening: peers' requests in the order in which they are complete.

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
    mpa::{Kind, SetupFrame, refuse},
    rnic::{
        ConnectError, Rnic, VerbsError, after,
        channel::{self, readable},
        device::Device,
        locked,
        setup::{FrameReader, Trouble, connected, send_all, socket},
    },
};

/// Connections that the kernel keeps until they are taken.
const BACKLOG: i32 = 1024;
/// Peers whose request is awaited at a time; the oldest gives way.
const MOST_PENDING: usize = 1024;
/// Failures that are remembered.
const MOST_FAILURES: usize = 64;
/// What the epoll calls the listening socket; peers count up from 1.
const LISTENING: u64 = 0;

/// A listening endpoint. A peer that is silent, garbles its request or leaves
/// is dropped and holds up no other ([`Listener::failures`] tells). Its
/// descriptor is readable when [`Listener::accept`] has something to do.
#[derive(Debug)]
pub struct Listener {
    device: Arc<Device>,
    socket: Socket,
    address: SocketAddr,
    epoll: OwnedFd,
    /// Peers of other addresses are dropped when the kernel has them.
    only: Option<IpAddr>,
    state: Mutex<Peers>,
}

#[derive(Debug, Default)]
struct Peers {
    last: u64,
    /// By number, which is the order of their time limits too.
    pending: BTreeMap<u64, Pending>,
    /// At most one: what is not taken keeps the descriptor readable for others.
    complete: Option<Incoming>,
    failures: VecDeque<ConnectError>,
    ready: Vec<u64>,
}

/// A peer whose request is not complete.
#[derive(Debug)]
struct Pending {
    socket: Socket,
    peer: SocketAddr,
    request: FrameReader,
    end: Instant,
}

impl Listener {
    /// Binds and listens; port 0 takes a free one.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(rnic: &Rnic, address: SocketAddr) -> Result<Self, VerbsError> {
        let failed = |source| VerbsError::System { step: "listen", source };
        let listen = || -> io::Result<_> {
            let socket = socket(address, &rnic.device.options)?;
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            let address = socket.local_addr()?.as_socket().unwrap_or(address);
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(LISTENING), epoll::EventFlags::IN)?;
            Ok((socket, address, epoll))
        };
        let (socket, address, epoll) = listen().map_err(failed)?;
        Ok(Self { device: rnic.device.clone(), socket, address, epoll, only: None, state: Mutex::default() })
    }

    /// Admits peers of one address from now on: those of others are closed before
    /// a byte of theirs is read.
    pub fn admit_only(&mut self, peer: IpAddr) {
        self.only = Some(peer.to_canonical());
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// The next complete request; waits up to `timeout` (`None`: for ever).
    /// The time limits of silent peers are looked at here too.
    ///
    /// # Errors
    /// The system's, as when there are no descriptors left.
    pub fn accept(&self, timeout: Option<Duration>) -> Result<Option<Incoming>, VerbsError> {
        let end = timeout.map(after);
        loop {
            let next = {
                let mut peers = locked(&self.state);
                let looked = self.look(&mut peers);
                if let Some(incoming) = peers.complete.take() {
                    return Ok(Some(incoming));
                }
                looked.map_err(|source| VerbsError::System { step: "accept", source })?;
                peers.pending.values().next().map(|pending| pending.end)
            };
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(None);
            }
            readable(self.epoll.as_fd(), end.into_iter().chain(next).min());
        }
    }

    /// What became of peers that never had a complete request since the last
    /// call, the latest 64.
    pub fn failures(&self) -> Vec<ConnectError> {
        locked(&self.state).failures.drain(..).collect()
    }

    fn look(&self, peers: &mut Peers) -> io::Result<()> {
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

    /// Takes the connections that the kernel has, up to the first whose request
    /// is complete.
    fn take(&self, peers: &mut Peers) -> io::Result<()> {
        while peers.complete.is_none() {
            let (socket, peer) = match self.socket.accept() {
                Ok((socket, peer)) => (socket, peer),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // Gone before it was taken (accept(2)).
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
                    // Known to be there.
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
                    return peers.fail(Trouble::System(error.into()).of(peer, "request"));
                }
                peers.pending.insert(number, pending);
                if peers.pending.len() > MOST_PENDING
                    && let Some((_, Pending { peer, end, .. })) = peers.pending.pop_first()
                {
                    let left = end.saturating_duration_since(Instant::now());
                    let after = self.device.options.request_timeout.saturating_sub(left);
                    peers.fail(ConnectError::TimedOut { peer, awaited: "request", after });
                }
            }
            Err(trouble) => peers.fail(trouble.of(peer, "request")),
        }
    }
}

impl Peers {
    fn fail(&mut self, error: ConnectError) {
        if self.failures.len() == MOST_FAILURES {
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

/// A peer's request. Give it to `accept` of a queue pair, or reject it;
/// dropped, the connection is closed without a reply.
#[derive(Debug)]
pub struct Incoming {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// What the peer's program had to say.
    pub private_data: Vec<u8>,
    /// MPA revision.
    pub revision: u8,
    /// The peer wants CRC32C.
    pub crc: bool,
    /// The peer wants markers in what it receives.
    pub markers: bool,
    /// How many Reads the peer takes at a time, if it says (RFC 6581).
    pub ird: Option<u16>,
    /// How many Reads the peer wants outstanding, if it says.
    pub ord: Option<u16>,
    /// The peer wants a connection on which either side may send first.
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

    /// Refuses, with a word of why: up to 512 bytes, 4 of which revision 2
    /// needs.
    ///
    /// # Errors
    /// The word is too long, or the peer is gone.
    pub fn reject(self, private_data: &[u8]) -> Result<(), ConnectError> {
        let reply = refuse(&self.request, private_data.to_vec()).encode().map_err(ConnectError::Option)?;
        send_all(&self.socket, &reply).map_err(|trouble| trouble.of(self.peer, "connection"))
    }

    pub(super) fn into_parts(self) -> (Socket, SetupFrame) {
        (self.socket, self.request)
    }
}
