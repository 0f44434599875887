//! What happens at a daemon, for its log: lines whose number strangers and
//! controllers choose are bounded in rate.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::rate::{Admission, LogLimit};

/// What happens at a daemon. Printed, it is a line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeEvent {
    /// A paired controller is served.
    Opened {
        /// Name of its pairing.
        client: String,
        /// Where it comes from.
        address: SocketAddr,
    },
    /// Its session is over.
    Closed {
        /// Name of its pairing.
        client: String,
        /// Where it came from.
        address: SocketAddr,
        /// How it ended.
        reason: String,
    },
    /// A call of a paired controller reached no service: unknown, malformed, or not
    /// permitted by its scope. Bounded in rate as [`ServeEvent::Rejected`].
    Refused {
        /// Name of its pairing.
        client: String,
        /// Where it comes from.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// Somebody was not served. Bounded in rate: see [`ServeEvent::Suppressed`].
    Rejected {
        /// Where it came from.
        address: SocketAddr,
        /// Why.
        reason: String,
    },
    /// More were rejected or refused than are reported one by one.
    Suppressed {
        /// How many since the last such event.
        count: u64,
    },
}

impl fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { client, address } => write!(f, "serving \"{client}\" from {address}"),
            Self::Closed { client, address, reason } => {
                write!(f, "\"{client}\" from {address} is done: {reason}")
            }
            Self::Refused { client, address, reason } => {
                write!(f, "refused a call of \"{client}\" from {address}: {reason}")
            }
            Self::Rejected { address, reason } => write!(f, "turned {address} away: {reason}"),
            Self::Suppressed { count } => write!(f, "turned {count} more away, not listed one by one"),
        }
    }
}

/// Receives what happens. Called from several threads.
pub(super) type OnEvent = Box<dyn Fn(&ServeEvent) + Send + Sync>;

/// A daemon's log.
pub(super) struct Log {
    on_event: OnEvent,
    limit: Mutex<LogLimit>,
}

impl Log {
    pub(super) fn new(on_event: OnEvent) -> Self {
        Self { on_event, limit: Mutex::new(LogLimit::new(Instant::now())) }
    }

    /// Writes an event.
    pub(super) fn write(&self, event: &ServeEvent) {
        (self.on_event)(event);
    }

    /// Writes an event of which others choose how many there are, or counts it.
    pub(super) fn write_bounded(&self, event: &ServeEvent) {
        let admission = self.limit().admit(Instant::now());
        if admission == Admission::Write {
            self.write(event);
        }
    }

    /// Writes how many events were only counted, when that is due.
    pub(super) fn report_suppressed(&self, take: impl FnOnce(&mut LogLimit, Instant) -> Option<u64>) {
        let suppressed = take(&mut self.limit(), Instant::now());
        if let Some(count) = suppressed {
            self.write(&ServeEvent::Suppressed { count });
        }
    }

    fn limit(&self) -> MutexGuard<'_, LogLimit> {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
