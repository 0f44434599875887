//! Exploration of a model's states by ranks that exchange messages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name of the format.
pub const EXPLORATION_SCHEMA: &str = "clearstream.exploration";

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
    /// What carried the messages: an MPI library with its version, or `threads`.
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
