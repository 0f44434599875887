//! The two calls of a socket that move bytes between the kernel and registered
//! memory without a copy in between.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::net::{self, RecvFlags, SendFlags};
use smallvec::SmallVec;

use super::{Span, storage::Entered};

/// How many pieces one call takes (IOV_MAX, sendmsg(2): `EMSGSIZE` above).
const PIECES_AT_ONCE: usize = libc::UIO_MAXIOV as usize;

/// Flags of every send.
const SENDING: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Something to be sent.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Plain bytes.
    Bytes(&'a [u8]),
    /// Registered memory.
    Memory(&'a Span),
}

/// Sends pieces in order by one call that does not wait; `more` says that more
/// follows soon (`MSG_MORE`). Returns how many bytes the kernel took, which may
/// end inside a piece; beyond the first 1024 pieces none is taken.
///
/// # Errors
/// The socket's ([`io::ErrorKind::WouldBlock`] when it is full), or
/// [`io::ErrorKind::PermissionDenied`] when memory was taken back by its owner:
/// nothing was sent.
pub fn send(socket: BorrowedFd<'_>, pieces: &[Piece<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SENDING | SendFlags::MORE } else { SENDING };
    if let [Piece::Bytes(bytes)] = pieces {
        // Not by the C library, whose call is a point of cancellation: that costs
        // a few per cent of a receive that finds nothing.
        return Ok(net::send(socket, bytes, flags)?);
    }
    let mut vectors = Vectors::default();
    for piece in pieces.iter().take(PIECES_AT_ONCE) {
        match piece {
            Piece::Bytes(bytes) => vectors.push(bytes.as_ptr().cast_mut(), bytes.len()),
            Piece::Memory(span) => vectors.push_span(span)?,
        }
    }
    // SAFETY: every vector names bytes that are borrowed or entered until the
    // end of this function; the kernel only reads them.
    taken(unsafe { libc::sendmsg(socket.as_raw_fd(), &vectors.message(), flags.bits().cast_signed()) })
}

/// Receives by one call that does not wait: first into the spans, in order, and
/// what they do not hold into `staging`. Returns how many bytes came; none
/// means that the peer closed.
///
/// # Errors
/// As for [`send`].
pub fn receive(socket: BorrowedFd<'_>, straight: &[Span], staging: &mut [u8]) -> io::Result<usize> {
    if straight.is_empty() {
        return Ok(net::recv(socket, staging, RecvFlags::DONTWAIT)?.0);
    }
    let mut vectors = Vectors::default();
    for span in straight.iter().take(PIECES_AT_ONCE - 1) {
        vectors.push_span(span)?;
    }
    if straight.len() < PIECES_AT_ONCE {
        vectors.push(staging.as_mut_ptr(), staging.len());
    }
    // SAFETY: as in `send`; staging is borrowed exclusively, and what the
    // kernel writes into spans nobody reaches but by words.
    taken(unsafe { libc::recvmsg(socket.as_raw_fd(), &mut vectors.message(), libc::MSG_DONTWAIT) })
}

/// Places of one call, and what keeps them.
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
                let why = "the owner of the memory took it back while a request used it: wait for completions first";
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
        }
    }

    fn message(&mut self) -> libc::msghdr {
        // SAFETY: all zeroes is a valid empty `msghdr`; musl's has padding that
        // cannot be named.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = self.places.as_mut_ptr();
        message.msg_iovlen = self.places.len() as _;
        message
    }
}

fn taken(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
