//! Who is served, and who is not: strangers, other pages, oversized and slow requests, browsers that do not read.

use std::{
    io::{Read as _, Write as _},
    thread,
    time::{Duration, Instant},
};

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
