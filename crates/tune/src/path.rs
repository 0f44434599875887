//! Arithmetic of a path: windows, buffers, wrap times. Sources are named at
//! each formula; rates are bits/s, times ns, sizes bytes.

use clearstream_schema::{human, tune::PathGoal};

use crate::version::KernelVersion;

/// Largest window of one TCP flow: 65535 << 14 (RFC 7323, 2.3).
pub(crate) const LARGEST_WINDOW_BYTES: u64 = 65535 << 14;

/// Fraction of the send buffer that is payload, for planning. Measured with 64
/// KiB buffers: 0.87 to 0.92.
pub(crate) const SEND_SHARE: f64 = 0.85;

/// Fraction of the receive buffer that becomes window, for planning, from 6.6 on:
/// the initial value of every socket (`TCP_DEFAULT_SCALING_RATIO`).
pub(crate) const RECEIVE_SHARE: f64 = 0.5;

/// First kernel in which each socket measures its own ratio.
const SHARE_IS_MEASURED: KernelVersion = KernelVersion::new(6, 6, 0);

/// Bandwidth-delay product of one flow of the goal.
pub(crate) fn flow_bdp_bytes(goal: &PathGoal) -> f64 {
    bdp_bytes(goal.rate.0, goal.rtt.0) / f64::from(goal.flow_count.max(1))
}

/// Bandwidth-delay product: rate * RTT / 8.
pub(crate) fn bdp_bytes(rate_bps: u64, rtt_ns: u64) -> f64 {
    rate_bps as f64 * rtt_ns as f64 / 8e9
}

/// Rate that a window sustains: window * 8 / RTT.
pub(crate) fn window_rate_bps(window_bytes: f64, rtt_ns: u64) -> f64 {
    window_bytes * 8e9 / rtt_ns.max(1) as f64
}

/// Time until sequence numbers wrap: 2^32 bytes at this rate.
pub(crate) fn wrap_seconds(rate_bps: u64) -> f64 {
    (1u64 << 32) as f64 * 8.0 / rate_bps.max(1) as f64
}

/// Buffer that a congestion control needs, in BDP: 2 for BBR (`cwnd_gain`), 1 for
/// loss-based controls.
pub(crate) fn gain(congestion_control: Option<&str>) -> f64 {
    if congestion_control.is_some_and(|name| name.starts_with("bbr")) { 2.0 } else { 1.0 }
}

/// Number of flows that a goal needs because a window is limited to 1 GiB:
/// g*BDP / 0.9 GiB, rounded up.
pub(crate) fn flows_needed(goal: &PathGoal, gain: f64) -> u32 {
    let wanted = gain * bdp_bytes(goal.rate.0, goal.rtt.0) / (0.9 * (1u64 << 30) as f64);
    if gain * flow_bdp_bytes(goal) <= LARGEST_WINDOW_BYTES as f64 {
        return goal.flow_count;
    }
    (wanted.ceil() as u32).max(goal.flow_count)
}

/// Fraction of the receive buffer that becomes window: by `tcp_adv_win_scale`
/// before 6.6, the planning value since. The text names the source.
pub(crate) fn receive_share(kernel: Option<KernelVersion>, adv_win_scale: Option<i64>) -> (f64, String) {
    match (kernel, adv_win_scale) {
        (Some(kernel), Some(scale)) if kernel < SHARE_IS_MEASURED => {
            let share = match scale {
                1.. => 1.0 - 1.0 / 2f64.powi(scale.min(31) as i32),
                _ => 1.0 / 2f64.powi(scale.saturating_neg().min(31) as i32),
            };
            (share, format!("{share:.2} by tcp_adv_win_scale {scale}"))
        }
        _ => (RECEIVE_SHARE, format!("{RECEIVE_SHARE:.2} assumed")),
    }
}

/// Rounds up to whole MiB.
pub(crate) fn whole_mib(bytes: f64) -> i64 {
    const MIB: f64 = (1u64 << 20) as f64;
    ((bytes / MIB).ceil() * MIB).min(i64::MAX as f64) as i64
}

/// Formats computed bytes like [`human::bytes`].
pub(crate) fn bytes(count: f64) -> String {
    human::bytes(count as u64)
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{BitRate, TimeSpan};

    use super::*;

    fn goal(rate: &str, rtt: &str, flow_count: u32) -> PathGoal {
        PathGoal { rate: rate.parse::<BitRate>().unwrap(), rtt: rtt.parse::<TimeSpan>().unwrap(), flow_count }
    }

    /// The 40GE report: 19 Gb/s times 17 ms is 40.38 MB; RFC 7323 for the wrap.
    #[test]
    fn products_are_those_of_the_papers() {
        for (rate, rtt, expected) in [
            ("19Gb/s", "17ms", 40.375e6),
            ("25.3Gb/s", "17ms", 53.7625e6),
            ("40Gb/s", "17ms", 85e6),
            ("10Gb/s", "100ms", 125e6),
            ("100Gb/s", "100ms", 1.25e9),
            ("400Gb/s", "50ms", 2.5e9),
        ] {
            assert_eq!(flow_bdp_bytes(&goal(rate, rtt, 1)), expected, "{rate} {rtt}");
        }
        for (rate, expected) in
            [(10, 3.44), (25, 1.37), (40, 0.859), (100, 0.344), (200, 0.172), (400, 0.086)]
        {
            assert!((wrap_seconds(rate * 1_000_000_000) - expected).abs() < 0.005, "{rate}");
        }
    }

    #[test]
    fn one_window_bounds_one_flow() {
        assert_eq!(LARGEST_WINDOW_BYTES, 1_073_725_440);
        for (rtt_ms, gbps) in [(10, 859.0), (17, 505.3), (50, 171.8), (100, 85.9), (150, 57.3), (200, 42.9)] {
            let rate = window_rate_bps(LARGEST_WINDOW_BYTES as f64, rtt_ms * 1_000_000);
            assert!((rate / 1e9 - gbps).abs() < 0.06, "{rtt_ms}: {rate}");
        }
        assert_eq!(flows_needed(&goal("100Gb/s", "100ms", 1), 1.0), 2);
        assert_eq!(flows_needed(&goal("40Gb/s", "17ms", 1), 1.0), 1);
        assert_eq!(flows_needed(&goal("400Gb/s", "50ms", 1), 2.0), 6);
    }

    /// ip-sysctl.rst: bytes - bytes/2^s, or bytes/2^-s.
    #[test]
    fn the_share_is_that_of_the_kernel() {
        let old = Some(KernelVersion::new(3, 10, 0));
        for (scale, share) in [(1, 0.5), (2, 0.75), (-2, 0.25), (0, 1.0)] {
            assert_eq!(receive_share(old, Some(scale)).0, share, "{scale}");
        }
        assert_eq!(receive_share(Some(KernelVersion::new(6, 6, 0)), Some(2)).0, 0.5);
        assert_eq!(receive_share(None, Some(2)).0, 0.5);
    }

    #[test]
    fn proposals_are_whole_mebibytes() {
        assert_eq!(whole_mib(170e6), 163 << 20);
    }
}
