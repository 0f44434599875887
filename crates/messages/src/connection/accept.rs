//! Server side of the data connection: admits the test's own connection and
//! closes all others, without being disturbed by them.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use clearstream_admission::{Limits, Lobby, fill};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::firewall_advice,
};
use socket2::Socket;

use super::{
    SocketOptions,
    preamble::{ADMITTED, PREAMBLE_BYTES, Secret},
    socket,
};

/// Timeout of a connection without a complete preamble.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections waiting for their preamble.
const PENDING_MAX: usize = 32;
/// Maximum wait for the client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A listening data socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: SocketAddr,
    secret: Secret,
    lobby: Lobby<Vec<u8>>,
    /// Admitted, and not yet taken.
    admitted: VecDeque<Socket>,
}

impl Listener {
    /// Binds and listens; buffers pass to the accepted socket.
    ///
    /// # Errors
    /// A port that is in use or reserved; an option that the kernel rejects.
    pub fn open(options: &SocketOptions, address: Option<IpAddr>, secret: Secret) -> Result<Self, Failure> {
        let (socket, address) = socket::listen(options, address)?;
        let lobby = Lobby::new(Limits::of_test(PENDING_MAX, 0, PREAMBLE_TIMEOUT));
        Ok(Self { socket, address, secret, lobby, admitted: VecDeque::new() })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the client's next connection; `None` when stopped before.
    ///
    /// # Errors
    /// No client in time; a limit of this host.
    pub fn accept(&mut self, is_stopped: impl Fn() -> bool) -> Result<Option<Socket>, Failure> {
        let until = Instant::now() + CLIENT_TIMEOUT;
        while Instant::now() < until {
            if is_stopped() {
                return Ok(None);
            }
            if let Some(socket) = self.admitted.pop_front() {
                return Ok(Some(socket));
            }
            self.lobby.wait(Some(&self.socket), POLL_INTERVAL);
            let round = self.lobby.round(Some(&self.socket), |waiting| {
                fill(&waiting.socket, &mut waiting.state, PREAMBLE_BYTES)
            });
            for (mut waiting, ()) in round {
                if self.secret.admits(&waiting.state)
                    && waiting.socket.set_nonblocking(false).is_ok()
                    && waiting.socket.write_all(&[ADMITTED]).is_ok()
                {
                    self.admitted.push_back(waiting.socket);
                }
            }
            // No stranger is left that could be closed for the client.
            if let Some(error) = self.lobby.exhausted() {
                return Err(Failure::of_system("accept the data connection", &error));
            }
        }
        let message =
            format!("no client connected within {} s; {}", CLIENT_TIMEOUT.as_secs(), firewall_advice("TCP"));
        Err(Failure::new(FailureKind::Connection, message))
    }
}

/// Timeout of a connection's handshake, and of the server's reply to the
/// preamble.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Client side: connects and waits until the server has admitted it.
///
/// # Errors
/// No connection, or another program that listens there.
pub fn connect(options: &SocketOptions, server: SocketAddr, secret: Secret) -> Result<Socket, Failure> {
    let mut socket = socket::open(options, server.ip())?;
    socket
        .connect_timeout(&server.into(), CONNECT_TIMEOUT)
        .map_err(|error| Failure::of_connect(&format!("no connection to {server}"), "TCP", &error))?;
    let lost = |error: io::Error| {
        let message = match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!(
                    "{server} accepted the connection but does not reply: check which program listens there"
                )
            }
            _ => format!("{server} closed the connection: {error}"),
        };
        Failure::new(FailureKind::Connection, message)
    };
    socket.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(lost)?;
    socket.write_all(&secret.preamble()).map_err(lost)?;
    let mut reply = [0];
    socket.read_exact(&mut reply).map_err(lost)?;
    if reply != [ADMITTED] {
        return Err(lost(ErrorKind::InvalidData.into()));
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, TcpStream},
        thread,
    };

    use clearstream_schema::control::Cookie;

    use super::*;

    fn secret() -> Secret {
        Secret::parse(&Cookie("00112233445566778899aabbccddeeff".into())).unwrap()
    }

    fn listener() -> Listener {
        Listener::open(&SocketOptions::default(), Some(Ipv4Addr::LOCALHOST.into()), secret()).unwrap()
    }

    fn is_closed(mut stream: TcpStream) -> bool {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        // A close with unread bytes is a reset.
        match stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn the_client_is_admitted_among_other_connections() {
        let mut listener = listener();
        let address = listener.address();
        let accepting = thread::spawn(move || listener.accept(|| false).unwrap().is_some());
        let silent: Vec<TcpStream> =
            (0..PENDING_MAX + 10).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut wrong = TcpStream::connect(address).unwrap();
        wrong.write_all(&[b'G'; 1000]).unwrap();
        assert!(is_closed(wrong), "without a reply");
        let config = SocketOptions::default();
        connect(&config, address, secret()).unwrap();
        assert!(accepting.join().unwrap());
        drop(silent);
    }

    #[test]
    fn a_stop_ends_the_wait_and_a_port_in_use_is_named() {
        let mut first = listener();
        let port = first.address().port();
        let config = SocketOptions { port: Some(port), ..SocketOptions::default() };
        let failure = Listener::open(&config, Some(Ipv4Addr::LOCALHOST.into()), secret()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::InUse);
        assert!(failure.message.contains(&port.to_string()), "{failure}");
        assert!(first.accept(|| true).unwrap().is_none());
    }

    #[test]
    fn no_listener_and_another_program_are_distinguished() {
        let other = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = other.local_addr().unwrap();
        let other_program = thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(b"SSH-2.0").unwrap();
        });
        let config = SocketOptions::default();
        let failure = connect(&config, address, secret()).unwrap_err();
        assert!(failure.message.contains("closed the connection"), "{failure}");
        other_program.join().unwrap();
        let failure = connect(&config, address, secret()).unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.message.contains("no connection to"), "{failure}");
    }
}
