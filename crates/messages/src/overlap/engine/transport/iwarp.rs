//! Software iWARP: Sends of one queue pair into posted receives.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use crate::overlap::{OverlapConfig, OverlapSideSettings};
use crate::{Traffic, connection::Secret};
use clearstream_iwarp::{
    verbs::{
        AcceptOptions, Access, AsyncEvent, ConnectOptions, Established, Incoming, Listener, Progress,
        ProtectionDomain, Region, Rnic, RnicOptions, VerbsError,
        raw::{CompletionQueue, QueuePair, QueuePairOptions},
    },
    work::{Completed, Completion, Data, Operation, ReceiveRequest, SendRequest, Status},
};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::firewall_advice,
    rdma::RdmaProgress,
};

use super::{Counts, Transport};
use crate::overlap::engine::EngineError;

/// First bytes of the private data of a connection request; the cookie follows.
const MAGIC: &[u8] = b"clearstream overlap";
/// Maximum number of completions per poll.
const BATCH: usize = 64;
/// Requests in flight beyond two windows: completions that were not polled yet.
const SPARE_DEPTH: u32 = 16;
/// Maximum wait for the client.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(15);
/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A queue pair with its slots.
#[derive(Debug)]
pub(crate) struct Iwarp {
    rnic: Rnic,
    completions: CompletionQueue,
    queue_pair: QueuePair,
    source: Region,
    sink: Region,
    counts: Counts,
    size: u32,
    verifies: bool,
    /// A message copied from or to registered memory, to be verified.
    scratch: Vec<u8>,
}

/// A listening RNIC.
#[derive(Debug)]
pub(crate) struct IwarpServer {
    rnic: Rnic,
    listener: Listener,
    secret: Secret,
}

fn private_data(secret: Secret) -> Vec<u8> {
    [MAGIC, &secret.preamble()].concat()
}

/// Opens an RNIC. Its threads inherit the cores of the caller, which is not
/// pinned: the program's core is for work.
fn open(progress: RdmaProgress) -> Result<Rnic, Failure> {
    let progress = match progress {
        RdmaProgress::Inline => Progress::Inline,
        RdmaProgress::Offloaded => Progress::Offloaded { cores: Vec::new() },
        RdmaProgress::Adaptive => Progress::Adaptive,
    };
    Rnic::open(RnicOptions { progress, ..RnicOptions::default() }).map_err(|error| of_verbs(&error))
}

fn of_verbs(error: &VerbsError) -> Failure {
    match error {
        VerbsError::System { step, source } => Failure::of_system(step, source),
        _ => Failure::new(FailureKind::Unsupported, format!("software iWARP: {error}")),
    }
}

fn settings(established: &Established) -> OverlapSideSettings {
    OverlapSideSettings {
        mulpdu_bytes: Some(established.mulpdu_bytes as u64),
        crc: Some(established.crc),
        ..OverlapSideSettings::default()
    }
}

impl IwarpServer {
    /// Listens at the address.
    ///
    /// # Errors
    /// A port that is in use; no RNIC.
    pub(crate) fn open(config: &OverlapConfig, address: SocketAddr, secret: Secret) -> Result<Self, Failure> {
        let rnic = open(config.progress)?;
        let listener = Listener::bind(&rnic, address).map_err(|error| match &error {
            VerbsError::System { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse => {
                let port = address.port();
                Failure::new(
                    FailureKind::InUse,
                    format!("port {port} is in use on this host: choose another port"),
                )
            }
            _ => of_verbs(&error),
        })?;
        Ok(Self { rnic, listener, secret })
    }

    /// Returns the port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.listener.local_address().port()
    }

    /// Waits for the client at this address; `None` when stopped before.
    /// Connections of others are closed or rejected.
    pub(crate) fn accept(
        mut self,
        config: &OverlapConfig,
        client: Option<IpAddr>,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Option<(Iwarp, OverlapSideSettings)>, Failure> {
        if let Some(client) = client {
            self.listener.admit_only(client);
        }
        let until = Instant::now() + CLIENT_TIMEOUT;
        while Instant::now() < until {
            if is_stopped() {
                return Ok(None);
            }
            let request = self.listener.accept(Some(POLL_INTERVAL)).map_err(|error| of_verbs(&error))?;
            let Some(request) = request else { continue };
            if request.private_data.strip_prefix(MAGIC).is_some_and(|cookie| self.secret.admits(cookie)) {
                return self.establish(config, request).map(Some);
            }
            // The stranger may have gone already.
            drop(request.reject(b"no test of this cookie"));
        }
        let advice = firewall_advice("TCP");
        let message = format!("no queue pair connected within {} s; {advice}", CLIENT_TIMEOUT.as_secs());
        Err(Failure::new(FailureKind::Connection, message))
    }

    fn establish(
        self,
        config: &OverlapConfig,
        request: Incoming,
    ) -> Result<(Iwarp, OverlapSideSettings), Failure> {
        let mut data = Iwarp::new(self.rnic, config)?;
        post_first(&mut data)?;
        let established = data.queue_pair.accept(request, &AcceptOptions::default());
        let established = established
            .map_err(|error| Failure::new(FailureKind::Connection, format!("queue pair: {error}")))?;
        Ok((data, settings(&established)))
    }
}

/// A queue pair gets its first receives before it is connected.
fn post_first(data: &mut Iwarp) -> Result<(), Failure> {
    data.top_up().map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))
}

impl Iwarp {
    /// Client side: connects, with the cookie in the private data.
    pub(crate) fn connect(
        config: &OverlapConfig,
        server: SocketAddr,
        secret: Secret,
    ) -> Result<(Self, OverlapSideSettings), Failure> {
        let mut data = Self::new(open(config.progress)?, config)?;
        post_first(&mut data)?;
        let options = ConnectOptions {
            private_data: private_data(secret),
            // Polling: the server, which accepts, sends first.
            peer_to_peer: true,
            // The server is this program, which reads data right after its reply.
            settle: Some(Duration::ZERO),
            ..ConnectOptions::default()
        };
        let established = data.queue_pair.connect(server, &options).map_err(|error| {
            Failure::new(FailureKind::Connection, format!("no queue pair connected to {server}: {error}"))
        })?;
        Ok((data, settings(&established)))
    }

    fn new(rnic: Rnic, config: &OverlapConfig) -> Result<Self, Failure> {
        let counts = Counts::new(config.window);
        let size = u32::try_from(config.size.0).unwrap_or(u32::MAX);
        let depth = 2 * config.window + SPARE_DEPTH;
        let domain = ProtectionDomain::new(&rnic);
        let region = |slots: usize| {
            Region::new(&domain, slots * size as usize, Access::LOCAL_WRITE).map_err(|error| {
                Failure::new(FailureKind::Unsupported, format!("memory for the messages: {error}"))
            })
        };
        let (source, sink) = (region(counts.send_slots())?, region(counts.receive_slots())?);
        let completions =
            CompletionQueue::new(&rnic, 2 * depth, 0, None).map_err(|error| of_verbs(&error))?;
        let mut options = QueuePairOptions::new(&completions);
        (options.send_depth, options.receive_depth) = (depth, depth);
        let queue_pair = QueuePair::new(&domain, &options).map_err(|error| of_verbs(&error))?;
        let scratch = if config.verify { vec![0; size as usize] } else { Vec::new() };
        let verifies = config.verify;
        Ok(Self { rnic, completions, queue_pair, source, sink, counts, size, verifies, scratch })
    }

    fn count(&mut self, completion: &Completion) -> Result<(), EngineError> {
        if completion.status != Status::Success {
            return Err(self.lost(completion.status));
        }
        match completion.completed {
            Completed::Receive if completion.bytes != self.size => {
                Err(EngineError::OtherSize { found: completion.bytes.into(), expected: self.size.into() })
            }
            Completed::Receive => {
                self.counts.received += 1;
                Ok(())
            }
            _ => {
                self.counts.sent += 1;
                Ok(())
            }
        }
    }

    /// Determines the cause of failed requests from the asynchronous events.
    fn lost(&self, status: Status) -> EngineError {
        let mut closed_by_peer = status == Status::Flushed;
        let mut reason = match status {
            Status::Flushed => "the peer closed it".to_owned(),
            status => format!("a request ended with {status:?}"),
        };
        while let Some(event) = self.rnic.events().next(Some(Duration::ZERO)) {
            match event {
                AsyncEvent::TerminateReceived { terminate, .. } => {
                    closed_by_peer = false;
                    reason = format!("the peer detected an error: {:?}", terminate.error);
                }
                AsyncEvent::TerminateSent { terminate, .. } => {
                    closed_by_peer = false;
                    reason = format!("the peer violated the protocol: {:?}", terminate.error);
                }
                AsyncEvent::Disconnected { failure: Some(failure), .. } => reason = failure.to_string(),
                _ => {}
            }
        }
        EngineError::QueuePair { reason, closed_by_peer }
    }

    fn rejected(error: impl ToString) -> EngineError {
        EngineError::QueuePair { reason: error.to_string(), closed_by_peer: true }
    }
}

impl Transport for Iwarp {
    fn top_up(&mut self) -> Result<(), EngineError> {
        while let Some(number) = self.counts.next_receive() {
            let offset = self.counts.receive_slot(number) * self.size as usize;
            let segments = [self.sink.segment(offset, self.size)].into_iter().collect();
            let request = ReceiveRequest { id: number, segments };
            self.queue_pair.post_receive(request).map_err(Self::rejected)?;
            self.counts.receives_posted += 1;
        }
        Ok(())
    }

    fn post_send(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        let number = self.counts.sends_posted;
        let offset = self.counts.send_slot(number) * self.size as usize;
        traffic.fill(&mut self.scratch);
        if self.verifies {
            self.source.write(offset, &self.scratch);
        }
        let data = Data::Gather([self.source.segment(offset, self.size)].into_iter().collect());
        let operation = Operation::Send { data, solicited: false, invalidate: None };
        let request = SendRequest { id: number, operation, signaled: true, fence: false };
        self.queue_pair.post_send(request).map_err(Self::rejected)?;
        self.counts.sends_posted += 1;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, EngineError> {
        let mut batch = [Completion::EMPTY; BATCH];
        let mut moved = false;
        loop {
            let polled = self.completions.poll(&mut batch);
            let count = polled.map_err(|error| EngineError::QueuePair {
                reason: error.to_string(),
                closed_by_peer: false,
            })?;
            for completion in &batch[..count] {
                self.count(completion)?;
            }
            if count == 0 {
                return Ok(moved);
            }
            moved = true;
        }
    }

    fn arrived(&self) -> u64 {
        self.counts.received - self.counts.taken
    }

    fn sending(&self) -> u64 {
        self.counts.sends_posted - self.counts.sent
    }

    fn take(&mut self, traffic: &mut Traffic) -> Result<(), EngineError> {
        let offset = self.counts.receive_slot(self.counts.taken) * self.size as usize;
        self.counts.taken += 1;
        if self.verifies {
            self.sink.read(offset, &mut self.scratch);
        }
        Ok(traffic.check(&self.scratch)?)
    }
}
