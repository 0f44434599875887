//! Agent part: one rank of two at a time, on a thread of its own, joined with the other one by TCP.

use std::{
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::document::{ExplorationConfig, Explored};
use clearstream_control::{CallContext, Done, Registration, Service};
use clearstream_messages::connection::{self, Listener, Secret, SocketOptions};
use clearstream_ranks::{RankError, TcpPair, World};
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
};
use clearstream_sys::process::host_name;
use socket2::Socket;

use crate::{
    ExploreConfig, ExploreError, Program,
    calls::{Finished, Listen, Listening, Run, Side, Stop},
    explore,
    workload::{failure, program},
};

/// Memory of the states of a rank.
const MEMORY_BYTES: usize = 1 << 30;
/// Maximum size of a message, which both ranks hold.
const MESSAGE_MAX_BYTES: u64 = 64 << 20;
/// Time in which ranks that were asked to stop agree on the end; then their connection is closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Runs a rank on one host. Dropping it stops a running one and joins its thread.
#[derive(Debug, Default)]
pub struct ExploreAgent {
    running: Option<Running>,
}

/// A rank that was started and may have ended.
#[derive(Debug)]
struct Running {
    test: u64,
    control: Arc<Control>,
    thread: Option<JoinHandle<Side>>,
}

/// Stops a rank from outside of its thread.
#[derive(Debug, Default)]
struct Control {
    stopped: AtomicBool,
    /// Held to be closed.
    stream: Mutex<Option<TcpStream>>,
}

impl Control {
    /// Closes the connection, where the ranks did not end by themselves.
    fn close(&self) {
        if let Some(stream) = &*self.stream.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails when it has ended already.
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

impl Service for ExploreAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::listen).on(Self::run).on(|agent, Stop { test }, _| agent.stop(test));
    }
}

impl ExploreAgent {
    /// Rank 1: returns its address, and waits for rank 0.
    fn listen(&mut self, call: Listen, _: &CallContext<'_>) -> Result<Listening, Failure> {
        let Listen { test, cookie, address, config } = call;
        let program = self.check_idle(&config)?;
        let mut listener = Listener::open(&SocketOptions::default(), address, Secret::parse(&cookie)?)?;
        let listening = Listening { address: listener.address() };
        self.start(test, "explore-rank-1", move |control| {
            match listener.accept(|| control.stopped.load(Relaxed)) {
                Ok(Some(socket)) => rank(1, socket, &program, &config, None, control),
                Ok(None) => Side::default(),
                Err(failed) => Side { failure: Some(failed), ..Side::default() },
            }
        })?;
        Ok(listening)
    }

    /// Rank 0: connects, then explores. [`Finished`] is always sent.
    fn run(&mut self, call: Run, context: &CallContext<'_>) -> Result<Done, Failure> {
        let Run { test, cookie, server, config, pause } = call;
        let program = self.check_idle(&config)?;
        let socket = connection::connect(&SocketOptions::default(), server, Secret::parse(&cookie)?)?;
        let events = context.events().clone();
        self.start(test, "explore-rank-0", move |control| {
            let side = rank(0, socket, &program, &config, pause, control);
            events.send(&Finished { test });
            side
        })?;
        Ok(Done {})
    }

    /// Stops a rank, if it has not ended by itself, and returns what it did.
    fn stop(&mut self, test: u64) -> Result<Side, Failure> {
        let running = self.running.take_if(|running| running.test == test);
        let running = running.ok_or_else(|| {
            failure(FailureKind::Invalid, format!("there is no exploration {test}: start it first"))
        })?;
        Ok(running.end())
    }

    /// Checks that no rank runs here; the model.
    fn check_idle(&mut self, config: &ExplorationConfig) -> Result<Program, Failure> {
        if let Some(running) = self.running.as_ref().filter(|running| running.is_alive()) {
            let message = format!("exploration {} still runs here: stop it first", running.test);
            return Err(failure(FailureKind::Busy, message));
        }
        self.running = None;
        program(config)
    }

    fn start(
        &mut self,
        test: u64,
        name: &str,
        work: impl FnOnce(&Control) -> Side + Send + 'static,
    ) -> Result<(), Failure> {
        let control = Arc::new(Control::default());
        let own = Arc::clone(&control);
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || work(&own))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        self.running = Some(Running { test, control, thread: Some(thread) });
        Ok(())
    }
}

impl Running {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(mut self) -> Side {
        self.control.stopped.store(true, Relaxed);
        let until = Instant::now() + END_TIMEOUT;
        while self.is_alive() && Instant::now() < until {
            thread::sleep(POLL_INTERVAL);
        }
        self.control.close();
        let panicked = |_| Side {
            failure: Some(failure(FailureKind::Internal, "the exploring thread panicked")),
            ..Side::default()
        };
        self.thread.take().map_or_else(Side::default, |thread| thread.join().unwrap_or_else(panicked))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.stopped.store(true, Relaxed);
        self.control.close();
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            drop(thread.join());
        }
    }
}

/// Joins the other rank over a connected socket, and explores.
fn rank(
    number: usize,
    socket: Socket,
    program: &Program,
    config: &ExplorationConfig,
    pause: Option<TimeSpan>,
    control: &Control,
) -> Side {
    let stream = TcpStream::from(socket);
    let joined = stream.try_clone().and_then(|held| {
        *control.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        TcpPair::join(number, &host_name(), stream)
    });
    let mut world = match joined {
        Ok(world) => world,
        Err(error) => {
            let failure = Some(Failure::of_system("join the other rank", &error));
            return Side { failure, ..Side::default() };
        }
    };
    let limits = ExploreConfig {
        message_bytes: config.message_size.0.clamp(1, MESSAGE_MAX_BYTES) as usize,
        memory_bytes: MEMORY_BYTES,
        cycles: config.cycles,
    };
    let mut side = Side::default();
    let ended = repeat(&mut world, program, &limits, pause, control, &mut side.explored);
    if let Err(error) = ended {
        side.peer_closed = matches!(error, ExploreError::Ranks(RankError::Lost { .. }));
        side.failure = Some(failure(kind(&error), error.to_string()));
    }
    side
}

/// Explores as often as rank 0 says.
fn repeat(
    world: &mut dyn World,
    program: &Program,
    limits: &ExploreConfig,
    pause: Option<TimeSpan>,
    control: &Control,
    explored: &mut Explored,
) -> Result<(), ExploreError> {
    loop {
        if let Some(found) = explore(world, program, limits, &control.stopped, &mut |_| ())? {
            explored.add(found);
        }
        let is_last = match pause {
            Some(pause) => paused(pause, &control.stopped),
            None => true,
        };
        // What rank 1 says of it is not asked.
        if world.broadcast(vec![u8::from(is_last)])? != [0] {
            return Ok(());
        }
    }
}

/// Waits; true when it was stopped meanwhile.
fn paused(pause: TimeSpan, stopped: &AtomicBool) -> bool {
    let until = Instant::now() + pause.to_std();
    while Instant::now() < until && !stopped.load(Relaxed) {
        thread::sleep(POLL_INTERVAL);
    }
    stopped.load(Relaxed)
}

fn kind(error: &ExploreError) -> FailureKind {
    match error {
        ExploreError::Ranks(_) => FailureKind::Connection,
        ExploreError::Fault { .. } | ExploreError::Memory { .. } | ExploreError::OfRank { .. } => {
            FailureKind::Invalid
        }
    }
}
