//! Agent part of RDMA measurements: the server, restricted to one controller,
//! and the client.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use clearstream_control::{CallContext, Done, EventSender, Registration, Service, encoding};
use clearstream_schema::{
    control::{self, Failure, FailureKind},
    failure::Classified,
    rdma::{RdmaOperation, RdmaSample},
};

use crate::{
    BackgroundServer, ExpectedPeer, VerbsSummary,
    calls::{Listening, Measure, Progress, Serve, Stop, TimeVerbs},
    client::{self, Event},
    negotiation::{Cookie, validate},
    verbs,
};

/// Open server and running measurement of a session. Dropping it stops both.
#[derive(Debug, Default)]
pub struct RdmaAgent {
    server: Option<BackgroundServer>,
    running: Option<Running>,
}

/// A measurement running in a thread; dropping it stops and joins the thread.
#[derive(Debug)]
struct Running {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Service for RdmaAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::serve).on(Self::measure).on(|_, call, context| time_verbs(call, context)).on(
            |agent, Stop {}, _| {
                agent.running = None;
                agent.server = None;
                Ok(Done {})
            },
        );
    }
}

impl RdmaAgent {
    fn serve(&mut self, call: Serve, context: &CallContext<'_>) -> Result<Listening, Failure> {
        let cookie = call.cookie.ok_or_else(|| {
            invalid("`rdma-serve` came without a cookie: install the version of this host on the controller")
        })?;
        let cookie = cookie_bytes("rdma-serve", &cookie)?;
        let peer = expected_address(&call.peer, context)?;
        // A server left open by an earlier test is closed.
        self.server = None;
        let server = BackgroundServer::open(
            SocketAddr::new(call.address, call.port.unwrap_or(0)),
            ExpectedPeer { cookie, address: peer },
        )
        .map_err(|error| error.to_failure())?;
        let address = server.address();
        self.server = Some(server);
        Ok(Listening { address })
    }

    fn measure(&mut self, call: Measure, context: &CallContext<'_>) -> Result<Done, Failure> {
        if self.running.as_ref().is_some_and(Running::is_running) {
            let message = "an RDMA measurement still runs here: stop it first".to_owned();
            return Err(Failure { kind: FailureKind::Busy, message });
        }
        self.running = None;
        let cookie = cookie_bytes("rdma-measure", &call.cookie)?;
        validate(&call.config, call.operation).map_err(|error| error.to_failure())?;
        if call.config.perftest {
            return Err(invalid("an agent's peer is clearstream: leave `perftest` out"));
        }
        let (stop, events) = (Arc::new(AtomicBool::new(false)), context.events().clone());
        let is_stopped = Arc::clone(&stop);
        // A separate thread: with inline progress it is pinned.
        let thread = std::thread::Builder::new()
            .name("rdma-client".to_owned())
            .spawn(move || run(&call, cookie, &is_stopped, &events))
            .map_err(|error| Failure::of_system("start a thread", &error))?;
        self.running = Some(Running { stop, thread: Some(thread) });
        Ok(Done {})
    }
}

impl Running {
    fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            drop(thread.join());
        }
    }
}

/// Runs the client of one measurement.
fn run(call: &Measure, cookie: Cookie, stop: &AtomicBool, events: &EventSender) {
    let mut watch = |event: Event<'_>| {
        if let Event::Sample(sample) = &event {
            count(call, sample, events);
        }
        events.send(&match event {
            Event::Ready(effective) => Progress::Ready(effective.clone()),
            Event::Sample(sample) => Progress::Sample(sample.clone()),
            Event::Size(result) => Progress::Size(result.clone()),
        });
    };
    let result = client::measure(call.server, cookie, call.operation, &call.config, stop, &mut watch);
    events.send(&match result {
        Ok(summary) => Progress::Finished(summary),
        Err(error) => Progress::Failed(error.to_failure()),
    });
}

/// Counts the messages of a sample; a latency test has them in both directions.
fn count(call: &Measure, sample: &RdmaSample, events: &EventSender) {
    let bytes = sample.message_count.saturating_mul(sample.size_bytes);
    let is_read = call.operation == RdmaOperation::Read;
    let both = call.config.latency && !is_read;
    let [sent, received] = [both || !is_read, both || is_read].map(|counts| if counts { bytes } else { 0 });
    events.transferred("rdma", sent, received);
}

fn time_verbs(call: TimeVerbs, context: &CallContext<'_>) -> Result<VerbsSummary, Failure> {
    let cookie = cookie_bytes("rdma-verbs", &call.cookie)?;
    let should_continue = || context.events().is_open();
    // A separate thread: it may be pinned.
    let timed = std::thread::scope(|scope| {
        let timing = scope.spawn(|| verbs::time(&call.config, call.server, cookie, &should_continue));
        timing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    timed.map_err(|error| error.to_failure())
}

/// Returns the address that tests come from.
fn expected_address(peer: &Option<IpAddr>, context: &CallContext<'_>) -> Result<IpAddr, Failure> {
    let controller = context.controller().map(|controller| controller.address.ip());
    match (controller, *peer) {
        (Some(own), Some(other)) if own.to_canonical() != other.to_canonical() => {
            let message =
                format!("`rdma-serve` for {other}: the tests of a paired controller come from it, {own}");
            Err(Failure { kind: FailureKind::Forbidden, message })
        }
        (Some(own), _) => Ok(own),
        (None, Some(peer)) => Ok(peer),
        (None, None) => Err(invalid("`rdma-serve` names no address that its tests come from")),
    }
}

fn cookie_bytes(call: &str, cookie: &control::Cookie) -> Result<Cookie, Failure> {
    encoding::from_hex(&cookie.0)
        .ok()
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| invalid(&format!("the cookie of `{call}` is not 16 bytes in hexadecimal")))
}

fn invalid(message: &str) -> Failure {
    Failure { kind: FailureKind::Invalid, message: message.to_owned() }
}
