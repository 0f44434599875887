//! Figures of one flow out of its intervals: medians of states, sums of
//! differences of counters. A state is a snapshot of a socket, and
//! one outlier must not decide.

use clearstream_schema::flow::{FlowInterval, ThreadTime};

/// Pairs below which a correlation is chance: with 12 of them 0.5 is exceeded
/// by chance in one of twenty (one-sided, tables of Spearman's coefficient).
const PAIRS_LEAST: usize = 12;

/// Middle of the values; `None` of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    clearstream_stats::median(&finite(values))
}

/// The value that so many per cent do not exceed; `None` of none.
pub(crate) fn percentile(values: impl IntoIterator<Item = f64>, percent: usize) -> Option<f64> {
    let mut values = finite(values);
    values.sort_unstable_by(f64::total_cmp);
    clearstream_stats::nearest_rank(&values, percent)
}

fn finite(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    values.into_iter().filter(|value| value.is_finite()).collect()
}

/// Rank correlation of pairs, -1 to 1 (Spearman 1904, equal values by their
/// mean rank); `None` of fewer than [`PAIRS_LEAST`] pairs or of one value only.
pub(crate) fn rank_correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < PAIRS_LEAST {
        return None;
    }
    let ranks = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        let values: Vec<f64> = pairs.iter().map(of).collect();
        let rank = |value: &f64| {
            let below = values.iter().filter(|other| *other < value).count();
            let same = values.iter().filter(|other| *other == value).count();
            below as f64 + (same as f64 - 1.0) / 2.0
        };
        values.iter().map(rank).collect()
    };
    let (one, other) = (ranks(|pair| pair.0), ranks(|pair| pair.1));
    let middle = (pairs.len() - 1) as f64 / 2.0;
    let product = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| (one - middle) * (other - middle)).sum()
    };
    let scale = (product(&one, &one) * product(&other, &other)).sqrt();
    (scale > 0.0).then(|| product(&one, &other) / scale)
}
/// Share of the time from which a thread's wait for a core is more than the wake-ups of
/// a shared machine.
const KEPT_WAITING: f64 = 0.2;

/// Share of a thread's time, each 0 to 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ThreadShares {
    /// On a core.
    pub(crate) run: f64,
    /// Waiting for a core.
    pub(crate) wait: f64,
    /// Of the time on a core, in user mode.
    pub(crate) user: f64,
}

impl ThreadShares {
    /// It had work to do: its core is the limit where this is near 1.
    pub(crate) fn runnable(self) -> f64 {
        (self.run + self.wait).min(1.0)
    }

    /// Its core is shared: it waited for the core so often that the measured rate is not
    /// what a core carries.
    pub(crate) fn is_kept_waiting(self) -> bool {
        self.wait > KEPT_WAITING && self.run > 0.0
    }

    /// Rate on a dedicated core: rate / fraction of the time on a core; `None`
    /// where the thread did not wait for one.
    pub(crate) fn alone_bps(self, rate_bps: f64) -> Option<f64> {
        let alone = rate_bps / self.run;
        (self.is_kept_waiting() && alone.is_finite() && alone > 0.0).then_some(alone)
    }

    /// Over all samples together: scheduling comes in lumps.
    pub(crate) fn of(times: impl IntoIterator<Item = (Option<ThreadTime>, u64)>) -> Option<Self> {
        let (mut run, mut wait, mut user, mut all) = (0.0, 0.0, 0.0, 0.0);
        for (time, elapsed_ns) in times {
            let Some(time) = time else { continue };
            run += time.run_ns as f64;
            wait += time.wait_ns as f64;
            user += time.user_ns as f64;
            all += elapsed_ns as f64;
        }
        let share = |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
        (all > 0.0).then(|| Self { run: share(run, all), wait: share(wait, all), user: share(user, run) })
    }
}

/// The sending socket over one interval, as ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SenderSample {
    pub(crate) window_limited: f64,
    pub(crate) buffer_limited: f64,
    pub(crate) busy: f64,
    /// Segments in flight / congestion window.
    pub(crate) window_fill: f64,
    /// Write queue / send buffer.
    pub(crate) buffer_fill: Option<f64>,
    pub(crate) buffer_bytes: Option<f64>,
    pub(crate) not_sent: f64,
    pub(crate) in_flight: f64,
    pub(crate) rtt_ns: f64,
    pub(crate) peer_window: Option<f64>,
    pub(crate) congestion_window: f64,
    pub(crate) slow_start: bool,
}

impl SenderSample {
    /// Out of two readings of the same socket.
    pub(crate) fn of(before: &FlowInterval, now: &FlowInterval, elapsed_ns: u64) -> Option<Self> {
        let (earlier, tcp) = (before.tcp.as_ref()?, now.tcp.as_ref()?);
        let elapsed = elapsed_ns.max(1) as f64;
        let share = |now: Option<u64>, before: Option<u64>| match (now, before) {
            // The kernel counts in ticks: a little more than the time is possible.
            (Some(now), Some(before)) => (now.saturating_sub(before) as f64 / elapsed).min(1.0),
            _ => 0.0,
        };
        let memory = now.memory.as_ref();
        let buffer = memory.map(|memory| f64::from(memory.send_limit_bytes)).filter(|limit| *limit > 0.0);
        Some(Self {
            window_limited: share(tcp.receive_window_limited_ns, earlier.receive_window_limited_ns),
            buffer_limited: share(tcp.send_buffer_limited_ns, earlier.send_buffer_limited_ns),
            busy: share(tcp.busy_ns, earlier.busy_ns),
            window_fill: f64::from(tcp.unacked_count) / f64::from(tcp.congestion_window_count.max(1)),
            buffer_fill: memory
                .zip(buffer)
                .map(|(memory, limit)| f64::from(memory.send_queued_bytes) / limit),
            buffer_bytes: buffer,
            not_sent: tcp.not_sent_bytes.map_or(0.0, f64::from),
            in_flight: f64::from(tcp.unacked_count) * f64::from(tcp.send_mss_bytes),
            rtt_ns: tcp.rtt_ns as f64,
            peer_window: tcp.send_window_bytes.map(f64::from),
            congestion_window: f64::from(tcp.congestion_window_count),
            // include/net/tcp.h: TCP_INFINITE_SSTHRESH.
            slow_start: tcp.send_ssthresh_count >= 0x7fff_ffff,
        })
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{flow::SocketMemory, tcp_info::TcpInfo};

    use super::*;

    #[test]
    fn the_middle_is_not_moved_by_one_odd_value() {
        assert_eq!(median([1.0, 1.1, 900.0]), Some(1.1));
        assert_eq!(median([2.0, 1.0, f64::NAN]), Some(1.5));
        assert_eq!(median([]), None);
        // Nearest rank: the 9th of 10 values.
        assert_eq!(percentile((1..=10).rev().map(f64::from), 90), Some(9.0));
        assert_eq!((percentile([7.0], 10), percentile([], 90)), (Some(7.0), None));
    }

    #[test]
    fn what_rises_together_is_correlated() {
        let pairs: Vec<(f64, f64)> = (0..20).map(|at| (f64::from(at), f64::from(at * at))).collect();
        assert!((rank_correlation(&pairs).unwrap() - 1.0).abs() < 1e-9);
        let falls: Vec<(f64, f64)> = pairs.iter().map(|(one, other)| (*one, -other)).collect();
        assert!((rank_correlation(&falls).unwrap() + 1.0).abs() < 1e-9);
        assert_eq!(rank_correlation(&pairs[..5]), None);
        let constant: Vec<(f64, f64)> = pairs.iter().map(|(one, _)| (*one, 3.0)).collect();
        assert_eq!(rank_correlation(&constant), None);
    }

    #[test]
    fn clocks_become_shares_and_states_become_fills() {
        let interval = |busy_ns, limited_ns| FlowInterval {
            tcp: Some(TcpInfo {
                unacked_count: 166,
                congestion_window_count: 332,
                send_mss_bytes: 1448,
                busy_ns: Some(busy_ns),
                receive_window_limited_ns: Some(limited_ns),
                ..TcpInfo::default()
            }),
            memory: Some(SocketMemory {
                send_queued_bytes: 86,
                send_limit_bytes: 100,
                ..SocketMemory::default()
            }),
            ..FlowInterval::default()
        };
        let sample = SenderSample::of(&interval(0, 0), &interval(104_000_000, 96_000_000), 100_000_000);
        let sample = sample.unwrap();
        assert_eq!((sample.busy, sample.window_limited), (1.0, 0.96));
        assert_eq!((sample.window_fill, sample.buffer_fill), (0.5, Some(0.86)));
        // A counter that was reset counts zero instead of wrapping around.
        let reset = SenderSample::of(&interval(9, 9), &interval(1, 1), 100).unwrap();
        assert_eq!((reset.busy, reset.window_limited), (0.0, 0.0));
    }

    #[test]
    fn threads_that_wait_for_a_core_have_work() {
        let time = ThreadTime { run_ns: 60, wait_ns: 38, user_ns: 3 };
        let shares = ThreadShares::of([(Some(time), 100), (None, 100)]).unwrap();
        assert!((shares.runnable() - 0.98).abs() < 1e-9 && (shares.user - 0.05).abs() < 1e-9);
        assert_eq!(ThreadShares::of([(None, 100)]), None);
    }
}
