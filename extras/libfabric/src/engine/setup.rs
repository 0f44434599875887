//! Connection setup: a peer is connected to when the first message is sent to it.
//!
//! A thread sleeps on the listener and on setups under way. It leaves the work to a thread that drives the endpoint, and
//! does it itself when none has for a moment; so it does with Sends that wait ([`super::attention`]). When two endpoints
//! connect to each other at once, the connection of the one with the lower address is kept.
//!
//! A request from a peer whose connection is set up is of that kind, late, or the peer has lost that connection: by its
//! end, which this side has not noticed yet, or because it is another process at the same address. Private data of both
//! frames tells them apart: it names the process, and counts the connections that its side has seen to end.

use std::{
    fmt::Arguments,
    io::{self, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{
    AcceptOptions, ConnectError, ConnectOptions, Incoming, Listener, VerbsError,
    raw::{QueuePair, QueuePairOptions},
};
use rustix::event::{Timespec, epoll};

use super::{
    Core, Engine,
    peer::{BUFFER_BYTES, CREDITS, Peer, Phase, READS, SEND_DEPTH, SPARE},
};
use crate::{abi::*, completion::locked};

/// First bytes of the private data of a connection: protocol and version, byte order.
const MAGIC: [u8; 8] = *b"csfi\x03\0\0\0";
const ORDER: u32 = 0x0102_0304;
/// Time that the thread leaves the work to others.
const TICK: Duration = Duration::from_millis(1);
/// Time that it sleeps without work.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Descriptors that it sleeps on: listener and connections, and that of [`super::attention`].
const SETUP: epoll::EventData = epoll::EventData::new_u64(0);
const DOORBELL: epoll::EventData = epoll::EventData::new_u64(1);
/// Time after which a peer that rejected a connection for its own one is connected to again: that may have led to a
/// process that is gone.
const AGAIN: Duration = Duration::from_millis(200);
/// Polls for what arrived over a connection that its peer has lost: others may keep the queue full.
const DRAIN_POLLS: u32 = 1024;
/// Rejections after which it is given up.
const REJECTIONS_MAX: u32 = 50;

/// Private data of both frames of a setup: who connects, with what, and what it knows of earlier connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Introduction {
    address: SocketAddrV4,
    incarnation: u64,
    generation: u32,
}

impl Introduction {
    fn bytes(&self) -> Vec<u8> {
        let mut data = MAGIC.to_vec();
        data.extend_from_slice(&ORDER.to_ne_bytes());
        // Both sides must agree on the credits.
        data.extend_from_slice(&CREDITS.to_be_bytes());
        data.extend_from_slice(&self.address.port().to_be_bytes());
        data.extend_from_slice(&self.address.ip().octets());
        data.extend_from_slice(&self.generation.to_be_bytes());
        data.extend_from_slice(&self.incarnation.to_be_bytes());
        data
    }

    /// `None` if the peer speaks another protocol or grants other credits.
    fn read(data: &[u8]) -> Option<Self> {
        let port = u16::from_be_bytes(data.get(14..16)?.try_into().ok()?);
        let ip: [u8; 4] = data.get(16..20)?.try_into().ok()?;
        let generation = u32::from_be_bytes(data.get(20..24)?.try_into().ok()?);
        let incarnation = u64::from_be_bytes(data.get(24..32)?.try_into().ok()?);
        let read = Self { address: SocketAddrV4::new(Ipv4Addr::from(ip), port), incarnation, generation };
        data.starts_with(&read.bytes()).then_some(read)
    }
}

/// Writes a line to standard error.
fn report(line: Arguments<'_>) {
    // Without standard error there is no reader.
    let _ = writeln!(io::stderr(), "clearstream-fabric: {line}");
}

impl Core {
    /// Listens, and starts the setup thread.
    ///
    /// # Errors
    /// `EADDRINUSE`, or `EADDRNOTAVAIL` where the address is not of this host.
    pub fn start(self: &Arc<Self>) -> Result<(), i32> {
        let mut engine = locked(&self.state);
        if engine.listener.is_some() {
            return Ok(());
        }
        let address = SocketAddr::V4(engine.address);
        let listener = Listener::bind(&engine.rnic, address).map_err(|error| match error {
            VerbsError::System { source, .. } if source.kind() == io::ErrorKind::AddrInUse => FI_EADDRINUSE,
            _ => FI_EADDRNOTAVAIL,
        })?;
        engine.address.set_port(listener.local_address().port());
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|_| FI_ENOMEM)?;
        epoll::add(&watch, &listener, SETUP, epoll::EventFlags::IN).map_err(|_| FI_ENOMEM)?;
        let doorbell = engine.attention.doorbell.clone();
        epoll::add(&watch, &*doorbell, DOORBELL, epoll::EventFlags::IN).map_err(|_| FI_ENOMEM)?;
        let watch = Arc::new(watch);
        (engine.listener, engine.watch) = (Some(listener), Some(watch.clone()));
        let core = self.clone();
        let body = move || core.serve(&watch, &doorbell);
        let thread =
            thread::Builder::new().name("fabric-setup".to_owned()).spawn(body).map_err(|_| FI_ENOMEM)?;
        engine.thread = Some(thread);
        Ok(())
    }

    fn serve(&self, watch: &OwnedFd, doorbell: &OwnedFd) {
        let mut ready = Vec::with_capacity(2);
        let mut tick = None;
        while !self.stopped.load(Ordering::Acquire) {
            ready.clear();
            let limit = tick.unwrap_or(IDLE_TICK);
            let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
            // Interrupted: nothing is ready.
            let _ = epoll::wait(watch, rustix::buffer::spare_capacity(&mut ready), Some(&limit));
            if ready.iter().any(|event| event.data.u64() == SETUP.u64()) {
                self.news.store(true, Ordering::Release);
                thread::sleep(TICK);
                if self.news.swap(false, Ordering::AcqRel) {
                    locked(&self.state).advance_setups();
                }
            }
            if ready.iter().any(|event| event.data.u64() == DOORBELL.u64()) {
                let _ = rustix::io::read(doorbell, &mut [0_u8; 8]);
            }
            let mut engine = locked(&self.state);
            engine.expire_awaited();
            tick = engine.attend();
        }
    }
}

impl Engine {
    fn pair(&mut self) -> Option<(QueuePair, Box<[u8]>)> {
        let options = QueuePairOptions {
            send_depth: SEND_DEPTH,
            receive_depth: u32::from(CREDITS + SPARE),
            ..QueuePairOptions::new(&self.queue)
        };
        let pair = QueuePair::with_extended_receives(&self.domain, &options).ok()?;
        let buffers = vec![0; BUFFER_BYTES * usize::from(CREDITS + SPARE)].into_boxed_slice();
        Some((pair, buffers))
    }

    /// Adds a peer, or gives one a new queue pair.
    fn place(&mut self, at: Option<usize>, address: SocketAddrV4) -> Option<usize> {
        let (pair, buffers) = self.pair()?;
        let number = pair.id().0 as usize;
        let peer = at.unwrap_or(self.peers.len());
        let phase = Phase::Awaited(Instant::now());
        if let Some(of) = self.peers.get_mut(peer) {
            // What the old one still reports concerns nobody.
            if let Some(old) = of.pair.take() {
                self.by_pair[old.id().0 as usize] = None;
            }
            (of.phase, of.pair, of.buffers) = (phase, Some(pair), buffers);
            (of.credits, of.owed, of.holds, of.is_untold) = (CREDITS, 0, false, false);
        } else {
            self.peers.push(Peer {
                address,
                number: FI_ADDR_UNSPEC,
                phase,
                pair: Some(pair),
                incarnation: 0,
                generation: 0,
                is_lost: false,
                is_untold: false,
                rejections: 0,
                buffers,
                credits: CREDITS,
                owed: 0,
                held_bytes: 0,
                holds: false,
                pending: Default::default(),
                unsent_bytes: 0,
                put_at: u64::MAX,
                listed: false,
                reads: 0,
                reads_waiting: Default::default(),
                long: None,
            });
        }
        if self.by_pair.len() <= number {
            self.by_pair.resize(number + 1, None);
        }
        self.by_pair[number] = Some(peer);
        for slot in 0..usize::from(CREDITS + SPARE) {
            self.post_buffer(peer, slot);
        }
        Some(peer)
    }

    fn introduction(&self, peer: usize) -> Vec<u8> {
        let generation = self.peers[peer].generation;
        Introduction { address: self.address, incarnation: self.incarnation, generation }.bytes()
    }

    /// Starts the connection to a peer, a new one or one that is known.
    pub(super) fn connect(&mut self, at: Option<usize>, address: SocketAddrV4) -> Result<usize, i32> {
        let peer = self.place(at, address).ok_or(FI_ENOMEM)?;
        self.by_address.insert(address, peer);
        let options = ConnectOptions {
            private_data: self.introduction(peer),
            ird: READS,
            ord: READS,
            crc: false,
            large_fpdus: true,
            peer_to_peer: true,
            ..ConnectOptions::default()
        };
        let started =
            self.peers[peer].pair.as_ref().map(|pair| pair.start_connect(SocketAddr::V4(address), &options));
        match (started, &self.watch) {
            (Some(Ok(connecting)), Some(watch)) => {
                let watched = epoll::add(&**watch, connecting.as_fd(), SETUP, epoll::EventFlags::IN);
                self.peers[peer].phase = Phase::Connecting(Box::new(connecting));
                watched.map_err(|_| FI_ENOMEM)?;
            }
            _ => self.fail(peer),
        }
        Ok(peer)
    }

    /// Accepts requests, and advances own setups.
    pub(super) fn advance_setups(&mut self) {
        while let Some(Ok(Some(incoming))) =
            self.listener.as_ref().map(|listener| listener.accept(Some(Duration::ZERO)))
        {
            self.accept(incoming);
        }
        for peer in 0..self.peers.len() {
            let Phase::Connecting(connecting) = &mut self.peers[peer].phase else { continue };
            match connecting.advance() {
                Ok(None) => {}
                Ok(Some(established)) => match Introduction::read(&established.private_data) {
                    Some(introduction) => self.begin(peer, &introduction),
                    None => self.fail(peer),
                },
                // The peer keeps its own connection to this side, which it has begun.
                Err(ConnectError::Rejected { .. }) => {
                    let of = &mut self.peers[peer];
                    of.phase = Phase::Awaited(Instant::now());
                    of.rejections += 1;
                }
                Err(error) => {
                    // Once: each message to a peer that is gone tries again.
                    if self.peers[peer].generation == 0 {
                        report(format_args!("no connection to {}: {error}", self.peers[peer].address));
                    }
                    self.fail(peer);
                }
            }
        }
    }

    /// Connects again to peers that rejected this side's connection and did not set up their own, and gives them up at
    /// last.
    fn expire_awaited(&mut self) {
        for peer in 0..self.peers.len() {
            let of = &self.peers[peer];
            if !matches!(of.phase, Phase::Awaited(since) if since.elapsed() > AGAIN) {
                continue;
            }
            if of.rejections >= REJECTIONS_MAX || self.connect(Some(peer), of.address).is_err() {
                self.fail(peer);
            }
        }
    }

    /// Whether a request of a known peer is answered by the connection, or the attempt, that this side has.
    fn keeps_own(&self, peer: usize, request: &Introduction) -> bool {
        let of = &self.peers[peer];
        match of.phase {
            Phase::Connecting(_) => self.address < request.address,
            Phase::Connected => of.incarnation == request.incarnation && of.generation >= request.generation,
            Phase::Awaited(_) | Phase::Ended => false,
        }
    }

    /// Ends a connection that its peer has lost: what arrived before is taken first.
    fn replace(&mut self, peer: usize) {
        for _ in 0..DRAIN_POLLS {
            if !matches!(self.peers[peer].phase, Phase::Connected) || self.progress() == 0 {
                break;
            }
        }
        if matches!(self.peers[peer].phase, Phase::Connected) {
            self.fail(peer);
        }
    }

    fn accept(&mut self, incoming: Incoming) {
        let Some(introduction) = Introduction::read(&incoming.private_data) else {
            // Not of this provider: it is rejected, as far as its connection allows.
            let _ = incoming.reject(&[]);
            return;
        };
        let address = introduction.address;
        let known = if address == self.address { None } else { self.by_address.get(&address).copied() };
        if let Some(peer) = known {
            if self.keeps_own(peer, &introduction) {
                let _ = incoming.reject(&[]);
                return;
            }
            self.replace(peer);
        }
        let Some(peer) = self.place(known, address) else { return };
        if address != self.address {
            self.by_address.insert(address, peer);
        }
        self.peers[peer].meet(&introduction);
        let private_data = self.introduction(peer);
        let options = AcceptOptions { private_data, ird: READS, ord: READS, ..AcceptOptions::default() };
        let accepted = self.peers[peer].pair.as_ref().map(|pair| pair.accept(incoming, &options));
        if matches!(accepted, Some(Ok(_))) { self.begin(peer, &introduction) } else { self.fail(peer) }
    }

    /// A connection is set up: what waited for it is sent.
    fn begin(&mut self, peer: usize, introduction: &Introduction) {
        if self.settings.traced {
            let (own, other, process) = (self.address, self.peers[peer].address, std::process::id());
            report(format_args!("connections by RDMA: 1, {own} with {other}, process {process}"));
        }
        let of = &mut self.peers[peer];
        of.meet(introduction);
        (of.phase, of.is_lost, of.rejections) = (Phase::Connected, false, 0);
        self.transmit(peer);
    }
}

impl Peer {
    /// Takes over what the peer knows.
    fn meet(&mut self, introduction: &Introduction) {
        self.incarnation = introduction.incarnation;
        self.generation = self.generation.max(introduction.generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_introduction_is_read_as_it_was_written_and_another_is_refused() {
        let address = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 7), 7471);
        let known = Introduction { address, incarnation: 0x0102_0304_0506_0708, generation: 9 };
        let bytes = known.bytes();
        assert_eq!(Introduction::read(&bytes), Some(known));
        // Shorter by any byte, or of another protocol, version, byte order or number of credits.
        for length in 0..bytes.len() {
            assert_eq!(Introduction::read(&bytes[..length]), None);
        }
        for at in 0..14 {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(Introduction::read(&other), None, "byte {at}");
        }
    }
}
