//! Which cores took part: the interrupt core of the receiver, and the cores chosen by the scheduler.

use std::collections::BTreeMap;

use clearstream_schema::flow::{FlowInterval, InterruptCore, SideInterval};

/// Percentage of the softirqs above which a core is dominant.
const DOMINANT_PERCENT: u64 = 60;
/// Percentage that confirms a core although none is dominant.
const CONFIRMING_PERCENT: u64 = 25;
/// Fewer softirqs are considered background.
const SOFTIRQS_MIN: u64 = 100;

/// Count of each observed value.
#[derive(Debug, Default)]
pub(super) struct Votes(BTreeMap<u32, u64>);

impl Votes {
    pub(super) fn add(&mut self, value: Option<u32>, weight: u64) {
        if let Some(value) = value {
            *self.0.entry(value).or_default() += weight;
        }
    }

    /// The most frequent value; the lowest of equals.
    pub(super) fn winner(&self) -> Option<u32> {
        self.0.iter().rev().max_by_key(|(_, count)| **count).map(|(value, _)| *value)
    }

    fn percent(&self, value: u32) -> Option<(u64, u64)> {
        let all: u64 = self.0.values().sum();
        Some((self.0.get(&value).copied().unwrap_or(0).checked_mul(100)?.checked_div(all)?, all))
    }
}

/// Finds the interrupt core of the receivers of one side.
#[derive(Debug, Default)]
pub(super) struct InterruptVotes {
    softirqs: Votes,
    incoming: Votes,
}

impl InterruptVotes {
    /// Adds an interval of the receiving side.
    pub(super) fn add(&mut self, side: &SideInterval) {
        for core in &side.cores {
            self.softirqs.add(Some(core.core), core.net_rx_count);
        }
        for flow in side.flows.iter().filter(|flow| flow.received_bytes > 0) {
            self.incoming.add(flow.incoming_core, 1);
        }
    }

    /// The core that processed the receivers' packets, from two sources: the softirq counters cover the whole
    /// machine, other traffic and the sending end of a lab included; `SO_INCOMING_CPU` covers these sockets
    /// alone, so it takes precedence, and the counters confirm it or not.
    pub(super) fn found(&self) -> Option<InterruptCore> {
        let dominant = |votes: &Votes, least: u64| {
            let core = votes.winner()?;
            let (percent, all) = votes.percent(core)?;
            (percent >= DOMINANT_PERCENT && all >= least).then_some(core)
        };
        let by_softirqs = dominant(&self.softirqs, SOFTIRQS_MIN);
        let by_sockets = dominant(&self.incoming, 1);
        let core = by_sockets.or(by_softirqs)?;
        let (percent, all) = self.softirqs.percent(core).unwrap_or((0, 0));
        if all < SOFTIRQS_MIN {
            return None;
        }
        // Packets steered by RPS raise a softirq on the arrival core and one on the target core.
        let counted = by_softirqs == Some(core) || (by_softirqs.is_none() && percent >= CONFIRMING_PERCENT);
        Some(InterruptCore {
            core,
            softirq_share_percent: u32::try_from(percent).unwrap_or(100),
            confirmed: by_sockets.map(|_| counted),
        })
    }
}

/// Cores on which the threads of one flow were seen.
#[derive(Debug, Default)]
pub(super) struct SeenCores {
    pub(super) sender: Votes,
    pub(super) receiver: Votes,
    together: u64,
    intervals: u64,
}

impl SeenCores {
    pub(super) fn add(&mut self, sending: &FlowInterval, receiving: &FlowInterval) {
        self.sender.add(sending.sender_core, 1);
        self.receiver.add(receiving.receiver_core, 1);
        if let (Some(sender), Some(receiver)) = (sending.sender_core, receiving.receiver_core) {
            self.intervals += 1;
            self.together += u64::from(sender == receiver);
        }
    }

    /// Percentage of intervals after which both threads were on one core.
    pub(super) fn together_percent(&self) -> Option<u64> {
        (self.together * 100).checked_div(self.intervals)
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::counters::CoreCounters;

    use super::*;

    fn interval(counts: &[u64], incoming: Option<u32>) -> SideInterval {
        SideInterval {
            cores: (0..)
                .zip(counts)
                .map(|(core, count)| CoreCounters { core, net_rx_count: *count, ..CoreCounters::default() })
                .collect(),
            flows: vec![FlowInterval {
                received_bytes: 1,
                incoming_core: incoming,
                ..FlowInterval::default()
            }],
            ..SideInterval::default()
        }
    }

    fn found(intervals: &[SideInterval]) -> Option<InterruptCore> {
        let mut votes = InterruptVotes::default();
        intervals.iter().for_each(|interval| votes.add(interval));
        votes.found()
    }

    #[test]
    fn a_core_with_most_softirqs_is_found_and_confirmed() {
        let core = found(&[interval(&[10, 900], Some(1)), interval(&[90, 1000], Some(1))]).unwrap();
        assert_eq!(core, InterruptCore { core: 1, softirq_share_percent: 95, confirmed: Some(true) });
        // Other traffic on core 1; these sockets' packets were processed on core 0.
        let other = found(&[interval(&[10, 900], Some(0))]).unwrap();
        assert_eq!(other, InterruptCore { core: 0, softirq_share_percent: 1, confirmed: Some(false) });
        assert_eq!(found(&[interval(&[10, 900], None)]).unwrap().confirmed, None);
    }

    #[test]
    fn steered_packets_raise_softirqs_on_two_cores_and_the_socket_identifies_the_target() {
        let core = found(&[interval(&[500, 480], Some(1)), interval(&[500, 480], Some(1))]).unwrap();
        assert_eq!(core, InterruptCore { core: 1, softirq_share_percent: 48, confirmed: Some(true) });
        // Sockets served by both cores in turn identify neither.
        assert_eq!(found(&[interval(&[500, 480], Some(1)), interval(&[500, 480], Some(0))]), None);
    }

    #[test]
    fn no_core_is_dominant_among_equals_or_without_traffic() {
        assert_eq!(found(&[interval(&[500, 500], None)]), None);
        assert_eq!(found(&[interval(&[0, 40], Some(1))]), None);
        assert_eq!(found(&[]), None);
    }
}
