//! The server's role: the client is one of perftest's programs.
//!
//! One client is served at a time. How many messages come is not asked
//! beforehand: the client's word on the first connection ends a run.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::verbs::{AcceptOptions, Incoming, Listener, ProtectionDomain, Rnic, RnicOptions};
use clearstream_schema::rdma::{RdmaConfig, RdmaOperation, RdmaProgress, RdmaRate};

use super::{
    Program,
    client::{introduce, own_introductions},
    control::{Control, Heard, PATIENCE},
    format::{FIGURE_BYTES, FIGURES, INTRODUCTION_BYTES, Introduction, Report},
    intake::Intake,
    latency::Exchange,
    shape,
};
use crate::{
    data_queue_pairs::{Batch, End, Lanes, batch, open_rnic},
    error::RdmaError,
    samples::nanoseconds,
    server::Told,
};

/// How often it is looked whether to stop.
const STOP_PERIOD: Duration = Duration::from_millis(50);
/// The first connection may end a little after the others.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// How long connections may take to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Reads that a client may have outstanding: as many as perftest asks for on
/// Linux' siw.
const READS: u16 = 128;

/// What a server does.
#[derive(Debug, Clone)]
pub struct Service {
    /// Which of the programs it is.
    pub program: Program,
    /// Bytes of the largest message; of every one with `ib_write_lat`.
    pub size: u64,
    /// Queue pairs of a client.
    pub queue_pairs: u16,
    /// Receives on each of them.
    pub receives: u32,
    /// Messages of `ib_write_lat`.
    pub iterations: u64,
    /// Who moves the bytes.
    pub progress: RdmaProgress,
    /// End after the first client.
    pub once: bool,
}

/// What was done for a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Which program.
    pub program: Program,
    /// On so many queue pairs.
    pub queue_pairs: u16,
    /// What was counted here, of each size that came.
    pub runs: Vec<RdmaRate>,
    /// What the client told.
    pub report: Option<Report>,
}

/// A listening endpoint.
#[derive(Debug)]
pub struct Server {
    domain: ProtectionDomain,
    listener: Listener,
    service: Service,
}

impl Server {
    /// Binds and listens; port 0 takes a free one.
    ///
    /// # Errors
    /// Options that make no sense, an address that is in use or is not this
    /// host's.
    pub fn bind(address: SocketAddr, service: Service) -> Result<Self, RdmaError> {
        if service.program.latency && service.queue_pairs != 1 {
            let name = service.program.name();
            return Err(RdmaError::Option(format!("{name} has one queue pair: leave --queue-pairs out")));
        }
        // Memory that cannot be had is refused before anybody comes.
        drop(service.lanes(0)?);
        let rnic = Rnic::open(RnicOptions::default())?;
        let listener =
            Listener::bind(&rnic, address).map_err(|source| RdmaError::Listen { address, source })?;
        Ok(Self { domain: ProtectionDomain::new(&rnic), listener, service })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// Serves one client after the other until `stop` is raised, or, where
    /// that was asked for, one.
    ///
    /// # Errors
    /// A listening socket that fails.
    pub fn run(&self, stop: &AtomicBool, tell: &dyn Fn(Told<'_>)) -> Result<(), RdmaError> {
        while !stop.load(Ordering::Relaxed) {
            let Some(request) = self.listener.accept(Some(STOP_PERIOD))? else { continue };
            let peer = request.peer;
            match self.serve(request, stop) {
                Ok(served) => tell(Told::Perftest { peer, served }),
                Err(RdmaError::Stopped) => break,
                Err(error) => tell(Told::Failed { peer, error }),
            }
            if self.service.once {
                break;
            }
        }
        Ok(())
    }

    /// Serves the client whose first connection this is.
    fn serve(&self, request: Incoming, stop: &AtomicBool) -> Result<Served, RdmaError> {
        let peer = request.peer;
        let mut control = Control::new(&self.domain)?;
        control.accept(request)?;
        let cycle = control.greet(false, stop)?;
        let mut lanes = self.service.lanes(cycle)?;
        lanes.lay_out(1);
        control.introduce(false, Introduction::default(), stop)?;
        self.accept(&mut lanes, peer, stop)?;
        control.introduce(false, Introduction::default(), stop)?;
        let reads = if self.service.program.operation == RdmaOperation::Read { READS } else { 0 };
        let own = own_introductions(&lanes, None, reads);
        let far = introduce(&control, false, self.service.program, &own, stop)?;
        let duty = match (self.service.program.operation, self.service.program.latency) {
            (RdmaOperation::Send, false) => Duty::Intake(Box::new(Intake::new(far))),
            (RdmaOperation::Send, true) => {
                Duty::Exchange(Box::new(Exchange::new(RdmaOperation::Send, far[0], 0)))
            }
            (RdmaOperation::Write, true) => {
                let size = u32::try_from(self.service.size).unwrap_or(u32::MAX);
                Duty::Exchange(Box::new(Exchange::new(RdmaOperation::Write, far[0], size)))
            }
            _ => Duty::None(Box::new(batch())),
        };
        let served = Served {
            program: self.service.program,
            queue_pairs: self.service.queue_pairs,
            runs: Vec::new(),
            report: None,
        };
        let own = own[0];
        let mut session =
            Session { control, lanes, duty, own, served, figures: 0, iterations: self.service.iterations };
        session.attend(stop)?;
        session.lanes.close();
        session.control.close(FAREWELL);
        Ok(session.served)
    }

    /// Accepts the queue pairs of a client.
    fn accept(&self, lanes: &mut Lanes, peer: SocketAddr, stop: &AtomicBool) -> Result<(), RdmaError> {
        let program = self.service.program;
        let options = AcceptOptions {
            ird: READS,
            ord: READS,
            // ib_write_lat's server writes first, and its client waits for that.
            speak_first: program.latency && program.operation == RdmaOperation::Write,
            ..AcceptOptions::default()
        };
        let since = Instant::now();
        let mut next = 0;
        while !lanes.complete() {
            match self.listener.accept(Some(STOP_PERIOD))? {
                Some(request) if request.peer.ip() == peer.ip() => {
                    lanes.accept(next, request, &options)?;
                    next += 1;
                }
                Some(request) => drop(request.reject(b"busy with another client: try again later")),
                None if stop.load(Ordering::Relaxed) => return Err(RdmaError::Stopped),
                None if since.elapsed() > PATIENCE => {
                    let wanted = self.service.queue_pairs;
                    return Err(RdmaError::Lost {
                        peer,
                        reason: format!(
                            "{next} of {wanted} queue pairs were connected; give both ends the same -q"
                        ),
                    });
                }
                None => {}
            }
        }
        Ok(())
    }
}

impl Service {
    /// Queue pairs and memory for a client that walks through so many bytes.
    fn lanes(&self, cycle: u32) -> Result<Lanes, RdmaError> {
        let cycle = u64::from(cycle).min(MOST_CYCLE_BYTES);
        let config = RdmaConfig { progress: self.progress, ..RdmaConfig::default() };
        let shape = shape(self.size.max(cycle), self.receives, self.queue_pairs);
        Lanes::new(&open_rnic(self.progress, None)?, &config, shape, End::Far)
    }
}

/// Pages of a client that are believed.
const MOST_CYCLE_BYTES: u64 = 2 << 20;

/// What the program itself does meanwhile.
#[derive(Debug)]
enum Duty {
    /// It takes Sends.
    Intake(Box<Intake>),
    /// It answers messages.
    Exchange(Box<Exchange>),
    /// Nothing, but with inline progress somebody must move bytes.
    None(Box<Batch>),
}

struct Session {
    control: Control,
    lanes: Lanes,
    duty: Duty,
    own: Introduction,
    served: Served,
    /// Figures of the report that have come.
    figures: usize,
    iterations: u64,
}

impl Session {
    /// Until the client has left.
    fn attend(&mut self, stop: &AtomicBool) -> Result<(), RdmaError> {
        let mut began = Instant::now();
        loop {
            let busy = match self.look() {
                Ok(busy) => busy,
                // The queue pairs end before the first connection does.
                Err(error) => return self.gone(began, error),
            };
            if busy || !self.lanes.rest()? {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(RdmaError::Stopped);
            }
            match self.control.try_hear()? {
                Heard::Nothing => {}
                Heard::Left => {
                    self.drain();
                    self.count(began);
                    return Ok(());
                }
                Heard::Word(word) => {
                    self.heard(&word, began)?;
                    began = Instant::now();
                }
            }
        }
    }

    fn look(&mut self) -> Result<bool, RdmaError> {
        match &mut self.duty {
            Duty::Intake(intake) => intake.take(&mut self.lanes),
            Duty::Exchange(exchange) => exchange.answer(&mut self.lanes, self.iterations),
            Duty::None(found) => Ok(self.lanes.poll(found)? > 0),
        }
    }

    /// The client's message: a run is over or begins, or a figure. Data of the
    /// run may arrive after it, on the other connections.
    fn heard(&mut self, word: &[u8], began: Instant) -> Result<(), RdmaError> {
        if word.len() == INTRODUCTION_BYTES {
            match &mut self.duty {
                Duty::Intake(intake) => intake.announced(),
                Duty::Exchange(_) | Duty::None(_) => self.count(began),
            }
        }
        self.reply(word)
    }

    /// Takes what is still on its way after the client has left: until the
    /// queue pairs are over, or nothing has come for a while.
    fn drain(&mut self) {
        if !matches!(self.duty, Duty::Intake(_)) {
            return;
        }
        let mut last = Instant::now();
        while last.elapsed() < FAREWELL {
            match self.look() {
                Ok(true) => last = Instant::now(),
                Ok(false) => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => return,
            }
        }
    }

    fn reply(&mut self, word: &[u8]) -> Result<(), RdmaError> {
        if let Ok(figure) = <[u8; FIGURE_BYTES]>::try_from(word) {
            self.served.report.get_or_insert_default().take(self.figures, figure);
            self.figures = (self.figures + 1) % FIGURES;
            return self.control.say(word);
        }
        match word.len() {
            INTRODUCTION_BYTES => self.control.say(&self.own.encode()),
            other => Err(self.control.strange(other)),
        }
    }

    /// Takes down what a run has brought.
    fn count(&mut self, began: Instant) {
        match &self.duty {
            Duty::Intake(intake) => self.served.runs = intake.rates(),
            Duty::Exchange(exchange) if self.served.runs.is_empty() && exchange.messages() > 0 => {
                let elapsed = nanoseconds(began.elapsed());
                let run = RdmaRate::new(exchange.messages(), exchange.size().into(), elapsed);
                self.served.runs.push(run);
            }
            Duty::Exchange(_) | Duty::None(_) => {}
        }
    }

    /// The queue pairs are over: in order, when the first connection ends too.
    fn gone(&mut self, began: Instant, error: RdmaError) -> Result<(), RdmaError> {
        if let Duty::Exchange(exchange) = &mut self.duty {
            exchange.end(&self.lanes);
        }
        let since = Instant::now();
        while since.elapsed() < AFTERWARDS {
            match self.control.try_hear()? {
                Heard::Left => {
                    self.count(began);
                    return Ok(());
                }
                Heard::Word(word) => self.reply(&word)?,
                Heard::Nothing => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err(error)
    }
}
