//! The agent's side of flow tests.

mod adapter;
mod connect;
mod cores;
mod datagram;
pub mod engine;
mod listen;
mod open;
mod options;
mod sample;
mod settings;
mod test;
mod window;

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_control::{CallContext, Done, EventSender, Registration, Service};
use clearstream_host::HostRoot;
use clearstream_schema::{
    control::{Cookie, Failure, FailureKind},
    flow::{Direction, FlowConfig, Protocol},
};
use clearstream_sys::process::allow_files;
use socket2::Socket;

pub(crate) use self::{connect::AT_ONCE, settings::notice};
use self::{datagram::Association, listen::Listener, open::Part, test::Test};
use crate::{
    adapt::Open,
    calls::{Adopt, Connect, Listen, Listening, Start, Stop},
    check,
    data::Gate,
    preamble::Secret,
};

/// Maximum wait of a start for all flows to be connected.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// Runs flow tests on one host, one at a time. Dropping it stops a running test and its threads.
#[derive(Debug, Default)]
pub struct FlowAgent {
    running: Option<Running>,
}

/// A prepared test; it may have ended.
#[derive(Debug)]
struct Running {
    number: u64,
    gate: Arc<Gate>,
    adapter: adapter::Shared,
    thread: Option<JoinHandle<()>>,
}

impl FlowAgent {
    /// An agent without a test.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the data sockets of the server and returns its address.
    /// [`Ready`](crate::calls::Ready), intervals and
    /// [`Finished`](crate::calls::Finished) go to the events, the last one always.
    ///
    /// # Errors
    /// `Busy` while another test runs, `Invalid` for what this host lacks (a core or node), `InUse`,
    /// `Unsupported`.
    pub fn listen(&mut self, call: Listen, context: &CallContext<'_>) -> Result<Listening, Failure> {
        let Listen { test, cookie, address, config, open } = call;
        let test = self.prepare((test, true), &cookie, (config, open), context)?;
        let (config, secret, part) = (&test.config, test.secret, test.part);
        if config.protocol == Protocol::Udp {
            let association = Association::open(config, address, secret, part)?;
            let address = association.address();
            self.spawn(test, context.events(), move |gate| association.accept_all(gate))?;
            return Ok(Listening { address });
        }
        let listener = Listener::open(config, address, secret, part)?;
        let address = listener.address()?;
        self.spawn(test, context.events(), move |gate| listener.accept_all(gate))?;
        Ok(Listening { address })
    }

    /// Opens the data sockets of the client and connects them all. Events as with [`FlowAgent::listen`].
    ///
    /// # Errors
    /// As [`FlowAgent::listen`], and `Connection`.
    pub fn connect(&mut self, call: Connect, context: &CallContext<'_>) -> Result<Done, Failure> {
        let Connect { test, cookie, server, config, open } = call;
        let test = self.prepare((test, false), &cookie, (config, open), context)?;
        let (config, secret, part) = (&test.config, test.secret, test.part);
        let sockets = match config.protocol {
            Protocol::Udp => datagram::connect_all(config, server, secret, part)?,
            Protocol::Tcp | Protocol::Mptcp => connect::connect_all(config, server, secret, part)?,
        };
        self.spawn(test, context.events(), move |_| Ok(sockets))?;
        Ok(Done {})
    }

    /// Validates a test for this host.
    fn prepare(
        &mut self,
        (number, server): (u64, bool),
        cookie: &Cookie,
        (config, open): (FlowConfig, Open),
        context: &CallContext<'_>,
    ) -> Result<Test, Failure> {
        if context.controller().is_some() {
            refuse_to_load(&HostRoot::live(), config.congestion_control.as_deref())?;
        }
        if let Some(running) = self.running.as_ref().filter(|running| !running.gate.is_over()) {
            let message = format!("flow test {} still runs here: stop it first", running.number);
            return Err(Failure::new(FailureKind::Busy, message));
        }
        self.running = None;
        check::check(&config)?;
        // A socket, a counter of cycles for each of two threads, and a pipe of two ends.
        allow_files(5 * u64::from(config.flows) + 256);
        let secret = Secret::parse(cookie)?;
        let part = part(server, config.direction);
        let root = HostRoot::live();
        if part.sends {
            cores::check(&root, "sender-cores", config.sender_cores.as_ref())?;
        }
        if part.receives {
            cores::check(&root, "receiver-cores", config.receiver_cores.as_ref())?;
        }
        let (gate, adapter) = (Arc::new(Gate::default()), adapter::Shared::default());
        Ok(Test { number, config, part, server, secret, gate, open, adapter })
    }

    fn spawn(
        &mut self,
        test: Test,
        events: &EventSender,
        sockets: impl FnOnce(&Gate) -> Result<Vec<Arc<Socket>>, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let (number, gate, events) = (test.number, Arc::clone(&test.gate), events.clone());
        let adapter = Arc::clone(&test.adapter);
        let thread = thread::Builder::new()
            .name("flow-sampler".into())
            .spawn(move || test.run(sockets, &events))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        self.running = Some(Running { number, gate, adapter, thread: Some(thread) });
        Ok(())
    }

    /// Starts the transfer once all flows are connected on this side.
    ///
    /// # Errors
    /// `Invalid` for a test that was not prepared, `Connection` when flows are
    /// missing, or why the test ended before it started.
    pub fn start(&mut self, test: u64) -> Result<(), Failure> {
        let running = self.find(test)?;
        match running.gate.wait_ready(Instant::now() + READY_TIMEOUT) {
            Some(Ok(())) => {
                running.gate.start();
                Ok(())
            }
            Some(Err(Some(failed))) => Err(failed),
            Some(Err(None)) => {
                Err(Failure::new(FailureKind::Connection, format!("flow test {test} was stopped")))
            }
            None => Err(Failure::new(
                FailureKind::Connection,
                format!("flow test {test}: not all flows are connected"),
            )),
        }
    }

    /// Adopts what the controller decided about a stage of the warm-up.
    ///
    /// # Errors
    /// `Invalid` for a test that was not prepared, or has tried nothing.
    pub fn adopt(&mut self, call: Adopt) -> Result<(), Failure> {
        let running = self.find(call.test)?;
        let mut adapter = adapter::locked(&running.adapter);
        let adapter = adapter.as_mut().ok_or_else(|| {
            Failure::new(FailureKind::Invalid, format!("flow test {} tries no settings", call.test))
        })?;
        adapter.adopt(call);
        Ok(())
    }

    /// Stops a test early; returns when its threads have ended. Stopping an ended test is not an error.
    ///
    /// # Errors
    /// `Invalid` for a test that was not prepared.
    pub fn stop(&mut self, test: u64) -> Result<(), Failure> {
        self.find(test)?.end();
        Ok(())
    }

    fn find(&mut self, test: u64) -> Result<&mut Running, Failure> {
        self.running.as_mut().filter(|running| running.number == test).ok_or_else(|| {
            Failure::new(FailureKind::Invalid, format!("there is no flow test {test}: prepare it first"))
        })
    }
}

impl Service for FlowAgent {
    fn register(calls: &mut Registration<Self>) {
        calls
            .on(Self::listen)
            .on(Self::connect)
            .on(|agent, Start { test }, _| agent.start(test).map(|()| Done {}))
            .on(|agent, adopt: Adopt, _| agent.adopt(adopt).map(|()| Done {}))
            .on(|agent, Stop { test }, _| agent.stop(test).map(|()| Done {}));
    }
}

impl Running {
    fn end(&mut self) {
        self.gate.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was already reported by the panic hook.
            drop(thread.join());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// A congestion control that is not loaded makes the kernel load its module (tcp_set_congestion_control, for
/// root), which exceeds the right to measure: rejected for controllers over TLS.
fn refuse_to_load(root: &HostRoot, congestion_control: Option<&str>) -> Result<(), Failure> {
    let Some(name) = congestion_control else { return Ok(()) };
    let available = root.read("proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    if available.split_whitespace().any(|other| other == name) {
        return Ok(());
    }
    let message = format!(
        "congestion control {name} is not loaded on that host, and over TLS none is loaded by name: available: {}; \
         `modprobe tcp_{name}` there may add it",
        available.split_whitespace().collect::<Vec<_>>().join(", ")
    );
    Err(Failure::new(FailureKind::Invalid, message))
}

/// The role of this side: the client always connects.
fn part(server: bool, direction: Direction) -> Part {
    match direction {
        Direction::Forward => Part { sends: !server, receives: server },
        Direction::Reverse => Part { sends: server, receives: !server },
        Direction::Both => Part { sends: true, receives: true },
    }
}
