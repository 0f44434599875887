//! Metrics for Prometheus: the status in the text format of OpenMetrics 1.0, over HTTP.

use std::{
    fmt,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use clearstream_schema::watch::{GatewayStatus, PathStatus, WatchStatus};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet, text::encode},
    metrics::MetricType::{self, Counter, Gauge},
    registry::Registry,
};

use super::WatchError;

/// Timeout for a request and its response together: one thread serves all scrapers.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum length of a request head.
const MOST_BYTES: usize = 8192;

/// The latest status.
pub(super) type Shared = Arc<Mutex<WatchStatus>>;

/// Serves `GET /metrics` on a thread that ends with the process; returns the
/// address, whose port is the kernel's choice when 0 was requested.
pub(super) fn serve(address: SocketAddr, status: Shared) -> Result<SocketAddr, WatchError> {
    let fail = |source| WatchError::Metrics { address, source };
    let listener = TcpListener::bind(address).map_err(fail)?;
    let local = listener.local_addr().map_err(fail)?;
    let listen = move || {
        for stream in listener.incoming().flatten() {
            // Invalid and slow requests get no response.
            let _ = respond(stream, &status);
        }
    };
    thread::Builder::new().name("watch-metrics".to_owned()).spawn(listen).map_err(fail)?;
    Ok(local)
}

/// A connection until a deadline, however slowly bytes go.
struct Bounded {
    stream: TcpStream,
    deadline: Instant,
}

impl Bounded {
    /// The time left, never zero, which a socket takes for no timeout.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

fn respond(stream: TcpStream, status: &Shared) -> io::Result<()> {
    let mut stream = Bounded { stream, deadline: Instant::now() + TIMEOUT };
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    // A request without a body ends with an empty line (RFC 9112, section 2.1).
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let length = stream.read(&mut buffer)?;
        if length == 0 || head.len() + length > MOST_BYTES {
            return Ok(());
        }
        head.extend(&buffer[..length]);
    }
    let head = String::from_utf8_lossy(&head);
    let mut fields = head.split_whitespace();
    let (code, kind, body) = match (fields.next(), fields.next()) {
        (Some("GET"), Some("/metrics")) => {
            let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let text = exposition(status).map_err(io::Error::other)?;
            ("200 OK", "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
        }
        (Some("GET"), _) => ("404 Not Found", "text/plain", "request /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "use GET\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The exposition text.
fn exposition(status: WatchStatus) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("clearstream_watch");
    registry.register_collector(Box::new(Exposed(status)));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Exposed(WatchStatus);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        of_watch(&mut encoder, &self.0)?;
        of_paths(&mut encoder, &self.0)?;
        of_gateways(&mut encoder, &self.0)
    }
}

/// A family of samples: name, kind, description. Samples of a counter have the
/// suffix `_total`.
struct Family(&'static str, MetricType, &'static str);

/// Adds a family, if it has samples.
fn add<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder<'_>,
    Family(name, kind, help): Family,
    samples: &[(L, f64)],
) -> fmt::Result {
    if samples.is_empty() {
        return Ok(());
    }
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        let mut sample = family.encode_family(labels)?;
        match kind {
            Counter => sample.encode_counter::<NoLabelSet, _, f64>(value, None)?,
            _ => sample.encode_gauge(value)?,
        }
    }
    Ok(())
}

fn of_watch(encoder: &mut DescriptorEncoder<'_>, status: &WatchStatus) -> fmt::Result {
    let labels = [("host", status.host.as_str()), ("fabric", status.fabric.as_str())];
    let rows: [(Family, f64); 6] = [
        (Family("running_seconds", Gauge, "Time since the watch began."), status.running_ns as f64 / 1e9),
        (Family("served", Counter, "Replies sent to probes of other hosts."), status.served_count as f64),
        (Family("changes", Counter, "Changes of next hops."), status.change_count as f64),
        (
            Family("failed_changes", Counter, "Changes of next hops that the kernel rejected."),
            status.failed_change_count as f64,
        ),
        (
            Family("repairs", Counter, "Next hops changed by somebody else and repaired."),
            status.repair_count as f64,
        ),
        (Family("ways", Gauge, "Monitored paths to remote networks."), status.paths.len() as f64),
    ];
    for (family, value) in rows {
        add(encoder, family, &[(labels, value)])?;
    }
    Ok(())
}

fn of_paths(encoder: &mut DescriptorEncoder<'_>, status: &WatchStatus) -> fmt::Result {
    type Value = fn(&PathStatus) -> f64;
    let rows: [(Family, Value); 3] = [
        (Family("heard", Gauge, "1 while some remote host responds."), |path| {
            f64::from(u8::from(path.reachable))
        }),
        (Family("interval_seconds", Gauge, "Time between rounds while nothing fails."), |path| {
            path.interval_ns as f64 / 1e9
        }),
        (Family("gateways_used", Gauge, "Gateways among the next hops."), |path| {
            path.gateways.iter().filter(|gateway| gateway.used).count() as f64
        }),
    ];
    for (family, value) in rows {
        let samples: Vec<_> = status.paths.iter().map(|path| (path_labels(path), value(path))).collect();
        add(encoder, family, &samples)?;
    }
    Ok(())
}

fn of_gateways(encoder: &mut DescriptorEncoder<'_>, status: &WatchStatus) -> fmt::Result {
    type Value = fn(&GatewayStatus) -> Option<f64>;
    let rows: [(Family, Value); 13] = [
        (Family("gateway_used", Gauge, "1 while it is among the next hops."), |gateway| {
            Some(f64::from(u8::from(gateway.used)))
        }),
        (Family("gateway_drained", Gauge, "1 while an operator has drained it."), |gateway| {
            Some(f64::from(u8::from(gateway.drained)))
        }),
        (Family("gateway_session_up", Gauge, "1 while a routing daemon's BFD session is up."), |gateway| {
            gateway.session_up.map(|up| f64::from(u8::from(up)))
        }),
        (Family("gateway_round_trip_seconds", Gauge, "Last round trip through it."), |gateway| {
            gateway.round_trip_ns.map(|time| time as f64 / 1e9)
        }),
        (Family("gateway_probes_sent", Counter, "Probes sent through it."), |gateway| {
            Some(gateway.counts.sent_count as f64)
        }),
        (Family("gateway_probes_answered", Counter, "Probes with a reply in time."), |gateway| {
            Some(gateway.counts.answered_count as f64)
        }),
        (Family("gateway_probes_lost", Counter, "Probes lost that others carried."), |gateway| {
            Some(gateway.counts.lost_count as f64)
        }),
        (Family("gateway_tcp_probes_sent", Counter, "Probes sent through it by TCP."), |gateway| {
            Some(gateway.counts.tcp_sent_count as f64)
        }),
        (Family("gateway_tcp_probes_answered", Counter, "Probes by TCP with a reply in time."), |gateway| {
            Some(gateway.counts.tcp_answered_count as f64)
        }),
        (Family("gateway_loss_ratio", Gauge, "Fraction of the latest probes that were lost."), |gateway| {
            gateway.loss_ratio
        }),
        (Family("gateway_buckets", Gauge, "Buckets of the resilient group."), |gateway| {
            gateway.bucket_count.map(f64::from)
        }),
        (Family("gateway_outs", Counter, "Times that it was withdrawn."), |gateway| {
            Some(gateway.counts.out_count as f64)
        }),
        (Family("gateway_ins", Counter, "Times that it was restored."), |gateway| {
            Some(gateway.counts.in_count as f64)
        }),
    ];
    for (family, value) in rows {
        let gateways =
            status.paths.iter().flat_map(|path| path.gateways.iter().map(move |gateway| (path, gateway)));
        let samples: Vec<_> = gateways
            .filter_map(|(path, gateway)| {
                let [network, family] = path_labels(path);
                Some(([network, family, ("gateway", gateway.name.clone())], value(gateway)?))
            })
            .collect();
        add(encoder, family, &samples)?;
    }
    Ok(())
}

fn path_labels(path: &PathStatus) -> [(&'static str, String); 2] {
    [("network", path.path.network.clone()), ("family", path.path.family.to_string())]
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use clearstream_schema::watch::{
        Family, GatewayCounts, NeighbourState, NetworkPath, OutReason, WATCH_STATUS_SCHEMA,
    };

    use super::*;

    fn status() -> WatchStatus {
        let gateway = |name: &str, used, session_up| GatewayStatus {
            name: name.to_owned(),
            address: "10.100.0.91".parse().unwrap(),
            used,
            drained: false,
            reason: (!used).then_some(OutReason::NoAnswer),
            neighbour: NeighbourState::Known,
            session_up,
            round_trip_ns: Some(250_000),
            loss_ratio: Some(0.125),
            bucket_count: Some(60),
            counts: GatewayCounts { sent_count: 7, answered_count: 5, lost_count: 2, ..Default::default() },
        };
        WatchStatus {
            schema: WATCH_STATUS_SCHEMA.to_owned(),
            version: 1,
            host: "an \"odd\\name\"\n".to_owned(),
            fabric: "gateways-6".to_owned(),
            running_ns: 1_500_000_000,
            served_count: 3,
            change_count: 1,
            failed_change_count: 0,
            repair_count: 0,
            paths: vec![PathStatus {
                path: NetworkPath { network: "storage".to_owned(), family: Family::Ipv4 },
                interval_ns: 20_000_000,
                targets: vec!["10.10.0.201".parse().unwrap()],
                reachable: true,
                tcp_reachable: Some(true),
                group: None,
                gateways: vec![gateway("gw1", true, None), gateway("gw2", false, Some(false))],
            }],
        }
    }

    /// Oracle: the parser of the Prometheus client library, over HTTP like a scraper.
    #[test]
    fn a_scraper_reads_the_counters() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::new(Mutex::new(status()))).unwrap();
        let program = r#"
import sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families
response = urllib.request.urlopen(sys.argv[1], timeout=5)
assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0"), response.headers
for family in text_string_to_metric_families(response.read().decode()):
    assert family.documentation and family.type in ("gauge", "counter"), family
    for sample in family.samples:
        print(sample.name, sample.labels.get("host"), sample.labels.get("gateway"), sample.value, sep="|")
"#;
        let output = Command::new("/usr/bin/python3")
            .args(["-c", program, &format!("http://{address}/metrics")])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        for wanted in [
            "clearstream_watch_gateway_used|None|gw1|1.0",
            "clearstream_watch_gateway_used|None|gw2|0.0",
            "clearstream_watch_gateway_session_up|None|gw2|0.0",
            "clearstream_watch_gateway_probes_lost_total|None|gw1|2.0",
            "clearstream_watch_gateway_round_trip_seconds|None|gw1|0.00025",
            "clearstream_watch_gateways_used|None|None|1.0",
            "clearstream_watch_gateway_loss_ratio|None|gw1|0.125",
            "clearstream_watch_gateway_buckets|None|gw1|60.0",
        ] {
            assert!(text.lines().any(|line| line == wanted), "{wanted} is not in:\n{text}");
        }
        assert!(text.contains("clearstream_watch_running_seconds|an \"odd\\name\""), "{text}");
        assert!(!text.contains("gateway_session_up|None|gw1"), "unknown values are omitted: {text}");
    }

    #[test]
    fn other_requests_are_rejected() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::new(Mutex::new(status()))).unwrap();
        let request = |text: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        assert!(request("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(request("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    }

    #[test]
    fn a_request_cannot_be_stretched_by_single_bytes() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::new(Mutex::new(status()))).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let start = Instant::now();
        // Each byte comes within any timeout of a single read.
        while stream.write_all(b"x").is_ok() {
            assert!(start.elapsed() < 10 * TIMEOUT, "never dropped");
            thread::sleep(TIMEOUT / 10);
        }
    }
}
