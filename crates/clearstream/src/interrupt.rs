//! SIGINT, SIGTERM and SIGHUP (the connection to the operator's terminal has
//! gone): the first requests a clean stop and keeps the samples; a second SIGINT
//! or SIGTERM ends at once (what was recorded is on disk already).

use std::sync::{Arc, atomic::AtomicBool};

use clearstream_schema::ExitCode;
use clearstream_sys::process;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

/// A flag that SIGINT, SIGTERM and SIGHUP raise.
pub fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: the shutdown is armed only by an earlier signal.
        flag::register_conditional_shutdown(signal, ExitCode::Interrupted as i32, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    // A hangup comes twice, from the kernel and from the shell, so a second one
    // does not request an immediate end. nohup(1) leaves it ignored.
    if !process::is_ignored(SIGHUP) {
        flag::register(SIGHUP, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// An agent leaves SIGINT, SIGTERM and SIGHUP to its controller, which gets them
/// too (of a terminal, of timeout(1), of a service manager) and will end the
/// session. Without a controller the end of its input ends it.
pub fn leave_to_controller() -> std::io::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}
