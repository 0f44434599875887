//! Server side of the data connection: admits the test's own connection and
//! closes all others, without being disturbed by them.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::{firewall_advice, limit},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::{
    SocketOptions,
    preamble::{ADMITTED, PREAMBLE_BYTES, Secret},
    socket,
};
use crate::failure;

/// Timeout of a connection without a complete preamble.
const PREAMBLE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections waiting for their preamble; then the oldest is
/// closed.
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
    pending: Vec<Pending>,
}

/// A connection without a complete preamble.
#[derive(Debug)]
struct Pending {
    socket: Socket,
    preamble: Vec<u8>,
    until: Instant,
}

enum Progress {
    Incomplete,
    Complete,
    Closed,
}

impl Listener {
    /// Binds and listens; buffers pass to the accepted socket.
    ///
    /// # Errors
    /// A port that is in use or reserved; an option that the kernel rejects.
    pub fn open(options: &SocketOptions, address: Option<IpAddr>, secret: Secret) -> Result<Self, Failure> {
        let (socket, address) = socket::listen(options, address)?;
        Ok(Self { socket, address, secret, pending: Vec::new() })
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
            self.wait();
            self.take_connections()?;
            if let Some(socket) = self.admit() {
                return Ok(Some(socket));
            }
        }
        let message =
            format!("no client connected within {} s; {}", CLIENT_TIMEOUT.as_secs(), firewall_advice("TCP"));
        Err(failure(FailureKind::Connection, message))
    }

    fn wait(&self) {
        let sockets = std::iter::once(&self.socket).chain(self.pending.iter().map(|pending| &pending.socket));
        let mut polled: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.subsec_nanos().into() };
        // An interruption is handled like a timeout.
        let _ = poll(&mut polled, Some(&timeout));
    }

    fn take_connections(&mut self) -> Result<(), Failure> {
        // Bounded, so that a flood of connections does not starve the pending
        // ones.
        for _ in 0..PENDING_MAX {
            let socket = match self.socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if limit(&error).is_some() => {
                    return Err(Failure::of_system("accept the data connection", &error));
                }
                // The error is of the connection that was to be accepted.
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

    /// Returns the first connection with the test's preamble; others are
    /// closed.
    fn admit(&mut self) -> Option<Socket> {
        let now = Instant::now();
        for mut pending in std::mem::take(&mut self.pending) {
            match pending.read() {
                Progress::Incomplete if now < pending.until => self.pending.push(pending),
                Progress::Complete if self.secret.admits(&pending.preamble) => {
                    let mut socket = pending.socket;
                    if socket.set_nonblocking(false).is_ok() && socket.write_all(&[ADMITTED]).is_ok() {
                        return Some(socket);
                    }
                }
                Progress::Incomplete | Progress::Complete | Progress::Closed => {}
            }
        }
        None
    }
}

impl Pending {
    fn read(&mut self) -> Progress {
        let mut bytes = [0; PREAMBLE_BYTES];
        let missing = PREAMBLE_BYTES - self.preamble.len();
        match self.socket.read(&mut bytes[..missing]) {
            Ok(0) => Progress::Closed,
            Ok(length) => {
                self.preamble.extend_from_slice(&bytes[..length]);
                if length == missing { Progress::Complete } else { Progress::Incomplete }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Progress::Incomplete
            }
            Err(_) => Progress::Closed,
        }
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
        failure(FailureKind::Connection, message)
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
