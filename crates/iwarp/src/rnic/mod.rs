//! The software RNIC: sockets, connection set-up and progress below queue
//! pairs.
//!
//! Two ways of progress. *Inline*: `post_send` itself sends, and polling a
//! completion queue reads the sockets of the queue pairs that complete there;
//! nothing moves while the program does not call. *Offloaded*: engine threads,
//! each pinned to a core, drive all queue pairs.

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
mod inbox;
mod link;
mod listener;
mod options;
mod queue_pair;
mod ring;
mod setup;
mod shared_receive_queue;
mod wire;

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
pub use options::{AcceptOptions, ConnectOptions, Established};
pub use queue_pair::{ListError, QueuePair, QueuePairAttributes, QueuePairOptions};
pub use ring::Notify;
pub use shared_receive_queue::SharedReceiveQueue;

/// A mutex whose contents are whole at every step: one that a panic left locked
/// is used on.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value on cache lines of its own (two: processors fetch them in pairs), so
/// that whoever writes it is in nobody's way.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

/// When so much time will be over. What is longer than a clock can say is for
/// ever.
fn after(time: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    Instant::now() + time.min(FOR_EVER)
}
