//! Agent part: one measurement at a time, on a thread of its own.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_control::{CallContext, Done, EventSender, Registration, Service};
use clearstream_schema::{
    CoreList,
    control::{Failure, FailureKind},
};
use clearstream_sys::affinity;

use super::{Finished, Hold, Listen, Listening, PointMeasured, Run, Side, Stop, TwoSided};

/// Interval of checks whether a side has ended by itself.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// Serves and runs measurements of one kind on one host, one at a time. Dropping it stops a running one and joins its
/// thread.
#[derive(Debug, Default)]
pub struct TwoSidedAgent<W: TwoSided> {
    running: Option<Running<W>>,
}

/// A measurement that was started and may have ended.
#[derive(Debug)]
struct Running<W: TwoSided> {
    test: u64,
    hold: Arc<Hold>,
    thread: Option<JoinHandle<Side<W::Report>>>,
}

impl<W: TwoSided> Service for TwoSidedAgent<W> {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::listen).on(Self::run).on(|agent, Stop::<W> { test, .. }, _| agent.stop(test));
    }
}

impl<W: TwoSided> TwoSidedAgent<W> {
    /// Server part: returns its ports, and serves one client.
    fn listen(&mut self, call: Listen<W>, context: &CallContext<'_>) -> Result<Listening, Failure> {
        let Listen { test, cookie, address, config } = call;
        self.check_idle(&config)?;
        let (waiting, ports) = W::listen(&config, address, &cookie)?;
        let (hold, events) = (Arc::new(Hold::default()), context.events().clone());
        let [_, core] = W::cores(&config);
        self.start(test, "server", core, hold, events, move |hold, _| {
            match W::accept(waiting, &config, hold)? {
                Some(connected) => W::serve(connected, &config, hold),
                None => Ok(Side::default()),
            }
        })?;
        Ok(Listening { ports })
    }

    /// Client part: connects, then measures. [`PointMeasured`] and [`Finished`] are sent as events, the last one
    /// always.
    fn run(&mut self, call: Run<W>, context: &CallContext<'_>) -> Result<Done, Failure> {
        let Run { test, cookie, server, config } = call;
        self.check_idle(&config)?;
        check_addresses(&server)?;
        let (hold, events) = (Arc::new(Hold::default()), context.events().clone());
        let connected = W::connect(&config, &server, &cookie, &hold)?;
        let [core, _] = W::cores(&config);
        self.start(test, "client", core, hold, events, move |hold, events| {
            let side = W::measure(connected, &config, hold, &mut |point| {
                events.send(&PointMeasured::<W> { test, point });
            });
            events.send(&Finished { test, of: W::default() });
            side
        })?;
        Ok(Done {})
    }

    /// Stops a measurement, if it has not ended by itself, and returns its side.
    fn stop(&mut self, test: u64) -> Result<Side<W::Report>, Failure> {
        let running = self.running.take_if(|running| running.test == test);
        let running = running.ok_or_else(|| {
            let name = W::NAMES.workload;
            Failure::new(FailureKind::Invalid, format!("there is no {name} test {test}: start it first"))
        })?;
        Ok(running.end())
    }

    /// Checks the configuration, and that no measurement runs.
    fn check_idle(&mut self, config: &W::Config) -> Result<(), Failure> {
        if let Some(running) = self.running.as_ref().filter(|running| running.is_alive()) {
            let name = W::NAMES.workload;
            let message = format!("{name} test {} still runs here: stop it first", running.test);
            return Err(Failure::new(FailureKind::Busy, message));
        }
        self.running = None;
        W::check(config)
    }

    /// Starts the thread, and waits until it is pinned.
    fn start(
        &mut self,
        test: u64,
        side: &str,
        core: Option<u32>,
        hold: Arc<Hold>,
        events: EventSender,
        work: impl FnOnce(&Hold, &EventSender) -> Result<Side<W::Report>, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let (own, (ready, is_ready)) = (Arc::clone(&hold), mpsc::channel());
        let thread = thread::Builder::new()
            .name(format!("{}-{side}", W::NAMES.workload))
            .spawn(move || pinned(core, &ready, || transfer::<W>(&own, &events, work)))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        match is_ready.recv() {
            Ok(Ok(())) => {
                self.running = Some(Running { test, hold, thread: Some(thread) });
                Ok(())
            }
            Ok(Err(failed)) => Err(failed),
            Err(_) => {
                Err(Failure::new(FailureKind::Internal, "the measuring thread exited before it started"))
            }
        }
    }
}

impl<W: TwoSided> Running<W> {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(mut self) -> Side<W::Report> {
        self.hold.ask();
        let until = Instant::now() + W::END_WITHIN;
        while self.is_alive() && Instant::now() < until {
            thread::sleep(END_INTERVAL);
        }
        self.hold.stop();
        let panicked = || Side {
            failure: Some(Failure::new(FailureKind::Internal, "the measuring thread panicked")),
            ..Side::default()
        };
        self.thread.take().map_or_else(Side::default, |thread| thread.join().unwrap_or_else(|_| panicked()))
    }
}

impl<W: TwoSided> Drop for Running<W> {
    fn drop(&mut self) {
        self.hold.stop();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            drop(thread.join());
        }
    }
}

fn check_addresses(server: &[SocketAddr]) -> Result<(), Failure> {
    match server {
        [] => Err(Failure::new(FailureKind::Invalid, "the call names no address of the server")),
        _ => Ok(()),
    }
}

/// Pins the calling thread, reports the result, and runs the work.
fn pinned<S: Default>(
    core: Option<u32>,
    ready: &Sender<Result<(), Failure>>,
    work: impl FnOnce() -> Side<S>,
) -> Side<S> {
    let pinned = core.map_or(Ok(()), pin);
    let is_pinned = pinned.is_ok();
    if ready.send(pinned).is_err() || !is_pinned {
        return Side::default();
    }
    work()
}

fn pin(core: u32) -> Result<(), Failure> {
    affinity::pin_to(core).map_err(|error| {
        let allowed =
            affinity::allowed_cores().map_or_else(|_| String::new(), |cores| CoreList(cores).to_string());
        let message = format!("core {core} cannot be used on this host ({error}): choose from {allowed}");
        Failure::new(FailureKind::Invalid, message)
    })
}

/// Transfers until the end of the measurement. One whose connections a stop ends has no failure of its own; one that has
/// time to end by itself has.
fn transfer<W: TwoSided>(
    hold: &Hold,
    events: &EventSender,
    work: impl FnOnce(&Hold, &EventSender) -> Result<Side<W::Report>, Failure>,
) -> Side<W::Report> {
    let side = work(hold, events);
    hold.release(W::NAMES.workload, events);
    match side {
        Ok(side) if hold.is_stopped() && W::END_WITHIN.is_zero() => {
            Side { failure: None, peer_closed: false, ..side }
        }
        Ok(side) => side,
        Err(failed) => Side { failure: Some(failed), ..Side::default() },
    }
}
