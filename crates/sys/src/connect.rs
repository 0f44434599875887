//! TCP connections that are given up when a person asks to stop.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Socket, Type};

use crate::interruption;

/// A connection to this address.
///
/// # Errors
/// As [`connect_within`].
pub fn tcp_stream(to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    connect_within(&socket, to, timeout)?;
    Ok(socket.into())
}

/// Connects `socket`, which is blocking before and after, within `timeout`.
///
/// # Errors
/// As connect(2); a timeout, and an end because of a request to stop, which [`interruption::is_requested`] tells.
pub fn connect_within(socket: &Socket, to: SocketAddr, timeout: Duration) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    match socket.connect(&to.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => wait(socket, timeout)?,
        Err(error) => return Err(error),
    }
    socket.set_nonblocking(false)
}

fn wait(socket: &Socket, timeout: Duration) -> io::Result<()> {
    let until = Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out"));
        }
        if interruption::is_requested() {
            return Err(io::Error::other("interrupted"));
        }
        let step = Timespec::try_from(left.min(interruption::CHECK_INTERVAL)).unwrap_or_default();
        let mut awaited = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::OUT)];
        match poll(&mut awaited, Some(&step)) {
            // Writable is also what failed (connect(2), EINPROGRESS).
            Ok(ready) if ready > 0 => return socket.take_error()?.map_or(Ok(()), Err),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn who_listens_is_connected_and_who_does_not_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut here = tcp_stream(address, Duration::from_secs(10)).expect("it listens");
        let (mut there, _) = listener.accept().expect("connected");
        io::Write::write_all(&mut here, b"x").expect("sent");
        io::Read::read_exact(&mut there, &mut [0]).expect("blocking, and received");
        drop(listener);
        let refused = tcp_stream(address, Duration::from_secs(10)).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
