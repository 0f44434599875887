//! Limits of a socket's buffer or window, and their remedies: a request
//! of the program, a cap on requests, the maximum of the autotuning, or a switch that
//! was turned off (Documentation/networking/ip-sysctl.rst, socket(7)).

use clearstream_schema::{
    diagnosis::{BufferLimit, Cause, End, Finding, Remedy},
    human::{bytes, rate},
};
use serde_json::Value;

use super::processing::{saturated, thread_item};
use crate::{facts::Facts, format::percent, formulas, hosts, stages::goal_bps};

/// Limit of a size, its explanation, and its remedies.
type Held = (BufferLimit, String, Vec<Remedy>);

/// The kernel reserves twice what a program requests (socket(7)): less than this part
/// of that is a request that was cut.
const CUT: f64 = 0.95;
/// Part of the maximum from which on the maximum may be what holds a buffer.
const GROWN: f64 = 0.5;
/// A maximum of a socket buffer below this holds not even two segments of 64 KiB with
/// what the kernel needs around them, so that writer and reader take turns.
const TINY_BYTES: u64 = 262_144;

fn switch(facts: &Facts<'_>, end: End, name: &str) -> Option<String> {
    let host = if end == facts.sender.end { facts.sender.host } else { facts.receiver.host };
    host.kernel.sysctls.get(name).map(|value| value.trim().to_owned())
}

fn raise(end: End, name: &str, field: u32, at_least: u64) -> Remedy {
    Remedy::RaiseSysctl { end, name: name.to_owned(), field, at_least }
}

fn name_of(facts: &Facts<'_>, end: End) -> String {
    if end == facts.sender.end { facts.sender.name().to_owned() } else { facts.receiver.name().to_owned() }
}

/// A request: granted, or cut at `cap` (`net.core.rmem_max`, `wmem_max`).
fn requested(facts: &Facts<'_>, end: End, size: u64, buffer: f64, names: [&str; 3], needed: u64) -> Held {
    let [option, cap, key] = names;
    let drop = Remedy::ChangeFlow { key: key.to_owned(), value: Value::Null };
    if buffer >= CUT * 2.0 * size as f64 {
        let why = format!("held by {option} of {}, which the program requested", bytes(size));
        return (BufferLimit::Explicit(size), why, vec![drop]);
    }
    let value = switch(facts, end, cap).and_then(|value| value.parse().ok()).unwrap_or(buffer as u64 / 2);
    let why = format!(
        "the program requested {option} of {}, and {cap} on {} grants {} of it",
        bytes(size),
        name_of(facts, end),
        bytes(value)
    );
    let held = BufferLimit::Sysctl { name: cap.to_owned(), value_bytes: value, end };
    // The kernel doubles what it grants.
    (held, why, vec![raise(end, cap, 0, size.max(needed / 2)), drop])
}

/// The receive buffer is far below the maximum to which the kernel raises it by itself
/// (tcp(7), `tcp_moderate_rcvbuf`), and nothing keeps it there: it is still growing, or
/// its reader did not run enough for it to grow.
pub(super) fn may_still_grow(facts: &Facts<'_>, window: f64, buffer: f64) -> bool {
    let requested = facts.config.receive_buffer.or(facts.config.window).is_some();
    let off = switch(facts, facts.receiver.end, "net.ipv4.tcp_moderate_rcvbuf").as_deref() == Some("0");
    let scale = facts.receive_window_scale.filter(|scale| *scale <= 14);
    let scaled_full = scale.is_some_and(|scale| window >= CUT * f64::from(65_535u32 << scale));
    let cap = hosts::triple(facts.receiver.host, "net.ipv4.tcp_rmem");
    let far_below = cap.is_some_and(|cap| buffer < GROWN * cap[2] as f64);
    far_below && !requested && !off && !scaled_full && unscaled(facts, window).is_none()
}

/// Limit of the window that the receiver offers.
pub(super) fn held_window(facts: &Facts<'_>, window: f64, buffer: f64, needed: u64) -> Held {
    let end = facts.receiver.end;
    if let Some(explicit) = facts.config.receive_buffer.or(facts.config.window) {
        let key = if facts.config.receive_buffer.is_some() { "receive-buffer" } else { "window" };
        let names = ["SO_RCVBUF", "net.core.rmem_max", key];
        let (held, why, mut remedies) = requested(facts, end, explicit.0, buffer, names, needed);
        let small =
            hosts::triple(facts.receiver.host, "net.ipv4.tcp_rmem").is_some_and(|cap| cap[2] < needed);
        remedies.extend(small.then(|| raise(end, "net.ipv4.tcp_rmem", 2, needed)));
        return (held, why, remedies);
    }
    if let Some(held) = unscaled(facts, window) {
        return held;
    }
    let cap = hosts::triple(facts.receiver.host, "net.ipv4.tcp_rmem");
    let at_most = cap.is_none_or(|cap| buffer < CUT * cap[2] as f64);
    if at_most && switch(facts, end, "net.ipv4.tcp_moderate_rcvbuf").as_deref() == Some("0") {
        let name = "net.ipv4.tcp_moderate_rcvbuf";
        let why = format!(
            "held by {name} = 0 on {}: the receive buffer stays at {}, the default of net.ipv4.tcp_rmem",
            facts.receiver.name(),
            bytes(buffer as u64)
        );
        let held = BufferLimit::Sysctl { name: name.to_owned(), value_bytes: 0, end };
        return (held, why, vec![raise(end, name, 0, 1)]);
    }
    let raised = vec![raise(end, "net.ipv4.tcp_rmem", 2, needed)];
    let scale = facts.receive_window_scale.filter(|scale| *scale <= 14);
    if let Some(scale) = scale.filter(|scale| at_most && window >= CUT * f64::from(65_535u32 << scale)) {
        let why = format!("65535 shifted by the window scale {scale} of the handshake is the maximum");
        return (BufferLimit::WindowScale(scale), why, raised);
    }
    let value_bytes = cap.map_or(buffer as u64, |cap| cap[2]);
    let why = format!(
        "held by net.ipv4.tcp_rmem, whose maximum is {} on {}",
        bytes(value_bytes),
        facts.receiver.name()
    );
    (BufferLimit::Sysctl { name: "net.ipv4.tcp_rmem".to_owned(), value_bytes, end }, why, raised)
}

/// Without window scaling at either end no window exceeds 65535 bytes (RFC 7323, 2.2).
fn unscaled(facts: &Facts<'_>, window: f64) -> Option<Held> {
    let name = "net.ipv4.tcp_window_scaling";
    let off = facts.parts().into_iter().filter(|part| switch(facts, part.end, name).as_deref() == Some("0"));
    let ends: Vec<End> = off.map(|part| part.end).collect();
    if window > 65_535.0 || ends.is_empty() {
        return None;
    }
    let hosts: Vec<String> = ends.iter().map(|end| name_of(facts, *end)).collect();
    let why = format!("held by {name} = 0 on {}: no window exceeds 65535 bytes", hosts.join(" and "));
    Some((BufferLimit::WindowScale(0), why, ends.into_iter().map(|end| raise(end, name, 0, 1)).collect()))
}

/// Limit of the sender's buffer.
pub(super) fn held_send_buffer(facts: &Facts<'_>, explicit: Option<u64>, buffer: f64, needed: u64) -> Held {
    let end = facts.sender.end;
    let name = "net.ipv4.tcp_wmem";
    let raised = raise(end, name, 2, needed);
    if let Some(size) = explicit {
        let key = if facts.config.send_buffer.is_some() { "send-buffer" } else { "window" };
        let (held, why, mut remedies) =
            requested(facts, end, size, buffer, ["SO_SNDBUF", "net.core.wmem_max", key], needed);
        remedies.push(raised);
        return (held, why, remedies);
    }
    let held = BufferLimit::Sysctl { name: name.to_owned(), value_bytes: buffer as u64, end };
    let why = format!("held by {name}, whose maximum is {} on {}", bytes(buffer as u64), facts.sender.name());
    (held, why, vec![raised])
}

/// A maximum so small that over a path of microseconds writer and reader wait for each
/// other at every segment: neither is slow, and no round trip explains the rate.
pub(super) fn tiny_near(facts: &Facts<'_>) -> Option<Finding> {
    let config = facts.config;
    let explicit = config.window.or(config.send_buffer).or(config.receive_buffer).is_some()
        || config.receiver_pause.or(config.receiver_work).is_some();
    if !facts.is_local() || explicit || config.burst_flows > 0 || saturated(facts).is_some() {
        return None;
    }
    let at_maximum = |cap: Option<[u64; 3]>, buffer: Option<f64>| {
        let cap = cap?[2];
        // No more than a buffer is sent in a round trip, and the segment that exceeds it.
        let most = formulas::window_bps(2.0 * cap as f64, facts.base_rtt_ns()) * facts.flow_count;
        let fits = facts.goodput_bps <= most;
        (fits && cap < TINY_BYTES && buffer? >= CUT * cap as f64).then_some(cap)
    };
    let receives =
        at_maximum(hosts::triple(facts.receiver.host, "net.ipv4.tcp_rmem"), facts.medians.receive_buffer);
    let sends = at_maximum(hosts::triple(facts.sender.host, "net.ipv4.tcp_wmem"), facts.medians.buffer_bytes);
    match (receives, sends) {
        (Some(cap), other) if other.is_none_or(|other| cap <= other) => Some(tiny_window(facts, cap)),
        (_, Some(cap)) => Some(tiny_send_buffer(facts, cap)),
        _ => None,
    }
}

/// Sizes of the default of the kernel, which hold no path of microseconds up.
const USUAL_BYTES: u64 = 4 << 20;

fn tiny_window(facts: &Facts<'_>, cap: u64) -> Finding {
    let window = facts.medians.peer_window_max.unwrap_or(cap as f64 / 2.0);
    let goal = goal_bps(facts);
    let needed = formulas::bandwidth_delay_bytes(goal / facts.flow_count, facts.base_rtt_ns()).ceil() as u64;
    let (held_by, why, remedies) = held_window(facts, window, cap as f64, USUAL_BYTES);
    Finding {
        sentence: format!(
            "receiver window: {} of receive buffer hold less than two large segments, and writer and reader take turns at {} ({why})",
            bytes(cap),
            rate(facts.goodput_bps)
        ),
        cause: Cause::ReceiverWindow {
            held_by,
            window_bytes: window as u64,
            needed_window_bytes: needed,
            needed_buffer_bytes: USUAL_BYTES,
            goal_bps: goal,
        },
        fault: true,
        evidence: vec![
            facts.sampled(
                format!("the receive buffer has its maximum, {}", bytes(cap)),
                "median of SK_MEMINFO_RCVBUF at the receiver",
            ),
            facts.sampled(
                format!("the sender waited for window {} of the time", percent(facts.medians.window_limited)),
                "median of the change of tcpi_rwnd_limited",
            ),
            thread_item(facts, &facts.receiver),
        ],
        remedies,
    }
}

fn tiny_send_buffer(facts: &Facts<'_>, cap: u64) -> Finding {
    let (held_by, why, remedies) = held_send_buffer(facts, None, cap as f64, USUAL_BYTES);
    Finding {
        sentence: format!(
            "send buffer: {} hold less than two large segments, and the writer waits for each at {} ({why})",
            bytes(cap),
            rate(facts.goodput_bps)
        ),
        cause: Cause::SendBuffer {
            held_by,
            buffer_bytes: cap,
            needed_buffer_bytes: USUAL_BYTES,
            goal_bps: goal_bps(facts),
        },
        fault: true,
        evidence: vec![
            facts.sampled(
                format!("the send buffer has its maximum, {}", bytes(cap)),
                "median of SK_MEMINFO_SNDBUF",
            ),
            thread_item(facts, &facts.sender),
        ],
        remedies,
    }
}
