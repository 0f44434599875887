//! SIGINT: the first asks to stop cleanly and keeps the samples; the second
//! ends at once (what was recorded is on disk already).

use std::sync::{Arc, atomic::AtomicBool};

use clearstream_schema::ExitCode;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

/// A flag that SIGINT and SIGTERM raise.
pub fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Order matters: the shutdown is armed only by an earlier signal.
        flag::register_conditional_shutdown(signal, ExitCode::Interrupted as i32, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// An agent leaves SIGINT to its controller, which shares the terminal with it
/// and will end the session.
pub fn leave_to_controller() -> std::io::Result<()> {
    flag::register(SIGINT, Arc::new(AtomicBool::new(false))).map(|_| ())
}
