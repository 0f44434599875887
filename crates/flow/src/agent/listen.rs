//! Server side of TCP data connections: accepts the test's own, drops strangers, and is disturbed by none of
//! them.

use std::{
    io::{self, ErrorKind, Write},
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use clearstream_admission::{Limits, Lobby, fill};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::firewall_advice,
    flow::FlowConfig,
};
use socket2::Socket;

use super::open::{self, Part};
use crate::{
    data::Gate,
    preamble::{ACCEPTED, PREAMBLE_BYTES, Secret},
};

/// Maximum wait for the preamble of a connection.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum connections without a complete preamble.
const PENDING_MAX: usize = 64;
/// Maximum wait for the next flow of the client.
pub(super) const FLOW_TIMEOUT: Duration = Duration::from_secs(15);
/// Connections that wait to be accepted; net.core.somaxconn may allow fewer.
const LISTEN_QUEUE: i32 = 1024;
/// Poll interval of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A listening data socket.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    secret: Secret,
    lobby: Lobby<Vec<u8>>,
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
        socket.listen(LISTEN_QUEUE).map_err(|error| match error.kind() {
            ErrorKind::AddrInUse => Failure::new(
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
        let lobby = Lobby::new(Limits::of_test(PENDING_MAX, 0, PREAMBLE_TIMEOUT));
        Ok(Self { socket, secret, lobby, flows })
    }

    /// Local address.
    pub(super) fn address(&self) -> Result<std::net::SocketAddr, Failure> {
        open::local_address(&self.socket)
    }

    /// Accepts connections until every flow has its own.
    pub(super) fn accept_all(mut self, gate: &Gate) -> Result<Vec<Arc<Socket>>, Failure> {
        let mut until = Instant::now() + FLOW_TIMEOUT;
        while self.flows.iter().any(Option::is_none) {
            if gate.is_stopped() {
                return Err(Failure::new(FailureKind::Connection, "stopped before all flows were connected"));
            }
            if Instant::now() >= until {
                let connected = self.flows.iter().flatten().count();
                return Err(Failure::new(
                    FailureKind::Connection,
                    format!(
                        "{connected} of {} flows were connected, and no further one within {} s; {}",
                        self.flows.len(),
                        FLOW_TIMEOUT.as_secs(),
                        firewall_advice("TCP")
                    ),
                ));
            }
            self.lobby.wait(Some(&self.socket), POLL_INTERVAL);
            let round = self.lobby.round(Some(&self.socket), |waiting| {
                fill(&waiting.socket, &mut waiting.state, PREAMBLE_BYTES)
            });
            for (waiting, ()) in round {
                if self.admit(waiting.socket, &waiting.state) {
                    until = Instant::now() + FLOW_TIMEOUT;
                }
            }
            // No stranger is left that could be closed for the next flow.
            if let Some(error) = self.lobby.exhausted() {
                return Err(Failure::of_system("accept the connection of a flow", &error));
            }
        }
        Ok(self.flows.into_iter().flatten().map(Arc::new).collect())
    }

    /// Whether it is one of a flow.
    fn admit(&mut self, mut socket: Socket, preamble: &[u8]) -> bool {
        let flow = self.secret.flow_of(preamble).and_then(|flow| usize::try_from(flow).ok());
        let place = flow.and_then(|flow| self.flows.get_mut(flow));
        // A stranger, or a flow that is connected already.
        let Some(place @ None) = place else { return false };
        let is_admitted = socket.set_nonblocking(false).is_ok() && socket.write_all(&[ACCEPTED]).is_ok();
        if is_admitted {
            *place = Some(socket);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpStream, thread};

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
