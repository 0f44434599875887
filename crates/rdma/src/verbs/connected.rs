//! Timed calls on a connection.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{
        Access, CompletionChannel, Established, Notify, ProtectionDomain, Region, Rnic, State,
        raw::{CompletionQueue, QueuePair, ReceiveRequest, SendRequest},
    },
    work::{Completed, Completion, Data, Operation, Status},
};
use clearstream_schema::rdma::RdmaConfig;

use super::{
    DEPTH, PAGE_BYTES, SHORT_CALLS, Samples, VerbsCall, VerbsConfig, options, peer, receive_request, timed,
};
use crate::{
    blocking::{closure, overrun},
    client::check_server,
    data_queue_pairs::open_rnic,
    error::RdmaError,
    negotiation::{ConnectionPurpose, ConnectionRequest, Cookie, connect_options},
};

/// Maximum wait for a grant, a completion, or the end of a connection.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a graceful close polls the state of the queue pair.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Id of receives; ids of sends differ.
const GRANT_ID: u64 = 1;

/// Times a call that needs a peer.
///
/// # Errors
/// No connection, or a lost one.
pub(super) fn time(
    config: &VerbsConfig,
    server: SocketAddr,
    cookie: Cookie,
    samples: &mut Samples<'_>,
) -> Result<(), RdmaError> {
    let rnic = open_rnic(config.progress, config.core)?;
    if config.call == VerbsCall::Connect {
        while samples.are_needed() {
            let connection = Connection::idle(&rnic)?;
            let (connected, time) = timed(|| connection.connect(server, cookie));
            check_server(&connected?, &RdmaConfig::default())?;
            samples.add(time);
            connection.close();
        }
        return Ok(());
    }
    let mut connection = Connection::idle(&rnic)?;
    check_server(&connection.connect(server, cookie)?, &RdmaConfig::default())?;
    match config.call {
        VerbsCall::PostSend => connection.time_sends(config.size.0 as u32, samples)?,
        VerbsCall::PollEmpty => connection.time_empty_polls(samples)?,
        _ => connection.time_polls(samples)?,
    }
    connection.close();
    Ok(())
}

/// A queue pair with its own completion queue, and memory for messages.
struct Connection {
    rnic: Rnic,
    channel: CompletionChannel,
    completions: CompletionQueue,
    queue_pair: QueuePair,
    memory: Region,
    /// Number of Sends posted, of Sends completed, and of grants received.
    posted: u32,
    completed: u32,
    granted: u32,
}

impl Connection {
    /// Creates an idle connection, with receives for the peer's grants.
    fn idle(rnic: &Rnic) -> Result<Self, RdmaError> {
        let domain = ProtectionDomain::new(rnic);
        let channel = CompletionChannel::new()?;
        let completions = CompletionQueue::new(rnic, 4 * DEPTH, 0, Some(&channel))?;
        let queue_pair = QueuePair::new(&domain, &options(&completions))?;
        let memory = Region::new(&domain, PAGE_BYTES, Access::LOCAL_WRITE)?;
        let (posted, completed, granted) = (0, 0, 0);
        let rnic = rnic.clone();
        let connection = Self { rnic, channel, completions, queue_pair, memory, posted, completed, granted };
        for _ in 0..2 {
            connection.post_receive()?;
        }
        Ok(connection)
    }

    fn connect(&self, server: SocketAddr, cookie: Cookie) -> Result<Established, RdmaError> {
        let request = ConnectionRequest { cookie, purpose: ConnectionPurpose::Verbs, immediate: false };
        Ok(self.queue_pair.connect(server, &connect_options(&RdmaConfig::default(), request))?)
    }

    /// Times posting Sends, each of which completes before the next.
    fn time_sends(&mut self, size: u32, samples: &mut Samples<'_>) -> Result<(), RdmaError> {
        while samples.are_needed() {
            let request = self.send_request(size);
            let (posted, time) = timed(|| self.queue_pair.post_send(request));
            posted.map_err(|error| self.lost(&error.to_string()))?;
            self.posted += 1;
            samples.add(time);
            self.settle()?;
        }
        Ok(())
    }

    /// Times polling an empty queue.
    fn time_empty_polls(&self, samples: &mut Samples<'_>) -> Result<(), RdmaError> {
        samples.of_calls(SHORT_CALLS);
        let mut found = 0;
        while samples.are_needed() {
            let (polled, time) = timed(|| -> Result<(), RdmaError> {
                for _ in 0..SHORT_CALLS {
                    found += usize::from(self.completions.poll_one().map_err(overrun)?.is_some());
                }
                Ok(())
            });
            polled?;
            if found > 0 {
                return Err(self.lost("unexpected completion"));
            }
            samples.add(time);
        }
        Ok(())
    }

    /// Times polling after the notification of a completed Send.
    fn time_polls(&mut self, samples: &mut Samples<'_>) -> Result<(), RdmaError> {
        while samples.are_needed() {
            self.completions.arm(Notify::Next).map_err(overrun)?;
            let request = self.send_request(1);
            self.queue_pair.post_send(request).map_err(|error| self.lost(&error.to_string()))?;
            self.posted += 1;
            if self.channel.next(Some(STEP_TIMEOUT)).is_none() {
                return Err(self.lost("a Send is not complete"));
            }
            let (polled, time) = timed(|| self.completions.poll_one());
            // A notified queue may be empty: an earlier poll took the
            // completion.
            if let Some(completion) = polled.map_err(overrun)? {
                self.count(&completion)?;
                samples.add(time);
            }
            self.settle()?;
        }
        Ok(())
    }

    /// Waits until all posted Sends are complete and granted again.
    fn settle(&mut self) -> Result<(), RdmaError> {
        while self.completed < self.posted || self.granted < self.posted / peer::GRANT_INTERVAL {
            let completion = self.completions.wait(STEP_TIMEOUT).map_err(overrun)?;
            self.count(&completion.ok_or_else(|| self.lost("timeout"))?)?;
        }
        Ok(())
    }

    fn count(&mut self, completion: &Completion) -> Result<(), RdmaError> {
        self.check(completion)?;
        if completion.completed == Completed::ReceiveImmediate {
            self.granted += 1;
            return self.post_receive();
        }
        self.completed += 1;
        Ok(())
    }

    fn check(&self, completion: &Completion) -> Result<(), RdmaError> {
        match completion.status {
            Status::Success => Ok(()),
            status => Err(self.lost(&closure(&self.rnic, self.queue_pair.id(), status).reason)),
        }
    }

    fn send_request(&self, size: u32) -> SendRequest {
        let data = Data::Gather([self.memory.segment(0, size)].into_iter().collect());
        let operation = Operation::Send { data, solicited: false, invalidate: None };
        SendRequest { id: 0, operation, signaled: true, fence: false }
    }

    fn post_receive(&self) -> Result<(), RdmaError> {
        let request: ReceiveRequest = receive_request(&self.memory, GRANT_ID);
        self.queue_pair.post_receive(request).map_err(|error| self.lost(&error.to_string()))
    }

    fn lost(&self, reason: &str) -> RdmaError {
        let peer = crate::blocking::peer_of(self.queue_pair.query().established.as_ref());
        RdmaError::Lost { peer, reason: reason.to_owned() }
    }

    /// Closes gracefully, and waits until the peer has done the same, which
    /// bounds the number of connections that it serves at a time.
    fn close(self) {
        if self.queue_pair.modify(State::Closing).is_err() {
            return;
        }
        let since = Instant::now();
        while matches!(self.queue_pair.state(), State::Closing | State::Rts) && since.elapsed() < STEP_TIMEOUT
        {
            // Drives the close; completions are of flushed receives.
            let _ = self.completions.poll_one();
            std::thread::sleep(CLOSE_POLL_INTERVAL);
        }
    }
}
