//! One test with two agents, from the first request to the summary.

use std::{
    net::{IpAddr, SocketAddr},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{Call, Done, Peer, PeerError, PeerEvent};
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, FlowSummary},
    notice::Notice,
};

use super::{
    FlowError, FlowEvent, Side,
    adaptation::Adaptation,
    merge::Merger,
    senders,
    summary::{SummaryInputs, Totals},
};
use crate::{
    adapt::{Open, reason_against},
    calls::{Connect, Finished, IntervalPassed, Listen, Ready, Start, Stop, Tried},
    check,
    schedule::Schedule,
};

/// Wait for events of one agent before polling the other.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum wait for both sides to be ready.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum delay of a test's end beyond its configured time.
const END_TIMEOUT: Duration = Duration::from_secs(25);
/// Events sent before the reply to a stop have arrived after this.
const LEFTOVER: Duration = Duration::from_millis(100);

static NEXT_TEST: AtomicU64 = AtomicU64::new(1);

/// Runs one flow test between two agents and returns its summary. `server` waits for data connections on
/// `server_address`, `client` connects to it; its warm-up tries what is open. When `stop` becomes true the test ends early and its summary is
/// marked incomplete.
///
/// # Errors
/// See [`FlowError`]; results up to a fault are in its summary.
pub fn run(
    client: &mut Peer,
    server: &mut Peer,
    server_address: IpAddr,
    config: &FlowConfig,
    open: Open,
    stop: &AtomicBool,
    on_event: &mut dyn FnMut(FlowEvent),
) -> Result<FlowSummary, FlowError> {
    check::check(config).map_err(FlowError::Invalid)?;
    let reason = reason_against(config, open);
    let tries = if reason.is_some() { Open::default() } else { open };
    let mut session = Session {
        test: NEXT_TEST.fetch_add(1, Relaxed),
        client: End::new(client),
        server: End::new(server),
        merger: Merger::new(config),
        totals: Totals::new(config),
        config,
        open: tries,
        adaptation: open.any().then(|| Adaptation::new(config, open, reason)),
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
        Err(interruption) => Err(session.interrupted(interruption)),
    }
}

/// One agent, from the test's point of view.
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

    /// Intervals that are missing because a side was too slow.
    fn dropped_count(&self) -> u64 {
        self.peer.dropped_event_count().saturating_sub(self.dropped_before)
    }
}

/// Reason of an interruption of a running test.
enum Interruption {
    Peer(PeerError),
    Failed(Side, Failure),
}

impl From<PeerError> for Interruption {
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
    /// What the warm-up tries.
    open: Open,
    /// Where something is left open.
    adaptation: Option<Adaptation>,
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

    /// Order in which the sides are started: a side that only receives first.
    fn starting_order(&self) -> [Side; 2] {
        match senders(self.config.direction) {
            [Side::Server] => [Side::Client, Side::Server],
            _ => [Side::Server, Side::Client],
        }
    }

    fn prepare(&mut self, server_address: IpAddr) -> Result<(), FlowError> {
        let cookie = Cookie(format!("{:032x}", rand::random::<u128>()));
        let (test, config) = (self.test, self.config.clone());
        let (address, open) = (Some(server_address), self.open);
        let listen = Listen { test, cookie: cookie.clone(), address, config: config.clone(), open };
        let port = self.server.peer.call(&listen)?.address.port();
        self.server.prepared = true;
        let connect = Connect { test, cookie, server: SocketAddr::new(server_address, port), config, open };
        match self.client.peer.call(&connect) {
            Ok(_) => self.client.prepared = true,
            Err(error) => return Err(self.reason_of_server().unwrap_or_else(|| error.into())),
        }
        Ok(())
    }

    /// The client could not connect: the server may know the reason, such as a limit of its host, while the
    /// client only sees the connection closed.
    fn reason_of_server(&mut self) -> Option<FlowError> {
        let until = Instant::now() + LEFTOVER;
        while Instant::now() < until {
            match self.server.peer.next_event_of(POLL_INTERVAL) {
                Ok(Some(Finished { failure: Some(failure), test, .. }))
                    if test == self.test && failure.kind == FailureKind::Unsupported =>
                {
                    return Some(self.failed(Side::Server, failure, None));
                }
                Ok(_) => {}
                // The client's error is a consequence.
                Err(error) => return Some(error.into()),
            }
        }
        None
    }

    /// Waits until both sides are ready, reports the effective settings, and starts.
    fn start(&mut self, stop: &AtomicBool) -> Result<(), FlowError> {
        let until = Instant::now() + READY_TIMEOUT;
        while self.client.settings.is_none() || self.server.settings.is_none() {
            for side in [Side::Client, Side::Server] {
                if self.end(side).settings.is_none() {
                    match self.poll_event(side) {
                        Ok(()) => {}
                        Err(Interruption::Peer(error)) => return Err(error.into()),
                        Err(Interruption::Failed(side, failure)) => {
                            return Err(self.failed(side, failure, None));
                        }
                    }
                }
            }
            if Instant::now() >= until {
                let message = format!("not all flows were ready within {} s", READY_TIMEOUT.as_secs());
                return Err(self.failed(Side::Server, Failure::new(FailureKind::Connection, message), None));
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

    /// Handles events until both sides have finished. True when the test ran to completion, false when it was
    /// stopped.
    fn follow(&mut self, stop: &AtomicBool) -> Result<bool, Interruption> {
        let until = Schedule::new(self.config).end().map(|end| Instant::now() + end + END_TIMEOUT);
        while !(self.client.finished && self.server.finished) {
            if stop.load(Relaxed) {
                self.stop()?;
                return Ok(false);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                let late = if self.client.finished { Side::Server } else { Side::Client };
                let message = "the test did not end in time";
                return Err(Interruption::Failed(late, Failure::new(FailureKind::Connection, message)));
            }
            for side in [Side::Server, Side::Client] {
                if !self.end(side).finished {
                    self.poll_event(side)?;
                }
            }
        }
        Ok(true)
    }

    /// Waits briefly for an event of one side and handles it.
    fn poll_event(&mut self, side: Side) -> Result<(), Interruption> {
        match self.end(side).peer.next_event(POLL_INTERVAL) {
            Ok(Some(event)) => self.handle(side, &event),
            Ok(None) => Ok(()),
            Err(error) => Err(Interruption::Peer(error)),
        }
    }

    /// Handles an event; those of an earlier test are ignored.
    fn handle(&mut self, side: Side, event: &PeerEvent) -> Result<(), Interruption> {
        let ours = self.test;
        if let Some(Ready { test, settings, notices }) = event.read()?
            && test == ours
        {
            if let Some(adaptation) = &mut self.adaptation {
                adaptation.starts(side, &settings);
            }
            self.end(side).settings = Some(settings);
            self.add_notices(notices);
        }
        if let Some(tried) = event.read::<Tried>()?
            && tried.test == ours
            && let Some(adopt) = self.adaptation.as_mut().and_then(|one| one.tried(side, ours, tried))
        {
            // One that has ended meanwhile adopts nothing more; why it ended is in its last event.
            for side in self.starting_order() {
                self.ask(side, &adopt)?;
            }
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
            return failure.map_or(Ok(()), |failure| Err(Interruption::Failed(side, failure)));
        }
        Ok(())
    }

    fn add_notices(&mut self, notices: Vec<Notice>) {
        for notice in notices {
            // Both sides may report the same notice.
            if !self.notices.contains(&notice) {
                (self.on_event)(FlowEvent::Notice(notice.clone()));
                self.notices.push(notice);
            }
        }
    }

    /// Stops the test on both sides, senders first, and handles their last events. Errors caused by the
    /// peer's end are no failure then.
    fn stop(&mut self) -> Result<(), Interruption> {
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
        lost.map_or(Ok(()), |error| Err(Interruption::Peer(error)))
    }

    fn stop_side(&mut self, side: Side) -> Result<(), PeerError> {
        let test = self.test;
        if self.end(side).prepared { self.ask(side, &Stop { test }) } else { Ok(()) }
    }

    /// A call to an agent. One that is reachable but refuses no longer has the test.
    fn ask(&mut self, side: Side, call: &impl Call<Reply = Done>) -> Result<(), PeerError> {
        match self.end(side).peer.call(call) {
            Ok(_) | Err(PeerError::Refused { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Handles the events already received, also of a lost agent.
    fn leftover(&mut self, side: Side) {
        let until = Instant::now() + LEFTOVER;
        while !self.end(side).finished && Instant::now() < until {
            match self.end(side).peer.next_event(POLL_INTERVAL) {
                Ok(Some(event)) => drop(self.handle(side, &event)),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    /// Stops before data flowed: no results to save.
    fn abandon(&mut self) {
        drop(self.stop());
    }

    /// Ends the other side while data flows; results so far are kept. When a side's data connection failed,
    /// the cause is often the death of the other agent, which the stop call reveals.
    fn interrupted(mut self, interruption: Interruption) -> FlowError {
        let stopped = self.stop();
        let names = (self.client.peer.name().to_owned(), self.server.peer.name().to_owned());
        let partial = Box::new(self.summary(false));
        match (interruption, stopped) {
            (Interruption::Peer(source), _) | (Interruption::Failed(..), Err(Interruption::Peer(source))) => {
                FlowError::PeerLost { source, partial }
            }
            (Interruption::Failed(side, failure), _) => {
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
        let adaptation = self.adaptation.take().map(Adaptation::result);
        let summary = self.totals.summary(SummaryInputs {
            client: self.client.settings.take().unwrap_or_default(),
            server: self.server.settings.take().unwrap_or_default(),
            notices: self.notices,
            dropped_count: self.client.dropped_count() + self.server.dropped_count(),
            complete,
        });
        FlowSummary { adaptation, ..summary }
    }
}
