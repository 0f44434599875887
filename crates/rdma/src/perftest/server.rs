//! Server of perftest's protocol: the client is one of its programs.
//!
//! One client is served at a time. Clients do not announce the number of
//! messages: a message on the control connection ends a run.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{AcceptOptions, Incoming, Listener, Rnic, RnicOptions};
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation, RdmaProgress, RdmaRate};

use super::{
    Program,
    client::destinations,
    control::{CONTROL_REPLY_TIMEOUT, Control, Received},
    format::{DESTINATION_BYTES, Destination, Report, VALUE_BYTES, VALUES},
    layout,
};
use crate::{
    blocking::STOP_POLL_INTERVAL,
    data_queue_pairs::{DataQueuePairs, Role, open_rnic},
    error::RdmaError,
    generator::{Conventions, Credits, Generator, Load},
    negotiation::RemoteMemory,
    samples::nanoseconds,
    silence::{SILENCE_LIMIT, Silence},
};

/// Maximum time from the close of the data connections to that of the control
/// connection.
const CONTROL_CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time without a message before a server stops draining.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum wait for the graceful close of the control connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of polls while connections close.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of a client's outstanding Reads: as many as perftest requests
/// on Linux' siw.
const READS: u16 = 128;
/// Maximum size of a client's cycle buffer.
const MAX_CYCLE_BYTES: u64 = 2 << 20;
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// Options of a server.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Emulated program.
    pub program: Program,
    /// Size of the largest message; of all messages with `ib_write_lat`.
    pub size_bytes: u64,
    /// Number of queue pairs of a client.
    pub queue_pairs: u16,
    /// Number of receives on each of them.
    pub receives: u32,
    /// Number of messages of `ib_write_lat`.
    pub iterations: u64,
    /// Progress mode.
    pub progress: RdmaProgress,
    /// Stop after the first client.
    pub once: bool,
}

/// Events of a server.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client has connected. Its session ends with one of the other events,
    /// or with the server.
    Started {
        /// Address of the client.
        peer: SocketAddr,
    },
    /// A client has disconnected.
    Served {
        /// Address of the client.
        peer: SocketAddr,
        /// Its measurement.
        served: Served,
    },
    /// Serving a client failed.
    Failed {
        /// Address of the client.
        peer: SocketAddr,
        /// Cause.
        error: RdmaError,
    },
}

/// A client's measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Program.
    pub program: Program,
    /// Number of queue pairs.
    pub queue_pairs: u16,
    /// Counted results, by size.
    pub runs: Vec<RdmaRate>,
    /// Results reported by the client.
    pub report: Option<Report>,
}

/// A listening endpoint.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    options: ServerOptions,
}

impl Server {
    /// Binds and listens; port 0 selects a free port.
    ///
    /// # Errors
    /// Invalid options, an address that is in use or not local.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> Result<Self, RdmaError> {
        options.check()?;
        // Memory that cannot be registered is an error before any client
        // connects.
        drop(options.queue_pairs(0)?);
        let rnic = Rnic::open(RnicOptions::default())?;
        let listener =
            Listener::bind(&rnic, address).map_err(|source| RdmaError::Listen { address, source })?;
        Ok(Self { listener, options })
    }

    /// Returns the address that the server listens on.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Serves one client after the other until the stop flag is set, or, with
    /// `once`, one.
    ///
    /// # Errors
    /// An error of the listening socket.
    pub fn run(&self, stop: &AtomicBool, report: &dyn Fn(ServerEvent)) -> Result<(), RdmaError> {
        while !stop.load(Ordering::Relaxed) {
            let Some(request) = self.listener.accept(Some(STOP_POLL_INTERVAL))? else { continue };
            let peer = request.peer;
            report(ServerEvent::Started { peer });
            match self.serve(request, stop) {
                Ok(served) => report(ServerEvent::Served { peer, served }),
                Err(RdmaError::Stopped) => break,
                Err(error) => report(ServerEvent::Failed { peer, error }),
            }
            if self.options.once {
                break;
            }
        }
        Ok(())
    }

    /// Serves the client of this control connection.
    fn serve(&self, request: Incoming, stop: &AtomicBool) -> Result<Served, RdmaError> {
        let (peer, program) = (request.peer, self.options.program);
        let mut control = Control::open(Role::Server)?;
        control.accept(request)?;
        let cycle_bytes = control.exchange_parameters(stop)?;
        let mut pairs = self.options.queue_pairs(cycle_bytes)?;
        pairs.fill_memory(1);
        control.synchronize(stop)?;
        self.accept(&mut pairs, peer, stop)?;
        control.synchronize(stop)?;
        let reads = if program.operation == RdmaOperation::Read { READS } else { 0 };
        let own = destinations(&pairs, None, reads);
        let remote = control.exchange_destinations(program, &own, stop)?;
        let generator = self.options.generator(&pairs, remote);
        let served =
            Served { program, queue_pairs: self.options.queue_pairs, runs: Vec::new(), report: None };
        let own = own.first().copied().unwrap_or_default();
        let mut session = Session { control, pairs, generator, own, served, value_count: 0 };
        session.run(stop)?;
        session.pairs.close();
        session.control.close(CLOSE_TIMEOUT);
        Ok(session.served)
    }

    /// Accepts the data connections of a client.
    fn accept(
        &self,
        pairs: &mut DataQueuePairs,
        peer: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<(), RdmaError> {
        let options = AcceptOptions {
            ird: READS,
            ord: READS,
            // ib_write_lat's server writes first, and its client waits for
            // that.
            send_first: self.options.program.is_write_latency(),
            ..AcceptOptions::default()
        };
        let since = Instant::now();
        let mut next = 0;
        while !pairs.all_connected() {
            match self.listener.accept(Some(STOP_POLL_INTERVAL))? {
                Some(request) if request.peer.ip() == peer.ip() => {
                    pairs.accept(next, request, &options)?;
                    next += 1;
                }
                Some(request) => drop(request.reject(b"busy with another client: try again later")),
                None if stop.load(Ordering::Relaxed) => return Err(RdmaError::Stopped),
                None if since.elapsed() > CONTROL_REPLY_TIMEOUT => {
                    let expected = self.options.queue_pairs;
                    return Err(RdmaError::Lost {
                        peer,
                        reason: format!(
                            "{next} of {expected} queue pairs were connected; give both sides the same -q"
                        ),
                    });
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl ServerOptions {
    fn check(&self) -> Result<(), RdmaError> {
        let fail = |reason: String| Err(RdmaError::Option(reason));
        if self.program.latency && self.queue_pairs != 1 {
            return fail(format!("{} has one queue pair: leave --queue-pairs out", self.program.name()));
        }
        if self.queue_pairs == 0 || self.receives == 0 {
            return fail("a server needs at least one queue pair with one receive".to_owned());
        }
        if !(1..=MAX_MESSAGE_BYTES).contains(&self.size_bytes) {
            return fail("--size: choose 1 B to 1 GiB".to_owned());
        }
        Ok(())
    }

    /// Creates queue pairs and memory for a client with a cycle buffer of this
    /// size.
    fn queue_pairs(&self, cycle_bytes: u32) -> Result<DataQueuePairs, RdmaError> {
        let cycle_bytes = u64::from(cycle_bytes).min(MAX_CYCLE_BYTES);
        let config = RdmaConfig { progress: self.progress, ..RdmaConfig::default() };
        let layout = layout(self.size_bytes.max(cycle_bytes), self.receives, self.queue_pairs);
        DataQueuePairs::new(&open_rnic(self.progress, None)?, &config, layout, Role::Server)
    }

    /// Creates the server's load generator: receives Sends, echoes messages, or
    /// only makes progress where progress is inline.
    fn generator(&self, pairs: &DataQueuePairs, remote: Vec<RemoteMemory>) -> Generator {
        let Program { operation, latency } = self.program;
        let load = Load { operation, latency, bidirectional: false, immediate: false };
        let credits = match (operation, latency) {
            (RdmaOperation::Send, false) => Credits::into_counters(pairs),
            _ => Credits::unneeded(pairs),
        };
        let generator = Generator::new(pairs, Role::Server, load, remote, Conventions::Perftest, credits);
        let mut generator = match (operation, latency) {
            (RdmaOperation::Send, false) => generator.counting_received(),
            (RdmaOperation::Write, true) => generator.limiting_replies(self.iterations),
            _ => generator,
        };
        // ib_send_lat echoes messages of any size.
        let is_known = self.program.is_write_latency();
        generator.begin(if is_known { self.size_bytes } else { 0 });
        generator
    }
}

/// Measurement of one client.
struct Session {
    control: Control,
    pairs: DataQueuePairs,
    generator: Generator,
    own: Destination,
    served: Served,
    /// Number of report values received.
    value_count: usize,
}

impl Session {
    /// Serves until the client has disconnected.
    fn run(&mut self, stop: &AtomicBool) -> Result<(), RdmaError> {
        let mut began = Instant::now();
        let mut silence = Silence::new(SILENCE_LIMIT);
        loop {
            let is_busy = match self.generator.step(&mut self.pairs) {
                Ok(is_busy) => is_busy,
                // The data connections close before the control connection
                // does.
                Err(error) => return self.wait_for_close(began, error),
            };
            if is_busy || !self.pairs.idle()? {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(RdmaError::Stopped);
            }
            match self.control.try_receive()? {
                Received::Nothing => silence.check(&self.pairs)?,
                Received::Closed => {
                    self.drain();
                    self.count(began);
                    return Ok(());
                }
                Received::Message(message) => {
                    silence.broken();
                    if message.len() == DESTINATION_BYTES {
                        self.run_ended(began);
                    }
                    self.reply(&message)?;
                    began = Instant::now();
                }
            }
        }
    }

    /// The client ends or begins a run. Data of the run may arrive later, on
    /// the other connections.
    fn run_ended(&mut self, began: Instant) {
        self.generator.peer_finished();
        if self.generator.received().is_none() {
            self.count(began);
        }
    }

    /// Receives Sends in flight after the client has disconnected: until the
    /// data connections are closed, or the timeout expires.
    fn drain(&mut self) {
        if self.generator.received().is_none() {
            return;
        }
        let mut last = Instant::now();
        while last.elapsed() < DRAIN_TIMEOUT {
            match self.generator.step(&mut self.pairs) {
                Ok(true) => last = Instant::now(),
                Ok(false) => std::thread::sleep(CLOSE_POLL_INTERVAL),
                Err(_) => return,
            }
        }
    }

    fn reply(&mut self, message: &[u8]) -> Result<(), RdmaError> {
        if let Ok(value) = <[u8; VALUE_BYTES]>::try_from(message) {
            self.served.report.get_or_insert_default().set(self.value_count, value);
            self.value_count = (self.value_count + 1) % VALUES;
            return self.control.send(message);
        }
        match message.len() {
            DESTINATION_BYTES => self.control.send(&self.own.encode()),
            other => Err(self.control.unexpected_length(other)),
        }
    }

    /// Stores the counters: received messages of each run, or the messages
    /// echoed.
    fn count(&mut self, began: Instant) {
        if let Some(rates) = self.generator.received() {
            self.served.runs = rates;
        } else if self.served.runs.is_empty() && self.served.program.latency {
            let count = self.generator.measured().message_count;
            if count > 0 {
                let (size, elapsed) = (self.generator.message_bytes(), nanoseconds(began.elapsed()));
                self.served.runs.push(RdmaRate::new(count, size, elapsed));
            }
        }
    }

    /// Handles the close of the data connections: graceful if the control
    /// connection closes too.
    fn wait_for_close(&mut self, began: Instant, error: RdmaError) -> Result<(), RdmaError> {
        self.generator.peer_closed(&self.pairs);
        let since = Instant::now();
        while since.elapsed() < CONTROL_CLOSE_TIMEOUT {
            match self.control.try_receive()? {
                Received::Closed => {
                    self.count(began);
                    return Ok(());
                }
                Received::Message(message) => self.reply(&message)?,
                Received::Nothing => std::thread::sleep(CLOSE_POLL_INTERVAL),
            }
        }
        Err(error)
    }
}
