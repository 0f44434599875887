//! The far end of a test: does what the near end asks for, until it leaves.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{Incoming, ProtectionDomain};
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation};

use crate::{
    control_channel::Channel,
    data_queue_pairs::{End, Lanes, accept_options, batch, open_rnic},
    error::RdmaError,
    generator::Workload,
    generator::bandwidth::Traffic,
    generator::latency::PingPong,
    negotiation::{Message, Report, Shape},
    samples::{cpu_ns, nanoseconds},
};

/// How long the near end may take for an answer that needs no person.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether to stop while connections are awaited.
const STOP_PERIOD: Duration = Duration::from_millis(50);
/// How long the connection may take to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// What was done in a test.
#[derive(Debug, Clone)]
pub struct Served {
    /// What.
    pub operation: RdmaOperation,
    /// How.
    pub config: RdmaConfig,
    /// Rounds, those of warm-up among them.
    pub rounds: u64,
}

/// Serves one test: `request` is its first connection, and the others come
/// out of `arrivals`.
///
/// # Errors
/// A test that cannot be done here (the near end was told), a near end that
/// does not keep to the rules, or a connection that breaks.
pub fn serve(
    domain: &ProtectionDomain,
    request: Incoming,
    arrivals: &Receiver<(u16, Incoming)>,
    stop: &AtomicBool,
) -> Result<Served, RdmaError> {
    let mut channel = Channel::new(domain)?;
    let peer = request.peer;
    // The first connection is accepted as it was asked for; what the test
    // itself wants is not known yet.
    let wanted = RdmaConfig { no_crc: !request.crc, markers: request.markers, ..RdmaConfig::default() };
    channel.wire().accept(request, &accept_options(&wanted))?;
    let (operation, config) = match channel.hear(Some(PATIENCE), stop)? {
        Message::Open { operation, config } => (operation, *config),
        other => {
            return Err(RdmaError::OtherPeer {
                peer,
                expected: "clearstream of this version",
                seen: format!("it said {other:?}"),
            });
        }
    };
    let opened = open_rnic(config.progress, config.far_core)
        .and_then(|rnic| Lanes::new(&rnic, &config, Shape::of(&config, operation)?, End::Far));
    let mut lanes = match opened {
        Ok(lanes) => lanes,
        Err(error) => {
            let option = error.is_option();
            channel.say(&Message::Refused { reason: error.to_string(), option })?;
            channel.close(FAREWELL);
            return Err(error);
        }
    };
    channel.say(&Message::Welcome)?;
    accept_lanes(&mut lanes, arrivals, stop)?;
    channel.say(&Message::Memory(lanes.advert()))?;
    let far = match channel.hear(Some(PATIENCE), stop)? {
        Message::Memory(far) => far,
        other => return Err(lanes.lost(0, &format!("it said {other:?} before where its memory is"))),
    };
    let mut session = Session { workload: Workload::new(&lanes, operation, far), channel, lanes };
    let rounds = session.rounds(stop)?;
    session.lanes.close();
    session.channel.close(FAREWELL);
    Ok(Served { operation, config, rounds })
}

fn accept_lanes(
    lanes: &mut Lanes,
    arrivals: &Receiver<(u16, Incoming)>,
    stop: &AtomicBool,
) -> Result<(), RdmaError> {
    let since = Instant::now();
    let options = accept_options(&lanes.config);
    while !lanes.complete() {
        match arrivals.recv_timeout(STOP_PERIOD) {
            Ok((lane, request)) => lanes.accept(lane, request, &options)?,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Err(RdmaError::Stopped),
            Err(RecvTimeoutError::Timeout) if since.elapsed() < PATIENCE => {}
            Err(_) => return Err(lanes.lost(0, "not all queue pairs were connected")),
        }
    }
    Ok(())
}

struct Session {
    channel: Channel,
    lanes: Lanes,
    workload: Workload,
}

impl Session {
    /// Rounds until the near end leaves: how many.
    fn rounds(&mut self, stop: &AtomicBool) -> Result<u64, RdmaError> {
        let mut rounds = 0;
        loop {
            let size = match self.channel.hear_or_end(stop)? {
                None => return Ok(rounds),
                Some(Message::Prepare(round)) => round.size,
                Some(other) => return Err(self.lanes.lost(0, &format!("it said {other:?} between rounds"))),
            };
            if size == 0 || size > self.lanes.shape.slot_bytes {
                let reason = format!("messages of {size} bytes were not agreed on");
                self.channel.say(&Message::Refused { reason: reason.clone(), option: false })?;
                return Err(self.lanes.lost(0, &reason));
            }
            self.lanes.lay_out(size);
            self.workload.begin(size);
            let cpu = cpu_ns();
            self.channel.say(&Message::Ready)?;
            let mut report = match &mut self.workload {
                Workload::Bandwidth(traffic) => flow(traffic, &mut self.lanes, &mut self.channel, stop)?,
                Workload::Latency(ping_pong) => answer(ping_pong, &mut self.lanes, &mut self.channel, stop)?,
            };
            report.cpu_ns = cpu_ns() - cpu;
            let mismatches = self.workload.mismatches(&self.lanes, End::Far);
            report.mismatches = self.lanes.config.verify.then_some(mismatches);
            self.channel.say(&Message::Report(report))?;
            rounds += 1;
        }
    }
}

/// Takes what comes, and sends where both do, until the near end has finished.
fn flow(
    traffic: &mut Traffic,
    lanes: &mut Lanes,
    channel: &mut Channel,
    stop: &AtomicBool,
) -> Result<Report, RdmaError> {
    let sends = lanes.config.both_ways;
    let mut found = batch();
    let mut finished = false;
    let mut turns = 0u32;
    loop {
        if sends && !finished {
            traffic.post(lanes, u64::MAX)?;
        }
        let busy = traffic.take(lanes, &mut found)?;
        if finished && (!sends || traffic.flush(lanes)?) {
            let elapsed_ns = if sends { nanoseconds(traffic.elapsed()) } else { 0 };
            return Ok(Report { sent: traffic.sent, elapsed_ns, ..Report::default() });
        }
        turns = turns.wrapping_add(1);
        let pause = !busy && lanes.rest()?;
        if (pause || turns.is_multiple_of(TURNS_PER_LOOK)) && !finished {
            finished = is_finished(lanes, channel, stop)?;
        } else if pause && finished {
            traffic.grow_impatient(lanes)?;
        }
    }
}

/// A far end that sends is never idle: so often it looks at the messages.
const TURNS_PER_LOOK: u32 = 256;

/// Answers each message, until the near end has finished.
fn answer(
    ping_pong: &mut PingPong,
    lanes: &mut Lanes,
    channel: &mut Channel,
    stop: &AtomicBool,
) -> Result<Report, RdmaError> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::Stopped);
        }
        if !ping_pong.answer(lanes)? && is_finished(lanes, channel, stop)? {
            return Ok(Report::default());
        }
    }
}

fn is_finished(lanes: &Lanes, channel: &mut Channel, stop: &AtomicBool) -> Result<bool, RdmaError> {
    if stop.load(Ordering::Relaxed) {
        return Err(RdmaError::Stopped);
    }
    match channel.try_hear()? {
        None => Ok(false),
        Some(Message::Finish) => Ok(true),
        Some(other) => Err(lanes.lost(0, &format!("it said {other:?} in a round"))),
    }
}
