//! The server's part of rping's exchange, for one connection.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use clearstream_iwarp::{
    verbs::{AcceptOptions, Access, Incoming, ProtectionDomain, Region},
    work::{Completed, Completion, Data, Operation, ReceiveRequest, Remote, Segment, SendRequest},
};

use clearstream_schema::rdma::PING_MOST_BYTES;

use crate::{
    blocking::{Waited, Wire},
    error::RdmaError,
    rping::{self, ADVERT_BYTES, Advert},
};

/// How long a client may take within a round.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the connection may take to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a client is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PingService {
    /// Bytes of the largest ping that is taken.
    pub largest: u32,
    /// Compare what was read with what rping sends.
    pub verify: bool,
    /// End after this many rounds.
    pub rounds: Option<u64>,
}

impl Default for PingService {
    fn default() -> Self {
        Self { largest: PING_MOST_BYTES as u32, verify: false, rounds: None }
    }
}

/// What was done for a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// Rounds.
    pub rounds: u64,
    /// Bytes of the largest ping.
    pub largest: u32,
    /// Rounds whose text was not what rping sends.
    pub mismatches: u64,
}

/// Serves one client until it leaves; `each` sees every text that was read.
///
/// # Errors
/// A client that does not speak as rping does, or a connection that breaks in
/// the middle of a round.
pub fn serve(
    domain: &ProtectionDomain,
    request: Incoming,
    service: PingService,
    stop: &AtomicBool,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<Served, RdmaError> {
    let mut server = Server::accept(domain, request, service)?;
    let mut served = Served::default();
    while service.rounds.is_none_or(|rounds| served.rounds < rounds) {
        let Some(advert) = server.advert(None, stop)? else { break };
        let text = server.round(advert, stop)?;
        each(served.rounds, &text);
        let as_sent = rping::text(served.rounds, text.len());
        served.mismatches += u64::from(service.verify && text != as_sent);
        served.largest = served.largest.max(advert.length);
        served.rounds += 1;
    }
    server.wire.close(FAREWELL);
    Ok(served)
}

struct Server {
    wire: Wire,
    peer: SocketAddr,
    /// Texts.
    memory: Region,
    /// Adverts.
    adverts: Region,
    largest: u32,
}

impl Server {
    fn accept(domain: &ProtectionDomain, request: Incoming, service: PingService) -> Result<Self, RdmaError> {
        let mut server = Self {
            wire: Wire::new(domain)?,
            peer: request.peer,
            memory: Region::new(domain, service.largest as usize, Access::LOCAL_WRITE)?,
            adverts: Region::new(domain, ADVERT_BYTES, Access::LOCAL_WRITE)?,
            largest: service.largest,
        };
        server.expect_advert()?;
        server.wire.accept(request, &AcceptOptions::default())?;
        Ok(server)
    }

    /// One round, from the client's first advert on: what was read.
    fn round(&mut self, advert: Advert, stop: &AtomicBool) -> Result<Vec<u8>, RdmaError> {
        if advert.length > self.largest {
            return Err(self.other_peer(format!(
                "it offers {} bytes and this server takes {} (--size)",
                advert.length, self.largest
            )));
        }
        let place = Remote { stag: advert.stag, address: advert.address };
        let sink = self.segment(advert.length);
        self.post(Operation::Read { sink, remote: place, invalidate: false })?;
        self.done(Completed::Read, stop)?;
        let text = self.memory.to_vec(0, advert.length as usize);
        self.go_ahead()?;

        let Some(advert) = self.advert(Some(PATIENCE), stop)? else {
            return Err(self.wire.lost("it left in the middle of a round"));
        };
        let length = rping::echo_length(&text);
        if length > advert.length as usize {
            return Err(self
                .other_peer(format!("it wants an echo of {length} bytes in a place of {}", advert.length)));
        }
        let data = Data::Gather([self.segment(length as u32)].into_iter().collect());
        let remote = Remote { stag: advert.stag, address: advert.address };
        self.post(Operation::Write { data, remote })?;
        self.done(Completed::Write, stop)?;
        self.go_ahead()?;
        Ok(text)
    }

    /// The client's next advert; `None` when it has left.
    fn advert(&mut self, limit: Option<Duration>, stop: &AtomicBool) -> Result<Option<Advert>, RdmaError> {
        loop {
            match self.wire.wait(limit, stop)? {
                Waited::Done(done) if done.completed == Completed::Receive => {
                    if done.bytes as usize != ADVERT_BYTES {
                        return Err(self.other_peer(format!("it sent {} bytes for an advert", done.bytes)));
                    }
                    let mut bytes = [0; ADVERT_BYTES];
                    self.adverts.read(0, &mut bytes);
                    self.expect_advert()?;
                    return Ok(Some(Advert::decode(bytes)));
                }
                Waited::Done(_) => {}
                Waited::Over(ending) if limit.is_none() && ending.orderly => return Ok(None),
                Waited::Over(ending) => return Err(self.wire.lost(ending.reason)),
                Waited::Late => return Err(self.silent()),
            }
        }
    }

    /// Waits for our own request's end.
    fn done(&self, wanted: Completed, stop: &AtomicBool) -> Result<Completion, RdmaError> {
        loop {
            match self.wire.wait(Some(PATIENCE), stop)? {
                Waited::Done(done) if done.completed == wanted => return Ok(done),
                Waited::Done(done) if done.completed == Completed::Receive => {
                    return Err(self.other_peer("it did not wait for the go-ahead".to_owned()));
                }
                Waited::Done(_) => {}
                Waited::Over(ending) => return Err(self.wire.lost(ending.reason)),
                Waited::Late => return Err(self.silent()),
            }
        }
    }

    fn go_ahead(&self) -> Result<(), RdmaError> {
        let data = Data::Inline([0; ADVERT_BYTES].into_iter().collect());
        self.post(Operation::Send { data, solicited: false, invalidate: None })
    }

    fn post(&self, operation: Operation) -> Result<(), RdmaError> {
        self.wire.send(SendRequest { id: 0, operation, signaled: true, fence: false })
    }

    fn segment(&self, length: u32) -> Segment {
        self.memory.segment(0, length)
    }

    fn expect_advert(&self) -> Result<(), RdmaError> {
        let segment = self.adverts.segment(0, ADVERT_BYTES as u32);
        self.wire.receive(ReceiveRequest { id: 1, segments: [segment].into_iter().collect() })
    }

    fn silent(&self) -> RdmaError {
        self.wire.lost(format!("it is silent for {} s in the middle of a round", PATIENCE.as_secs()))
    }

    fn other_peer(&self, seen: String) -> RdmaError {
        RdmaError::OtherPeer { peer: self.peer, expected: "rping's client", seen }
    }
}
