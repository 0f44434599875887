//! Results of each direction in one interval.

use std::collections::BTreeMap;

use clearstream_schema::flow::{Direction, DirectionInterval, SideInterval};

use super::{Side, merge::goodput_bps};

/// Directions that carry data, with their sending side.
pub(super) fn directions(direction: Direction) -> &'static [(Direction, Side)] {
    match direction {
        Direction::Forward => &[(Direction::Forward, Side::Client)],
        Direction::Reverse => &[(Direction::Reverse, Side::Server)],
        Direction::Both => &[(Direction::Forward, Side::Client), (Direction::Reverse, Side::Server)],
    }
}

/// Splits intervals by direction. TCP counters start with the connection: their values at the end of the
/// previous interval are kept here.
#[derive(Debug)]
pub(super) struct Directions {
    directions: &'static [(Direction, Side)],
    /// Retransmissions so far, by direction and flow.
    counted: BTreeMap<(usize, u32), u64>,
}

impl Directions {
    pub(super) fn new(direction: Direction) -> Self {
        Self { directions: directions(direction), counted: BTreeMap::new() }
    }

    /// The directions of the next interval.
    pub(super) fn of(&mut self, client: &SideInterval, server: &SideInterval) -> Vec<DirectionInterval> {
        let directions = self.directions.iter().enumerate();
        directions
            .map(|(place, (direction, sender))| match sender {
                Side::Client => one(*direction, client, server, &mut self.counted, place),
                Side::Server => one(*direction, server, client, &mut self.counted, place),
            })
            .collect()
    }
}

fn one(
    direction: Direction,
    sender: &SideInterval,
    receiver: &SideInterval,
    counted: &mut BTreeMap<(usize, u32), u64>,
    place: usize,
) -> DirectionInterval {
    let sockets: Vec<_> =
        sender.flows.iter().filter_map(|flow| Some((flow.flow, flow.tcp.as_ref()?))).collect();
    let resent = sockets.iter().map(|(flow, info)| {
        let total = u64::from(info.total_retransmit_count);
        total.saturating_sub(counted.insert((place, *flow), total).unwrap_or(0))
    });
    let resent = resent.reduce(|a, b| a + b);
    let window = sockets
        .iter()
        .map(|(_, info)| u64::from(info.congestion_window_count) * u64::from(info.send_mss_bytes))
        .reduce(|a, b| a + b);
    let sum = |of: fn(&clearstream_schema::flow::FlowInterval) -> Option<u64>| {
        receiver.flows.iter().filter_map(of).reduce(|a, b| a + b)
    };
    let jitters: Vec<u64> = receiver.flows.iter().filter_map(|flow| flow.jitter_ns).collect();
    DirectionInterval {
        direction,
        goodput_bps: goodput_bps(receiver),
        retransmit_count: resent,
        rtt_ns: sockets.iter().map(|(_, info)| info.rtt_ns).filter(|rtt| *rtt > 0).max(),
        congestion_window_bytes: window,
        datagram_count: sum(|flow| flow.datagram_count),
        lost_count: sum(|flow| flow.lost_count),
        reordered_count: sum(|flow| flow.reordered_count),
        jitter_ns: jitters.iter().sum::<u64>().checked_div(jitters.len() as u64),
    }
}

#[cfg(test)]
mod tests {
    use clearstream_schema::{flow::FlowInterval, tcp_info::TcpInfo};

    use super::*;

    fn side(received_bytes: u64, retransmits: u32) -> SideInterval {
        let tcp = TcpInfo {
            rtt_ns: 1000,
            congestion_window_count: 10,
            send_mss_bytes: 1448,
            total_retransmit_count: retransmits,
            ..TcpInfo::default()
        };
        SideInterval {
            end_ns: 1_000_000_000,
            flows: vec![FlowInterval { received_bytes, tcp: Some(tcp), ..FlowInterval::default() }],
            ..SideInterval::default()
        }
    }

    /// Each direction of a bidirectional test is reported separately, with the interval's own
    /// retransmissions.
    #[test]
    fn both_directions_have_their_own_results_and_retransmits_of_the_interval() {
        let mut split = Directions::new(Direction::Both);
        let first = split.of(&side(125_000_000, 325), &side(250_000_000, 2));
        let second = split.of(&side(125_000_000, 325), &side(250_000_000, 7));
        let figures = |all: &[DirectionInterval]| -> Vec<_> {
            all.iter().map(|one| (one.direction, one.goodput_bps, one.retransmit_count)).collect()
        };
        // What the client receives goes from server to client.
        assert_eq!(
            figures(&first),
            [(Direction::Forward, 2e9, Some(325)), (Direction::Reverse, 1e9, Some(2))]
        );
        assert_eq!(
            figures(&second),
            [(Direction::Forward, 2e9, Some(0)), (Direction::Reverse, 1e9, Some(5))],
            "not from the connection's start"
        );
        assert_eq!(second[0].congestion_window_bytes, Some(14_480));
        assert_eq!((second[0].lost_count, second[0].jitter_ns), (None, None), "not measured with TCP");
    }

    #[test]
    fn datagrams_are_those_of_the_receiver() {
        let mut server = SideInterval { end_ns: 1, ..SideInterval::default() };
        for (lost, jitter) in [(1, 100), (2, 300)] {
            server.flows.push(FlowInterval {
                datagram_count: Some(10),
                lost_count: Some(lost),
                reordered_count: Some(4),
                jitter_ns: Some(jitter),
                ..FlowInterval::default()
            });
        }
        let client = SideInterval { flows: vec![FlowInterval::default(); 2], ..SideInterval::default() };
        let one = Directions::new(Direction::Forward).of(&client, &server).remove(0);
        assert_eq!((one.datagram_count, one.lost_count), (Some(20), Some(3)));
        assert_eq!((one.reordered_count, one.jitter_ns), (Some(8), Some(200)));
        assert_eq!((one.retransmit_count, one.rtt_ns), (None, None));
    }
}
