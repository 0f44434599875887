//! Client of perftest's protocol: the server is one of its programs.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clearstream_iwarp::verbs::{ConnectError, ConnectOptions};
use clearstream_schema::{
    TimeSpan,
    rdma::{RdmaConfig, RdmaEffective, RdmaOperation, RdmaRate, RdmaResult, RdmaSummary},
};

use super::{
    DEFAULT_RECEIVES, Program,
    control::Control,
    format::{Destination, Report},
    layout,
};
use crate::{
    client::Event,
    data_queue_pairs::{DataQueuePairs, Role, open_rnic},
    error::RdmaError,
    generator::{Conventions, Counters, Credits, Generator, Limit, Load, Watch},
    negotiation::validate,
    sampler::Sampler,
    samples::{cpu_ns, nanoseconds},
    summary::{effective, notices},
};

/// Default number of messages of each size in perftest.
const ITERATIONS: u64 = 1000;
/// Default number of messages of `ib_write_bw`.
const WRITE_ITERATIONS: u64 = 5000;
/// Minimum number of messages in perftest.
const MIN_ITERATIONS: u64 = 5;
/// Maximum number of retries: a server of perftest stops listening between its
/// first connection and the others.
const CONNECT_RETRIES: u32 = 20;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Delay before the control connection is closed: siw discards data that a
/// program sent and that is not complete when its peer closes.
const CLOSE_DELAY: Duration = Duration::from_millis(20);
/// Maximum wait for the graceful close of the control connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the effective configuration: perftest counts messages and has no
/// warm-up.
///
/// # Errors
/// An invalid configuration, or one that perftest does not support.
pub fn settle(program: Program, config: &RdmaConfig) -> Result<RdmaConfig, RdmaError> {
    validate(config, program.operation)?;
    let fail = |reason: String| Err(RdmaError::Option(reason));
    if program.latency && config.queue_pairs != 1 {
        return fail(format!("{} has one queue pair: leave --queue-pairs out", program.name()));
    }
    if program.has_one_size() && config.size.0.len() > 1 {
        return fail(format!("{} must know the size: choose one, the same as there (-s)", program.name()));
    }
    if config.immediate {
        return fail("perftest's programs send no immediate data: leave --immediate out".to_owned());
    }
    if config.rx_depth.is_some_and(|depth| depth < 3) {
        return fail("--rx-depth: perftest needs at least 3 receives".to_owned());
    }
    let default = match (program.operation, program.latency) {
        (RdmaOperation::Write, false) => WRITE_ITERATIONS,
        _ => ITERATIONS,
    };
    let iterations = config.iterations.unwrap_or(default);
    if iterations < MIN_ITERATIONS {
        return fail(format!("{iterations} messages: perftest takes {MIN_ITERATIONS} or more"));
    }
    Ok(RdmaConfig { iterations: Some(iterations), warm_up: TimeSpan(0), ..config.clone() })
}

/// Measures against a server of perftest, with a configuration from [`settle`].
///
/// # Errors
/// No connection, a peer that is not perftest or another of its programs, a
/// lost connection, or the stop flag.
pub fn measure(
    peer: SocketAddr,
    operation: RdmaOperation,
    config: &RdmaConfig,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<RdmaSummary, RdmaError> {
    let program = Program { operation, latency: config.latency };
    let mut session = Session::open(peer, program, config, stop)?;
    watch(Event::Ready(&session.effective));
    let mut results = Vec::new();
    for size in &config.size.0 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let result = session.run(size.0, stop, watch)?;
        watch(Event::Size(&result));
        results.push(result);
    }
    let notices = notices(config, &session.effective, session.pairs.layout.depth);
    let effective = session.effective.clone();
    session.close(results.last(), stop)?;
    let complete = results.len() == config.size.0.len();
    Ok(RdmaSummary { operation, requested: config.clone(), effective, results, complete, notices })
}

/// A negotiated measurement.
struct Session {
    program: Program,
    control: Control,
    pairs: DataQueuePairs,
    generator: Generator,
    effective: RdmaEffective,
    iterations: u64,
}

impl Session {
    fn open(
        peer: SocketAddr,
        program: Program,
        config: &RdmaConfig,
        stop: &AtomicBool,
    ) -> Result<Self, RdmaError> {
        let depth = if program.latency { 1 } else { config.depth };
        let layout = layout(config.size.largest(), depth, config.queue_pairs);
        let rnic = open_rnic(config.progress, config.core)?;
        let mut pairs = DataQueuePairs::new(&rnic, config, layout, Role::Client)?;
        pairs.fill_memory(config.size.largest());
        let counters = match (program.operation, program.latency) {
            (RdmaOperation::Send, false) => Some(Counters::new(pairs.domain(), pairs.count())?),
            _ => None,
        };
        let mut control = Control::open(Role::Client)?;
        control.connect(peer, &connect_options(config, 0), stop)?;
        control.exchange_parameters(stop)?;
        control.synchronize(stop)?;
        let reads = if program.operation == RdmaOperation::Read { config.outstanding_reads } else { 0 };
        connect(&mut pairs, peer, &connect_options(config, reads), stop)?;
        control.synchronize(stop)?;
        let own = destinations(&pairs, counters.as_ref(), reads);
        let remote = control.exchange_destinations(program, &own, stop)?;
        let mut effective = effective(config, pairs.established())?;
        (effective.far.progress, effective.far.wait, effective.far.core) = (None, None, None);
        let iterations = config.iterations.unwrap_or(ITERATIONS);
        let credits = match counters {
            Some(counters) => {
                let receives = config.rx_depth.unwrap_or(DEFAULT_RECEIVES);
                // The server posts no more receives than messages.
                let receives = u64::from(receives).min(iterations) as u32;
                Credits::from_counters(&pairs, counters, receives)
            }
            None => Credits::unneeded(&pairs),
        };
        let load = Load::new(config, program.operation);
        let generator = Generator::new(&pairs, Role::Client, load, remote, Conventions::Perftest, credits);
        Ok(Self { program, control, pairs, generator, effective, iterations })
    }

    fn run(
        &mut self,
        size: u64,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<RdmaResult, RdmaError> {
        let mut sampler = Sampler::new(&self.pairs.config, self.program.operation, size, false);
        let mut on_tick = |elapsed, messages| {
            if let Some(sample) = sampler.sample(elapsed, messages) {
                watch(Event::Sample(&sample));
            }
        };
        let cpu = cpu_ns();
        self.generator.begin(size);
        let limit = Limit::Count(self.iterations);
        let own = self.generator.run(&mut self.pairs, limit, &mut Watch::new(stop, &mut on_tick))?;
        Ok(RdmaResult {
            size_bytes: size,
            depth_count: self.pairs.layout.depth,
            forward: RdmaRate::new(own.message_count, size, nanoseconds(own.elapsed)),
            reverse: None,
            latency: own.latency,
            near_cpu_ns: cpu_ns() - cpu,
            far_cpu_ns: None,
            verified: None,
            immediate_verified: None,
        })
    }

    /// Reports the results to the server, and closes the connections.
    fn close(self, last: Option<&RdmaResult>, stop: &AtomicBool) -> Result<(), RdmaError> {
        if self.program.reports() {
            self.control.synchronize(stop)?;
            for value in report(last).encode() {
                self.control.exchange(&value, stop)?;
            }
        }
        if self.program.synchronizes_at_end() {
            self.control.synchronize(stop)?;
        }
        self.pairs.close();
        std::thread::sleep(CLOSE_DELAY);
        self.control.close(CLOSE_TIMEOUT);
        Ok(())
    }
}

fn report(last: Option<&RdmaResult>) -> Report {
    let Some(last) = last else { return Report::default() };
    let mean = last.forward.goodput_bps / 8.0 / f64::from(1 << 20);
    let rate = last.forward.messages_per_second / 1e6;
    Report { size: last.size_bytes, iterations: last.forward.message_count, peak: mean, mean, rate }
}

fn connect_options(config: &RdmaConfig, reads: u16) -> ConnectOptions {
    ConnectOptions {
        ird: reads,
        ord: reads,
        crc: !config.no_crc,
        markers: config.markers,
        revision: config.revision,
        large_fpdus: config.large_fpdus,
        ..ConnectOptions::default()
    }
}

/// Connects all queue pairs, with retries while the server does not listen.
fn connect(
    pairs: &mut DataQueuePairs,
    peer: SocketAddr,
    options: &ConnectOptions,
    stop: &AtomicBool,
) -> Result<(), RdmaError> {
    let mut retries = 0;
    while !pairs.all_connected() {
        match pairs.connect_next(peer, options, stop) {
            Ok(()) => retries = 0,
            Err(RdmaError::Connect { source: ConnectError::Tcp { source, .. } })
                if source.kind() == io::ErrorKind::ConnectionRefused && retries < CONNECT_RETRIES =>
            {
                retries += 1;
                std::thread::sleep(RETRY_INTERVAL);
            }
            Err(error) => return Err(error),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::Stopped);
        }
    }
    Ok(())
}

/// Returns the destinations of this side: the memory of its queue pairs, or
/// their counters.
pub(super) fn destinations(
    pairs: &DataQueuePairs,
    counters: Option<&Counters>,
    reads: u16,
) -> Vec<Destination> {
    let memory = pairs.advert().of_queue_pairs(pairs.count());
    (0..pairs.count())
        .map(|qp| {
            let place = counters.map_or(memory[qp].sink, |counters| counters.place(qp));
            Destination {
                reads: u32::from(reads.max(1)),
                queue_pair: pairs.queue_pair_number(qp),
                stag: place.stag.0,
                address: place.address,
            }
        })
        .collect()
}
