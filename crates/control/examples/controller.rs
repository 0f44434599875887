//! The smallest controller: starts the agent that its arguments name, prints
//! the agent's process id, asks for something that never ends, and waits.
#![allow(clippy::print_stdout)] // a program, not an engine

use std::process::Command;

use clearstream_control::{PeerError, spawn};
use clearstream_schema::control::{Reply, Request};

fn main() -> Result<(), PeerError> {
    let mut arguments = std::env::args_os().skip(1);
    let mut command = Command::new(arguments.next().unwrap_or_else(|| "clearstream".into()));
    command.args(arguments);
    let mut peer = spawn(command, "agent")?;
    if let Reply::Host(host) = peer.request(Request::Inspect)? {
        println!("{}", host.name);
    }
    peer.request(Request::FlowStart { test: 1 })?;
    Ok(())
}
