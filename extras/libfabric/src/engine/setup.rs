//! Connection setup: a peer is connected to when the first message is sent to it.
//!
//! A thread sleeps on the listener and on setups under way. It leaves the work to a thread that drives the endpoint, and
//! does it itself when none has for a moment; so it does with Sends that wait ([`super::attention`]). When two endpoints
//! connect to each other at once, the connection of the one with the lower address is kept.

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
    AcceptOptions, ConnectOptions, Incoming, Listener,
    raw::{QueuePair, QueuePairOptions},
};
use rustix::event::{Timespec, epoll};

use super::{
    Core, Engine,
    peer::{BUFFER_BYTES, CREDITS, Peer, Phase, READS, SEND_DEPTH, SPARE},
};
use crate::{abi::*, completion::locked};

/// First bytes of the private data of a connection: protocol and version, byte order.
const MAGIC: [u8; 8] = *b"csfi\x02\0\0\0";
const ORDER: u32 = 0x0102_0304;
/// Time that the thread leaves the work to others.
const TICK: Duration = Duration::from_millis(1);
/// Time that it sleeps without work.
const IDLE_TICK: Duration = Duration::from_millis(100);
/// Descriptors that it sleeps on: listener and connections, and that of [`super::attention`].
const SETUP: epoll::EventData = epoll::EventData::new_u64(0);
const DOORBELL: epoll::EventData = epoll::EventData::new_u64(1);
/// Time in which a peer that rejected a connection for its own one has that one set up.
const AWAITED: Duration = Duration::from_secs(10);

/// Private data: who connects, and the credits that both sides must agree on.
fn introduction(address: SocketAddrV4) -> Vec<u8> {
    let mut data = MAGIC.to_vec();
    data.extend_from_slice(&ORDER.to_ne_bytes());
    data.extend_from_slice(&address.ip().octets());
    data.extend_from_slice(&address.port().to_be_bytes());
    data.extend_from_slice(&CREDITS.to_be_bytes());
    data
}

/// Reads the address of an introduction; `None` if the peer speaks another protocol or grants other credits.
fn introduced(data: &[u8]) -> Option<SocketAddrV4> {
    let ip: [u8; 4] = data.get(12..16)?.try_into().ok()?;
    let port = u16::from_be_bytes(data.get(16..18)?.try_into().ok()?);
    let address = SocketAddrV4::new(Ipv4Addr::from(ip), port);
    data.starts_with(&introduction(address)).then_some(address)
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
    /// The address is in use, or not of this host.
    pub fn start(self: &Arc<Self>) -> Result<(), i32> {
        let mut engine = locked(&self.state);
        if engine.listener.is_some() {
            return Ok(());
        }
        let address = SocketAddr::V4(engine.address);
        let listener = Listener::bind(&engine.rnic, address).map_err(|_| FI_EADDRNOTAVAIL)?;
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

    /// Adds a peer, or replaces the queue pair of one.
    fn place(&mut self, at: Option<usize>, address: SocketAddrV4, phase: Phase) -> Option<usize> {
        let (pair, buffers) = self.pair()?;
        let number = pair.id().0 as usize;
        let peer = at.unwrap_or(self.peers.len());
        if let Some(of) = self.peers.get_mut(peer) {
            // What the old one still reports concerns nobody.
            if let Some(old) = &of.pair {
                self.by_pair[old.id().0 as usize] = None;
            }
            (of.phase, of.pair, of.buffers) = (phase, Some(pair), buffers);
        } else {
            self.peers.push(Peer {
                address,
                number: FI_ADDR_UNSPEC,
                phase,
                pair: Some(pair),
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

    /// Starts the connection to a peer.
    pub(super) fn connect(&mut self, address: SocketAddrV4) -> Result<usize, i32> {
        let peer = self.place(None, address, Phase::Awaited(Instant::now())).ok_or(FI_ENOMEM)?;
        self.by_address.insert(address, peer);
        let options = ConnectOptions {
            private_data: introduction(self.address),
            ird: READS,
            ord: READS,
            crc: false,
            large_fpdus: true,
            peer_to_peer: true,
            // The peer is this library.
            settle: Some(Duration::ZERO),
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
                Ok(Some(_)) => self.begin(peer),
                // The peer keeps its own connection to this side, which it has begun.
                Err(clearstream_iwarp::verbs::ConnectError::Rejected { .. }) => {
                    self.peers[peer].phase = Phase::Awaited(Instant::now());
                }
                Err(error) => {
                    report(format_args!("no connection to {}: {error}", self.peers[peer].address));
                    self.fail(peer);
                }
            }
        }
    }

    /// Gives up peers that rejected this side's connection and did not set up their own.
    fn expire_awaited(&mut self) {
        for peer in 0..self.peers.len() {
            if matches!(self.peers[peer].phase, Phase::Awaited(since) if since.elapsed() > AWAITED) {
                self.fail(peer);
            }
        }
    }

    fn accept(&mut self, incoming: Incoming) {
        let Some(address) = introduced(&incoming.private_data) else {
            // Not of this provider: it is rejected, as far as its connection allows.
            let _ = incoming.reject(&[]);
            return;
        };
        let known = if address == self.address { None } else { self.by_address.get(&address).copied() };
        let keeps_own = known.is_some_and(|peer| match self.peers[peer].phase {
            Phase::Connecting(_) => self.address < address,
            Phase::Awaited(_) => false,
            Phase::Connected | Phase::Failed => true,
        });
        if keeps_own {
            let _ = incoming.reject(&[]);
            return;
        }
        let Some(peer) = self.place(known, address, Phase::Awaited(Instant::now())) else { return };
        if address != self.address {
            self.by_address.insert(address, peer);
        }
        let options = AcceptOptions { ird: READS, ord: READS, ..AcceptOptions::default() };
        let accepted = self.peers[peer].pair.as_ref().map(|pair| pair.accept(incoming, &options));
        if matches!(accepted, Some(Ok(_))) { self.begin(peer) } else { self.fail(peer) }
    }

    /// A connection is set up: what waited for it is sent.
    fn begin(&mut self, peer: usize) {
        if self.settings.traced {
            let (own, other, process) = (self.address, self.peers[peer].address, std::process::id());
            report(format_args!("connections by RDMA: 1, {own} with {other}, process {process}"));
        }
        self.peers[peer].phase = Phase::Connected;
        self.transmit(peer);
    }
}
