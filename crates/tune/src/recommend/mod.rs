//! Recommendations: from a path and a host to a plan. Each step states its
//! arithmetic; limits that no setting can change become advice.

mod advice;
mod draft;
mod recovery;

use std::{fmt, str::FromStr};

use clearstream_schema::{
    human::{count, rate},
    plan::{PLAN_SCHEMA, Plan, PlanHost},
    tune::PathGoal,
};

use self::draft::Draft;
use crate::{
    path::{self, LARGEST_WINDOW_BYTES, RECEIVE_SHARE, SEND_SHARE, bytes},
    rules::proposed,
    state::{Destination, HostState},
};

/// Workload that a host is tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Bulk data over long paths.
    Wan,
    /// Bulk data within one site.
    Lan,
    /// Long-lived connections with pauses, within one site.
    Storage,
    /// Short requests and responses.
    Latency,
}

impl Profile {
    /// All profiles with their names.
    pub const ALL: [(&'static str, Self); 4] =
        [("wan", Self::Wan), ("lan", Self::Lan), ("storage", Self::Storage), ("latency", Self::Latency)];
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, profile)| profile == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, profile)| *profile)
            .ok_or_else(|| format!("\"{text}\" is no profile: write wan, lan, storage or latency"))
    }
}

/// Version of the plan format.
const VERSION: u32 = 1;

/// First receive buffer of kernels since 4.19 (RFC 6928's ten segments, with room).
const FIRST_RECEIVE_BYTES: i64 = 131_072;
/// First send buffer of every kernel.
const FIRST_SEND_BYTES: i64 = 16_384;
/// Upper limit of a first buffer; larger ones are reset to the default.
const LARGEST_FIRST_BYTES: i64 = 1 << 20;
/// Fraction of the memory that all sockets together may use.
const MEMORY_SHARE: f64 = 0.25;
/// Busy-poll time of latency profiles in microseconds
/// (Documentation/admin-guide/sysctl/net.rst proposes 50).
const SPIN: &str = "50";

/// Creates a plan. It contains only settings that the host has, that are
/// writable from this namespace and whose value is insufficient; what cannot be
/// set is advice. Current values are those of `state`.
pub fn recommend(state: &HostState, goal: &PathGoal, profile: Profile) -> Plan {
    let mut draft = Draft::new(state);
    options(&mut draft, state);
    let control = congestion_control(&mut draft, state, goal, profile);
    let gain = path::gain(control.as_deref());
    buffers(&mut draft, state, goal, control.as_deref());
    if profile == Profile::Wan {
        pacing(&mut draft, state, goal);
    }
    behaviour(&mut draft, state, goal, profile);
    offloads(&mut draft, state);
    advice::add(&mut draft, state, goal, gain);
    let (steps, advice) = draft.finish();
    Plan {
        schema: PLAN_SCHEMA.to_owned(),
        version: VERSION,
        purpose: format!(
            "{} over {} with {}, profile {profile}",
            goal.rate,
            goal.rtt,
            count(goal.flow_count, "flow")
        ),
        host: PlanHost {
            name: state.host_name.clone().unwrap_or_default(),
            kernel: state.release.clone().unwrap_or_default(),
        },
        steps,
        advice,
    }
}

/// TCP options that fast paths require.
fn options(draft: &mut Draft<'_>, state: &HostState) {
    for (key, reason) in [
        ("net.ipv4.tcp_window_scaling", "without scaling a window ends at 64 KiB (RFC 7323)"),
        ("net.ipv4.tcp_sack", "without SACK one hole of a window is filled in each round trip (RFC 2018)"),
        (
            "net.ipv4.tcp_timestamps",
            "without timestamps nothing protects wrapped sequence numbers (PAWS, RFC 7323), and the receive buffer grows on a worse measure of the round trip",
        ),
        (
            "net.ipv4.tcp_moderate_rcvbuf",
            "without autotuning receive buffers stay at the middle value of tcp_rmem",
        ),
    ] {
        if state.number(key) == Some(0) {
            draft.sysctl(key, "1".to_owned(), reason.to_owned());
        }
    }
}

/// The destination and the congestion control that its route names, if it names one.
fn of_route(state: &HostState) -> Option<(&Destination, &str)> {
    let destination = state.destination.as_ref()?;
    Some((destination, destination.congestion_control.as_deref()?))
}

/// Chooses among the available congestion controls; returns the effective one. A route's own takes
/// precedence over the default, which is left as it is then: it does not apply to this path.
fn congestion_control(
    draft: &mut Draft<'_>,
    state: &HostState,
    goal: &PathGoal,
    profile: Profile,
) -> Option<String> {
    let key = "net.ipv4.tcp_congestion_control";
    if let Some((destination, name)) = of_route(state) {
        draft.advise(format!(
            "the route to {} names {name} (congctl): connections there start with it, whatever {key} is",
            destination.address
        ));
        return Some(name.to_owned());
    }
    let current = state.text(key)?.to_owned();
    let offered = state.text("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    let has = |name: &str| offered.split_whitespace().any(|offered| offered == name);
    let model = recovery::Recovery::of(goal);
    let is_long = goal.rtt.0 >= recovery::ADAPTIVE_FROM_NS;
    if profile == Profile::Wan && is_long && matches!(current.as_str(), "cubic" | "reno") {
        if has("htcp") {
            draft.sysctl(key, "htcp".to_owned(), model.why_htcp(&current));
            return Some("htcp".to_owned());
        }
        draft.advise(format!(
            "{}; this kernel offers {}: H-TCP is a module (tcp_htcp) of many kernels, and clearstream cc load htcp brings it as a BPF program to those that take one",
            model.why_htcp(&current),
            if offered.is_empty() { "no list" } else { offered }
        ));
    }
    if current == "reno" && has("cubic") {
        draft.sysctl(key, "cubic".to_owned(), model.why_cubic());
        return Some("cubic".to_owned());
    }
    Some(current)
}

/// Socket buffers and the memory of all sockets.
fn buffers(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal, control: Option<&str>) {
    let gain = path::gain(control);
    let bdp = path::flow_bdp_bytes(goal);
    let wanted = (gain * bdp).min(LARGEST_WINDOW_BYTES as f64);
    let (share, why) = path::receive_share(state.kernel, state.number("net.ipv4.tcp_adv_win_scale"));
    let share = if share > 0.0 { share } else { RECEIVE_SHARE };
    let product = format!(
        "BDP per flow: {} x {} / 8 = {}{}",
        rate(goal.rate.0 as f64 / f64::from(goal.flow_count.max(1))),
        goal.rtt,
        bytes(bdp),
        match control {
            Some(name) if gain > 1.0 => match of_route(state) {
                Some((destination, _)) => {
                    format!(
                        "; x {gain:.0} because the congestion control of the route to {} is {name}",
                        destination.address
                    )
                }
                None => format!("; x {gain:.0} because the default congestion control is {name}"),
            },
            _ => String::new(),
        }
    );
    let receive = proposed(wanted, share);
    let send = proposed(wanted, SEND_SHARE);
    memory(draft, state, goal, receive, send);
    for (key, largest, first, arithmetic) in [
        (
            "net.ipv4.tcp_rmem",
            receive,
            FIRST_RECEIVE_BYTES,
            format!(
                "2 x {} / {share:.2} (share of the buffer that is window: {why}) = {}",
                bytes(wanted),
                bytes(receive as f64)
            ),
        ),
        (
            "net.ipv4.tcp_wmem",
            send,
            FIRST_SEND_BYTES,
            format!(
                "2 x {} / {SEND_SHARE} (share that is in flight) = {}",
                bytes(wanted),
                bytes(send as f64)
            ),
        ),
    ] {
        let Some([least, middle, now]) = state.triple(key) else {
            draft.explain_absent(key);
            continue;
        };
        let middle_is_large = middle > LARGEST_FIRST_BYTES;
        if now >= largest && !middle_is_large {
            continue;
        }
        let middle = if middle_is_large { first } else { middle };
        let mut reason = String::new();
        if now < largest {
            let (share_now, side) = match key {
                "net.ipv4.tcp_rmem" => (share, "receive"),
                _ => (SEND_SHARE, "send"),
            };
            let ceiling = path::window_rate_bps(now as f64 * share_now, goal.rtt.0);
            let supported = match control {
                Some(name) if gain > 1.0 => {
                    format!("{} per flow with {name}, {} with cubic", rate(ceiling / gain), rate(ceiling))
                }
                _ => format!("{} per flow", rate(ceiling)),
            };
            reason = format!(
                "{product}. {arithmetic}, whole MiB. The current maximum of the {side} buffer ({}) supports {supported}",
                bytes(now as f64)
            );
        }
        if middle_is_large {
            reason.push_str(if reason.is_empty() { "" } else { ". " });
            reason.push_str("the middle value is what every idle connection may hold: back to the kernel's");
        }
        draft.sysctl(key, format!("{least} {middle} {}", now.max(largest)), reason);
    }
}

/// The pressure threshold of `tcp_mem`, above what the flows may hold.
fn memory(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal, receive: i64, send: i64) {
    let key = "net.ipv4.tcp_mem";
    let Some([_, pressure, _]) = state.triple(key) else { return };
    let (Some(page), Some(all)) = (state.page_bytes, state.memory_bytes) else { return };
    let held = f64::from(goal.flow_count) * (receive as f64 + send as f64);
    let wanted = (1.5 * held / page as f64).ceil() as i64;
    if pressure >= wanted {
        return;
    }
    let free = all.saturating_sub(state.huge_bytes.unwrap_or(0)) as f64;
    let high = wanted + wanted / 2;
    if high as f64 * page as f64 > MEMORY_SHARE * free {
        draft.advise(format!(
            "{} flow(s) may hold {}; tcp_mem would have to end at {}, more than 25 % of the {} that is not reserved: fewer flows, or more memory",
            goal.flow_count,
            bytes(held),
            bytes(high as f64 * page as f64),
            bytes(free)
        ));
        return;
    }
    let reason = format!(
        "{} flow(s) may hold {} ({} receiving, {} sending each); pressure = 1.5 x that / {page} = {wanted} pages, low = 0.75 and high = 1.5 of it ({} of the {} that is not reserved)",
        goal.flow_count,
        bytes(held),
        bytes(receive as f64),
        bytes(send as f64),
        bytes(high as f64 * page as f64),
        bytes(free)
    );
    draft.sysctl(key, format!("{} {wanted} {high}", wanted * 3 / 4), reason);
}

/// A pacing qdisc for existing and future interfaces.
fn pacing(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal) {
    let why =
        "fq spaces a window over the round trip instead of sending it in bursts that a switch must hold";
    let key = "net.core.default_qdisc";
    if state.text(key) != Some("fq") {
        draft.sysctl(key, "fq".to_owned(), why.to_owned());
    }
    for nic in state.interfaces.iter().filter(|nic| nic.is_device && nic.is_up) {
        match nic.qdisc.as_deref() {
            Some("fq") | None => {}
            Some("mq") => draft.advise(format!(
                "{} has mq with a leaf for each queue: its leaves take default_qdisc when the qdisc is replaced (tc qdisc replace dev {} root mq)",
                nic.name, nic.name
            )),
            Some(other) => draft.qdisc(&nic.name, other, "fq", why.to_owned()),
        }
        if let Some(speed) = nic.speed_bps.filter(|&speed| goal.flow_count > 1 && speed > 0) {
            let each = 0.9 * speed as f64 / f64::from(goal.flow_count);
            draft.advise(format!(
                "where flows collide: fq maxrate is for each flow, 0.9 x {} / {} = {} on {}",
                rate(speed as f64),
                goal.flow_count,
                rate(each),
                nic.name
            ));
        }
    }
}

/// Behaviour of connections after a pause and behind an MTU black hole.
fn behaviour(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal, profile: Profile) {
    let jumbo =
        state.interfaces.iter().find(|nic| nic.is_device && nic.mtu_bytes.is_some_and(|mtu| mtu > 1500));
    let probing = "net.ipv4.tcp_mtu_probing";
    if let (Some(nic), Some(0)) = (jumbo, state.number(probing)) {
        let reason = format!(
            "{} has an MTU of {}: after a black hole connections find a smaller segment instead of hanging (RFC 4821)",
            nic.name,
            nic.mtu_bytes.unwrap_or_default()
        );
        draft.sysctl(probing, "1".to_owned(), reason);
    }
    let idle = "net.ipv4.tcp_slow_start_after_idle";
    if profile != Profile::Lan && state.number(idle) == Some(1) {
        let reason =
            "a connection that pauses keeps its window instead of regrowing it over several round trips"
                .to_owned();
        draft.sysctl(idle, "0".to_owned(), reason);
    }
    let unsent = "net.ipv4.tcp_notsent_lowat";
    let flow_bps = goal.rate.0 as f64 / f64::from(goal.flow_count.max(1));
    let needed = flow_bps / 8.0 * 100e-6;
    if state.number(unsent).is_some_and(|bytes| (bytes as f64) < needed) {
        let reason = format!(
            "{} x 100 us / 8 = {}: with less the socket runs dry before its writer wakes up",
            rate(flow_bps),
            bytes(needed)
        );
        draft.sysctl(unsent, "4294967295".to_owned(), reason);
    }
    for key in ["net.core.busy_read", "net.core.busy_poll"] {
        let now = state.number(key);
        if profile == Profile::Latency && now == Some(0) {
            let reason = format!(
                "readers spin for {SPIN} us instead of sleeping: the wake-up is saved, a core is spent"
            );
            draft.sysctl(key, SPIN.to_owned(), reason);
        } else if profile != Profile::Latency && now.is_some_and(|us| us > 0) {
            draft.sysctl(key, "0".to_owned(), "spinning readers take a core from bulk flows".to_owned());
        }
    }
    let balancing = "kernel.numa_balancing";
    let node_count = state.report.as_ref().map_or(0, |report| report.nodes.len());
    if node_count > 1 && state.number(balancing).is_some_and(|on| on > 0) {
        let reason = format!(
            "{node_count} nodes: the kernel takes pages away to find out who uses them, and pinned processes pay the faults for nothing"
        );
        draft.sysctl(balancing, "0".to_owned(), reason);
    }
}

/// Offloads that reduce the work per packet.
fn offloads(draft: &mut Draft<'_>, state: &HostState) {
    for nic in state.interfaces.iter().filter(|nic| nic.is_device && nic.is_up) {
        for feature in ["tx-scatter-gather", "tx-tcp-segmentation", "rx-gro"] {
            if nic.offloads.get(feature) == Some(&false) {
                let reason = format!(
                    "{feature} is off: one 64 KiB buffer is then up to 45 packets of work at an MTU of 1500"
                );
                draft.feature(&nic.name, feature, reason);
            }
        }
    }
}
