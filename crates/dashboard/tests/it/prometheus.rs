//! The metrics as Prometheus has them, of all three servers.

use std::{
    fs,
    io::Write as _,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::common::{exchange, request, sample};
use clearstream_dashboard::{
    Content, Dashboard, LiveMetrics, ServeCounts, serve_exposition, watch_exposition,
};
use clearstream_schema::watch::WatchStatus;
use serde_json::{Value, json};

fn server(exposition: clearstream_dashboard::Exposition) -> Dashboard {
    Dashboard::start("127.0.0.1:0".parse().unwrap(), Content::Metrics(exposition)).unwrap()
}

fn of_live() -> (LiveMetrics, Dashboard) {
    let metrics = LiveMetrics::default();
    let server = server(metrics.exposition());
    (metrics, server)
}

fn of_watch() -> Dashboard {
    let gateway = json!({"name": "gw1", "address": "192.0.2.9", "used": true, "drained": false, "neighbour": "known",
        "sent_count": 9, "answered_count": 7, "lost_count": 2, "out_count": 1, "in_count": 0});
    let status: WatchStatus = serde_json::from_value(json!({
        "schema": "clearstream.watch-status", "version": 1, "host": "dtn1", "fabric": "six", "running_ns": 1_500_000_000,
        "served_count": 3, "change_count": 1, "failed_change_count": 0, "repair_count": 0, "restored_count": 0,
        "ways": [{"network": "storage", "family": "ipv4", "interval_ns": 100_000_000, "targets": [], "installed": true, "heard": true,
            "gateways": [gateway]}],
    }))
    .unwrap();
    server(watch_exposition(Arc::new(Mutex::new(status))))
}

fn of_serve() -> Dashboard {
    server(serve_exposition(|| ServeCounts {
        session_count: 5,
        failed_count: 1,
        refused_count: 17,
        open_count: 2,
        calls: vec![("flow-start".to_owned(), true, 3), ("flow-start".to_owned(), false, 1)],
        transfers: vec![("flow", [1 << 40, 7])],
    }))
}

/// Prometheus, ended with the test.
struct Prometheus {
    child: Child,
    address: SocketAddr,
}

impl Prometheus {
    fn scraping(folder: &Path, targets: &[SocketAddr]) -> Self {
        let config = folder.join("prometheus.yml");
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let targets = targets.join(", ");
        fs::write(
            &config,
            format!("global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: all, static_configs: [{{targets: [{targets}]}}]}}]\n"),
        )
        .unwrap();
        // Freed before Prometheus binds it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("prometheus starts: .ci/install test");
        Self { child, address }
    }

    /// Its series of an expression, percent-encoded; `None` while there are none.
    fn query(&self, text: &str) -> Option<Vec<Value>> {
        std::net::TcpStream::connect(self.address).ok()?;
        let head = request(
            &format!("GET /api/v1/query?query={text}"),
            &[&format!("Host: {}", self.address), "Connection: close", "Accept-Encoding: identity"],
        );
        let reply = exchange(self.address, &head);
        let (_, body) = reply.split_once("\r\n\r\n")?;
        let document: Value = serde_json::from_str(body).ok()?;
        document["data"]["result"].as_array().filter(|found| !found.is_empty()).cloned()
    }

    /// The values of an expression, once there are some.
    fn values(&self, text: &str) -> Vec<String> {
        let begun = Instant::now();
        loop {
            match self.query(text) {
                Some(found) => {
                    return found.iter().map(|one| one["value"][1].as_str().unwrap().to_owned()).collect();
                }
                None if begun.elapsed() > Duration::from_secs(60) => panic!("{text} was not scraped"),
                None => thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A real Prometheus scrapes them: sums, labels and types are what was published.
#[test]
fn prometheus_scrapes_live_watch_and_serve() {
    let (metrics, live) = of_live();
    for number in 0..3 {
        metrics.add(&sample(number));
    }
    metrics.lose("dtn2");
    let (watch, serve) = (of_watch(), of_serve());
    let folder = tempfile::tempdir().unwrap();
    let targets = [live.address(), watch.address(), serve.address()];
    let prometheus = Prometheus::scraping(folder.path(), &targets);
    for (expression, expected) in [
        (
            "clearstream_live_interface_bytes_total%7Binterface%3D%22eth0%22,direction%3D%22receive%22,host%3D%22dtn1%22%7D",
            "3750000000",
        ),
        ("clearstream_live_core_seconds_total%7Bmode%3D%22softirq%22%7D", "1.5"),
        ("clearstream_live_host_up%7Bhost%3D%22dtn2%22%7D", "0"),
        ("clearstream_live_connections_limited", "1"),
        ("clearstream_watch_gateway_probes_lost_total%7Bgateway%3D%22gw1%22,network%3D%22storage%22%7D", "2"),
        ("clearstream_watch_gateway_used", "1"),
        ("clearstream_serve_sessions_total", "5"),
        ("clearstream_serve_sessions_open", "2"),
        ("clearstream_serve_refused_total", "17"),
        ("clearstream_serve_calls_total%7Bcall%3D%22flow-start%22,outcome%3D%22failed%22%7D", "1"),
        ("clearstream_serve_test_bytes_total%7Btest%3D%22flow%22,direction%3D%22send%22%7D", "1099511627776"),
    ] {
        assert_eq!(prometheus.values(expression), [expected], "{expression}");
    }
    // All three were scraped without an error.
    assert_eq!(prometheus.values("up"), ["1", "1", "1"]);
}

/// Names, types and descriptions by the conventions that promtool knows.
#[test]
fn promtool_finds_nothing_wrong() {
    let (metrics, live) = of_live();
    metrics.add(&sample(0));
    for server in [live, of_watch(), of_serve()] {
        let host = format!("Host: {}", server.address());
        let reply = exchange(server.address(), &request("GET /metrics", &[&host, "Accept: */*"]));
        let (head, text) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("text/plain; version=0.0.4"), "{head}");
        let mut promtool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool starts: .ci/install test");
        promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{stderr}\n{text}");
    }
}

/// Alert rules: valid, and they fire and stop as their tests say; the dashboard of Grafana asks for metrics that exist.
#[test]
fn rules_and_dashboard_use_metrics_that_exist() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../extras/prometheus");
    for (verb, file) in [("check", "alerts.yml"), ("test", "alerts.test.yml")] {
        let output = Command::new("promtool").args([verb, "rules", file]).current_dir(folder).output();
        let output = output.expect("promtool starts: .ci/install test");
        assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stdout));
    }
    let (metrics, server) = of_live();
    metrics.add(&sample(0));
    let host = format!("Host: {}", server.address());
    let text = exchange(
        server.address(),
        &request("GET /metrics", &[&host, "Accept: application/openmetrics-text"]),
    );
    assert!(text.contains("openmetrics-text; version=1.0.0") && text.ends_with("# EOF\n"), "{text}");
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(format!("{folder}/grafana.json")).unwrap()).unwrap();
    let rules = fs::read_to_string(format!("{folder}/alerts.yml")).unwrap();
    let mut used: Vec<String> = Vec::new();
    for text in [dashboard.to_string(), rules] {
        for (place, _) in text.match_indices("clearstream_live_") {
            let name: String =
                text[place..].chars().take_while(|one| one.is_ascii_alphanumeric() || *one == '_').collect();
            used.push(name.strip_suffix("_total").unwrap_or(&name).to_owned());
        }
    }
    assert!(used.len() >= 10, "{used:?}");
    for name in used {
        assert!(names.contains(&name.as_str()), "{name} is no metric: {names:?}");
    }
}
