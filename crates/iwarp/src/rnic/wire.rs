//! The machine of a connection and its socket: bytes in and out.

use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use socket2::Socket;

use crate::{
    memory::{self, Piece, Span},
    queue_pair::{Failure, Machine},
};

/// Staged in one call, outside of payload that goes straight to its memory.
/// More would copy the beginning of large messages, less would cost calls for
/// small ones.
pub(super) const STAGING_BYTES: usize = 16 * 1024;

/// Bytes that a connection moves one way before the other way, and the next
/// connection, have their turn. Two ends that send more before they receive fill
/// their sockets and wait for one another.
const TURN_BYTES: usize = 1 << 20;

/// The machine and its socket.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) machine: Machine,
    pub(super) socket: Socket,
    /// There is more to send than was sent: somebody must look for room.
    pub(super) blocked: bool,
    /// The peer's end was read.
    pub(super) ended: bool,
    /// Our end was sent.
    pub(super) shut: bool,
    /// This side gave it up: the peer gets a reset.
    pub(super) aborted: bool,
    /// What the epolls were told of `ended` and `blocked`.
    pub(super) watched: (bool, bool),
    /// When it is given up.
    pub(super) deadline: Option<Instant>,
    /// What the drivers were told of `deadline`.
    pub(super) announced: Option<Instant>,
    /// Bytes sent since the socket was read.
    ahead: usize,
    /// Bytes to be sent until the segment size is asked for once more.
    pub(super) settling: usize,
}

/// TCP sends segments of half the peer's window at most, and that is small in
/// the beginning: where segments are large, as on loopback, they are twice as
/// large after so many bytes. That is several times what a socket takes at
/// once, so that the peer has seen enough of them.
pub(super) const SETTLING_BYTES: usize = 16 << 20;

/// What a visit found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Visit {
    /// Bytes moved, or requests.
    pub(super) progress: bool,
    /// Its turn ended it: there may be more to do.
    pub(super) more: bool,
    /// The connection is gone.
    pub(super) over: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Wire {
    pub(super) fn new(machine: Machine, socket: Socket, deadline: Option<Instant>) -> Self {
        Self {
            machine,
            socket,
            blocked: false,
            ended: false,
            shut: false,
            aborted: false,
            watched: (false, false),
            deadline,
            announced: None,
            ahead: 0,
            settling: SETTLING_BYTES,
        }
    }

    /// Sends what the machine has until the socket is full or it is time to
    /// receive.
    pub(super) fn transmit(&mut self, visit: &mut Visit) {
        self.blocked = false;
        loop {
            let outcome = {
                let batch = self.machine.outgoing();
                if batch.is_empty() {
                    return;
                }
                if self.ahead >= TURN_BYTES {
                    // Whoever sleeps now is woken at once by the room there is.
                    (visit.more, self.blocked) = (true, true);
                    return;
                }
                let mut pieces = SmallVec::<[Piece<'_>; 64]>::new();
                batch.pieces(&mut pieces);
                memory::send(self.socket.as_fd(), &pieces, false).map(|bytes| (bytes, bytes < batch.len()))
            };
            match outcome {
                Ok((bytes, short)) => {
                    self.machine.sent(bytes);
                    self.settle_segments(bytes);
                    visit.progress = true;
                    self.ahead += bytes;
                    self.blocked = short;
                }
                Err(error) => self.trouble(&error, Direction::Out),
            }
            if self.blocked {
                return;
            }
        }
    }

    fn settle_segments(&mut self, sent: usize) {
        if self.settling == 0 {
            return;
        }
        self.settling = self.settling.saturating_sub(sent);
        if self.settling == 0
            && let Ok(mss) = self.socket.tcp_mss()
        {
            self.machine.grow(usize::try_from(mss).unwrap_or(0));
        }
    }

    /// Receives until the socket is empty or it is time to send.
    pub(super) fn receive(&mut self, staging: &mut [u8], visit: &mut Visit) {
        self.ahead = 0;
        if self.ended {
            return;
        }
        let mut moved = 0;
        loop {
            match self.receive_once(staging) {
                Ok((0, _)) => {
                    self.ended = true;
                    visit.progress = true;
                    self.machine.end_of_stream();
                    return;
                }
                Ok((bytes, all)) => {
                    visit.progress = true;
                    moved += bytes;
                    if !all {
                        return;
                    }
                    if moved >= TURN_BYTES {
                        visit.more = true;
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    self.trouble(&error, Direction::In);
                    if self.ended {
                        visit.progress = true;
                        return;
                    }
                }
            }
        }
    }

    /// One call; how many bytes came, and whether as many as there was room
    /// for.
    fn receive_once(&mut self, staging: &mut [u8]) -> io::Result<(usize, bool)> {
        let Some((spans, behind)) = self.machine.straight() else {
            let room = staging.len().min(STAGING_BYTES);
            let bytes = memory::receive(self.socket.as_fd(), &[], &mut staging[..room])?;
            self.machine.consume(&staging[..bytes]);
            return Ok((bytes, bytes == room));
        };
        let behind = behind.min(staging.len());
        let payload: usize = spans.iter().map(Span::len).sum();
        let bytes = memory::receive(self.socket.as_fd(), &spans, &mut staging[..behind])?;
        drop(spans);
        if bytes > 0 {
            self.machine.placed(bytes.min(payload));
        }
        if bytes > payload {
            self.machine.consume(&staging[..bytes - payload]);
        }
        Ok((bytes, bytes == payload + behind))
    }

    fn trouble(&mut self, error: &io::Error, direction: Direction) {
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => self.blocked = true,
            // The other side's last words may still be readable: a Terminate
            // tells more than a broken pipe.
            io::ErrorKind::BrokenPipe if direction == Direction::Out && !self.ended => self.blocked = true,
            // Not the system's: memory was taken back by its owner.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => match direction {
                Direction::In => self.machine.unreceivable(),
                Direction::Out => self.machine.unsendable(),
            },
            io::ErrorKind::TimedOut => {
                self.ended = true;
                self.machine.fail(Failure::TimedOut);
            }
            _ => {
                self.ended = true;
                self.machine.fail(Failure::Reset);
            }
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // An end in disorder is to be seen as one.
        if self.aborted {
            let _ = self.socket.set_linger(Some(Duration::ZERO));
        }
    }
}
