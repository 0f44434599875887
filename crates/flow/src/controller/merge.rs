//! Joins the intervals of both sides by index.

use std::collections::BTreeMap;

use clearstream_schema::flow::{FlowConfig, Interval, SideInterval};

use super::{Side, direction::Directions, receivers};
use crate::schedule::Schedule;

/// Intervals of one side that wait for the peer's.
#[derive(Debug)]
pub(super) struct Merger {
    schedule: Schedule,
    receivers: &'static [Side],
    directions: Directions,
    waiting: BTreeMap<u32, (Option<SideInterval>, Option<SideInterval>)>,
}

/// Bits per second that reached the applications of one side, over that
/// side's own time: bytes * 8 / (end - start).
pub(super) fn goodput_bps(side: &SideInterval) -> f64 {
    let bytes: u64 = side.flows.iter().map(|flow| flow.received_bytes).sum();
    match side.end_ns.saturating_sub(side.start_ns) {
        0 => 0.0,
        nanos => bytes as f64 * 8e9 / nanos as f64,
    }
}

impl Merger {
    pub(super) fn new(config: &FlowConfig) -> Self {
        Self {
            schedule: Schedule::new(config),
            receivers: receivers(config.direction),
            directions: Directions::new(config.direction),
            waiting: BTreeMap::new(),
        }
    }

    /// Adds one side's interval; returns both when the peer's is present.
    pub(super) fn add(&mut self, side: Side, interval: SideInterval) -> Option<Interval> {
        let index = interval.index;
        let place = self.waiting.entry(index).or_default();
        match side {
            Side::Client => place.0 = Some(interval),
            Side::Server => place.1 = Some(interval),
        }
        if let (Some(_), Some(_)) = place {
            let (client, server) = self.waiting.remove(&index)?;
            return Some(self.join(index, client?, server?));
        }
        None
    }

    /// Returns the remaining intervals when no more will come: those of a receiver count, without the missing
    /// side.
    pub(super) fn rest(&mut self) -> Vec<Interval> {
        let waiting = std::mem::take(&mut self.waiting);
        let seen = |(client, server): &(Option<SideInterval>, Option<SideInterval>)| {
            self.receivers.iter().any(|side| match side {
                Side::Client => client.is_some(),
                Side::Server => server.is_some(),
            })
        };
        let counted: Vec<_> = waiting.into_iter().filter(|(_, sides)| seen(sides)).collect();
        counted
            .into_iter()
            .map(|(index, (client, server))| {
                let absent = || SideInterval { index, ..SideInterval::default() };
                self.join(index, client.unwrap_or_else(absent), server.unwrap_or_else(absent))
            })
            .collect()
    }

    fn join(&mut self, index: u32, client: SideInterval, server: SideInterval) -> Interval {
        Interval {
            index,
            warm_up: self.schedule.is_warm_up(index),
            goodput_bps: goodput_bps(&client) + goodput_bps(&server),
            directions: self.directions.of(&client, &server),
            client,
            server,
        }
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{TimeSpan, flow::FlowInterval};

    use super::*;

    pub(crate) fn side(index: u32, start_ms: u64, end_ms: u64, received_bytes: u64) -> SideInterval {
        SideInterval {
            index,
            start_ns: start_ms * 1_000_000,
            end_ns: end_ms * 1_000_000,
            flows: vec![FlowInterval { received_bytes, ..FlowInterval::default() }],
            ..SideInterval::default()
        }
    }

    #[test]
    fn sides_are_joined_by_index_in_any_order() {
        let mut merger =
            Merger::new(&FlowConfig { warm_up: TimeSpan::from_seconds(1), ..FlowConfig::default() });
        assert!(merger.add(Side::Client, side(0, 0, 1000, 0)).is_none());
        assert!(merger.add(Side::Client, side(1, 1000, 2000, 0)).is_none());
        let first = merger.add(Side::Server, side(0, 0, 1000, 125_000_000)).unwrap();
        assert_eq!((first.index, first.warm_up, first.goodput_bps), (0, true, 1e9));
        // 1.25 GB in 1.25 s of the receiver's own clock are 8 Gb/s.
        let second = merger.add(Side::Server, side(1, 1000, 2250, 1_250_000_000)).unwrap();
        assert_eq!((second.warm_up, second.goodput_bps), (false, 8e9));
        assert!(merger.rest().is_empty());
    }

    #[test]
    fn intervals_of_the_receiver_alone_count_and_those_of_the_sender_alone_do_not() {
        let mut merger = Merger::new(&FlowConfig::default());
        assert!(merger.add(Side::Server, side(3, 0, 1000, 1000)).is_none());
        assert!(merger.add(Side::Client, side(4, 0, 1000, 0)).is_none());
        let rest = merger.rest();
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].index, rest[0].goodput_bps), (3, 8000.0));
        assert!(rest[0].client.flows.is_empty());
    }
}
