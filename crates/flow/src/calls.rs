//! Calls of a controller to both agents of a flow test, and events of the agents while it runs.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done, MARGIN};
use clearstream_schema::{
    control::{Cookie, Failure},
    flow::{AdaptationStage, FlowConfig, FlowSettings, SideInterval},
    notice::Notice,
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::{adapt::Open, agent::AT_ONCE};

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
    /// What the warm-up tries.
    pub open: Open,
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
    /// What the warm-up tries.
    pub open: Open,
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

/// Adopts a candidate of a stage of the adaptive warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// Test number.
    pub test: u64,
    /// The stage that is over.
    pub stage: AdaptationStage,
    /// The candidate's place among those of the stage; 0 changes nothing.
    pub candidate: usize,
}

impl Call for Adopt {
    const NAME: &'static str = "flow-adopt";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
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

/// The turns of a stage of the adaptive warm-up are over on this side, or there are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// Test number.
    pub test: u64,
    /// The stage; absent when this side takes no turns.
    pub stage: Option<AdaptationStage>,
    /// Of each turn, in order; none where the turns could not be taken in time.
    pub readings: Vec<Reading>,
    /// Why this side takes no turns.
    pub reason: Option<String>,
}

impl CallEvent for Tried {
    const NAME: &'static str = "flow-tried";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// What one side did in a turn, all flows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Time that was read; zero where the turn was missed.
    pub duration_ns: u64,
    /// Bytes that reached this side's threads.
    pub received_bytes: u64,
    /// CPU time of its threads.
    pub cpu_ns: u64,
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
