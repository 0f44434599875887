//! Transport of a connection: the protocol state machine and its socket.

use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use smallvec::SmallVec;
use socket2::Socket;

use crate::{
    memory::{self, Piece},
    queue_pair::{Failure, Machine},
    rnic::hold::Predictor,
};

/// Staging bytes per call, besides payload received directly into its memory.
/// More would copy the beginning of large messages, less would cost additional
/// calls for small ones.
pub(super) const STAGING_BYTES: usize = 16 * 1024;

/// Budget in bytes of a connection in one direction before the other direction,
/// and the next connection, are served. Two peers that send more before they
/// receive fill their sockets and block each other.
const TURN_BYTES: usize = 1 << 20;

/// Protocol state machine and socket of a connection.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) machine: Machine,
    pub(super) socket: Socket,
    /// The socket is full: wait until it is writable.
    pub(super) blocked: bool,
    /// The peer's end of stream was read.
    pub(super) ended: bool,
    /// The socket was shut down for writing.
    pub(super) shut: bool,
    /// This side aborted: the peer gets a reset.
    pub(super) aborted: bool,
    /// A thread that sleeps until the socket is readable found that it is not read, for want of memory.
    pub(super) parked: bool,
    /// Interest that the epolls have.
    pub(super) watched: (bool, bool),
    /// A Send waits for a receive until `deadline`.
    pub(super) receiver_not_ready: bool,
    /// Time at which the connection is aborted, or at which a Send has waited
    /// for a receive long enough.
    pub(super) deadline: Option<Instant>,
    /// Value of `deadline` that the drivers have.
    pub(super) announced: Option<Instant>,
    /// Whether small Writes are held.
    pub(super) predictor: Predictor,
    /// Bytes sent since the socket was read.
    ahead: usize,
    /// Bytes to send before the segment size is queried again.
    pub(super) settling: usize,
}

/// TCP limits segments to half the peer's window, which is small in the
/// beginning: where segments are large, as on loopback, they have doubled after
/// this many bytes. That is several times the socket buffer, so that the peer's
/// window has grown.
pub(super) const SETTLING_BYTES: usize = 16 << 20;

/// Result of a visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Visit {
    /// Whether bytes or requests were processed.
    pub(super) progress: bool,
    /// Whether its budget was exhausted: there may be more to do.
    pub(super) more: bool,
    /// Whether the connection is closed.
    pub(super) over: bool,
    /// Bytes that were sent.
    pub(super) sent_bytes: usize,
    /// Bytes that were received.
    pub(super) received_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Transport {
    pub(super) fn new(machine: Machine, socket: Socket, deadline: Option<Instant>) -> Self {
        Self {
            machine,
            socket,
            blocked: false,
            ended: false,
            shut: false,
            aborted: false,
            parked: false,
            receiver_not_ready: false,
            watched: (true, false),
            deadline,
            announced: None,
            predictor: Predictor::new(),
            ahead: 0,
            settling: SETTLING_BYTES,
        }
    }

    /// Sends until the socket is full or the budget is exhausted.
    pub(super) fn transmit(&mut self, visit: &mut Visit) {
        self.blocked = false;
        loop {
            let outcome = {
                let batch = self.machine.outgoing();
                if batch.is_empty() {
                    return;
                }
                if self.ahead >= TURN_BYTES {
                    // A sleeping thread is woken at once because the socket is
                    // writable.
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
                    visit.sent_bytes += bytes;
                    self.ahead += bytes;
                    self.blocked = short;
                }
                Err(error) => {
                    self.handle_error(&error, Direction::Out);
                    // The state machine has acted on it: its completions must be delivered.
                    visit.progress |= !self.blocked;
                }
            }
            if self.blocked {
                return;
            }
        }
    }

    /// What the epolls are to report: readable, writable.
    pub(super) fn interest(&self) -> (bool, bool) {
        (!self.ended && !self.parked, self.blocked)
    }

    /// Sets the deadline of a Send that waits for a receive; removes it when it
    /// waits no more. One of the setup or of the end of the connection stays.
    pub(super) fn limit_receiver_not_ready(&mut self, timeout: Duration) {
        let receiver_not_ready = self.machine.is_receiver_not_ready();
        if receiver_not_ready && self.deadline.is_none() {
            (self.deadline, self.receiver_not_ready) = (Some(Instant::now() + timeout), true);
        } else if !receiver_not_ready && std::mem::take(&mut self.receiver_not_ready) {
            self.deadline = None;
        }
    }

    /// The deadline of a Send that waits for a receive has passed: ends the
    /// connection, unless a receive was posted just now.
    pub(super) fn end_receiver_not_ready(&mut self, visit: &mut Visit) {
        (self.deadline, self.receiver_not_ready) = (None, false);
        self.machine.resume();
        self.machine.give_up();
        // Its last segment may have to be read first.
        self.parked = false;
        self.transmit(visit);
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

    /// Receives until the socket is empty or the budget is exhausted.
    pub(super) fn receive(&mut self, staging: &mut [u8], visit: &mut Visit) {
        self.ahead = 0;
        if self.ended {
            return;
        }
        if self.machine.is_waiting() {
            // The end of a stream that is not read: epoll reports it whatever its interest.
            if let Ok(Some(error)) = self.socket.take_error() {
                self.handle_error(&error, Direction::In);
                visit.progress |= self.ended;
            }
            return;
        }
        let mut moved = 0;
        // A receive may fill in the loop.
        while !self.machine.is_waiting() {
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
                    visit.received_bytes += bytes;
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
                    self.handle_error(&error, Direction::In);
                    if self.ended {
                        visit.progress = true;
                        return;
                    }
                }
            }
        }
    }

    /// Receives once; returns the number of bytes, and whether the buffers were
    /// filled.
    fn receive_once(&mut self, staging: &mut [u8]) -> io::Result<(usize, bool)> {
        let Some((spans, behind)) = self.machine.straight() else {
            let room = staging.len().min(STAGING_BYTES);
            let bytes = memory::receive(self.socket.as_fd(), &[], &mut staging[..room])?.staged;
            self.machine.consume(&staging[..bytes]);
            return Ok((bytes, bytes == room));
        };
        let behind = behind.min(staging.len());
        let received = memory::receive(self.socket.as_fd(), &spans, &mut staging[..behind])?;
        drop(spans);
        let bytes = received.straight + received.staged;
        if received.straight > 0 {
            self.machine.placed(received.straight);
        }
        if received.staged > 0 {
            self.machine.consume(&staging[..received.staged]);
        }
        if let Some(error) = received.error {
            self.handle_error(&error, Direction::In);
        }
        Ok((bytes, received.staged == behind))
    }

    fn handle_error(&mut self, error: &io::Error, direction: Direction) {
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            io::ErrorKind::WouldBlock => self.blocked = true,
            // The peer's last message may still be readable: a Terminate is
            // more specific than a broken pipe.
            io::ErrorKind::BrokenPipe
                if direction == Direction::Out && !self.ended && !self.machine.is_waiting() =>
            {
                self.blocked = true;
            }
            // Not an error of the system call: the memory was withdrawn by its
            // owner.
            io::ErrorKind::PermissionDenied if error.raw_os_error().is_none() => match direction {
                Direction::In => self.machine.receive_failed(),
                Direction::Out => self.machine.send_failed(),
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

impl Drop for Transport {
    fn drop(&mut self) {
        // An aborted connection must be reset, not closed gracefully.
        if self.aborted {
            let _ = self.socket.set_linger(Some(Duration::ZERO));
        }
    }
}
