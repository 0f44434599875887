//! The connecting side of the flows of a verification: each from its own bound port, so
//! that the kernel's hash of the ports chooses the gateway; several at a time.
//!
//! A port that is bound before `connect` is part of the lookup; without it the
//! kernel chooses a gateway at random first (`fib_select_path`,
//! `FLOWI_FLAG_ANY_SPORT`).

use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use crate::document::WireOutcome;
use clearstream_schema::control::{Failure, FailureKind};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    super::calls::{Connect, ConnectResult, MOST_WIRE_FLOWS},
    MESSAGE_BYTES, REQUEST, RESPONSE, message, same,
};

/// Time after which no more flows are opened.
const MOST_TIME: Duration = Duration::from_secs(60);
/// Maximum timeout of one flow.
const MOST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent flows.
const MOST_AT_ONCE: usize = 256;

/// Opens every flow; returns the outcomes in the order of the ports.
pub(super) fn run(flows: &Connect) -> Result<Vec<ConnectResult>, Failure> {
    if flows.ports.len() > MOST_WIRE_FLOWS || flows.source.is_ipv4() != flows.server.is_ipv4() {
        let text = format!("at most {MOST_WIRE_FLOWS} flows at a time, and addresses of one family");
        return Err(Failure::new(FailureKind::Invalid, text));
    }
    let mut run = Run {
        flows,
        request: message(REQUEST, &flows.cookie)?,
        response: message(RESPONSE, &flows.cookie)?,
        timeout: Duration::from_millis(flows.timeout_ms.into()).min(MOST_TIMEOUT),
        active: Vec::new(),
        results: flows
            .ports
            .iter()
            .map(|port| ConnectResult { port: *port, outcome: WireOutcome::NotTried, connect_ns: None })
            .collect(),
    };
    run.all()?;
    Ok(run.results)
}

struct Run<'a> {
    flows: &'a Connect,
    request: [u8; MESSAGE_BYTES],
    response: [u8; MESSAGE_BYTES],
    timeout: Duration,
    active: Vec<Flow>,
    results: Vec<ConnectResult>,
}

struct Flow {
    place: usize,
    socket: Socket,
    begun: Instant,
    connected: bool,
    received: Vec<u8>,
}

impl Run<'_> {
    fn all(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + MOST_TIME;
        let at_once = usize::from(self.flows.at_once).clamp(1, MOST_AT_ONCE);
        let mut next = 0;
        loop {
            while next < self.results.len() && self.active.len() < at_once && Instant::now() < end {
                self.begin(next)?;
                next += 1;
            }
            if self.active.is_empty() {
                return Ok(());
            }
            self.wait();
            for flow in std::mem::take(&mut self.active) {
                self.advance(flow);
            }
        }
    }

    fn begin(&mut self, place: usize) -> Result<(), Failure> {
        let source = SocketAddr::new(self.flows.source, self.flows.ports[place]);
        let internal =
            |error: std::io::Error| Failure::of_system(&format!("open a flow from {source}"), &error);
        let socket =
            Socket::new(Domain::for_address(source), Type::STREAM, Some(Protocol::TCP)).map_err(internal)?;
        socket.set_nonblocking(true).map_err(internal)?;
        // The ports of an earlier verification may still be in TIME_WAIT.
        socket.set_reuse_address(true).map_err(internal)?;
        socket.set_tcp_nodelay(true).map_err(internal)?;
        // Ends with a reset: no TIME_WAIT holds the port afterwards.
        socket.set_linger(Some(Duration::ZERO)).map_err(internal)?;
        if let Err(error) = socket.bind(&source.into()) {
            match error.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => {
                    self.results[place].outcome = WireOutcome::PortInUse;
                    return Ok(());
                }
                ErrorKind::AddrNotAvailable => {
                    let text = format!("{} is no address of this host: apply the plan first", source.ip());
                    return Err(Failure::new(FailureKind::Invalid, text));
                }
                _ => return Err(internal(error)),
            }
        }
        let flow = Flow { place, socket, begun: Instant::now(), connected: false, received: Vec::new() };
        match flow.socket.connect(&self.flows.server.into()) {
            Ok(()) => self.active.push(flow),
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
                self.active.push(flow);
            }
            Err(error) => self.results[place].outcome = outcome_of(&error, false),
        }
        Ok(())
    }

    fn wait(&self) {
        let wanted = |flow: &Flow| if flow.connected { PollFlags::IN } else { PollFlags::OUT };
        let mut polled: Vec<PollFd<'_>> = self
            .active
            .iter()
            .map(|flow| PollFd::from_borrowed_fd(flow.socket.as_fd(), wanted(flow)))
            .collect();
        let first = self.active.iter().map(|flow| flow.begun + self.timeout).min();
        let left = first.map_or(Duration::ZERO, |first| first.saturating_duration_since(Instant::now()));
        let timeout =
            Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        // An interruption is treated like a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    /// Advances one flow as far as possible; keeps it unless it is finished.
    fn advance(&mut self, mut flow: Flow) {
        let result = &mut self.results[flow.place];
        let over = match flow.step(&self.request, &self.response, &mut result.connect_ns) {
            Ok(Some(outcome)) => Some(outcome),
            Ok(None) if flow.begun.elapsed() >= self.timeout => {
                Some(if flow.connected { WireOutcome::NotAnswered } else { WireOutcome::NotConnected })
            }
            Ok(None) => None,
            Err(error) => Some(outcome_of(&error, flow.connected)),
        };
        match over {
            Some(outcome) => result.outcome = outcome,
            None => self.active.push(flow),
        }
    }
}

impl Flow {
    fn step(
        &mut self,
        request: &[u8],
        response: &[u8],
        connect_ns: &mut Option<u64>,
    ) -> std::io::Result<Option<WireOutcome>> {
        if !self.connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            if self.socket.peer_addr().is_err() {
                return Ok(None);
            }
            self.connected = true;
            *connect_ns = u64::try_from(self.begun.elapsed().as_nanos()).ok();
            // Fits into the empty send buffer of any socket.
            (&self.socket).write_all(request)?;
        }
        let mut buffer = [0; MESSAGE_BYTES];
        match (&self.socket).read(&mut buffer) {
            Ok(0) => Ok(Some(WireOutcome::Reset)),
            Ok(length) => {
                self.received.extend_from_slice(&buffer[..length]);
                Ok(match self.received.len() {
                    length if length < response.len() => None,
                    _ if same(&self.received, response) => Some(WireOutcome::Answered),
                    _ => Some(WireOutcome::Refused),
                })
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn outcome_of(error: &std::io::Error, connected: bool) -> WireOutcome {
    match error.kind() {
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => WireOutcome::NoRoute,
        ErrorKind::AddrNotAvailable | ErrorKind::AddrInUse => WireOutcome::PortInUse,
        ErrorKind::ConnectionRefused => WireOutcome::Refused,
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if connected => WireOutcome::Reset,
        _ if connected => WireOutcome::NotAnswered,
        ErrorKind::ConnectionReset => WireOutcome::Refused,
        // A route that prohibits or discards what this host sends (EACCES, EINVAL).
        ErrorKind::PermissionDenied | ErrorKind::InvalidInput => WireOutcome::NoRoute,
        _ => WireOutcome::NotConnected,
    }
}
