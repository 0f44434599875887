//! The near end of a test: connects, drives the rounds, and sums up.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{Established, ProtectionDomain, Rnic, RnicOptions};
use clearstream_schema::{
    ByteCount,
    flow::Notice,
    rdma::{
        RdmaConfig, RdmaEffective, RdmaLatency, RdmaOperation, RdmaRate, RdmaResult, RdmaSide, RdmaSummary,
    },
};

use crate::{
    control_channel::Channel,
    data_queue_pairs::{End, Lanes, batch, connect_options, open_rnic},
    error::RdmaError,
    generator::Workload,
    generator::bandwidth::Traffic,
    generator::latency,
    negotiation::{Carries, Cookie, Message, Opening, Report, Round, Shape, welcome},
    samples::{cpu_ns, nanoseconds},
};

/// How long the far end may take for an answer that needs no measuring.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long connections may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How often a watcher hears that a round goes on.
const TICK: Duration = Duration::from_millis(250);

/// No flag: what ends a round in order is not to be interrupted.
static NEVER: AtomicBool = AtomicBool::new(false);

/// What a watcher of a test hears.
#[derive(Debug)]
pub enum Event<'a> {
    /// Connected; this is in force.
    Ready(&'a RdmaEffective),
    /// A size is being measured.
    Going(ByteCount),
    /// A size is done.
    Size(&'a RdmaResult),
}

/// How long a round goes on.
#[derive(Debug, Clone, Copy)]
enum Until {
    /// For a time.
    Time(Duration),
    /// For so many messages on each queue pair.
    Count(u64),
}

/// What one round found.
struct Found {
    sent: u64,
    elapsed: Duration,
    latency: Option<RdmaLatency>,
    near_cpu_ns: u64,
    mismatches: u64,
    report: Report,
}

/// Runs a test against a far end that listens; `cookie` is what it expects, or any
/// where it serves everybody.
///
/// # Errors
/// Options that make no sense, no connection, a far end that is not
/// `clearstream rdma serve`, a connection that breaks.
pub fn run(
    peer: SocketAddr,
    cookie: Cookie,
    operation: RdmaOperation,
    config: &RdmaConfig,
    stop: &AtomicBool,
    watch: &mut dyn FnMut(Event<'_>),
) -> Result<RdmaSummary, RdmaError> {
    let mut test = Test::open(peer, cookie, operation, config, stop)?;
    let effective = effective(config, test.lanes.agreed())?;
    watch(Event::Ready(&effective));
    let mut results = Vec::new();
    for size in &config.size.0 {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if config.warm_up.0 > 0 {
            test.round(size.0, Until::Time(config.warm_up.to_std()), watch)?;
        }
        let until = config.iterations.map_or(Until::Time(config.duration.to_std()), Until::Count);
        let found = test.round(size.0, until, watch)?;
        if found.sent == 0 {
            break;
        }
        let result = result(config, test.lanes.shape.depth, size.0, &found);
        watch(Event::Size(&result));
        results.push(result);
    }
    let complete = !stop.load(Ordering::Relaxed);
    let notices = notices(config, &effective, test.lanes.shape.depth);
    test.close();
    Ok(RdmaSummary { operation, requested: config.clone(), effective, results, complete, notices })
}

/// Everything that a test has open.
struct Test<'a> {
    channel: Channel,
    lanes: Lanes,
    workload: Workload,
    stop: &'a AtomicBool,
}

impl<'a> Test<'a> {
    fn open(
        peer: SocketAddr,
        cookie: Cookie,
        operation: RdmaOperation,
        config: &RdmaConfig,
        stop: &'a AtomicBool,
    ) -> Result<Self, RdmaError> {
        // Everything that can be refused here is, before anybody is asked.
        let shape = Shape::of(config, operation)?;
        let mut lanes = Lanes::new(&open_rnic(config.progress, config.core)?, config, shape, End::Near)?;
        let quiet = Rnic::open(RnicOptions::default())?;
        let mut channel = Channel::new(&ProtectionDomain::new(&quiet))?;
        let options = connect_options(config, Opening { cookie, carries: Carries::Messages });
        check_welcome(channel.wire().connect(peer, &options, stop)?)?;
        channel.say(&Message::Open { operation, config: Box::new(config.clone()) })?;
        match hear(&mut channel, peer, stop)? {
            Message::Welcome => {}
            other => return Err(unexpected(peer, other)),
        }
        for lane in 0..config.queue_pairs {
            let opening = Opening { cookie, carries: Carries::Data(lane) };
            lanes.connect(peer, &connect_options(config, opening), stop)?;
        }
        let far = match hear(&mut channel, peer, stop)? {
            Message::Memory(far) => far,
            other => return Err(unexpected(peer, other)),
        };
        channel.say(&Message::Memory(lanes.advert()))?;
        let workload = Workload::new(&lanes, operation, far);
        Ok(Self { channel, lanes, workload, stop })
    }

    /// One size, once. The flag to stop ends it early, and what was measured
    /// until then is what is found.
    fn round(
        &mut self,
        size: u64,
        until: Until,
        watch: &mut dyn FnMut(Event<'_>),
    ) -> Result<Found, RdmaError> {
        self.lanes.lay_out(size);
        self.channel.say(&Message::Prepare(Round { size }))?;
        match hear(&mut self.channel, self.lanes.peer(), &NEVER)? {
            Message::Ready => {}
            other => return Err(unexpected(self.peer(), other)),
        }
        let cpu = cpu_ns();
        let mut going = Going { until, stop: self.stop, size: ByteCount(size), next: TICK, watch };
        self.workload.begin(size);
        let (sent, elapsed, latency) = match &mut self.workload {
            Workload::Bandwidth(traffic) => {
                flow(traffic, &mut self.lanes, &mut going)?;
                (traffic.sent, traffic.elapsed(), None)
            }
            Workload::Latency(ping_pong) => {
                let begun = Instant::now();
                let lanes_count = self.lanes.pairs.len() as u64;
                let samples = latency::measure(ping_pong, &mut self.lanes, self.stop, |number| {
                    !going.on(begun.elapsed()) || until.is_reached(number / lanes_count)
                })?;
                let latency = samples.latency();
                (latency.as_ref().map_or(0, |latency| latency.sample_count), begun.elapsed(), latency)
            }
        };
        self.channel.say(&Message::Finish)?;
        let report = self.report()?;
        let near_cpu_ns = cpu_ns() - cpu;
        let mismatches = self.workload.mismatches(&self.lanes, End::Near);
        Ok(Found { sent, elapsed, latency, near_cpu_ns, mismatches, report })
    }

    /// Waits for what the far end has to say, and meanwhile takes what it
    /// still sends.
    fn report(&mut self) -> Result<Report, RdmaError> {
        let since = Instant::now();
        let mut found = batch();
        loop {
            let busy = match &mut self.workload {
                Workload::Bandwidth(traffic) => traffic.take(&mut self.lanes, &mut found)?,
                Workload::Latency(_) => false,
            };
            if busy {
                continue;
            }
            match self.channel.try_hear()? {
                Some(Message::Report(report)) => return Ok(report),
                Some(other) => return Err(unexpected(self.peer(), other)),
                None if since.elapsed() > PATIENCE => {
                    return Err(self.lanes.lost(0, "no report of the far end"));
                }
                None => {
                    self.lanes.rest()?;
                }
            }
        }
    }

    fn peer(&self) -> SocketAddr {
        self.lanes.peer()
    }

    fn close(self) {
        self.lanes.close();
        self.channel.close(FAREWELL);
    }
}

/// Whether a round goes on, and who watches it.
struct Going<'a, 'b> {
    until: Until,
    stop: &'a AtomicBool,
    size: ByteCount,
    /// When the watcher hears again.
    next: Duration,
    watch: &'a mut dyn FnMut(Event<'b>),
}

impl Going<'_, '_> {
    fn on(&mut self, elapsed: Duration) -> bool {
        if elapsed >= self.next {
            self.next = elapsed + TICK;
            (self.watch)(Event::Going(self.size));
        }
        let in_time = match self.until {
            Until::Time(time) => elapsed < time,
            Until::Count(_) => true,
        };
        in_time && !self.stop.load(Ordering::Relaxed)
    }
}

impl Until {
    /// Messages on each queue pair, at most.
    fn most(self) -> u64 {
        match self {
            Self::Time(_) => u64::MAX,
            Self::Count(count) => count,
        }
    }

    fn is_reached(self, messages: u64) -> bool {
        messages >= self.most()
    }
}

/// Sends, writes or reads until the round is over and all of it has arrived.
fn flow(traffic: &mut Traffic, lanes: &mut Lanes, going: &mut Going<'_, '_>) -> Result<(), RdmaError> {
    let most = going.until.most();
    let mut found = batch();
    let mut open = true;
    loop {
        open = open && going.on(traffic.elapsed());
        if open {
            traffic.post(lanes, most)?;
        }
        let busy = traffic.take(lanes, &mut found)?;
        if (!open || traffic.all_posted(most)) && traffic.flush(lanes)? {
            return Ok(());
        }
        if !busy && lanes.rest()? {
            traffic.grow_impatient(lanes)?;
        }
    }
}

/// Waits for what the far end says; a refusal is an error.
fn hear(channel: &mut Channel, peer: SocketAddr, stop: &AtomicBool) -> Result<Message, RdmaError> {
    match channel.hear(Some(PATIENCE), stop)? {
        refused @ Message::Refused { .. } => Err(unexpected(peer, refused)),
        message => Ok(message),
    }
}

fn unexpected(peer: SocketAddr, message: Message) -> RdmaError {
    match message {
        Message::Refused { reason, option: true } => RdmaError::Option(format!("{peer}: {reason}")),
        Message::Refused { reason, .. } => RdmaError::Refused { peer, reason },
        other => RdmaError::OtherPeer {
            peer,
            expected: "clearstream of this version",
            seen: format!("it said {other:?}"),
        },
    }
}

/// Whether `clearstream rdma serve` has accepted the connection.
fn check_welcome(agreed: &Established) -> Result<(), RdmaError> {
    if agreed.private_data == welcome() {
        return Ok(());
    }
    Err(RdmaError::OtherPeer {
        peer: agreed.peer,
        expected: "`clearstream rdma serve`",
        seen: format!("it accepted with {} bytes of private data that are others", agreed.private_data.len()),
    })
}

fn result(config: &RdmaConfig, depth: u32, size: u64, found: &Found) -> RdmaResult {
    let elapsed_ns = nanoseconds(found.elapsed);
    let mismatches = found.mismatches + found.report.mismatches.unwrap_or(0);
    RdmaResult {
        size_bytes: size,
        depth_count: depth,
        forward: RdmaRate::new(found.sent, size, elapsed_ns),
        reverse: config.both_ways.then(|| RdmaRate::new(found.report.sent, size, found.report.elapsed_ns)),
        latency: found.latency.clone(),
        near_cpu_ns: found.near_cpu_ns,
        far_cpu_ns: Some(found.report.cpu_ns),
        verified: config.verify.then_some(mismatches == 0),
    }
}

/// What is in force, with a far end that does as this one.
///
/// # Errors
/// There is no queue pair.
pub fn effective(config: &RdmaConfig, agreed: Option<&Established>) -> Result<RdmaEffective, RdmaError> {
    let agreed = agreed.ok_or_else(|| RdmaError::Fault("no queue pair".to_owned()))?;
    let (progress, wait) = (Some(config.progress), Some(config.wait()));
    let side = |address, core| RdmaSide { address, progress, wait, core };
    Ok(RdmaEffective {
        near: side(agreed.local, config.core),
        far: side(agreed.peer, config.far_core),
        revision: agreed.revision,
        crc: agreed.crc,
        markers_sent: agreed.markers_out,
        markers_received: agreed.markers_in,
        outstanding_reads: agreed.ord,
        incoming_reads: agreed.ird,
        mulpdu_bytes: u32::try_from(agreed.mulpdu_bytes).unwrap_or(u32::MAX),
        inline_bytes: u32::try_from(config.inline.0).unwrap_or(u32::MAX),
    })
}

/// What was asked for and is not in force.
#[must_use]
pub fn notices(config: &RdmaConfig, effective: &RdmaEffective, depth: u32) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut note = |id: &str, message: String| notices.push(Notice { id: id.to_owned(), message });
    if !config.latency && depth < config.depth {
        note(
            "depth-limited",
            format!(
                "{depth} requests in flight instead of {}: messages that are compared need a place each",
                config.depth
            ),
        );
    }
    if config.no_crc && effective.crc {
        note("crc-in-force", "CRCs are made and checked: the far end wants them".to_owned());
    }
    if config.markers && !effective.markers_received {
        note("no-markers", "no markers are received: the far end does not send them".to_owned());
    }
    if effective.outstanding_reads < config.outstanding_reads {
        note(
            "fewer-reads",
            format!(
                "{} outstanding Reads instead of {}: the far end takes no more",
                effective.outstanding_reads, config.outstanding_reads
            ),
        );
    }
    notices
}
