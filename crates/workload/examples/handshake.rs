//! A whole workload: how long a TCP handshake takes between two hosts of a lab.
//!
//! Everything that a workload needs is in this file: options, what it measures,
//! and one line that registers it. A study then runs it over any factor, the
//! record keeps it, the report draws it and `study compare` compares it.
//!
//! ```text
//! clearstream lab up two-hosts
//! cargo run -p clearstream-workload --example handshake -- two-hosts
//! clearstream lab down two-hosts
//! ```
#![allow(clippy::print_stdout, reason = "an example prints what it found")]

use std::{
    error::Error,
    net::{SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    outcome::{Axis, Metric, Outcome, Series, Unit},
};
use clearstream_study::{HostTestbed, PlanOptions, RunRequest, Runner};
use clearstream_workload::{Context, Event, HostSet, Registry, Sample, TrialError, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The workload. It needs no state.
struct Handshake;

/// Its options: keys of the study file, with their defaults.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct HandshakeConfig {
    /// Connections, one after the other.
    count: u32,
    /// Time between two of them.
    interval: TimeSpan,
}

impl Default for HandshakeConfig {
    fn default() -> Self {
        Self { count: 20, interval: TimeSpan::from_millis(2) }
    }
}

impl Workload for Handshake {
    type Config = HandshakeConfig;

    fn name(&self) -> &'static str {
        "handshake"
    }

    fn title(&self) -> &'static str {
        "Time of a TCP handshake"
    }

    fn needs_lab(&self) -> Option<&'static str> {
        Some("the example connects inside a lab only: use --lab two-hosts")
    }

    fn check(&self, config: &HandshakeConfig) -> Result<(), Failure> {
        if config.count == 0 {
            let message = "count: write at least 1".to_owned();
            return Err(Failure { kind: FailureKind::Invalid, message });
        }
        Ok(())
    }

    fn time(&self, config: &HandshakeConfig) -> TimeSpan {
        TimeSpan(config.interval.0.saturating_mul(config.count.into()))
    }

    fn overhead(&self) -> TimeSpan {
        TimeSpan::from_millis(50)
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &HandshakeConfig) -> Result<Outcome, TrialError> {
        let lab = context.hosts.lab().ok_or_else(|| TrialError::internal("no lab"))?;
        let internal = |error: &dyn Error| TrialError::internal(error.to_string());
        let (client, server) = context.hosts.client_and_server()?;
        let address = server.address.ok_or_else(|| TrialError::internal("the server has no address"))?;
        let on_host = |name: &str| lab.namespaces(name).map_err(|error| internal(&error));
        let (client, server) = (on_host(client.peer.name())?, on_host(server.peer.name())?);
        let listener = server
            .run(|| TcpListener::bind((address, 0)))
            .and_then(|listener| listener)
            .map_err(|error| internal(&error))?;
        let to = listener.local_addr().map_err(|error| internal(&error))?;
        let begun = Instant::now();
        let mut points = Vec::new();
        for _ in 0..config.count {
            if context.stop.load(Ordering::Relaxed) {
                break;
            }
            let taken =
                client.run(|| connect(to)).and_then(|taken| taken).map_err(|error| internal(&error))?;
            drop(listener.accept());
            let at = begun.elapsed().as_secs_f64() * 1e9;
            let time = taken.as_secs_f64() * 1e9;
            points.push((at, time));
            let headline = Metric::lower("handshake", Unit::Nanoseconds, time);
            (context.on_event)(Event::Sample(Sample::new(&points.last(), Some(headline))?));
            std::thread::sleep(Duration::from_nanos(config.interval.0));
        }
        let mut times: Vec<f64> = points.iter().map(|(_, time)| *time).collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get((share * (times.len() - 1) as f64) as usize).copied();
        let metrics = [("handshake", 0.5), ("handshake-p99", 0.99)];
        let metrics = metrics
            .into_iter()
            .filter_map(|(name, share)| Some(Metric::lower(name, Unit::Nanoseconds, at(share)?)));
        let series = Series {
            name: "handshake".to_owned(),
            x: Axis::new("time", Unit::Nanoseconds),
            y: Axis::new("handshake", Unit::Nanoseconds),
            points,
        };
        let complete = times.len() == config.count as usize;
        Ok(Outcome { complete, series: vec![series], ..Outcome::of(metrics) })
    }
}

fn connect(to: SocketAddr) -> std::io::Result<Duration> {
    let begun = Instant::now();
    TcpStream::connect_timeout(&to, Duration::from_secs(3))?;
    Ok(begun.elapsed())
}

/// Handshakes with large and small packets: they make no difference.
const STUDY: &str = r#"schema = "clearstream.study"
version = 1
name = "handshakes"
title = "TCP handshakes"
[[experiment]]
name = "by-count"
title = "Time of a handshake"
workload = "handshake"
figure = "curve"
repetitions = 6
[experiment.handshake]
interval = "1ms"
[experiment.factors]
count = [5, 10, 20]
mtu = [1500, 9000]
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: handshake LAB [FOLDER]";
    let mut arguments = std::env::args().skip(1);
    let lab = clearstream_lab::open(&arguments.next().ok_or(usage)?)?;
    let folder = arguments.next().unwrap_or_else(|| "runs/handshakes".to_owned());
    let registry = Registry::default().with(Handshake);
    let names: Vec<String> = lab.file().hosts.iter().map(|host| host.name.clone()).collect();
    let [first, .., last] = names.as_slice() else { return Err("a lab of two hosts is needed".into()) };
    // An agent is the program itself, started on each host.
    let agent = |name: &String| -> Result<_, Box<dyn Error>> {
        let program = std::env::var("CLEARSTREAM").unwrap_or_else(|_| "clearstream".to_owned());
        let mut command = Command::new(program);
        command.arg("agent");
        Ok(clearstream_control::spawn(lab.command(name, command)?, name)?)
    };
    let (mut client, mut server) = (agent(first)?, agent(last)?);
    let addresses = (lab.address(first)?, lab.address(last)?);
    let hosts = HostSet::pair((&mut client, Some(addresses.0)), (&mut server, addresses.1), Some(&lab));
    let request = RunRequest {
        study: clearstream_study::file::parse(STUDY, "handshakes.toml", &registry)?,
        options: PlanOptions { seed: 1, ..PlanOptions::default() },
        registry: registry.clone(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let runner = Runner::start(folder.as_ref(), request, HostTestbed::new(hosts, registry))?;
    let end = runner.run(&AtomicBool::new(false), &mut |_| {})?;
    println!("{} of {} trials done; record: {}", end.done_count, end.planned_count, end.folder.display());
    Ok(())
}
