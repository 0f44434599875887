//! Limits of a stage from the literature and the kernel's source.

/// Largest window of one flow: 65535 shifted by 14 (RFC 7323, section 2.3).
pub(crate) const WINDOW_MAX_BYTES: f64 = 1_073_725_440.0;
/// Share of a send buffer that is payload, with segments of 64 KiB: 0.87 to
/// 0.92 was measured; the low end.
pub(crate) const SEND_SHARE_RATIO: f64 = 0.87;
/// Share of a receive buffer that is window when nothing better is known: the
/// start value of `scaling_ratio` (Linux 6.6, include/net/tcp.h, 128 of 256).
pub(crate) const RECEIVE_SHARE_RATIO: f64 = 0.5;
/// Constants of RFC 9438: C = 0.4, beta = 0.7.
const CUBIC: f64 = 1.054;
/// sqrt(3/2) (Mathis, Semke, Mahdavi, Ott 1997).
const MATHIS: f64 = 1.2247;

fn seconds(rtt_ns: u64) -> f64 {
    rtt_ns.max(1) as f64 / 1e9
}

/// Bytes in flight that fill a path: rate * RTT / 8.
pub(crate) fn bandwidth_delay_bytes(rate_bps: f64, rtt_ns: u64) -> f64 {
    rate_bps * seconds(rtt_ns) / 8.0
}

/// Rate that a window allows: window * 8 / RTT.
pub(crate) fn window_bps(window_bytes: f64, rtt_ns: u64) -> f64 {
    window_bytes * 8.0 / seconds(rtt_ns)
}

/// Rate that a loss ratio allows Reno: (MSS/T) * 1.22 / sqrt(p).
pub(crate) fn mathis_bps(mss_bytes: f64, rtt_ns: u64, loss_ratio: f64) -> f64 {
    mss_bytes * 8.0 / seconds(rtt_ns) * MATHIS / loss_ratio.sqrt()
}

/// Loss at which Reno still reaches a rate.
pub(crate) fn mathis_loss_ratio(mss_bytes: f64, rtt_ns: u64, rate_bps: f64) -> f64 {
    let segments = bandwidth_delay_bytes(rate_bps, rtt_ns) / mss_bytes.max(1.0);
    (MATHIS / segments.max(1e-9)).powi(2).min(1.0)
}

/// Rate that a loss ratio allows CUBIC: W = 1.054 T^0.75 / p^0.75
/// segments (RFC 9438, section 5.1, figure 6 at C = 0.4).
pub(crate) fn cubic_bps(mss_bytes: f64, rtt_ns: u64, loss_ratio: f64) -> f64 {
    let window = CUBIC * (seconds(rtt_ns) / loss_ratio).powf(0.75);
    window * mss_bytes * 8.0 / seconds(rtt_ns)
}

/// Loss at which CUBIC still reaches a rate.
pub(crate) fn cubic_loss_ratio(mss_bytes: f64, rtt_ns: u64, rate_bps: f64) -> f64 {
    let segments = bandwidth_delay_bytes(rate_bps, rtt_ns) / mss_bytes.max(1.0);
    (seconds(rtt_ns) * (CUBIC / segments.max(1e-9)).powf(4.0 / 3.0)).min(1.0)
}

/// Round trips of slow start until a window is reached: ceil(log2(W / 10)).
pub(crate) fn slow_start_round_trips(window_segments: f64) -> f64 {
    (window_segments / 10.0).max(1.0).log2().ceil()
}

/// Rounded up to whole mebibytes, as people write buffer sizes.
pub(crate) fn whole_mebibytes(bytes: f64) -> u64 {
    const MEBIBYTE: f64 = 1_048_576.0;
    let count = (bytes.max(0.0) / MEBIBYTE).ceil().clamp(1.0, 2047.0);
    count as u64 * 1_048_576
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, within: f64) {
        assert!((value / expected - 1.0).abs() <= within, "{value} instead of {expected}");
    }

    /// 19 Gb/s x 17 ms and others, by hand; one flow at 100 ms (RFC 7323).
    #[test]
    fn windows_and_products() {
        near(bandwidth_delay_bytes(19e9, 17_000_000), 40_375_000.0, 1e-9);
        near(bandwidth_delay_bytes(100e9, 100_000_000), 1.25e9, 1e-9);
        near(window_bps(WINDOW_MAX_BYTES, 100_000_000), 85.9e9, 1e-3);
        near(window_bps(SEND_SHARE_RATIO * 4_194_304.0, 17_000_000), 1.72e9, 5e-3);
    }

    /// RFC 9438, table 2: average window at RTT 0.1 s; Mathis for Reno. And
    /// the loss that 10 Gb/s at 100 ms tolerates (RFC 3649, section 1: 2e-10
    /// for segments of 1500 bytes).
    #[test]
    fn response_functions() {
        for (loss, cubic) in [(1e-2, 6.0), (1e-3, 33.0), (1e-4, 187.0), (1e-5, 1054.0), (1e-6, 5926.0)] {
            let segments = cubic_bps(1.0, 100_000_000, loss) * 0.1 / 8.0;
            near(segments, cubic, 0.03);
            near(cubic_loss_ratio(1500.0, 100_000_000, cubic_bps(1500.0, 100_000_000, loss)), loss, 1e-6);
        }
        near(mathis_bps(1.0, 1_000_000_000, 1e-4) / 8.0, 122.0, 0.01);
        near(mathis_loss_ratio(1500.0, 100_000_000, 10e9), 2e-10, 0.1);
    }

    #[test]
    fn ramps_and_sizes() {
        assert_eq!(slow_start_round_trips(4512.0), 9.0);
        assert_eq!(whole_mebibytes(1.0), 1 << 20);
        assert_eq!(whole_mebibytes(40_375_000.0), 39 << 20);
    }
}
