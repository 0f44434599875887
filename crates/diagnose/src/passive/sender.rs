//! Limits that the sender's end shows.

use clearstream_schema::{
    connections::{ConnectionCause, ConnectionFinding, ConnectionRemedy, SocketOwner},
    diagnosis::{EvidenceItem, Role},
    human::{bytes, rate, time},
};

use super::{
    causes::Ends,
    evidence::{change, owned, raise},
    facts::Facts,
    receiver::{limited_item, slow_reader},
};
use crate::{format::percent, formulas};

/// `idiag_timer`: retransmission, zero-window probe.
const RETRANSMISSION: u8 = 1;
const PROBE: u8 = 4;
/// Thresholds of the active diagnosis (docs/guide/diagnose.md).
const PACED: f64 = 0.85;
/// A buffer that takes no further data: the kernel wakes a writer once free space is half of what is queued
/// (sk_stream_is_writeable, include/net/sock.h), so that a writer which waits for space fills it from here on.
const BUFFER_FULL: f64 = 2.0 / 3.0;
const WINDOW_USED: f64 = 0.7;
const BUSY: f64 = 0.75;
const MOSTLY: f64 = 0.5;
const QUEUEING: f64 = 1.3;
const QUEUED_SEGMENTS: f64 = 10.0;
const QUEUED_BYTES: f64 = 65_536.0;
/// Losses below this ratio are noise, of one or two packets.
const RESENT_MIN: f64 = 2e-6;
/// The congestion window explains a rate of this part of what it allows.
const EXPLAINED: f64 = 1.0 / 3.0;

/// Data is queued, and nothing of it is acknowledged.
pub(super) fn stalled(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender().filter(Facts::is_stalled)?;
    let last = facts.last();
    let is_closed = last.tcp.send_window_bytes.is_some_and(|window| window < last.tcp.send_mss_bytes)
        || last.timer == PROBE;
    let queued = bytes(u64::from(last.send_queue_bytes));
    let waits = facts.item(
        format!(
            "{queued} are written and not acknowledged, and the count of acknowledged bytes stands still"
        ),
        "Send-Q (idiag_wqueue) and tcpi_bytes_acked in the last third of the time",
    );
    if is_closed {
        if let Some(receiver) = ends.receiver().filter(|receiver| receiver.unread_share() >= MOSTLY) {
            return Some(slow_reader(ends, &receiver, receiver.unread_share()));
        }
        return Some(zero_window(&facts, waits));
    }
    if last.timer != RETRANSMISSION || last.timer_count == 0 {
        return None;
    }
    let count = u32::from(last.timer_count);
    let unacknowledged = u64::from(last.tcp.unacked_count) * u64::from(last.tcp.send_mss_bytes);
    let item = facts.item(
        format!("{count} retransmissions without a reply, {} timeouts", last.tcp.timeout_count.unwrap_or(0)),
        "idiag_retrans with the retransmission timer, tcpi_total_rto of the last sample",
    );
    Some(ConnectionFinding {
        cause: ConnectionCause::NoAcknowledgement {
            retransmit_count: count,
            unacknowledged_bytes: unacknowledged,
        },
        sentence: format!(
            "no acknowledgement: {count} retransmissions without a reply, {queued} wait: the path to {} is \
             interrupted, or the host is gone",
            last.remote.ip()
        ),
        fault: true,
        evidence: vec![waits, item],
        remedies: vec![ConnectionRemedy::Physical {
            what: format!(
                "find where packets to {} end: `clearstream probe {}`",
                last.remote.ip(),
                last.remote.ip()
            ),
        }],
    })
}

fn zero_window(facts: &Facts<'_>, waits: EvidenceItem) -> ConnectionFinding {
    let last = facts.last();
    let probes = u32::from(last.timer_count);
    let window = u64::from(last.tcp.send_window_bytes.unwrap_or(0));
    let item = facts.item(
        format!("the peer's window is {}, and {probes} probes did not open it", bytes(window)),
        "tcpi_snd_wnd, idiag_retrans with the probe timer of the last sample",
    );
    ConnectionFinding {
        cause: ConnectionCause::ZeroWindow { probe_count: probes },
        sentence: format!(
            "zero window: the program at {} does not read; {} wait here, {probes} probes sent",
            last.remote,
            bytes(u64::from(last.send_queue_bytes))
        ),
        fault: true,
        evidence: vec![waits, item],
        remedies: vec![change(
            Role::Receiver,
            "find why it does not read: stopped, blocked, or waiting for something else",
        )],
    }
}

/// The socket paces.
pub(super) fn pacing(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender()?;
    let limit = facts.last().tcp.max_pacing_rate_bps? as f64;
    if facts.out_bps() < PACED * limit {
        return None;
    }
    Some(ConnectionFinding {
        cause: ConnectionCause::Pacing { rate_bps: limit },
        sentence: format!(
            "pacing: the socket holds packets back to {}, and {} of that is acknowledged data",
            rate(limit),
            percent(facts.out_bps() / limit)
        ),
        fault: false,
        evidence: vec![facts.item(
            format!("{} of {}", rate(facts.out_bps()), rate(limit)),
            "change of tcpi_bytes_acked, tcpi_max_pacing_rate",
        )],
        remedies: vec![change(Role::Sender, "raise or leave out SO_MAX_PACING_RATE")],
    })
}

/// The send buffer is full while the congestion window has room.
pub(super) fn send_buffer(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender()?;
    let fill = facts.median(|socket| {
        f64::from(socket.memory.send_queued_bytes) / f64::from(socket.memory.send_limit_bytes.max(1))
    });
    let queued = facts.median(|socket| f64::from(socket.send_queue_bytes));
    let has_room = queued < facts.congestion_window_bytes() * 0.9;
    let grows =
        facts.series.samples.first()?.socket.memory.send_limit_bytes < facts.last().memory.send_limit_bytes;
    let unsent = facts.not_sent_bytes() > 0.5 * queued;
    let waited = facts.buffer_limited().is_some_and(|share| share >= MOSTLY);
    let is_full = fill >= BUFFER_FULL || (waited && fill >= MOSTLY);
    if !is_full || !has_room || grows || unsent || facts.is_local() {
        return None;
    }
    let buffer = facts.last().memory.send_limit_bytes;
    let bound = facts.bound_bps(queued);
    let (why, remedy) = if facts.send_buffer_at_maximum() {
        let why = format!("held by net.ipv4.tcp_wmem, whose maximum is {}", bytes(u64::from(buffer)));
        (why, raise(Role::Sender, "net.ipv4.tcp_wmem", buffer))
    } else {
        let why = "not the maximum of net.ipv4.tcp_wmem: SO_SNDBUF of the program".to_owned();
        let what = "leave SO_SNDBUF out, so that the kernel sizes the buffer, or request more \
                    (net.core.wmem_max bounds it)";
        (why, change(Role::Sender, what))
    };
    let mut evidence = vec![
        facts.item(
            format!(
                "the write queue holds {} of the send buffer of {}; the congestion window has room for {}",
                percent(fill),
                bytes(u64::from(buffer)),
                bytes(facts.congestion_window_bytes() as u64)
            ),
            "medians of SK_MEMINFO_WMEM_QUEUED, SK_MEMINFO_SNDBUF, tcpi_snd_cwnd * tcpi_snd_mss",
        ),
        facts.bound_item("data that the buffer holds", queued),
    ];
    // This clock does not run while data of a small buffer is in flight: without time it is no sign.
    evidence.extend(facts.buffer_limited().filter(|share| *share >= 0.1).map(|share| {
        let statement = format!("the sender waited for buffer {} of the busy time", percent(share));
        facts.item(statement, "changes of tcpi_sndbuf_limited and tcpi_busy_time")
    }));
    // Where both buffers are small each holds the connection for a part of the time.
    let also_window = facts.window_limited().is_some_and(|share| share >= 0.1);
    evidence.extend(limited_item(&facts).filter(|_| also_window));
    Some(ConnectionFinding {
        cause: ConnectionCause::SendBuffer {
            buffer_bytes: u64::from(buffer),
            queued_bytes: queued as u64,
            bound_bps: bound,
        },
        sentence: format!(
            "send buffer: {} of data in a buffer of {} allow {} over {} ({why})",
            bytes(queued as u64),
            bytes(u64::from(buffer)),
            rate(bound),
            time(facts.rtt_ns())
        ),
        fault: true,
        evidence,
        remedies: vec![remedy],
    })
}

/// Data outstanding for less than 3/4 of the time.
pub(super) fn pauses(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender()?;
    if facts.busy()? >= BUSY {
        return None;
    }
    writer(&facts)
}

/// Nothing waits to be sent, and the congestion window is not used.
pub(super) fn application(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender()?;
    let starved = facts.share(|socket| socket.tcp.not_sent_bytes.unwrap_or(0) == 0);
    let app_limited = facts.share(|socket| socket.tcp.delivery_rate_app_limited);
    (starved >= BUSY && app_limited >= BUSY && facts.window_fill() < WINDOW_USED)
        .then(|| writer(&facts))
        .flatten()
}

/// The writer is slow: it computes all of the time, or it waits.
fn writer(facts: &Facts<'_>) -> Option<ConnectionFinding> {
    if let Some((owner, ratio)) = facts.saturated() {
        return Some(busy_thread(facts, Role::Sender, owner, ratio));
    }
    let busy = facts.busy()?;
    let who = facts.series.owners.first().map_or_else(|| "the program".to_owned(), owned);
    let app_limited = facts.share(|socket| socket.tcp.delivery_rate_app_limited);
    let mut evidence = vec![
        facts.item(
            format!(
                "data was outstanding {} of {}: {}",
                time(facts.delta(|tcp| tcp.busy_ns)),
                time(facts.observed_ns()),
                percent(busy)
            ),
            "change of tcpi_busy_time",
        ),
        facts.item(
            format!(
                "nothing waited to be sent {} of the time, and the delivery rate was limited by the program {} of it",
                percent(facts.share(|socket| socket.tcp.not_sent_bytes.unwrap_or(0) == 0)),
                percent(app_limited)
            ),
            "tcpi_notsent_bytes and tcpi_delivery_rate_app_limited",
        ),
    ];
    evidence.extend(facts.thread_item());
    Some(ConnectionFinding {
        cause: ConnectionCause::SenderApplication { busy_ratio: busy },
        sentence: format!(
            "sender application: {who} writes {}, with data outstanding {} of the time",
            rate(facts.out_bps()),
            percent(busy)
        ),
        fault: false,
        evidence,
        remedies: vec![change(
            Role::Sender,
            "write sooner and more with each call, where more is wanted of it",
        )],
    })
}

/// A queue stands, or BBR's estimate of the bottleneck is used up.
pub(super) fn path_capacity(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender().filter(|facts| !facts.is_local())?;
    let (rtt, lowest) = (facts.rtt_ns(), facts.min_rtt_ns()?);
    let out = facts.out_bps();
    let queue_ns = rtt.saturating_sub(lowest);
    let queued = out * queue_ns as f64 / 8e9;
    let least = (QUEUED_SEGMENTS * f64::from(facts.last().tcp.send_mss_bytes)).max(QUEUED_BYTES);
    let stands = rtt as f64 >= QUEUEING * lowest as f64 && queued >= least;
    let bbr = facts.last().bbr.filter(|bbr| {
        let used = out / bbr.bandwidth_bps.max(1) as f64;
        let app_limited = facts.share(|socket| socket.tcp.delivery_rate_app_limited);
        (PACED..1.15).contains(&used) && app_limited < MOSTLY
    });
    let fills = facts.window_fill() >= WINDOW_USED || facts.not_sent_bytes() > 0.0;
    if !(stands && fills) && bbr.is_none() {
        return None;
    }
    let mut evidence = vec![facts.item(
        format!(
            "round trip {} - lowest {} = {} in the queue, which is {} at {}",
            time(rtt),
            time(lowest),
            time(queue_ns),
            bytes(queued as u64),
            rate(out)
        ),
        "median of tcpi_rtt, tcpi_min_rtt, change of tcpi_bytes_acked",
    )];
    evidence.extend(facts.last().tcp.delivery_rate_bps.map(|delivery| {
        facts
            .item(format!("delivery rate {}", rate(delivery as f64)), "tcpi_delivery_rate of the last sample")
    }));
    evidence.extend(bbr.map(|bbr| {
        let statement = format!("BBR takes the bottleneck for {}", rate(bbr.bandwidth_bps as f64));
        facts.item(statement, "bbr_bw of INET_DIAG_BBRINFO")
    }));
    Some(ConnectionFinding {
        cause: ConnectionCause::PathCapacity { rate_bps: out, queue_ns },
        sentence: format!("path capacity: the path carries {}, with {} of queue", rate(out), time(queue_ns)),
        fault: false,
        evidence,
        remedies: vec![ConnectionRemedy::Physical {
            what: "a faster path, or less other traffic on it".to_owned(),
        }],
    })
}

/// Losses without a queue, and the congestion window is used.
pub(super) fn loss(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let facts = ends.sender()?;
    let loss = facts.loss_ratio();
    let window = facts.congestion_window_bytes();
    let bound = facts.bound_bps(window);
    let used = facts.window_fill() >= WINDOW_USED || facts.not_sent_bytes() > 0.0;
    if loss < RESENT_MIN || facts.is_local() || !used || facts.out_bps() < EXPLAINED * bound {
        return None;
    }
    let last = facts.last();
    let mss = f64::from(last.tcp.send_mss_bytes);
    let (mathis, cubic) =
        (formulas::mathis_bps(mss, facts.rtt_ns(), loss), formulas::cubic_bps(mss, facts.rtt_ns(), loss));
    let [sent, resent] = [facts.delta(|tcp| tcp.sent_bytes), facts.delta(|tcp| tcp.retransmitted_bytes)];
    Some(ConnectionFinding {
        cause: ConnectionCause::Loss { loss_ratio: loss, bound_bps: bound },
        sentence: format!(
            "loss: {:.4} % of the bytes were retransmitted, and keep the congestion window at {}, which allows {} over {}",
            loss * 100.0,
            bytes(window as u64),
            rate(bound),
            time(facts.rtt_ns())
        ),
        fault: true,
        evidence: vec![
            facts.item(
                format!(
                    "{} of {} sent were retransmitted, {} segments",
                    bytes(resent),
                    bytes(sent),
                    facts.retransmits()
                ),
                "changes of tcpi_bytes_retrans, tcpi_bytes_sent, tcpi_total_retrans",
            ),
            facts.bound_item("congestion window", window),
            facts.item(
                format!(
                    "at this loss Mathis allows {} and CUBIC {} (segments of {} bytes)",
                    rate(mathis),
                    rate(cubic),
                    last.tcp.send_mss_bytes
                ),
                "MSS / rtt * 1.22 / sqrt(p), and RFC 9438, section 5.1",
            ),
        ],
        remedies: vec![ConnectionRemedy::Physical {
            what: "find where packets are lost: errors of interfaces, a policer, a short queue".to_owned(),
        }],
    })
}

/// A thread of either program is saturated.
pub(super) fn cpu(ends: &Ends<'_>) -> Option<ConnectionFinding> {
    let (sender, receiver) = (ends.sender()?, ends.receiver());
    let of_receiver = receiver.as_ref().and_then(|facts| Some((facts, Role::Receiver, facts.saturated()?)));
    let of_sender = sender.saturated().map(|found| (&sender, Role::Sender, found));
    let ends = of_sender.into_iter().chain(of_receiver);
    let busiest = ends.max_by(|one, two| one.2.1.total_cmp(&two.2.1));
    busiest.map(|(facts, role, (owner, ratio))| busy_thread(facts, role, owner, ratio))
}

/// A thread of one end that has no time left.
pub(super) fn busy_thread(
    facts: &Facts<'_>,
    role: Role,
    owner: &SocketOwner,
    ratio: f64,
) -> ConnectionFinding {
    let end = match role {
        Role::Sender => "sender",
        Role::Receiver => "receiver",
    };
    let mut evidence: Vec<EvidenceItem> = facts.thread_item().into_iter().collect();
    evidence.push(facts.item(
        format!(
            "queues: {} received and unread, {} written and not acknowledged",
            bytes(facts.median(|socket| f64::from(socket.receive_queue_bytes)) as u64),
            bytes(facts.median(|socket| f64::from(socket.send_queue_bytes)) as u64)
        ),
        "medians of Recv-Q and Send-Q",
    ));
    ConnectionFinding {
        cause: ConnectionCause::Cpu { pid: owner.pid, runnable_ratio: ratio },
        sentence: format!(
            "{end} CPU: a thread of {} ran or waited for a core {} of the time",
            owned(owner),
            percent(ratio)
        ),
        fault: false,
        evidence,
        remedies: vec![change(
            role,
            "several threads or connections, larger writes and reads, or another core",
        )],
    }
}
