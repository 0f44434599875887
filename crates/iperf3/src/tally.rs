//! Results of this end: the engine's intervals without the warm-up, and for datagrams the counts of their
//! threads.

use std::sync::Arc;

use crate::document::{Iperf3Datagrams, Iperf3Interval};
use clearstream_flow::engine::Role;
use clearstream_schema::flow::SideInterval;
use clearstream_stats::nearest_rank;

use crate::udp::{Count, Counts};

/// One stream at this end.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) role: Role,
    /// Counts of datagrams.
    pub(crate) counts: Option<Arc<Counts>>,
    /// Bytes moved, without the warm-up.
    pub(crate) bytes: u64,
    /// Retransmitted segments at the end of the warm-up and now.
    retransmits: (u64, Option<u64>),
    /// Counts at the end of the warm-up, of the last interval and now.
    warm_up: Count,
    last: Count,
}

/// Results of this end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) streams: Vec<Stream>,
    pub(crate) measured_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) user_ns: u64,
    rtts_ns: Vec<u64>,
    min_rtt_ns: Option<u64>,
}

fn rate_bps(bytes: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { bytes as f64 * 8e9 / nanos as f64 }
}

/// Datagram counts of several streams.
pub(crate) fn datagrams(
    expected_count: u64,
    lost_count: u64,
    reordered_count: Option<u64>,
    jitters_ns: impl IntoIterator<Item = u64>,
) -> Iperf3Datagrams {
    let jitters: Vec<u64> = jitters_ns.into_iter().collect();
    Iperf3Datagrams {
        expected_count,
        lost_count,
        loss_ratio: (expected_count > 0).then(|| (lost_count as f64 / expected_count as f64).min(1.0)),
        reordered_count,
        jitter_ns: jitters.iter().sum::<u64>().checked_div(jitters.len() as u64).unwrap_or(0),
    }
}

impl Stream {
    pub(crate) fn new(role: Role, counts: Option<Arc<Counts>>) -> Self {
        Self {
            role,
            counts,
            bytes: 0,
            retransmits: (0, None),
            warm_up: Count::default(),
            last: Count::default(),
        }
    }

    /// Segments retransmitted after the warm-up; absent where unknown to this end.
    pub(crate) fn retransmit_count(&self) -> Option<u64> {
        let (before, now) = self.retransmits;
        now.filter(|_| self.role == Role::Send).map(|now| now.saturating_sub(before))
    }

    /// Counts of the warm-up, and of the whole test.
    pub(crate) fn counted(&self) -> (Count, Count) {
        (self.warm_up, self.last)
    }
}

impl Tally {
    /// Adds an interval of the engine and describes it.
    pub(crate) fn add(&mut self, mut local: SideInterval, warm_up: bool) -> Iperf3Interval {
        let nanos = local.end_ns.saturating_sub(local.start_ns);
        let (mut sent, mut received, mut retransmitted) = (None, None, None);
        let mut seen: Option<(u64, u64, u64, Vec<u64>)> = None;
        for (stream, flow) in self.streams.iter_mut().zip(&mut local.flows) {
            let bytes = flow.sent_bytes + flow.received_bytes;
            let total = if stream.role == Role::Send { &mut sent } else { &mut received };
            *total.get_or_insert(0) += bytes;
            if !warm_up {
                stream.bytes += bytes;
            }
            if let Some(info) = flow.tcp.as_ref().filter(|_| stream.role == Role::Send) {
                let now = u64::from(info.total_retransmit_count);
                let before = stream.retransmits.1.unwrap_or(0);
                *retransmitted.get_or_insert(0) += now.saturating_sub(before);
                stream.retransmits.1 = Some(now);
                if warm_up {
                    stream.retransmits.0 = now;
                } else {
                    self.rtts_ns.extend((info.rtt_ns > 0).then_some(info.rtt_ns));
                    self.min_rtt_ns = [self.min_rtt_ns, info.min_rtt_ns].into_iter().flatten().min();
                }
            }
            if let Some(counts) = &stream.counts {
                let now = counts.read();
                if stream.role == Role::Receive {
                    now.describe(&stream.last, flow);
                    let sum = seen.get_or_insert_default();
                    sum.0 += now.datagrams.saturating_sub(stream.last.datagrams);
                    sum.1 += now.lost.saturating_sub(stream.last.lost);
                    sum.2 += now.late.saturating_sub(stream.last.late);
                    sum.3.push(now.jitter_ns);
                }
                stream.last = now;
                if warm_up {
                    stream.warm_up = now;
                    counts.restart_jitter();
                }
            }
        }
        if !warm_up {
            self.measured_ns += nanos;
            self.cpu_ns += local.thread_cpu_ns;
            let times = local.flows.iter().flat_map(|flow| [flow.sender_time, flow.receiver_time]);
            self.user_ns += times.flatten().map(|time| time.user_ns).sum::<u64>();
        }
        Iperf3Interval {
            index: local.index,
            warm_up,
            sent_bps: sent.map(|bytes| rate_bps(bytes, nanos)),
            received_bps: received.map(|bytes| rate_bps(bytes, nanos)),
            retransmit_count: retransmitted,
            datagrams: seen
                .map(|(expected, lost, late, jitters)| datagrams(expected, lost, Some(late), jitters)),
            local,
        }
    }

    /// Median smoothed round-trip time of this end's senders.
    pub(crate) fn rtt_ns(&self) -> Option<u64> {
        let mut all = self.rtts_ns.clone();
        all.sort_unstable();
        nearest_rank(&all, 50)
    }

    /// Minimum round-trip time of this end's senders.
    pub(crate) fn min_rtt_ns(&self) -> Option<u64> {
        self.min_rtt_ns
    }

    /// CPU time of the data threads in percent of elapsed time: all, user, system. The user time has a
    /// resolution of 10 ms, so that it may exceed the total.
    pub(crate) fn cpu_percent(&self) -> [f64; 3] {
        let percent = |nanos: u64| nanos as f64 * 100.0 / self.measured_ns.max(1) as f64;
        let user = self.user_ns.min(self.cpu_ns);
        [percent(self.cpu_ns), percent(user), percent(self.cpu_ns - user)]
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{flow::FlowInterval, tcp_info::TcpInfo};

    use super::*;

    fn interval(index: u32, bytes: u64, retransmits: u32) -> SideInterval {
        let tcp = TcpInfo { total_retransmit_count: retransmits, rtt_ns: 1000, ..TcpInfo::default() };
        SideInterval {
            index,
            start_ns: u64::from(index) * 1_000_000_000,
            end_ns: u64::from(index + 1) * 1_000_000_000,
            flows: vec![FlowInterval { sent_bytes: bytes, tcp: Some(tcp), ..FlowInterval::default() }],
            thread_cpu_ns: 250_000_000,
            ..SideInterval::default()
        }
    }

    #[test]
    fn the_warm_up_counts_in_no_total_and_retransmits_are_per_interval() {
        let mut tally = Tally { streams: vec![Stream::new(Role::Send, None)], ..Tally::default() };
        let first = tally.add(interval(0, 1000, 5), true);
        let second = tally.add(interval(1, 2000, 7), false);
        let third = tally.add(interval(2, 3000, 7), false);
        let retransmits = [&first, &second, &third].map(|interval| interval.retransmit_count);
        assert_eq!(retransmits, [Some(5), Some(2), Some(0)]);
        assert_eq!((second.sent_bps, second.received_bps), (Some(16_000.0), None));
        assert_eq!((tally.streams[0].bytes, tally.streams[0].retransmit_count()), (5000, Some(2)));
        assert_eq!(tally.measured_ns, 2_000_000_000);
        assert_eq!(tally.cpu_percent(), [25.0, 0.0, 25.0]);
        assert_eq!(tally.rtt_ns(), Some(1000));
    }

    #[test]
    fn loss_is_relative_to_the_expected_datagrams() {
        let counted = datagrams(200, 10, None, [3, 5]);
        assert_eq!((counted.loss_ratio, counted.jitter_ns), (Some(0.05), 4));
        assert_eq!(datagrams(0, 0, None, []).loss_ratio, None);
    }
}
