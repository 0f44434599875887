//! Recovery time of a flow's window after one loss, by congestion control:
//! models from the constants of the kernel and the published algorithms (RFC
//! 9438; Leith and Shorten, H-TCP, 2004; tcp_htcp.c).

use clearstream_schema::tune::PathGoal;

use crate::path;

/// Minimum RTT at which H-TCP adapts its back-off (tcp_htcp.c: 10 ms).
pub(super) const ADAPTIVE_FROM_NS: u64 = 10_000_000;

/// Payload of a segment at an MTU of 9000 with timestamps.
const SEGMENT_BYTES: f64 = 8948.0;

pub(super) struct Recovery {
    window_segments: f64,
    rtt_seconds: f64,
}

impl Recovery {
    pub(super) fn of(goal: &PathGoal) -> Self {
        Self { window_segments: path::flow_bdp_bytes(goal) / SEGMENT_BYTES, rtt_seconds: goal.rtt.seconds() }
    }

    /// Reno grows by one segment in each round trip from half the window.
    fn reno_seconds(&self) -> f64 {
        self.window_segments / 2.0 * self.rtt_seconds
    }

    /// RFC 9438, 4.2: K = cbrt(W * (1 - beta) / C), beta 0.7, C 0.4.
    fn cubic_seconds(&self) -> f64 {
        (0.75 * self.window_segments).cbrt()
    }

    /// Alpha is 2(1-beta)*f(D)/scale segments per round trip, so the lost fraction
    /// (1-beta)*W is recovered when the integral of f over time reaches
    /// W*T*scale/2; f is 1 in the first second, then 1 + 10d + (d/2)^2. Beta cancels.
    fn htcp_seconds(&self) -> f64 {
        let scale = (0.1 / self.rtt_seconds.max(1e-9)).clamp(0.5, 10.0);
        let area = self.window_segments * self.rtt_seconds * scale / 2.0;
        if area <= 1.0 {
            return area;
        }
        let grown = |d: f64| 1.0 + d + 5.0 * d * d + d * d * d / 12.0;
        let (mut low, mut high) = (0.0, 1.0);
        while grown(high) < area && high < 1e6 {
            high *= 2.0;
        }
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if grown(middle) < area { low = middle } else { high = middle }
        }
        1.0 + high
    }

    pub(super) fn why_htcp(&self, current: &str) -> String {
        let now = if current == "reno" { self.reno_seconds() } else { self.cubic_seconds() };
        format!(
            "after one loss {current} takes {now:.1} s back to {:.0} segments of 8948 bytes, H-TCP {:.1} s: for paths of one's own, not for shared ones",
            self.window_segments,
            self.htcp_seconds()
        )
    }

    pub(super) fn why_cubic(&self) -> String {
        format!(
            "after one loss reno takes {:.1} s back to {:.0} segments of 8948 bytes, cubic {:.1} s",
            self.reno_seconds(),
            self.window_segments,
            self.cubic_seconds()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Models computed by hand from the constants of tcp_htcp.c and RFC 9438.
    #[test]
    fn recovery_is_as_modelled() {
        for (gbps, rtt_ms, reno, cubic, htcp) in [
            (19, 17, 38.0, 15.0, 7.3),
            (40, 17, 81.0, 19.2, 10.0),
            (100, 17, 202.0, 26.1, 14.8),
            (100, 100, 6985.0, 47.1, 31.4),
            (400, 50, 6985.0, 59.4, 41.7),
        ] {
            let goal = PathGoal {
                rate: clearstream_schema::BitRate(gbps * 1_000_000_000),
                rtt: clearstream_schema::TimeSpan::from_millis(rtt_ms),
                flow_count: 1,
            };
            let model = Recovery::of(&goal);
            assert!((model.reno_seconds() - reno).abs() <= 0.51, "{gbps} {}", model.reno_seconds());
            assert!((model.cubic_seconds() - cubic).abs() < 0.06, "{gbps} {}", model.cubic_seconds());
            assert!((model.htcp_seconds() - htcp).abs() < 0.06, "{gbps} {}", model.htcp_seconds());
        }
    }
}
