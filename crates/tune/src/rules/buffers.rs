//! Socket buffers: consistency with each other, the path and the largest window.

use clearstream_schema::{
    human::rate,
    tune::{Finding, FindingClass, Severity},
};

use super::{Facts, With};
use crate::{
    path::{self, LARGEST_WINDOW_BYTES, SEND_SHARE, bytes},
    version::KernelVersion,
};

const RECEIVE: &str = "net.ipv4.tcp_rmem";
const SEND: &str = "net.ipv4.tcp_wmem";

/// Larger first buffers waste memory: every idle connection holds one.
const LARGEST_FIRST_BYTES: i64 = 1 << 20;

/// Fraction of the send buffer that measured flows kept in flight
/// (skmem w/tb of runs at 20 ms): the evidence of the ceiling.
const MEASURED_SEND_SHARE: f64 = 0.87;

/// Smallest default cap: RAM/128 on small hosts.
const RAM_SHARE: u64 = 128;

/// Maximum wake-up latency of a writer on a host that is not overloaded.
const WAKE_UP_SECONDS: f64 = 100e-6;

pub(super) fn order(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for key in [RECEIVE, SEND] {
        let Some([least, first, largest]) = facts.state.triple(key) else { continue };
        if least > first || first > largest {
            let message = format!(
                "least {least}, first {first}, largest {largest} do not ascend: the kernel does not check it and takes the smaller one in each place"
            );
            found.push(
                facts
                    .finding(key, FindingClass::Order, "descending", Severity::Error, message)
                    .advise("write least <= first <= largest"),
            );
        }
    }
}

pub(super) fn first_buffers(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    for (key, usual) in [(RECEIVE, "131072"), (SEND, "16384")] {
        let Some([_, first, largest]) = facts.state.triple(key) else { continue };
        if first > LARGEST_FIRST_BYTES {
            let message = format!(
                "the middle value gives every new connection {} before it has sent a byte: 1000 connections may hold {}; autotuning grows a buffer to {} where a path needs it",
                bytes(first as f64),
                bytes(first as f64 * 1000.0),
                bytes(largest as f64)
            );
            found.push(
                facts
                    .finding(key, FindingClass::Wasteful, "first-buffer", Severity::Warning, message)
                    .advise(format!("{usual} as the middle value")),
            );
        }
    }
}

/// The receive buffer compared with the path's BDP.
pub(super) fn window(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (Some(goal), Some([_, _, largest])) = (facts.goal, facts.state.triple(RECEIVE)) else { return };
    let (share, why) = facts.receive_share();
    let bdp = path::flow_bdp_bytes(goal);
    let wanted = facts.gain() * bdp;
    let usable = largest as f64 * share;
    if usable < wanted.min(LARGEST_WINDOW_BYTES as f64) {
        let message = format!(
            "{} of buffer gives a window of {} ({why}), so {} for each of {} flow(s); {} over {} needs {} ({} x {} / 8 / {}{}): short by {}",
            bytes(largest as f64),
            bytes(usable),
            rate(path::window_rate_bps(usable, goal.rtt.0)),
            goal.flow_count,
            goal.rate,
            goal.rtt,
            bytes(wanted),
            goal.rate,
            goal.rtt,
            goal.flow_count,
            if facts.gain() > 1.0 { ", twice for BBR" } else { "" },
            bytes(wanted - usable)
        );
        let proposed = proposed(wanted, share);
        found.push(
            facts
                .finding(RECEIVE, FindingClass::Path, "window-too-small", Severity::Error, message)
                .advise(format!(
                    "{proposed} as the last value (2 x {} / {share:.2}, whole MiB)",
                    bytes(wanted)
                ))
                .sourced("ip-sysctl.rst, RFC 7323"),
        );
    }
}

/// Twice the required size, in whole MiB, within the kernel's limit.
pub(crate) fn proposed(wanted_bytes: f64, share: f64) -> i64 {
    path::whole_mib(2.0 * wanted_bytes / share).min(i64::from(i32::MAX))
}

/// The send buffer compared with the path's BDP.
pub(super) fn send_buffer(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (Some(goal), Some([_, _, largest])) = (facts.goal, facts.state.triple(SEND)) else { return };
    let wanted = facts.gain() * path::flow_bdp_bytes(goal);
    let usable = largest as f64 * SEND_SHARE;
    if usable < wanted.min(LARGEST_WINDOW_BYTES as f64) {
        let message = format!(
            "a sender keeps at most {:.0} % of {} in flight, so {} for each of {} flow(s) over {}; {} needs {} in flight",
            SEND_SHARE * 100.0,
            bytes(largest as f64),
            rate(path::window_rate_bps(usable, goal.rtt.0)),
            goal.flow_count,
            goal.rtt,
            goal.rate,
            bytes(wanted)
        );
        let proposed = proposed(wanted, SEND_SHARE);
        found.push(
            facts
                .finding(SEND, FindingClass::Path, "send-buffer-too-small", Severity::Error, message)
                .advise(format!(
                    "{proposed} as the last value (2 x {} / {SEND_SHARE}, whole MiB)",
                    bytes(wanted)
                )),
        );
    }
}

/// A send maximum far below the receive maximum, as in current defaults.
pub(super) fn asymmetric(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (Some([_, _, receive]), Some([_, _, send])) = (facts.state.triple(RECEIVE), facts.state.triple(SEND))
    else {
        return;
    };
    let (share, _) = facts.receive_share();
    let (window, flight) = (receive as f64 * share, send as f64 * SEND_SHARE);
    // With a goal the send buffer is compared with the path itself.
    if facts.goal.is_some() || flight * 2.0 > window {
        return;
    }
    let ceilings: Vec<String> = [1, 17, 100]
        .iter()
        .map(|&rtt_ms| {
            let bps = path::window_rate_bps(send as f64 * MEASURED_SEND_SHARE, rtt_ms * 1_000_000);
            format!("{} at {rtt_ms} ms", rate(bps))
        })
        .collect();
    let message = format!(
        "one flow can receive with a window of {} and send with {} in flight: as a sender it ends at {}",
        bytes(window),
        bytes(flight),
        ceilings.join(", ")
    );
    found.push(
        facts
            .finding(SEND, FindingClass::Path, "asymmetric", Severity::Note, message)
            .advise("give --rate and --rtt of the path to see what it needs"),
    );
}

/// Values of a list for older kernels that are below this kernel's defaults.
pub(super) fn below_default(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(kernel) = facts.state.kernel else { return };
    // tcp_rmem of net/ipv4/tcp.c tcp_init: 6 MiB from 4.11 (at least), 32 MiB in 6.18.
    let receive = match kernel {
        k if k >= KernelVersion::new(6, 18, 0) => 32 << 20,
        k if k >= KernelVersion::new(4, 11, 0) => 6 << 20,
        _ => 4 << 20,
    };
    for (key, default) in [(RECEIVE, receive), (SEND, 4 << 20)] {
        let Some([_, _, largest]) = facts.state.triple(key) else { continue };
        let by_memory = facts.state.memory_bytes.map_or(u64::MAX, |bytes| bytes / RAM_SHARE);
        let default = by_memory.min(default);
        let is_set =
            facts.state.values.get(key).is_some_and(|value| !value.effective || value.place.is_some());
        if is_set && largest >= 0 && (largest as u64) < default {
            let message = format!(
                "{} is less than the {} that kernel {kernel} gives without this line",
                bytes(largest as f64),
                bytes(default as f64)
            );
            found.push(
                facts
                    .finding(key, FindingClass::Path, "below-default", Severity::Warning, message)
                    .advise("delete the line, or raise the last value"),
            );
        }
    }
}

/// More buffer than the largest window can fill.
pub(super) fn beyond_one_window(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let (share, why) = facts.receive_share();
    for (key, share, why) in [(RECEIVE, share, why), (SEND, SEND_SHARE, format!("{SEND_SHARE} in flight"))] {
        let Some([_, _, largest]) = facts.state.triple(key) else { continue };
        // Twice the window is headroom for retransmissions.
        let useful = 2.0 * LARGEST_WINDOW_BYTES as f64 / share;
        let capped = useful.min(f64::from(i32::MAX));
        if largest as f64 > capped {
            let message = format!(
                "{} is more than a flow can use: its window ends at 65535 << 14 = 1 GiB ({why})",
                bytes(largest as f64)
            );
            found.push(
                facts
                    .finding(key, FindingClass::Wasteful, "beyond-one-window", Severity::Warning, message)
                    .advise(format!("at most {capped:.0}"))
                    .sourced("RFC 7323, 2.3"),
            );
        }
    }
}

/// A goal that exceeds the largest window of one flow.
pub(super) fn flows(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(goal) = facts.goal else { return };
    let gain = facts.gain();
    let wanted = gain * path::flow_bdp_bytes(goal);
    if wanted > LARGEST_WINDOW_BYTES as f64 {
        let message = format!(
            "{} over {} with {} flow(s) needs a window of {}, and TCP ends at 65535 << 14 = {}: {} for one flow, whatever the sysctls",
            goal.rate,
            goal.rtt,
            goal.flow_count,
            bytes(wanted),
            bytes(LARGEST_WINDOW_BYTES as f64),
            rate(path::window_rate_bps(LARGEST_WINDOW_BYTES as f64, goal.rtt.0))
        );
        found.push(
            facts
                .finding("flows", FindingClass::Path, "beyond-one-window", Severity::Error, message)
                .advise(format!("at least {} flows", path::flows_needed(goal, gain)))
                .sourced("RFC 7323, 2.3"),
        );
    }
}

/// `tcp_notsent_lowat` compared with the wake-up latency of a writer.
pub(super) fn unsent(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let key = "net.ipv4.tcp_notsent_lowat";
    let (Some(goal), Some(held)) = (facts.goal, facts.state.number(key)) else { return };
    let flow_bps = goal.rate.0 as f64 / f64::from(goal.flow_count.max(1));
    let wanted = flow_bps / 8.0 * WAKE_UP_SECONDS;
    if (held as f64) < wanted {
        let message = format!(
            "{} is {:.0} us of data at {} for each flow; a writer that wakes up after 100 us needs {}, or the socket runs dry",
            bytes(held as f64),
            held as f64 * 8e6 / flow_bps,
            rate(flow_bps),
            bytes(wanted)
        );
        found.push(
            facts
                .finding(key, FindingClass::Path, "runs-dry", Severity::Warning, message)
                .advise(format!("at least {wanted:.0}, or the default 4294967295")),
        );
    }
}

/// SO_RCVBUF and SO_SNDBUF are clipped silently to these limits.
pub(super) fn explicit_requests(facts: &Facts<'_>, found: &mut Vec<Finding>) {
    let Some(goal) = facts.goal else { return };
    let wanted = facts.gain() * path::flow_bdp_bytes(goal);
    let (share, _) = facts.receive_share();
    for (key, option, share) in
        [("net.core.rmem_max", "SO_RCVBUF", share), ("net.core.wmem_max", "SO_SNDBUF", SEND_SHARE)]
    {
        let Some(cap) = facts.state.number(key) else { continue };
        let request = wanted / (2.0 * share);
        if (cap as f64) < request {
            let message = format!(
                "an application that sets {option} itself gets at most 2 x {} here, without an error; {} over {} would need a request of {}. Sockets that leave it to the kernel are not concerned",
                bytes(cap as f64),
                goal.rate,
                goal.rtt,
                bytes(request)
            );
            found.push(
                facts
                    .finding(key, FindingClass::Path, "clips-requests", Severity::Note, message)
                    .advise(format!("{} where such an application is used", path::whole_mib(request))),
            );
        }
    }
}
