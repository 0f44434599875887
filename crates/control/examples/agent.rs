//! Minimal agent: returns its process id, and can be blocked. The process tests run it.
#![allow(clippy::print_stderr)] // a program, not an engine

use std::{process, thread, time::Duration};

use clearstream_control::{Registration, Service, Services, agent::serve_stdio};

#[path = "common/calls.rs"]
mod calls;

use calls::{ProcessId, StayBusy};

struct Small;

impl Service for Small {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(|_, ProcessId {}, _| Ok(process::id()))
            // Busy for longer than anybody waits; ignores everything.
            .on(|_, StayBusy {}, _| {
                loop {
                    thread::sleep(Duration::from_secs(3600));
                }
            });
    }
}

fn main() {
    if let Err(end) = serve_stdio(Services::new().with(Small)) {
        // Standard output belongs to the protocol; what is written here reaches the controller's messages.
        eprintln!("agent: {end}");
        process::exit(1);
    }
}
