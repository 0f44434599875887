//! The page in a real browser. `make test` installs chromium; without it these
//! tests fail, because a page that nobody loaded is not known to load.
#![allow(clippy::unwrap_used)]

#[path = "common/hosts.rs"]
mod hosts;
#[path = "common/improvement.rs"]
mod improvement;

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use clearstream_record::synthetic::{Shape, clearstream_40ge};
use clearstream_report::{html, improvement_html, machine_svg};

/// What the browser made of a file: its document, and what it logged.
struct Loaded {
    document: String,
    log: String,
}

fn load(file: &Path, scheme: &str) -> Loaded {
    let profile = tempfile::tempdir().unwrap();
    let mut child = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--dump-dom"])
        // No name can be looked up: a page that needs the network fails loudly.
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=8000"])
        .arg(format!("--blink-settings=preferredColorScheme={}", if scheme == "dark" { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("chromium starts: install it (apt-get install chromium), as `make test` does");
    let mut stdout = child.stdout.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let document = thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let log = thread::spawn(move || {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("chromium did not finish within two minutes");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Loaded { document: document.join().unwrap(), log: log.join().unwrap() }
}

/// Lines of a page's own console: errors, refused scripts, failed loads.
fn console(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("CONSOLE")).collect()
}

fn report(folder: &Path) -> String {
    let shape =
        Shape { repetitions: 3, seconds: 12, matrices: vec![8], failing_trial: Some(5), ..Shape::default() };
    let run = folder.join("run");
    let reader =
        clearstream_40ge(&run, &hosts::nehalem("dtn1"), &hosts::magny_cours("dtn2"), &shape).unwrap();
    html(&reader).unwrap()
}

#[test]
fn browser_loads_the_report_without_an_error_and_finds_every_figure() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path());
    let file = folder.path().join("report.html");
    fs::write(&file, &page).unwrap();
    let ids: Vec<&str> =
        page.split("<figure id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(ids.len() >= 10, "{ids:?}");
    for scheme in ["light", "dark"] {
        let loaded = load(&file, scheme);
        assert_eq!(console(&loaded.log), Vec::<&str>::new(), "{scheme}");
        for id in &ids {
            assert!(loaded.document.contains(&format!("<figure id=\"{id}\"")), "{id} in {scheme}");
        }
        // The script ran: its hash in the page's policy is right.
        assert!(loaded.document.contains("class=\"tip\""), "the script did not run: {}", loaded.log);
    }
}

/// Width of the page, drawings shown and their right end, in a window of a width with all tables open.
fn widths(page: &str, width: u32, folder: &Path) -> Vec<usize> {
    let inner = page.replace('&', "&amp;").replace('"', "&quot;");
    // The page in a frame as wide as the window; the frame's owner may ask how wide
    // its content became.
    let owner = format!(
        "<!doctype html><html><head><meta charset=\"utf-8\"></head><body><iframe id=\"phone\" width=\"{width}\" height=\"844\" style=\"border:0\" srcdoc=\"{inner}\"></iframe>\
         <script>document.getElementById('phone').addEventListener('load', function () {{\
           var inside = this.contentDocument;\
           inside.querySelectorAll('details').forEach(function (d) {{ d.open = true; }});\
           var shown = [].filter.call(inside.querySelectorAll('figure svg'), function (s) {{ return s.getBoundingClientRect().width > 0; }});\
           var widest = Math.max.apply(null, shown.map(function (s) {{ return s.getBoundingClientRect().right; }}));\
           var texts = [].concat.apply([], shown.map(function (s) {{ return [].slice.call(s.querySelectorAll('text')); }}));\
           var outside = texts.filter(function (t) {{ return t.getBoundingClientRect().right > t.ownerSVGElement.getBoundingClientRect().right + 1; }});\
           document.body.setAttribute('data-result', [inside.documentElement.scrollWidth, shown.length, Math.ceil(widest), outside.length].join(' '));\
         }});</script></body></html>"
    );
    let file = folder.join(format!("window-{width}.html"));
    fs::write(&file, owner).unwrap();
    let loaded = load(&file, "light");
    let result = loaded.document.split("data-result=\"").nth(1).expect("the frame loaded");
    result.split('"').next().unwrap().split(' ').map(|n| n.parse().unwrap()).collect()
}

#[test]
fn browser_shows_the_page_on_a_phone_without_sideways_scrolling() {
    let folder = tempfile::tempdir().unwrap();
    let page = report(folder.path());
    let numbers = widths(&page, 390, folder.path());
    let figures = page.matches("<figure id=").count();
    assert!(numbers[0] <= 390, "the page is {} wide", numbers[0]);
    assert_eq!(numbers[1], figures, "one drawing of each figure is shown");
    assert!(numbers[2] <= 390, "a drawing reaches to {}", numbers[2]);
}

#[test]
fn browser_shows_what_a_loop_tried_on_a_desktop_and_on_a_phone() {
    let folder = tempfile::tempdir().unwrap();
    let page = improvement_html(&improvement::loop_of_five()).unwrap();
    let file = folder.path().join("improvement.html");
    fs::write(&file, &page).unwrap();
    for scheme in ["light", "dark"] {
        let loaded = load(&file, scheme);
        assert_eq!(console(&loaded.log), Vec::<&str>::new(), "{scheme}");
        assert!(loaded.document.contains("class=\"tip\""), "the script did not run: {}", loaded.log);
    }
    for width in [390, 1200] {
        let numbers = widths(&page, width, folder.path());
        assert!(numbers[0] <= width as usize, "the page is {} wide in {width}", numbers[0]);
        assert_eq!(numbers[1], 1, "the drawing for this width alone");
        assert!(numbers[2] <= width as usize, "the drawing reaches to {} in {width}", numbers[2]);
        assert_eq!(numbers[3], 0, "texts that leave the drawing in {width}");
    }
    // Text of others does not break out of its place in a real browser either.
    let hostile =
        improvement_html(&improvement::hostile("</text></svg><script>document.title = 1</script>")).unwrap();
    fs::write(&file, hostile).unwrap();
    let loaded = load(&file, "light");
    assert_eq!(console(&loaded.log), Vec::<&str>::new());
    assert_eq!(loaded.document.matches("<script").count(), 1);
}

#[test]
fn browser_reads_the_picture_of_a_machine() {
    let folder = tempfile::tempdir().unwrap();
    for host in [hosts::virtual_machine("vm"), hosts::nehalem("dtn1"), hosts::magny_cours("dtn2")] {
        let file = folder.path().join("machine.svg");
        fs::write(&file, machine_svg(&host)).unwrap();
        let loaded = load(&file, "dark");
        assert_eq!(console(&loaded.log), Vec::<&str>::new());
        assert!(!loaded.document.contains("parsererror"), "{}: not well-formed", host.name);
        assert_eq!(
            loaded.document.matches("data-tip=\"core ").count(),
            host.processing_units.len(),
            "{}",
            host.name
        );
    }
}
