//! What the warm-up of a flow found out about the settings that nobody named.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ByteCount;

/// Where the threads of the flows run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadPlacement {
    /// Where the kernel's scheduler puts them.
    #[default]
    Scheduler,
    /// Flow n of both ends on the n-th core of its host.
    Together,
    /// The sender of flow n on core 2n of its host, the receiver on core 2n + 1.
    Apart,
}

/// Settings that the warm-up changes while data flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AdaptedSettings {
    /// Bytes of one write or read.
    pub transfer: ByteCount,
    /// Receive low-water mark; absent where the receivers' own stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_low_water: Option<ByteCount>,
    /// Where the threads run.
    pub placement: ThreadPlacement,
}

/// What is compared at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AdaptationStage {
    /// Where threads run.
    Placement,
    /// Transfer size.
    Transfer,
    /// Receive low-water mark.
    LowWater,
    /// The best of them beside what was in effect before, once more.
    Confirmation,
}

/// A candidate, over the rounds in which it had a turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdaptationTrial {
    /// What it was compared for.
    pub stage: AdaptationStage,
    /// What was in effect.
    #[serde(flatten)]
    pub settings: AdaptedSettings,
    /// Median goodput of its turns, all flows.
    pub goodput_bps: f64,
    /// Median CPU time of the flows' threads at both ends, seconds per 10^9 bytes.
    pub cpu_seconds_per_gb: f64,
    /// Median of its goodput over that of the first candidate of the stage in the same round.
    pub gain_ratio: f64,
}

/// What was tried in the warm-up, and what was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowAdaptation {
    /// In effect while it was measured; absent when the defaults stayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen: Option<AdaptedSettings>,
    /// Why.
    pub reason: String,
    /// Every candidate, in the order of their turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<AdaptationTrial>,
}
