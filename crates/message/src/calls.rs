//! Calls of a controller at both agents of a measurement, and events of the
//! client's agent.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done};
use clearstream_schema::{
    control::{Cookie, Failure},
    message::{MessageConfig, MessagePoint, MessageSideSettings},
    notice::Notice,
    scope::Right,
};
use serde::{Deserialize, Serialize};

/// Waits for the data connection and serves the client's iterations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data connection.
    pub cookie: Cookie,
    /// Address to bind; any when absent.
    pub address: Option<IpAddr>,
    /// The whole measurement; each side uses its part.
    pub config: MessageConfig,
}

impl Call for Listen {
    const NAME: &'static str = "message-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Address of the waiting server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port of the data socket.
    pub address: SocketAddr,
}

/// Connects and measures; the reply is sent when the server has admitted the
/// connection, [`Finished`] when all sizes are measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the data connection.
    pub cookie: Cookie,
    /// Address of the server.
    pub server: SocketAddr,
    /// The whole measurement; each side uses its part.
    pub config: MessageConfig,
}

impl Call for Run {
    const NAME: &'static str = "message-run";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN
    }
}

/// Stops this side, early or after its end; the reply is sent when its thread
/// has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Test number.
    pub test: u64,
}

impl Call for Stop {
    const NAME: &'static str = "message-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Side;
}

/// Result of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Effective settings.
    #[serde(default)]
    pub settings: MessageSideSettings,
    /// Notices, such as lost capabilities.
    #[serde(default)]
    pub notices: Vec<Notice>,
    /// Error that ended it early, unless it was stopped.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Whether the failure is that the peer closed the connection: the peer has
    /// the cause.
    #[serde(default)]
    pub peer_closed: bool,
}

/// Event: one size is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SizeMeasured {
    /// Test number.
    pub test: u64,
    /// Result of the size.
    pub point: MessagePoint,
}

impl CallEvent for SizeMeasured {
    const NAME: &'static str = "message-size-measured";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// Event: the client has measured all sizes, or has failed; [`Stop`] returns
/// which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Test number.
    pub test: u64,
}

impl CallEvent for Finished {
    const NAME: &'static str = "message-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
