//! Options of the workload `rdma`: an operation, and what `clearstream rdma`
//! takes for it.

use crate::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::{Map, Value};

use super::{RdmaConfig, RdmaOperation};

/// An operation with its options, in one table of keys.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RdmaOptions {
    /// Operation to measure.
    #[schemars(default)]
    pub operation: RdmaOperation,
    /// The options of `clearstream rdma`.
    #[serde(flatten)]
    pub config: RdmaConfig,
}

impl Default for RdmaOptions {
    fn default() -> Self {
        Self { operation: RdmaOperation::Write, config: RdmaConfig::default() }
    }
}

// Not derived: serde's `flatten` lets unknown keys pass.
impl<'de> Deserialize<'de> for RdmaOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut keys = Map::deserialize(deserializer)?;
        let operation = keys.remove("operation").map(crate::json::from_value).transpose();
        let config = crate::json::from_value(Value::Object(keys));
        Ok(Self {
            operation: operation.map_err(de::Error::custom)?.unwrap_or_default(),
            config: config.map_err(de::Error::custom)?,
        })
    }
}
