//! Control connection of a client: requests of the server with a deadline for each step, and its reasons for
//! a refusal or an end.

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
    is_stop_requested,
    machine::{ClientEvent, ClientMachine},
};
use crate::{
    control::{Control, POLL_INTERVAL, Received},
    error::ProtocolError,
    protocol::State,
    results::Results,
};

/// Maximum wait for the server's reason of a refused stream.
const REASON_TIMEOUT: Duration = Duration::from_millis(500);

/// Reason of a premature end of a running test.
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
    /// The test is over: its results are awaited, also after a stop.
    ending: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(host: &str, control: Control, stop: &'a AtomicBool) -> Self {
        let name = format!("{host} ({})", control.peer);
        Self { name, control, machine: ClientMachine::new(), pending: VecDeque::new(), stop, ending: false }
    }

    /// The server's name in messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn server(&self) -> SocketAddr {
        self.control.peer
    }

    pub(super) fn is_stopped(&self) -> bool {
        is_stop_requested(self.stop)
    }

    /// A UDP socket connected to the server that sends nothing: its path MTU applies to the streams.
    pub(super) fn path_socket(&self) -> Result<Socket, Failure> {
        let config = FlowConfig { protocol: Protocol::Udp, ..FlowConfig::default() };
        let socket = engine::open_socket(&config, self.server().ip(), Role::Send)?;
        socket
            .connect(&self.server().into())
            .map_err(|error| Failure::of_connect(&format!("no path to {}", self.name), "UDP", &error))?;
        Ok(socket)
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::new(
            FailureKind::Connection,
            format!("{}: the control connection failed: {error}", self.name),
        )
    }

    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.control.send(bytes).map_err(|error| self.lost(&error))
    }

    pub(super) fn send_json(&mut self, json: &serde_json::Value) -> Result<(), Failure> {
        self.control.send_json(json).map_err(|error| self.lost(&error))
    }

    /// Reports the end of the test to the server.
    pub(super) fn end(&mut self) -> Result<(), Failure> {
        self.machine.end();
        self.ending = true;
        self.send(&[State::TestEnd.byte()])
    }

    /// Reads until the timeout; received messages are then pending.
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
                (None, None) => Failure::new(
                    FailureKind::Connection,
                    format!("{} closed the control connection", self.name),
                ),
            }),
        }
    }

    fn refused(&self, error: &ProtocolError) -> Failure {
        error.failure(&self.name)
    }

    /// The next request or message of the server.
    fn next(&mut self, timeout: Duration) -> Result<Option<ClientEvent>, Failure> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            if self.is_stopped() && !self.ending {
                return Err(Failure::new(FailureKind::Connection, "stopped before data flowed"));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.read(left.min(POLL_INTERVAL))?;
        }
    }

    /// Waits until the server sends this event.
    pub(super) fn expect(&mut self, wanted: &ClientEvent, timeout: Duration) -> Result<(), Failure> {
        match self.next(timeout)? {
            Some(event) if event == *wanted => Ok(()),
            // The state machine permits no other event.
            Some(_) => Err(Failure::new(
                FailureKind::Connection,
                format!("{}: unexpected protocol state", self.name),
            )),
            None => Err(self.silent(timeout)),
        }
    }

    /// Waits for the server's results.
    pub(super) fn results(&mut self, timeout: Duration) -> Result<Results, Failure> {
        match self.next(timeout)? {
            Some(ClientEvent::Results(results)) => Ok(*results),
            Some(_) => Err(Failure::new(
                FailureKind::Connection,
                format!("{}: unexpected protocol state", self.name),
            )),
            None => Err(self.silent(timeout)),
        }
    }

    fn silent(&self, timeout: Duration) -> Failure {
        let message = format!(
            "{} accepted the connection and sent nothing for {} s: is it an iperf3 server?",
            self.name,
            timeout.as_secs()
        );
        Failure::new(FailureKind::Connection, message)
    }

    /// Checks whether the server has ended the test.
    pub(super) fn poll(&mut self) -> Result<(), Ended> {
        self.read(Duration::from_millis(1)).map_err(Ended)
    }

    /// The server's reason for refusing or closing a stream.
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
