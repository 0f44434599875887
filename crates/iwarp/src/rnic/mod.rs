//! Software RNIC: sockets, connection setup and progress of queue pairs.
//!
//! Three progress modes. *Inline*: `post_send` itself sends, and polling a
//! completion queue reads the sockets of its queue pairs; there is no progress
//! between calls. *Offloaded*: engine threads, each pinned to a core, drive all
//! queue pairs. *Adaptive*: as inline, and a helper thread for the completion
//! queues that no thread polls.

mod attendance;
mod channel;
mod completion_queue;
mod connect;
mod device;
mod domain;
mod doorbell;
mod driver;
mod engine;
mod error;
mod event;
mod helper;
mod hold;
mod inbox;
mod link;
mod listener;
mod options;
mod phase;
mod post;
mod queue_pair;
mod ring;
mod setup;
mod shared_receive_queue;
mod statistics;
mod ticks;
mod transport;
mod turn;

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

pub use channel::CompletionChannel;
pub use completion_queue::{CompletionQueue, Overrun};
pub use connect::Connecting;
pub use device::{Attributes, Progress, Rnic, RnicOptions};
pub(crate) use domain::Domain;
pub use domain::ProtectionDomain;
pub use error::{ConnectError, VerbsError};
pub use event::{AsyncEvent, AsyncEvents};
pub use listener::{Incoming, Listener};
pub use options::{AcceptOptions, ConnectOptions, Established, SocketOptions};
pub use queue_pair::{ListError, QueuePair, QueuePairAttributes, QueuePairOptions};
pub use ring::Notify;
pub use shared_receive_queue::SharedReceiveQueue;
pub use statistics::{Moved, QueuePairStatistics};

/// Locks a mutex and ignores poisoning: its contents are consistent at every
/// step.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Aligns a value to cache lines of its own (two: processors prefetch them in
/// pairs), to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// Returns the deadline after `time`. A time beyond the range of the clock is
/// without limit.
fn after(time: Duration) -> Instant {
    const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + time.min(MAX_WAIT)
}
