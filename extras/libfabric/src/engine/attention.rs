//! Sends that wait while the program does not poll.
//!
//! A Send waits for the program's next poll, for credits, or for its connection ([`super::peer`]). A program that
//! computes must not delay it without limit: it may have copied the message and returned from MPI_Send. So the setup
//! thread makes progress after a tick in which the program made none. While the program polls, its ticks get longer:
//! each interrupts the program's core (at 1 ms, 256 KiB messages lost 3 % of their bandwidth).

use std::{os::fd::OwnedFd, sync::Arc, time::Duration};

use rustix::event::{EventfdFlags, eventfd};

use super::Engine;
use crate::abi::FI_ENOMEM;

/// Shortest and longest tick.
const TICK: Duration = Duration::from_millis(1);
const LONGEST_TICK: Duration = Duration::from_millis(8);
/// Ticks without a Send that waits after which the thread sleeps again.
const QUIET_TICKS: u32 = 20;

/// What the thread knows.
pub(super) struct Attention {
    /// Wakes it.
    pub(super) doorbell: Arc<OwnedFd>,
    /// Its next tick, if it is awake.
    tick: Option<Duration>,
    quiet: u32,
    /// Number of polls at its last tick.
    polls: u64,
}

impl Attention {
    pub(super) fn new() -> Result<Self, i32> {
        let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|_| FI_ENOMEM)?;
        Ok(Self { doorbell: Arc::new(doorbell), tick: None, quiet: 0, polls: 0 })
    }
}

impl Engine {
    /// A Send waits: wakes the thread.
    pub(super) fn request_attention(&mut self) {
        if self.attention.tick.is_none() {
            self.attention.tick = Some(TICK);
            // Its counter is read at each wake, so a write cannot overflow it.
            let _ = rustix::io::write(&self.attention.doorbell, &1_u64.to_ne_bytes());
        }
    }

    /// A tick of the thread; returns the time to the next one, if there is to be one.
    pub(super) fn attend(&mut self) -> Option<Duration> {
        let tick = self.attention.tick?;
        let (waits, unattended) = (self.has_pending(), self.attention.polls == self.polls);
        if waits && unattended {
            self.progress();
        }
        let attention = &mut self.attention;
        attention.polls = self.polls;
        attention.quiet = if waits { 0 } else { attention.quiet + 1 };
        let next = if unattended { TICK } else { (tick * 2).min(LONGEST_TICK) };
        attention.tick = (attention.quiet < QUIET_TICKS).then_some(next);
        attention.tick
    }
}
