//! The results of a test: those of this end joined with those reported by the peer. Goodput is always the
//! receiver's.

use crate::document::{
    Iperf3Direction, Iperf3Peer, Iperf3Role, Iperf3Source, Iperf3Stream, Iperf3Summary, NOT_MEASURED,
};
use clearstream_flow::engine::Role;
use clearstream_schema::{
    flow::{Direction, FlowConfig, FlowSettings, Protocol},
    notice::Notice,
};

use crate::{
    results::{Omitted, Results, Retransmits, StreamResult, stream_id},
    tally::{Stream, Tally, datagrams},
};

/// Inputs of a summary.
#[derive(Debug)]
pub(crate) struct Inputs<'a> {
    pub(crate) role: Iperf3Role,
    pub(crate) protocol: Protocol,
    pub(crate) direction: Direction,
    pub(crate) streams: u32,
    pub(crate) requested: Option<&'a FlowConfig>,
    pub(crate) settings: FlowSettings,
    pub(crate) peer: String,
    pub(crate) version: Option<String>,
    pub(crate) tally: &'a Tally,
    pub(crate) results: Option<&'a Results>,
    /// Whether a warm-up was requested.
    pub(crate) warm_up: bool,
    pub(crate) notices: Vec<Notice>,
    pub(crate) complete: bool,
}

/// A notice.
pub(crate) fn notice(id: &str, message: impl Into<String>) -> Notice {
    Notice { id: id.to_owned(), message: message.into() }
}

/// Role of this end on the stream at `index`: with both directions the first ones are those on which the
/// client sends.
pub(crate) fn role_of(role: Iperf3Role, direction: Direction, streams: u32, index: usize) -> Role {
    let forward = match direction {
        Direction::Forward => true,
        Direction::Reverse => false,
        Direction::Both => index < streams as usize,
    };
    if forward == (role == Iperf3Role::Client) { Role::Send } else { Role::Receive }
}

/// This end's results, for the peer.
pub(crate) fn own_results(tally: &Tally, protocol: Protocol, congestion: Option<String>) -> Results {
    let sends = tally.streams.iter().any(|stream| stream.role == Role::Send);
    let streams = tally.streams.iter().enumerate().map(|(index, stream)| {
        let (warm_up, now) = stream.counted();
        StreamResult {
            id: stream_id(index),
            bytes: stream.bytes,
            retransmit_count: stream.retransmit_count(),
            jitter_s: now.jitter_ns as f64 / 1e9,
            lost_count: now.lost,
            datagram_count: now.datagrams,
            omitted: Some(Omitted { lost_count: warm_up.lost, datagram_count: warm_up.datagrams }),
            time_s: Some(tally.measured_ns as f64 / 1e9),
        }
    });
    Results {
        cpu_percent: tally.cpu_percent(),
        has_retransmits: match (sends, protocol) {
            (false, _) => Retransmits::NoSender,
            (true, Protocol::Udp) => Retransmits::Unknown,
            (true, _) => Retransmits::Known,
        },
        congestion_control: congestion,
        server_output: None,
        streams: streams.collect(),
    }
}

impl Inputs<'_> {
    /// Computes the summary.
    pub(crate) fn summary(mut self) -> Iperf3Summary {
        let results = self.results;
        self.peer_notices();
        let directions = |direction: Direction| match self.direction {
            Direction::Both => Some(self.direction(direction)),
            own => (own == direction).then(|| self.direction(direction)),
        };
        let (forward, reverse) = (directions(Direction::Forward), directions(Direction::Reverse));
        let peer = Iperf3Peer {
            address: self.peer,
            version: self.version,
            cpu_ratio: results.map(|results| results.cpu_percent[0] / 100.0),
            congestion_control: results.and_then(|results| results.congestion_control.clone()),
        };
        Iperf3Summary {
            role: self.role,
            peer,
            protocol: self.protocol,
            direction: self.direction,
            streams: self.streams,
            requested: self.requested.cloned(),
            settings: self.settings,
            measured_ns: self.tally.measured_ns,
            cpu_ns: self.tally.cpu_ns,
            forward,
            reverse,
            not_measured: NOT_MEASURED.map(str::to_owned).to_vec(),
            notices: self.notices,
            complete: self.complete && results.is_some(),
        }
    }

    fn peer_notices(&mut self) {
        self.notices.push(notice(
            "iperf3-peer",
            "the peer is an iperf3 program: it reports only bytes, time, retransmits and the CPU of its process; \
             its cores, interrupts, buffers and TCP state are not known",
        ));
        let Some(results) = self.results else {
            self.notices.push(notice(
                "peer-results-missing",
                "the peer did not report its results: its received and retransmitted data are unknown",
            ));
            return;
        };
        let receives = |stream: &StreamResult| {
            self.tally
                .streams
                .iter()
                .zip(0..)
                .any(|(own, index)| stream_id(index) == stream.id && own.role == Role::Send)
        };
        let remote: Vec<&StreamResult> = results.streams.iter().filter(|stream| receives(stream)).collect();
        if self.warm_up
            && self.protocol == Protocol::Udp
            && remote.iter().any(|stream| stream.omitted.is_none())
        {
            self.notices.push(notice(
                "peer-counts-warm-up",
                "the peer is older than iperf3 3.13: its counts of datagrams include the warm-up",
            ));
        }
        if remote.iter().any(|stream| stream.time_s.is_none()) {
            self.notices.push(notice(
                "peer-time-missing",
                "the peer did not report the time of what it received: the sender's time was used",
            ));
        }
    }

    /// This end's streams of a direction, with the peer's results.
    fn of(&self, direction: Direction) -> Vec<(u32, &Stream, Option<&StreamResult>)> {
        let client_sends = direction == Direction::Forward;
        let role = if client_sends == (self.role == Iperf3Role::Client) { Role::Send } else { Role::Receive };
        let all = self.tally.streams.iter().enumerate().filter(|(_, stream)| stream.role == role);
        all.map(|(index, stream)| {
            let id = stream_id(index);
            let result = self.results.and_then(|all| all.streams.iter().find(|result| result.id == id));
            (id, stream, result)
        })
        .collect()
    }

    fn direction(&self, direction: Direction) -> Iperf3Direction {
        let streams = self.of(direction);
        match streams.first().map(|(_, stream, _)| stream.role) {
            Some(Role::Send) => self.sent(&streams),
            _ => self.received(&streams),
        }
    }

    /// Results of a direction sent by this end: the peer reports what it received.
    fn sent(&self, streams: &[(u32, &Stream, Option<&StreamResult>)]) -> Iperf3Direction {
        let results: Vec<&StreamResult> = streams.iter().filter_map(|(.., result)| *result).collect();
        let complete = results.len() == streams.len();
        let time_ns = |result: &StreamResult| {
            result.time_s.map_or(self.tally.measured_ns, |seconds| (seconds * 1e9) as u64)
        };
        let received_ns = results.iter().map(|result| time_ns(result)).max().filter(|_| complete);
        let received_bytes = complete.then(|| sum(results.iter().map(|result| result.bytes)));
        let measured: Vec<(u64, u64)> = results.iter().map(|result| result.measured()).collect();
        Iperf3Direction {
            goodput_bps: received_bytes.zip(received_ns).map(|(bytes, nanos)| rate_bps(bytes, nanos)),
            goodput_source: Iperf3Source::Peer,
            received_bytes,
            received_ns,
            sent_bytes: Some(streams.iter().map(|(_, stream, _)| stream.bytes).sum()),
            sent_ns: Some(self.tally.measured_ns),
            retransmit_count: known_sum(streams.iter().map(|(_, stream, _)| stream.retransmit_count())),
            rtt_ns: self.tally.rtt_ns(),
            min_rtt_ns: self.tally.min_rtt_ns(),
            datagrams: (self.protocol == Protocol::Udp && complete).then(|| {
                datagrams(
                    sum(measured.iter().map(|(expected, _)| *expected)),
                    sum(measured.iter().map(|(_, lost)| *lost)),
                    None,
                    results.iter().map(|result| (result.jitter_s * 1e9) as u64),
                )
            }),
            streams: streams
                .iter()
                .map(|(id, stream, result)| Iperf3Stream {
                    id: *id,
                    sent_bytes: Some(stream.bytes),
                    received_bytes: result.map(|result| result.bytes),
                    goodput_bps: result.map(|result| rate_bps(result.bytes, time_ns(result))),
                    retransmit_count: stream.retransmit_count(),
                })
                .collect(),
        }
    }

    /// Results of a direction received by this end: the peer reports what it sent.
    fn received(&self, streams: &[(u32, &Stream, Option<&StreamResult>)]) -> Iperf3Direction {
        let results: Vec<&StreamResult> = streams.iter().filter_map(|(.., result)| *result).collect();
        let complete = results.len() == streams.len();
        let measured_ns = self.tally.measured_ns;
        let received: u64 = streams.iter().map(|(_, stream, _)| stream.bytes).sum();
        let tcp = self.protocol != Protocol::Udp;
        let counted = || streams.iter().map(|(_, stream, _)| stream.counted());
        Iperf3Direction {
            goodput_bps: Some(rate_bps(received, measured_ns)),
            goodput_source: Iperf3Source::ThisEnd,
            received_bytes: Some(received),
            received_ns: Some(measured_ns),
            sent_bytes: complete.then(|| sum(results.iter().map(|result| result.bytes))),
            sent_ns: results.iter().filter_map(|result| result.time_s).map(|s| (s * 1e9) as u64).max(),
            retransmit_count: known_sum(results.iter().map(|result| result.retransmit_count))
                .filter(|_| complete && tcp),
            rtt_ns: None,
            min_rtt_ns: None,
            datagrams: (!tcp).then(|| {
                datagrams(
                    counted().map(|(before, now)| now.datagrams.saturating_sub(before.datagrams)).sum(),
                    counted().map(|(before, now)| now.lost.saturating_sub(before.lost)).sum(),
                    Some(counted().map(|(before, now)| now.late.saturating_sub(before.late)).sum()),
                    counted().map(|(_, now)| now.jitter_ns),
                )
            }),
            streams: streams
                .iter()
                .map(|(id, stream, result)| Iperf3Stream {
                    id: *id,
                    sent_bytes: result.map(|result| result.bytes),
                    received_bytes: Some(stream.bytes),
                    goodput_bps: Some(rate_bps(stream.bytes, measured_ns)),
                    retransmit_count: result.filter(|_| tcp).and_then(|result| result.retransmit_count),
                })
                .collect(),
        }
    }
}

fn rate_bps(bytes: u64, nanos: u64) -> f64 {
    if nanos == 0 { 0.0 } else { bytes as f64 * 8e9 / nanos as f64 }
}

/// Sum of values, when all are known.
fn known_sum(mut numbers: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    numbers.try_fold(0, |sum: u64, number| Some(sum.saturating_add(number?)))
}

/// Saturating sum of numbers from a peer.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs<'a>(role: Iperf3Role, tally: &'a Tally, results: Option<&'a Results>) -> Inputs<'a> {
        Inputs {
            role,
            protocol: Protocol::Tcp,
            direction: Direction::Both,
            streams: 1,
            requested: None,
            settings: FlowSettings::default(),
            peer: "192.0.2.1:5201".to_owned(),
            version: None,
            tally,
            results,
            warm_up: false,
            notices: Vec::new(),
            complete: true,
        }
    }

    fn tally() -> Tally {
        let stream = |role, bytes| {
            let mut stream = Stream::new(role, None);
            stream.bytes = bytes;
            stream
        };
        let mut tally = Tally::default();
        tally.streams = vec![stream(Role::Send, 4000), stream(Role::Receive, 900)];
        tally.measured_ns = 1_000_000_000;
        tally
    }

    fn results() -> Results {
        let stream = |id, bytes, retransmit_count, time_s| StreamResult {
            id,
            bytes,
            retransmit_count,
            time_s,
            ..StreamResult::default()
        };
        Results {
            cpu_percent: [50.0, 10.0, 40.0],
            streams: vec![stream(1, 3000, None, Some(2.0)), stream(3, 1000, Some(4), Some(1.0))],
            ..Results::default()
        }
    }

    #[test]
    fn goodput_is_the_receivers_and_retransmits_are_the_senders() {
        let (tally, results) = (tally(), results());
        let summary = inputs(Iperf3Role::Client, &tally, Some(&results)).summary();
        let (forward, reverse) = (summary.forward.unwrap(), summary.reverse.unwrap());
        assert_eq!((forward.goodput_bps, forward.goodput_source), (Some(12_000.0), Iperf3Source::Peer));
        assert_eq!((forward.sent_bytes, forward.received_bytes), (Some(4000), Some(3000)));
        assert_eq!((reverse.goodput_bps, reverse.goodput_source), (Some(7200.0), Iperf3Source::ThisEnd));
        assert_eq!((reverse.sent_bytes, reverse.retransmit_count), (Some(1000), Some(4)));
        assert_eq!((summary.peer.cpu_ratio, summary.complete), (Some(0.5), true));
    }

    #[test]
    fn without_the_peers_results_its_values_are_absent() {
        let tally = tally();
        let summary = inputs(Iperf3Role::Client, &tally, None).summary();
        let forward = summary.forward.unwrap();
        assert_eq!((forward.goodput_bps, forward.received_bytes), (None, None));
        assert_eq!(forward.sent_bytes, Some(4000));
        assert!(!summary.complete);
        assert!(summary.notices.iter().any(|notice| notice.id == "peer-results-missing"));
    }

    #[test]
    fn hostile_numbers_of_a_peer_are_only_numbers() {
        let tally = tally();
        let mut hostile = results();
        for stream in &mut hostile.streams {
            *stream = StreamResult { bytes: u64::MAX, time_s: Some(1e300), ..stream.clone() };
        }
        let summary = inputs(Iperf3Role::Client, &tally, Some(&hostile)).summary();
        assert!(summary.forward.unwrap().goodput_bps.unwrap().is_finite());
    }

    #[test]
    fn the_sender_of_a_stream_follows_from_the_order() {
        let roles = |role, direction| [0, 1, 2, 3].map(|index| role_of(role, direction, 2, index));
        use Role::{Receive, Send};
        assert_eq!(roles(Iperf3Role::Client, Direction::Both), [Send, Send, Receive, Receive]);
        assert_eq!(roles(Iperf3Role::Server, Direction::Both), [Receive, Receive, Send, Send]);
        assert_eq!(roles(Iperf3Role::Server, Direction::Reverse)[0], Send);
        assert_eq!(roles(Iperf3Role::Client, Direction::Reverse)[0], Receive);
    }
}
