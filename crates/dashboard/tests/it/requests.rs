//! Who is served, and who is not: strangers, other pages, oversized and slow requests, browsers that do not read.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use clearstream_dashboard::{Content, Dashboard};

use crate::common::{connected, exchange, page, read_until, reader, request, token};

#[test]
fn two_hundred_hostile_requests_get_nothing_and_disturb_nobody() {
    let page = page();
    let (address, token) = (page.address(), token(&page));
    let own = format!("Host: {address}");
    let link = format!("/?token={token}");
    page.publish("sample", "{\"secret\":1}");
    let mut good = reader(&page, &[]);
    read_until(&mut good, "secret");
    let get = |path: &str| format!("GET {path}");
    let long = format!("X-Long: {}", "x".repeat(20_000));
    let wrong = format!("/?token={}", "0".repeat(token.len()));
    let kinds: Vec<Vec<u8>> = vec![
        request(&get("/"), &[&own]),
        request(&get("/events"), &[&own]),
        request(&get("/live.js"), &[&own]),
        request(&get(&wrong), &[&own]),
        request(&get(&format!("/events?token={}", &token[..31])), &[&own]),
        request(&get(&link), &["Host: evil.example"]),
        request(&get(&link), &[&format!("Host: evil.example:{}", address.port())]),
        request(&get(&link), &[]),
        request(&get(&link), &[&own, "Origin: http://evil.example"]),
        request(&get(&link), &[&own, "Origin: null"]),
        request(&get(&link), &[&own, &long]),
        request(&format!("POST {link}"), &[&own, "Content-Length: 0"]),
        request(&format!("DELETE {link}"), &[&own]),
        request(&format!("OPTIONS {link}"), &[&own]),
        request(&get(&format!("/../../etc/passwd?token={token}")), &[&own]),
        request(&get(&format!("/metrics?token={token}")), &[&own]),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"\0\0\0\0\r\n\r\n".to_vec(),
        vec![b'A'; 1 << 16],
    ];
    for number in 0..200 {
        let reply = exchange(address, &kinds[number % kinds.len()]);
        assert!(!reply.starts_with("HTTP/1.1 200"), "{number}: {reply}");
        assert!(!reply.contains("secret") && !reply.contains(&token), "{number}: {reply}");
        page.publish("sample", &format!("{{\"number\":{number}}}"));
    }
    let all = read_until(&mut good, "{\"number\":199}");
    for number in 0..200 {
        assert_eq!(all.matches(&format!("{{\"number\":{number}}}")).count(), 1, "{number}");
    }
    assert_eq!(page.missed_count(), 0);
}

fn metrics(address: &str) -> Dashboard {
    let content = Content::Metrics(Arc::new(|| Ok("# EOF\n".to_owned())));
    Dashboard::start(address.parse().unwrap(), content).unwrap()
}

/// Hosts, origins and targets of a request: which the page and the metrics take, and with which status they refuse
/// others. What no line names is decided by the first of a pair nowhere.
#[test]
fn hosts_and_targets_of_others_are_refused() {
    let (page, metrics, any) = (page(), metrics("127.0.0.1:0"), metrics("0.0.0.0:0"));
    let link = format!("/?token={}", token(&page));
    let check = |server: &Dashboard, path: &str, cases: &[(&str, &[&str], u16)]| {
        let (own, port) = (format!("127.0.0.1:{}", server.address().port()), server.address().port());
        for (target, lines, status) in cases {
            let fill = |text: &str| text.replace("OWN", &own).replace("PORT", &port.to_string());
            let lines: Vec<String> = lines.iter().map(|line| fill(line)).collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let first = format!("GET {}{path}", fill(target));
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            let reply = exchange(address, &request(&first, &lines));
            assert!(reply.starts_with(&format!("HTTP/1.1 {status} ")), "{first} {lines:?}: {reply}");
        }
    };
    let loopback: &[(&str, &[&str], u16)] = &[
        ("", &["Host: OWN"], 200),
        ("", &["Host: localhost:PORT"], 200),
        ("", &["Host: OWN", "Origin: http://OWN"], 200),
        ("http://OWN", &["Host: OWN"], 200),
        ("", &["Host: evil.example:PORT"], 421),
        ("", &["Host: evil.example"], 421),
        ("", &["Host: OWN.evil.example:PORT"], 421),
        ("", &["Host: localhost.evil.example:PORT"], 421),
        ("", &["Host: user@OWN"], 421),
        ("", &["Host:"], 421),
        ("", &[], 421),
        ("", &["Host: OWN", "Host: OWN"], 400),
        ("", &["Host: OWN", "Host: evil.example:PORT"], 400),
        ("", &["Host: evil.example:PORT", "Host: OWN"], 400),
        ("http://evil.example:PORT", &["Host: OWN"], 421),
        ("http://OWN", &["Host: evil.example:PORT"], 421),
        ("http://user@OWN", &["Host: OWN"], 421),
        ("", &["Host: OWN", "Origin: http://evil.example:PORT"], 403),
        ("", &["Host: OWN", "Origin: null"], 403),
        ("", &["Host: OWN", "Origin: http://OWN", "Origin: http://evil.example"], 403),
    ];
    check(&page, &link, loopback);
    check(&metrics, "/metrics", loopback);
    // On a network a scraper may know this host by any name, but is no page.
    check(
        &any,
        "/metrics",
        &[
            ("", &["Host: dtn1.example:9100"], 200),
            ("", &["Host: dtn1", "Host: dtn2"], 400),
            ("", &["Host: dtn1", "Origin: http://evil.example"], 403),
        ],
    );
}

/// The script of a report runs by its hash, and no other.
#[test]
fn a_report_permits_its_own_script_only() {
    let content = Content::Study { title: "window".to_owned(), script_hash: "abc+/=" };
    let page = Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap();
    page.set_report("<!doctype html><title>report</title>".to_owned());
    let host = format!("Host: {}", page.address());
    let reply = exchange(page.address(), &request(&format!("GET /report?token={}", token(&page)), &[&host]));
    assert!(reply.starts_with("HTTP/1.1 200") && reply.contains("<title>report</title>"), "{reply}");
    let policy = reply.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    assert!(policy.contains("script-src 'sha256-abc+/=';"), "{policy}");
    assert_eq!(policy.matches("unsafe-inline").count(), 1, "of the style alone: {policy}");
}

/// Silent connections and such that send a byte now and then, many more than may be open and renewed all the time: who
/// has the token, and a scraper, are served all the same.
#[test]
fn strangers_shut_nobody_out() {
    for is_page in [true, false] {
        let server = if is_page { page() } else { metrics("127.0.0.1:0") };
        let path = if is_page { format!("/?token={}", token(&server)) } else { "/metrics".to_owned() };
        let host = format!("Host: {}", server.address());
        let mut strangers: Vec<TcpStream> = Vec::new();
        for _ in 0..20 {
            for _ in 0..10 {
                let mut stranger = connected(server.address());
                let _ = stranger.write_all(b"G");
                strangers.push(stranger);
            }
            for stranger in &mut strangers {
                // It may have been closed.
                let _ = stranger.write_all(b"E");
            }
            let reply = exchange(server.address(), &request(&format!("GET {path}"), &[&host]));
            assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
        }
    }
}

/// As many pages as there are places; a further one is told so, and strangers take none of them.
#[test]
fn pages_beyond_the_limit_are_told_so() {
    let page = page();
    page.publish("sample", "{\"first\":1}");
    let mut readers: Vec<TcpStream> = (0..16).map(|_| reader(&page, &[])).collect();
    for reader in &mut readers {
        read_until(reader, "first");
    }
    let host = format!("Host: {}", page.address());
    let link = format!("GET /?token={}", token(&page));
    let reply = exchange(page.address(), &request(&link, &[&host]));
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("too many connections"), "{reply}");
    readers.pop();
    // The server notices with the next event.
    let served = (0..100).any(|number| {
        page.publish("sample", &format!("{{\"number\":{number}}}"));
        exchange(page.address(), &request(&link, &[&host])).starts_with("HTTP/1.1 200 ")
    });
    assert!(served);
}

/// Heads that never end are closed after 2 s, and 100 connections at a time leave room for those that end.
#[test]
fn slow_requests_and_many_connections_end() {
    let page = page();
    let mut slow: Vec<_> = (0..100).map(|_| connected(page.address())).collect();
    for stream in &mut slow {
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: ");
    }
    let begun = Instant::now();
    for stream in &mut slow {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(begun.elapsed() < Duration::from_secs(15), "all were closed, after {:?}", begun.elapsed());
    page.publish("sample", "{\"after\":1}");
    read_until(&mut reader(&page, &[]), "after");
}

/// 60 MB of events while a browser reads nothing: publishing goes on, and the browser is told what it missed.
#[test]
fn a_browser_that_does_not_read_learns_what_it_missed() {
    let page = page();
    page.publish("sample", "{\"first\":1}");
    let mut stopped = reader(&page, &[]);
    read_until(&mut stopped, "first");
    let mut good = reader(&page, &[]);
    read_until(&mut good, "first");
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(100_000));
    for number in 0..600 {
        page.publish("sample", &large);
        // The one that reads keeps up.
        read_until(&mut good, &format!("id: {}\n", number + 1));
    }
    assert_eq!(page.missed_count(), 0, "nobody who reads misses anything");
    let text = read_until(&mut stopped, "id: 600\n");
    let missed = text.split_once("event: missed\ndata: ").unwrap().1.split_once('\n').unwrap().0;
    let missed: usize = missed.parse().unwrap();
    assert_eq!(text.matches("event: sample").count() + missed, 600, "received and missed are all");
    assert_eq!(page.missed_count(), missed as u64);
}

#[test]
fn a_page_that_returns_continues_after_its_last_event() {
    let page = page();
    for number in 0..5 {
        page.publish("sample", &format!("{{\"number\":{number}}}"));
    }
    let text = read_until(&mut reader(&page, &["Last-Event-ID: 2"]), "\"number\":4");
    let ids: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["3", "4"]);
}

#[test]
fn the_page_is_bound_to_its_own_files() {
    let page = page();
    let (address, token) = (page.address(), token(&page));
    let host = format!("Host: {address}");
    let origin = format!("Origin: http://{address}");
    for (path, kind) in [("/", "text/html"), ("/live.js", "text/javascript"), ("/page.css", "text/css")] {
        let reply = exchange(address, &request(&format!("GET {path}?token={token}"), &[&host, &origin]));
        let head = reply.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase();
        for expected in [
            "http/1.1 200 ok",
            kind,
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(head.contains(expected), "{path}: {expected}: {head}");
        }
        assert!(!reply.contains("<b>dtn1</b>"), "a name is text");
    }
}

/// Dropping it closes what is open; pages learn that it ended.
#[test]
fn the_end_closes_all_connections() {
    let page = page();
    let mut open = reader(&page, &[]);
    read_until(&mut open, "text/event-stream");
    let address = page.address();
    let dropped = thread::spawn(move || drop(page));
    read_until(&mut open, "event: end");
    dropped.join().unwrap();
    let _ = open.read_to_end(&mut Vec::new());
    assert!(std::net::TcpStream::connect(address).is_err());
}
