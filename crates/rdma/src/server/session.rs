//! Server part of one measurement: processes the client's requests until the
//! client closes its control channel.

use std::{
    net::SocketAddr,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::Incoming;
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation};

use crate::{
    blocking::STOP_POLL_INTERVAL,
    control_channel::ControlChannel,
    data_queue_pairs::{DataQueuePairs, Role, open_rnic},
    error::RdmaError,
    generator::{Conventions, Credits, Generator, Load},
    negotiation::{Layout, Message, PrivateData, Report, accept_options},
    samples::{cpu_ns, nanoseconds},
    silence::{FIRST_MESSAGE_LIMIT, Silence},
};

/// Maximum wait for the client's next message outside of runs.
const CONTROL_REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for the graceful close of the control channel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that sends is never idle: after this many steps it polls the
/// control channel.
const STEPS_PER_CONTROL_POLL: u32 = 256;

/// A served measurement.
#[derive(Debug, Clone)]
pub struct Served {
    /// Measured operation.
    pub operation: RdmaOperation,
    /// Requested settings.
    pub config: RdmaConfig,
}

/// Serves one measurement: `request` is its control channel, and `arrivals`
/// provides the data connections. A client that is silent for longer than
/// `silence` is given up.
///
/// # Errors
/// A measurement that is impossible on this host (the client was notified), a
/// client that violates the protocol, or a lost connection.
pub(super) fn serve(
    request: Incoming,
    arrivals: &Receiver<(u16, Incoming)>,
    silence: Duration,
    stop: &AtomicBool,
) -> Result<Served, RdmaError> {
    let mut control = ControlChannel::open()?;
    let peer = request.peer;
    // The control channel is accepted as requested; the settings of the
    // measurement are not known yet.
    let immediate = PrivateData::decode(&request.private_data).carries_immediate_data();
    let requested =
        RdmaConfig { no_crc: !request.crc, markers: request.markers, immediate, ..RdmaConfig::default() };
    control.queue_pair().accept(request, &accept_options(&requested))?;
    let (operation, config) = match control.receive(FIRST_MESSAGE_LIMIT.min(silence), stop)? {
        Message::Open { operation, config } => (operation, *config),
        other => return Err(other.unexpected(peer, "open")),
    };
    let opened = Layout::new(&config, operation).and_then(|layout| {
        let rnic = open_rnic(config.progress, config.remote_core)?;
        DataQueuePairs::new(&rnic, &config, layout, Role::Server)
    });
    let mut pairs = match opened {
        Ok(pairs) => pairs,
        Err(error) => return refuse(control, error),
    };
    control.send(&Message::Welcome)?;
    accept_all(&mut pairs, arrivals, peer, stop)?;
    if let Err(error) = pairs.check_immediate_data() {
        return refuse(control, error);
    }
    control.send(&Message::Memory(pairs.advert()))?;
    let remote = match control.receive(CONTROL_REPLY_TIMEOUT, stop)? {
        Message::Memory(advert) => advert.of_queue_pairs(pairs.count()),
        other => return Err(other.unexpected(peer, "memory")),
    };
    let credits = Credits::by_immediate_data(&pairs, operation);
    let (load, conventions) = (Load::new(&config, operation), Conventions::clearstream(&config));
    let generator = Generator::new(&pairs, Role::Server, load, remote, conventions, credits);
    let mut session = Session { control, pairs, generator, sends: load.bidirectional, silence };
    while session.run(stop)? {}
    session.pairs.close();
    session.control.close(CLOSE_TIMEOUT);
    Ok(Served { operation, config })
}

/// Notifies the client of a measurement that is impossible.
fn refuse(mut control: ControlChannel, error: RdmaError) -> Result<Served, RdmaError> {
    control.send(&Message::Refused { reason: error.to_string(), option: error.is_option() })?;
    control.close(CLOSE_TIMEOUT);
    Err(error)
}

fn accept_all(
    pairs: &mut DataQueuePairs,
    arrivals: &Receiver<(u16, Incoming)>,
    peer: SocketAddr,
    stop: &AtomicBool,
) -> Result<(), RdmaError> {
    let since = Instant::now();
    let options = accept_options(&pairs.config);
    while !pairs.all_connected() {
        match arrivals.recv_timeout(STOP_POLL_INTERVAL) {
            Ok((index, request)) => pairs.accept(index, request, &options)?,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Err(RdmaError::Stopped),
            Err(RecvTimeoutError::Timeout) if since.elapsed() < CONTROL_REPLY_TIMEOUT => {}
            // Its data connections were not opened, or by few.
            Err(_) => return Err(RdmaError::Silent { peer, after: CONTROL_REPLY_TIMEOUT }),
        }
    }
    Ok(())
}

struct Session {
    control: ControlChannel,
    pairs: DataQueuePairs,
    generator: Generator,
    /// Whether the server sends, writes or reads as well.
    sends: bool,
    /// Longest silence of the client.
    silence: Duration,
}

impl Session {
    /// Performs one run; false when the client has closed the control channel
    /// instead.
    fn run(&mut self, stop: &AtomicBool) -> Result<bool, RdmaError> {
        let size = match self.control.receive_or_close(self.silence, stop)? {
            None => return Ok(false),
            Some(Message::Prepare(run)) => run.size,
            Some(other) => return Err(other.unexpected(self.pairs.peer(), "prepare")),
        };
        let least = u64::from(!self.pairs.config.immediate);
        if size < least || size > self.pairs.layout.slot_bytes {
            let reason = format!("messages of {size} bytes were not negotiated");
            self.control.send(&Message::Refused { reason: reason.clone(), option: false })?;
            return Err(self.pairs.lost(0, &reason));
        }
        self.pairs.fill_memory(size);
        self.generator.begin(size);
        let cpu = cpu_ns();
        self.control.send(&Message::Ready)?;
        self.generate(stop)?;
        let cpu_ns = cpu_ns() - cpu;
        let mismatches = self.generator.mismatches(&self.pairs);
        let mut report = Report { cpu_ns, ..Report::default() };
        report.mismatches = self.pairs.config.verify.then_some(mismatches);
        report.immediate_mismatches = self.generator.immediate_mismatches();
        if self.sends {
            let measured = self.generator.measured();
            (report.sent, report.elapsed_ns) = (measured.message_count, nanoseconds(measured.elapsed));
        }
        self.control.send(&Message::Report(report))?;
        Ok(true)
    }

    /// Receives and echoes messages, and sends where the load is bidirectional,
    /// until the client has finished.
    fn generate(&mut self, stop: &AtomicBool) -> Result<(), RdmaError> {
        let mut finished = false;
        let mut silence = Silence::new(self.silence);
        let mut steps = 0u32;
        loop {
            let is_busy = self.generator.step(&mut self.pairs)?;
            if finished && self.generator.is_drained(&self.pairs)? {
                return Ok(());
            }
            steps = steps.wrapping_add(1);
            let is_idle = !is_busy && self.pairs.idle()?;
            if is_idle {
                silence.check(&self.pairs)?;
            }
            if finished {
                if is_idle {
                    self.generator.check_stall(&self.pairs)?;
                }
            } else if is_idle || self.sends && steps.is_multiple_of(STEPS_PER_CONTROL_POLL) {
                finished = self.is_finished(stop)?;
                if finished {
                    self.generator.finish();
                }
            }
        }
    }

    fn is_finished(&mut self, stop: &AtomicBool) -> Result<bool, RdmaError> {
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::Stopped);
        }
        match self.control.try_receive()? {
            None => Ok(false),
            Some(Message::Finish) => Ok(true),
            Some(other) => Err(other.unexpected(self.pairs.peer(), "finish")),
        }
    }
}
