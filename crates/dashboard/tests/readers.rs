//! The page as chromium has it, and the metrics as Prometheus has them.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{
    fs,
    io::Read as _,
    net::TcpListener,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_dashboard::{Content, Dashboard, LiveMetrics};
use clearstream_schema::live::LiveSample;
use common::{exchange, page, request};
use serde_json::{Value, json};

/// A second in which `eth0` received 1.25 GB: 10 Gb/s.
fn sample(number: u32) -> LiveSample {
    let time = format!("2026-11-24T12:{:02}:{:02}Z", number / 60 % 60, number % 60);
    let core = json!({"core": 0, "user_ns": 250_000_000, "system_ns": 0, "softirq_ns": 500_000_000, "irq_ns": 0,
        "idle_ns": 250_000_000, "net_rx_count": 0, "interrupt_count": 0, "softnet_processed_count": 0,
        "softnet_dropped_count": 3, "softnet_squeezed_count": 0});
    let interface = json!({"name": "eth0", "receive_bytes": 1_250_000_000u64, "receive_packet_count": 150_000,
        "receive_error_count": 0, "receive_drop_count": 7, "send_bytes": 125_000, "send_packet_count": 10,
        "send_error_count": 0, "send_drop_count": 0});
    serde_json::from_value(json!({
        "schema": "clearstream.live-sample", "version": 1, "host": "dtn1", "time": time,
        "interval_ns": 1_000_000_000, "counters": {"cores": [core], "interfaces": [interface]},
        "places": [{"core": 0, "node": 0, "package": 0}],
        "tcp": {"sent_segment_count": 0, "received_segment_count": 0, "retransmit_count": 12, "reset_count": 0,
            "receive_error_count": 0, "open_count": 0, "established_count": 4, "memory_bytes": 0},
        "connections": [{"local": "192.0.2.1:5201", "remote": "192.0.2.2:40000", "program": "<img src=x> (17)",
            "out_bps": 0.0, "in_bps": 9.9e9, "rtt_ns": 17_000_000, "retransmit_count": 12,
            "limit": "receiver-window", "sentence": "the window of 6.00 MiB"}],
        "connections_ns": 3_000_000_000u64, "connection_count": 4,
        "paths": [{"network": "storage", "family": "ipv4", "interval_ns": 100_000_000, "targets": [], "heard": true,
            "gateways": [{"name": "gw1", "address": "192.0.2.9", "used": false, "drained": false,
                "neighbour": "failed", "sent_count": 9, "answered_count": 0, "lost_count": 9, "out_count": 1,
                "in_count": 0}]}],
    }))
    .unwrap()
}

fn finished(mut child: Child, limit: Duration) -> (String, String) {
    let mut pipes = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let errors = thread::spawn(move || {
        let mut text = Vec::new();
        pipes.1.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let output = thread::spawn(move || {
        let mut text = Vec::new();
        pipes.0.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > limit {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(50));
    }
    (output.join().unwrap(), errors.join().unwrap())
}

/// The page after its stream ended: its document, and what chromium logged.
fn drawn(page: &Dashboard) -> (String, String) {
    // The page closes its stream, and chromium prints what is drawn once nothing is pending.
    page.publish("end", "{}");
    let profile = tempfile::tempdir().unwrap();
    let child = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args([
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--dump-dom",
            "--virtual-time-budget=8000",
        ])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(page.link())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("chromium starts: .ci/install test");
    finished(child, Duration::from_secs(90))
}

/// Nothing was refused by the policy of the page, and no script failed.
fn assert_quiet(log: &str) {
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
}

/// An hour of samples is drawn; names of programs are text; nothing is loaded from elsewhere or refused.
#[test]
fn chromium_draws_an_hour_of_samples() {
    let page = page();
    for number in 0..3600 {
        page.publish("sample", &serde_json::to_string(&sample(number)).unwrap());
    }
    let (document, log) = drawn(&page);
    for part in [
        "10.0 Gb/s, 150 kp/s",
        "1.00 Mb/s, 10.0 p/s",
        "7 dropped",
        "softnet: 3 dropped",
        "user 25 %, softirq 50 %",
        "&lt;img src=x&gt; (17)",
        "9.90 Gb/s",
        "17.0 ms",
        "receiver-window: the window of 6.00 MiB",
        "Busiest connections of 4",
        "12:59:59",
        "<td>gw1</td><td class=\"bad\">out</td>",
    ] {
        assert!(document.contains(part), "{part}:\n{document}\n{log}");
    }
    assert!(!document.contains("<img"), "{document}");
    assert_quiet(&log);
}

/// Progress, trials and notices are text; the report is drawn with its own style, as high as it is, and stays at the end.
#[test]
fn chromium_follows_a_study_to_its_report() {
    let content = Content::Study { title: "window <b>sweep</b>".to_owned() };
    let page = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
    let progress = json!({"planned_count": 12, "done_count": 3, "failed_count": 1, "skipped_count": 0,
        "left_ns": 7_200_000_000_000u64, "cell": "4/12 window"});
    page.publish("progress", &progress.to_string());
    page.publish("notice", &json!({"message": "<i>two</i> repetitions"}).to_string());
    page.publish(
        "trial",
        &json!({"cell": "3/12 window", "text": "failed: <i>x</i>", "failed": true}).to_string(),
    );
    page.set_report("<!doctype html><title>first</title>".to_owned());
    page.set_report("<!doctype html><style>h1 { height: 777px }</style><h1>report</h1>".to_owned());
    let (document, log) = drawn(&page);
    for part in [
        "<h1>window &lt;b&gt;sweep&lt;/b&gt;</h1>",
        "value=\"3\"",
        "3 of 12 trials, 1 failed; time left 2.0 h",
        "4/12 window",
        "<li>&lt;i&gt;two&lt;/i&gt; repetitions</li>",
        "<li class=\"bad\">3/12 window: failed: &lt;i&gt;x&lt;/i&gt;</li>",
        "version=2",
    ] {
        assert!(document.contains(part), "{part}:\n{document}\n{log}");
    }
    let height = document.split_once("style=\"height: ").unwrap().1.split_once("px").unwrap().0;
    assert!((777..1000).contains(&height.parse::<u32>().unwrap()), "{document}");
    assert_quiet(&log);
}

#[test]
fn chromium_has_the_report_alone_when_a_study_has_ended() {
    let content = Content::Study { title: "window".to_owned() };
    let page = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
    page.set_report("<!doctype html><title>final</title>".to_owned());
    page.publish("finished", &json!({"text": "12 of 12 trials done"}).to_string());
    let (document, log) = drawn(&page);
    for part in ["12 of 12 trials done", "class=\"panel over\"", "<p id=\"cell\"></p>", "version=1"] {
        assert!(document.contains(part), "{part}:\n{document}\n{log}");
    }
    assert_quiet(&log);
}

fn metrics_server() -> (LiveMetrics, Dashboard) {
    let metrics = LiveMetrics::default();
    let content = Content::Metrics(metrics.exposition());
    let server = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
    (metrics, server)
}

/// A real Prometheus scrapes them: sums, labels and types are what was published.
#[test]
fn prometheus_scrapes_the_metrics() {
    let (metrics, server) = metrics_server();
    for number in 0..3 {
        metrics.add(&sample(number));
    }
    metrics.lose("dtn2");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let targets = server.address();
    fs::write(
        &config,
        format!("global: {{scrape_interval: 1s}}\nscrape_configs: [{{job_name: live, static_configs: [{{targets: ['{targets}']}}]}}]\n"),
    )
    .unwrap();
    // Freed before Prometheus binds it.
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={own}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("prometheus starts: .ci/install test");
    let query = |text: &str| -> Option<Value> {
        std::net::TcpStream::connect(own).ok()?;
        let head = request(
            &format!("GET /api/v1/query?query={text}"),
            &[&format!("Host: {own}"), "Connection: close", "Accept-Encoding: identity"],
        );
        let reply = exchange(own, &head);
        let (_, body) = reply.split_once("\r\n\r\n")?;
        let document: Value = serde_json::from_str(body).ok()?;
        document["data"]["result"].as_array().filter(|found| !found.is_empty())?;
        Some(document["data"]["result"].clone())
    };
    let begun = Instant::now();
    let received = loop {
        match query("clearstream_live_interface_bytes_total") {
            Some(found) => break Some(found),
            None if begun.elapsed() > Duration::from_secs(60) => break None,
            None => thread::sleep(Duration::from_millis(200)),
        }
    };
    let others = [
        "clearstream_live_core_seconds_total%7Bmode%3D%22softirq%22%7D",
        "clearstream_live_host_up%7Bhost%3D%22dtn2%22%7D",
        "clearstream_live_connections_limited",
        "up",
    ]
    .map(query);
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    let received = received.expect("Prometheus has scraped");
    let series =
        received.as_array().unwrap().iter().find(|one| one["metric"]["direction"] == "receive").unwrap();
    assert_eq!(series["metric"]["interface"], "eth0");
    assert_eq!(series["metric"]["host"], "dtn1");
    assert_eq!(series["value"][1], "3750000000");
    let values = others.map(|found| found.unwrap()[0]["value"][1].clone());
    assert_eq!(values, ["1.5", "0", "1", "1"]);
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
    let (metrics, server) = metrics_server();
    metrics.add(&sample(0));
    let text = exchange(server.address(), &request("GET /metrics", &["Host: any.example"]));
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
