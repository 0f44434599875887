//! Minimal controller: starts the agent named by its arguments, prints the agent's process id, makes a call
//! that never returns, and waits.
#![allow(clippy::print_stdout)] // a program, not an engine

use std::process::Command;

use clearstream_control::{PeerError, spawn};

#[path = "common/calls.rs"]
mod calls;

use calls::{ProcessId, StayBusy};

fn main() -> Result<(), PeerError> {
    let mut arguments = std::env::args_os().skip(1);
    let mut command = Command::new(arguments.next().unwrap_or_else(|| "clearstream".into()));
    command.args(arguments);
    let mut peer = spawn(command, "agent")?;
    println!("{}", peer.call(&ProcessId {})?);
    peer.call(&StayBusy {})?;
    Ok(())
}
