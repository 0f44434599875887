//! A queue pair with its own RNIC and completion queue and blocking waits, for
//! sequential exchanges: rping and control channels.

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
        RnicOptions, State,
        raw::{CompletionQueue, QueuePair, QueuePairOptions, ReceiveRequest, SendRequest},
    },
    work::{Completion, Status},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::RdmaError;

/// Maximum number of outstanding work requests of each queue.
pub(crate) const DEPTH: u32 = 16;
/// Interval at which a blocking wait polls the stop flag.
pub(crate) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which a graceful close polls the state of the queue pair.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_micros(200);

/// Connects a queue pair.
///
/// # Errors
/// No connection, or the stop flag.
pub(crate) fn connect(
    queue_pair: &QueuePair,
    peer: SocketAddr,
    options: &ConnectOptions,
    stop: &AtomicBool,
) -> Result<Established, RdmaError> {
    let mut connecting = queue_pair.start_connect(peer, options)?;
    loop {
        if let Some(established) = connecting.advance()? {
            return Ok(established);
        }
        if stop.load(Ordering::Relaxed) {
            return Err(RdmaError::StoppedConnecting { peer });
        }
        // A signal ends this wait as well; the loop checks the state either way.
        let interval = Timespec { tv_sec: 0, tv_nsec: STOP_POLL_INTERVAL.subsec_nanos().into() };
        let _ = poll(&mut [PollFd::new(&connecting, PollFlags::IN)], Some(&interval));
    }
}

/// A queue pair, its RNIC and its completion queue.
///
/// Asynchronous events of an RNIC have one reader: on an RNIC with several
/// queue pairs one would consume the events of the others.
#[derive(Debug)]
pub(crate) struct BlockingQueuePair {
    rnic: Rnic,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    queue_pair: QueuePair,
    established: Option<Established>,
}

/// End of a connection.
#[derive(Debug)]
pub(crate) struct Closure {
    /// Closed by the peer between messages.
    pub(crate) graceful: bool,
    /// Cause, for error messages.
    pub(crate) reason: String,
}

/// Result of a wait.
#[derive(Debug)]
pub(crate) enum Wait {
    /// A work request was successful.
    Completed(Completion),
    /// The connection is closed.
    Closed(Closure),
    /// The timeout has expired.
    TimedOut,
}

impl BlockingQueuePair {
    /// Opens an idle queue pair, with inline progress.
    ///
    /// # Errors
    /// The RNIC's.
    pub(crate) fn open() -> Result<Self, RdmaError> {
        let rnic = Rnic::open(RnicOptions::default())?;
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 4 * DEPTH, 0, None)?;
        let mut options = QueuePairOptions::new(&completions);
        (options.send_depth, options.receive_depth) = (DEPTH, DEPTH);
        let queue_pair = QueuePair::new(&domain, &options)?;
        Ok(Self { rnic, domain, completions, queue_pair, established: None })
    }

    /// Returns the protection domain, for the memory of the exchange.
    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// Connects; returns the negotiated parameters.
    ///
    /// # Errors
    /// No connection, or the stop flag.
    pub(crate) fn connect(
        &mut self,
        peer: SocketAddr,
        options: &ConnectOptions,
        stop: &AtomicBool,
    ) -> Result<&Established, RdmaError> {
        let established = connect(&self.queue_pair, peer, options, stop)?;
        Ok(self.established.insert(established))
    }

    /// Accepts; returns the negotiated parameters.
    ///
    /// # Errors
    /// No connection.
    pub(crate) fn accept(
        &mut self,
        request: Incoming,
        options: &AcceptOptions,
    ) -> Result<&Established, RdmaError> {
        let established = self.queue_pair.accept(request, options)?;
        Ok(self.established.insert(established))
    }

    /// Returns the address of the peer; unspecified before the connection.
    pub(crate) fn peer(&self) -> SocketAddr {
        peer_of(self.established.as_ref())
    }

    /// Posts to the send queue.
    ///
    /// # Errors
    /// A full queue or a closed connection.
    pub(crate) fn send(&self, request: SendRequest) -> Result<(), RdmaError> {
        self.queue_pair.post_send(request).map_err(|error| self.lost(error.to_string()))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// A full queue or a closed connection.
    pub(crate) fn receive(&self, request: ReceiveRequest) -> Result<(), RdmaError> {
        self.queue_pair.post_receive(request).map_err(|error| self.lost(error.to_string()))
    }

    /// Polls for the next completion.
    ///
    /// # Errors
    /// None in practice: the queue has room for all work requests.
    pub(crate) fn try_next(&self) -> Result<Option<Wait>, RdmaError> {
        Ok(self.completions.poll_one().map_err(overrun)?.map(|completion| self.judge(completion)))
    }

    fn judge(&self, completion: Completion) -> Wait {
        match completion.status {
            Status::Success => Wait::Completed(completion),
            status => Wait::Closed(closure(&self.rnic, self.queue_pair.id(), status)),
        }
    }

    /// Waits for the next completion.
    ///
    /// # Errors
    /// [`RdmaError::Stopped`] when the stop flag is set.
    pub(crate) fn wait(&self, timeout: Option<Duration>, stop: &AtomicBool) -> Result<Wait, RdmaError> {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.completions.wait(STOP_POLL_INTERVAL).map_err(overrun)? {
                return Ok(self.judge(completion));
            }
            if stop.load(Ordering::Relaxed) {
                return Err(RdmaError::Stopped);
            }
            if timeout.is_some_and(|timeout| start.elapsed() >= timeout) {
                return Ok(Wait::TimedOut);
            }
        }
    }

    /// Creates the error of a lost connection.
    pub(crate) fn lost(&self, reason: impl Into<String>) -> RdmaError {
        RdmaError::Lost { peer: self.peer(), reason: reason.into() }
    }

    /// Closes the connection gracefully, and waits up to `timeout` for the peer
    /// to do the same.
    pub(crate) fn close(self, timeout: Duration) {
        if self.queue_pair.modify(State::Closing).is_err() {
            return;
        }
        let deadline = Instant::now() + timeout;
        while matches!(self.queue_pair.state(), State::Closing | State::Rts) && Instant::now() < deadline {
            let _ = self.completions.poll_one();
            std::thread::sleep(CLOSE_POLL_INTERVAL);
        }
    }
}

/// Returns the address of the peer of a connection; unspecified without one.
pub(crate) fn peer_of(established: Option<&Established>) -> SocketAddr {
    established.map_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)), |established| established.peer)
}

/// Converts an overrun: the queue has room for all work requests, so it is a
/// defect.
pub(crate) fn overrun(error: Overrun) -> RdmaError {
    RdmaError::Fault(error.to_string())
}

/// Determines the cause of failed work requests of a queue pair from the RNIC's
/// asynchronous events.
pub(crate) fn closure(rnic: &Rnic, queue_pair: QueuePairId, status: Status) -> Closure {
    let mut found = Closure {
        graceful: false,
        reason: match status {
            Status::Flushed => "it closed the connection".to_owned(),
            status => format!("a request ended with {status:?}"),
        },
    };
    let mut terminated = None;
    while let Some(event) = rnic.events().next(Some(Duration::ZERO)) {
        match event {
            AsyncEvent::TerminateReceived { queue_pair: of, terminate } if of == queue_pair => {
                terminated = Some(format!("it detected an error in what we sent: {}", describe(&terminate)));
            }
            AsyncEvent::TerminateSent { queue_pair: of, terminate } if of == queue_pair => {
                terminated = Some(format!("it violated the protocol: {}", describe(&terminate)));
            }
            AsyncEvent::Disconnected { queue_pair: of, failure } if of == queue_pair => match failure {
                Some(failure) => found.reason = failure.to_string(),
                None => found.graceful = true,
            },
            _ => {}
        }
    }
    match terminated {
        Some(reason) => Closure { graceful: false, reason },
        None => found,
    }
}

/// Formats the error of a Terminate with layer, type and code (RFC 5040,
/// section 4.8).
fn describe(terminate: &Terminate) -> String {
    let [layer, kind, code] = terminate.error.numbers();
    format!("{:?} (Terminate of layer {layer}, type {kind}, code {code:#04x})", terminate.error)
}
