//! Client of rping's protocol, for one connection.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    verbs::{Access, ConnectOptions, Region},
    work::{Completed, Data, Operation, ReceiveRequest, SendRequest},
};
use clearstream_schema::rdma::{PingConfig, PingSummary};

use super::{ADVERT_BYTES, Advert, check_size, text};
use crate::{
    blocking::{BlockingQueuePair, STOP_POLL_INTERVAL, Wait},
    error::RdmaError,
    negotiation::{ConnectionPurpose, ConnectionRequest, Cookie},
    samples::{Samples, nanoseconds},
};

/// Maximum wait for each go-ahead of the server.
const GO_AHEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum wait for the graceful close of the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of one round.
#[derive(Debug)]
pub struct Round {
    /// Time from the first advert to the last go-ahead.
    pub time: Duration,
    /// The echoed text.
    pub echo: Vec<u8>,
    /// Whether the echo equals the sent text.
    pub is_same: bool,
}

/// Pings until all rounds are done or the stop flag is set; `cookie` is for a
/// server of this crate that expects one. `each` is called with the number of
/// every round and its result.
///
/// # Errors
/// An unsupported size, no connection, a peer that is no rping server, a lost
/// connection.
pub fn ping(
    peer: SocketAddr,
    cookie: Option<Cookie>,
    config: &PingConfig,
    stop: &AtomicBool,
    mut each: impl FnMut(u64, &Round),
) -> Result<PingSummary, RdmaError> {
    check(config)?;
    let mut ping = Ping::new(config.size_bytes() as usize)?;
    let start = Instant::now();
    let established = ping.queue_pair.connect(peer, &connect_options(config, cookie), stop)?.clone();
    let connect_ns = nanoseconds(start.elapsed());

    let mut samples = Samples::default();
    let (mut mismatches, mut made) = (0, 0);
    let begun = Instant::now();
    while config.rounds().is_none_or(|count| made < count) {
        if let Some(interval) = config.interval
            && !sleep_until(begun + interval.to_std() * u32::try_from(made).unwrap_or(u32::MAX), stop)
        {
            break;
        }
        let round = match ping.round(made, stop) {
            Err(RdmaError::Stopped) => break,
            round => round?,
        };
        samples.add(round.time);
        mismatches += u64::from(!round.is_same);
        each(made, &round);
        made += 1;
    }
    ping.queue_pair.close(CLOSE_TIMEOUT);
    Ok(PingSummary {
        requested: config.clone(),
        near: established.local,
        far: established.peer,
        revision: established.revision,
        crc: established.crc,
        connect_ns,
        round_count: made,
        mismatch_count: config.verify.then_some(mismatches),
        round: samples.latency(),
        complete: config.rounds().is_none_or(|count| made == count),
    })
}

fn check(config: &PingConfig) -> Result<(), RdmaError> {
    check_size(config.size_bytes())?;
    if !(1..=2).contains(&config.revision) {
        return Err(RdmaError::Option(format!("MPA revision {}: choose 1 or 2", config.revision)));
    }
    Ok(())
}

/// Returns rping's connect options: one outstanding Read in each direction.
fn connect_options(config: &PingConfig, cookie: Option<Cookie>) -> ConnectOptions {
    let request = |cookie| ConnectionRequest { cookie, purpose: ConnectionPurpose::Ping, immediate: false };
    ConnectOptions {
        ird: 1,
        ord: 1,
        crc: !config.no_crc,
        revision: config.revision,
        private_data: cookie.map(|cookie| request(cookie).encode()).unwrap_or_default(),
        ..ConnectOptions::default()
    }
}

/// Sleeps until a deadline; false when the stop flag is set before.
fn sleep_until(deadline: Instant, stop: &AtomicBool) -> bool {
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(STOP_POLL_INTERVAL));
    }
}

/// Client state.
#[derive(Debug)]
struct Ping {
    queue_pair: BlockingQueuePair,
    /// Region read by the server.
    source: Region,
    /// Region written by the server.
    sink: Region,
    /// Region that receives go-aheads.
    go_aheads: Region,
    size: usize,
}

impl Ping {
    fn new(size: usize) -> Result<Self, RdmaError> {
        let queue_pair = BlockingQueuePair::open()?;
        let domain = queue_pair.domain();
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let ping = Self {
            source: Region::new(domain, size, Access::REMOTE_READ)?,
            sink: Region::new(domain, size, access)?,
            go_aheads: Region::new(domain, ADVERT_BYTES, Access::LOCAL_WRITE)?,
            size,
            queue_pair,
        };
        ping.post_receive()?;
        Ok(ping)
    }

    fn round(&mut self, number: u64, stop: &AtomicBool) -> Result<Round, RdmaError> {
        let text = text(number, self.size);
        self.source.write(0, &text);
        let start = Instant::now();
        self.advertise(&self.source)?;
        self.wait_for_go_ahead(stop)?;
        self.advertise(&self.sink)?;
        self.wait_for_go_ahead(stop)?;
        let time = start.elapsed();
        let echo = self.sink.to_vec(0, self.size);
        Ok(Round { time, is_same: echo == text, echo })
    }

    fn advertise(&self, memory: &Region) -> Result<(), RdmaError> {
        let advert = Advert {
            address: memory.address(),
            stag: memory.stag(),
            length: u32::try_from(self.size).unwrap_or(u32::MAX),
        };
        let data = Data::Inline(advert.encode().into_iter().collect());
        self.queue_pair.send(SendRequest {
            id: 0,
            operation: Operation::Send { data, solicited: false, invalidate: None },
            signaled: true,
            fence: false,
        })
    }

    /// Waits for the server's go-ahead, and posts the receive for the next one.
    fn wait_for_go_ahead(&self, stop: &AtomicBool) -> Result<(), RdmaError> {
        loop {
            match self.queue_pair.wait(Some(GO_AHEAD_TIMEOUT), stop)? {
                Wait::Completed(done) if done.completed == Completed::Receive => {
                    if done.bytes as usize != ADVERT_BYTES {
                        return Err(self.other_peer(format!("it sent {} bytes for a go-ahead", done.bytes)));
                    }
                    return self.post_receive();
                }
                Wait::Completed(_) => {}
                Wait::Closed(closure) => return Err(self.queue_pair.lost(closure.reason)),
                Wait::TimedOut => {
                    let seconds = GO_AHEAD_TIMEOUT.as_secs();
                    return Err(self.other_peer(format!("it sent no go-ahead for {seconds} s")));
                }
            }
        }
    }

    fn post_receive(&self) -> Result<(), RdmaError> {
        let segment = self.go_aheads.segment(0, ADVERT_BYTES as u32);
        self.queue_pair.receive(ReceiveRequest { id: 1, segments: [segment].into_iter().collect() })
    }

    fn other_peer(&self, seen: String) -> RdmaError {
        RdmaError::OtherPeer { peer: self.queue_pair.peer(), expected: "rping's server", seen }
    }
}
