//! Samples of the host that this runs on.

use std::{
    thread,
    time::{Duration, Instant},
};

use clearstream_diagnose::passive::{ObserveOptions, SocketMonitor};
use clearstream_host::{
    HostRoot,
    counters::CounterReader,
    queue_counters::{self, QueueCounterReader},
    tcp_state,
};
use clearstream_schema::{
    counters::HostCounters,
    live::{CorePlace, LIVE_SAMPLE_SCHEMA, LiveSample, QueueCounters, TcpState},
    notice::Notice,
};
use serde::{Deserialize, Serialize};

use crate::{connections, watched::Watched};

/// Connections are explained by what they did in this time: in one second a slow application can look like a fast one.
const CONNECTION_WINDOW: Duration = Duration::from_secs(3);

/// What is collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorOptions {
    /// Duration of an interval.
    pub interval_ns: u64,
    /// Connections in a sample, the busiest; 0 leaves them out and costs nothing.
    pub connection_count: u16,
}

/// Reads this host once per interval, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Collector {
    options: CollectorOptions,
    host: String,
    root: HostRoot,
    counters: CounterReader,
    queues: QueueCounterReader,
    places: Vec<CorePlace>,
    sockets: Option<SocketMonitor>,
    watched: Watched,
    notices: Vec<Notice>,
    last: Reading,
}

#[derive(Debug)]
struct Reading {
    at: Instant,
    counters: HostCounters,
    queues: Vec<QueueCounters>,
    tcp: Result<TcpState, String>,
}

impl Collector {
    /// Starts: the first interval begins now.
    pub fn open(host: &str, options: CollectorOptions) -> Self {
        let root = HostRoot::live();
        let mut notices = Vec::new();
        let sockets = (options.connection_count > 0).then(|| {
            let options = ObserveOptions { duration: CONNECTION_WINDOW, namespaces: Vec::new() };
            SocketMonitor::open(&options)
        });
        let sockets = sockets.and_then(|opened| {
            opened.map_err(|error| notices.push(notice("connections-unread", error.to_string()))).ok()
        });
        let units = clearstream_host::inspect(&root).processing_units;
        let place = |unit: clearstream_schema::host::ProcessingUnit| CorePlace {
            core: unit.core,
            node: unit.node.unwrap_or(0),
            package: unit.package.unwrap_or(0),
        };
        let mut counters = CounterReader::open(&root);
        let mut queues = QueueCounterReader::open(&root);
        let last = Reading::now(&root, &mut counters, &mut queues);
        Self {
            options,
            host: host.to_owned(),
            places: units.into_iter().filter(|unit| unit.online).map(place).collect(),
            watched: Watched::start(),
            root,
            counters,
            queues,
            sockets,
            notices,
            last,
        }
    }

    /// Returns at the end of the current interval.
    pub fn next_sample(&mut self) -> LiveSample {
        let end = self.last.at + Duration::from_nanos(self.options.interval_ns);
        let mut notices = self.notices.clone();
        match &mut self.sockets {
            Some(sockets) => {
                if let Err(error) = sockets.sample_until(end) {
                    notices.push(notice("connections-unread", error.to_string()));
                }
            }
            None => thread::sleep(end.saturating_duration_since(Instant::now())),
        }
        let now = Reading::now(&self.root, &mut self.counters, &mut self.queues);
        let busiest = self.sockets.as_mut().map(|sockets| {
            connections::busiest(sockets.observed(), usize::from(self.options.connection_count), &mut notices)
        });
        let busiest = busiest.unwrap_or_default();
        let counters = now.counters.since(&self.last.counters);
        notices.extend(counters.missing.iter().map(|missing| notice("counters-unread", missing.clone())));
        let sample = LiveSample {
            schema: LIVE_SAMPLE_SCHEMA.to_owned(),
            version: 1,
            host: self.host.clone(),
            time: jiff::Timestamp::now().to_string(),
            interval_ns: u64::try_from((now.at - self.last.at).as_nanos()).unwrap_or(u64::MAX),
            counters,
            places: self.places.clone(),
            queues: queue_counters::since(&now.queues, &self.last.queues),
            tcp: tcp_since(&now.tcp, &self.last.tcp, &mut notices),
            connections: busiest.connections,
            connections_ns: busiest.observed_ns,
            connection_count: busiest.count,
            paths: self.watched.paths(),
            notices,
        };
        self.last = now;
        sample
    }
}

impl Reading {
    fn now(root: &HostRoot, counters: &mut CounterReader, queues: &mut QueueCounterReader) -> Self {
        Self {
            at: Instant::now(),
            counters: counters.read(),
            queues: queues.read(),
            tcp: tcp_state::read(root),
        }
    }
}

pub(crate) fn notice(id: &str, message: String) -> Notice {
    Notice { id: id.to_owned(), message }
}

/// Differences of the counters; what describes a state is that of now.
fn tcp_since(
    now: &Result<TcpState, String>,
    earlier: &Result<TcpState, String>,
    notices: &mut Vec<Notice>,
) -> TcpState {
    let (now, earlier) = match (now, earlier) {
        (Ok(now), Ok(earlier)) => (now, earlier),
        (Err(error), _) | (_, Err(error)) => {
            notices.push(notice("tcp-unread", error.clone()));
            return TcpState::default();
        }
    };
    let since = |counter: fn(&TcpState) -> u64| counter(now).saturating_sub(counter(earlier));
    TcpState {
        sent_segment_count: since(|tcp| tcp.sent_segment_count),
        received_segment_count: since(|tcp| tcp.received_segment_count),
        retransmit_count: since(|tcp| tcp.retransmit_count),
        reset_count: since(|tcp| tcp.reset_count),
        receive_error_count: since(|tcp| tcp.receive_error_count),
        open_count: since(|tcp| tcp.open_count),
        ..*now
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        process,
    };

    use super::*;

    const OPTIONS: CollectorOptions = CollectorOptions { interval_ns: 300_000_000, connection_count: 50 };

    /// Bytes of loopback by sysfs, which the collector does not read.
    fn loopback_bytes() -> u64 {
        let text = std::fs::read_to_string("/sys/class/net/lo/statistics/rx_bytes").unwrap();
        text.trim().parse().unwrap()
    }

    #[test]
    fn a_connection_of_this_process_is_counted_and_named() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut sender = TcpStream::connect(address).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let before = loopback_bytes();
        let mut collector = Collector::open("here", OPTIONS);
        let mut sums = 0;
        let mut buffer = vec![0; 1 << 20];
        let mut found = false;
        for _ in 0..6 {
            sender.write_all(&vec![7; 1 << 16]).unwrap();
            receiver.read_exact(&mut buffer[..1 << 16]).unwrap();
            let sample = collector.next_sample();
            let loopback = sample.counters.interfaces.iter().find(|one| one.name == "lo").unwrap();
            sums += loopback.receive_bytes;
            assert!(sample.interval_ns >= OPTIONS.interval_ns, "{}", sample.interval_ns);
            assert_eq!(sample.places.len(), sample.counters.cores.len());
            let own = format!("({})", process::id());
            let ends = |one: &&clearstream_schema::live::LiveConnection| {
                one.remote == address || one.local == address
            };
            let connection = sample.connections.iter().find(ends);
            found |= connection.is_some_and(|one| one.program.contains(&own) && !one.limit.is_empty());
            assert!(sample.connection_count >= 1);
        }
        let after = loopback_bytes();
        assert!(found, "the connection is among the busiest, with its program");
        assert!((6 << 16..=after - before).contains(&sums), "{sums} of {}", after - before);
    }

    #[test]
    fn intervals_follow_each_other_without_a_gap() {
        let options = CollectorOptions { interval_ns: 50_000_000, connection_count: 0 };
        let mut collector = Collector::open("here", options);
        let begun = collector.last.at;
        let samples: Vec<LiveSample> = (0..5).map(|_| collector.next_sample()).collect();
        let covered: u64 = samples.iter().map(|sample| sample.interval_ns).sum();
        assert_eq!(u128::from(covered), (collector.last.at - begun).as_nanos());
        assert!(samples.iter().all(|sample| sample.connections.is_empty() && sample.connection_count == 0));
        assert!(samples.iter().any(|sample| !sample.counters.cores.is_empty()));
    }
}
