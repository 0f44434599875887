//! Limits of the receiver: its program, and the window that it offers.

use clearstream_schema::{
    connections::{ConnectionCause, ConnectionFinding},
    diagnosis::Role,
    human::{bytes, rate, time},
};

use super::{
    causes::Ends,
    evidence::{change, owned, raise},
    facts::Facts,
};
use crate::{format::percent, formulas};

/// Fraction of the time from which on a state is the rule.
const MOSTLY: f64 = 0.5;
/// Rate / rate that the window allows: between these the window explains the rate.
const EXPLAINED: std::ops::Range<f64> = 0.6..1.5;

/// The program that reads is slow: unread data fills half of the window's room and more, or the sender waits for window
/// while there mostly is something to read. The kernel enlarges the window of who reads faster
/// (`tcp_rcv_space_adjust` in net/ipv4/tcp_input.c), so that a small one alone does not distinguish them.
pub(super) fn application(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.receiver()?;
    let share = facts.unread_share();
    let awaited = ends.sender().and_then(|sender| sender.window_limited()).is_some_and(|part| part >= MOSTLY);
    if share < MOSTLY && !(awaited && facts.waiting_share() >= MOSTLY) {
        return None;
    }
    if let Some((owner, ratio)) = facts.saturated() {
        return Some(super::sender::busy_thread(&facts, Role::Receiver, owner, ratio));
    }
    Some(slow_reader(ends, &facts, share))
}

/// Unread data with the evidence of both ends.
pub(super) fn slow_reader(ends: &Ends<'_>, facts: &Facts<'_>, share: f64) -> ConnectionFinding {
    let unread = facts.median(|socket| f64::from(socket.receive_queue_bytes));
    let stopped = facts.series.owners.iter().find(|owner| owner.stopped);
    let who = facts.series.owners.first().map_or_else(|| "the program".to_owned(), owned);
    let sentence = match stopped {
        Some(owner) => format!(
            "receiver application: {} is stopped (SIGSTOP or a debugger), and {} wait for it",
            owned(owner),
            bytes(unread as u64)
        ),
        None => format!(
            "receiver application: {who} reads {}, and {} of unread data wait for it",
            rate(facts.in_bps()),
            bytes(unread as u64)
        ),
    };
    let window = facts.median(|socket| f64::from(socket.tcp.receive_window_bytes.unwrap_or(0)));
    let mut evidence = vec![
        facts.item(
            format!(
                "unread data fill half of the window's room or more {} of the time: median {} unread, {} offered",
                percent(share),
                bytes(unread as u64),
                bytes(window as u64)
            ),
            "Recv-Q (idiag_rqueue) and tcpi_rcv_wnd",
        ),
        facts.item(
            format!("data waited to be read {} of the time", percent(facts.waiting_share())),
            "Recv-Q of a segment (tcpi_rcv_mss) or more",
        ),
        facts.item(
            format!(
                "the receive buffer holds {} of {}",
                bytes(u64::from(facts.last().memory.receive_used_bytes)),
                bytes(u64::from(facts.last().memory.receive_limit_bytes))
            ),
            "SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_RCVBUF of the last sample",
        ),
    ];
    evidence.extend(facts.thread_item());
    evidence.extend(ends.sender().and_then(|sender| limited_item(&sender)));
    let what = match stopped {
        Some(_) => "continue it (SIGCONT)",
        None => {
            "read sooner and more with each call, or in a thread of its own: a larger buffer only delays this"
        }
    };
    ConnectionFinding {
        cause: ConnectionCause::ReceiverApplication {
            stopped: stopped.is_some(),
            unread_bytes: unread as u64,
        },
        sentence,
        fault: true,
        evidence,
        remedies: vec![change(Role::Receiver, what)],
    }
}

pub(super) fn limited_item(sender: &Facts<'_>) -> Option<clearstream_schema::diagnosis::EvidenceItem> {
    let share = sender.window_limited()?;
    let [limited, busy] =
        [sender.delta(|tcp| tcp.receive_window_limited_ns), sender.delta(|tcp| tcp.busy_ns)];
    Some(sender.item(
        format!(
            "the sender waited for window {} of {} with data outstanding: {}",
            time(limited),
            time(busy),
            percent(share)
        ),
        "changes of tcpi_rwnd_limited and tcpi_busy_time",
    ))
}

/// The receiver does not offer more window.
pub(super) fn window(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    match ends {
        Ends::Receiver(facts) => offered(facts),
        Ends::Sender(sender) => waited_for(sender, None),
        Ends::Both { sender, receiver } => waited_for(sender, Some(receiver)),
    }
}

/// As the sender sees it: it waits for window half of its busy time, and is busy half of the time.
fn waited_for(sender: &Facts<'_>, receiver: Option<&Facts<'_>>) -> Option<ConnectionFinding> {
    if sender.window_limited()? < MOSTLY || sender.busy()? < MOSTLY {
        return None;
    }
    // While it waits, all of the window is in flight.
    let window = sender.median(|socket| {
        let in_flight = u64::from(socket.tcp.unacked_count) * u64::from(socket.tcp.send_mss_bytes);
        socket.tcp.send_window_bytes.map_or(in_flight as f64, f64::from)
    });
    let bound = sender.bound_bps(window);
    let mut evidence: Vec<_> = limited_item(sender).into_iter().collect();
    evidence.push(sender.bound_item("window offered by the peer", window));
    let held = match receiver {
        Some(receiver) => {
            evidence.push(receiver.item(
                format!(
                    "its program keeps up: data waited to be read {} of the time",
                    percent(receiver.waiting_share())
                ),
                "Recv-Q of a segment (tcpi_rcv_mss) or more",
            ));
            held(receiver)
        }
        None => Held {
            why: "only its host shows whether its buffer or its program holds it".to_owned(),
            remedies: vec![change(
                Role::Receiver,
                "run `clearstream diagnose --socket` on the receiver's host: it names program or buffer",
            )],
            buffer_bytes: None,
        },
    };
    Some(ConnectionFinding {
        cause: ConnectionCause::ReceiverWindow {
            window_bytes: window as u64,
            bound_bps: bound,
            buffer_bytes: held.buffer_bytes,
        },
        sentence: format!(
            "receiver window: {} offered by the peer allow {} over {} ({})",
            bytes(window as u64),
            rate(bound),
            time(sender.rtt_ns()),
            held.why
        ),
        fault: true,
        evidence,
        remedies: held.remedies,
    })
}

struct Held {
    why: String,
    remedies: Vec<clearstream_schema::connections::ConnectionRemedy>,
    buffer_bytes: Option<u64>,
}

/// Setting that bounds the window, as the receiver's end shows it.
fn held(receiver: &Facts<'_>) -> Held {
    let buffer = receiver.last().memory.receive_limit_bytes;
    let (why, remedies) = if receiver.receive_buffer_at_maximum() {
        let why = format!("held by net.ipv4.tcp_rmem, whose maximum is {}", bytes(u64::from(buffer)));
        (why, vec![raise(Role::Receiver, "net.ipv4.tcp_rmem", buffer)])
    } else {
        let why = format!(
            "its receive buffer is {}, not the maximum of net.ipv4.tcp_rmem: SO_RCVBUF of its program, \
             net.core.rmem_max, or tcp_moderate_rcvbuf = 0",
            bytes(u64::from(buffer))
        );
        let what = "leave SO_RCVBUF out, so that the kernel sizes the buffer, or request more \
                    (net.core.rmem_max bounds it)";
        (why, vec![change(Role::Receiver, what)])
    };
    Held { why, remedies, buffer_bytes: Some(u64::from(buffer)) }
}

/// As the receiver alone sees it: the window over its own estimate of the round trip is the rate.
fn offered(facts: &Facts<'_>) -> Option<ConnectionFinding> {
    let rtt_ns = facts.median(|socket| socket.tcp.receive_rtt_ns as f64) as u64;
    let window = facts.median(|socket| f64::from(socket.tcp.receive_window_bytes.unwrap_or(0)));
    let bound = formulas::window_bps(window, rtt_ns);
    // The receiver's estimate over a path of microseconds is that of its program's reads.
    if rtt_ns < 1_000_000 || window <= 0.0 || !EXPLAINED.contains(&(facts.in_bps() / bound)) {
        return None;
    }
    let held = held(facts);
    let evidence = vec![
        facts.item(
            format!(
                "window offered: {} * 8 / {} = {}; measured {}",
                bytes(window as u64),
                time(rtt_ns),
                rate(bound),
                rate(facts.in_bps())
            ),
            "medians of tcpi_rcv_wnd and tcpi_rcv_rtt, change of tcpi_bytes_received",
        ),
        facts.item(
            format!(
                "the program keeps up: half of the room or more was unread {} of the time",
                percent(facts.unread_share())
            ),
            "Recv-Q (idiag_rqueue) and tcpi_rcv_wnd",
        ),
    ];
    Some(ConnectionFinding {
        cause: ConnectionCause::ReceiverWindow {
            window_bytes: window as u64,
            bound_bps: bound,
            buffer_bytes: held.buffer_bytes,
        },
        sentence: format!(
            "receiver window: {} offered allow {} over {} ({})",
            bytes(window as u64),
            rate(bound),
            time(rtt_ns),
            held.why
        ),
        fault: true,
        evidence,
        remedies: held.remedies,
    })
}
