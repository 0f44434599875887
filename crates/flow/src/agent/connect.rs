//! Client side of data connections: flows connect beside one another, each within a time of its own, so that many flows over
//! a long path take no longer than a few.

use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::FlowConfig,
};
use socket2::Socket;

use super::open::{self, Part};
use crate::preamble::{ACCEPTED, Secret};

/// Timeout of one connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum wait for the server's reply to the preamble.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// A fixed pair of ports may be held by the connection of the previous test (`TIME_WAIT`, reusable after a
/// second): how long to retry.
const HELD_TIMEOUT: Duration = Duration::from_secs(3);

/// Flows that connect at the same time: fewer than connections without a preamble that a listener keeps.
pub(crate) const AT_ONCE: u32 = 32;

/// Connects every flow.
pub(super) fn connect_all(
    config: &FlowConfig,
    server: SocketAddr,
    secret: Secret,
    part: Part,
) -> Result<Vec<Arc<Socket>>, Failure> {
    beside_one_another(config.flows, |flow| connect(config, server, secret, part, flow))
}

/// The sockets of all flows, several connecting at the same time. The first failure ends it: no further flow is begun.
pub(super) fn beside_one_another(
    flows: u32,
    connect: impl Fn(u32) -> Result<Socket, Failure> + Sync,
) -> Result<Vec<Arc<Socket>>, Failure> {
    let next = AtomicU32::new(0);
    let connected = Mutex::new(Ok(Vec::new()));
    let locked = || connected.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let flow = next.fetch_add(1, Relaxed);
            if flow >= flows || locked().is_err() {
                return;
            }
            let socket = connect(flow);
            let mut all = locked();
            match (&mut *all, socket) {
                (Ok(sockets), Ok(socket)) => sockets.push((flow, Arc::new(socket))),
                (Ok(_), Err(failure)) => *all = Err(failure),
                (Err(_), _) => {}
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..flows.min(AT_ONCE) {
            // Where the host has no further thread there are fewer at once.
            let thread = thread::Builder::new().name("flow-connect".to_owned()).spawn_scoped(scope, work);
            if thread.is_err() {
                break;
            }
        }
        work();
    });
    let mut sockets = connected.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    sockets.sort_by_key(|(flow, _)| *flow);
    Ok(sockets.into_iter().map(|(_, socket)| socket).collect())
}

fn connect(
    config: &FlowConfig,
    server: SocketAddr,
    secret: Secret,
    part: Part,
    flow: u32,
) -> Result<Socket, Failure> {
    let lost = |error: std::io::Error| {
        let message = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!(
                    "flow {flow}: {server} accepted the connection but does not respond within {} s: what listens there?",
                    REPLY_TIMEOUT.as_secs()
                )
            }
            _ => format!("flow {flow}: {server} closed the connection: {error}"),
        };
        Failure::new(FailureKind::Connection, message)
    };
    let mut socket = reach(config, server, part, flow)?;
    socket.set_read_timeout(Some(REPLY_TIMEOUT)).map_err(lost)?;
    socket.write_all(&secret.preamble(flow)).map_err(lost)?;
    let mut reply = [0];
    socket.read_exact(&mut reply).map_err(lost)?;
    if reply != [ACCEPTED] {
        return Err(lost(ErrorKind::InvalidData.into()));
    }
    socket.set_read_timeout(None).map_err(lost)?;
    Ok(socket)
}

pub(super) fn reach(
    config: &FlowConfig,
    server: SocketAddr,
    part: Part,
    flow: u32,
) -> Result<Socket, Failure> {
    let until = Instant::now() + HELD_TIMEOUT;
    loop {
        let socket = open::open(config, server.ip(), part)?;
        open::bind_client(&socket, server, config, flow)?;
        match socket.connect_timeout(&server.into(), CONNECT_TIMEOUT) {
            Ok(()) => return Ok(socket),
            Err(error)
                if error.kind() == ErrorKind::AddrNotAvailable
                    && config.source_port_of(flow).is_some()
                    && Instant::now() < until =>
            {
                thread::sleep(Duration::from_millis(100));
            }
            Err(error) => {
                let within = match error.kind() {
                    ErrorKind::TimedOut => format!(" within {} s", CONNECT_TIMEOUT.as_secs()),
                    _ => String::new(),
                };
                let what = format!("flow {flow}: no connection to {server}{within}");
                return Err(Failure::of_connect(&what, "TCP", &error));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use clearstream_schema::control::Cookie;

    use super::*;

    fn try_one(server: SocketAddr) -> Failure {
        let secret = Secret::parse(&Cookie("0".repeat(32))).unwrap();
        let part = Part { sends: true, receives: false };
        connect_all(&FlowConfig::default(), server, secret, part).unwrap_err()
    }

    #[test]
    fn closed_ports_and_other_servers_are_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stranger = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(b"SSH-2.0").unwrap();
            drop(listener);
        });
        let failure = try_one(address);
        assert_eq!(failure.kind, FailureKind::Connection);
        stranger.join().unwrap();
        let failure = try_one(address);
        assert!(failure.message.contains(&address.to_string()), "{failure}");
    }
}
