//! The client of a measurement: connects, negotiates, makes a run for each
//! message size, and computes the summary.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::Established;
use clearstream_schema::rdma::{
    RdmaConfig, RdmaEffective, RdmaOperation, RdmaRate, RdmaResult, RdmaSample, RdmaSummary,
};

use crate::{
    control_channel::ControlChannel,
    data_queue_pairs::{DataQueuePairs, Role, open_rnic},
    error::RdmaError,
    generator::{Conventions, Credits, Generator, Limit, Load, Measured, Watch},
    negotiation::{
        ConnectionPurpose, ConnectionRequest, Cookie, Layout, Message, Report, Run, accept_private_data,
        connect_options,
    },
    sampler::Sampler,
    samples::{cpu_ns, nanoseconds},
    summary::{effective, notices},
};

/// Maximum wait for the server's next control message.
const CONTROL_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for the graceful close of the control channel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A stop flag that is never set: the end of a run is not interrupted.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Events of a measurement.
#[derive(Debug)]
pub enum Event<'a> {
    /// Connected, with these settings.
    Ready(&'a RdmaEffective),
    /// A sample of a run.
    Sample(&'a RdmaSample),
    /// A size is complete.
    Size(&'a RdmaResult),
}

/// Measures against a listening server; `cookie` is the one that it expects, or
/// any where it serves all clients.
///
/// # Errors
/// Invalid options, no connection, a peer that is not `clearstream rdma serve`,
/// a lost connection.
pub fn measure(
    peer: SocketAddr,
    cookie: Cookie,
    operation: RdmaOperation,
    config: &RdmaConfig,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<RdmaSummary, RdmaError> {
    let mut session = Session::open(peer, cookie, operation, config, stop)?;
    let effective = effective(config, session.pairs.established())?;
    watch(Event::Ready(&effective));
    let mut results = Vec::new();
    for size in &config.size.0 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if config.warm_up.0 > 0 {
            let mut warm_up = Sampler::new(config, operation, size.0, true);
            session.run(size.0, Limit::Duration(config.warm_up.to_std()), &mut warm_up, watch)?;
        }
        let limit = config.iterations.map_or(Limit::Duration(config.duration.to_std()), Limit::Count);
        let mut sampler = Sampler::new(config, operation, size.0, false);
        let outcome = session.run(size.0, limit, &mut sampler, watch)?;
        if outcome.own.message_count == 0 {
            break;
        }
        let result = result(config, session.pairs.layout.depth, size.0, &outcome);
        watch(Event::Size(&result));
        results.push(result);
    }
    let complete = !stop.load(Ordering::Relaxed);
    let notices = notices(config, &effective, session.pairs.layout.depth);
    session.close();
    Ok(RdmaSummary { operation, requested: config.clone(), effective, results, complete, notices })
}

/// Results of both sides for one run.
struct Outcome {
    own: Measured,
    cpu_ns: u64,
    mismatches: u64,
    /// `None` where messages have no immediate data.
    immediate_mismatches: Option<u64>,
    server: Report,
}

/// A negotiated measurement.
struct Session<'a> {
    control: ControlChannel,
    pairs: DataQueuePairs,
    generator: Generator,
    stop: &'a AtomicBool,
}

impl<'a> Session<'a> {
    fn open(
        peer: SocketAddr,
        cookie: Cookie,
        operation: RdmaOperation,
        config: &RdmaConfig,
        stop: &'a AtomicBool,
    ) -> Result<Self, RdmaError> {
        // Report local errors before contacting the server.
        let layout = Layout::new(config, operation)?;
        let rnic = open_rnic(config.progress, config.core)?;
        let mut pairs = DataQueuePairs::new(&rnic, config, layout, Role::Client)?;
        let mut control = ControlChannel::open()?;
        let immediate = config.immediate;
        let request = |purpose| connect_options(config, ConnectionRequest { cookie, purpose, immediate });
        let options = request(ConnectionPurpose::Control);
        check_server(control.queue_pair().connect(peer, &options, stop)?, config)?;
        control.send(&Message::Open { operation, config: Box::new(config.clone()) })?;
        match control.receive(CONTROL_REPLY_TIMEOUT, stop)? {
            Message::Welcome => {}
            other => return Err(other.unexpected(peer, "welcome")),
        }
        for qp in 0..config.queue_pairs {
            pairs.connect_next(peer, &request(ConnectionPurpose::Data(qp)), stop)?;
        }
        pairs.check_immediate_data()?;
        let remote = match control.receive(CONTROL_REPLY_TIMEOUT, stop)? {
            Message::Memory(advert) => advert.of_queue_pairs(pairs.count()),
            other => return Err(other.unexpected(peer, "memory")),
        };
        control.send(&Message::Memory(pairs.advert()))?;
        let credits = Credits::by_immediate_data(&pairs, operation);
        let load = Load::new(config, operation);
        let generator =
            Generator::new(&pairs, Role::Client, load, remote, Conventions::clearstream(config), credits);
        Ok(Self { control, pairs, generator, stop })
    }

    /// Performs one run. The stop flag ends it early, with the results up to
    /// then.
    fn run(
        &mut self,
        size: u64,
        limit: Limit,
        sampler: &mut Sampler,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Outcome, RdmaError> {
        self.pairs.fill_memory(size);
        self.control.send(&Message::Prepare(Run { size }))?;
        match self.control.receive(CONTROL_REPLY_TIMEOUT, &NEVER)? {
            Message::Ready => {}
            other => return Err(other.unexpected(self.pairs.peer(), "ready")),
        }
        let cpu = cpu_ns();
        let mut on_tick = |elapsed, messages| {
            if let Some(sample) = sampler.sample(elapsed, messages) {
                watch(Event::Sample(&sample));
            }
        };
        self.generator.begin(size);
        let own = self.generator.run(&mut self.pairs, limit, &mut Watch::new(self.stop, &mut on_tick))?;
        on_tick(own.elapsed, own.message_count);
        self.control.send(&Message::Finish)?;
        let server = self.report()?;
        let cpu_ns = cpu_ns() - cpu;
        let mismatches = self.generator.mismatches(&self.pairs);
        let immediate_mismatches = self.generator.immediate_mismatches();
        Ok(Outcome { own, cpu_ns, mismatches, immediate_mismatches, server })
    }

    /// Waits for the server's results, and processes what it still sends.
    fn report(&mut self) -> Result<Report, RdmaError> {
        let since = Instant::now();
        loop {
            if self.generator.step(&mut self.pairs)? {
                continue;
            }
            match self.control.try_receive()? {
                Some(Message::Report(report)) => return Ok(report),
                Some(other) => return Err(other.unexpected(self.pairs.peer(), "report")),
                None if since.elapsed() > CONTROL_REPLY_TIMEOUT => {
                    return Err(self.pairs.lost(0, "no report of the server"));
                }
                None => {
                    self.pairs.idle()?;
                }
            }
        }
    }

    fn close(self) {
        self.pairs.close();
        self.control.close(CLOSE_TIMEOUT);
    }
}

/// Whether `clearstream rdma serve` has accepted the connection.
pub(crate) fn check_server(established: &Established, config: &RdmaConfig) -> Result<(), RdmaError> {
    if established.private_data == accept_private_data(config) {
        return Ok(());
    }
    Err(RdmaError::OtherPeer {
        peer: established.peer,
        expected: "`clearstream rdma serve`",
        seen: format!("it accepted with {} bytes of other private data", established.private_data.len()),
    })
}

fn result(config: &RdmaConfig, depth: u32, size: u64, outcome: &Outcome) -> RdmaResult {
    let (own, server) = (&outcome.own, &outcome.server);
    let mismatches = outcome.mismatches.saturating_add(server.mismatches.unwrap_or(0));
    // A server that reports none has compared nothing.
    let immediate =
        outcome.immediate_mismatches.map(|own| (own, server.immediate_mismatches) == (0, Some(0)));
    RdmaResult {
        size_bytes: size,
        depth_count: depth,
        forward: RdmaRate::new(own.message_count, size, nanoseconds(own.elapsed)),
        reverse: config.both_ways.then(|| RdmaRate::new(server.sent, size, server.elapsed_ns)),
        latency: own.latency.clone(),
        near_cpu_ns: outcome.cpu_ns,
        far_cpu_ns: Some(server.cpu_ns),
        verified: config.verify.then_some(mismatches == 0),
        immediate_verified: immediate,
    }
}
