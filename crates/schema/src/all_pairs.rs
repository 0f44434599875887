//! Results of flows between all pairs of a set of hosts.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::outcome::{MetricKind, Outcome, Unit};

/// Name of the format.
pub const ALL_PAIRS_SCHEMA: &str = "clearstream.all-pairs";

/// One flow test after the other, or those of disjoint pairs at the same time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AllPairsSummary {
    /// Tests that ran at the same time, in the order of the run.
    pub rounds: Vec<Vec<PairGoodput>>,
    /// Pairs without a result, as where no route leads from the one to the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed_pairs: Vec<FailedPair>,
    /// Every ordered pair was measured to its end.
    pub complete: bool,
}

/// A flow that could not be measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FailedPair {
    /// Name of the host that would have sent.
    pub from: String,
    /// Name of the host that would have received.
    pub to: String,
    /// Why not.
    pub message: String,
}

/// A flow from one host to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PairGoodput {
    /// Name of the host that sent.
    pub from: String,
    /// Name of the host that received.
    pub to: String,
    /// Bits per second that arrived in the receiving program.
    pub goodput_bps: f64,
    /// Segments retransmitted; absent when not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmit_count: Option<u64>,
    /// Median smoothed round-trip time; absent when not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
}

impl AllPairsSummary {
    /// Metrics that a trial can have, the headline first: median, slowest and fastest
    /// pair, and the mean sum of a round.
    pub const METRICS: [MetricKind; 4] = [
        MetricKind::higher("pair-goodput", Unit::BitsPerSecond),
        MetricKind::higher("pair-goodput-min", Unit::BitsPerSecond),
        MetricKind::higher("pair-goodput-max", Unit::BitsPerSecond),
        MetricKind::higher("round-goodput", Unit::BitsPerSecond),
    ];

    /// All pairs, the slowest first.
    pub fn by_goodput(&self) -> Vec<&PairGoodput> {
        let mut pairs: Vec<&PairGoodput> = self.rounds.iter().flatten().collect();
        pairs.sort_by(|one, other| one.goodput_bps.total_cmp(&other.goodput_bps));
        pairs
    }

    /// Metrics of it, the median of the pairs first.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let pairs = self.by_goodput();
        let (Some(slowest), Some(fastest)) = (pairs.first(), pairs.last()) else {
            return Ok(Outcome { complete: false, ..Outcome::default() });
        };
        let at = |place: usize| pairs.get(place).map_or(0.0, |pair| pair.goodput_bps);
        let middle = (at((pairs.len() - 1) / 2) + at(pairs.len() / 2)) / 2.0;
        let sums = self.rounds.iter().map(|round| round.iter().map(|pair| pair.goodput_bps).sum::<f64>());
        let mean = sums.sum::<f64>() / self.rounds.len() as f64;
        let values = [middle, slowest.goodput_bps, fastest.goodput_bps, mean];
        let metrics = Self::METRICS.iter().zip(values).map(|(kind, value)| kind.of(value));
        let outcome = Outcome::of(metrics);
        let outcome = Outcome { complete: self.complete, ..outcome };
        outcome.with_detail(ALL_PAIRS_SCHEMA, 1, self)
    }
}
