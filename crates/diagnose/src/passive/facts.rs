//! Figures of one end of a connection: differences of counters, and medians and shares over time.

use clearstream_schema::{connections::TcpSocket, tcp_info::TcpInfo};

use super::{SocketSample, SocketSeries};

/// Round trips below this are the hosts' own work, as in the active diagnosis.
const LOCAL_RTT_NS: u64 = 1_000_000;

/// One end, with figures of its samples.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) series: &'a SocketSeries,
    first: &'a SocketSample,
    last: &'a SocketSample,
}

impl<'a> Facts<'a> {
    /// `None` without a sample.
    pub(super) fn of(series: &'a SocketSeries) -> Option<Self> {
        Some(Self { series, first: series.samples.first()?, last: series.samples.last()? })
    }

    pub(super) fn last(&self) -> &'a TcpSocket {
        &self.last.socket
    }

    pub(super) fn observed_ns(&self) -> u64 {
        self.last.at_ns.saturating_sub(self.first.at_ns)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.observed_ns() as f64 / 1e9
    }

    /// Difference of a counter; zero where the kernel lacks it.
    pub(super) fn delta(&self, counter: impl Fn(&TcpInfo) -> Option<u64>) -> u64 {
        let [first, last] = [self.first, self.last].map(|sample| counter(&sample.socket.tcp));
        last.unwrap_or(0).saturating_sub(first.unwrap_or(0))
    }

    /// A difference of bytes as a rate.
    pub(super) fn rate_bps(&self, counter: impl Fn(&TcpInfo) -> Option<u64>) -> f64 {
        match self.observed_ns() {
            0 => 0.0,
            _ => self.delta(counter) as f64 * 8.0 / self.seconds(),
        }
    }

    pub(super) fn out_bps(&self) -> f64 {
        self.rate_bps(|tcp| tcp.acked_bytes)
    }

    pub(super) fn in_bps(&self) -> f64 {
        self.rate_bps(|tcp| tcp.received_bytes)
    }

    /// Samples after the first, each with the time since the one before.
    fn weighted(&self) -> impl Iterator<Item = (f64, &'a TcpSocket)> + use<'a> {
        let pairs = self.series.samples.windows(2);
        pairs.map(|pair| (pair[1].at_ns.saturating_sub(pair[0].at_ns) as f64, &pair[1].socket))
    }

    /// Median over time.
    pub(super) fn median(&self, value: impl Fn(&TcpSocket) -> f64) -> f64 {
        let mut values: Vec<(f64, f64)> =
            self.weighted().map(|(weight, socket)| (value(socket), weight)).collect();
        values.sort_by(|one, two| one.0.total_cmp(&two.0));
        let half = values.iter().map(|(_, weight)| weight).sum::<f64>() / 2.0;
        let mut before = 0.0;
        for (value, weight) in &values {
            before += weight;
            if before >= half {
                return *value;
            }
        }
        value(self.last())
    }

    /// Fraction of the time for which a condition held, 0 to 1.
    pub(super) fn share(&self, holds: impl Fn(&TcpSocket) -> bool) -> f64 {
        let (mut whole, mut part) = (0.0, 0.0);
        for (weight, socket) in self.weighted() {
            whole += weight;
            part += if holds(socket) { weight } else { 0.0 };
        }
        if whole > 0.0 { part / whole } else { 0.0 }
    }

    pub(super) fn rtt_ns(&self) -> u64 {
        self.median(|socket| socket.tcp.rtt_ns as f64) as u64
    }

    /// Lowest round-trip time that the kernel knows.
    pub(super) fn min_rtt_ns(&self) -> Option<u64> {
        self.series.samples.iter().filter_map(|sample| sample.socket.tcp.min_rtt_ns).min()
    }

    pub(super) fn is_local(&self) -> bool {
        self.min_rtt_ns().unwrap_or(self.rtt_ns()) < LOCAL_RTT_NS
    }

    /// Fraction of the time with data outstanding; `None` on kernels before 4.10.
    pub(super) fn busy(&self) -> Option<f64> {
        self.last.socket.tcp.busy_ns?;
        let ns = self.observed_ns();
        (ns > 0).then(|| (self.delta(|tcp| tcp.busy_ns) as f64 / ns as f64).min(1.0))
    }

    fn of_busy(&self, clock: impl Fn(&TcpInfo) -> Option<u64>) -> Option<f64> {
        clock(&self.last.socket.tcp)?;
        let busy = self.delta(|tcp| tcp.busy_ns);
        (busy > 0).then(|| (self.delta(clock) as f64 / busy as f64).min(1.0))
    }

    /// Fraction of the busy time limited by the receiver's window.
    pub(super) fn window_limited(&self) -> Option<f64> {
        self.of_busy(|tcp| tcp.receive_window_limited_ns)
    }

    /// Fraction of the busy time limited by the send buffer.
    pub(super) fn buffer_limited(&self) -> Option<f64> {
        self.of_busy(|tcp| tcp.send_buffer_limited_ns)
    }

    /// Bytes retransmitted / bytes sent.
    pub(super) fn loss_ratio(&self) -> f64 {
        match self.delta(|tcp| tcp.sent_bytes) {
            0 => 0.0,
            sent => self.delta(|tcp| tcp.retransmitted_bytes) as f64 / sent as f64,
        }
    }

    pub(super) fn retransmits(&self) -> u64 {
        self.delta(|tcp| Some(u64::from(tcp.total_retransmit_count)))
    }

    /// Segments in flight / congestion window, median.
    pub(super) fn window_fill(&self) -> f64 {
        self.median(|socket| {
            f64::from(socket.tcp.unacked_count) / f64::from(socket.tcp.congestion_window_count.max(1))
        })
    }

    /// Bytes that the congestion window allows, median.
    pub(super) fn congestion_window_bytes(&self) -> f64 {
        self.median(|socket| {
            f64::from(socket.tcp.congestion_window_count) * f64::from(socket.tcp.send_mss_bytes)
        })
    }

    /// Bytes written that wait to be sent for the first time, median.
    pub(super) fn not_sent_bytes(&self) -> f64 {
        self.median(|socket| f64::from(socket.tcp.not_sent_bytes.unwrap_or(0)))
    }

    /// Fraction of the time in which at least half of the receive window's room held unread data.
    pub(super) fn unread_share(&self) -> f64 {
        self.share(|socket| {
            let unread = f64::from(socket.receive_queue_bytes);
            let room = match socket.tcp.receive_window_bytes {
                Some(window) => unread >= f64::from(window),
                None => {
                    2.0 * f64::from(socket.memory.receive_used_bytes)
                        >= f64::from(socket.memory.receive_limit_bytes)
                }
            };
            unread > 0.0 && room
        })
    }

    /// Fraction of the time in which a segment or more waited to be read.
    pub(super) fn waiting_share(&self) -> f64 {
        self.share(|socket| socket.receive_queue_bytes >= socket.tcp.receive_mss_bytes.max(1))
    }

    /// Nothing is queued, sent or received.
    pub(super) fn is_idle(&self) -> bool {
        let moved = self.delta(|tcp| tcp.acked_bytes) + self.delta(|tcp| tcp.received_bytes);
        let queued = self
            .series
            .samples
            .iter()
            .any(|sample| sample.socket.send_queue_bytes > 0 || sample.socket.receive_queue_bytes > 0);
        moved == 0 && !queued
    }

    /// Data was queued all the time, and none of it was acknowledged in the last third of the observation.
    pub(super) fn is_stalled(&self) -> bool {
        let from = self.last.at_ns.saturating_sub(self.observed_ns() / 3);
        let mut late = self.series.samples.iter().filter(|sample| sample.at_ns >= from).chain([self.last]);
        let end = self.last.socket.tcp.acked_bytes;
        self.observed_ns() > 0
            && late.all(|sample| sample.socket.send_queue_bytes > 0 && sample.socket.tcp.acked_bytes == end)
    }
}
