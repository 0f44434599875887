//! Events of a daemon, for its log: those whose number strangers and controllers choose are rate-limited.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::rate::{Admission, LogLimit};

/// An event of a daemon. `Display` writes it as a log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeEvent {
    /// A paired controller is admitted.
    Opened {
        /// Name of its pairing.
        client: String,
        /// Its address.
        address: SocketAddr,
    },
    /// Its session is over.
    Closed {
        /// Name of its pairing.
        client: String,
        /// Its address.
        address: SocketAddr,
        /// How it ended.
        reason: String,
        /// Not closed by either side: the connection failed.
        is_failed: bool,
    },
    /// A call of a paired controller was rejected: unknown, malformed, or not permitted by its scope.
    /// Rate-limited like [`ServeEvent::Rejected`].
    Refused {
        /// Name of its pairing.
        client: String,
        /// Its address.
        address: SocketAddr,
        /// Cause.
        reason: String,
    },
    /// A connection was rejected. Rate-limited: see [`ServeEvent::Suppressed`].
    Rejected {
        /// Its address.
        address: SocketAddr,
        /// Cause.
        reason: String,
    },
    /// More rejections than are reported one by one.
    Suppressed {
        /// Number since the last such event.
        count: u64,
    },
}

impl fmt::Display for ServeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Opened { client, address } => write!(f, "serving \"{client}\" from {address}"),
            Self::Closed { client, address, reason, .. } => {
                write!(f, "session of \"{client}\" from {address} ended: {reason}")
            }
            Self::Refused { client, address, reason } => {
                write!(f, "refused a call of \"{client}\" from {address}: {reason}")
            }
            Self::Rejected { address, reason } => write!(f, "rejected {address}: {reason}"),
            Self::Suppressed { count } => write!(f, "rejected {count} more, not listed one by one"),
        }
    }
}

/// Callback for events. Called from several threads.
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

    /// Writes a rate-limited event, or counts it.
    pub(super) fn write_bounded(&self, event: &ServeEvent) {
        let admission = self.limit().admit(Instant::now());
        if admission == Admission::Write {
            self.write(event);
        }
    }

    /// Reports the number of suppressed events, when due.
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
