//! What the rounds of a test measure: as many messages as pass, or one after
//! the other.

pub mod bandwidth;
pub mod latency;

use clearstream_schema::rdma::RdmaOperation;

use crate::{
    data_queue_pairs::{End, Lanes},
    generator::bandwidth::Traffic,
    generator::latency::PingPong,
    negotiation::Advert,
};

/// One end's part in the rounds of a test.
#[derive(Debug)]
pub enum Workload {
    /// How many messages pass.
    Bandwidth(Traffic),
    /// How long one takes.
    Latency(Box<PingPong>),
}

impl Workload {
    /// Before the first round.
    #[must_use]
    pub fn new(lanes: &Lanes, operation: RdmaOperation, far: Advert) -> Self {
        if lanes.config.latency {
            Self::Latency(Box::new(PingPong::new(lanes, operation, far)))
        } else {
            Self::Bandwidth(Traffic::new(lanes, operation, far))
        }
    }

    /// Begins a round with messages of this size.
    pub fn begin(&mut self, size: u64) {
        match self {
            Self::Bandwidth(traffic) => traffic.begin(size),
            Self::Latency(ping_pong) => ping_pong.begin(size),
        }
    }

    /// What was not as the other end sends it, once a round is over.
    pub fn mismatches(&mut self, lanes: &Lanes, end: End) -> u64 {
        if !lanes.config.verify {
            return 0;
        }
        match self {
            Self::Bandwidth(traffic) => {
                // Only the end that is written to has something to compare.
                if end == End::Far || lanes.config.both_ways {
                    traffic.compare_written(lanes);
                }
                traffic.mismatches
            }
            Self::Latency(ping_pong) => {
                ping_pong.compare_written(lanes);
                ping_pong.mismatches
            }
        }
    }
}
