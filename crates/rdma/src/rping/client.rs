//! The client's part of rping's exchange, for one connection.

use std::{
    net::SocketAddr,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{Access, ConnectOptions, ProtectionDomain, Region, Rnic, RnicOptions},
    work::{Completed, Data, Operation, ReceiveRequest, SendRequest},
};
use clearstream_schema::rdma::{PING_LEAST_BYTES, PING_MOST_BYTES, PingConfig, PingSummary};

use crate::{
    blocking::{Waited, Wire},
    error::RdmaError,
    negotiation::{Carries, Cookie, Opening},
    rping::{self, ADVERT_BYTES, Advert},
    samples::{Samples, nanoseconds},
};

/// How long a server may take for each of its steps.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the connection may take to end.
const FAREWELL: Duration = Duration::from_secs(2);

/// A connected client.
#[derive(Debug)]
pub struct Ping {
    wire: Wire,
    /// What the server reads.
    source: Region,
    /// Where the server writes.
    sink: Region,
    /// Go-aheads arrive here.
    answers: Region,
    size: usize,
}

/// One round.
#[derive(Debug)]
pub struct Round {
    /// From the first advert to the last go-ahead.
    pub time: Duration,
    /// What came back.
    pub echo: Vec<u8>,
    /// It is what was sent.
    pub same: bool,
}

/// Pings until all rounds are made or `stop` is raised; `cookie` is for a server of
/// ours that expects one. `each` sees every
/// round and its number.
///
/// # Errors
/// A size that rping does not have, no connection, a peer that does not speak
/// as rping's server does, a connection that breaks.
pub fn run(
    peer: SocketAddr,
    cookie: Option<Cookie>,
    config: &PingConfig,
    stop: &AtomicBool,
    mut each: impl FnMut(u64, &Round),
) -> Result<PingSummary, RdmaError> {
    let size = checked_size(config)?;
    let rnic = Rnic::open(RnicOptions::default())?;
    let domain = ProtectionDomain::new(&rnic);
    let mut ping = Ping::new(&domain, size)?;
    let start = Instant::now();
    // As rping asks: one Read either way.
    let options = ConnectOptions {
        ird: 1,
        ord: 1,
        crc: !config.no_crc,
        revision: config.revision,
        private_data: cookie
            .map(|cookie| Opening { cookie, carries: Carries::Pings }.encode())
            .unwrap_or_default(),
        ..ConnectOptions::default()
    };
    let agreed = ping.wire.connect(peer, &options, stop)?.clone();
    let connect_ns = nanoseconds(start.elapsed());

    let mut samples = Samples::default();
    let (mut mismatches, mut made) = (0, 0);
    let begun = Instant::now();
    while config.rounds().is_none_or(|count| made < count) {
        if let Some(interval) = config.interval
            && !rest_until(begun + interval.to_std() * u32::try_from(made).unwrap_or(u32::MAX), stop)
        {
            break;
        }
        let round = match ping.round(made, stop) {
            Err(RdmaError::Stopped) => break,
            round => round?,
        };
        samples.add(round.time);
        mismatches += u64::from(!round.same);
        each(made, &round);
        made += 1;
    }
    ping.wire.close(FAREWELL);
    Ok(PingSummary {
        requested: config.clone(),
        near: agreed.local,
        far: agreed.peer,
        revision: agreed.revision,
        crc: agreed.crc,
        connect_ns,
        round_count: made,
        mismatch_count: config.verify.then_some(mismatches),
        round: samples.latency(),
        complete: config.rounds().is_none_or(|count| made == count),
    })
}

fn checked_size(config: &PingConfig) -> Result<usize, RdmaError> {
    let size = config.size_bytes();
    if !(PING_LEAST_BYTES..=PING_MOST_BYTES).contains(&size) {
        return Err(RdmaError::Option(format!(
            "a ping of {size} bytes: rping takes {PING_LEAST_BYTES} to {PING_MOST_BYTES}"
        )));
    }
    if !(1..=2).contains(&config.revision) {
        return Err(RdmaError::Option(format!("MPA revision {}: choose 1 or 2", config.revision)));
    }
    Ok(size as usize)
}

/// Sleeps until then; false when `stop` was raised meanwhile.
fn rest_until(end: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(Duration::from_millis(50)));
    }
}

impl Ping {
    fn new(domain: &ProtectionDomain, size: usize) -> Result<Self, RdmaError> {
        let shown = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let ping = Self {
            wire: Wire::new(domain)?,
            source: Region::new(domain, size, Access::REMOTE_READ)?,
            sink: Region::new(domain, size, shown)?,
            answers: Region::new(domain, ADVERT_BYTES, Access::LOCAL_WRITE)?,
            size,
        };
        ping.expect_answer()?;
        Ok(ping)
    }

    fn round(&mut self, number: u64, stop: &AtomicBool) -> Result<Round, RdmaError> {
        let text = rping::text(number, self.size);
        self.source.write(0, &text);
        let start = Instant::now();
        self.advertise(&self.source)?;
        self.go_ahead(stop)?;
        self.advertise(&self.sink)?;
        self.go_ahead(stop)?;
        let time = start.elapsed();
        let echo = self.sink.to_vec(0, self.size);
        Ok(Round { time, same: echo == text, echo })
    }

    fn advertise(&self, memory: &Region) -> Result<(), RdmaError> {
        let advert = Advert {
            address: memory.address(),
            stag: memory.stag(),
            length: u32::try_from(self.size).unwrap_or(u32::MAX),
        };
        let data = Data::Inline(advert.encode().into_iter().collect());
        self.wire.send(SendRequest {
            id: 0,
            operation: Operation::Send { data, solicited: false, invalidate: None },
            signaled: true,
            fence: false,
        })
    }

    /// Waits for the server's go-ahead, and makes room for the next one.
    fn go_ahead(&self, stop: &AtomicBool) -> Result<(), RdmaError> {
        loop {
            match self.wire.wait(Some(PATIENCE), stop)? {
                Waited::Done(done) if done.completed == Completed::Receive => {
                    if done.bytes as usize != ADVERT_BYTES {
                        return Err(self.other_peer(format!("it sent {} bytes for a go-ahead", done.bytes)));
                    }
                    return self.expect_answer();
                }
                Waited::Done(_) => {}
                Waited::Over(ending) => return Err(self.wire.lost(ending.reason)),
                Waited::Late => {
                    let seconds = PATIENCE.as_secs();
                    return Err(self.other_peer(format!("it sent no go-ahead for {seconds} s")));
                }
            }
        }
    }

    fn expect_answer(&self) -> Result<(), RdmaError> {
        let segment = self.answers.segment(0, ADVERT_BYTES as u32);
        self.wire.receive(ReceiveRequest { id: 1, segments: [segment].into_iter().collect() })
    }

    fn other_peer(&self, seen: String) -> RdmaError {
        RdmaError::OtherPeer { peer: self.wire.peer(), expected: "rping's server", seen }
    }
}
