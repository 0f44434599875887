//! The request to stop that a person or a service manager sends this process (SIGINT, SIGTERM, SIGHUP), in one place
//! that everything which waits looks at. Who receives signals raises [`flag`]; a process that leaves them to others (an
//! agent) never does.

use std::{
    sync::{
        Arc, LazyLock, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Time after the request in which what has been measured is still fetched from agents and written. Whoever waits
/// for someone else then gives up, so that the command is over within two seconds.
pub const WRAP_UP: Duration = Duration::from_millis(1400);
/// Interval at which waits look for the request.
pub const CHECK_INTERVAL: Duration = Duration::from_millis(50);

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// When the first of those who wait saw the request.
static SEEN: OnceLock<Instant> = OnceLock::new();

/// The flag of this process, for its signal handlers and for loops that stop by themselves.
pub fn flag() -> Arc<AtomicBool> {
    Arc::clone(&REQUESTED)
}

/// Whether this process has been asked to stop.
pub fn is_requested() -> bool {
    let requested = REQUESTED.load(Ordering::Relaxed);
    if requested {
        SEEN.get_or_init(Instant::now);
    }
    requested
}

/// How much of the time for wrapping up is left; none while nobody has asked to stop.
pub fn time_left() -> Option<Duration> {
    is_requested().then(|| WRAP_UP.saturating_sub(SEEN.get_or_init(Instant::now).elapsed()))
}

/// Whether the time for wrapping up is over: waits for others end now.
pub fn is_over() -> bool {
    time_left() == Some(Duration::ZERO)
}

/// A grace period for a process to end, cut to what a person who asked to stop still waits.
pub fn bounded(grace: Duration) -> Duration {
    const SHORTEST: Duration = Duration::from_millis(100);
    time_left().map_or(grace, |left| grace.min(left.max(SHORTEST)))
}
