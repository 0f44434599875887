//! SIGINT, SIGTERM and SIGHUP (the connection to the operator's terminal has
//! gone). A command that has results so far asks for [`stop_flag`]: the first signal requests a clean stop and
//! keeps the samples; a second SIGINT or SIGTERM ends at once (what was recorded is on disk already). Every other
//! command ends at the first. Whatever waits for others looks at `clearstream_sys::interruption`, which the same
//! signals raise, so that no command waits for longer than two seconds.

use std::sync::{
    Arc, LazyLock, Once,
    atomic::{AtomicBool, Ordering},
};

use clearstream_schema::{ExitCode, control::Failure};
use clearstream_sys::{interruption, process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// Whether the next SIGINT or SIGTERM ends the command at once.
static ENDS_AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));
/// The same of SIGHUP.
static HANGUP_ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(false)));

/// Signals end the command from now on, with the documented exit code, as they stop those with [`stop_flag`]: also where
/// a shell has started it in the background, with SIGINT ignored. nohup(1) leaves SIGHUP ignored.
pub fn end_at_once() -> Result<(), Failure> {
    ENDS_AT_ONCE.store(true, Ordering::Relaxed);
    HANGUP_ENDS.store(true, Ordering::Relaxed);
    let end = |signal, condition: &Arc<AtomicBool>| {
        flag::register_conditional_shutdown(signal, ExitCode::Interrupted as i32, Arc::clone(condition))
            .map(drop)
    };
    let hangup = || if process::is_ignored(SIGHUP) { Ok(()) } else { end(SIGHUP, &HANGUP_ENDS) };
    let ended = end(SIGINT, &ENDS_AT_ONCE).and_then(|()| end(SIGTERM, &ENDS_AT_ONCE)).and_then(|()| hangup());
    ended.map_err(|error| unhandled(&error))
}

fn unhandled(error: &std::io::Error) -> Failure {
    Failure::of_system("handle signals", error)
}

/// The flag that SIGINT, SIGTERM and SIGHUP raise.
pub fn stop_flag() -> Result<Arc<AtomicBool>, Failure> {
    static REGISTERED: Once = Once::new();
    let stop = interruption::flag();
    let mut registered = Ok(());
    REGISTERED.call_once(|| registered = raise_by_signals(&stop));
    registered.map(|()| stop).map_err(|error| unhandled(&error))
}

fn raise_by_signals(stop: &Arc<AtomicBool>) -> std::io::Result<()> {
    let ends_at_once = &*ENDS_AT_ONCE;
    ends_at_once.store(false, Ordering::Relaxed);
    HANGUP_ENDS.store(false, Ordering::Relaxed);
    for signal in [SIGINT, SIGTERM] {
        // Handlers run in the order of their registration: the shutdown is armed only by an earlier signal.
        flag::register_conditional_shutdown(signal, ExitCode::Interrupted as i32, Arc::clone(ends_at_once))?;
        flag::register(signal, Arc::clone(stop))?;
        flag::register(signal, Arc::clone(ends_at_once))?;
    }
    // A hangup comes twice, from the kernel and from the shell, so a second one
    // does not request an immediate end. nohup(1) leaves it ignored.
    if !process::is_ignored(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(stop))?;
    }
    Ok(())
}

/// An agent leaves SIGINT, SIGTERM and SIGHUP to its controller, which gets them
/// too (of a terminal, of timeout(1), of a service manager) and will end the
/// session. Without a controller the end of its input ends it.
pub fn leave_to_controller() -> Result<(), Failure> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::new(AtomicBool::new(false))).map_err(|error| unhandled(&error))?;
    }
    Ok(())
}
