//! Counters for Prometheus: how things stand, in the text exposition format
//! 0.0.4, over HTTP.

use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use clearstream_schema::watch::{GatewayStatus, WatchStatus, WayStatus};

use super::WatchError;

/// Time for a question to arrive and for an answer to leave.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest head of a question.
const MOST_BYTES: usize = 8192;

/// How things stood last, for whoever asks.
pub(super) type Shared = Arc<Mutex<WatchStatus>>;

/// Serves `GET /metrics` on a thread that ends with the process; returns the
/// address, whose port is the kernel's choice when 0 was asked for.
pub(super) fn serve(address: SocketAddr, status: Shared) -> Result<SocketAddr, WatchError> {
    let fail = |source| WatchError::Metrics { address, source };
    let listener = TcpListener::bind(address).map_err(fail)?;
    let local = listener.local_addr().map_err(fail)?;
    let listen = move || {
        for stream in listener.incoming().flatten() {
            // Who asks wrongly, slowly or not at all gets nothing.
            let _ = answer(stream, &status);
        }
    };
    thread::Builder::new().name("watch-metrics".to_owned()).spawn(listen).map_err(fail)?;
    Ok(local)
}

fn answer(mut stream: TcpStream, status: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
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
    let mut words = head.split_whitespace();
    let (code, kind, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => {
            let status = status.lock().unwrap_or_else(PoisonError::into_inner).clone();
            ("200 OK", "text/plain; version=0.0.4; charset=utf-8", exposition(&status))
        }
        (Some("GET"), _) => ("404 Not Found", "text/plain", "ask for /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "ask with GET\n".to_owned()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// One family of samples: name, kind, what it is.
struct Family(&'static str, &'static str, &'static str);

/// The text that Prometheus reads.
pub(super) fn exposition(status: &WatchStatus) -> String {
    let mut text = String::new();
    of_watch(&mut text, status);
    of_ways(&mut text, status);
    of_gateways(&mut text, status);
    text
}

fn of_watch(text: &mut String, status: &WatchStatus) {
    let host = label(&status.host);
    let fabric = label(&status.fabric);
    let rows: [(Family, f64); 6] = [
        (Family("running_seconds", "gauge", "Time since the watch began."), status.running_ns as f64 / 1e9),
        (Family("served_total", "counter", "Probes of other hosts answered."), status.served_count as f64),
        (Family("changes_total", "counter", "Changes of next hops."), status.change_count as f64),
        (
            Family("failed_changes_total", "counter", "Changes of next hops that the kernel refused."),
            status.failed_change_count as f64,
        ),
        (
            Family("repairs_total", "counter", "Next hops changed by somebody else and put right."),
            status.repair_count as f64,
        ),
        (Family("ways", "gauge", "Ways to far networks that are watched."), status.ways.len() as f64),
    ];
    for (family, value) in rows {
        head(text, &family);
        let _ = writeln!(text, "clearstream_watch_{}{{host={host},fabric={fabric}}} {value}", family.0);
    }
}

fn of_ways(text: &mut String, status: &WatchStatus) {
    type Value = fn(&WayStatus) -> f64;
    let rows: [(Family, Value); 3] = [
        (Family("heard", "gauge", "1 while some far host answers."), |way| f64::from(u8::from(way.heard))),
        (Family("interval_seconds", "gauge", "Time between rounds while nothing fails."), |way| {
            way.interval_ns as f64 / 1e9
        }),
        (Family("gateways_used", "gauge", "Gateways among the next hops."), |way| {
            way.gateways.iter().filter(|gateway| gateway.used).count() as f64
        }),
    ];
    for (family, value) in rows {
        head(text, &family);
        for way in &status.ways {
            let _ = writeln!(text, "clearstream_watch_{}{{{}}} {}", family.0, of_way(way), value(way));
        }
    }
}

fn of_gateways(text: &mut String, status: &WatchStatus) {
    type Value = fn(&GatewayStatus) -> Option<f64>;
    let rows: [(Family, Value); 13] = [
        (Family("gateway_used", "gauge", "1 while it is among the next hops."), |gateway| {
            Some(f64::from(u8::from(gateway.used)))
        }),
        (Family("gateway_drained", "gauge", "1 while an operator has drained it."), |gateway| {
            Some(f64::from(u8::from(gateway.drained)))
        }),
        (Family("gateway_session_up", "gauge", "1 while a routing daemon's BFD session is up."), |gateway| {
            gateway.session_up.map(|up| f64::from(u8::from(up)))
        }),
        (Family("gateway_round_trip_seconds", "gauge", "Last round trip through it."), |gateway| {
            gateway.round_trip_ns.map(|time| time as f64 / 1e9)
        }),
        (Family("gateway_probes_sent_total", "counter", "Probes sent through it."), |gateway| {
            Some(gateway.counts.sent_count as f64)
        }),
        (Family("gateway_probes_answered_total", "counter", "Probes answered in time."), |gateway| {
            Some(gateway.counts.answered_count as f64)
        }),
        (Family("gateway_probes_lost_total", "counter", "Probes lost that others carried."), |gateway| {
            Some(gateway.counts.lost_count as f64)
        }),
        (
            Family("gateway_tcp_probes_sent_total", "counter", "Of the probes sent, those by TCP."),
            |gateway| Some(gateway.counts.tcp_sent_count as f64),
        ),
        (
            Family("gateway_tcp_probes_answered_total", "counter", "Of the probes answered, those by TCP."),
            |gateway| Some(gateway.counts.tcp_answered_count as f64),
        ),
        (Family("gateway_loss_ratio", "gauge", "Share of the last probes that were lost."), |gateway| {
            gateway.loss_ratio
        }),
        (Family("gateway_buckets", "gauge", "Buckets of the resilient group."), |gateway| {
            gateway.bucket_count.map(f64::from)
        }),
        (Family("gateway_outs_total", "counter", "Times that it was taken out."), |gateway| {
            Some(gateway.counts.out_count as f64)
        }),
        (Family("gateway_ins_total", "counter", "Times that it was put back."), |gateway| {
            Some(gateway.counts.in_count as f64)
        }),
    ];
    for (family, value) in rows {
        let samples: Vec<String> = status
            .ways
            .iter()
            .flat_map(|way| way.gateways.iter().map(move |gateway| (way, gateway)))
            .filter_map(|(way, gateway)| {
                let name = label(&gateway.name);
                let value = value(gateway)?;
                Some(format!("clearstream_watch_{}{{{},gateway={name}}} {value}\n", family.0, of_way(way)))
            })
            .collect();
        if !samples.is_empty() {
            head(text, &family);
            text.extend(samples);
        }
    }
}

fn head(text: &mut String, Family(name, kind, help): &Family) {
    let _ = writeln!(text, "# HELP clearstream_watch_{name} {help}\n# TYPE clearstream_watch_{name} {kind}");
}

fn of_way(way: &WayStatus) -> String {
    format!("network={},family={}", label(&way.way.network), label(&way.way.family.to_string()))
}

/// A value of a label, with the escapes of the format.
fn label(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use clearstream_schema::watch::{
        Family, GatewayCounts, NeighbourWord, OutReason, WATCH_STATUS_SCHEMA, Way,
    };

    use super::*;

    fn status() -> WatchStatus {
        let gateway = |name: &str, used, session_up| GatewayStatus {
            name: name.to_owned(),
            address: "10.100.0.91".parse().unwrap(),
            used,
            drained: false,
            reason: (!used).then_some(OutReason::NoAnswer),
            neighbour: NeighbourWord::Known,
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
            ways: vec![WayStatus {
                way: Way { network: "storage".to_owned(), family: Family::Ipv4 },
                interval_ns: 20_000_000,
                targets: vec!["10.10.0.201".parse().unwrap()],
                heard: true,
                tcp_heard: Some(true),
                group: None,
                gateways: vec![gateway("gw1", true, None), gateway("gw2", false, Some(false))],
            }],
        }
    }

    /// Oracle: the parser of the Prometheus client library, over HTTP as a
    /// scraper asks.
    #[test]
    fn a_scraper_reads_the_counters() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::new(Mutex::new(status()))).unwrap();
        let program = r#"
import sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families
answer = urllib.request.urlopen(sys.argv[1], timeout=5)
assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4"), answer.headers
for family in text_string_to_metric_families(answer.read().decode()):
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
        assert!(!text.contains("gateway_session_up|None|gw1"), "what nobody knows is not told: {text}");
    }

    #[test]
    fn other_questions_are_refused() {
        let address = serve("127.0.0.1:0".parse().unwrap(), Arc::new(Mutex::new(status()))).unwrap();
        let ask = |question: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(question.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask("POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    }
}
