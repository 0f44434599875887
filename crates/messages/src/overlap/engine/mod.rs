//! Data path of both sides: work, messages, and the protocol between client and
//! server.

mod client;
mod protocol;
mod server;
mod transport;
mod work;

use std::{
    hint::spin_loop,
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

use crate::overlap::OverlapConfig;
use crate::{Damage, ProcessCosts, Traffic};

pub(crate) use client::measure;
#[cfg(test)]
pub(crate) use protocol::Frame;
pub(crate) use protocol::{Control, SocketControl};
pub(crate) use server::serve;
pub(crate) use transport::{Iwarp, IwarpServer, RankControl, RankMessages, Tcp, Transport};

/// Empty polls after which the core is yielded to other threads, and the control
/// connection is read: on a shared core a yield may take a time slice.
const POLLS_PER_YIELD: u32 = 16;

/// Errors of the data path.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// A connection failed, or the peer closed it.
    #[error("the data connection failed: {0}")]
    Connection(#[from] io::Error),
    /// The queue pair's connection ended.
    #[error("the queue pair's connection ended: {reason}")]
    QueuePair {
        /// Cause.
        reason: String,
        /// The peer closed it.
        closed_by_peer: bool,
    },
    /// The MPI library reports an error.
    #[error("{0}")]
    Library(String),
    /// Received contents differ from what was sent.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A received message has another size.
    #[error("message of {found} bytes instead of {expected}")]
    OtherSize {
        /// Received size.
        found: u64,
        /// Size of all messages.
        expected: u64,
    },
    /// The number of messages received by the server differs from the number
    /// sent.
    #[error("the server received {found} messages instead of {expected}")]
    Miscounted {
        /// Number counted by the server.
        found: u64,
        /// Number sent by the client.
        expected: u64,
    },
    /// The peer sent something else.
    #[error("the peer sent {0} on the control connection")]
    Unexpected(&'static str),
    /// Stopped from outside.
    #[error("stopped")]
    Stopped,
}

impl EngineError {
    /// Whether the peer closed the connection, and has the cause.
    pub(crate) fn is_closed_by_peer(&self) -> bool {
        match self {
            Self::QueuePair { closed_by_peer, .. } => *closed_by_peer,
            Self::Connection(error) => matches!(
                error.kind(),
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
            ),
            _ => false,
        }
    }
}

/// Connections of one side of a measurement.
#[derive(Debug)]
pub(crate) struct Session<'a> {
    /// Protocol between client and server.
    pub(crate) control: Box<dyn Control + 'a>,
    /// Carries the messages.
    pub(crate) data: Box<dyn Transport + 'a>,
    /// What they cost this process.
    pub(crate) costs: ProcessCosts,
    /// Set to stop it.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) config: &'a OverlapConfig,
}

impl Session<'_> {
    /// Traffic of one phase: client 0, server 1.
    fn traffic(&self, side: u8) -> Traffic {
        if self.config.verify { Traffic::verified(side) } else { Traffic::plain() }
    }

    /// Posts a window of messages.
    fn post_window(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        for _ in 0..self.config.window {
            self.data.post_send(traffic)?;
        }
        Ok(())
    }

    /// Called after a poll without progress. Returns whether the peer has sent
    /// something on the control connection, which is read now and then.
    fn idle(&self, empty_poll_count: &mut u32) -> Result<bool, EngineError> {
        *empty_poll_count = empty_poll_count.wrapping_add(1);
        spin_loop();
        if !empty_poll_count.is_multiple_of(POLLS_PER_YIELD) {
            return Ok(false);
        }
        // The peer may share the core, or an engine.
        thread::yield_now();
        self.check_stop()?;
        self.control.has_arrived()
    }

    fn check_stop(&self) -> Result<(), EngineError> {
        if self.stop.load(Relaxed) { Err(EngineError::Stopped) } else { Ok(()) }
    }

    /// Waits until so many messages of the phase have been received and all
    /// posted ones are sent.
    fn finish(&mut self, traffic: &mut Traffic, received_count: u64) -> Result<(), EngineError> {
        let mut empty_poll_count = 0;
        loop {
            while traffic.received_count() < received_count && self.data.arrived() > 0 {
                self.data.take(traffic)?;
            }
            if traffic.received_count() >= received_count && self.data.sending() == 0 {
                return Ok(());
            }
            if !self.data.poll()? {
                self.idle(&mut empty_poll_count)?;
            }
        }
    }

    /// One cycle of post-work-wait, with the work of the caller; returns when
    /// the messages of all cycles up to this one are complete.
    pub(crate) fn cycle(
        &mut self,
        traffic: &mut Traffic,
        cycle: u64,
        work: impl FnOnce(&mut Self) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        self.data.top_up()?;
        self.post_window(traffic)?;
        work(self)?;
        self.finish(traffic, (cycle + 1) * u64::from(self.config.window))
    }
}
