//! Server side of TCP data connections: accepts the test's own, drops strangers, and is disturbed by none of
//! them.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::{firewall_advice, limit},
    flow::FlowConfig,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::open::{self, Part};
use crate::{
    data::Gate,
    failure,
    preamble::{ACCEPTED, PREAMBLE_BYTES, Secret},
};

/// Maximum wait for the preamble of a connection.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum connections without a complete preamble; then the oldest is dropped.
const PENDING_MAX: usize = 64;
/// Maximum wait for the client to connect all flows.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Poll interval of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// An accepted connection whose preamble is incomplete.
#[derive(Debug)]
struct Pending {
    socket: Socket,
    preamble: Vec<u8>,
    until: Instant,
}

/// A listening data socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    secret: Secret,
    pending: Vec<Pending>,
    flows: Vec<Option<Socket>>,
}

impl Listener {
    /// Binds and listens; the options are inherited by accepted sockets.
    pub(super) fn open(
        config: &FlowConfig,
        address: Option<IpAddr>,
        secret: Secret,
        part: Part,
    ) -> Result<Self, Failure> {
        let family = address.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
        let socket = open::open(config, family, part)?;
        open::bind_server(&socket, address, config)?;
        let internal = |error: io::Error| Failure::of_system("listen", &error);
        // Two sockets with SO_REUSEADDR may bind one port; only one may listen.
        socket.listen(256).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => failure(
                FailureKind::InUse,
                format!(
                    "port {} is in use on this host: choose another one with --port",
                    config.destination_port.unwrap_or(0)
                ),
            ),
            _ => internal(error),
        })?;
        socket.set_nonblocking(true).map_err(internal)?;
        let flows = (0..config.flows).map(|_| None).collect();
        Ok(Self { socket, secret, pending: Vec::new(), flows })
    }

    /// Local address.
    pub(super) fn address(&self) -> Result<std::net::SocketAddr, Failure> {
        open::local_address(&self.socket)
    }

    /// Accepts connections until every flow has its own.
    pub(super) fn accept_all(mut self, gate: &Gate) -> Result<Vec<Arc<Socket>>, Failure> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        while self.flows.iter().any(Option::is_none) {
            if gate.is_stopped() {
                return Err(failure(FailureKind::Connection, "stopped before all flows were connected"));
            }
            if Instant::now() >= until {
                let connected = self.flows.iter().flatten().count();
                return Err(failure(
                    FailureKind::Connection,
                    format!(
                        "{connected} of {} flows were connected within {} s; {}",
                        self.flows.len(),
                        CONNECT_TIMEOUT.as_secs(),
                        firewall_advice("TCP")
                    ),
                ));
            }
            self.wait();
            self.accept()?;
            self.read_pending();
        }
        Ok(self.flows.into_iter().flatten().map(Arc::new).collect())
    }

    fn wait(&self) {
        let sockets = std::iter::once(&self.socket).chain(self.pending.iter().map(|pending| &pending.socket));
        let mut polled: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        // An interruption is treated as a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn accept(&mut self) -> Result<(), Failure> {
        // One round accepts at most as many as may be pending, so that a flood of connections does not starve
        // the pending ones.
        for _ in 0..PENDING_MAX {
            let socket = match self.socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // Descriptors have run out: no further flow can be accepted.
                Err(error) if limit(&error).is_some() => {
                    return Err(Failure::of_system("accept the connection of a flow", &error));
                }
                // It concerns only the connection to be accepted.
                Err(_) => return Ok(()),
            };
            if socket.set_nonblocking(true).is_err() {
                continue;
            }
            if self.pending.len() >= PENDING_MAX {
                self.pending.remove(0);
            }
            let until = Instant::now() + PREAMBLE_TIMEOUT;
            self.pending.push(Pending { socket, preamble: Vec::with_capacity(PREAMBLE_BYTES), until });
        }
        Ok(())
    }

    fn read_pending(&mut self) {
        let now = Instant::now();
        for mut pending in std::mem::take(&mut self.pending) {
            match read_preamble(&mut pending) {
                PreambleRead::Incomplete if now < pending.until => self.pending.push(pending),
                PreambleRead::Complete => self.admit(pending),
                // Dropping the socket closes it.
                PreambleRead::Incomplete | PreambleRead::Closed => {}
            }
        }
    }

    fn admit(&mut self, pending: Pending) {
        let flow = self.secret.flow_of(&pending.preamble).and_then(|flow| usize::try_from(flow).ok());
        let place = flow.and_then(|flow| self.flows.get_mut(flow));
        // A stranger, or a flow that is connected already.
        let Some(place @ None) = place else { return };
        let mut socket = pending.socket;
        if socket.set_nonblocking(false).is_ok() && socket.write_all(&[ACCEPTED]).is_ok() {
            *place = Some(socket);
        }
    }
}

enum PreambleRead {
    Incomplete,
    Complete,
    Closed,
}

fn read_preamble(pending: &mut Pending) -> PreambleRead {
    let mut bytes = [0; PREAMBLE_BYTES];
    let missing = PREAMBLE_BYTES - pending.preamble.len();
    match pending.socket.read(&mut bytes[..missing]) {
        Ok(0) => PreambleRead::Closed,
        Ok(length) => {
            pending.preamble.extend_from_slice(&bytes[..length]);
            if pending.preamble.len() == PREAMBLE_BYTES {
                PreambleRead::Complete
            } else {
                PreambleRead::Incomplete
            }
        }
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            PreambleRead::Incomplete
        }
        Err(_) => PreambleRead::Closed,
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpStream, thread};

    use clearstream_schema::control::Cookie;

    use super::*;

    fn secret() -> Secret {
        Secret::parse(&Cookie("00112233445566778899aabbccddeeff".into())).unwrap()
    }

    fn listener(flows: u32) -> (Listener, std::net::SocketAddr) {
        let config = FlowConfig { flows, ..FlowConfig::default() };
        let part = Part { sends: false, receives: true };
        let listener =
            Listener::open(&config, Some(std::net::Ipv4Addr::LOCALHOST.into()), secret(), part).unwrap();
        let address = listener.address().unwrap();
        (listener, address)
    }

    fn connect(address: std::net::SocketAddr, preamble: &[u8]) -> TcpStream {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(preamble).unwrap();
        stream
    }

    fn reply(mut stream: &TcpStream) -> Option<u8> {
        stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => Some(byte[0]),
            _ => None,
        }
    }

    #[test]
    fn the_tests_own_flows_are_accepted_among_strangers() {
        let (listener, address) = listener(2);
        let accepting = thread::spawn(move || listener.accept_all(&Gate::default()).unwrap().len());
        let silent = TcpStream::connect(address).unwrap();
        let wrong = connect(address, &[0; PREAMBLE_BYTES]);
        let oversize = connect(address, &vec![b'G'; 100_000]);
        let no_such_flow = connect(address, &secret().preamble(2));
        let slow = connect(address, &secret().preamble(0)[..7]);
        let second = connect(address, &secret().preamble(1));
        assert_eq!(reply(&second), Some(ACCEPTED));
        let twice = connect(address, &secret().preamble(1));
        for stranger in [&wrong, &oversize, &no_such_flow, &twice] {
            assert_eq!(reply(stranger), None, "closed without a reply");
        }
        let mut first = connect(address, &secret().preamble(0)[..7]);
        first.write_all(&secret().preamble(0)[7..]).unwrap();
        assert_eq!(reply(&first), Some(ACCEPTED), "a preamble in two segments is accepted");
        assert_eq!(accepting.join().unwrap(), 2);
        drop((silent, slow));
    }

    #[test]
    fn more_strangers_than_the_limit_do_not_lock_the_flow_out() {
        let (listener, address) = listener(1);
        let accepting = thread::spawn(move || listener.accept_all(&Gate::default()).unwrap().len());
        let crowd: Vec<TcpStream> =
            (0..PENDING_MAX + 20).map(|_| connect(address, &secret().preamble(0)[..19])).collect();
        let own = connect(address, &secret().preamble(0));
        assert_eq!(reply(&own), Some(ACCEPTED));
        assert_eq!(accepting.join().unwrap(), 1);
        drop(crowd);
    }

    #[test]
    fn a_port_with_a_listener_is_in_use() {
        let (_kept, address) = listener(1);
        let config = FlowConfig { destination_port: Some(address.port()), ..FlowConfig::default() };
        let part = Part { sends: false, receives: true };
        let failure = Listener::open(&config, Some(address.ip()), secret(), part).unwrap_err();
        assert_eq!(failure.kind, FailureKind::InUse);
        assert!(failure.message.contains(&address.port().to_string()), "{failure}");
    }
}
