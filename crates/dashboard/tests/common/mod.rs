//! A client that writes what a browser would not.
#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses its own part")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use clearstream_dashboard::{Content, Dashboard};

pub(crate) fn page() -> Dashboard {
    let content = Content::Live { title: "live: <b>dtn1</b>".to_owned() };
    Dashboard::start("127.0.0.1:0".parse().unwrap(), content).unwrap()
}

pub(crate) fn token(page: &Dashboard) -> String {
    page.link().split_once("token=").unwrap().1.to_owned()
}

pub(crate) fn connected(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes and reads until the server closes, or an error.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = connected(address);
    // The server may close before it has everything.
    let _ = stream.write_all(request);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8_lossy(&reply).into_owned()
}

/// A request with these lines of its head after the first.
pub(crate) fn request(first: &str, lines: &[&str]) -> Vec<u8> {
    format!("{first} HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n")).into_bytes()
}

/// A reader of the events.
pub(crate) fn reader(page: &Dashboard, lines: &[&str]) -> TcpStream {
    let mut stream = connected(page.address());
    let host = format!("Host: {}", page.address());
    let head = request(&format!("GET /events?token={}", token(page)), &[&[host.as_str()], lines].concat());
    stream.write_all(&head).unwrap();
    stream
}

/// Reads until a text was received.
pub(crate) fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let (mut all, mut buffer) = (String::new(), vec![0; 1 << 16]);
    while !all.contains(text) {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0, "the stream ended before {text:?}: {all}");
        all.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    all
}
