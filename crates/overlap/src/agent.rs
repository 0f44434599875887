//! Agent part: one measurement at a time, on a thread of its own.

use std::{
    net::Shutdown,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
};

use clearstream_control::{CallContext, Done, EventSender, Registration, Service};
use clearstream_message::connection::Secret;
use clearstream_schema::{
    CoreList,
    control::{Failure, FailureKind},
    overlap::{OverlapConfig, OverlapSideSettings},
};
use clearstream_sys::{affinity, tcp_info};
use socket2::Socket;

use crate::{
    calls::{Finished, Listen, Listening, PointMeasured, Run, Side, Stop},
    check::check,
    connect::{Connections, Hold, Waiting, connect},
    engine::{self, EngineError, Session},
    failure,
};

/// Serves and runs measurements on one host, one at a time. Dropping it stops a
/// running one and joins its thread.
#[derive(Debug, Default)]
pub struct OverlapAgent {
    running: Option<Running>,
}

/// A measurement that was started and may have ended.
#[derive(Debug)]
struct Running {
    test: u64,
    stop: Arc<StopFlag>,
    thread: Option<JoinHandle<Side>>,
}

/// Stops a measurement from outside of its thread.
#[derive(Debug, Default)]
struct StopFlag {
    flag: AtomicBool,
    sockets: Mutex<Vec<Socket>>,
}

impl StopFlag {
    /// Ends work, and every transfer of the held connections.
    fn stop(&self) {
        self.flag.store(true, Relaxed);
        for socket in &*self.sockets.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails when the connection has ended already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Counts the bytes of the held connections, by the kernel's own counters.
    fn count(&self, events: &EventSender) {
        for socket in &*self.sockets.lock().unwrap_or_else(PoisonError::into_inner) {
            if let Ok(info) = tcp_info::read(socket) {
                let [sent, received] = [info.acked_bytes, info.received_bytes].map(Option::unwrap_or_default);
                events.transferred("overlap", sent, received);
            }
        }
    }

    /// Closes the held connections with their last descriptor.
    fn release(&self) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Hold for Arc<StopFlag> {
    fn is_stopped(&self) -> bool {
        self.flag.load(Relaxed)
    }

    fn hold(&self, socket: &Socket) -> Result<(), Failure> {
        let held = socket.try_clone().map_err(|error| Failure::of_system("hold the socket", &error))?;
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(held);
        if self.is_stopped() {
            self.stop();
        }
        Ok(())
    }
}

impl Service for OverlapAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::listen).on(Self::run).on(|agent, Stop { test }, _| agent.stop(test));
    }
}

impl OverlapAgent {
    /// Server part: returns its ports, and serves one client.
    fn listen(&mut self, call: Listen, context: &CallContext<'_>) -> Result<Listening, Failure> {
        let Listen { test, cookie, address, config } = call;
        self.check_idle(&config)?;
        let waiting = Waiting::open(&config, address, Secret::parse(&cookie)?)?;
        let listening = waiting.listening();
        let (stop, events) = (Arc::new(StopFlag::default()), context.events().clone());
        self.start(test, "overlap-server", config.server_core, stop, move |stop| {
            match waiting.accept(&config, stop)? {
                Some(connections) => {
                    Ok(transfer(connections, &config, config.server_core, stop, &events, engine::serve))
                }
                None => Ok(Side::default()),
            }
        })?;
        Ok(listening)
    }

    /// Client part: connects, then measures. [`PointMeasured`] and [`Finished`]
    /// are sent as events, the last one always.
    fn run(&mut self, call: Run, context: &CallContext<'_>) -> Result<Done, Failure> {
        let Run { test, cookie, server, iwarp_port, config } = call;
        self.check_idle(&config)?;
        let stop = Arc::new(StopFlag::default());
        let connections = connect(&config, server, iwarp_port, Secret::parse(&cookie)?, &stop)?;
        let events = context.events().clone();
        self.start(test, "overlap-client", config.client_core, stop, move |stop| {
            let side = transfer(connections, &config, config.client_core, stop, &events, |session| {
                engine::measure(session, |point| events.send(&PointMeasured { test, point }))
            });
            events.send(&Finished { test });
            Ok(side)
        })?;
        Ok(Done {})
    }

    /// Stops a measurement, if it has not ended by itself, and returns its
    /// side.
    fn stop(&mut self, test: u64) -> Result<Side, Failure> {
        let running = self.running.take_if(|running| running.test == test);
        let running = running.ok_or_else(|| {
            failure(FailureKind::Invalid, format!("there is no overlap test {test}: start it first"))
        })?;
        Ok(running.end())
    }

    /// Checks the configuration, and that no measurement runs.
    fn check_idle(&mut self, config: &OverlapConfig) -> Result<(), Failure> {
        if let Some(running) = self.running.as_ref().filter(|running| running.is_alive()) {
            let message = format!("overlap test {} still runs here: stop it first", running.test);
            return Err(failure(FailureKind::Busy, message));
        }
        self.running = None;
        check(config)
    }

    /// Starts the thread, and waits until it is pinned.
    fn start(
        &mut self,
        test: u64,
        name: &str,
        core: Option<u32>,
        stop: Arc<StopFlag>,
        work: impl FnOnce(&Arc<StopFlag>) -> Result<Side, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let (own, (ready, is_ready)) = (Arc::clone(&stop), mpsc::channel());
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || pinned(core, &ready, || work(&own)))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        match is_ready.recv() {
            Ok(Ok(())) => {
                self.running = Some(Running { test, stop, thread: Some(thread) });
                Ok(())
            }
            Ok(Err(failed)) => Err(failed),
            Err(_) => Err(failure(FailureKind::Internal, "the measuring thread exited before it started")),
        }
    }
}

impl Running {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(mut self) -> Side {
        self.stop.stop();
        let panicked = || Side {
            failure: Some(failure(FailureKind::Internal, "the measuring thread panicked")),
            ..Side::default()
        };
        self.thread.take().map_or_else(Side::default, |thread| thread.join().unwrap_or_else(|_| panicked()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            drop(thread.join());
        }
    }
}

/// Pins the calling thread, reports the result, and runs the work.
fn pinned(
    core: Option<u32>,
    ready: &Sender<Result<(), Failure>>,
    work: impl FnOnce() -> Result<Side, Failure>,
) -> Side {
    let pinned = core.map_or(Ok(()), pin);
    let is_pinned = pinned.is_ok();
    if ready.send(pinned).is_err() || !is_pinned {
        return Side::default();
    }
    work().unwrap_or_else(|failed| Side { failure: Some(failed), ..Side::default() })
}

fn pin(core: u32) -> Result<(), Failure> {
    affinity::pin_to(core).map_err(|error| {
        let allowed =
            affinity::allowed_cores().map_or_else(|_| String::new(), |cores| CoreList(cores).to_string());
        let message = format!("core {core} cannot be used on this host ({error}): choose from {allowed}");
        failure(FailureKind::Invalid, message)
    })
}

/// Transfers until the end of the measurement.
fn transfer(
    connections: Connections,
    config: &OverlapConfig,
    core: Option<u32>,
    stop: &Arc<StopFlag>,
    events: &EventSender,
    work: impl FnOnce(&mut Session<'_>) -> Result<(), EngineError>,
) -> Side {
    let Connections { control, data, settings } = connections;
    let mut session = Session { control, data, stop: &stop.flag, config };
    let result = work(&mut session);
    drop(session);
    stop.count(events);
    stop.release();
    let mut side = Side { settings: OverlapSideSettings { core, ..settings }, ..Side::default() };
    if let Err(error) = result
        && !stop.is_stopped()
    {
        side.peer_closed = error.is_closed_by_peer();
        side.failure = Some(failure(FailureKind::Connection, error.to_string()));
    }
    side
}
