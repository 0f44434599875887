//! The client's role: the far end is one of perftest's programs.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clearstream_iwarp::{
    verbs::{ConnectError, ConnectOptions, ProtectionDomain, Rnic, RnicOptions},
    work::Remote,
};
use clearstream_schema::{
    ByteCount, TimeSpan,
    rdma::{RdmaConfig, RdmaEffective, RdmaOperation, RdmaRate, RdmaResult, RdmaSummary},
};

use super::{
    Program, RECEIVES,
    bandwidth::{Counts, Flow},
    control::Control,
    format::{Introduction, Report},
    latency::Exchange,
    shape,
};
use crate::{
    client::{Event, effective, notices},
    data_queue_pairs::{End, Lanes, open_rnic},
    error::RdmaError,
    negotiation::Shape,
    samples::{cpu_ns, nanoseconds},
};

/// Messages of each size when people do not say: perftest's.
const ITERATIONS: u64 = 1000;
/// The same of `ib_write_bw`.
const WRITE_ITERATIONS: u64 = 5000;
/// Least iterations that perftest takes.
const LEAST_ITERATIONS: u64 = 5;
/// A server of perftest stops listening between its first connection and the
/// others: so often it is tried again, and after this time.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// siw takes back what a program sent and has not seen complete when its peer
/// closes: the server's last word gets this time.
const GRACE: Duration = Duration::from_millis(20);
/// How long connections may take to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Runs a test against a server of perftest that listens, as [`settled`].
///
/// # Errors
/// No connection, a far end that is not
/// perftest or another of its programs, a connection that breaks.
pub fn run(
    peer: SocketAddr,
    operation: RdmaOperation,
    config: &RdmaConfig,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<RdmaSummary, RdmaError> {
    let program = Program { operation, latency: config.latency };
    let mut test = Test::open(peer, program, config, stop)?;
    watch(Event::Ready(&test.effective));
    let mut results = Vec::new();
    for size in &config.size.0 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let result = test.size(size.0, stop, watch)?;
        watch(Event::Size(&result));
        results.push(result);
    }
    let notices = notices(config, &test.effective, test.lanes.shape.depth);
    let effective = test.effective.clone();
    test.leave(results.last(), stop)?;
    let complete = results.len() == config.size.0.len();
    Ok(RdmaSummary { operation, requested: config.clone(), effective, results, complete, notices })
}

/// The configuration as it is carried out: perftest counts messages and has no
/// warm-up.
///
/// # Errors
/// What perftest does not do.
pub fn settled(program: Program, config: &RdmaConfig) -> Result<RdmaConfig, RdmaError> {
    Shape::of(config, program.operation)?;
    let fail = |reason: String| Err(RdmaError::Option(reason));
    if program.latency && config.queue_pairs != 1 {
        return fail(format!("{} has one queue pair: leave --queue-pairs out", program.name()));
    }
    if program.one_size() && config.size.0.len() > 1 {
        return fail(format!("{} must know the size: choose one, the same as there (-s)", program.name()));
    }
    if config.rx_depth.is_some_and(|depth| depth < 3) {
        return fail("--rx-depth: perftest needs at least 3 receives".to_owned());
    }
    let usual = match (program.operation, program.latency) {
        (RdmaOperation::Write, false) => WRITE_ITERATIONS,
        _ => ITERATIONS,
    };
    let iterations = config.iterations.unwrap_or(usual);
    if iterations < LEAST_ITERATIONS {
        return fail(format!("{iterations} messages: perftest takes {LEAST_ITERATIONS} or more"));
    }
    Ok(RdmaConfig { iterations: Some(iterations), warm_up: TimeSpan(0), ..config.clone() })
}

/// Everything that a test has open.
struct Test {
    program: Program,
    control: Control,
    lanes: Lanes,
    counts: Option<Counts>,
    far: Vec<Remote>,
    effective: RdmaEffective,
    config: RdmaConfig,
    iterations: u64,
}

impl Test {
    fn open(
        peer: SocketAddr,
        program: Program,
        config: &RdmaConfig,
        stop: &AtomicBool,
    ) -> Result<Self, RdmaError> {
        let depth = if program.latency { 1 } else { config.depth };
        let shape = shape(config.size.largest(), depth, config.queue_pairs);
        let mut lanes = Lanes::new(&open_rnic(config.progress, config.core)?, config, shape, End::Near)?;
        lanes.lay_out(config.size.largest());
        let counts = match (program.operation, program.latency) {
            (RdmaOperation::Send, false) => Some(Counts::new(lanes.domain(), lanes.pairs.len())?),
            _ => None,
        };
        let quiet = Rnic::open(RnicOptions::default())?;
        let mut control = Control::new(&ProtectionDomain::new(&quiet))?;
        control.connect(peer, &connect_options(config, 0), stop)?;
        control.greet(true, stop)?;
        // A step, the other connections, and a step.
        control.introduce(true, Introduction::default(), stop)?;
        let reads = if program.operation == RdmaOperation::Read { config.outstanding_reads } else { 0 };
        connect(&mut lanes, peer, &connect_options(config, reads), stop)?;
        control.introduce(true, Introduction::default(), stop)?;
        let own = own_introductions(&lanes, counts.as_ref(), reads);
        let far = introduce(&control, true, program, &own, stop)?;
        let mut effective = effective(config, lanes.agreed())?;
        (effective.far.progress, effective.far.wait, effective.far.core) = (None, None, None);
        let iterations = config.iterations.unwrap_or(ITERATIONS);
        Ok(Self { program, control, lanes, counts, far, effective, config: config.clone(), iterations })
    }

    fn size(
        &mut self,
        size: u64,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<RdmaResult, RdmaError> {
        let (operation, bytes) = (self.program.operation, u32::try_from(size).unwrap_or(u32::MAX));
        let mut going = || watch(Event::Going(ByteCount(size)));
        let cpu = cpu_ns();
        let begun = std::time::Instant::now();
        let (latency, sent, elapsed) = if self.program.latency {
            let mut exchange = Exchange::new(operation, self.far[0], bytes);
            let found = exchange.measure(&mut self.lanes, self.iterations, stop, &mut going)?;
            (found.latency(), self.iterations, begun.elapsed())
        } else {
            let receives = self.config.rx_depth.unwrap_or(RECEIVES);
            // The server posts no more than it will receive.
            let receives = u64::from(receives).min(self.iterations) as u32;
            let counts = self.counts.as_ref().map(|counts| (counts, receives));
            let flow = Flow { operation, far: &self.far, counts, size: bytes, count: self.iterations };
            let elapsed = flow.run(&mut self.lanes, stop, &mut going)?;
            (None, self.iterations * u64::from(self.config.queue_pairs), elapsed)
        };
        Ok(RdmaResult {
            size_bytes: size,
            depth_count: self.lanes.shape.depth,
            forward: RdmaRate::new(sent, size, nanoseconds(elapsed)),
            reverse: None,
            latency,
            near_cpu_ns: cpu_ns() - cpu,
            far_cpu_ns: None,
            verified: None,
        })
    }

    /// Tells the server what was found, and ends the talk.
    fn leave(self, last: Option<&RdmaResult>, stop: &AtomicBool) -> Result<(), RdmaError> {
        let own = Introduction::default();
        if self.program.reports() {
            self.control.introduce(true, own, stop)?;
            for figure in report(last).encode() {
                self.control.ask(&figure, stop)?;
            }
        }
        if self.program.takes_leave() {
            self.control.introduce(true, own, stop)?;
        }
        self.lanes.close();
        std::thread::sleep(GRACE);
        self.control.close(FAREWELL);
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

/// Connects all queue pairs.
fn connect(
    lanes: &mut Lanes,
    peer: SocketAddr,
    options: &ConnectOptions,
    stop: &AtomicBool,
) -> Result<(), RdmaError> {
    let mut tries = 0;
    while !lanes.complete() {
        match lanes.connect(peer, options, stop) {
            Ok(()) => tries = 0,
            Err(RdmaError::Connect { source: ConnectError::Tcp { source, .. } })
                if source.kind() == io::ErrorKind::ConnectionRefused && tries < TRIES =>
            {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::Stopped);
        }
    }
    Ok(())
}

/// What each of our queue pairs says of itself.
#[must_use]
pub fn own_introductions(lanes: &Lanes, counts: Option<&Counts>, reads: u16) -> Vec<Introduction> {
    let place = |lane: usize| match counts {
        Some(counts) => counts.place(lane),
        None => lanes.advert().sink(lane),
    };
    let pairs = lanes.pairs.iter().enumerate();
    pairs
        .map(|(lane, pair)| Introduction {
            reads: u32::from(reads.max(1)),
            queue_pair: pair.id().0,
            stag: place(lane).stag.0,
            address: place(lane).address,
        })
        .collect()
}

/// The words of both ends about their queue pairs: the other end's places.
///
/// # Errors
/// As [`Control::ask`].
pub fn introduce(
    control: &Control,
    client: bool,
    program: Program,
    own: &[Introduction],
    stop: &AtomicBool,
) -> Result<Vec<Remote>, RdmaError> {
    let mut far = vec![Remote { stag: clearstream_iwarp::stag::Stag(0), address: 0 }; own.len()];
    for lane in program.introductions(own.len()) {
        far[lane] = control.introduce(client, own[lane], stop)?.place();
    }
    Ok(far)
}
