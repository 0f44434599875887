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

use clearstream_schema::control::{Failure, FailureKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{super::calls::Listen, MESSAGE_BYTES, REQUEST, RESPONSE, failure, message, same};

/// Timeout of a connection: one without a request, or not closed, by then is dropped.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections; others wait in the listen queue.
const MOST_CONNECTIONS: usize = 1024;
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
            return Err(failure(FailureKind::Invalid, text));
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
        let state = State { listeners, connections: Vec::new(), request, response, stop: Arc::clone(&stop) };
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
        ErrorKind::AddrInUse => failure(FailureKind::InUse, format!("{here} is in use on this host")),
        ErrorKind::AddrNotAvailable => failure(
            FailureKind::Invalid,
            format!("{} is no address of this host: apply the plan first", here.ip()),
        ),
        _ => Failure::of_system(&format!("listen on {here}"), error),
    }
}

struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    until: Instant,
}

struct State {
    listeners: Vec<TcpListener>,
    connections: Vec<Connection>,
    request: [u8; MESSAGE_BYTES],
    response: [u8; MESSAGE_BYTES],
    stop: Arc<AtomicBool>,
}

impl State {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.wait();
            self.accept();
            let (request, response) = (&self.request, &self.response);
            let now = Instant::now();
            self.connections.retain_mut(|connection| {
                now < connection.until && connection.serve(request, response).unwrap_or(false)
            });
        }
    }

    fn wait(&self) {
        let listening = if self.connections.len() < MOST_CONNECTIONS { &self.listeners[..] } else { &[] };
        let listeners = listening.iter().map(|listener| PollFd::new(listener, PollFlags::IN));
        let connections =
            self.connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = listeners.chain(connections).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        // An interruption is treated like a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            while self.connections.len() < MOST_CONNECTIONS {
                // A failed connection affects only its client.
                let Ok((stream, _)) = listener.accept() else {
                    break;
                };
                if stream.set_nonblocking(true).is_ok() {
                    let until = Instant::now() + TIMEOUT;
                    self.connections.push(Connection { stream, received: Vec::new(), until });
                }
            }
        }
    }
}

impl Connection {
    /// Serves a connection; returns whether to keep it. After the response it is kept
    /// open, so that the client closes it.
    fn serve(&mut self, request: &[u8], response: &[u8]) -> io::Result<bool> {
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.received.extend_from_slice(&buffer[..length]);
                    if self.received.len() > request.len() {
                        return Ok(false);
                    }
                    if self.received.len() == request.len() {
                        if !same(&self.received, request) {
                            return Ok(false);
                        }
                        // Fits into the empty send buffer of any socket.
                        self.stream.write_all(response)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
