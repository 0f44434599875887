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
use clearstream_schema::{
    CoreList,
    control::{Failure, FailureKind},
    message::{MessageConfig, MessageMethod},
};
use clearstream_sys::{affinity, tcp_info};
use socket2::Socket;

use crate::{
    calls::{Finished, Listen, Listening, Run, Side, SizeMeasured, Stop},
    check::check,
    connection::{self, Listener, Secret, SocketOptions},
    engine::{self, EngineError, Link, capacity},
    failure,
};

/// Serves and runs measurements on one host, one at a time. Dropping it stops a
/// running one and joins its thread.
#[derive(Debug, Default)]
pub struct MessageAgent {
    running: Option<Running>,
}

/// A measurement that was started and may have ended.
#[derive(Debug)]
struct Running {
    test: u64,
    control: Arc<Control>,
    thread: Option<JoinHandle<Side>>,
}

/// Stops a measurement from outside of its thread.
#[derive(Debug, Default)]
struct Control {
    stopped: AtomicBool,
    socket: Mutex<Option<Socket>>,
}

impl Control {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Aborts every transfer of the data connection, now or as soon as it
    /// exists.
    fn stop(&self) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        self.stopped.store(true, Relaxed);
        if let Some(socket) = &*socket {
            // Fails when the connection has ended already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    /// Registers the data connection; false when stopped before.
    fn hold(&self, socket: &Socket) -> Result<bool, Failure> {
        let held = socket.try_clone().map_err(|error| Failure::of_system("hold the socket", &error))?;
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        Ok(!self.is_stopped())
    }

    /// Counts the bytes of the data connection, by the kernel's own counters.
    fn count(&self, events: &EventSender) {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(info) = socket.as_ref().and_then(|socket| tcp_info::read(socket).ok()) {
            let [sent, received] = [info.acked_bytes, info.received_bytes].map(Option::unwrap_or_default);
            events.transferred("message", sent, received);
        }
    }

    fn release(&self) {
        *self.socket.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Service for MessageAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::listen).on(Self::run).on(|agent, Stop { test }, _| agent.stop(test));
    }
}

impl MessageAgent {
    /// Server part: returns its address, and serves one client.
    fn listen(&mut self, call: Listen, context: &CallContext<'_>) -> Result<Listening, Failure> {
        let Listen { test, cookie, address, config } = call;
        self.check_idle(&config)?;
        let mut listener = Listener::open(&SocketOptions::from(&config), address, Secret::parse(&cookie)?)?;
        let listening = Listening { address: listener.address() };
        let events = context.events().clone();
        self.start(test, "message-server", config.server_core, move |control| {
            let Some(socket) = listener.accept(|| control.is_stopped())? else {
                return Ok(Side::default());
            };
            transfer(socket, &config, config.server_core, control, &events, |link| {
                engine::serve(link, &config)
            })
        })?;
        Ok(listening)
    }

    /// Client part: connects, then measures. [`SizeMeasured`] and [`Finished`]
    /// are sent as events, the last one always.
    fn run(&mut self, call: Run, context: &CallContext<'_>) -> Result<Done, Failure> {
        let Run { test, cookie, server, config } = call;
        self.check_idle(&config)?;
        let socket = connection::connect(&SocketOptions::from(&config), server, Secret::parse(&cookie)?)?;
        let events = context.events().clone();
        self.start(test, "message-client", config.client_core, move |control| {
            let side = transfer(socket, &config, config.client_core, control, &events, |link| {
                engine::measure(link, &config, |point| events.send(&SizeMeasured { test, point }))
            });
            events.send(&Finished { test });
            side
        })?;
        Ok(Done {})
    }

    /// Stops a measurement, if it has not ended by itself, and returns its
    /// side.
    fn stop(&mut self, test: u64) -> Result<Side, Failure> {
        let running = self.running.take_if(|running| running.test == test);
        let running = running.ok_or_else(|| {
            failure(FailureKind::Invalid, format!("there is no message test {test}: start it first"))
        })?;
        Ok(running.end())
    }

    /// Checks the configuration, and that no measurement runs.
    fn check_idle(&mut self, config: &MessageConfig) -> Result<(), Failure> {
        if let Some(running) = self.running.as_ref().filter(|running| running.is_alive()) {
            let message = format!("message test {} still runs here: stop it first", running.test);
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
        work: impl FnOnce(&Control) -> Result<Side, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let control = Arc::new(Control::default());
        let (own, (ready, is_ready)) = (Arc::clone(&control), mpsc::channel());
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || pinned(core, &ready, || work(&own)))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        match is_ready.recv() {
            Ok(Ok(())) => {
                self.running = Some(Running { test, control, thread: Some(thread) });
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
        self.control.stop();
        let panicked = || Side {
            failure: Some(failure(FailureKind::Internal, "the measuring thread panicked")),
            ..Side::default()
        };
        self.thread.take().map_or_else(Side::default, |thread| thread.join().unwrap_or_else(|_| panicked()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.stop();
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

/// Transfers over a connected socket until the end of the measurement.
fn transfer(
    socket: Socket,
    config: &MessageConfig,
    core: Option<u32>,
    control: &Control,
    events: &EventSender,
    work: impl FnOnce(&mut Link) -> Result<(), EngineError>,
) -> Result<Side, Failure> {
    let mut settings = connection::settle(&socket, config.nagle)?;
    settings.core = core;
    let mut side = Side { notices: connection::capped(config, &settings), settings, ..Side::default() };
    if !control.hold(&socket)? {
        return Ok(side);
    }
    let result = match Link::new(socket, config.method, capacity(config)) {
        Ok(mut link) => work(&mut link),
        Err(error) => {
            control.release();
            side.failure = Some(no_link(config.method, &error));
            return Ok(side);
        }
    };
    control.count(events);
    // The connection is closed with its last descriptor.
    control.release();
    if let Err(error) = result
        && !control.is_stopped()
    {
        side.peer_closed = error.is_closed_by_peer();
        side.failure = Some(failure(kind(&error), error.to_string()));
    }
    Ok(side)
}

fn no_link(method: MessageMethod, error: &std::io::Error) -> Failure {
    match method {
        MessageMethod::IoUring => failure(
            FailureKind::Unsupported,
            format!("io_uring is not available on this host ({error}): choose another method"),
        ),
        _ => Failure::of_system("get memory for the messages", error),
    }
}

fn kind(error: &EngineError) -> FailureKind {
    match error {
        EngineError::Connection(_) | EngineError::Damaged { .. } | EngineError::Miscounted { .. } => {
            FailureKind::Connection
        }
        EngineError::TooLarge(_) => FailureKind::Invalid,
    }
}
