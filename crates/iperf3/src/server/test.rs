//! One test for one client, from its cookie to its results.

use std::{
    collections::VecDeque,
    net::Shutdown,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use crate::document::{Iperf3Role, Iperf3Summary};
use clearstream_flow::engine::{self, Engine, Role, Schedule};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::{FlowConfig, FlowSettings, Protocol},
    notice::Notice,
};

use super::{
    ServerEvent,
    listener::{self, ListenOptions, Listener},
    machine::{self, ServerMachine},
    output::Transcript,
    streams::{self, Hellos},
};
use crate::{
    control::{Control, Received},
    error::{Iperf3Error, ProtocolError, code, error_message},
    parameters::Parameters,
    protocol::{Cookie, State},
    results::{Results, Retransmits},
    summary::{Inputs, notice, own_results},
    tally::Tally,
};

/// Maximum wait for an immediate step of a client.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for its results: it waits for its own threads.
const RESULTS_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time beyond the announced duration, as with iperf3's server.
const GRACE: Duration = Duration::from_secs(40);
/// Interval at which a running test polls its threads.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for a last transfer before it is aborted.
const LAST_TRANSFER: Duration = Duration::from_millis(20);
/// Maximum time for threads to end then, before their sockets are closed, and once more after that.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// A failure, with iperf3's error number for the client.
struct Refusal(Failure, u32);

/// Serves a client until its end. One in whose test nothing moves for `idle` is ended.
pub(super) fn serve(
    client: listener::Client,
    listener: &Listener,
    idle: Duration,
    stop: &AtomicBool,
    events: &mut dyn FnMut(ServerEvent<'_>),
) -> Result<Box<Iperf3Summary>, Iperf3Error> {
    let began = Instant::now();
    let listener::Client { stream, cookie, parameters, machine } = client;
    let control =
        Control::new(stream).map_err(|error| Failure::of_system("set up the control connection", &error))?;
    let mut client = Client { control, machine, pending: VecDeque::new(), stop, idle, is_silent: false };
    let reopened = parameters.window_bytes.is_some() || parameters.mss_bytes.is_some();
    let ended = Test::prepare(&parameters, &client)
        .map_err(|refusal| client.refuse(refusal).into())
        .and_then(|test| test.run(&mut client, listener, &cookie, events));
    listener.close_to_streams();
    if client.is_silent {
        listener.wasted(client.control.peer.ip(), began.elapsed().min(idle));
    }
    if reopened {
        // Restores the default window.
        listener.reopen(ListenOptions::default()).map_err(|error| Failure::of_system("listen", &error))?;
    }
    client.control.close(Duration::from_secs(1));
    ended
}

/// The control connection.
struct Client<'a> {
    control: Control,
    machine: ServerMachine,
    pending: VecDeque<machine::ServerEvent>,
    stop: &'a AtomicBool,
    /// Time without data after which a test is ended.
    idle: Duration,
    /// It was ended for its silence.
    is_silent: bool,
}

impl Client<'_> {
    fn lost(&self, error: &std::io::Error) -> Failure {
        let message = format!("{}: the control connection failed: {error}", self.control.peer);
        Failure::new(FailureKind::Connection, message)
    }

    fn out_of_step(&self) -> Failure {
        Failure::new(FailureKind::Connection, format!("{}: unexpected protocol state", self.control.peer))
    }

    fn send_state(&mut self, state: State) -> Result<(), Failure> {
        self.control.send_state(state).map_err(|error| self.lost(&error))
    }

    /// Reports to the client why the test was refused or ended.
    fn refuse(&mut self, Refusal(failed, code): Refusal) -> Failure {
        // A client that has gone does not need it.
        drop(self.control.send(&error_message(code)));
        failed
    }

    /// Reads until the timeout; received messages are then pending.
    fn read(&mut self, timeout: Duration) -> Result<(), Failure> {
        if self.stop.load(Relaxed) {
            drop(self.control.send_state(State::ServerTerminate));
            let message = format!("{}: stopped by this server's operator", self.control.peer);
            return Err(Failure::new(FailureKind::Connection, message));
        }
        match self.control.receive(timeout) {
            Received::Nothing => Ok(()),
            Received::Bytes(bytes) => {
                let peer = self.control.peer.to_string();
                let events = self.machine.take(&bytes).map_err(|error| match error {
                    ProtocolError::Terminated => {
                        Failure::new(FailureKind::Connection, format!("{peer} ended its test"))
                    }
                    error => error.failure(&peer),
                })?;
                self.pending.extend(events);
                Ok(())
            }
            Received::Closed(Some(error)) => Err(self.lost(&error)),
            Received::Closed(None) => {
                let message = format!("{} closed the control connection", self.control.peer);
                Err(Failure::new(FailureKind::Connection, message))
            }
        }
    }

    /// Waits for the next message of the client.
    fn expect(&mut self, timeout: Duration) -> Result<machine::ServerEvent, Failure> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(event);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.is_silent = true;
                let message = format!("{} sent nothing for {} s", self.control.peer, timeout.as_secs());
                return Err(Failure::new(FailureKind::Connection, message));
            }
            self.read(left.min(POLL_INTERVAL))?;
        }
    }
}

struct Test<'a> {
    parameters: &'a Parameters,
    config: FlowConfig,
    engine: Engine,
    tally: Tally,
    settings: FlowSettings,
    notices: Vec<Notice>,
    transcript: Transcript,
    index: u32,
}

impl<'a> Test<'a> {
    fn prepare(parameters: &'a Parameters, client: &Client<'_>) -> Result<Self, Refusal> {
        let config = streams::config(parameters);
        engine::check(&config, true, true).map_err(|failed| {
            let code = if parameters.server_core.is_some() { code::AFFINITY } else { code::PARAMETERS };
            Refusal(failed, code)
        })?;
        let mut notices = Vec::new();
        if !parameters.ignored.is_empty() {
            notices.push(notice(
                "options-ignored",
                format!(
                    "of the client's options these have no effect here: {}",
                    parameters.ignored.join(", ")
                ),
            ));
        }
        Ok(Self {
            parameters,
            engine: Engine::new(&config),
            config,
            tally: Tally::default(),
            settings: FlowSettings::default(),
            notices,
            transcript: Transcript::new(client.control.peer),
            index: 0,
        })
    }

    fn run(
        mut self,
        client: &mut Client<'_>,
        listener: &Listener,
        cookie: &Cookie,
        events: &mut dyn FnMut(ServerEvent<'_>),
    ) -> Result<Box<Iperf3Summary>, Iperf3Error> {
        if let Err(refusal) = self.connect(client, listener, cookie) {
            return Err(client.refuse(refusal).into());
        }
        events(ServerEvent::Started { peer: client.control.peer, parameters: self.parameters });
        client.send_state(State::TestStart)?;
        client.machine.run();
        client.send_state(State::TestRunning)?;
        let measured = self.measure(client, events);
        match measured.and_then(|()| self.exchange(client)) {
            Ok(results) => Ok(Box::new(self.summary(client, Some(&results)))),
            Err(failure) => {
                let partial = (self.tally.measured_ns > 0).then(|| Box::new(self.summary(client, None)));
                Err(Iperf3Error { failure, partial })
            }
        }
    }

    /// Requests the client's streams, and starts their threads, which wait at the start barrier.
    fn connect(
        &mut self,
        client: &mut Client<'_>,
        listener: &Listener,
        cookie: &Cookie,
    ) -> Result<(), Refusal> {
        let (local, peer) = (client.control.local, client.control.peer);
        let Self { parameters, config, engine, notices, .. } = self;
        let options =
            ListenOptions { window_bytes: parameters.window_bytes, mss_bytes: parameters.mss_bytes };
        let hellos = if parameters.protocol == Protocol::Udp {
            Some(Hellos::open(config, local, peer).map_err(|failed| Refusal(failed, code::LISTEN))?)
        } else {
            if options != ListenOptions::default() {
                listener.reopen(options).map_err(|error| {
                    Refusal(Failure::of_system("listen with the client's window", &error), code::BUFFERS)
                })?;
            }
            None
        };
        let (connections, since) = (listener.admit_streams(*cookie), Instant::now());
        client.send_state(State::CreateStreams).map_err(|failed| Refusal(failed, code::STREAM))?;
        let mut watch = || client.read(Duration::from_millis(1));
        let connected = match hellos {
            Some(hellos) => hellos.accept(parameters, config, engine, notices, &mut watch),
            None => streams::accept(parameters, config, &connections, engine, notices, &mut watch),
        };
        listener.close_to_streams();
        client.is_silent |= connected.is_err() && since.elapsed() >= streams::CONNECT_TIMEOUT;
        self.tally.streams = connected.map_err(|failed| Refusal(failed, code::ACCEPT))?;
        let (settings, found) = self.engine.ready().map_err(|failed| Refusal(failed, code::STREAM))?;
        self.settings = settings;
        self.notices.extend(found);
        Ok(())
    }

    /// Measures from the first data to the client's end.
    fn measure(
        &mut self,
        client: &mut Client<'_>,
        events: &mut dyn FnMut(ServerEvent<'_>),
    ) -> Result<(), Failure> {
        let schedule = Schedule::new(&self.config);
        let started = Instant::now();
        self.engine.start();
        let mut begun = None;
        let mut moved = (0, started);
        loop {
            begun = begun.or_else(|| self.engine.begin(Instant::now()));
            if let Some(begun) = begun
                && let Some(end) = schedule.end_of(self.index)
                && Instant::now() >= begun + end
            {
                self.interval(schedule.is_warm_up(self.index), events);
            }
            if self.is_ended(client, begun, &schedule)? {
                break;
            }
            self.limits(client, started, &mut moved)?;
        }
        self.end_threads();
        // A short test may be over before its first data was checked.
        if begun.or_else(|| self.engine.begin(Instant::now())).is_some() {
            self.interval(schedule.is_warm_up(self.index), events);
        }
        Ok(())
    }

    /// Waits until the client ends the test, at most until the end of the interval.
    fn is_ended(
        &mut self,
        client: &mut Client<'_>,
        begun: Option<Instant>,
        schedule: &Schedule,
    ) -> Result<bool, Failure> {
        let end = begun.and_then(|begun| Some(begun + schedule.end_of(self.index)?));
        let left = end.map_or(POLL_INTERVAL, |end| end.saturating_duration_since(Instant::now()));
        client.read(left.clamp(Duration::from_millis(1), POLL_INTERVAL))?;
        match client.pending.pop_front() {
            Some(machine::ServerEvent::End) => return Ok(true),
            Some(_) => return Err(client.out_of_step()),
            None => {}
        }
        // Clamps the windows to the client's request.
        self.engine.wait_until(Instant::now());
        match self.engine.failure() {
            Some(failed) => Err(client.refuse(Refusal(failed, code::STREAM))),
            None => Ok(false),
        }
    }

    /// Ends a test that exceeds the announced duration, or is idle.
    fn limits(
        &self,
        client: &mut Client<'_>,
        started: Instant,
        moved: &mut (u64, Instant),
    ) -> Result<(), Failure> {
        let now = self.engine.moved_bytes(Role::Send) + self.engine.moved_bytes(Role::Receive);
        if now != moved.0 {
            *moved = (now, Instant::now());
        }
        let announced = Duration::from_secs((self.parameters.duration_s + self.parameters.omit_s).into());
        let (over, what) = if self.parameters.duration_s > 0 && started.elapsed() > announced + GRACE {
            (code::EXPIRED, "the test lasts longer than the client announced")
        } else if moved.1.elapsed() > client.idle {
            (code::NO_DATA, "no data moved for too long")
        } else {
            return Ok(());
        };
        client.is_silent = true;
        let message = format!("{}: {what}", client.control.peer);
        Err(client.refuse(Refusal(Failure::new(FailureKind::Connection, message), over)))
    }

    fn interval(&mut self, warm_up: bool, events: &mut dyn FnMut(ServerEvent<'_>)) {
        if let Some(local) = self.engine.interval(self.index) {
            let interval = self.tally.add(local, warm_up);
            self.transcript.interval(&interval);
            events(ServerEvent::Interval(&interval));
        }
        self.index += 1;
    }

    /// Ends all threads; receivers first drain what is queued, and a sender whose client no longer reads is
    /// aborted, since all this time counts.
    fn end_threads(&self) {
        self.engine.expire();
        if self.config.protocol != Protocol::Udp {
            self.engine.shut_down(Role::Receive, Shutdown::Read);
        }
        if self.engine.wait_ended(Instant::now() + LAST_TRANSFER) {
            return;
        }
        self.engine.shut_down(Role::Send, Shutdown::Write);
        if !self.engine.wait_ended(Instant::now() + END_TIMEOUT) {
            self.engine.shut_down(Role::Send, Shutdown::Both);
            self.engine.shut_down(Role::Receive, Shutdown::Both);
            self.engine.wait_ended(Instant::now() + END_TIMEOUT);
        }
    }

    /// Exchanges results with the client.
    fn exchange(&mut self, client: &mut Client<'_>) -> Result<Results, Failure> {
        client.machine.expect_results();
        client.send_state(State::ExchangeResults)?;
        let results = match client.expect(RESULTS_TIMEOUT)? {
            machine::ServerEvent::Results(results) => *results,
            _ => return Err(client.out_of_step()),
        };
        let congestion = self.settings.flows.iter().find_map(|flow| flow.congestion_control.clone());
        let mut own = own_results(&self.tally, self.config.protocol, congestion);
        if self.parameters.server_output {
            let peer = client.control.peer;
            let transcript = std::mem::replace(&mut self.transcript, Transcript::new(peer));
            own.server_output = Some(transcript.end(&self.tally));
        }
        client.control.send_json(&own.to_json()).map_err(|error| client.lost(&error))?;
        client.send_state(State::DisplayResults)?;
        // A client that closes instead has its results, too.
        drop(client.expect(STEP_TIMEOUT));
        Ok(results)
    }

    fn summary(&mut self, client: &Client<'_>, results: Option<&Results>) -> Iperf3Summary {
        self.engine.stop();
        if results.is_some_and(|results| results.has_retransmits == Retransmits::Unknown)
            && self.config.protocol != Protocol::Udp
        {
            self.notices
                .push(notice("peer-retransmits-missing", "the client's system does not count retransmits"));
        }
        Inputs {
            role: Iperf3Role::Server,
            protocol: self.config.protocol,
            direction: self.config.direction,
            streams: self.config.flows,
            requested: None,
            settings: std::mem::take(&mut self.settings),
            peer: client.control.peer.to_string(),
            version: self.parameters.version.clone(),
            tally: &self.tally,
            results,
            warm_up: self.parameters.omit_s > 0,
            notices: std::mem::take(&mut self.notices),
            complete: true,
        }
        .summary()
    }
}
