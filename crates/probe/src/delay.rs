//! Distribution of round trips. Exact: the samples are few enough to be sorted.

use clearstream_schema::probe::{ClockSource, DelayRange, DelayStats};
use clearstream_stats::nearest_rank;

/// Timestamps of one probe at the end of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// Time from sending to the reply by clock readings around the system calls; absent when no reply arrived
    /// in time.
    pub application_ns: Option<u64>,
    /// The same by the kernel's timestamps: of the driver for the probe, of the stack for the reply.
    pub kernel_ns: Option<u64>,
    /// The same from before the queueing discipline of the sending host.
    pub scheduled_ns: Option<u64>,
    /// Time between that queueing discipline and the driver.
    pub queueing_ns: Option<u64>,
    /// Turnaround time of the responder.
    pub turnaround_ns: u64,
    /// Passed to the queueing discipline, but not to the driver until the end of the series.
    pub is_stuck: bool,
}

impl RoundTrip {
    /// A time less the responder's turnaround. `None` when nothing is left: then one of the two is wrong,
    /// since no path is without delay.
    fn less_turnaround(&self, whole: Option<u64>) -> Option<u64> {
        whole?.checked_sub(self.turnaround_ns).filter(|&left| left > 0)
    }

    /// The delay by the kernel's timestamps.
    fn kernel_delay(&self) -> Option<u64> {
        self.less_turnaround(self.kernel_ns)
    }

    /// The delay by the program's clock. A turnaround longer than the round trip is invalid, and nothing is
    /// subtracted.
    fn application_delay(&self) -> Option<u64> {
        self.less_turnaround(self.application_ns).or(self.application_ns)
    }
}

/// Distribution of the round trips in the order in which they were sent. `None` when none was answered.
///
/// Kernel timestamps are used when every answered probe has valid ones, otherwise none is: a distribution
/// never mixes clocks.
pub(crate) fn distribution(trips: &[RoundTrip]) -> Option<DelayStats> {
    let received: Vec<&RoundTrip> = trips.iter().filter(|trip| trip.application_ns.is_some()).collect();
    let kernel = received.iter().all(|trip| trip.kernel_delay().is_some());
    let delays: Vec<u64> = received
        .iter()
        .filter_map(|trip| if kernel { trip.kernel_delay() } else { trip.application_delay() })
        .collect();
    let range = range(&delays)?;
    let sent = trips.len() as u64;
    let count = delays.len() as u64;
    let (local_queueing, with_local_queueing) = if kernel { local_queueing(&received) } else { (None, None) };
    let clock = if kernel { ClockSource::Kernel } else { ClockSource::Application };
    Some(DelayStats {
        jitter_ns: jitter(&delays),
        turnaround_mean_ns: Some(mean(&received.iter().map(|trip| trip.turnaround_ns).collect::<Vec<_>>())),
        local_queueing,
        with_local_queueing,
        ..DelayStats::new(range, count, sent, clock)
    })
}

/// The local queueing delay, and the round trips including it, where the kernel also timestamped every
/// received probe before the queueing discipline.
fn local_queueing(received: &[&RoundTrip]) -> (Option<DelayRange>, Option<DelayRange>) {
    let with: Option<Vec<u64>> =
        received.iter().map(|trip| trip.less_turnaround(trip.scheduled_ns)).collect();
    let Some(with) = with else { return (None, None) };
    let queueing: Vec<u64> = received.iter().filter_map(|trip| trip.queueing_ns).collect();
    (range(&queueing), range(&with))
}

/// Probes that stayed in the sending host's queueing discipline or were dropped there; `None` where the
/// kernel timestamped no probe at the driver.
pub(crate) fn local_losses(trips: &[RoundTrip]) -> Option<u64> {
    let is_stamped = trips.iter().any(|trip| trip.queueing_ns.is_some());
    is_stamped.then(|| trips.iter().filter(|trip| trip.is_stuck).count() as u64)
}

fn range(times: &[u64]) -> Option<DelayRange> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let (&min_ns, &max_ns) = (sorted.first()?, sorted.last()?);
    let percentile = |percent| nearest_rank(&sorted, percent).unwrap_or_default();
    Some(DelayRange {
        min_ns,
        mean_ns: mean(&sorted),
        p50_ns: percentile(50),
        p90_ns: percentile(90),
        p99_ns: percentile(99),
        max_ns,
    })
}

fn mean(values: &[u64]) -> u64 {
    let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
    u64::try_from(sum / values.len().max(1) as u128).unwrap_or(u64::MAX)
}

/// Mean absolute difference of successive delays: D(i-1,i) of RFC 3550
/// section 6.4.1, averaged instead of smoothed. 0 for a single delay.
fn jitter(delays: &[u64]) -> u64 {
    let differences: Vec<u64> = delays.windows(2).map(|pair| pair[0].abs_diff(pair[1])).collect();
    mean(&differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(application: u64, kernel: Option<u64>, turnaround_ns: u64) -> RoundTrip {
        RoundTrip {
            application_ns: Some(application),
            kernel_ns: kernel,
            turnaround_ns,
            ..RoundTrip::default()
        }
    }

    #[test]
    fn results_match_manual_calculation() {
        // Kernel readings less turnaround: 100, 300, (lost), 200, 500 ns.
        let trips = [
            trip(900, Some(110), 10),
            trip(900, Some(330), 30),
            RoundTrip::default(),
            trip(900, Some(220), 20),
            trip(900, Some(540), 40),
        ];
        let stats = distribution(&trips).unwrap();
        assert_eq!((stats.sent_count, stats.answered_count), (5, 4));
        assert!((stats.loss_ratio - 0.2).abs() < 1e-12);
        assert_eq!((stats.min_ns, stats.mean_ns, stats.max_ns), (100, 275, 500));
        // Sorted 100 200 300 500: ranks ceil(.5*4)=2, ceil(.9*4)=4, ceil(.99*4)=4.
        assert_eq!((stats.p50_ns, stats.p90_ns, stats.p99_ns), (200, 500, 500));
        // |300-100|, |200-300|, |500-200| = 200, 100, 300.
        assert_eq!(stats.jitter_ns, 200);
        assert_eq!(stats.turnaround_mean_ns, Some(25));
        assert_eq!(stats.clock, ClockSource::Kernel);
    }

    #[test]
    fn one_missing_timestamp_makes_the_series_use_the_application_clock() {
        let stats = distribution(&[trip(1_000, Some(100), 50), trip(3_000, None, 50)]).unwrap();
        assert_eq!(stats.clock, ClockSource::Application);
        assert_eq!((stats.min_ns, stats.mean_ns, stats.max_ns, stats.jitter_ns), (950, 1_950, 2_950, 2_000));
    }

    #[test]
    fn nearest_rank_of_a_hundred_is_the_nth() {
        let trips: Vec<_> = (1..=100).rev().map(|n| trip(n, Some(n), 0)).collect();
        let stats = distribution(&trips).unwrap();
        assert_eq!((stats.p50_ns, stats.p90_ns, stats.p99_ns), (50, 90, 99));
        assert_eq!(stats.jitter_ns, 1);
    }

    #[test]
    fn edges() {
        assert_eq!(distribution(&[]), None);
        assert_eq!(distribution(&[RoundTrip::default()]), None, "no replies: no delay");
        let one = distribution(&[trip(7, Some(5), 1), RoundTrip::default()]).unwrap();
        assert_eq!(one.jitter_ns(), None, "nothing to compare");
        assert_eq!(distribution(&[trip(7, Some(5), 1); 2]).unwrap().jitter_ns(), Some(0));
    }

    /// A turnaround as long as the whole is a contradiction, and no delay of 0.
    #[test]
    fn no_delay_is_zero() {
        let one = distribution(&[trip(7, Some(5), 4), trip(9, Some(5), 5)]).unwrap();
        assert_eq!((one.clock, one.min_ns, one.max_ns), (ClockSource::Application, 3, 4));
        let one = distribution(&[trip(7, Some(5), 9)]).unwrap();
        assert_eq!((one.clock, one.min_ns, one.max_ns), (ClockSource::Application, 7, 7));
    }

    #[test]
    fn the_local_queue_is_separated_from_the_path() {
        let queued = |kernel: u64, queueing: u64| RoundTrip {
            scheduled_ns: Some(kernel + queueing),
            queueing_ns: Some(queueing),
            ..trip(90_000, Some(kernel), 100)
        };
        let lost = RoundTrip { is_stuck: true, ..RoundTrip::default() };
        let trips = [queued(1_100, 40_000), queued(1_300, 20_000), lost];
        let stats = distribution(&trips).unwrap();
        assert_eq!((stats.min_ns, stats.max_ns), (1_000, 1_200), "from the driver");
        let queueing = stats.local_queueing.unwrap();
        assert_eq!((queueing.min_ns, queueing.mean_ns, queueing.max_ns), (20_000, 30_000, 40_000));
        let with = stats.with_local_queueing.unwrap();
        assert_eq!((with.min_ns, with.max_ns), (21_200, 41_000));
        assert_eq!(local_losses(&trips), Some(1));
        assert_eq!(local_losses(&[trip(7, Some(5), 1)]), None, "no timestamps, no count");
    }
}
