//! From single round trips to their distribution. Exact: the readings are
//! few enough to be sorted.

use clearstream_schema::probe::{ClockSource, DelayStats};

/// What is known of one probe at the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoundTrip {
    /// From sending to the answer by clock readings around the system calls;
    /// absent when no answer came in time.
    pub application_ns: Option<u64>,
    /// The same between the kernel's stamps of the two packets.
    pub kernel_ns: Option<u64>,
    /// Time that the answering program held the probe.
    pub turnaround_ns: u64,
}

/// Distribution of the round trips in the order in which they were sent.
/// `None` when none was answered: there is no delay to speak of.
///
/// Kernel stamps are used when every answered probe has them, else none is:
/// a distribution never mixes clocks.
pub(crate) fn distribution(trips: &[RoundTrip]) -> Option<DelayStats> {
    let answered: Vec<&RoundTrip> = trips.iter().filter(|trip| trip.application_ns.is_some()).collect();
    let kernel = answered.iter().all(|trip| trip.kernel_ns.is_some());
    let delays: Vec<u64> = answered
        .iter()
        .filter_map(|trip| {
            if kernel { trip.kernel_ns } else { trip.application_ns }.zip(Some(trip.turnaround_ns))
        })
        .map(|(whole, held)| whole.saturating_sub(held))
        .collect();
    let mut sorted = delays.clone();
    sorted.sort_unstable();
    let (&min_ns, &max_ns) = (sorted.first()?, sorted.last()?);
    let sent = trips.len() as u64;
    let count = sorted.len() as u64;
    Some(DelayStats {
        answered_count: count,
        sent_count: sent,
        loss_ratio: (sent - count) as f64 / sent as f64,
        min_ns,
        mean_ns: mean(&sorted),
        p50_ns: percentile(&sorted, 50),
        p90_ns: percentile(&sorted, 90),
        p99_ns: percentile(&sorted, 99),
        max_ns,
        jitter_ns: jitter(&delays),
        clock: if kernel { ClockSource::Kernel } else { ClockSource::Application },
        turnaround_mean_ns: Some(mean(&answered.iter().map(|trip| trip.turnaround_ns).collect::<Vec<_>>())),
        forward_lost_count: None,
        return_lost_count: None,
    })
}

fn mean(values: &[u64]) -> u64 {
    let sum: u128 = values.iter().map(|&value| u128::from(value)).sum();
    u64::try_from(sum / values.len().max(1) as u128).unwrap_or(u64::MAX)
}

/// Nearest rank: the smallest reading that at least `percent` of all readings
/// do not exceed. It is always a reading that was taken.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let rank = (percent * sorted.len()).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
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
        RoundTrip { application_ns: Some(application), kernel_ns: kernel, turnaround_ns }
    }

    #[test]
    fn figures_worked_out_by_hand() {
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
    fn one_missing_stamp_and_the_whole_series_is_the_application_clocks() {
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
        assert_eq!(distribution(&[RoundTrip::default()]), None, "nothing came back: no delay");
        let one = distribution(&[trip(7, Some(5), 9)]).unwrap();
        assert_eq!((one.min_ns, one.p99_ns, one.jitter_ns), (0, 0, 0), "never below zero");
    }
}
