//! A complete workload: the time of a TCP handshake between two hosts.
//!
//! Everything that a workload needs is in this file: options, metrics, the calls that its agents
//! serve, and one line each that registers them. A study then runs it over any factor, the record
//! stores it, the report plots it and `study compare` compares it. `handshake agent` is the agent,
//! which the program starts on both hosts.
//!
//! ```text
//! clearstream lab up two-hosts
//! cargo run -p clearstream-workload --example handshake -- two-hosts
//! clearstream lab down two-hosts
//! ```
#![allow(clippy::print_stdout, reason = "an example prints its result")]

use std::{
    error::Error,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_control::{Call, Done, Registration, Service, Services, agent::serve_stdio};
use clearstream_host::calls::HostAgent;
use clearstream_schema::JsonSchema;
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    outcome::{Axis, MetricKind, Outcome, Series, Unit},
    scope::Right,
};
use clearstream_study::{HostTestbed, RunRequest, Runner, ScheduleOptions};
use clearstream_workload::{Context, Event, HostSet, Registry, Sample, TrialError, Workload};
use serde::{Deserialize, Serialize};

/// Metrics: the median of the connections, which is the headline, and their 99th percentile.
const HANDSHAKE: MetricKind = MetricKind::lower("handshake", Unit::Nanoseconds);
const HANDSHAKE_P99: MetricKind = MetricKind::lower("handshake-p99", Unit::Nanoseconds);

/// The workload. It is stateless.
struct Handshake;

/// Its options: keys of the study file, with their defaults.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
struct HandshakeConfig {
    /// Number of sequential connections.
    count: u32,
    /// Interval between connections.
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

    fn metrics(&self, _: &HandshakeConfig) -> Vec<MetricKind> {
        vec![HANDSHAKE, HANDSHAKE_P99]
    }

    fn serve(&self, services: Services) -> Services {
        services.with(HandshakeAgent::default())
    }

    fn run(&self, context: &mut Context<'_, '_>, config: &HandshakeConfig) -> Result<Outcome, TrialError> {
        let (client, server) = context.hosts.client_and_server()?;
        let address = server.known_address()?;
        let Listening { to } = server.peer.call(&Listen { address })?;
        let begun = Instant::now();
        let mut points = Vec::new();
        for _ in 0..config.count {
            if context.stop.load(Ordering::Relaxed) {
                break;
            }
            let Connected { time_ns } = client.peer.call(&Connect { to })?;
            server.peer.call(&Accept {})?;
            let at = begun.elapsed().as_secs_f64() * 1e9;
            points.push((at, time_ns as f64));
            let sample = Sample::new(&points.last(), Some(HANDSHAKE.of(time_ns as f64)))?;
            (context.on_event)(Event::Sample(sample));
            std::thread::sleep(Duration::from_nanos(config.interval.0));
        }
        let mut times: Vec<f64> = points.iter().map(|(_, time)| *time).collect();
        times.sort_by(f64::total_cmp);
        let at = |quantile: f64| times.get((quantile * (times.len() - 1) as f64) as usize).copied();
        let metrics = [(HANDSHAKE, 0.5), (HANDSHAKE_P99, 0.99)];
        let metrics = metrics.into_iter().filter_map(|(kind, quantile)| Some(kind.of(at(quantile)?)));
        let series = Series {
            name: HANDSHAKE.name.to_owned(),
            x: Axis::new("time", Unit::Nanoseconds),
            y: Axis::new(HANDSHAKE.name, HANDSHAKE.unit),
            points,
        };
        let complete = times.len() == config.count as usize;
        Ok(Outcome { complete, series: vec![series], ..Outcome::of(metrics) })
    }
}

/// Opens a listening socket; the one before is closed.
#[derive(Debug, Serialize, Deserialize)]
struct Listen {
    address: IpAddr,
}

/// Where it listens.
#[derive(Debug, Serialize, Deserialize)]
struct Listening {
    to: SocketAddr,
}

impl Call for Listen {
    const NAME: &'static str = "handshake-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Connects once, and closes the connection.
#[derive(Debug, Serialize, Deserialize)]
struct Connect {
    to: SocketAddr,
}

/// How long that took.
#[derive(Debug, Serialize, Deserialize)]
struct Connected {
    time_ns: u64,
}

impl Call for Connect {
    const NAME: &'static str = "handshake-connect";
    const NEEDS: Right = Right::Measure;
    type Reply = Connected;
}

/// Takes a connection out of the queue of the listening socket.
#[derive(Debug, Serialize, Deserialize)]
struct Accept {}

impl Call for Accept {
    const NAME: &'static str = "handshake-accept";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// The agent's part: what it owns ends with the session.
#[derive(Debug, Default)]
struct HandshakeAgent {
    listener: Option<TcpListener>,
}

impl Service for HandshakeAgent {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(|agent, Listen { address }, _| agent.listen(address))
            .on(|_, Connect { to }, _| connect(to))
            .on(|agent, Accept {}, _| agent.accept());
    }
}

impl HandshakeAgent {
    fn listen(&mut self, address: IpAddr) -> Result<Listening, Failure> {
        let failed = |error| Failure::of_system(&format!("listen at {address}"), &error);
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        let to = listener.local_addr().map_err(failed)?;
        self.listener = Some(listener);
        Ok(Listening { to })
    }

    /// The connection is there: the other host has seen the handshake end.
    fn accept(&mut self) -> Result<Done, Failure> {
        let missing = || Failure { kind: FailureKind::Invalid, message: "nothing listens here".to_owned() };
        let listener = self.listener.as_ref().ok_or_else(missing)?;
        listener.accept().map_err(|error| Failure::of_system("accept a connection", &error))?;
        Ok(Done {})
    }
}

fn connect(to: SocketAddr) -> Result<Connected, Failure> {
    let begun = Instant::now();
    TcpStream::connect_timeout(&to, Duration::from_secs(3))
        .map_err(|error| Failure::of_system(&format!("connect to {to}"), &error))?;
    Ok(Connected { time_ns: u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) })
}

/// Handshakes with large and small packets, which have the same time.
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
    let registry = Registry::default().with(Handshake);
    let mut arguments = std::env::args().skip(1);
    let lab = match arguments.next().ok_or(usage)?.as_str() {
        // What a program serves on its hosts: descriptions of them, and its own calls.
        "agent" => {
            return Ok(serve_stdio(registry.serve(Services::new().with(HostAgent::default())))?);
        }
        name => clearstream_lab::open(name)?,
    };
    let folder = arguments.next().unwrap_or_else(|| "runs/handshakes".to_owned());
    let names: Vec<String> = lab.file().hosts.iter().map(|host| host.name.clone()).collect();
    let [first, .., last] = names.as_slice() else { return Err("a lab of two hosts is needed".into()) };
    let agent = |name: &String| -> Result<_, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("agent");
        Ok(clearstream_control::spawn(lab.command(name, command)?, name)?)
    };
    let (mut client, mut server) = (agent(first)?, agent(last)?);
    let addresses = (lab.address(first)?, lab.address(last)?);
    let hosts = HostSet::pair((&mut client, Some(addresses.0)), (&mut server, addresses.1), Some(&lab));
    let request = RunRequest {
        study: clearstream_study::file::parse(STUDY, "handshakes.toml", &registry)?,
        options: ScheduleOptions { seed: 1, ..ScheduleOptions::default() },
        registry: registry.clone(),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let runner = Runner::start(folder.as_ref(), request, HostTestbed::new(hosts, registry))?;
    let end = runner.run(&AtomicBool::new(false), &mut |_| {})?;
    println!("{} of {} trials done; record: {}", end.done_count, end.scheduled_count, end.folder.display());
    Ok(())
}
