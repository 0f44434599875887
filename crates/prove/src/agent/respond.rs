//! The listening side of the flows of a verification: responds to those that carry the
//! cookie, drops others.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use clearstream_admission::{Accepting, Limits, Proof, Strangers};
use clearstream_schema::control::{Failure, FailureKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{super::calls::Listen, MESSAGE_BYTES, REQUEST, RESPONSE, message, same};

/// Timeout of a connection: one without a request, or not closed, by then is dropped.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of connections without a request.
const STRANGERS_MAX: usize = 1024;
/// Maximum number of connections that have their response; others wait in the listen queue.
const KNOWN_MAX: usize = 1024;
/// Interval at which the thread polls its stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of addresses per request: aliases for each of many gateways.
const MOST_ADDRESSES: usize = 512;

/// Responds to flows until dropped.
#[derive(Debug)]
pub(super) struct Responder {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    pub(super) fn open(listen: &Listen) -> Result<Self, Failure> {
        let request = message(REQUEST, &listen.cookie)?;
        let response = message(RESPONSE, &listen.cookie)?;
        if listen.addresses.is_empty() || listen.addresses.len() > MOST_ADDRESSES {
            let text = format!("name 1 to {MOST_ADDRESSES} addresses to listen on");
            return Err(Failure::new(FailureKind::Invalid, text));
        }
        let mut port = listen.port;
        let mut listeners = Vec::new();
        for address in &listen.addresses {
            let here = SocketAddr::new(*address, port.unwrap_or(0));
            let fail = |error: io::Error| listen_failure(here, &error);
            let listener = TcpListener::bind(here).map_err(fail)?;
            listener.set_nonblocking(true).map_err(fail)?;
            port = Some(listener.local_addr().map_err(fail)?.port());
            listeners.push(listener);
        }
        let stop = Arc::new(AtomicBool::new(false));
        let state = State {
            listeners,
            strangers: Strangers::new(Limits::of_test(STRANGERS_MAX, KNOWN_MAX, TIMEOUT)),
            connections: Vec::new(),
            next: 0,
            request,
            response,
            stop: Arc::clone(&stop),
        };
        let thread = std::thread::Builder::new()
            .name("route-respond".into())
            .spawn(move || state.run())
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        Ok(Self { port: port.unwrap_or(0), stop, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}

fn listen_failure(here: SocketAddr, error: &io::Error) -> Failure {
    match error.kind() {
        ErrorKind::AddrInUse => Failure::new(FailureKind::InUse, format!("{here} is in use on this host")),
        ErrorKind::AddrNotAvailable => Failure::new(
            FailureKind::Invalid,
            format!("{} is no address of this host: apply the plan first", here.ip()),
        ),
        _ => Failure::of_system(&format!("listen on {here}"), error),
    }
}

struct Connection {
    number: u64,
    stream: TcpStream,
    received: Vec<u8>,
    until: Instant,
}

/// What became of a connection.
#[derive(PartialEq, Eq)]
enum Served {
    Incomplete,
    Responded,
    Closed,
}

struct State {
    listeners: Vec<TcpListener>,
    strangers: Strangers,
    connections: Vec<Connection>,
    next: u64,
    request: [u8; MESSAGE_BYTES],
    response: [u8; MESSAGE_BYTES],
    stop: Arc<AtomicBool>,
}

impl State {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.wait();
            self.accept();
            let (request, response, strangers) = (&self.request, &self.response, &mut self.strangers);
            let now = Instant::now();
            self.connections.retain_mut(|connection| {
                let stays = now < connection.until
                    && match connection.serve(request, response).unwrap_or(Served::Closed) {
                        Served::Incomplete => true,
                        // Too many at a time: this one was answered, and its client need not wait.
                        Served::Responded => strangers.prove(connection.number) == Proof::Known,
                        Served::Closed => false,
                    };
                if !stays {
                    strangers.leave(connection.number);
                }
                stays
            });
        }
    }

    fn wait(&mut self) {
        // While nothing can be accepted the listeners stay readable.
        let accepting = self.strangers.is_accepting(Instant::now());
        let listening = if accepting { &self.listeners[..] } else { &[] };
        let listeners = listening.iter().map(|listener| PollFd::new(listener, PollFlags::IN));
        let connections =
            self.connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = listeners.chain(connections).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        // An interruption is treated like a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn accept(&mut self) {
        let now = Instant::now();
        for listener in &self.listeners {
            for _ in 0..STRANGERS_MAX {
                if !self.strangers.is_accepting(now) {
                    return;
                }
                match listener.accept() {
                    Ok((stream, peer)) => {
                        if stream.set_nonblocking(true).is_err() {
                            continue;
                        }
                        self.next += 1;
                        let (number, until) = (self.next, now + TIMEOUT);
                        let mut connection = Connection { number, stream, received: Vec::new(), until };
                        // A request that is here already displaces nobody's.
                        let served = connection.serve(&self.request, &self.response);
                        if served.unwrap_or(Served::Closed) == Served::Closed {
                            continue;
                        }
                        let displaced = self.strangers.enter(number, peer.ip(), now);
                        self.connections.retain(|connection| Some(connection.number) != displaced);
                        self.connections.push(connection);
                    }
                    Err(error) => match self.strangers.refused(&error, now) {
                        Accepting::Again => {}
                        Accepting::Close(number) => {
                            self.connections.retain(|connection| connection.number != number);
                        }
                        Accepting::Later | Accepting::Pause => break,
                    },
                }
            }
        }
    }
}

impl Connection {
    /// Serves a connection. After the response it is kept open, so that the client closes it.
    fn serve(&mut self, request: &[u8], response: &[u8]) -> io::Result<Served> {
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(Served::Closed),
                Ok(length) => {
                    self.received.extend_from_slice(&buffer[..length]);
                    if self.received.len() > request.len() {
                        return Ok(Served::Closed);
                    }
                    if self.received.len() == request.len() {
                        if !same(&self.received, request) {
                            return Ok(Served::Closed);
                        }
                        // Fits into the empty send buffer of any socket.
                        self.stream.write_all(response)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let is_complete = self.received.len() == request.len();
                    return Ok(if is_complete { Served::Responded } else { Served::Incomplete });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
