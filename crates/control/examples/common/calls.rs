//! Two calls of the examples.

use clearstream_control::{Call, Done};
use clearstream_schema::scope::Right;
use serde::{Deserialize, Serialize};

/// The agent's process id.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProcessId {}

impl Call for ProcessId {
    const NAME: &'static str = "process-id";
    const NEEDS: Right = Right::Measure;
    type Reply = u32;
}

/// Never returns.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StayBusy {}

impl Call for StayBusy {
    const NAME: &'static str = "stay-busy";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}
