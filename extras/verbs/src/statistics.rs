//! Statistics and trace of connections, on standard error.
//!
//! Statistics come when the process exits by exit(3) or the end of `main`; a
//! process that a signal ends, or `_exit`, writes none. The trace writes a line
//! when a connection ends, and at exit for each that has not.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{Mutex, Once},
};

use clearstream_iwarp::rnic::{Moved, QueuePair, QueuePairStatistics};

use crate::{
    handle::locked,
    report::write_line,
    runtime::{is_usable, opened},
    settings::{Mode, Settings},
    sockets,
};

/// Connections whose statistics are kept; of later ones only the number is.
const KEPT_MAX: usize = 4096;

/// A connection that ended.
struct Ended {
    local: SocketAddr,
    peer: SocketAddr,
    moved: QueuePairStatistics,
}

#[derive(Default)]
struct Connections {
    ended: Vec<Ended>,
    /// Those that ended after as many as are kept.
    more_count: u64,
}

static CONNECTIONS: Mutex<Connections> = Mutex::new(Connections { ended: Vec::new(), more_count: 0 });

/// Registers the report at exit, once.
pub fn report_at_exit() {
    static REGISTERED: Once = Once::new();
    // SAFETY: the function lives as long as this library, which nothing unloads.
    REGISTERED.call_once(|| _ = unsafe { libc::atexit(at_exit) });
}

/// Notes a connection whose queue pair is destroyed.
pub fn note(settings: &Settings, pair: &QueuePair) {
    if !settings.statistics && !settings.trace {
        return;
    }
    let Some(established) = pair.query().established else { return };
    let ended = Ended { local: established.local, peer: established.peer, moved: pair.statistics() };
    if settings.trace {
        let path = format!(
            "RDMA (iWARP, MPA revision {}, {}, MULPDU {} bytes)",
            established.revision,
            if established.crc { "CRC32C" } else { "no CRC" },
            established.mulpdu_bytes
        );
        write_line(&format!("trace: {}, path {path}", operations(&ended)));
    }
    let mut connections = locked(&CONNECTIONS);
    if connections.ended.len() < KEPT_MAX {
        connections.ended.push(ended);
    } else {
        connections.more_count += 1;
    }
}

fn operations(ended: &Ended) -> String {
    let moved = &ended.moved;
    format!(
        "{} -> {}: {} sends posted, {} receives completed, {} bytes sent, {} bytes received",
        ended.local,
        ended.peer,
        moved.sends,
        moved.receives,
        moved.sent_bytes(),
        moved.received_bytes()
    )
}

/// What each kind of thread moved, without those that moved nothing.
fn movers(moved: &QueuePairStatistics) -> String {
    let all = [
        ("the program", &moved.by_program),
        ("the helper", &moved.by_helper),
        ("the engine", &moved.by_engine),
    ];
    let mut text = String::new();
    for (name, Moved { visits, sent_bytes, received_bytes, .. }) in all {
        if *visits > 0 {
            let separator = if text.is_empty() { "by" } else { ", by" };
            let _ =
                write!(text, "{separator} {name} {} bytes in {visits} visits", sent_bytes + received_bytes);
        }
    }
    text
}

extern "C" fn at_exit() {
    if !is_usable() {
        return;
    }
    if let Some(runtime) = opened() {
        let settings = &runtime.settings;
        // The program may have been in a call of this library.
        if let Ok(connections) = runtime.connections.try_lock() {
            // SAFETY: in the table, whose lock is held.
            connections.pairs.values().for_each(|known| note(settings, unsafe { &(*known.pair.0).pair }));
        }
        if settings.statistics {
            report(settings);
        }
    }
    sockets::report();
}

fn report(settings: &Settings) {
    let mode = match settings.mode {
        Mode::Adaptive => "adaptive",
        Mode::Inline => "inline",
        Mode::Offloaded => "offloaded",
    };
    let connections = locked(&CONNECTIONS);
    let count = connections.ended.len() as u64 + connections.more_count;
    write_line(&format!(
        "statistics of process {}: connections by RDMA: {count}, {mode} progress",
        std::process::id()
    ));
    for ended in &connections.ended {
        write_line(&format!("statistics: {}; {}", operations(ended), movers(&ended.moved)));
    }
    if connections.more_count > 0 {
        write_line(&format!("statistics: and {} more connections", connections.more_count));
    }
}

/// Number of connections by RDMA that ended.
pub fn count() -> u64 {
    let connections = locked(&CONNECTIONS);
    connections.ended.len() as u64 + connections.more_count
}
