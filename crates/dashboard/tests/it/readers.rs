//! The page as chromium has it.

use crate::common;
use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use crate::common::{page, sample};
use clearstream_dashboard::{Content, Dashboard, StateRow, StateTable};
use serde_json::json;

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

/// The same with a text in it: chromium may print the document before the frame in which the page draws.
fn drawn_with(page: &Dashboard, text: &str) -> (String, String) {
    let mut found = drawn(page);
    for _ in 0..9 {
        if found.0.contains(text) {
            break;
        }
        found = drawn(page);
    }
    assert!(found.0.contains(text), "{text}:\n{}\n{}", found.0, found.1);
    found
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

/// A host without samples is named with the reason; when it is back the page goes on, with a gap where it was away.
#[test]
fn chromium_names_a_lost_host_until_it_is_back() {
    let lost = json!({"host": "dtn1", "time": "2026-11-24T12:00:20Z", "reason": "the agent <i>ended</i>"});
    let add = |page: &Dashboard, numbers: std::ops::Range<u32>| {
        for number in numbers {
            page.publish("sample", &serde_json::to_string(&sample(number)).unwrap());
        }
    };
    let page = common::page();
    add(&page, 0..20);
    page.publish("lost", &lost.to_string());
    let (document, log) = drawn_with(&page, "the agent &lt;i&gt;ended&lt;/i&gt;</span>");
    assert!(document.contains("no samples since ") && !document.contains("class=\"gap\""), "{document}");
    assert_quiet(&log);

    let page = common::page();
    add(&page, 0..20);
    page.publish("lost", &lost.to_string());
    add(&page, 30..40);
    let (document, log) = drawn_with(&page, "class=\"gap\"");
    assert!(!document.contains("no samples since "), "{document}\n{log}");
    assert_quiet(&log);
}

/// Progress, trials and notices are text; the report is drawn with its own style, as high as it is, and stays at the end.
#[test]
fn chromium_follows_a_study_to_its_report() {
    let content = Content::Study {
        title: "window <b>sweep</b>".to_owned(),
        script_hash: "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    };
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
    let content = Content::Study {
        title: "window".to_owned(),
        script_hash: "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    };
    let page = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
    page.set_report("<!doctype html><title>final</title>".to_owned());
    page.publish("finished", &json!({"text": "12 of 12 trials done"}).to_string());
    let (document, log) = drawn(&page);
    for part in ["12 of 12 trials done", "class=\"panel over\"", "<p id=\"cell\"></p>", "version=1"] {
        assert!(document.contains(part), "{part}:\n{document}\n{log}");
    }
    assert_quiet(&log);
}

/// The state is in tables, faults are marked, the newest event is the first; names are text.
#[test]
fn chromium_shows_the_state_of_a_daemon() {
    let row = |cells: [&str; 2], bad| StateRow { cells: cells.map(str::to_owned).to_vec(), bad };
    let state = move || {
        let head = ["gateway", ">lost"].map(str::to_owned).to_vec();
        let rows = vec![row(["gw1", "0"], false), row(["<i>gw2</i>", "17"], true)];
        let none = StateTable { title: "sessions".to_owned(), ..StateTable::default() };
        vec![StateTable { title: "storage <b>IPv4</b>".to_owned(), head, rows }, none]
    };
    let content = Content::Status { title: "route watch: c1".to_owned(), state: Arc::new(state) };
    let page = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
    page.publish_event("2026-11-26T12:00:01.5Z", "gw2 <i>removed</i>", true);
    page.publish_event("2026-11-26T12:00:02.5Z", "gw2 restored", false);
    let (document, log) = drawn(&page);
    for part in [
        "<h1>route watch: c1</h1>",
        "<h3>storage &lt;b&gt;IPv4&lt;/b&gt;</h3>",
        "<th class=\"number\">lost</th>",
        "<tr><td data-label=\"gateway\">gw1</td><td class=\"number\" data-label=\"lost\">0</td></tr>",
        "<tr class=\"bad\"><td data-label=\"gateway\">&lt;i&gt;gw2&lt;/i&gt;</td>",
        "<h3>sessions</h3><p>none</p>",
        "2026-11-26 12:00:02</time> gw2 restored</li><li class=\"bad\">",
        "gw2 &lt;i&gt;removed&lt;/i&gt;</li>",
    ] {
        assert!(document.contains(part), "{part}:\n{document}\n{log}");
    }
    assert_quiet(&log);
}
