//! The guard of this host's routing under which plans are carried out, and the
//! process that watches over it.

use std::{
    io::{self, BufRead as _},
    process::Command,
};

use clearstream_plan::{Guarded, Options, guard_over};
use clearstream_route::guard::RoutingGuard;

use crate::exit::CommandError;

const SSH_CONNECTION: &str = "SSH_CONNECTION";

/// For an operator, local or over ssh.
pub(super) fn guarded() -> Guarded {
    let session = std::env::var(SSH_CONNECTION).ok();
    Guarded::new(RoutingGuard::of_operator(session.as_deref()), guardian)
}

/// For an agent, whose controller can neither force nor confirm.
pub fn guarded_for_agent() -> Guarded {
    let session = std::env::var(SSH_CONNECTION).ok();
    Guarded::new(RoutingGuard::of_agent(session.as_deref()), guardian)
}

/// This program, as the guardian.
fn guardian() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["plan", "guard"]);
    Ok(command)
}

/// Guardian process: recovers the journal of the command that started it, and
/// reverts what is not confirmed in time.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {}

impl GuardArgs {
    /// Runs it, in a session of its own, so that no signal of a terminal or of a
    /// closed ssh session reaches it.
    pub fn run(self) -> Result<(), CommandError> {
        // Fails only for the leader of a group, which then is without terminal already.
        let _ = rustix::process::setsid();
        let lines = io::stdin().lock().lines().map_while(Result::ok);
        Ok(guard_over(lines, &Options::live()?)?)
    }
}
