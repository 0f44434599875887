//! Server output for clients with `--get-server-output`: this server's own results, under its own name.

use crate::document::Iperf3Interval;
use clearstream_schema::human::{bytes, rate};

use crate::tally::Tally;

/// Maximum length of the output: a client reads it in one message.
const LIMIT_BYTES: usize = 256 << 10;

/// Lines of one test.
#[derive(Debug)]
pub(super) struct Transcript {
    text: String,
    dropped: u32,
}

impl Transcript {
    pub(super) fn new(peer: std::net::SocketAddr) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self { text: format!("ClearStream {version}, serving the iperf3 client {peer}\n"), dropped: 0 }
    }

    /// Appends an interval as one line.
    pub(super) fn interval(&mut self, interval: &Iperf3Interval) {
        if self.text.len() > LIMIT_BYTES {
            self.dropped += 1;
            return;
        }
        self.text.push_str(&line(interval));
        self.text.push('\n');
    }

    /// Returns the whole text, with the totals of this end.
    pub(super) fn end(mut self, tally: &Tally) -> String {
        if self.dropped > 0 {
            self.text.push_str(&format!("({} more intervals)\n", self.dropped));
        }
        let total: u64 = tally.streams.iter().map(|stream| stream.bytes).sum();
        self.text.push_str(&format!(
            "{:.2} s measured, {} moved by {} streams\n",
            tally.measured_ns as f64 / 1e9,
            bytes(total),
            tally.streams.len()
        ));
        self.text
    }
}

/// An interval of this end as text.
pub(super) fn line(interval: &Iperf3Interval) -> String {
    let mut line = format!(
        "{:>6.2} - {:>6.2} s",
        interval.local.start_ns as f64 / 1e9,
        interval.local.end_ns as f64 / 1e9
    );
    if let Some(bps) = interval.received_bps {
        line.push_str(&format!("  received {}", rate(bps)));
    }
    if let Some(bps) = interval.sent_bps {
        line.push_str(&format!("  sent {}", rate(bps)));
    }
    if let Some(count) = interval.retransmit_count {
        line.push_str(&format!("  {count} retransmits"));
    }
    if let Some(datagrams) = &interval.datagrams {
        line.push_str(&format!("  {}/{} datagrams lost", datagrams.lost_count, datagrams.expected_count));
    }
    if interval.warm_up {
        line.push_str("  (warm-up)");
    }
    line
}

#[cfg(test)]
mod tests {
    use clearstream_schema::flow::SideInterval;

    use super::*;

    #[test]
    fn the_output_is_bounded_and_names_its_server() {
        let interval = Iperf3Interval {
            index: 0,
            warm_up: true,
            sent_bps: None,
            received_bps: Some(1e9),
            retransmit_count: None,
            datagrams: None,
            local: SideInterval { end_ns: 1_000_000_000, ..SideInterval::default() },
        };
        let mut transcript = Transcript::new("192.0.2.1:40000".parse().unwrap());
        (0..20_000).for_each(|_| transcript.interval(&interval));
        let text = transcript.end(&Tally::default());
        assert!(text.starts_with("ClearStream ") && text.contains("192.0.2.1:40000"));
        assert!(text.contains("received 1.00 Gb/s  (warm-up)"));
        assert!(text.contains("more intervals") && text.len() < LIMIT_BYTES + 300);
    }
}
