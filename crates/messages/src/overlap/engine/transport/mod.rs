//! Transports: messages of one size, in order, in both directions, without
//! blocking.

mod iwarp;
mod ranks;
mod tcp;

use std::fmt::Debug;

use crate::Traffic;

use super::EngineError;

pub(crate) use iwarp::{Iwarp, IwarpServer};
pub(crate) use ranks::{RankControl, RankMessages};
pub(crate) use tcp::Tcp;

/// One side of a connection that carries messages.
pub(crate) trait Transport: Debug {
    /// Posts receives until two windows are posted: in post-work-wait the peer may
    /// be a cycle ahead, and a Send of iWARP needs a posted receive. MPI keeps what comes early, and one window is
    /// posted.
    ///
    /// # Errors
    /// A lost connection.
    fn top_up(&mut self) -> Result<(), EngineError>;

    /// Posts the next message, with the contents of the traffic.
    ///
    /// # Errors
    /// A lost connection.
    fn post_send(&mut self, traffic: &mut Traffic) -> Result<(), EngineError>;

    /// Moves what can be moved without blocking; returns whether anything was.
    ///
    /// # Errors
    /// A lost connection.
    fn poll(&mut self) -> Result<bool, EngineError>;

    /// Number of messages that arrived and were not taken.
    fn arrived(&self) -> u64;

    /// Number of posted messages that are not sent.
    fn sending(&self) -> u64;

    /// Takes the oldest arrived message and checks its contents.
    ///
    /// # Errors
    /// Contents that differ from the expected ones.
    fn take(&mut self, traffic: &mut Traffic) -> Result<(), EngineError>;
}

/// Numbers of messages since the connection was established, and their slots:
/// a window of them for sending, two for receiving, or one.
#[derive(Debug, Clone, Copy)]
struct Counts {
    window: u64,
    receive_slots: u64,
    sends_posted: u64,
    sent: u64,
    receives_posted: u64,
    received: u64,
    taken: u64,
}

impl Counts {
    fn new(window: u32) -> Self {
        let window = window.into();
        Self { receive_slots: 2 * window, ..Self::of_one_window(window) }
    }

    fn of_one_window(window: u64) -> Self {
        let receive_slots = window;
        Self { window, receive_slots, sends_posted: 0, sent: 0, receives_posted: 0, received: 0, taken: 0 }
    }

    fn send_slots(&self) -> usize {
        self.window as usize
    }

    fn receive_slots(&self) -> usize {
        self.receive_slots as usize
    }

    fn send_slot(&self, number: u64) -> usize {
        (number % self.window) as usize
    }

    fn receive_slot(&self, number: u64) -> usize {
        (number % self.receive_slots) as usize
    }

    /// Number of the next receive to post, while a slot is free.
    fn next_receive(&self) -> Option<u64> {
        (self.receives_posted < self.taken + self.receive_slots).then_some(self.receives_posted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_are_posted_two_windows_ahead_of_what_was_taken() {
        let mut counts = Counts::new(3);
        let mut slots = Vec::new();
        while let Some(number) = counts.next_receive() {
            slots.push(counts.receive_slot(number));
            counts.receives_posted += 1;
        }
        assert_eq!(slots, [0, 1, 2, 3, 4, 5]);
        counts.received = 2;
        assert_eq!(counts.next_receive(), None, "what arrived still needs its slot");
        counts.taken = 1;
        assert_eq!(counts.next_receive(), Some(6));
        assert_eq!((counts.receive_slot(6), counts.send_slot(6), counts.send_slot(7)), (0, 0, 1));
        assert_eq!((counts.send_slots(), counts.receive_slots()), (3, 6));
    }
}
