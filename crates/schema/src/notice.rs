//! Caveats: what was lost on the way, or what to know about the numbers.

use serde::{Deserialize, Serialize};

use crate::JsonSchema;

/// A caveat of the results.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// Stable kebab-case name, such as `zerocopy-copied` or `window-capped`.
    pub id: String,
    /// Observation and suggested correction, one line.
    pub message: String,
}
