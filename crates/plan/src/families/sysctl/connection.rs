//! Effective settings of a new TCP connection, inspected on one over loopback in
//! the network namespace of the calling thread.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use clearstream_schema::{
    plan::{Check, Plan, Setting, Value},
    tcp_info::TcpInfo,
};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::Options;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// `tcpi_options` of include/uapi/linux/tcp.h.
const OPTIONS: [(&str, &str, u8); 3] = [
    ("net.ipv4.tcp_timestamps", "timestamps", 1),
    ("net.ipv4.tcp_sack", "selective acknowledgement", 2),
    ("net.ipv4.tcp_window_scaling", "window scaling", 4),
];
const ECN_OPTION: u8 = 8;
/// A size beyond any limit, which the kernel doubles without overflow.
const HUGE_BYTES: usize = (i32::MAX / 2) as usize;

/// Values of a new socket and a new connection.
struct Seen {
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
    largest_receive_bytes: usize,
    largest_send_bytes: usize,
    congestion_control: String,
    info: TcpInfo,
}

/// Effective values of the sysctls that a plan sets; none when it sets nothing
/// that a connection would show.
pub(crate) fn checks(plan: &Plan, options: &Options) -> Vec<Check> {
    let desired = |key: &str| {
        let setting = Setting::Sysctl(key.to_owned());
        let step = plan.steps.iter().find(|step| step.setting == setting)?;
        step.desired.as_ref().map(Value::to_string)
    };
    let expectations = expectations(&desired, options);
    if expectations.is_empty() {
        return Vec::new();
    }
    let seen = inspect_connection();
    expectations.into_iter().map(|expectation| expectation.check(seen.as_ref())).collect()
}

struct Expectation {
    subject: String,
    expected: String,
    found: Box<dyn Fn(&Seen) -> String>,
}

impl Expectation {
    fn check(self, seen: Result<&Seen, &io::Error>) -> Check {
        let found = seen.map(|seen| (self.found)(seen));
        let holds = found.as_ref().is_ok_and(|found| *found == self.expected);
        let note = found.as_ref().err().map(|error| {
            format!("not checked: no connection over loopback here: {error} (is the interface lo up?)")
        });
        Check { subject: self.subject, expected: self.expected, found: found.ok(), holds, note }
    }
}

fn expectations(desired: &impl Fn(&str) -> Option<String>, options: &Options) -> Vec<Expectation> {
    let mut all = Vec::new();
    let mut expect = |subject: &str, expected: String, found: Box<dyn Fn(&Seen) -> String>| {
        all.push(Expectation { subject: subject.to_owned(), expected, found });
    };
    // The middle value is what a socket is made with (tcp(7)).
    if let Some(bytes) = desired("net.ipv4.tcp_rmem").and_then(|text| nth(&text, 1)) {
        let found = |seen: &Seen| seen.receive_buffer_bytes.to_string();
        expect("receive buffer of a new TCP socket, bytes", bytes.to_string(), Box::new(found));
    }
    if let Some(bytes) = desired("net.ipv4.tcp_wmem").and_then(|text| nth(&text, 1)) {
        let found = |seen: &Seen| seen.send_buffer_bytes.to_string();
        expect("send buffer of a new TCP socket, bytes", bytes.to_string(), Box::new(found));
    }
    // SO_RCVBUF and SO_SNDBUF are capped, then doubled (socket(7)).
    let doubled = |text: String| nth(&text, 0).map(|bytes| bytes.min(HUGE_BYTES as u64) * 2);
    if let Some(bytes) = desired("net.core.rmem_max").and_then(doubled) {
        let found = |seen: &Seen| seen.largest_receive_bytes.to_string();
        expect("largest SO_RCVBUF, bytes, doubled", bytes.to_string(), Box::new(found));
    }
    if let Some(bytes) = desired("net.core.wmem_max").and_then(doubled) {
        let found = |seen: &Seen| seen.largest_send_bytes.to_string();
        expect("largest SO_SNDBUF, bytes, doubled", bytes.to_string(), Box::new(found));
    }
    if let Some(name) = desired("net.ipv4.tcp_congestion_control") {
        let found = |seen: &Seen| seen.congestion_control.clone();
        expect("congestion control of a new connection", name, Box::new(found));
    }
    for (key, subject, bit) in OPTIONS {
        if let Some(value) = desired(key).and_then(|text| nth(&text, 0)) {
            let found = move |seen: &Seen| on_off(seen.info.options & bit != 0);
            expect(&format!("{subject} of a new connection"), on_off(value != 0), Box::new(found));
        }
    }
    // 1 requests and accepts, 0 and 2 do not request (ip-sysctl.rst).
    if let Some(value @ 0..=2) = desired("net.ipv4.tcp_ecn").and_then(|text| nth(&text, 0)) {
        let found = |seen: &Seen| on_off(seen.info.options & ECN_OPTION != 0);
        expect("ECN of a new connection", on_off(value == 1), Box::new(found));
    }
    let scales = ["net.ipv4.tcp_rmem", "net.core.rmem_max", "net.ipv4.tcp_window_scaling"];
    if scales.into_iter().any(|key| desired(key).is_some())
        && let Some(scale) = window_scale(desired, options)
    {
        let found = |seen: &Seen| seen.info.receive_window_scale.to_string();
        expect("receive window scale of a new connection", scale.to_string(), Box::new(found));
    }
    all
}

/// `tcp_select_initial_window` (net/ipv4/tcp_output.c): the scale that covers
/// the larger of `tcp_rmem[2]` and `rmem_max`, 0 to 14. `None` where
/// one of them is not visible, as `rmem_max` in a namespace before Linux 6.12.
fn window_scale(desired: &impl Fn(&str) -> Option<String>, options: &Options) -> Option<u32> {
    let value = |key: &str, place: usize| {
        let live = || options.target.read(&Setting::Sysctl(key.to_owned())).ok().flatten();
        desired(key).or_else(|| live().map(|value| value.to_string())).and_then(|text| nth(&text, place))
    };
    if value("net.ipv4.tcp_window_scaling", 0)? == 0 {
        return Some(0);
    }
    let space = value("net.ipv4.tcp_rmem", 2)?.max(value("net.core.rmem_max", 0)?);
    Some(space.max(1).ilog2().saturating_sub(15).min(14))
}

fn nth(text: &str, place: usize) -> Option<u64> {
    text.split_whitespace().nth(place)?.parse().ok()
}

fn on_off(on: bool) -> String {
    (if on { "on" } else { "off" }).to_owned()
}

fn inspect_connection() -> io::Result<Seen> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    let (receive_buffer_bytes, send_buffer_bytes) = (socket.recv_buffer_size()?, socket.send_buffer_size()?);
    socket.set_recv_buffer_size(HUGE_BYTES)?;
    socket.set_send_buffer_size(HUGE_BYTES)?;
    let (largest_receive_bytes, largest_send_bytes) =
        (socket.recv_buffer_size()?, socket.send_buffer_size()?);
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let stream = TcpStream::connect_timeout(&listener.local_addr()?, CONNECT_TIMEOUT)?;
    let (_accepted, _) = listener.accept()?;
    let name = SockRef::from(&stream).tcp_congestion()?;
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(Seen {
        receive_buffer_bytes,
        send_buffer_bytes,
        largest_receive_bytes,
        largest_send_bytes,
        congestion_control: String::from_utf8_lossy(name).into_owned(),
        info: clearstream_sys::tcp_info::read(&stream)?,
    })
}
