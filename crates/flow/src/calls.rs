//! Calls of a controller to both agents of a flow test, and events of the agents while it runs.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done, MARGIN};
use clearstream_schema::{
    control::{Cookie, Failure},
    flow::{FlowConfig, FlowSettings, SideInterval},
    notice::Notice,
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::agent::AT_ONCE;

/// Opens the sockets of the listening end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data sockets.
    pub cookie: Cookie,
    /// Address to bind; any when absent.
    pub address: Option<IpAddr>,
    /// Configuration of the whole test; each side uses its part.
    pub config: FlowConfig,
}

impl Call for Listen {
    const NAME: &'static str = "flow-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Reply with the server's address, sent before any client connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port of the data socket.
    pub address: SocketAddr,
}

/// Opens the sockets of the connecting end; the reply is sent when all flows are connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connect {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data sockets.
    pub cookie: Cookie,
    /// Address of the server's data socket.
    pub server: SocketAddr,
    /// Configuration of the whole test; each side uses its part.
    pub config: FlowConfig,
}

impl Call for Connect {
    const NAME: &'static str = "flow-connect";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    /// Each flow has a time of its own, [`AT_ONCE`] of them together.
    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN.saturating_mul(self.config.flows.div_ceil(AT_ONCE))
    }
}

/// Starts the transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Test number.
    pub test: u64,
}

impl Call for Start {
    const NAME: &'static str = "flow-start";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    /// The agent itself waits for connections, or for threads that end.
    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN + MARGIN
    }
}

/// Stops a test early (also after an error); the reply is sent when the threads have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Test number.
    pub test: u64,
}

impl Call for Stop {
    const NAME: &'static str = "flow-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    /// The agent itself waits for connections, or for threads that end.
    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN + MARGIN
    }
}

/// All flows are connected on this side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Test number.
    pub test: u64,
    /// Effective settings.
    pub settings: FlowSettings,
    /// Notices, such as lost capabilities.
    pub notices: Vec<Notice>,
}

impl CallEvent for Ready {
    const NAME: &'static str = "flow-ready";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// One interval has passed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IntervalPassed {
    /// Test number.
    pub test: u64,
    /// Counts of the interval.
    pub interval: SideInterval,
}

impl CallEvent for IntervalPassed {
    const NAME: &'static str = "flow-interval";
    const DELIVERY: Delivery = Delivery::Droppable;
}

/// This side's threads have ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// Test number.
    pub test: u64,
    /// Further notices, such as a fallback from zero-copy.
    pub notices: Vec<Notice>,
    /// Why it ended early, if it did.
    pub failure: Option<Failure>,
}

impl CallEvent for Finished {
    const NAME: &'static str = "flow-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
