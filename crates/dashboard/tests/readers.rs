//! The page as chromium has it.
#![allow(clippy::unwrap_used, reason = "a test may end by panic")]

mod common;

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{page, sample};

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

/// An hour of samples is drawn; names of programs are text; nothing is loaded from elsewhere or refused.
#[test]
fn chromium_draws_an_hour_of_samples() {
    let page = page();
    for number in 0..3600 {
        page.publish("sample", &serde_json::to_string(&sample(number)).unwrap());
    }
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
    let (document, log) = finished(child, Duration::from_secs(90));
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
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
}
