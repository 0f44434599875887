//! Advice on what no plan can change: flows, slots, boot options, applications.

use clearstream_schema::{human::rate, tune::PathGoal};

use super::draft::Draft;
use crate::{
    path::{self, LARGEST_WINDOW_BYTES, SEND_SHARE, bytes},
    state::HostState,
};

/// Default MTU of Ethernet.
const USUAL_MTU: u32 = 1500;
/// Rate from which packets per second limit throughput.
const FAST_BPS: u64 = 10_000_000_000;

pub(super) fn add(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal, gain: f64) {
    flows(draft, goal, gain);
    requests(draft, state, goal, gain);
    slots(draft, state, goal);
    frames(draft, state, goal);
    let (share, _) = path::receive_share(state.kernel, state.number("net.ipv4.tcp_adv_win_scale"));
    draft.advise(format!(
        "assumed: {share:.2} of a receive buffer becomes window, {SEND_SHARE} of a send buffer is in flight; the same is needed at the peer"
    ));
    if goal.rate.0 >= FAST_BPS {
        draft.advise(
            "boot options: iommu=pt where the IOMMU is on (mapping every buffer costs most at these rates); the rest of placement is clearstream place plan".to_owned(),
        );
    }
}

/// RFC 7323: one window ends at 65535 << 14.
fn flows(draft: &mut Draft<'_>, goal: &PathGoal, gain: f64) {
    let wanted = gain * path::flow_bdp_bytes(goal);
    if wanted > LARGEST_WINDOW_BYTES as f64 {
        draft.advise(format!(
            "each of {} flow(s) needs a window of {}, and one window ends at 65535 << 14 = {} ({} at {}): use at least {} flows",
            goal.flow_count,
            bytes(wanted),
            bytes(LARGEST_WINDOW_BYTES as f64),
            rate(path::window_rate_bps(LARGEST_WINDOW_BYTES as f64, goal.rtt.0)),
            goal.rtt,
            path::flows_needed(goal, gain)
        ));
    }
}

/// Applications that set buffers themselves.
fn requests(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal, gain: f64) {
    let wanted = gain * path::flow_bdp_bytes(goal);
    let request = wanted / (2.0 * path::RECEIVE_SHARE);
    for (key, option) in [("net.core.rmem_max", "SO_RCVBUF"), ("net.core.wmem_max", "SO_SNDBUF")] {
        if state.number(key).is_some_and(|cap| (cap as f64) < request) {
            draft.advise(format!(
                "applications that set {option} themselves get at most 2 x {key}; they would need {} in it, but better leave the buffer to the kernel",
                path::whole_mib(request)
            ));
        }
    }
}

/// PCIe slots with less capacity than the goal.
fn slots(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal) {
    let Some(report) = &state.report else { return };
    for nic in &report.nics {
        let device =
            report.pci_devices.iter().find(|device| Some(&device.address) == nic.pci_address.as_ref());
        let Some(ceiling) = device.and_then(|device| device.ceiling.as_ref()) else { continue };
        if ceiling.conservative_bps < goal.rate.0 as f64 {
            draft.advise(format!(
                "{}: its slot carries {} to {} ({}), less than {}: another slot",
                nic.name,
                rate(ceiling.conservative_bps),
                rate(ceiling.optimistic_bps),
                ceiling.arithmetic,
                goal.rate
            ));
        }
    }
}

/// Packets per second at an MTU of 1500.
fn frames(draft: &mut Draft<'_>, state: &HostState, goal: &PathGoal) {
    if goal.rate.0 < FAST_BPS {
        return;
    }
    for nic in state.interfaces.iter().filter(|nic| nic.is_device && nic.mtu_bytes == Some(USUAL_MTU)) {
        // 38 bytes: preamble 8, header 14, check 4, gap 12 (IEEE 802.3).
        let per_second = |mtu: f64| goal.rate.0 as f64 / (8.0 * (mtu + 38.0)) / 1e6;
        draft.advise(format!(
            "{} has an MTU of {USUAL_MTU}: {:.2} million packets/s, {:.2} at 9000 where the whole path takes it",
            nic.name,
            per_second(f64::from(USUAL_MTU)),
            per_second(9000.0)
        ));
    }
}
