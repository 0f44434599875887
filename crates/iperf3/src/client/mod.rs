//! A test with an iperf3 server.

pub(crate) mod connect;
pub(crate) mod machine;
mod request;
mod session;

use std::{
    net::{Shutdown, SocketAddr},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::document::{Iperf3Interval, Iperf3Role, Iperf3Summary};
use clearstream_flow::engine::{Engine, Role, Schedule};
use clearstream_schema::{
    ByteCount,
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, Protocol},
    notice::Notice,
};
use clearstream_sys::tcp_info;

use self::{
    connect::Streams,
    machine::ClientEvent,
    session::{Ended, Session},
};
use crate::{
    error::Iperf3Error,
    parameters::Parameters,
    protocol::{Cookie, State},
    results::Results,
    summary::{Inputs, own_results},
    tally::Tally,
    udp,
};

/// Maximum wait for an immediate step of a server.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for its results: it may have much to read.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for the first data of a server.
const FIRST_DATA_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time for a sender's last transfer before it is aborted.
const LAST_TRANSFER: Duration = Duration::from_millis(50);
const END_TIMEOUT: Duration = Duration::from_millis(2500);
/// Poll intervals of a test limited by time, and of one limited by an amount of data.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const AMOUNT_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Events of a test.
#[derive(Debug)]
pub enum Iperf3Event<'a> {
    /// Everything is connected: effective settings of this end.
    Ready(&'a FlowSettings),
    /// An interval is over.
    Interval(&'a Iperf3Interval),
    /// A notice.
    Notice(&'a Notice),
}

/// Runs a test with the iperf3 server at the first address that responds. `host` is its name in messages.
///
/// # Errors
/// The configuration is not supported by iperf3 servers, nothing responds, the server refuses, or it is lost;
/// in the last case with the results so far.
pub fn run(
    host: &str,
    addresses: &[SocketAddr],
    config: &FlowConfig,
    stop: &AtomicBool,
    events: &mut dyn FnMut(Iperf3Event<'_>),
) -> Result<Iperf3Summary, Iperf3Error> {
    request::check(config)?;
    let cookie = Cookie::of_random(rand::random());
    let mut session = Session::new(host, connect::control(host, addresses, config)?, stop);
    let ended = drive(&mut session, &cookie, config, events);
    if ended.is_err() {
        // Fails where the server has gone, or ended the test itself.
        drop(session.send(&[State::ClientTerminate.byte()]));
    }
    ended
}

/// Runs a test over its control connection, from the cookie to the results.
fn drive(
    session: &mut Session<'_>,
    cookie: &Cookie,
    config: &FlowConfig,
    events: &mut dyn FnMut(Iperf3Event<'_>),
) -> Result<Iperf3Summary, Iperf3Error> {
    session.send(cookie.bytes())?;
    session.expect(&ClientEvent::ParametersWanted, STEP_TIMEOUT)?;
    let parameters = parameters(config, session)?;
    session.send_json(&parameters.to_json())?;
    session.expect(&ClientEvent::StreamsWanted, STEP_TIMEOUT)?;

    let mut test = Test {
        config,
        parameters: &parameters,
        engine: Engine::new(&engine_config(config)),
        tally: Tally::default(),
        settings: FlowSettings::default(),
        notices: Vec::new(),
        index: 0,
        complete: true,
    };
    test.connect(session, cookie)?;
    session.expect(&ClientEvent::Start, STEP_TIMEOUT)?;
    events(Iperf3Event::Ready(&test.settings));
    for notice in &test.notices {
        events(Iperf3Event::Notice(notice));
    }
    session.expect(&ClientEvent::Running, STEP_TIMEOUT)?;
    let measured = test.measure(session, events);
    match measured.and_then(|()| test.exchange(session)) {
        Ok(results) => Ok(test.summary(session, Some(&results))),
        Err(Ended(failure)) => {
            test.complete = false;
            let partial = (test.tally.measured_ns > 0).then(|| Box::new(test.summary(session, None)));
            Err(Iperf3Error { failure, partial })
        }
    }
}

/// Configuration of the data threads. A server that has sent its amount of data sends no more: the last bytes
/// must not wait for a receive low-water mark.
fn engine_config(config: &FlowConfig) -> FlowConfig {
    let limited = config.bytes.is_some() && config.protocol != Protocol::Udp;
    let low_water = config.receive_low_water.or(limited.then_some(ByteCount(1)));
    FlowConfig { receive_low_water: low_water, ..config.clone() }
}

/// The test parameters; datagrams default to the path MTU.
fn parameters(config: &FlowConfig, session: &Session<'_>) -> Result<Parameters, Failure> {
    let datagram = match config.datagram {
        Some(size) => size.0,
        None if config.protocol == Protocol::Udp => udp::unfragmented_bytes(&session.path_socket()?) as u64,
        None => 0,
    };
    request::parameters(config, session.server().ip(), datagram)
}

struct Test<'a> {
    config: &'a FlowConfig,
    parameters: &'a Parameters,
    engine: Engine,
    tally: Tally,
    settings: FlowSettings,
    notices: Vec<Notice>,
    index: u32,
    complete: bool,
}

impl Test<'_> {
    /// Connects the streams. A server that refuses one sends the reason on the control connection.
    fn connect(&mut self, session: &mut Session<'_>, cookie: &Cookie) -> Result<(), Failure> {
        let streams =
            Streams { config: self.config, parameters: self.parameters, server: session.server(), cookie };
        let connected = streams.connect_all(&mut self.engine, &mut self.notices);
        self.tally.streams = connected.map_err(|failure| session.reason().unwrap_or(failure))?;
        let (settings, notices) = self.engine.ready()?;
        self.settings = settings;
        self.notices.extend(notices);
        Ok(())
    }

    /// Measures from the first data to the end of the test time, or of the data.
    fn measure(
        &mut self,
        session: &mut Session<'_>,
        events: &mut dyn FnMut(Iperf3Event<'_>),
    ) -> Result<(), Ended> {
        let schedule = Schedule::new(self.config);
        self.engine.start();
        let begun = self.begin(session)?;
        while let Some(end) = schedule.end_of(self.index) {
            let over = self.wait_until(session, begun + end)?;
            if over {
                break;
            }
            // The last interval is read after the senders have ended.
            if schedule.end_of(self.index + 1).is_none() {
                break;
            }
            self.interval(schedule.is_warm_up(self.index), events);
        }
        self.end_senders();
        self.interval(schedule.is_warm_up(self.index), events);
        session.end().map_err(Ended)
    }

    fn begin(&mut self, session: &mut Session<'_>) -> Result<Instant, Ended> {
        let until = Instant::now() + FIRST_DATA_TIMEOUT;
        loop {
            if let Some(begun) = self.engine.begin(Instant::now() + POLL_INTERVAL) {
                return Ok(begun);
            }
            session.poll()?;
            if session.is_stopped() {
                return Err(Ended(Failure::new(FailureKind::Connection, "stopped before data flowed")));
            }
            if Instant::now() >= until {
                let message = format!(
                    "{}: no data arrived within {} s after the start",
                    session.name(),
                    FIRST_DATA_TIMEOUT.as_secs()
                );
                return Err(Ended(
                    self.engine.failure().unwrap_or(Failure::new(FailureKind::Connection, message)),
                ));
            }
        }
    }

    /// Waits until an instant; true when the test is over before it.
    fn wait_until(&mut self, session: &mut Session<'_>, until: Instant) -> Result<bool, Ended> {
        let limited = self.config.bytes.is_some();
        let poll = if limited { AMOUNT_POLL_INTERVAL } else { POLL_INTERVAL };
        loop {
            let next = until.min(Instant::now() + poll);
            let ended = self.engine.wait_until(next);
            session.poll()?;
            if session.is_stopped() {
                self.complete = false;
                return Ok(true);
            }
            if limited && self.is_all_moved() {
                return Ok(true);
            }
            if ended && (!limited || self.is_short()) {
                let reason = session.reason().or_else(|| self.engine.failure());
                return Err(Ended(reason.unwrap_or_else(|| {
                    let message = format!("{} closed the data connections", session.name());
                    Failure::new(FailureKind::Connection, message)
                })));
            }
            if let Some(failed) = self.engine.failure() {
                return Err(Ended(session.reason().unwrap_or(failed)));
            }
            if next == until {
                return Ok(false);
            }
            if ended {
                // Everything is sent and in flight.
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Whether a test limited by data is complete: everything was sent and, for TCP, acknowledged; or
    /// received.
    fn is_all_moved(&self) -> bool {
        let wanted = self.parameters.bytes.unwrap_or(0);
        let (sends, receives) = request::roles(self.config.direction);
        let sent = !sends || (self.engine.has_ended(Role::Send) && self.is_delivered());
        let received = !receives || self.engine.moved_bytes(Role::Receive) >= wanted;
        sent && received
    }

    /// Whether less was received than expected.
    fn is_short(&self) -> bool {
        let (_, receives) = request::roles(self.config.direction);
        receives && self.engine.moved_bytes(Role::Receive) < self.parameters.bytes.unwrap_or(0)
    }

    fn is_delivered(&self) -> bool {
        self.config.protocol == Protocol::Udp
            || self.engine.sockets(Role::Send).all(|socket| {
                tcp_info::read(socket)
                    .map_or(true, |info| info.unacked_count == 0 && info.not_sent_bytes.unwrap_or(0) == 0)
            })
    }

    fn interval(&mut self, warm_up: bool, events: &mut dyn FnMut(Iperf3Event<'_>)) {
        if let Some(local) = self.engine.interval(self.index) {
            let interval = self.tally.add(local, warm_up);
            events(Iperf3Event::Interval(&interval));
        }
        self.index += 1;
    }

    /// Ends this end's senders; the receivers continue, so that the server is not blocked while it reads the
    /// end of the test.
    fn end_senders(&self) {
        self.engine.expire();
        let ended = |until: Instant| {
            while !self.engine.has_ended(Role::Send) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.engine.has_ended(Role::Send)
        };
        if !ended(Instant::now() + LAST_TRANSFER) {
            self.engine.shut_down(Role::Send, Shutdown::Write);
            ended(Instant::now() + END_TIMEOUT);
        }
    }

    /// Exchanges results with the server.
    fn exchange(&mut self, session: &mut Session<'_>) -> Result<Results, Ended> {
        session.expect(&ClientEvent::ResultsWanted, RESULTS_TIMEOUT).map_err(Ended)?;
        let congestion = self.settings.flows.iter().find_map(|flow| flow.congestion_control.clone());
        let own = own_results(&self.tally, self.config.protocol, congestion);
        session.send_json(&own.to_json()).map_err(Ended)?;
        let results = session.results(RESULTS_TIMEOUT).map_err(Ended)?;
        // Messages after the results do not change them.
        if session.expect(&ClientEvent::Finished, STEP_TIMEOUT).is_ok() {
            drop(session.send(&[State::IperfDone.byte()]));
        }
        Ok(results)
    }

    fn summary(&mut self, session: &Session<'_>, results: Option<&Results>) -> Iperf3Summary {
        self.engine.stop();
        Inputs {
            role: Iperf3Role::Client,
            protocol: self.config.protocol,
            direction: self.config.direction,
            streams: self.config.flows,
            requested: Some(self.config),
            settings: std::mem::take(&mut self.settings),
            peer: session.server().to_string(),
            version: None,
            tally: &self.tally,
            results,
            warm_up: self.parameters.omit_s > 0,
            notices: std::mem::take(&mut self.notices),
            complete: self.complete,
        }
        .summary()
    }
}

/// Whether the stop flag is set.
fn is_stop_requested(stop: &AtomicBool) -> bool {
    stop.load(Relaxed)
}
