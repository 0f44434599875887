//! What a controller calls at both agents of a flow test, and what they send while
//! it runs.

use std::net::{IpAddr, SocketAddr};

use clearstream_control::{Call, CallEvent, Delivery, Done};
use clearstream_schema::{
    control::{Cookie, Failure},
    flow::{FlowConfig, FlowSettings, Notice, SideInterval},
    scope::Right,
};
use serde::{Deserialize, Serialize};

/// Makes the sockets of the end that waits for connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data sockets.
    pub cookie: Cookie,
    /// Address to bind; any when absent.
    pub address: Option<IpAddr>,
    /// The whole test; each side takes what concerns it.
    pub config: FlowConfig,
}

impl Call for Listen {
    const NAME: &'static str = "flow-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Where the server waits. Sent before any client connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port of the data socket.
    pub address: SocketAddr,
}

/// Makes the sockets of the end that connects; the reply comes when all flows are
/// connected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Connect {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data sockets.
    pub cookie: Cookie,
    /// Where the server waits.
    pub server: SocketAddr,
    /// The whole test; each side takes what concerns it.
    pub config: FlowConfig,
}

impl Call for Connect {
    const NAME: &'static str = "flow-connect";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// Lets data flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Test number.
    pub test: u64,
}

impl Call for Start {
    const NAME: &'static str = "flow-start";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// Stops early (also after an error); replied to when the threads have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Test number.
    pub test: u64,
}

impl Call for Stop {
    const NAME: &'static str = "flow-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// All flows are connected on this side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Test number.
    pub test: u64,
    /// Effective settings.
    pub settings: FlowSettings,
    /// Lost capabilities and the like.
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
    /// The facts.
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
    /// More notices (zero-copy fell back and the like).
    pub notices: Vec<Notice>,
    /// Why it ended early, if it did.
    pub failure: Option<Failure>,
}

impl CallEvent for Finished {
    const NAME: &'static str = "flow-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
