//! The listening side of a proof's flows: answers those that carry the cookie,
//! drops strangers.

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

use super::{super::calls::Listen, ANSWER, MESSAGE_BYTES, QUESTION, failure, message, same};

/// A connection that has not asked, or not gone, by then is dropped.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time; more wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 1024;
/// How often the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Addresses that one request may name: aliases for each of many gateways.
const MOST_ADDRESSES: usize = 512;

/// Answers flows until dropped.
#[derive(Debug)]
pub(super) struct Answerer {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answerer {
    pub(super) fn open(listen: &Listen) -> Result<Self, Failure> {
        let question = message(QUESTION, &listen.cookie)?;
        let answer = message(ANSWER, &listen.cookie)?;
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
        let state = State { listeners, connections: Vec::new(), question, answer, stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new()
            .name("route-answer".into())
            .spawn(move || state.run())
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        Ok(Self { port: port.unwrap_or(0), stop, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Answerer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed; there is nothing to add.
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
    said: Vec<u8>,
    until: Instant,
}

struct State {
    listeners: Vec<TcpListener>,
    connections: Vec<Connection>,
    question: [u8; MESSAGE_BYTES],
    answer: [u8; MESSAGE_BYTES],
    stop: Arc<AtomicBool>,
}

impl State {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            self.wait();
            self.accept();
            let (question, answer) = (&self.question, &self.answer);
            let now = Instant::now();
            self.connections.retain_mut(|connection| {
                now < connection.until && connection.serve(question, answer).unwrap_or(false)
            });
        }
    }

    fn wait(&self) {
        let listening = if self.connections.len() < MOST_CONNECTIONS { &self.listeners[..] } else { &[] };
        let listeners = listening.iter().map(|listener| PollFd::new(listener, PollFlags::IN));
        let connections =
            self.connections.iter().map(|connection| PollFd::new(&connection.stream, PollFlags::IN));
        let mut polled: Vec<PollFd<'_>> = listeners.chain(connections).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
        // An interruption is as good as a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn accept(&mut self) {
        for listener in &self.listeners {
            while self.connections.len() < MOST_CONNECTIONS {
                // Whatever went wrong with one connection is that client's matter.
                let Ok((stream, _)) = listener.accept() else {
                    break;
                };
                if stream.set_nonblocking(true).is_ok() {
                    let until = Instant::now() + TIMEOUT;
                    self.connections.push(Connection { stream, said: Vec::new(), until });
                }
            }
        }
    }
}

impl Connection {
    /// Whether it is to be kept. It is answered once and then waited for, so
    /// that the client ends the connection.
    fn serve(&mut self, question: &[u8], answer: &[u8]) -> io::Result<bool> {
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(length) => {
                    self.said.extend_from_slice(&buffer[..length]);
                    if self.said.len() > question.len() {
                        return Ok(false);
                    }
                    if self.said.len() == question.len() {
                        if !same(&self.said, question) {
                            return Ok(false);
                        }
                        // Fits into the empty send buffer of any socket.
                        self.stream.write_all(answer)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
