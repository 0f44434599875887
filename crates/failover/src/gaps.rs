//! Gap analysis: from the times of responses to gaps, stuck flows and full rate
//! after a failure.

/// Interruption of one flow, all times from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gap {
    /// Longest time without a response after the failure, including the time at
    /// the end.
    pub(crate) gap_ns: u64,
    /// End of that time.
    pub(crate) over_ns: u64,
    /// Whether there was no response at the end.
    pub(crate) stuck: bool,
}

/// Returns the longest time between two responses; the time before the first
/// response does not count.
pub(crate) fn longest_gap(responses_ns: &[u64], until_ns: u64) -> u64 {
    let before: Vec<u64> = responses_ns.iter().copied().take_while(|at| *at <= until_ns).collect();
    before.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

/// Returns the interruption of a flow after a failure at `at_ns`. It is stuck
/// when the time without a response at the end, `end_ns`, is longer than
/// `timeout_ns`.
pub(crate) fn gap_after(responses_ns: &[u64], at_ns: u64, end_ns: u64, timeout_ns: u64) -> Gap {
    // The last response before the failure begins the first gap that counts.
    let first = responses_ns.partition_point(|response| *response <= at_ns).saturating_sub(1);
    let after = responses_ns.get(first..).unwrap_or(&[]);
    let mut rest = Gap { gap_ns: 0, over_ns: at_ns, stuck: false };
    for pair in after.windows(2) {
        if pair[1] - pair[0] > rest.gap_ns {
            rest = Gap { gap_ns: pair[1] - pair[0], over_ns: pair[1], stuck: false };
        }
    }
    let last_ns = after.last().copied().unwrap_or(at_ns).min(end_ns);
    if end_ns - last_ns > timeout_ns {
        rest = Gap { gap_ns: rest.gap_ns.max(end_ns - last_ns), over_ns: end_ns, stuck: true };
    }
    rest
}

/// Counts the responses of all flows per step.
pub(crate) fn series<'a>(flows: impl Iterator<Item = &'a [u64]>, step_ns: u64, end_ns: u64) -> Vec<u32> {
    let steps = usize::try_from(end_ns / step_ns.max(1)).unwrap_or(0);
    let mut counts = vec![0u32; steps];
    for response in flows.flatten() {
        let step = usize::try_from(response / step_ns.max(1)).unwrap_or(usize::MAX);
        if let Some(count) = counts.get_mut(step) {
            *count += 1;
        }
    }
    counts
}

/// Returns the median: one of the values.
pub(crate) fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    clearstream_stats::nearest_rank(values, 50)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn every(step: u64, from: u64, to: u64) -> Vec<u64> {
        (from..to).step_by(usize::try_from(step).unwrap()).map(|at| at * MS).collect()
    }

    #[test]
    fn a_flow_that_pauses_has_its_pause() {
        let mut responses = every(20, 0, 2000);
        responses.extend(every(20, 2480, 6000));
        assert_eq!(longest_gap(&responses, 2000 * MS), 20 * MS);
        let rest = gap_after(&responses, 2000 * MS, 6000 * MS, 1000 * MS);
        // The last response before was at 1980 ms.
        assert_eq!(rest, Gap { gap_ns: 500 * MS, over_ns: 2480 * MS, stuck: false });
    }

    #[test]
    fn a_flow_without_a_response_at_the_end_is_stuck() {
        let rest = gap_after(&every(20, 0, 2000), 2000 * MS, 6000 * MS, 1000 * MS);
        assert_eq!(rest, Gap { gap_ns: 4020 * MS, over_ns: 6000 * MS, stuck: true });
        // One response in between.
        let mut responses = every(20, 0, 2000);
        responses.extend([4000 * MS]);
        let rest = gap_after(&responses, 2000 * MS, 6000 * MS, 1000 * MS);
        assert!(rest.stuck && rest.gap_ns == 2020 * MS);
        assert!(!gap_after(&responses, 2000 * MS, 4900 * MS, 1000 * MS).stuck);
    }

    #[test]
    fn an_uninterrupted_flow_has_its_interval_as_gap() {
        let rest = gap_after(&every(20, 0, 6000), 2000 * MS, 6000 * MS, 1000 * MS);
        assert_eq!((rest.gap_ns, rest.stuck), (20 * MS, false));
        assert!(gap_after(&[], 2000 * MS, 6000 * MS, 1000 * MS).stuck);
        assert_eq!(longest_gap(&[], 5), 0);
    }

    #[test]
    fn responses_are_counted_by_step_up_to_the_end() {
        let flows = [every(20, 0, 1000), every(20, 500, 1500)];
        let counts = series(flows.iter().map(Vec::as_slice), 100 * MS, 1000 * MS);
        assert_eq!(counts, [5, 5, 5, 5, 5, 10, 10, 10, 10, 10]);
        assert_eq!(median(&mut [3, 1, 2]), Some(2));
        assert_eq!(median(&mut []), None);
    }
}
