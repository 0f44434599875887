//! Events of the servers of `rdma serve` and `rdma ping --serve`.

use std::net::SocketAddr;

use clearstream_rdma::{ServerEvent, SessionKind, perftest};
use clearstream_schema::rdma::{RdmaOperation, SizeList};
use serde_json::{Value, json};

use super::{ping_text, printable_ping};
use crate::output::{
    daemon::{DaemonEvent, EventClass, Text},
    quantity::{bytes, rate},
};

/// An event of a server; the texts of pings only with `shows_pings`.
pub fn event(event: &ServerEvent<'_>, shows_pings: bool) -> Option<DaemonEvent> {
    Some(match event {
        ServerEvent::Started { peer, kind } => started(peer, kind_name(*kind)),
        ServerEvent::PingText { .. } if !shows_pings => return None,
        ServerEvent::PingText { peer, text } => DaemonEvent {
            class: EventClass::Other,
            name: "ping",
            detail: json!({ "peer": peer.to_string(), "text": printable_ping(text) }),
            text: Text::Line(ping_text(text)),
        },
        ServerEvent::PingServed { peer, served } => {
            let wrong = match served.mismatches {
                0 => String::new(),
                count => format!("; {count} were not as rping sends them"),
            };
            let size = bytes(served.largest_bytes.into());
            let detail = json!({
                "kind": kind_name(SessionKind::Ping),
                "round_count": served.rounds,
                "largest_bytes": served.largest_bytes,
                "mismatch_count": served.mismatches,
            });
            ended(peer, detail, &format!("{} pings of up to {size}{wrong}", served.rounds))
        }
        ServerEvent::Served { peer, served } => {
            let operation = operation_name(served.operation);
            let purpose = if served.config.latency { "latency" } else { "bandwidth" };
            let pairs = queue_pairs(served.config.queue_pairs);
            let detail = json!({
                "kind": kind_name(SessionKind::Measurement),
                "operation": operation,
                "requested": served.config,
            });
            ended(
                peer,
                detail,
                &format!("{operation} {purpose}, {}, {pairs}, done", sizes(&served.config.size)),
            )
        }
        ServerEvent::VerbsServed { peer } => {
            ended(peer, json!({ "kind": kind_name(SessionKind::Verbs) }), "verbs calls were timed")
        }
        ServerEvent::Rejected { peer, reason } => DaemonEvent {
            class: EventClass::Refused,
            name: "peer-refused",
            detail: json!({ "peer": peer.to_string(), "reason": reason }),
            text: Text::Log(format!("{peer}: rejected: {reason}")),
        },
        ServerEvent::Failed { peer, error } => failed(peer, &error.to_string()),
    })
}

/// An event of a server of perftest's protocol.
pub fn perftest_event(event: &perftest::ServerEvent) -> DaemonEvent {
    match event {
        perftest::ServerEvent::Started { peer } => started(peer, "perftest"),
        perftest::ServerEvent::Served { peer, served } => {
            let detail = json!({
                "kind": "perftest",
                "program": served.program.name(),
                "queue_pair_count": served.queue_pairs,
                "runs": served.runs,
            });
            ended(peer, detail, &perftest_client(served))
        }
        perftest::ServerEvent::Failed { peer, error } => failed(peer, &error.to_string()),
    }
}

/// People read the line of its end.
fn started(peer: &SocketAddr, kind: &str) -> DaemonEvent {
    let detail = json!({ "peer": peer.to_string(), "kind": kind });
    DaemonEvent { class: EventClass::SessionStarted, name: "session-started", detail, text: Text::None }
}

fn ended(peer: &SocketAddr, mut detail: Value, text: &str) -> DaemonEvent {
    detail["peer"] = peer.to_string().into();
    let text = Text::Log(format!("{peer}: {text}"));
    DaemonEvent { class: EventClass::SessionEnded, name: "session-ended", detail, text }
}

fn failed(peer: &SocketAddr, reason: &str) -> DaemonEvent {
    let detail = json!({ "peer": peer.to_string(), "reason": reason });
    let text = Text::Log(format!("{peer}: {reason}"));
    DaemonEvent { class: EventClass::SessionFailed, name: "session-failed", detail, text }
}

fn kind_name(kind: SessionKind) -> &'static str {
    match kind {
        SessionKind::Ping => "ping",
        SessionKind::Measurement => "measurement",
        SessionKind::Verbs => "verbs-calls",
    }
}

fn operation_name(operation: RdmaOperation) -> &'static str {
    match operation {
        RdmaOperation::Send => "send",
        RdmaOperation::Write => "write",
        RdmaOperation::Read => "read",
    }
}

fn queue_pairs(count: u16) -> String {
    format!("{count} queue pair{}", if count == 1 { "" } else { "s" })
}

/// A client's measurement with perftest's protocol.
fn perftest_client(served: &perftest::Served) -> String {
    let pairs = queue_pairs(served.queue_pairs);
    let mut parts = vec![format!("{}, {pairs}", served.program.name())];
    for run in &served.runs {
        let size = bytes(run.bytes / run.message_count.max(1));
        let figure = if served.program.latency {
            String::new()
        } else {
            format!(", {} received", rate(run.goodput_bps))
        };
        parts.push(format!("{} messages of {size}{figure}", run.message_count));
    }
    if let Some(report) = &served.report {
        let goodput = report.rate * 1e6 * report.size as f64 * 8.0;
        parts.push(format!(
            "{} messages of {}, {} as the client counts",
            report.iterations,
            bytes(report.size),
            rate(goodput)
        ));
    }
    parts.join("; ")
}

/// Sizes that a client has requested, however many, in a bounded text.
fn sizes(sizes: &SizeList) -> String {
    match sizes.0.len() {
        0..=8 => format!("sizes {sizes}"),
        count => format!("{count} sizes up to {}", bytes(sizes.largest())),
    }
}
