//! Server of rping's protocol, for one connection.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{AcceptOptions, Access, Incoming, Region},
    work::{Completed, Data, Operation, ReceiveRequest, Remote, Segment, SendRequest},
};
use clearstream_schema::rdma::PING_MOST_BYTES;

use super::{ADVERT_BYTES, Advert, echo_length, text};
use crate::{
    blocking::{BlockingQueuePair, Wait},
    error::RdmaError,
    silence::{FIRST_MESSAGE_LIMIT, IDLE_LIMIT},
};

/// Maximum wait for a client's next step within a round.
const STEP_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum wait for the graceful close of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Options for serving a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingOptions {
    /// Maximum ping size.
    pub largest_bytes: u32,
    /// Whether to compare received texts with rping's.
    pub verify: bool,
    /// Number of rounds after which to end.
    pub rounds: Option<u64>,
}

impl Default for PingOptions {
    fn default() -> Self {
        Self { largest_bytes: PING_MOST_BYTES as u32, verify: false, rounds: None }
    }
}

/// Result of serving a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Number of rounds.
    pub rounds: u64,
    /// Size of the largest ping.
    pub largest_bytes: u32,
    /// Rounds whose text differed from rping's.
    pub mismatches: u64,
}

/// Serves one client until it disconnects; `each` is called with every text
/// that was read.
///
/// # Errors
/// A client that is no rping, or a connection lost within a round.
pub(crate) fn serve(
    request: Incoming,
    options: PingOptions,
    stop: &AtomicBool,
    mut each: impl FnMut(&[u8]),
) -> Result<Served, RdmaError> {
    let mut server = Server::accept(request, options)?;
    let mut served = Served::default();
    while options.rounds.is_none_or(|rounds| served.rounds < rounds) {
        let limit = if served.rounds == 0 { FIRST_MESSAGE_LIMIT } else { IDLE_LIMIT };
        let Some(advert) = server.advert(limit, true, stop)? else { break };
        let read = server.round(advert, stop)?;
        each(&read);
        served.mismatches += u64::from(options.verify && read != text(served.rounds, read.len()));
        served.largest_bytes = served.largest_bytes.max(advert.length);
        served.rounds += 1;
    }
    server.queue_pair.close(CLOSE_TIMEOUT);
    Ok(served)
}

struct Server {
    queue_pair: BlockingQueuePair,
    peer: SocketAddr,
    /// Region that texts are read into.
    texts: Region,
    /// Region that receives adverts.
    adverts: Region,
    largest_bytes: u32,
}

impl Server {
    fn accept(request: Incoming, options: PingOptions) -> Result<Self, RdmaError> {
        let queue_pair = BlockingQueuePair::open()?;
        let domain = queue_pair.domain();
        let mut server = Self {
            peer: request.peer,
            texts: Region::new(domain, options.largest_bytes as usize, Access::LOCAL_WRITE)?,
            adverts: Region::new(domain, ADVERT_BYTES, Access::LOCAL_WRITE)?,
            largest_bytes: options.largest_bytes,
            queue_pair,
        };
        server.post_receive()?;
        server.queue_pair.accept(request, &AcceptOptions::default())?;
        Ok(server)
    }

    /// Performs one round, from the client's first advert on; returns the text.
    fn round(&mut self, advert: Advert, stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        if advert.length > self.largest_bytes {
            return Err(self.other_peer(format!(
                "it offers {} bytes and this server accepts {} (--size)",
                advert.length, self.largest_bytes
            )));
        }
        let remote = Remote { stag: advert.stag, address: advert.address };
        let sink = self.segment(advert.length);
        self.post(Operation::Read { sink, remote, invalidate: false })?;
        self.wait_for(Completed::Read, stop)?;
        let text = self.texts.to_vec(0, advert.length as usize);
        self.go_ahead()?;

        let Some(advert) = self.advert(STEP_TIMEOUT, false, stop)? else {
            return Err(self.queue_pair.lost("it left in the middle of a round"));
        };
        let length = echo_length(&text);
        if length > advert.length as usize {
            return Err(
                self.other_peer(format!("it wants an echo of {length} bytes in memory of {}", advert.length))
            );
        }
        let data = Data::Gather([self.segment(length as u32)].into_iter().collect());
        let remote = Remote { stag: advert.stag, address: advert.address };
        self.post(Operation::Write { data, remote })?;
        self.wait_for(Completed::Write, stop)?;
        self.go_ahead()?;
        Ok(text)
    }

    /// Returns the client's next advert; `None` when it disconnected where it
    /// may, between rounds.
    fn advert(
        &mut self,
        timeout: Duration,
        may_end: bool,
        stop: &AtomicBool,
    ) -> Result<Option<Advert>, RdmaError> {
        loop {
            match self.queue_pair.wait(Some(timeout), stop)? {
                Wait::Completed(done) if done.completed == Completed::Receive => {
                    if done.bytes as usize != ADVERT_BYTES {
                        return Err(self.other_peer(format!("it sent {} bytes for an advert", done.bytes)));
                    }
                    let mut bytes = [0; ADVERT_BYTES];
                    self.adverts.read(0, &mut bytes);
                    self.post_receive()?;
                    return Ok(Some(Advert::decode(bytes)));
                }
                Wait::Completed(_) => {}
                Wait::Closed(closure) if may_end && closure.graceful => return Ok(None),
                Wait::Closed(closure) => return Err(self.queue_pair.lost(closure.reason)),
                Wait::TimedOut => return Err(RdmaError::Silent { peer: self.peer, after: timeout }),
            }
        }
    }

    /// Waits for the completion of the server's own work request.
    fn wait_for(&self, expected: Completed, stop: &AtomicBool) -> Result<(), RdmaError> {
        loop {
            match self.queue_pair.wait(Some(STEP_TIMEOUT), stop)? {
                Wait::Completed(done) if done.completed == expected => return Ok(()),
                Wait::Completed(done) if done.completed == Completed::Receive => {
                    return Err(self.other_peer("it did not wait for the go-ahead".to_owned()));
                }
                Wait::Completed(_) => {}
                Wait::Closed(closure) => return Err(self.queue_pair.lost(closure.reason)),
                Wait::TimedOut => return Err(self.timed_out()),
            }
        }
    }

    fn go_ahead(&self) -> Result<(), RdmaError> {
        let data = Data::Inline([0; ADVERT_BYTES].into_iter().collect());
        self.post(Operation::Send { data, solicited: false, invalidate: None })
    }

    fn post(&self, operation: Operation) -> Result<(), RdmaError> {
        self.queue_pair.send(SendRequest { id: 0, operation, signaled: true, fence: false })
    }

    fn segment(&self, length: u32) -> Segment {
        self.texts.segment(0, length)
    }

    fn post_receive(&self) -> Result<(), RdmaError> {
        let segment = self.adverts.segment(0, ADVERT_BYTES as u32);
        self.queue_pair.receive(ReceiveRequest { id: 1, segments: [segment].into_iter().collect() })
    }

    fn timed_out(&self) -> RdmaError {
        let seconds = STEP_TIMEOUT.as_secs();
        self.queue_pair.lost(format!("timeout of {seconds} s in the middle of a round"))
    }

    fn other_peer(&self, seen: String) -> RdmaError {
        RdmaError::OtherPeer { peer: self.peer, expected: "rping's client", seen }
    }
}
