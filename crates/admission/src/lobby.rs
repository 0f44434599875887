//! Accepts for a listener that polls, and keeps connections until their first message is complete.

use std::{
    io::{self, ErrorKind, Read as _},
    net::SocketAddr,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use crate::{Accepting, Limits, Strangers};

/// Connections accepted in one round: a flood does not starve those that are here.
const ROUND: usize = 64;

/// A connection without a complete message. Its socket does not block.
#[derive(Debug)]
pub struct Waiting<T> {
    /// Order of arrival.
    pub number: u64,
    /// The connection.
    pub socket: Socket,
    /// Its other end.
    pub peer: SocketAddr,
    /// What was received so far.
    pub state: T,
}

/// What has become of a connection.
#[derive(Debug)]
pub enum Step<R> {
    /// It is incomplete.
    Wait,
    /// It is complete, and leaves.
    Done(R),
    /// It is closed.
    Close,
}

/// Connections of one listener.
#[derive(Debug)]
pub struct Lobby<T> {
    strangers: Strangers,
    waiting: Vec<Waiting<T>>,
    next: u64,
    exhausted: Option<io::Error>,
}

impl<T: Default> Lobby<T> {
    /// An empty one.
    pub fn new(limits: Limits) -> Self {
        Self { strangers: Strangers::new(limits), waiting: Vec::new(), next: 0, exhausted: None }
    }

    /// Waits until there is something to do, at most for so long.
    pub fn wait(&mut self, listener: Option<&Socket>, longest: Duration) {
        let now = Instant::now();
        // While nothing can be accepted the listener stays readable.
        let listener = listener.filter(|_| self.strangers.is_accepting(now));
        let sockets = listener.into_iter().chain(self.waiting.iter().map(|waiting| &waiting.socket));
        let mut polled: Vec<PollFd<'_>> = sockets.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        let deadline = self.strangers.deadline().map(|until| until.saturating_duration_since(now));
        let longest = deadline.map_or(longest, |deadline| longest.min(deadline));
        // An interruption is handled like a timeout.
        let _ = poll(&mut polled, Timespec::try_from(longest).ok().as_ref());
    }

    /// Takes a step with each connection, and accepts further ones from the listener, which does not block. A
    /// newcomer takes its step before it displaces anybody. Returns those that are complete; others are closed by
    /// their time, by newcomers or by the step.
    pub fn round<R>(
        &mut self,
        listener: Option<&Socket>,
        mut step: impl FnMut(&mut Waiting<T>) -> Step<R>,
    ) -> Vec<(Waiting<T>, R)> {
        let mut complete = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            match step(&mut waiting) {
                Step::Wait => self.waiting.push(waiting),
                Step::Done(done) => {
                    self.strangers.leave(waiting.number);
                    complete.push((waiting, done));
                }
                Step::Close => self.strangers.leave(waiting.number),
            }
        }
        let now = Instant::now();
        while let Some(number) = self.strangers.overdue(now) {
            self.close(number);
        }
        let Some(listener) = listener else { return complete };
        for _ in 0..ROUND {
            let Some(mut waiting) = self.accept(listener, now) else { break };
            match step(&mut waiting) {
                Step::Wait => {
                    if let Some(number) = self.strangers.enter(waiting.number, waiting.peer.ip(), now) {
                        self.close(number);
                    }
                    self.waiting.push(waiting);
                }
                Step::Done(done) => complete.push((waiting, done)),
                Step::Close => {}
            }
        }
        complete
    }

    /// The error of accept(2) when no descriptor or memory was left and nobody could be closed for it, once.
    pub fn exhausted(&mut self) -> Option<io::Error> {
        self.exhausted.take()
    }

    fn accept(&mut self, listener: &Socket, now: Instant) -> Option<Waiting<T>> {
        // Bounded: an error of a connection takes it from the queue, and each closing makes room.
        for _ in 0..ROUND {
            if !self.strangers.is_accepting(now) {
                return None;
            }
            match listener.accept() {
                Ok((socket, peer)) => {
                    let Some(peer) = peer.as_socket().filter(|_| socket.set_nonblocking(true).is_ok()) else {
                        continue;
                    };
                    self.next += 1;
                    return Some(Waiting { number: self.next, socket, peer, state: T::default() });
                }
                Err(error) => match self.strangers.refused(&error, now) {
                    Accepting::Later => return None,
                    Accepting::Again => {}
                    Accepting::Close(number) => self.close(number),
                    Accepting::Pause => self.exhausted = Some(error),
                },
            }
        }
        None
    }

    fn close(&mut self, number: u64) {
        self.waiting.retain(|waiting| waiting.number != number);
    }
}

/// Reads until there are as many bytes as wanted, and none beyond them.
pub fn fill(mut socket: &Socket, received: &mut Vec<u8>, wanted: usize) -> Step<()> {
    while received.len() < wanted {
        let mut bytes = [0; 256];
        let most = (wanted - received.len()).min(bytes.len());
        let (free, _) = bytes.split_at_mut(most);
        match socket.read(free) {
            Ok(0) => return Step::Close,
            Ok(length) => received.extend(free.iter().take(length)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Step::Wait;
            }
            Err(_) => return Step::Close,
        }
    }
    Step::Done(())
}
