//! The agent's side of flow tests.

mod connect;
mod cores;
mod datagram;
mod listen;
mod open;
mod sample;
mod settings;
mod test;
mod window;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use clearstream_control::EventSender;
use clearstream_host::HostRoot;
use clearstream_schema::{
    control::{Failure, FailureKind, FlowPrepare, FlowRole, Reply},
    flow::{Direction, Protocol},
};
use socket2::Socket;

pub(crate) use self::settings::notice;
use self::{datagram::Association, listen::Listener, open::Part, test::Test};
use crate::{check, data::Gate, failure, preamble::Secret};

/// How long the start waits for all flows to be connected.
const READY_PATIENCE: Duration = Duration::from_secs(20);

/// Runs flow tests on one host, one at a time. Dropping it ends a running
/// test and its threads.
#[derive(Debug, Default)]
pub struct FlowAgent {
    running: Option<Running>,
}

/// A test that was prepared and may have ended.
#[derive(Debug)]
struct Running {
    number: u64,
    gate: Arc<Gate>,
    thread: Option<JoinHandle<()>>,
}

impl FlowAgent {
    /// An agent without a test.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the data sockets of a test. The server's answer is where it
    /// waits; the client's comes when all flows are connected. `FlowReady`,
    /// `FlowInterval` and `FlowFinished` go to `events`, the last one always.
    ///
    /// # Errors
    /// `Busy` while another test runs, `Invalid` for what this host cannot
    /// mean (a core or node that is not there), `InUse`, `Unsupported`,
    /// `Connection`.
    pub fn prepare(&mut self, prepare: FlowPrepare, events: &EventSender) -> Result<Reply, Failure> {
        if let Some(running) = self.running.as_ref().filter(|running| !running.gate.is_over()) {
            let message = format!("flow test {} still runs here: stop it first", running.number);
            return Err(failure(FailureKind::Busy, message));
        }
        self.running = None;
        let FlowPrepare { test: number, cookie, role, config } = prepare;
        check::check(&config)?;
        let secret = Secret::parse(&cookie)?;
        let server = matches!(role, FlowRole::Server { .. });
        let part = part(server, config.direction);
        let root = HostRoot::live();
        if part.sends {
            cores::check(&root, "sender-cores", config.sender_cores.as_ref())?;
        }
        if part.receives {
            cores::check(&root, "receiver-cores", config.receiver_cores.as_ref())?;
        }
        let gate = Arc::new(Gate::default());
        let test = Test { number, config, part, server, secret, gate };
        match role {
            FlowRole::Server { address } => self.serve(test, address, events),
            FlowRole::Client { server } => self.connect(test, server, events),
        }
    }

    fn serve(&mut self, test: Test, address: Option<IpAddr>, events: &EventSender) -> Result<Reply, Failure> {
        let (config, secret, part) = (&test.config, test.secret, test.part);
        if config.protocol == Protocol::Udp {
            let association = Association::open(config, address, secret, part)?;
            let address = association.address();
            self.spawn(test, events, move |gate| association.accept_all(gate))?;
            return Ok(Reply::FlowListening { address });
        }
        let listener = Listener::open(config, address, secret, part)?;
        let address = listener.address()?;
        self.spawn(test, events, move |gate| listener.accept_all(gate))?;
        Ok(Reply::FlowListening { address })
    }

    fn connect(&mut self, test: Test, server: SocketAddr, events: &EventSender) -> Result<Reply, Failure> {
        let (config, secret, part) = (&test.config, test.secret, test.part);
        let sockets = match config.protocol {
            Protocol::Udp => datagram::connect_all(config, server, secret, part)?,
            Protocol::Tcp | Protocol::Mptcp => connect::connect_all(config, server, secret, part)?,
        };
        self.spawn(test, events, move |_| Ok(sockets))?;
        Ok(Reply::FlowConnected)
    }

    fn spawn(
        &mut self,
        test: Test,
        events: &EventSender,
        sockets: impl FnOnce(&Gate) -> Result<Vec<Arc<Socket>>, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let (number, gate, events) = (test.number, Arc::clone(&test.gate), events.clone());
        let thread = thread::Builder::new()
            .name("flow-sampler".into())
            .spawn(move || test.run(sockets, &events))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        self.running = Some(Running { number, gate, thread: Some(thread) });
        Ok(())
    }

    /// Lets data flow once all flows are connected on this side.
    ///
    /// # Errors
    /// `Invalid` for a test that was not prepared, `Connection` when flows are
    /// missing, or why the test ended before it started.
    pub fn start(&mut self, test: u64) -> Result<(), Failure> {
        let running = self.find(test)?;
        match running.gate.wait_ready(Instant::now() + READY_PATIENCE) {
            Some(Ok(())) => {
                running.gate.start();
                Ok(())
            }
            Some(Err(Some(failed))) => Err(failed),
            Some(Err(None)) => Err(failure(FailureKind::Connection, format!("flow test {test} was stopped"))),
            None => Err(failure(
                FailureKind::Connection,
                format!("flow test {test}: not all flows are connected"),
            )),
        }
    }

    /// Ends a test early; returns when its threads have ended. A test that has
    /// ended already is not an error.
    ///
    /// # Errors
    /// `Invalid` for a test that was not prepared.
    pub fn stop(&mut self, test: u64) -> Result<(), Failure> {
        self.find(test)?.end();
        Ok(())
    }

    fn find(&mut self, test: u64) -> Result<&mut Running, Failure> {
        self.running.as_mut().filter(|running| running.number == test).ok_or_else(|| {
            failure(FailureKind::Invalid, format!("there is no flow test {test}: prepare it first"))
        })
    }
}

impl Running {
    fn end(&mut self) {
        self.gate.stop();
        if let Some(thread) = self.thread.take() {
            // A panic in it was already shown by the panic hook.
            drop(thread.join());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Who sends: the client always connects.
fn part(server: bool, direction: Direction) -> Part {
    match direction {
        Direction::Forward => Part { sends: !server, receives: server },
        Direction::Reverse => Part { sends: server, receives: !server },
        Direction::Both => Part { sends: true, receives: true },
    }
}
