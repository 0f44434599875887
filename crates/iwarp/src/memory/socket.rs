//! Socket calls that transfer bytes between the kernel and registered memory
//! without an intermediate copy.

use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::net::{self, RecvFlags, SendFlags};
use smallvec::SmallVec;

use super::{
    Span,
    held::{self, Received},
    storage::Entered,
};

/// Buffers per call (IOV_MAX, sendmsg(2): `EMSGSIZE` above).
const PIECES_PER_CALL: usize = libc::UIO_MAXIOV as usize;

/// Flags of every send.
const SENDING: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// A buffer to send.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Plain bytes.
    Bytes(&'a [u8]),
    /// Registered memory, by its address.
    Memory(&'a Span),
    /// Registered memory, by the pages that the kernel holds.
    Pages(&'a Span),
}

/// Sends pieces in order by one non-blocking call; `more` announces more data
/// (`MSG_MORE`). Returns the number of bytes accepted by the kernel, which may
/// end inside a piece; pieces beyond the first 1024 are not sent.
///
/// # Errors
/// The socket's ([`io::ErrorKind::WouldBlock`] when it is full), or
/// [`io::ErrorKind::PermissionDenied`] when the memory was withdrawn by its
/// owner or is gone: nothing was sent.
pub fn send(socket: BorrowedFd<'_>, pieces: &[Piece<'_>], more: bool) -> io::Result<usize> {
    let flags = if more { SENDING | SendFlags::MORE } else { SENDING };
    if let [Piece::Bytes(bytes)] = pieces {
        // Bypass the C library, whose call is a cancellation point: that costs
        // a few per cent of a receive that returns no data.
        return Ok(net::send(socket, bytes, flags)?);
    }
    if pieces.iter().any(|piece| matches!(piece, Piece::Pages(_))) {
        return send_pages(socket, pieces, more);
    }
    let mut vectors = Vectors::default();
    for piece in pieces.iter().take(PIECES_PER_CALL) {
        match piece {
            Piece::Bytes(bytes) => vectors.push(bytes.as_ptr().cast_mut(), bytes.len()),
            Piece::Memory(span) | Piece::Pages(span) => vectors.push_span(span)?,
        }
    }
    // SAFETY: every vector refers to bytes that are borrowed or entered until
    // the end of this function; the kernel only reads them.
    transferred(unsafe { libc::sendmsg(socket.as_raw_fd(), &vectors.message(), flags.bits().cast_signed()) })
}

/// Like [`send`], by the pages of what is held; ends before memory that is not.
fn send_pages(socket: BorrowedFd<'_>, pieces: &[Piece<'_>], more: bool) -> io::Result<usize> {
    let of_one_kind = pieces.iter().take_while(|piece| match piece {
        Piece::Bytes(_) => true,
        Piece::Memory(span) | Piece::Pages(span) => span.is_held(),
    });
    let pieces = &pieces[..of_one_kind.count()];
    let spans = pieces.iter().filter_map(|piece| match piece {
        Piece::Bytes(_) => None,
        Piece::Memory(span) | Piece::Pages(span) => Some(*span),
    });
    let held = Span::enter_all(spans).ok_or_else(withdrawn)?;
    let Some(rings) = held.rings else { return Ok(0) };
    let (mut outgoing, mut parts) = (SmallVec::<[held::Outgoing<'_>; 32]>::new(), held.parts.iter().copied());
    for piece in pieces {
        match piece {
            Piece::Bytes(bytes) => outgoing.push(held::Outgoing::Bytes(bytes)),
            Piece::Memory(span) | Piece::Pages(span) => {
                let mut left = span.len();
                while left > 0
                    && let Some(part) = parts.next()
                {
                    outgoing.push(held::Outgoing::Part(part));
                    left = left.saturating_sub(part.length as usize);
                }
            }
        }
    }
    rings.send(socket, &outgoing, more)
}

/// Receives by one non-blocking call: first into the spans, in order, and the
/// rest into `staging`. Of the spans either all or none are held by the kernel.
///
/// # Errors
/// As for [`send`].
pub fn receive(socket: BorrowedFd<'_>, straight: &[Span], staging: &mut [u8]) -> io::Result<Received> {
    if straight.is_empty() {
        let staged = net::recv(socket, staging, RecvFlags::DONTWAIT)?.0;
        return Ok(Received { staged, ..Received::default() });
    }
    if straight[0].is_held() {
        let held = Span::enter_all(straight).ok_or_else(withdrawn)?;
        let rings = held.rings.ok_or_else(withdrawn)?;
        return rings.receive(socket, &held.parts, staging);
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
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut vectors.message(), libc::MSG_DONTWAIT) };
    let bytes = transferred(result)?;
    let room: usize = straight.iter().take(PIECES_PER_CALL - 1).map(Span::len).sum();
    let inside = bytes.min(room);
    Ok(Received { straight: inside, staged: bytes - inside, error: None })
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
            Some(None) => Err(withdrawn()),
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

/// The memory was deregistered, or has gone from where it was registered.
fn withdrawn() -> io::Error {
    let why = "the owner of the memory withdrew it while a request used it: wait for completions first";
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

fn transferred(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| match io::Error::last_os_error() {
        // An address that is not there any more (send(2), recv(2)).
        error if error.raw_os_error() == Some(libc::EFAULT) => withdrawn(),
        error => error,
    })
}
