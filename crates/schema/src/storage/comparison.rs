//! Two directories, measured in turns.

use crate::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    notice::Notice,
    outcome::{Better, Unit},
};

/// A workload on two directories in turns: in each iteration one after the other, in an order that alternates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageComparison {
    /// Workload.
    pub workload: String,
    /// Its options.
    pub requested: Value,
    /// The first directory, and the one it is compared with.
    pub directories: [String; 2],
    /// Type and source of their file systems.
    pub file_systems: [String; 2],
    /// False when it was interrupted or its time limit passed.
    pub complete: bool,
    /// Metrics of the workload.
    pub metrics: Vec<StorageComparedMetric>,
    /// Caveats of the results of either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A metric on both directories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageComparedMetric {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Direction that is better.
    pub better: Better,
    /// Values on the first directory, by iteration.
    pub first: Vec<f64>,
    /// Values on the second one.
    pub second: Vec<f64>,
    /// Second by first; none where a value is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<StorageRatio>,
}

/// A ratio of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StorageRatio {
    /// Hodges-Lehmann estimate over the iterations.
    pub value: f64,
    /// Lower bound of its interval.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// Confidence of the interval: less than 0.95 below six iterations.
    pub confidence_ratio: f64,
    /// Pairs.
    pub pair_count: u64,
}
