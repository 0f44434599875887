//! `clearstream flow --compat iperf3` and `clearstream serve --compat iperf3`:
//! tests whose other end is an iperf3 program.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs},
    sync::{Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::rate::{Admission, LogLimit};
use clearstream_iperf3::document::{Iperf3Interval, Iperf3Summary};
use clearstream_iperf3::{
    IDLE_LIMIT, Iperf3Error, Iperf3Event, Server, ServerEvent, ServerOptions, protocol,
};
use clearstream_schema::JsonSchema;
use clearstream_schema::flow::FlowConfig;
use clearstream_workload::TrialError;
use serde::Serialize;

use crate::{
    exit::CommandError,
    interrupt,
    output::{Output, Paint, daemon::Served, iperf3},
};

/// Programs whose protocol is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Compat {
    /// iperf3, from version 3.1 on.
    Iperf3,
}

/// A flow test with another program at the peer.
#[derive(Debug, clap::Args)]
pub struct CompatArgs {
    /// Test against a server of this program at HOST[:PORT]; clearstream is not needed there
    #[arg(
        long,
        value_enum,
        value_name = "PROGRAM",
        conflicts_with_all = [
            "lab", "hosts", "client", "server", "address", "pairing", "ssh_options", "remote_program", "steer"
        ]
    )]
    compat: Option<Compat>,
}

/// A test with an iperf3 program.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Iperf3Document<'a> {
    /// The result.
    summary: &'a Iperf3Summary,
    /// Every interval of this end in order; absent at the end of a stream, which had
    /// them before, and of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intervals: Option<&'a [Iperf3Interval]>,
}

/// The error of a failed test, with its exit code.
fn failed(error: &Iperf3Error) -> CommandError {
    TrialError::from(error.failure.clone()).into()
}

impl CompatArgs {
    /// Whether another program is at the peer.
    pub fn is_requested(&self) -> bool {
        self.compat.is_some()
    }

    /// Runs the test.
    ///
    /// # Errors
    /// No host is named, or the server is unreachable, refuses the test or is lost.
    pub fn run(&self, host: Option<&str>, config: &FlowConfig, out: &Output) -> Result<(), CommandError> {
        let host = host.ok_or_else(|| {
            CommandError::usage("name the iperf3 server: clearstream flow --compat iperf3 HOST[:PORT]")
        })?;
        let addresses = resolve(host, config.destination_port)?;
        let stop = interrupt::stop_flag()?;
        let mut view = View::new(out, config);
        let ended = clearstream_iperf3::run(host, &addresses, config, &stop, &mut |event| view.show(event));
        let stopped = || {
            stop.load(Relaxed).then(|| {
                CommandError::Interrupted("results cover the time up to the interruption".to_owned())
            })
        };
        match ended {
            Ok(summary) => {
                view.finish(&summary)?;
                stopped().map_or(Ok(()), Err)
            }
            Err(error) => {
                if let Some(partial) = &error.partial {
                    view.finish(partial)?;
                }
                Err(stopped().unwrap_or_else(|| failed(&error)))
            }
        }
    }
}

/// Name and port of `HOST[:PORT]`; an IPv6 address with a port has brackets.
fn split(host: &str) -> (&str, Option<&str>) {
    if let Some((inside, after)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (inside, after.strip_prefix(':'));
    }
    match host.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, Some(port)),
        _ => (host, None),
    }
}

/// The addresses of the server.
fn resolve(host: &str, option: Option<u16>) -> Result<Vec<SocketAddr>, CommandError> {
    let (name, port) = split(host);
    let port = match (port.map(str::parse::<u16>), option) {
        (Some(Ok(port)), None) if port > 0 => port,
        (Some(_), Some(_)) => {
            return Err(CommandError::usage(
                "the port is named twice: in HOST:PORT and by --destination-port",
            ));
        }
        (Some(_), None) => return Err(CommandError::Usage(format!("{host}: the port must be 1 to 65535"))),
        (None, option) => option.unwrap_or(protocol::PORT),
    };
    let unreachable = |reason: String| CommandError::Unreachable { host: name.to_owned(), reason };
    let addresses: Vec<SocketAddr> =
        (name, port).to_socket_addrs().map_err(|error| unreachable(error.to_string()))?.collect();
    if addresses.is_empty() {
        return Err(unreachable("the name has no address".to_owned()));
    }
    Ok(addresses)
}

/// What is reported while a test runs.
struct View<'a> {
    out: &'a Output,
    intervals: Vec<Iperf3Interval>,
    config: &'a FlowConfig,
    started: Instant,
    expected: Duration,
}

impl<'a> View<'a> {
    fn new(out: &'a Output, config: &'a FlowConfig) -> Self {
        let expected = config.warm_up.to_std() + config.duration.to_std();
        Self { out, intervals: Vec::new(), config, started: Instant::now(), expected }
    }

    fn show(&mut self, event: Iperf3Event<'_>) {
        match event {
            Iperf3Event::Ready(settings) => {
                let detail = || serde_json::json!({ "local": settings });
                let text = || Some(iperf3::settings(self.config, settings));
                self.out.state("ready", self.out.is_stream().then(detail), text);
            }
            Iperf3Event::Interval(interval) => {
                self.out.interval(interval, || Some(iperf3::interval(self.config.protocol, interval)));
                // People see rows instead.
                if !self.out.is_human() {
                    self.out.progress(self.expected.saturating_sub(self.started.elapsed()), "flow test");
                }
                // A stream has them already, and a long test makes many.
                if !self.out.is_human() && !self.out.is_stream() {
                    self.intervals.push(interval.clone());
                }
            }
            // People find it in the summary.
            Iperf3Event::Notice(notice) if self.out.is_stream() => self.out.notice(notice),
            Iperf3Event::Notice(_) => {}
        }
    }

    fn finish(&self, summary: &Iperf3Summary) -> Result<(), CommandError> {
        let intervals = (!self.out.is_stream()).then_some(&self.intervals[..]);
        let document = Iperf3Document { summary, intervals };
        Ok(self.out.result(&document, || iperf3::summary(summary, Paint::for_stdout()))?)
    }
}

/// Serves iperf3 clients until it is stopped, one test at a time. A document of
/// each test is a line with `--json`, and what happens meanwhile with `--json-stream`.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(listen: Option<SocketAddr>, once: bool, out: &Output) -> Result<(), CommandError> {
    let stop = interrupt::stop_flag()?;
    let address = listen.unwrap_or_else(|| SocketAddr::new(IpAddr::from([127, 0, 0, 1]), protocol::PORT));
    let bound = Server::bind(address, ServerOptions { once, idle: IDLE_LIMIT });
    let server = bound.map_err(|failure| CommandError::from(TrialError::from(failure)))?;
    let local = server.local_address();
    let detail = serde_json::json!({ "address": local.to_string(), "program": "iperf3" });
    out.state("listening", Some(detail), || {
        Some(format!("listening on {local} for iperf3 clients; stop with Ctrl-C"))
    });
    if exposed(&local) {
        out.note("note: anyone who reaches this port can start a test: iperf3's protocol has no pairing");
    }
    let log = Log(Mutex::new(LogLimit::new(Instant::now())));
    let mut served =
        Served { address: local.to_string(), session_count: 0, failed_count: 0, refused_count: 0 };
    let mut in_session = false;
    let ended = server.run(&stop, &mut |event| {
        match &event {
            ServerEvent::Started { .. } => served.session_count += 1,
            ServerEvent::Failed { .. } if in_session => served.failed_count += 1,
            ServerEvent::Failed { .. } => served.refused_count += 1,
            ServerEvent::Interval(_) | ServerEvent::Finished(_) => {}
        }
        in_session = matches!(event, ServerEvent::Started { .. } | ServerEvent::Interval(_));
        serve_event(&event, out, &log);
    });
    ended.map_err(|failure| CommandError::from(TrialError::from(failure)))?;
    // With --json the documents of the tests are the list.
    if out.is_stream() {
        out.document(&served)?
    } else {
        out.end()?
    }
    Ok(())
}

/// Others than this host can connect.
fn exposed(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => !ip.is_loopback(),
        IpAddr::V6(ip) => ip != Ipv6Addr::LOCALHOST,
    }
}

fn serve_event(event: &ServerEvent<'_>, out: &Output, log: &Log) {
    match event {
        ServerEvent::Started { peer, parameters } => {
            let text = iperf3::started(peer, parameters);
            let detail = serde_json::json!({ "peer": peer.to_string(), "streams": parameters.streams });
            out.state("test-started", Some(detail), || Some(text));
        }
        ServerEvent::Interval(interval) => {
            // For people the summary is enough: a server's terminal is rarely watched.
            out.interval(interval, || None);
        }
        ServerEvent::Finished(summary) => finished(summary, out),
        ServerEvent::Failed { peer, error } => {
            if let Some(partial) = &error.partial {
                finished(partial, out);
            }
            let detail = serde_json::json!({ "peer": peer.to_string(), "message": error.failure.message });
            out.state("test-failed", Some(detail), || None);
            log.line(out, &format!("no result: {}", error.failure));
        }
    }
}

fn finished(summary: &Iperf3Summary, out: &Output) {
    let document = Iperf3Document { summary, intervals: None };
    let detail = || clearstream_schema::json::to_value(&document).unwrap_or_default();
    out.state("test-finished", out.is_stream().then(detail), || {
        Some(iperf3::summary(summary, Paint::for_stdout()))
    });
    out.line_of_list(&document);
}

/// Anyone who reaches the port makes lines of the log, so that they are bounded in
/// rate.
struct Log(Mutex<LogLimit>);

impl Log {
    fn line(&self, out: &Output, text: &str) {
        let now = Instant::now();
        let mut limit = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = limit.report(now) {
            out.note(&format!("{count} more lines, not listed one by one"));
        }
        if limit.admit(now) == Admission::Write {
            out.note(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_split_from_its_port() {
        for (host, expected) in [
            ("dtn2", ("dtn2", None)),
            ("dtn2:5202", ("dtn2", Some("5202"))),
            ("192.0.2.1:1", ("192.0.2.1", Some("1"))),
            ("fd72::2", ("fd72::2", None)),
            ("[fd72::2]", ("fd72::2", None)),
            ("[fd72::2]:5202", ("fd72::2", Some("5202"))),
        ] {
            assert_eq!(split(host), expected, "{host}");
        }
    }

    #[test]
    fn ports_that_are_none_or_twice_are_named() {
        let usage = |host, option| match resolve(host, option) {
            Err(CommandError::Usage(message)) => message,
            other => panic!("{other:?}"),
        };
        assert!(usage("127.0.0.1:0", None).contains("1 to 65535"));
        assert!(usage("127.0.0.1:x", None).contains("1 to 65535"));
        assert!(usage("127.0.0.1:5201", Some(5201)).contains("twice"));
        assert_eq!(resolve("127.0.0.1", None).expect("an address")[0].port(), 5201);
        assert_eq!(resolve("[::1]:77", None).expect("an address")[0].port(), 77);
    }
}
