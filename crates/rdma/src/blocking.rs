//! One queue pair with a completion queue of its own, for exchanges that wait
//! for each step: rping's, and the messages of a test.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    rdmap::Terminate,
    stag::QueuePairId,
    verbs::{
        AcceptOptions, AsyncEvent, ConnectOptions, Established, Incoming, Overrun, ProtectionDomain, Rnic,
        State,
        raw::{CompletionQueue, QueuePair, QueuePairOptions, ReceiveRequest, SendRequest},
    },
    work::{Completion, Status},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::RdmaError;

/// Requests outstanding on each queue of a wire.
const DEPTH: u32 = 16;
/// How often a sleeper looks whether it is to stop.
const STOP_PERIOD: Duration = Duration::from_millis(50);

/// Connects a queue pair.
///
/// # Errors
/// No connection, or the flag is raised before there is one.
pub fn connect(
    pair: &QueuePair,
    peer: SocketAddr,
    options: &ConnectOptions,
    stop: &AtomicBool,
) -> Result<Established, RdmaError> {
    let mut connecting = pair.start_connect(peer, options)?;
    loop {
        if let Some(established) = connecting.advance()? {
            return Ok(established);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::StoppedConnecting { peer });
        }
        // A signal ends this wait too; whatever does, the loop looks again.
        let period = Timespec { tv_sec: 0, tv_nsec: STOP_PERIOD.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&connecting, PollFlags::IN)], Some(&period));
    }
}

/// A queue pair and what it completes into.
#[derive(Debug)]
pub struct Wire {
    rnic: Rnic,
    queue: CompletionQueue,
    pair: QueuePair,
    established: Option<Established>,
}

/// How a connection ended.
#[derive(Debug)]
pub struct Ending {
    /// Closed between messages.
    pub orderly: bool,
    /// For people.
    pub reason: String,
}

/// What a wait came to.
#[derive(Debug)]
pub enum Waited {
    /// A request has ended well.
    Done(Completion),
    /// The connection is over.
    Over(Ending),
    /// The time was over.
    Late,
}

impl Wire {
    /// An idle queue pair.
    ///
    /// # Errors
    /// The RNIC's.
    pub fn new(domain: &ProtectionDomain) -> Result<Self, RdmaError> {
        let rnic = domain.rnic();
        let queue = CompletionQueue::new(&rnic, 4 * DEPTH, 0, None)?;
        let mut options = QueuePairOptions::new(&queue);
        (options.send_depth, options.receive_depth) = (DEPTH, DEPTH);
        let pair = QueuePair::new(domain, &options)?;
        Ok(Self { rnic, queue, pair, established: None })
    }

    /// Connects; what was agreed on.
    ///
    /// # Errors
    /// No connection, or the flag is raised.
    pub fn connect(
        &mut self,
        peer: SocketAddr,
        options: &ConnectOptions,
        stop: &AtomicBool,
    ) -> Result<&Established, RdmaError> {
        let established = connect(&self.pair, peer, options, stop)?;
        Ok(self.established.insert(established))
    }

    /// Accepts; what was agreed on.
    ///
    /// # Errors
    /// No connection.
    pub fn accept(&mut self, request: Incoming, options: &AcceptOptions) -> Result<&Established, RdmaError> {
        let established = self.pair.accept(request, options)?;
        Ok(self.established.insert(established))
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.established.as_ref().map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |agreed| agreed.peer)
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// A queue that is full, or a connection that is over.
    pub fn send(&self, request: SendRequest) -> Result<(), RdmaError> {
        self.pair.post_send(request).map_err(|error| self.lost(error.to_string()))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// A queue that is full, or a connection that is over.
    pub fn receive(&self, request: ReceiveRequest) -> Result<(), RdmaError> {
        self.pair.post_receive(request).map_err(|error| self.lost(error.to_string()))
    }

    /// The next completion, if there is one.
    ///
    /// # Errors
    /// Never in practice: the queue has room for all requests.
    pub fn try_next(&self) -> Result<Option<Waited>, RdmaError> {
        Ok(self.queue.poll_one().map_err(overrun)?.map(|completion| self.judged(completion)))
    }

    fn judged(&self, completion: Completion) -> Waited {
        match completion.status {
            Status::Success => Waited::Done(completion),
            status => Waited::Over(ending(&self.rnic, self.pair.id(), status)),
        }
    }

    /// Waits for the next completion.
    ///
    /// # Errors
    /// [`RdmaError::Stopped`] when the flag is raised.
    pub fn wait(&self, limit: Option<Duration>, stop: &AtomicBool) -> Result<Waited, RdmaError> {
        let start = Instant::now();
        loop {
            let found = self.queue.wait(STOP_PERIOD).map_err(overrun)?;
            if let Some(completion) = found {
                return Ok(self.judged(completion));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(RdmaError::Stopped);
            }
            if limit.is_some_and(|limit| start.elapsed() >= limit) {
                return Ok(Waited::Late);
            }
        }
    }

    /// The connection broke.
    #[must_use]
    pub fn lost(&self, reason: impl Into<String>) -> RdmaError {
        RdmaError::Lost { peer: self.peer(), reason: reason.into() }
    }

    /// Ends the connection in order, and waits a moment for the other end to
    /// do the same.
    pub fn close(self, limit: Duration) {
        if self.pair.modify(State::Closing).is_err() {
            return;
        }
        let end = Instant::now() + limit;
        while matches!(self.pair.state(), State::Closing | State::Rts) && Instant::now() < end {
            let _ = self.queue.poll_one();
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The queue has room for all requests: this is our fault.
fn overrun(error: Overrun) -> RdmaError {
    RdmaError::Fault(error.to_string())
}

/// Why requests of a queue pair were ended, as the RNIC's events tell.
pub fn ending(rnic: &Rnic, pair: QueuePairId, status: Status) -> Ending {
    let mut found = Ending {
        orderly: false,
        reason: match status {
            Status::Flushed => "it closed the connection".to_owned(),
            status => format!("a request ended with {status:?}"),
        },
    };
    let mut terminated = None;
    while let Some(event) = rnic.events().next(Some(Duration::ZERO)) {
        match event {
            AsyncEvent::TerminateReceived { queue_pair, terminate } if queue_pair == pair => {
                terminated = Some(format!("it found an error in what we sent: {}", spelled(&terminate)));
            }
            AsyncEvent::TerminateSent { queue_pair, terminate } if queue_pair == pair => {
                terminated = Some(format!("it broke a rule: {}", spelled(&terminate)));
            }
            AsyncEvent::Disconnected { queue_pair, failure } if queue_pair == pair => match failure {
                Some(failure) => found.reason = failure.to_string(),
                None => found.orderly = true,
            },
            _ => {}
        }
    }
    match terminated {
        Some(reason) => Ending { orderly: false, reason },
        None => found,
    }
}

/// An error with its place in the standards: layer, type and code of its
/// Terminate (RFC 5040, section 4.8).
fn spelled(terminate: &Terminate) -> String {
    let [layer, kind, code] = terminate.error.numbers();
    format!("{:?} (Terminate of layer {layer}, type {kind}, code {code:#04x})", terminate.error)
}
