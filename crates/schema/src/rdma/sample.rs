//! Parts of a measurement while it runs.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{Metric, Unit};

/// Messages that the client sent, wrote or read in a part of a run. They count when
/// they are complete at the receiver; bytes still in transit belong to them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RdmaSample {
    /// Bytes of a message.
    pub size_bytes: u64,
    /// Part of the warm-up, which does not count.
    pub warm_up: bool,
    /// Begin, since the begin of the run of this size.
    pub start_ns: u64,
    /// End, since the begin of the run of this size.
    pub end_ns: u64,
    /// Messages that were completed meanwhile: of a latency test, the rounds.
    pub message_count: u64,
    /// `message_count * size * 8` over the time.
    pub goodput_bps: f64,
    /// `message_count` over the time.
    pub messages_per_second: f64,
    /// Mean latency: half a round of Send and Write, all of a Read. Absent in a
    /// bandwidth test, and when nothing was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_mean_ns: Option<f64>,
}

impl RdmaSample {
    /// The headline of a test of this kind, in this part: of messages of 0 bytes
    /// their rate.
    #[must_use]
    pub fn headline(&self, latency: bool) -> Option<Metric> {
        match (self.warm_up, latency) {
            (true, _) => None,
            (false, true) => Some(Metric::lower("latency", Unit::Nanoseconds, self.latency_mean_ns?)),
            (false, false) if self.size_bytes == 0 => {
                Some(Metric::higher("message-rate", Unit::PerSecond, self.messages_per_second))
            }
            (false, false) => Some(Metric::higher("bandwidth", Unit::BitsPerSecond, self.goodput_bps)),
        }
    }
}
