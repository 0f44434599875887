//! Messages by size in the formats of other programs, for scripts that read those.
//!
//! - NetPIPE 3.7 (`netpipe.c`): `np.out` has bytes, Mb/s and seconds; its Mb are
//!   2^20 bits, and time and bytes of both directions are those of one exchange.
//! - OSU micro-benchmarks 5.9 (`osu_util.c`): size in 10 columns, value in 18 with
//!   two decimals; microseconds, or MB/s of 10^6 bytes.

use std::fmt::Write as _;

use crate::message::{MessageKind, MessagePoint, MessageSummary};

const NETPIPE: &str = "netpipe";
const NETPIPE_SCREEN: &str = "netpipe-screen";
const OSU: &str = "osu";

/// The formats, with what each is.
pub(super) const FORMATS: [(&str, &str); 3] = [
    (NETPIPE, "np.out of NetPIPE 3: bytes, Mb/s (2^20 bits), seconds"),
    (NETPIPE_SCREEN, "The lines that NetPIPE 3 prints while it measures"),
    (OSU, "OSU micro-benchmarks: `osu_latency`, `osu_bw` or `osu_bibw`; without perturbed sizes"),
];

/// Formats a measurement.
pub(super) fn text(summary: &MessageSummary, format: &str) -> String {
    let kind = summary.requested.kind;
    let points = || summary.points.iter();
    let lines: Vec<String> = match format {
        NETPIPE => points().map(|point| netpipe(kind, point)).collect(),
        NETPIPE_SCREEN => {
            points().enumerate().map(|(index, point)| netpipe_screen(kind, index, point)).collect()
        }
        _ => return osu(summary),
    };
    lines.join("\n")
}

/// Bits and seconds of one exchange, as `bwdata` of NetPIPE has them.
fn exchange(kind: MessageKind, point: &MessagePoint) -> (f64, f64) {
    let elapsed = point.elapsed_ns as f64 / 1e9;
    let bits = point.size_bytes as f64 * 8.0;
    let messages = point.server_received_count.max(1) as f64;
    match kind {
        MessageKind::PingPong => (bits, elapsed / (2.0 * messages)),
        MessageKind::Stream => (bits, elapsed / messages),
        MessageKind::Bidirectional => (2.0 * bits, elapsed / messages),
    }
}

const MEGABIT: f64 = 1_048_576.0;

fn netpipe(kind: MessageKind, point: &MessagePoint) -> String {
    let (bits, seconds) = exchange(kind, point);
    format!("{:8.0} {:.6} {seconds:12.8}", bits / 8.0, bits / (seconds * MEGABIT))
}

fn netpipe_screen(kind: MessageKind, index: usize, point: &MessagePoint) -> String {
    let (bits, seconds) = exchange(kind, point);
    format!(
        "{index:3}: {:7} bytes {:6} times -->  {:8.2} Mbps in {:10.2} usec",
        point.size_bytes,
        point.iteration_count,
        bits / (seconds * MEGABIT),
        seconds * 1e6
    )
}

fn osu(summary: &MessageSummary) -> String {
    let (test, column) = match summary.requested.kind {
        MessageKind::PingPong => ("Latency", "Latency (us)"),
        MessageKind::Stream => ("Bandwidth", "Bandwidth (MB/s)"),
        MessageKind::Bidirectional => ("Bi-Directional Bandwidth", "Bandwidth (MB/s)"),
    };
    // Not a version of the suite: the program is another one.
    let version = env!("CARGO_PKG_VERSION");
    let mut text = format!("# OSU MPI {test} Test by clearstream {version}\n{:<10}{column:>18}", "# Size");
    for point in summary.points.iter().filter(|point| !point.is_perturbed) {
        let value = match (point.latency, point.bandwidth_bps) {
            (Some(latency), _) => latency.mean_ns as f64 / 1e3,
            (None, bandwidth) => bandwidth.unwrap_or(0.0) / 8e6,
        };
        // A string takes any text.
        let _ = write!(text, "\n{:<10}{value:18.2}", point.size_bytes);
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::message::{MessageConfig, MessageLatency, MessageSideSettings};

    use super::*;

    fn summary(kind: MessageKind) -> MessageSummary {
        let latency = MessageLatency { min_ns: 1, mean_ns: 2500, p50_ns: 2, p99_ns: 3, max_ns: 4 };
        let is_ping_pong = kind == MessageKind::PingPong;
        let point = |size_bytes, is_perturbed| MessagePoint {
            size_bytes,
            is_perturbed,
            iteration_count: 100,
            server_received_count: if is_ping_pong { 100 } else { 6400 },
            client_received_count: 0,
            elapsed_ns: 500_000,
            latency: is_ping_pong.then_some(latency),
            throughput_bps: None,
            bandwidth_bps: (!is_ping_pong).then_some(8.13e6 * 8.0),
            message_rate_per_second: None,
            client_cpu_ratio: 0.0,
            server_cpu_ratio: 0.0,
            interfaces: None,
        };
        MessageSummary {
            requested: MessageConfig { kind, ..MessageConfig::default() },
            complete: true,
            client: MessageSideSettings::default(),
            server: MessageSideSettings::default(),
            mpi: None,
            points: vec![point(1, false), point(4, true)],
            notices: Vec::new(),
        }
    }

    #[test]
    fn lines_of_netpipe_are_those_of_its_format_strings() {
        let ping_pong = summary(MessageKind::PingPong);
        // printf "%8d %lf %12.8lf" and "%3d: %7d bytes %6d times -->  %8.2lf Mbps in %10.2lf usec".
        assert_eq!(
            text(&ping_pong, NETPIPE),
            "       1 3.051758   0.00000250\n       4 12.207031   0.00000250"
        );
        assert_eq!(
            text(&ping_pong, NETPIPE_SCREEN).lines().next().unwrap_or_default(),
            "  0:       1 bytes    100 times -->      3.05 Mbps in       2.50 usec"
        );
        // Both directions count.
        let both = text(&summary(MessageKind::Bidirectional), NETPIPE);
        assert!(both.starts_with("       2 "), "{both}");
    }

    /// A line of a published run of osu_bibw 5.9.
    #[test]
    fn columns_of_osu_are_those_of_a_published_run() {
        let both = text(&summary(MessageKind::Bidirectional), OSU);
        let mut lines = both.lines();
        assert!(
            lines.next().unwrap_or_default().starts_with("# OSU MPI Bi-Directional Bandwidth Test"),
            "{both}"
        );
        assert_eq!(lines.next(), Some("# Size      Bandwidth (MB/s)"));
        assert_eq!(lines.next(), Some("1                       8.13"));
        assert_eq!(lines.next(), None, "no perturbed size");
        let latency = text(&summary(MessageKind::PingPong), OSU);
        assert!(latency.ends_with("# Size          Latency (us)\n1                       2.50"), "{latency}");
    }
}
