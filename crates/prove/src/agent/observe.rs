//! Counts the packets that pass this host, by flow and direction.

use std::{
    collections::{HashMap, HashSet},
    io::ErrorKind,
    net::{IpAddr, SocketAddr},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_netlink::RouteSocket;
use clearstream_schema::control::{Failure, FailureKind};
use clearstream_sys::{packet_socket::PacketSocket, socket::force_receive_buffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::calls::{MOST_OBSERVED_PORTS, Observation, Observe, ObservedFlow, Passed, WireProtocol};

/// Receive buffer; queued packets take about 1 KiB each.
const BUFFER_BYTES: usize = 32 << 20;
/// Maximum number of flows.
const MOST_FLOWS: usize = 100_000;
/// Maximum duration of an observation.
const MOST_SECONDS: u32 = 900;
/// Interval at which the thread polls its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Counts until it is finished, times out or is dropped.
#[derive(Debug)]
pub(super) struct Observer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Observation>>,
}

impl Observer {
    pub(super) fn open(what: &Observe) -> Result<Self, Failure> {
        if what.ports.is_empty() || what.ports.len() > MOST_OBSERVED_PORTS {
            let text = format!("name 1 to {MOST_OBSERVED_PORTS} ports to observe");
            return Err(Failure::new(FailureKind::Invalid, text));
        }
        let interfaces = numbers(&what.interfaces)?;
        let socket = PacketSocket::open(&what.ports).map_err(|error| match error.kind() {
            ErrorKind::PermissionDenied => Failure::new(
                FailureKind::Unsupported,
                "observing packets needs CAP_NET_RAW: run the agent as root on gateways",
            ),
            _ => Failure::of_system("observe packets", &error),
        })?;
        // Without CAP_NET_ADMIN the default size remains; dropped packets are counted.
        let _ = force_receive_buffer(&socket, BUFFER_BYTES);
        let stop = Arc::new(AtomicBool::new(false));
        let state = State {
            socket,
            ports: what.ports.iter().copied().collect(),
            interfaces,
            until: Instant::now() + Duration::from_secs(what.seconds.min(MOST_SECONDS).into()),
            stop: Arc::clone(&stop),
            flows: HashMap::new(),
            truncated: false,
        };
        let thread = std::thread::Builder::new()
            .name("route-observe".into())
            .spawn(move || state.run())
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the observation and returns its result.
    pub(super) fn finish(mut self) -> Result<Observation, Failure> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.take().and_then(|thread| thread.join().ok());
        seen.ok_or_else(|| Failure::new(FailureKind::Internal, "the observing thread has died"))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its result is no longer needed.
            let _ = thread.join();
        }
    }
}

/// Numbers of interfaces; empty for all.
fn numbers(names: &[String]) -> Result<HashSet<u32>, Failure> {
    if names.is_empty() {
        return Ok(HashSet::new());
    }
    let refused = |error| Failure::new(FailureKind::Unsupported, format!("read interfaces: {error}"));
    let known = RouteSocket::open().and_then(|mut socket| socket.interfaces()).map_err(refused)?;
    names
        .iter()
        .map(|name| {
            let found = known.iter().find(|interface| interface.name == *name);
            found.map(|interface| interface.index).ok_or_else(|| {
                Failure::new(FailureKind::Invalid, format!("this host has no interface \"{name}\""))
            })
        })
        .collect()
}

struct State {
    socket: PacketSocket,
    ports: HashSet<u16>,
    interfaces: HashSet<u32>,
    until: Instant,
    stop: Arc<AtomicBool>,
    flows: HashMap<Flow, [Passed; 2]>,
    truncated: bool,
}

/// Client, server, protocol.
type Flow = (SocketAddr, SocketAddr, WireProtocol);

impl State {
    fn run(mut self) -> Observation {
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        loop {
            // Read first: packets queued before the stop request count.
            let last = self.stop.load(Ordering::Relaxed) || Instant::now() >= self.until;
            self.take_all();
            if last {
                return self.observation();
            }
            let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
            // An interruption is treated like a timeout.
            let _ = poll(&mut polled, Some(&timeout));
        }
    }

    fn take_all(&mut self) {
        let mut buffer = [0; 128];
        loop {
            match self.socket.receive(&mut buffer) {
                Ok(Some(packet)) => {
                    if !self.interfaces.is_empty() && !self.interfaces.contains(&packet.interface_index) {
                        continue;
                    }
                    if let Some((source, destination, protocol)) = read_flow(&buffer[..packet.length]) {
                        self.count(source, destination, protocol, packet.outgoing);
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // An interface went down (ENETDOWN), reported once.
                Err(_) => {
                    if self.until <= Instant::now() || self.stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        }
    }

    fn count(&mut self, source: SocketAddr, destination: SocketAddr, protocol: WireProtocol, outgoing: bool) {
        let forward = self.ports.contains(&destination.port());
        let flow = if forward { (source, destination, protocol) } else { (destination, source, protocol) };
        if self.flows.len() >= MOST_FLOWS && !self.flows.contains_key(&flow) {
            self.truncated = true;
            return;
        }
        let passed = &mut self.flows.entry(flow).or_default()[usize::from(!forward)];
        let counter = if outgoing { &mut passed.out_count } else { &mut passed.in_count };
        *counter = counter.saturating_add(1);
    }

    fn observation(self) -> Observation {
        let mut flows: Vec<ObservedFlow> = self
            .flows
            .into_iter()
            .map(|((client, server, protocol), [forward, reply])| ObservedFlow {
                client,
                server,
                protocol,
                forward,
                reply,
            })
            .collect();
        flows.sort_unstable_by_key(|flow| (flow.client, flow.server, flow.protocol));
        let lost_count = self.socket.take_lost_count().ok();
        Observation { flows, lost_count, truncated: self.truncated, more: false }
    }
}

/// Source, destination and protocol of a packet that begins with its IP header
/// (RFC 791 section 3.1, RFC 8200 section 3; ports are the first four bytes of
/// TCP and of UDP).
pub(super) fn read_flow(packet: &[u8]) -> Option<(SocketAddr, SocketAddr, WireProtocol)> {
    let (protocol, source, destination, header): (u8, IpAddr, IpAddr, usize) = match packet.first()? >> 4 {
        4 => {
            let address = |at: usize| packet.get(at..)?.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes));
            (*packet.get(9)?, address(12)?, address(16)?, usize::from(packet[0] & 0xf) * 4)
        }
        6 => {
            let address = |at: usize| packet.get(at..)?.first_chunk::<16>().map(|bytes| IpAddr::from(*bytes));
            (*packet.get(6)?, address(8)?, address(24)?, 40)
        }
        _ => return None,
    };
    let protocol = match protocol {
        6 => WireProtocol::Tcp,
        17 => WireProtocol::Udp,
        _ => return None,
    };
    let port = |at: usize| packet.get(at..)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes));
    Some((SocketAddr::new(source, port(header)?), SocketAddr::new(destination, port(header + 2)?), protocol))
}
