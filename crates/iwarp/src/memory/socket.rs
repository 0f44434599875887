//! Socket calls that transfer bytes between the kernel and registered memory
//! without an intermediate copy.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::net::{self, RecvFlags, SendFlags};
use smallvec::SmallVec;

use super::{Span, storage::Entered};

/// Buffers per call (IOV_MAX, sendmsg(2): `EMSGSIZE` above).
const PIECES_PER_CALL: usize = libc::UIO_MAXIOV as usize;

/// Flags of every send.
const SENDING: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A buffer to send.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Plain bytes.
    Bytes(&'a [u8]),
    /// Registered memory.
    Memory(&'a Span),
}

/// Sends pieces in order by one non-blocking call; `more` announces more data
/// (`MSG_MORE`). Returns the number of bytes accepted by the kernel, which may
/// end inside a piece; pieces beyond the first 1024 are not sent.
///
/// # Errors
/// The socket's ([`io::ErrorKind::WouldBlock`] when it is full), or
/// [`io::ErrorKind::PermissionDenied`] when the memory was withdrawn by its
/// owner: nothing was sent.
pub fn send(socket: BorrowedFd<'_>, pieces: &[Piece<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SENDING | SendFlags::MORE } else { SENDING };
    if let [Piece::Bytes(bytes)] = pieces {
        // Bypass the C library, whose call is a cancellation point: that costs
        // a few per cent of a receive that returns no data.
        return Ok(net::send(socket, bytes, flags)?);
    }
    let mut vectors = Vectors::default();
    for piece in pieces.iter().take(PIECES_PER_CALL) {
        match piece {
            Piece::Bytes(bytes) => vectors.push(bytes.as_ptr().cast_mut(), bytes.len()),
            Piece::Memory(span) => vectors.push_span(span)?,
        }
    }
    // SAFETY: every vector refers to bytes that are borrowed or entered until
    // the end of this function; the kernel only reads them.
    transferred(unsafe { libc::sendmsg(socket.as_raw_fd(), &vectors.message(), flags.bits().cast_signed()) })
}

/// Receives by one non-blocking call: first into the spans, in order, and the
/// rest into `staging`. Returns the number of bytes received; zero means that
/// the peer closed the connection.
///
/// # Errors
/// As for [`send`].
pub fn receive(socket: BorrowedFd<'_>, straight: &[Span], staging: &mut [u8]) -> io::Result<usize> {
    if straight.is_empty() {
        return Ok(net::recv(socket, staging, RecvFlags::DONTWAIT)?.0);
    }
    let mut vectors = Vectors::default();
    for span in straight.iter().take(PIECES_PER_CALL - 1) {
        vectors.push_span(span)?;
    }
    if straight.len() < PIECES_PER_CALL {
        vectors.push(staging.as_mut_ptr(), staging.len());
    }
    // SAFETY: as in `send`; staging is borrowed exclusively, and spans that the
    // kernel writes to are accessed only through atomic words.
    transferred(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut vectors.message(), libc::MSG_DONTWAIT) })
}

/// I/O vectors of one call, with the guards that keep their memory accessible.
#[derive(Default)]
struct Vectors<'a> {
    places: SmallVec<[libc::iovec; 32]>,
    inside: SmallVec<[Entered<'a>; 32]>,
}

impl<'a> Vectors<'a> {
    fn push(&mut self, place: *mut u8, length: usize) {
        if length > 0 {
            self.places.push(libc::iovec { iov_base: place.cast(), iov_len: length });
        }
    }

    fn push_span(&mut self, span: &'a Span) -> io::Result<()> {
        match span.enter_place() {
            None => Ok(()),
            Some(Some((place, inside))) => {
                self.push(place, span.len());
                self.inside.push(inside);
                Ok(())
            }
            Some(None) => {
                let why =
                    "the owner of the memory withdrew it while a request used it: wait for completions first";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
        }
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all zeroes is a valid empty `msghdr`; musl's has padding
        // fields that are not public.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = self.places.as_mut_ptr();
        message.msg_iovlen = self.places.len() as _;
        message
    }
}

fn transferred(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
