//! The smallest useful agent: says which process it is, and can be kept busy.
//! The tests of processes that die run it.
#![allow(clippy::print_stderr)] // a program, not an engine

use std::{process, thread, time::Duration};

use clearstream_control::{EventSender, Handler, agent::serve_stdio};
use clearstream_schema::{
    control::{Failure, FailureKind, Reply, Request},
    host::HostReport,
};

struct Small;

impl Handler for Small {
    fn handle(&mut self, request: Request, _: &EventSender) -> Result<Reply, Failure> {
        match request {
            Request::Inspect => {
                Ok(Reply::Host(HostReport { name: process::id().to_string(), ..HostReport::default() }))
            }
            // Busy for longer than anybody waits, deaf to everything.
            Request::FlowStart { .. } => loop {
                thread::sleep(Duration::from_secs(3600));
            },
            _ => Err(Failure { kind: FailureKind::Unsupported, message: "not in this example".into() }),
        }
    }
}

fn main() {
    if let Err(end) = serve_stdio(Small) {
        // Standard output belongs to the protocol; what is said here reaches
        // the controller's messages.
        eprintln!("agent: {end}");
        process::exit(1);
    }
}
