//! TLS over blocking TCP: a handshake with a deadline, and then one reading
//! and one writing half for the session's two threads. Only the writer puts
//! records on the wire, so their order is that of encryption.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use clearstream_sys::interruption;
use rustls::Connection;

use crate::link::Transport;

/// Bytes of plain text per record (RFC 8446 section 5.1).
const RECORD_BYTES: usize = 1 << 14;
/// One record with its overhead fits.
const CIPHER_BYTES: usize = 17 << 10;

/// Why a TLS handshake failed.
#[derive(Debug)]
pub(super) enum HandshakeError {
    /// Timed out.
    Timeout,
    /// The peer closed the connection.
    Ended,
    /// The connection failed.
    Io(io::Error),
    /// Rejected by one side or not TLS.
    Tls(rustls::Error),
}

impl HandshakeError {
    fn from_io(error: io::Error) -> Self {
        match error.kind() {
            // Error of a socket whose timeout has passed.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Timeout,
            _ => Self::Io(error),
        }
    }
}

/// Performs the handshake until `deadline`, however slowly bytes arrive.
pub(super) fn handshake(
    connection: &mut Connection,
    socket: &TcpStream,
    deadline: Instant,
) -> Result<(), HandshakeError> {
    let limit = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(HandshakeError::Timeout) } else { Ok(Some(left)) }
    };
    let mut wire = socket;
    loop {
        while connection.wants_write() {
            socket.set_write_timeout(limit()?).map_err(HandshakeError::Io)?;
            connection.write_tls(&mut wire).map_err(HandshakeError::from_io)?;
        }
        if !connection.is_handshaking() {
            break;
        }
        // In steps, so that a request to stop is seen meanwhile.
        let step = limit()?.map(|left| left.min(interruption::CHECK_INTERVAL));
        socket.set_read_timeout(step).map_err(HandshakeError::Io)?;
        match connection.read_tls(&mut wire) {
            Ok(0) => return Err(HandshakeError::Ended),
            Ok(_) => {}
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
                    && !interruption::is_requested() =>
            {
                continue;
            }
            Err(error) => return Err(HandshakeError::from_io(error)),
        }
        if let Err(error) = connection.process_new_packets() {
            send_alert(connection, socket, deadline);
            return Err(HandshakeError::Tls(error));
        }
    }
    let free = || -> io::Result<()> {
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        socket.set_nodelay(true)
    };
    free().map_err(HandshakeError::Io)
}

/// Sends the alert with the reason, then lingers: closing a socket with unread bytes in it would reset the
/// connection and destroy the alert in transit (RFC 1122 section 4.2.2.13). The linger ends with the deadline
/// of the handshake, however the peer spaces its bytes.
fn send_alert(connection: &mut Connection, socket: &TcpStream, deadline: Instant) {
    const LINGER: Duration = Duration::from_millis(500);
    const BYTES: usize = 64 << 10;
    let until = deadline.min(Instant::now() + LINGER);
    let left = || match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::Error::from(io::ErrorKind::TimedOut)),
        left => Ok(Some(left)),
    };
    let mut wire = socket;
    let mut send = || -> io::Result<()> {
        while connection.wants_write() {
            socket.set_write_timeout(left()?)?;
            connection.write_tls(&mut wire)?;
        }
        socket.shutdown(Shutdown::Write)?;
        let (mut buffer, mut total) = ([0; 4096], 0);
        while total < BYTES {
            socket.set_read_timeout(left()?)?;
            match wire.read(&mut buffer)? {
                0 => break,
                count => total += count,
            }
        }
        Ok(())
    };
    // The connection is closed regardless.
    let _ = send();
}

/// The alert or error that ended an established connection, for error messages.
pub(super) type Fault = Arc<Mutex<Option<rustls::Error>>>;

/// Halves of an established connection.
pub(super) fn split(connection: Connection, socket: TcpStream) -> io::Result<(Transport, Fault)> {
    let connection = Arc::new(Mutex::new(connection));
    let fault = Fault::default();
    let reader = Reader {
        connection: Arc::clone(&connection),
        socket: socket.try_clone()?,
        cipher: vec![0; CIPHER_BYTES],
        unread: 0..0,
        fault: Arc::clone(&fault),
    };
    let closer = Transport::closer(socket.try_clone()?);
    let writer = Writer { connection, socket };
    Ok((
        Transport { reader: Box::new(reader), writer: Box::new(writer), close: closer, skips_text: false },
        fault,
    ))
}

type Shared = Arc<Mutex<Connection>>;

fn lock(connection: &Shared) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Reader {
    connection: Shared,
    socket: TcpStream,
    cipher: Vec<u8>,
    /// Part of `cipher` that the connection has not consumed yet.
    unread: std::ops::Range<usize>,
    fault: Fault,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut connection = lock(&self.connection);
            match connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // EOF without a closing alert: an end like any other, the session's own `Goodbye` decides
                // whether it was graceful.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                result => return result,
            }
            if self.unread.is_empty() {
                // The lock must not be held while waiting for the socket.
                drop(connection);
                let count = self.socket.read(&mut self.cipher)?;
                if count == 0 {
                    return Ok(0);
                }
                self.unread = 0..count;
                continue;
            }
            let mut cipher = self.cipher.get(self.unread.clone()).unwrap_or_default();
            self.unread.start += connection.read_tls(&mut cipher)?;
            if let Err(error) = connection.process_new_packets() {
                let message = error.to_string();
                *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
        }
    }
}

struct Writer {
    connection: Shared,
    socket: TcpStream,
}

impl Writer {
    /// Records that wait to be sent.
    fn records(connection: &mut Connection) -> io::Result<Vec<u8>> {
        let mut records = Vec::with_capacity(CIPHER_BYTES);
        while connection.wants_write() {
            connection.write_tls(&mut records)?;
        }
        Ok(records)
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = bytes.get(..RECORD_BYTES).unwrap_or(bytes);
        let mut connection = lock(&self.connection);
        let count = connection.writer().write(bytes)?;
        let records = Self::records(&mut connection)?;
        drop(connection);
        self.socket.write_all(&records)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut connection = lock(&self.connection);
        connection.send_close_notify();
        let records = Self::records(&mut connection);
        drop(connection);
        // The peer may be gone already.
        let _ = records.and_then(|records| self.socket.write_all(&records));
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}
