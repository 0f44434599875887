//! The control connection: timeouts around the state machines, which have no clock. Every message of the peer
//! has a deadline.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use socket2::{SockRef, TcpKeepalive};

use crate::protocol::{State, frame};

/// Timeout of sending a message to the peer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Keepalive time for detecting a vanished peer: long tests are idle here.
const KEEPALIVE: Duration = Duration::from_secs(10);
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
/// Interval at which a wait checks the stop flag.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Result of a read.
#[derive(Debug)]
pub(crate) enum Received {
    /// Bytes.
    Bytes(Vec<u8>),
    /// Timeout.
    Nothing,
    /// The peer closed, or the connection failed.
    Closed(Option<io::Error>),
}

/// A control connection.
#[derive(Debug)]
pub(crate) struct Control {
    stream: TcpStream,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

impl Control {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let socket = SockRef::from(&stream);
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 4).with_retries(4);
        socket.set_tcp_keepalive(&keepalive)?;
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        Ok(Self { stream, local, peer })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub(crate) fn send_state(&mut self, state: State) -> io::Result<()> {
        self.send(&[state.byte()])
    }

    pub(crate) fn send_json(&mut self, json: &serde_json::Value) -> io::Result<()> {
        self.send(&frame(json))
    }

    /// Waits for bytes, at most `timeout`.
    pub(crate) fn receive(&mut self, timeout: Duration) -> Received {
        let until = Instant::now() + timeout;
        let mut bytes = vec![0; 16 << 10];
        loop {
            // A timeout of zero would mean no timeout (socket(7)).
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            if let Err(error) = self.stream.set_read_timeout(Some(left)) {
                return Received::Closed(Some(error));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Received::Closed(None),
                Ok(length) => {
                    bytes.truncate(length);
                    return Received::Bytes(bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted && Instant::now() < until => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) =>
                {
                    return Received::Nothing;
                }
                Err(error) => return Received::Closed(Some(error)),
            }
        }
    }

    /// Graceful close, so that sent data is delivered: shuts down our direction, then discards what the peer
    /// sends until it closes, too.
    pub(crate) fn close(mut self, timeout: Duration) {
        drop(self.stream.shutdown(std::net::Shutdown::Write));
        let until = Instant::now() + timeout;
        while Instant::now() < until {
            match self.receive(until.saturating_duration_since(Instant::now())) {
                Received::Bytes(_) => {}
                Received::Nothing | Received::Closed(_) => return,
            }
        }
    }
}
