//! One test over two agents, from the first request to the summary.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError, PeerEvent};
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, FlowSummary, Notice},
};

use super::{
    FlowError, FlowEvent, Side,
    merge::Merger,
    senders,
    summary::{Circumstances, Totals},
};
use crate::{
    calls::{Connect, Finished, IntervalPassed, Listen, Ready, Start, Stop},
    check, failure,
    schedule::Schedule,
};

/// How long one agent's events are waited for before the other's turn.
const TURN: Duration = Duration::from_millis(20);
/// How long both sides may take to say that they are ready.
const READY_PATIENCE: Duration = Duration::from_secs(20);
/// What a test may take longer than it should.
const END_PATIENCE: Duration = Duration::from_secs(25);
/// Events that were sent before the reply to a stop are here by then.
const LEFTOVER: Duration = Duration::from_millis(100);

static NEXT_TEST: AtomicU64 = AtomicU64::new(1);

/// Runs one flow test between two agents and returns its figures. `server`
/// waits for data connections on `server_address`, `client` connects to it.
/// When `stop` becomes true the test ends early and its summary says so.
///
/// # Errors
/// See [`FlowError`]; what was measured before a fault is in its summary.
pub fn run(
    client: &mut Peer,
    server: &mut Peer,
    server_address: IpAddr,
    config: &FlowConfig,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(FlowEvent),
) -> Result<FlowSummary, FlowError> {
    check::check(config).map_err(FlowError::Invalid)?;
    let mut session = Session {
        test: NEXT_TEST.fetch_add(1, Relaxed),
        client: End::new(client),
        server: End::new(server),
        merger: Merger::new(config),
        totals: Totals::new(config),
        config,
        notices: Vec::new(),
        on_event,
    };
    let started = session.prepare(server_address).and_then(|()| session.start(stop));
    if let Err(error) = started {
        session.abandon();
        return Err(error);
    }
    match session.follow(stop) {
        Ok(complete) => Ok(session.summary(complete)),
        Err(broken) => Err(session.broken_off(broken)),
    }
}

/// One agent, as the test sees it.
struct End<'a> {
    peer: &'a mut Peer,
    settings: Option<FlowSettings>,
    finished: bool,
    prepared: bool,
    /// Events dropped in this session before the test.
    dropped_before: u64,
}

impl<'a> End<'a> {
    fn new(peer: &'a mut Peer) -> Self {
        let dropped_before = peer.dropped_event_count();
        Self { peer, settings: None, finished: false, prepared: false, dropped_before }
    }

    /// Intervals that are missing because one side was too slow.
    fn dropped_count(&self) -> u64 {
        self.peer.dropped_event_count().saturating_sub(self.dropped_before)
    }
}

/// What breaks a running test off.
enum Broken {
    Peer(PeerError),
    Failed(Side, Failure),
}

impl From<PeerError> for Broken {
    fn from(error: PeerError) -> Self {
        Self::Peer(error)
    }
}

struct Session<'a> {
    test: u64,
    client: End<'a>,
    server: End<'a>,
    merger: Merger,
    totals: Totals,
    config: &'a FlowConfig,
    notices: Vec<Notice>,
    on_event: &'a mut dyn FnMut(FlowEvent),
}

impl<'a> Session<'a> {
    fn end(&mut self, side: Side) -> &mut End<'a> {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// The sides in the order in which they are told to start: who only
    /// receives first.
    fn starting_order(&self) -> [Side; 2] {
        match senders(self.config.direction) {
            [Side::Server] => [Side::Client, Side::Server],
            _ => [Side::Server, Side::Client],
        }
    }

    fn prepare(&mut self, server_address: IpAddr) -> Result<(), FlowError> {
        let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
        let (test, config) = (self.test, self.config.clone());
        let address = Some(server_address);
        let listen = Listen { test, cookie: cookie.clone(), address, config: config.clone() };
        let port = self.server.peer.call(&listen)?.address.port();
        self.server.prepared = true;
        let connect = Connect { test, cookie, server: SocketAddr::new(server_address, port), config };
        match self.client.peer.call(&connect) {
            Ok(_) => self.client.prepared = true,
            Err(error) => return Err(self.reason_of_server().unwrap_or_else(|| error.into())),
        }
        Ok(())
    }

    /// The client could not connect: the server may know why, a limit of its
    /// host for instance, and the client only sees it hang up.
    fn reason_of_server(&mut self) -> Option<FlowError> {
        let until = Instant::now() + LEFTOVER;
        while Instant::now() < until {
            match self.server.peer.next_event_of(TURN) {
                Ok(Some(Finished { failure: Some(failure), test, .. }))
                    if test == self.test && failure.kind == FailureKind::Unsupported =>
                {
                    return Some(self.failed(Side::Server, failure, None));
                }
                Ok(_) => {}
                // What the client saw is a consequence.
                Err(error) => return Some(error.into()),
            }
        }
        None
    }

    /// Waits until both sides are ready, tells what is in force, and starts.
    fn start(&mut self, stop: &AtomicBool) -> Result<(), FlowError> {
        let until = Instant::now() + READY_PATIENCE;
        while self.client.settings.is_none() || self.server.settings.is_none() {
            for side in [Side::Client, Side::Server] {
                if self.end(side).settings.is_none() {
                    match self.listen(side) {
                        Ok(()) => {}
                        Err(Broken::Peer(error)) => return Err(error.into()),
                        Err(Broken::Failed(side, failure)) => return Err(self.failed(side, failure, None)),
                    }
                }
            }
            if Instant::now() >= until {
                let message = format!("not all flows were ready within {} s", READY_PATIENCE.as_secs());
                return Err(self.failed(Side::Server, failure(FailureKind::Connection, message), None));
            }
            if stop.load(Relaxed) {
                // The summary of a test that never ran: nothing measured.
                break;
            }
        }
        let client = self.client.settings.clone().unwrap_or_default();
        let server = self.server.settings.clone().unwrap_or_default();
        (self.on_event)(FlowEvent::Ready { client, server });
        if stop.load(Relaxed) {
            return Ok(());
        }
        for side in self.starting_order() {
            let test = self.test;
            self.end(side).peer.call(&Start { test })?;
        }
        Ok(())
    }

    fn failed(&mut self, side: Side, failure: Failure, partial: Option<Box<FlowSummary>>) -> FlowError {
        FlowError::Failed { name: self.end(side).peer.name().to_owned(), failure, partial }
    }

    /// Takes events until both sides have finished. True when the test ran to
    /// its end, false when it was stopped.
    fn follow(&mut self, stop: &AtomicBool) -> Result<bool, Broken> {
        let until = Schedule::new(self.config).end().map(|end| Instant::now() + end + END_PATIENCE);
        while !(self.client.finished && self.server.finished) {
            if stop.load(Relaxed) {
                self.stop()?;
                return Ok(false);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                let late = if self.client.finished { Side::Server } else { Side::Client };
                let message = "the test did not end in its time";
                return Err(Broken::Failed(late, failure(FailureKind::Internal, message)));
            }
            for side in [Side::Server, Side::Client] {
                if !self.end(side).finished {
                    self.listen(side)?;
                }
            }
        }
        Ok(true)
    }

    /// Waits a moment for an event of one side and takes it.
    fn listen(&mut self, side: Side) -> Result<(), Broken> {
        match self.end(side).peer.next_event(TURN) {
            Ok(Some(event)) => self.take(side, &event),
            Ok(None) => Ok(()),
            Err(error) => Err(Broken::Peer(error)),
        }
    }

    /// Takes an event; those of a test before this one mean nothing now.
    fn take(&mut self, side: Side, event: &PeerEvent) -> Result<(), Broken> {
        let ours = self.test;
        if let Some(Ready { test, settings, notices }) = event.read()?
            && test == ours
        {
            self.end(side).settings = Some(settings);
            self.add_notices(notices);
        }
        if let Some(IntervalPassed { test, interval }) = event.read()?
            && test == ours
            && let Some(interval) = self.merger.add(side, interval)
        {
            self.totals.add(&interval);
            (self.on_event)(FlowEvent::Interval(interval));
        }
        if let Some(Finished { test, notices, failure }) = event.read()?
            && test == ours
        {
            self.end(side).finished = true;
            self.add_notices(notices);
            return failure.map_or(Ok(()), |failure| Err(Broken::Failed(side, failure)));
        }
        Ok(())
    }

    fn add_notices(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            // Both sides may have the same to say.
            if !self.notices.contains(&notice) {
                (self.on_event)(FlowEvent::Notice(notice.clone()));
                self.notices.push(notice);
            }
        }
    }

    /// Ends the test on both sides, senders first, and takes what they had to
    /// say. That the one sees the other go is no failure then.
    fn stop(&mut self) -> Result<(), Broken> {
        let mut lost = None;
        let [last, first] = self.starting_order();
        for side in [first, last] {
            if let Err(error) = self.stop_side(side) {
                lost.get_or_insert(error);
            }
        }
        for side in [Side::Client, Side::Server] {
            self.leftover(side);
        }
        lost.map_or(Ok(()), |error| Err(Broken::Peer(error)))
    }

    /// An agent that is there but refuses has no such test any more.
    fn stop_side(&mut self, side: Side) -> Result<(), PeerError> {
        let test = self.test;
        let end = self.end(side);
        if !end.prepared {
            return Ok(());
        }
        match end.peer.call(&Stop { test }) {
            Ok(_) | Err(PeerError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Takes the events that are here already, also of an agent that is lost.
    fn leftover(&mut self, side: Side) {
        let until = Instant::now() + LEFTOVER;
        while !self.end(side).finished && Instant::now() < until {
            match self.end(side).peer.next_event(TURN) {
                Ok(Some(event)) => drop(self.take(side, &event)),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Before data flowed: no figures to save.
    fn abandon(&mut self) {
        drop(self.stop());
    }

    /// While data flowed: the other side is ended, what was measured is kept.
    /// When a side saw its data connection break, the reason is often that the
    /// other agent has died; asking it tells.
    fn broken_off(mut self, broken: Broken) -> FlowError {
        let stopped = self.stop();
        let names = (self.client.peer.name().to_owned(), self.server.peer.name().to_owned());
        let partial = Box::new(self.summary(false));
        match (broken, stopped) {
            (Broken::Peer(source), _) | (Broken::Failed(..), Err(Broken::Peer(source))) => {
                FlowError::PeerLost { source, partial }
            }
            (Broken::Failed(side, failure), _) => {
                let name = match side {
                    Side::Client => names.0,
                    Side::Server => names.1,
                };
                FlowError::Failed { name, failure, partial: Some(partial) }
            }
        }
    }

    fn summary(mut self, complete: bool) -> FlowSummary {
        for interval in self.merger.rest() {
            self.totals.add(&interval);
            (self.on_event)(FlowEvent::Interval(interval));
        }
        self.totals.summary(Circumstances {
            client: self.client.settings.take().unwrap_or_default(),
            server: self.server.settings.take().unwrap_or_default(),
            notices: self.notices,
            dropped_count: self.client.dropped_count() + self.server.dropped_count(),
            complete,
        })
    }
}
