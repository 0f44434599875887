//! Costs of verbs calls: what can be timed, and what comes back.

use clearstream_schema::{
    ByteCount, JsonSchema,
    notice::Notice,
    outcome::{Axis, MetricKind, Outcome, Series, Unit},
    rdma::RdmaProgress,
};
use clearstream_stats::nearest_rank;
use serde::{Deserialize, Serialize};

/// Name of the format that [`VerbsSummary`] has as a trial's detail.
pub const VERBS_SUMMARY_SCHEMA: &str = "clearstream.verbs-calls";

/// A call of the verbs interface (RDMA Protocol Verbs, draft-hilland-rddp-verbs).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerbsCall {
    /// Opens the RNIC, with its engine where progress is offloaded.
    #[default]
    Open,
    /// Closes it.
    Close,
    /// Waits for the asynchronous events of the RNIC: their descriptor is added to an epoll.
    RegisterEventHandler,
    /// Creates a completion channel, and a completion queue that reports to it.
    RegisterCompletionHandler,
    /// Allocates a protection domain.
    AllocateDomain,
    /// Creates a queue pair of 128 requests in each direction.
    CreateQueuePair,
    /// Posts a receive of one segment.
    PostReceive,
    /// Posts a Send of `size` bytes on a connected queue pair; with inline progress the call sends.
    PostSend,
    /// Connects a queue pair: TCP, MPA request, MPA reply.
    Connect,
    /// Polls a completion queue that is empty, of a connected queue pair.
    PollEmpty,
    /// Polls a completion queue that has a completion.
    PollNonEmpty,
    /// Registers memory of `size` bytes that is in use.
    RegisterMemory,
    /// Deregisters it.
    DeregisterMemory,
}

impl VerbsCall {
    /// The call needs a peer.
    #[must_use]
    pub fn connects(self) -> bool {
        matches!(self, Self::PostSend | Self::Connect | Self::PollEmpty | Self::PollNonEmpty)
    }
}

/// Calls to time. Keys and defaults of the workload `verbs-calls` are these lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct VerbsConfig {
    /// The call
    pub call: VerbsCall,
    /// Samples to take
    pub count: u32,
    /// Samples before them that do not count
    pub warm_up_count: u32,
    /// Bytes of a message that is posted (4 KiB at most), or of memory that is registered
    pub size: ByteCount,
    /// Keep the pages of registered memory in physical memory, as a card needs it
    pub pin: bool,
    /// Progress mode: who moves the bytes
    pub progress: RdmaProgress,
    /// Core that calls (default: not pinned)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            call: VerbsCall::default(),
            count: 200,
            warm_up_count: 10,
            size: ByteCount(1024),
            pin: false,
            progress: RdmaProgress::Inline,
            core: None,
        }
    }
}

/// Times of one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerbsSummary {
    /// Requested configuration.
    pub requested: VerbsConfig,
    /// Calls in a row that make a sample, whose time is their mean: one clock
    /// reading costs as much as a short call.
    pub calls_per_sample_count: u32,
    /// Time between two readings of the clock, the least of many: what each
    /// sample is too long by, divided by the calls of a sample.
    pub clock_ns: u64,
    /// Time of one call, of every sample in order.
    pub times_ns: Vec<f64>,
    /// All samples were taken.
    pub complete: bool,
    /// Caveats of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// What a trial keeps beside its summary: every time as it was taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerbsSample {
    /// Time of one call, of every sample in order.
    pub times_ns: Vec<f64>,
}

/// Metrics, the headline first, each with the per cent of the samples that are not above it (nearest rank).
const TIMES: [(MetricKind, usize); 6] = [
    (MetricKind::lower("time", Unit::Nanoseconds), 50),
    (MetricKind::lower("time-p25", Unit::Nanoseconds), 25),
    (MetricKind::lower("time-p75", Unit::Nanoseconds), 75),
    (MetricKind::lower("time-p99", Unit::Nanoseconds), 99),
    (MetricKind::lower("time-min", Unit::Nanoseconds), 0),
    (MetricKind::lower("time-max", Unit::Nanoseconds), 100),
];

impl VerbsSummary {
    /// Metrics that a trial can have, the headline first.
    pub fn metrics() -> Vec<MetricKind> {
        TIMES.iter().map(|(kind, _)| *kind).collect()
    }

    /// As the outcome of a trial: the median, and how far the samples spread.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        let mut sorted = self.times_ns.clone();
        sorted.sort_by(f64::total_cmp);
        let metrics =
            TIMES.iter().filter_map(|(kind, percent)| Some(kind.of(nearest_rank(&sorted, *percent)?)));
        let points = self.times_ns.iter().enumerate().map(|(index, ns)| ((index + 1) as f64, *ns)).collect();
        let series = Series {
            name: "time".to_owned(),
            x: Axis::new("sample", Unit::Count),
            y: Axis::new("time", Unit::Nanoseconds),
            points,
        };
        let outcome = Outcome {
            complete: self.complete,
            series: vec![series],
            notices: self.notices.clone(),
            ..Outcome::of(metrics)
        };
        outcome.with_detail(VERBS_SUMMARY_SCHEMA, 1, self)
    }
}
