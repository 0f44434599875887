//! The control connection of a client: what the server asks for, with a deadline
//! for each step, and its reasons when it refuses or goes.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use clearstream_flow::engine::{self, Role};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, Protocol},
};
use socket2::Socket;

use super::{
    is_raised,
    machine::{ClientEvent, ClientMachine},
};
use crate::{
    control::{Control, POLL_INTERVAL, Received},
    error::{ProtocolError, failure},
    results::Results,
    wire::State,
};

/// How long the reason may take that a server gives for a stream it refused.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

/// Why a running test ended before its time.
#[derive(Debug)]
pub(super) struct Ended(pub(super) Failure);

/// The control connection.
#[derive(Debug)]
pub(super) struct Session<'a> {
    name: String,
    control: Control,
    machine: ClientMachine,
    pending: VecDeque<ClientEvent>,
    stop: &'a AtomicBool,
    /// The test is over: its results are worth waiting for, also when it was stopped.
    ending: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(host: &str, control: Control, stop: &'a AtomicBool) -> Self {
        let name = format!("{host} ({})", control.peer);
        Self { name, control, machine: ClientMachine::new(), pending: VecDeque::new(), stop, ending: false }
    }

    /// The server, for people.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.control.peer
    }

    pub(super) fn is_stopped(&self) -> bool {
        is_raised(self.stop)
    }

    /// A UDP socket that is connected to the server and sends nothing: its path
    /// MTU is that of the streams.
    pub(super) fn path_socket(&self) -> Result<Socket, Failure> {
        let config = FlowConfig { protocol: Protocol::Udp, ..FlowConfig::default() };
        let socket = engine::open_socket(&config, self.server().ip(), Role::Send)?;
        socket
            .connect(&self.server().into())
            .map_err(|error| Failure::of_connect(&format!("no path to {}", self.name), "UDP", &error))?;
        Ok(socket)
    }

    fn lost(&self, error: &io::Error) -> Failure {
        failure(FailureKind::Connection, format!("{}: the control connection broke: {error}", self.name))
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.control.send(bytes).map_err(|error| self.lost(&error))
    }

    pub(super) fn send_json(&mut self, json: &serde_json::Value) -> Result<(), Failure> {
        self.control.send_json(json).map_err(|error| self.lost(&error))
    }

    /// Tells the server that the test is over.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.machine.end();
        self.ending = true;
        self.send(&[State::TestEnd.byte()])
    }

    /// Reads for a while; what came is pending then.
    fn read(&mut self, timeout: Duration) -> Result<(), Failure> {
        match self.control.receive(timeout) {
            Received::Nothing => Ok(()),
            Received::Bytes(bytes) => {
                let events = self.machine.take(&bytes).map_err(|error| self.refused(&error))?;
                self.pending.extend(events);
                Ok(())
            }
            Received::Closed(error) => Err(match (self.machine.closed(), error) {
                (Some(refused), _) => self.refused(&refused),
                (None, Some(error)) => self.lost(&error),
                (None, None) => {
                    failure(FailureKind::Connection, format!("{} closed the control connection", self.name))
                }
            }),
        }
    }

    fn refused(&self, error: &ProtocolError) -> Failure {
        error.failure(&self.name)
    }

    /// The next thing that the server asks for or says.
    fn next(&mut self, timeout: Duration) -> Result<Option<ClientEvent>, Failure> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            if self.is_stopped() && !self.ending {
                return Err(failure(FailureKind::Connection, "stopped before data flowed"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.read(left.min(POLL_INTERVAL))?;
        }
    }

    /// Waits until the server asks for this.
    pub(super) fn expect(&mut self, wanted: &ClientEvent, timeout: Duration) -> Result<(), Failure> {
        match self.next(timeout)? {
            Some(event) if event == *wanted => Ok(()),
            // The machine lets nothing else come.
            Some(_) => Err(failure(FailureKind::Internal, format!("{}: out of step", self.name))),
            None => Err(self.silent(timeout)),
        }
    }

    /// Waits for the server's results.
    pub(super) fn results(&mut self, timeout: Duration) -> Result<Results, Failure> {
        match self.next(timeout)? {
            Some(ClientEvent::Results(results)) => Ok(*results),
            Some(_) => Err(failure(FailureKind::Internal, format!("{}: out of step", self.name))),
            None => Err(self.silent(timeout)),
        }
    }

    fn silent(&self, timeout: Duration) -> Failure {
        let message = format!(
            "{} took the connection and said nothing for {} s: is it an iperf3 server?",
            self.name,
            timeout.as_secs()
        );
        failure(FailureKind::Connection, message)
    }

    /// Looks whether the server has ended the test.
    pub(super) fn poll(&mut self) -> Result<(), Ended> {
        self.read(Duration::from_millis(1)).map_err(Ended)
    }

    /// What the server says to a stream that it has refused or closed.
    pub(super) fn reason(&mut self) -> Option<Failure> {
        let until = Instant::now() + REASON_TIMEOUT;
        while Instant::now() < until {
            if let Err(reason) = self.read(POLL_INTERVAL) {
                return Some(reason);
            }
        }
        None
    }
}
