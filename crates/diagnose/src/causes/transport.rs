//! Limits that the sockets show: windows, buffers, pacing, the writing program.

use clearstream_schema::{
    diagnosis::{Cause, Finding, Remedy},
    human::{bytes, rate, time},
};
use serde_json::Value;

use super::{buffers, path::bounds_the_queue};
use crate::{
    facts::Facts,
    format::percent,
    formulas, hosts,
    stages::{goal_bps, goal_text},
};

/// Share of the time on one of the kernel's clocks that decides.
pub(super) const MOST_OF_THE_TIME: f64 = 0.5;
/// Write queue / send buffer of a socket that takes no more.
pub(super) const FULL: f64 = 0.85;
/// The same of one that is emptied in lumps.
const HALF_FULL: f64 = 0.5;
/// Segments in flight / congestion window of a flow that the window holds.
pub(super) const WINDOW_USED: f64 = 0.85;

/// Window / round trip beyond which the window of a local path is not the limit.
const LOCAL_WINDOW: f64 = 8.0;

/// `SO_MAX_PACING_RATE` is reached.
pub(super) fn pacing_of_socket(facts: &Facts<'_>) -> Option<Finding> {
    let allowed = facts.max_pacing_bps.filter(|rate| *rate > 0.0)? * facts.flow_count;
    let reached = facts.goodput_bps / allowed;
    if reached < 0.85 {
        return None;
    }
    let medians = &facts.medians;
    Some(Finding {
        cause: Cause::Pacing { rate_bps: allowed, by_socket: true },
        sentence: format!(
            "pacing: the sockets may send {} (SO_MAX_PACING_RATE), and {} of that arrive",
            rate(allowed),
            percent(reached)
        ),
        fault: true,
        evidence: vec![
            facts.sampled(
                format!(
                    "max_pacing_rate {} for each of {} flow(s)",
                    rate(allowed / facts.flow_count),
                    facts.flow_count
                ),
                "tcpi_max_pacing_rate",
            ),
            facts.sampled(format!("goodput {}", rate(facts.goodput_bps)), "bytes that reached the reader"),
            facts.sampled(
                format!(
                    "{} wait in the socket, rtt {} against {} at least",
                    bytes(medians.not_sent as u64),
                    time(medians.rtt_ns as u64),
                    time(facts.base_rtt_ns())
                ),
                "median of tcpi_notsent_bytes, tcpi_rtt",
            ),
        ],
        remedies: vec![Remedy::ChangeFlow { key: "pacing".to_owned(), value: Value::Null }],
    })
}

/// The receiver offers no more window, and its reader is not why.
pub(super) fn receiver_window(facts: &Facts<'_>) -> Option<Finding> {
    let medians = &facts.medians;
    if medians.window_limited < MOST_OF_THE_TIME {
        return None;
    }
    let window = medians.peer_window_max.or(medians.peer_window).unwrap_or(medians.in_flight).max(1.0);
    // Over microseconds a window closes because the reader's core is late: one that
    // would carry several times the rate over the idle path is not what holds it.
    let allowed = formulas::window_bps(window, facts.base_rtt_ns()) * facts.flow_count;
    if (facts.is_local() && allowed > LOCAL_WINDOW * facts.goodput_bps) || bounds_the_queue(facts, allowed) {
        return None;
    }
    let buffer = medians.receive_buffer.unwrap_or(window / formulas::RECEIVE_SHARE_RATIO);
    if buffers::may_still_grow(facts, window, buffer) {
        return None;
    }
    let share = (window / buffer.max(1.0)).clamp(0.25, 1.0);
    let goal = goal_bps(facts);
    let needed = formulas::bandwidth_delay_bytes(goal / facts.flow_count, facts.base_rtt_ns());
    let needed_buffer = formulas::whole_mebibytes(2.0 * needed / share.min(formulas::RECEIVE_SHARE_RATIO));
    let needed_window = needed.ceil() as u64;
    let (held_by, why, remedies) = buffers::held_window(facts, window, buffer, needed_buffer);
    Some(Finding {
        sentence: format!(
            "receiver window: {} of window over {} allow {}; {} need {} of window per flow ({why})",
            bytes(window as u64),
            time(facts.base_rtt_ns()),
            rate(formulas::window_bps(window, facts.base_rtt_ns()) * facts.flow_count),
            goal_text(facts),
            bytes(needed_window),
        ),
        cause: Cause::ReceiverWindow {
            held_by,
            window_bytes: window as u64,
            needed_window_bytes: needed_window,
            needed_buffer_bytes: needed_buffer,
            goal_bps: goal,
        },
        fault: true,
        evidence: vec![
            facts.sampled(
                format!("the sender waited for window {} of the time", percent(medians.window_limited)),
                "median of the change of tcpi_rwnd_limited",
            ),
            facts.sampled(
                format!("the window offered never exceeded {}", bytes(window as u64)),
                "largest tcpi_snd_wnd",
            ),
            facts.sampled(
                format!(
                    "receive buffer {}, {} of it used: the reader keeps up",
                    bytes(buffer as u64),
                    percent(medians.receive_fill.unwrap_or(0.0))
                ),
                "median of SK_MEMINFO_RMEM_ALLOC / SK_MEMINFO_RCVBUF at the receiver",
            ),
        ],
        remedies,
    })
}

/// The socket takes no more data while the congestion window has room. The
/// kernel's own clock for it (`sndbuf_limited`) misses blocking writers.
pub(super) fn send_buffer(facts: &Facts<'_>) -> Option<Finding> {
    let medians = &facts.medians;
    let (fill, buffer) = (medians.buffer_fill?, medians.buffer_bytes?);
    let explicit = facts.config.send_buffer.or(facts.config.window);
    let cap = hosts::triple(facts.sender.host, "net.ipv4.tcp_wmem").map(|triple| triple[2]);
    let at_cap = explicit.is_some() || cap.is_some_and(|cap| buffer >= 0.95 * cap as f64);
    let ceiling =
        formulas::window_bps(formulas::SEND_SHARE_RATIO * buffer, facts.base_rtt_ns()) * facts.flow_count;
    // What a small buffer leaves free is less than one transfer, and acknowledgements
    // empty it in lumps; the rate it predicts is the witness then.
    let predicted = (0.7..=1.25).contains(&(facts.goodput_bps / ceiling));
    let full = fill >= FULL || (predicted && (explicit.is_some() || fill >= HALF_FULL));
    let holds = full
        && at_cap
        && medians.window_fill < 0.9
        && medians.window_limited < 0.3
        && medians.not_sent < medians.in_flight.max(65_536.0)
        && facts.goodput_bps > 0.5 * ceiling
        && !bounds_the_queue(facts, ceiling);
    holds.then(|| send_buffer_finding(facts, explicit.map(|size| size.0), buffer, ceiling))
}

fn send_buffer_finding(facts: &Facts<'_>, explicit: Option<u64>, buffer: f64, ceiling: f64) -> Finding {
    let medians = &facts.medians;
    let goal = goal_bps(facts);
    let product = formulas::bandwidth_delay_bytes(goal / facts.flow_count, facts.base_rtt_ns());
    let needed = formulas::whole_mebibytes(2.0 * product / formulas::SEND_SHARE_RATIO);
    let (held_by, why, remedies) = buffers::held_send_buffer(facts, explicit, buffer, needed);
    Finding {
        cause: Cause::SendBuffer {
            held_by,
            buffer_bytes: buffer as u64,
            needed_buffer_bytes: needed,
            goal_bps: goal,
        },
        sentence: format!(
            "send buffer: {} over {} allow {}, {why}; {} need {}",
            bytes(buffer as u64),
            time(facts.base_rtt_ns()),
            rate(ceiling),
            goal_text(facts),
            bytes(needed)
        ),
        fault: true,
        evidence: vec![
            facts.sampled(
                format!("{} of the send buffer is in use", percent(medians.buffer_fill.unwrap_or(0.0))),
                "median of SK_MEMINFO_WMEM_QUEUED / SK_MEMINFO_SNDBUF",
            ),
            facts.sampled(
                format!("only {} of the congestion window is in flight", percent(medians.window_fill)),
                "median of tcpi_unacked / tcpi_snd_cwnd",
            ),
            facts.sampled(
                format!(
                    "{} not sent yet against {} in flight; the kernel's own clock reports {} (it misses blocking writers)",
                    bytes(medians.not_sent as u64),
                    bytes(medians.in_flight as u64),
                    percent(medians.buffer_limited)
                ),
                "median of tcpi_notsent_bytes, tcpi_sndbuf_limited",
            ),
        ],
        remedies,
    }
}

/// The socket had nothing to send for part of the time. Over a long path the
/// clock of busy time shows it: data is outstanding for a round trip at least.
pub(super) fn sender_pauses(facts: &Facts<'_>) -> Option<Finding> {
    let pauses = facts.medians.busy < 0.75 && facts.base_rtt_ns() > 1_000_000;
    (pauses && writer_rests(facts)).then(|| sender_application_finding(facts))
}

/// The socket has nothing to send, though there is room.
pub(super) fn sender_application(facts: &Facts<'_>) -> Option<Finding> {
    let medians = &facts.medians;
    // Over a path of microseconds a writer without a pause of its own shows an
    // empty socket whenever the machine is slow: only one that hardly runs rests.
    let rests = facts.sender.runnable() < 0.25 && medians.busy < 0.5;
    if facts.is_local() && facts.config.burst_flows == 0 && !rests {
        return None;
    }
    let empty = medians.buffer_fill.is_none_or(|fill| fill < 0.5) && medians.not_sent < 65_536.0;
    let held = medians.window_fill >= WINDOW_USED;
    (empty && !held && writer_rests(facts)).then(|| sender_application_finding(facts))
}

/// A writer that runs all the time is held by its core.
fn writer_rests(facts: &Facts<'_>) -> bool {
    facts.sender.thread.is_none_or(|thread| thread.runnable() < 0.85)
}

fn sender_application_finding(facts: &Facts<'_>) -> Finding {
    let medians = &facts.medians;
    let running = facts.sender.thread.map_or(0.0, |thread| thread.run);
    Finding {
        cause: Cause::SenderApplication { thread_share_ratio: running },
        sentence: format!(
            "sender application: the program on {} writes only {}; its socket was empty part of the time, with room for more",
            facts.sender.name(),
            rate(facts.goodput_bps)
        ),
        fault: true,
        evidence: vec![
            facts.sampled(
                format!(
                    "data was outstanding {} of the time; {} of the send buffer in use, {} not sent yet",
                    percent(medians.busy),
                    percent(medians.buffer_fill.unwrap_or(0.0)),
                    bytes(medians.not_sent as u64)
                ),
                "mean of the change of tcpi_busy_time, median of SK_MEMINFO_WMEM_QUEUED / SK_MEMINFO_SNDBUF, tcpi_notsent_bytes",
            ),
            facts.sampled(
                format!(
                    "{} of the rate samples were limited by the application",
                    percent(medians.app_limited)
                ),
                "tcpi_delivery_rate_app_limited",
            ),
            facts.sampled(
                format!("its thread used {} of a core", percent(running)),
                "schedstat of the sending thread",
            ),
        ],
        remedies: vec![Remedy::ChangeFlow { key: "burst-flows".to_owned(), value: 0.into() }],
    }
}

/// The congestion window was still growing.
pub(super) fn ramping(facts: &Facts<'_>) -> Option<Finding> {
    let (growth, slow_start) = facts.growth?;
    if facts.medians.window_fill < WINDOW_USED || (growth < 1.2 && !slow_start) {
        return None;
    }
    let goal = goal_bps(facts);
    let segments = formulas::bandwidth_delay_bytes(goal, facts.base_rtt_ns()) / facts.mss_bytes;
    // RFC 9438, section 4.2: K = cbrt(W_max * (1 - beta) / C) = cbrt(0.75 W).
    let needed = if slow_start {
        formulas::slow_start_round_trips(segments) * facts.base_rtt_ns() as f64
    } else {
        (0.75 * segments).cbrt() * 1e9
    };
    Some(Finding {
        cause: Cause::StillRamping { needed_ns: needed.max(0.0) as u64 },
        sentence: format!(
            "still ramping: the congestion window grew by {:.0} % from the first half to the second and was used up",
            (growth - 1.0) * 100.0
        ),
        fault: false,
        evidence: vec![facts.sampled(
            format!("congestion window {growth:.2} times as large in the second half"),
            "median of tcpi_snd_cwnd in each half",
        )],
        remedies: vec![Remedy::ChangeFlow { key: "duration".to_owned(), value: "30s".into() }],
    })
}
