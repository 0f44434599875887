//! What an error of accept(2) means for a service that goes on.

use std::{io, thread, time::Duration};

use rustix::io::Errno;

/// Wait after accept(2) failed for want of something, where nothing could be closed.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Meaning of an error of accept(2). None of them ends a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptFault {
    /// No connection waits.
    Empty,
    /// It was of the connection, which is gone: the next one may be accepted.
    Gone,
    /// The connection stays where it is (no descriptor, no memory, or not permitted), so that the listener stays
    /// readable: something has to be closed, or a moment waited.
    Exhausted,
}

impl AcceptFault {
    /// Classifies an error.
    pub fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(Errno::AGAIN | Errno::INTR) => Self::Empty,
            // accept(2): "already-pending network errors on the new socket" are passed on.
            Some(
                Errno::CONNABORTED
                | Errno::CONNRESET
                | Errno::NETDOWN
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::HOSTUNREACH
                | Errno::OPNOTSUPP
                | Errno::NETUNREACH
                | Errno::TIMEDOUT,
            ) => Self::Gone,
            // EMFILE, ENFILE, ENOBUFS, ENOMEM; EPERM of a security module, which is asked before a connection
            // is taken; and whatever else there may be.
            _ => Self::Exhausted,
        }
    }

    /// For a loop that has nothing to close and nothing else to do: waits a moment where the next call would fail at
    /// once in the same way.
    pub fn pause_after(error: &io::Error) {
        if Self::of(error) == Self::Exhausted {
            thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_a_meaning_and_those_of_accept_the_right_one() {
        let of = |errno: Errno| AcceptFault::of(&errno.into());
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::PERM] {
            assert_eq!(of(errno), AcceptFault::Exhausted, "{errno:?}");
        }
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::NETDOWN, Errno::HOSTUNREACH] {
            assert_eq!(of(errno), AcceptFault::Gone, "{errno:?}");
        }
        assert_eq!(of(Errno::AGAIN), AcceptFault::Empty);
        let gone = (1..=133)
            .filter(|code| AcceptFault::of(&io::Error::from_raw_os_error(*code)) == AcceptFault::Gone);
        assert_eq!(gone.count(), 11, "what is not listed may keep the listener readable");
        assert_eq!(AcceptFault::of(&io::ErrorKind::Other.into()), AcceptFault::Exhausted);
    }
}
