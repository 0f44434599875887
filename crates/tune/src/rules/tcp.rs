//! TCP options, congestion control, and settings that cost CPU time.

use clearstream_schema::{
    human::{rate, time},
    tune::{Finding, FindingClass, Severity},
};

use super::{Facts, With};
use crate::path::{self, LARGEST_WINDOW_BYTES, bytes};

const TIMESTAMPS: &str = "net.ipv4.tcp_timestamps";

/// Rate at which sequence numbers wrap in 34 s, less than a maximum segment lifetime.
const FAST_BPS: u64 = 1_000_000_000;

/// Window in segments above which a loss without SACK is expensive.
const LARGE_WINDOW_SEGMENTS: f64 = 64.0;

/// Payload of a segment at an MTU of 9000 with timestamps.
const JUMBO_SEGMENT_BYTES: f64 = 8948.0;

/// Largest window without scaling (RFC 9293, 3.1).
const UNSCALED_WINDOW_BYTES: f64 = 65535.0;

pub(super) fn timestamps(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    if facts.state.number(TIMESTAMPS) != Some(0) {
        return;
    }
    let rate_bps = facts.goal.map(|goal| goal.rate.0);
    let speed = rate_bps.or_else(|| facts.state.interfaces.iter().filter_map(|nic| nic.speed_bps).max());
    let (severity, wrap) = match speed {
        Some(bps) if bps >= FAST_BPS => (
            Severity::Error,
            format!("at {} sequence numbers wrap in {:.2} s", rate(bps as f64), path::wrap_seconds(bps)),
        ),
        _ => (
            Severity::Warning,
            format!(
                "sequence numbers wrap in {:.2} s at 40 Gb/s and in {:.0} s at 1 Gb/s",
                path::wrap_seconds(40_000_000_000),
                path::wrap_seconds(FAST_BPS)
            ),
        ),
    };
    let message = format!(
        "{wrap} (2^32 bytes), and without timestamps nothing distinguishes an old segment from a new one (PAWS); the receiver's buffer also grows on a worse measure of the round trip. They cost 12 bytes of each segment: 0.8 % at an MTU of 1500, 0.13 % at 9000"
    );
    found.push(
        facts.finding(TIMESTAMPS, FindingClass::Unsafe, "no-paws", severity, message).advise("set it to 1"),
    );
}

/// Settings that have no effect without timestamps.
pub(super) fn needs_timestamps(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    if facts.state.number(TIMESTAMPS) != Some(0) {
        return;
    }
    for (key, harmless, what) in [
        ("net.ipv4.tcp_tw_reuse", 0, "reuses a port only where a timestamp was recorded, so it does nothing"),
        ("net.ipv4.tcp_tw_recycle", 0, "needs recorded timestamps, so it does nothing"),
    ] {
        // The kernel's own default (2: loopback) is no mistake.
        let value = facts.state.values.get(key);
        let is_at_rest =
            value.is_some_and(|value| value.effective && value.place.is_none() && value.text == "2");
        if facts.state.number(key).is_some_and(|value| value != harmless) && !is_at_rest {
            let message = format!("with tcp_timestamps = 0 it {what}");
            found.push(
                facts
                    .finding(
                        key,
                        FindingClass::Contradiction,
                        "without-timestamps",
                        Severity::Warning,
                        message,
                    )
                    .advise("tcp_timestamps = 1, and leave this one at its default"),
            );
        }
    }
    if facts.state.number("net.ipv4.tcp_syncookies") == Some(1) {
        let message = "with tcp_timestamps = 0 a connection that is accepted by SYN cookie has neither SACK nor window scale: its window ends at 64 KiB".to_owned();
        found.push(
            facts
                .finding(
                    "net.ipv4.tcp_syncookies",
                    FindingClass::Contradiction,
                    "without-timestamps",
                    Severity::Warning,
                    message,
                )
                .advise("tcp_timestamps = 1"),
        );
    }
}

pub(super) fn selective_acknowledgement(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_sack";
    if facts.state.number(key) != Some(0) {
        return;
    }
    let message = match facts.goal {
        Some(goal) => {
            let bdp = path::flow_bdp_bytes(goal);
            let segments = bdp / JUMBO_SEGMENT_BYTES;
            if segments <= LARGE_WINDOW_SEGMENTS {
                return;
            }
            format!(
                "one loss leaves a hole in a window of {} ({segments:.0} segments of 8948 bytes), and without SACK the sender fills one hole in each round trip of {}",
                bytes(bdp),
                goal.rtt
            )
        }
        None => {
            "without SACK the sender fills one hole in each round trip, and RACK does not work".to_owned()
        }
    };
    found.push(
        facts.finding(key, FindingClass::Unsafe, "no-sack", Severity::Error, message).advise("set it to 1"),
    );
}

pub(super) fn window_scaling(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_window_scaling";
    if facts.state.number(key) != Some(0) {
        return;
    }
    let rtt_ns = facts.goal.map_or(17_000_000, |goal| goal.rtt.0);
    let message = format!(
        "a window ends at 64 KiB: {} over {}",
        rate(path::window_rate_bps(UNSCALED_WINDOW_BYTES, rtt_ns)),
        time(rtt_ns)
    );
    found.push(
        facts
            .finding(key, FindingClass::Unsafe, "no-scaling", Severity::Error, message)
            .advise("set it to 1, on both ends"),
    );
}

pub(super) fn fixed_receive_buffer(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_moderate_rcvbuf";
    if facts.state.number(key) != Some(0) {
        return;
    }
    let first = facts.state.triple("net.ipv4.tcp_rmem").map(|[_, first, _]| first);
    let message = match first {
        Some(first) => {
            let (share, _) = facts.receive_share();
            format!(
                "receive buffers stay at the middle value of tcp_rmem, a window of {}",
                bytes(first as f64 * share)
            )
        }
        None => "receive buffers stay at the middle value of tcp_rmem, whatever the path needs".to_owned(),
    };
    found.push(
        facts
            .finding(key, FindingClass::Contradiction, "fixed-buffer", Severity::Error, message)
            .advise("set it to 1"),
    );
}

pub(super) fn congestion_control(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_congestion_control";
    let Some(value) = facts.state.values.get(key).filter(|value| !value.effective) else { return };
    let name = value.text.as_str();
    let offered = facts.state.text("net.ipv4.tcp_available_congestion_control");
    let is_offered = offered.map(|names| names.split_whitespace().any(|offered| offered == name));
    let message = match is_offered {
        Some(true) => return,
        Some(false) => format!(
            "{name} is not among the loaded ones ({}): the write loads tcp_{name} where the kernel has that module, and fails where it does not",
            offered.unwrap_or_default()
        ),
        None => format!(
            "{name} acts at the sender of the data, on new sockets; the write fails where the kernel has no tcp_{name}"
        ),
    };
    let (severity, cause) = if is_offered == Some(false) {
        (Severity::Warning, "not-loaded")
    } else {
        (Severity::Note, "sender-only")
    };
    found.push(
        facts
            .finding(key, FindingClass::Unverifiable, cause, severity, message)
            .advise("load the module at boot (modules-load.d), and read the key back"),
    );
}

/// Large MTUs need MTU probing to detect a black hole.
pub(super) fn probing(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_mtu_probing";
    if facts.state.number(key) != Some(0) {
        return;
    }
    for nic in facts.state.interfaces.iter().filter(|nic| nic.is_device) {
        let Some(mtu) = nic.mtu_bytes.filter(|&mtu| mtu > 1500) else { continue };
        let message = format!(
            "{} has an MTU of {mtu}: where one link of the path carries less and its report is filtered, connections hang as soon as they send full segments",
            nic.name
        );
        let mut finding = facts
            .finding(key, FindingClass::Path, "black-hole", Severity::Note, message)
            .advise("set it to 1, or probe the path's MTU");
        finding.interface = Some(nic.name.clone());
        found.push(finding);
    }
}

pub(super) fn idle(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_slow_start_after_idle";
    let Some(goal) = facts.goal.filter(|_| facts.state.number(key) == Some(1)) else { return };
    let window = path::flow_bdp_bytes(goal).min(LARGEST_WINDOW_BYTES as f64);
    // Initial window of ten segments, doubled in each round trip (RFC 6928).
    let rounds = (window / JUMBO_SEGMENT_BYTES / 10.0).log2().ceil();
    if rounds >= 4.0 {
        let message = format!(
            "a flow that pauses for one timeout restarts from a small window: {rounds:.0} round trips, {:.2} s, back to {}",
            rounds * goal.rtt.seconds(),
            bytes(window)
        );
        found.push(
            facts
                .finding(key, FindingClass::Path, "restarts", Severity::Note, message)
                .advise("0 for long-lived bulk flows that pause; BBR does not use it"),
        );
    }
}

pub(super) fn polling(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for key in ["net.core.busy_read", "net.core.busy_poll"] {
        if let Some(us) = facts.state.number(key).filter(|&us| us > 0) {
            let message = format!(
                "readers spin for {us} us before they sleep: that serves latency, and takes a core from bulk flows"
            );
            found.push(
                facts
                    .finding(key, FindingClass::Wasteful, "spins", Severity::Warning, message)
                    .advise("0 on hosts that move bulk data"),
            );
        }
    }
}

/// One of two related limits raised without the other.
pub(super) fn budget(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (packets, time) = ("net.core.netdev_budget", "net.core.netdev_budget_usecs");
    let is_set = |key: &str| facts.state.values.get(key).is_some_and(|value| !value.effective);
    let raised = facts.state.number(packets).is_some_and(|count| count > 300);
    if is_set(packets) && raised && !is_set(time) {
        let message = "a polling round ends at netdev_budget packets or after netdev_budget_usecs, whichever is first: raising one alone may change nothing".to_owned();
        found.push(
            facts
                .finding(packets, FindingClass::Contradiction, "one-of-two", Severity::Note, message)
                .advise("raise netdev_budget_usecs with it (kernels since 4.14 have it)"),
        );
    }
}
