//! Exploration of a model's states by ranks that exchange messages.

use clearstream_schema::JsonSchema;
use serde::{Deserialize, Serialize};

use clearstream_schema::{
    ByteCount,
    outcome::{Metric, MetricKind, Outcome, Unit},
};

/// Name of the format.
pub const EXPLORATION_SCHEMA: &str = "clearstream.exploration";

/// What carries the messages between the two ranks of a study's trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExplorationTransport {
    /// Whatever the MPI library uses.
    #[default]
    Mpi,
    /// iWARP in software: ClearStream's provider of libfabric.
    MpiIwarp,
    /// A TCP connection between ranks that the agents run, without MPI.
    Tcp,
}

/// An exploration by two ranks, one on the client and one on the server, as a study requests it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExplorationConfig {
    /// Name of a model that comes with the program
    pub model: String,
    /// Values of its parameters, as in "N=8" or "W=3 C=2"
    pub define: String,
    /// What carries the messages
    pub transport: ExplorationTransport,
    /// Bytes that a message between ranks holds at most
    pub message_size: ByteCount,
    /// Search for cycles with an accepting state
    pub cycles: bool,
    /// Command that starts an MPI job, with options of your own (default: mpirun)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpirun: Option<String>,
    /// Library with this site's MPI, built by `make extras` (default: beside the program)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mpi_library: Option<String>,
}

impl Default for ExplorationConfig {
    fn default() -> Self {
        Self {
            model: "philosophers".to_owned(),
            define: String::new(),
            transport: ExplorationTransport::default(),
            message_size: ByteCount(16 << 10),
            cycles: false,
            mpirun: None,
            mpi_library: None,
        }
    }
}

const RATE: MetricKind = MetricKind::higher("state-rate", Unit::PerSecond);
const DURATION: MetricKind = MetricKind::lower("duration", Unit::Nanoseconds);
const SENT_BYTES: MetricKind = MetricKind::lower("sent-bytes", Unit::Bytes);
const SENT_MESSAGES: MetricKind = MetricKind::lower("sent-messages", Unit::Count);

impl ExplorationConfig {
    /// Metrics that a trial can have, the headline first.
    pub fn metrics() -> Vec<MetricKind> {
        vec![RATE, DURATION, SENT_BYTES, SENT_MESSAGES]
    }
}

impl Exploration {
    /// As the outcome of a trial. The path to a deadlock may have thousands of states, differs from run to
    /// run, and stays away.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn outcome(mut self) -> Result<Outcome, serde_json::Error> {
        self.path.clear();
        let sum = |of: fn(&ExplorationRank) -> &Vec<u64>| self.ranks.iter().flat_map(of).sum::<u64>() as f64;
        let metrics: Vec<Metric> = vec![
            RATE.of(self.states_per_second),
            DURATION.of(self.duration_ns as f64),
            SENT_BYTES.of(sum(|rank| &rank.sent_bytes)),
            SENT_MESSAGES.of(sum(|rank| &rank.sent_messages)),
        ];
        Outcome { complete: self.complete, ..Outcome::of(metrics) }.with_detail(EXPLORATION_SCHEMA, 1, &self)
    }
}

/// What ranks did that explored once or repeatedly.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explored {
    /// Explorations that ended by themselves.
    pub count: u64,
    /// The fastest of these; where there is none, the one that was interrupted.
    pub best: Option<Exploration>,
}

impl Explored {
    /// Adds an exploration. Of the path, which may have thousands of states, nothing is kept.
    pub fn add(&mut self, mut exploration: Exploration) {
        exploration.path.clear();
        self.count += u64::from(exploration.complete);
        let is_better = self.best.as_ref().is_none_or(|best| {
            (exploration.complete, best.duration_ns) > (best.complete, exploration.duration_ns)
        });
        if is_better {
            self.best = Some(exploration);
        }
    }

    /// The fastest that ended by itself.
    pub fn fastest(&self) -> Option<&Exploration> {
        self.best.as_ref().filter(|best| best.complete)
    }
}

/// What the states of a model are, and what finding them took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exploration {
    /// [`EXPLORATION_SCHEMA`].
    pub schema: String,
    /// 1.
    pub version: u32,
    /// Name of the model.
    pub model: String,
    /// Parameters with their values.
    pub parameters: Vec<ModelParameter>,
    /// What carried the messages: an MPI library with its version, `TCP`, or `threads`.
    pub transport: String,
    /// Bytes that a message between ranks holds at most.
    pub message_bytes: u64,
    /// False when it was interrupted: counts are of what was found until then.
    pub complete: bool,
    /// Distinct states reached from the initial one, which is one of them.
    pub state_count: u64,
    /// Transitions between these, self-loops included.
    pub transition_count: u64,
    /// States without a successor.
    pub deadlock_count: u64,
    /// States that the model calls accepting.
    pub accepting_count: u64,
    /// Whether an accepting state lies on a cycle, where that was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepting_cycle: Option<bool>,
    /// States from the initial one to the first deadlock of the lowest rank, or to an accepting state that
    /// an accepting cycle leads to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Bytes of a state in memory and in messages.
    pub state_bytes: u64,
    /// Duration of the exploration, without the search for cycles.
    pub duration_ns: u64,
    /// States per second, of all ranks together.
    pub states_per_second: f64,
    /// In the order of ranks.
    pub ranks: Vec<ExplorationRank>,
}

/// A parameter of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelParameter {
    /// As in the model.
    pub name: String,
    /// In this run.
    pub value: i64,
}

/// A rank's part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplorationRank {
    /// Its host.
    pub host: String,
    /// States that it owns.
    pub state_count: u64,
    /// Transitions from these.
    pub transition_count: u64,
    /// States without a successor among these.
    pub deadlock_count: u64,
    /// Accepting ones among these.
    pub accepting_count: u64,
    /// Memory of its states.
    pub memory_bytes: u64,
    /// Messages to each rank, its own part of the traffic matrix.
    pub sent_messages: Vec<u64>,
    /// Bytes in these.
    pub sent_bytes: Vec<u64>,
}
