//! A page in a real browser.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Result of the browser for a file: its document, and its log.
pub(crate) struct Loaded {
    pub(crate) document: String,
    pub(crate) log: String,
}

pub(crate) fn load(file: &Path, scheme: &str) -> Loaded {
    let profile = tempfile::tempdir().unwrap();
    let mut child = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-dev-shm-usage", "--enable-logging=stderr", "--dump-dom"])
        // No name can be resolved: a page that needs the network fails loudly.
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
pub(crate) fn console(log: &str) -> Vec<&str> {
    log.lines().filter(|line| line.contains("CONSOLE")).collect()
}

/// Results of a script of the frames' owner on pages, each in a window of its width: `script` has a page's document as
/// `inside` and returns a text. One browser for all of them: it needs seconds to start.
pub(crate) fn evaluated(pages: &[(&str, u32)], folder: &Path, script: &str) -> Vec<String> {
    let frame = |(number, (page, width)): (usize, &(&str, u32))| {
        let inner = page.replace('&', "&amp;").replace('"', "&quot;");
        format!(
            "<iframe id=\"window-{number}\" width=\"{width}\" height=\"900\" style=\"border:0\" onload=\"loaded(this)\" srcdoc=\"{inner}\"></iframe>"
        )
    };
    let frames: String = pages.iter().enumerate().map(frame).collect();
    let owner = format!(
        "<!doctype html><html><head><meta charset=\"utf-8\"><script>\
         function loaded(frame) {{\
           var result = (function (inside) {{ {script} }})(frame.contentDocument);\
           frame.setAttribute('data-result', encodeURIComponent(result) + '.');\
         }}</script></head><body>{frames}</body></html>"
    );
    let file = folder.join("evaluated.html");
    fs::write(&file, owner).unwrap();
    let loaded = load(&file, "light");
    let results = loaded.document.split("<iframe id=\"window-").skip(1).map(|frame| {
        // Attributes are printed as they were set, the result last.
        let result = frame.split("\" data-result=\"").nth(1);
        let result = result.unwrap_or_else(|| panic!("the script did not end: {}", loaded.log));
        decoded(result.split_once(".\"").unwrap().0)
    });
    let results: Vec<_> = results.collect();
    assert_eq!(results.len(), pages.len(), "{}", loaded.log);
    results
}

/// A page in the windows of a desktop and of a phone.
pub(crate) fn both_widths(page: &str) -> [(&str, u32); 2] {
    [1440, 390].map(|width| (page, width))
}

/// Percent-encoding (RFC 3986, section 2.1) undone.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: Vec<u8> = rest.by_ref().take(2).collect();
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).unwrap()
}
