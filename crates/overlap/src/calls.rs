//! Calls of a controller at both agents of a measurement, and events of the
//! client's agent.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done};
use clearstream_schema::{
    control::{Cookie, Failure},
    overlap::{OverlapConfig, OverlapPoint, OverlapSideSettings},
    scope::Right,
};
use serde::{Deserialize, Serialize};

/// Waits for the client's connections and serves its intervals of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the connections.
    pub cookie: Cookie,
    /// Address to bind; any when absent.
    pub address: Option<IpAddr>,
    /// The whole measurement; each side uses its part.
    pub config: OverlapConfig,
}

impl Call for Listen {
    const NAME: &'static str = "overlap-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Ports of the waiting server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Port of the TCP connections.
    pub port: u16,
    /// Port of the queue pair (iwarp).
    pub iwarp_port: Option<u16>,
}

/// Connects and measures; the reply is sent when the server has admitted the
/// connections, [`Finished`] when all intervals of work are measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the connections.
    pub cookie: Cookie,
    /// Address of the server's TCP connections.
    pub server: SocketAddr,
    /// Port of the server's queue pair (iwarp).
    pub iwarp_port: Option<u16>,
    /// The whole measurement; each side uses its part.
    pub config: OverlapConfig,
}

impl Call for Run {
    const NAME: &'static str = "overlap-run";
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
    const NAME: &'static str = "overlap-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Side;
}

/// Result of one side.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Effective settings.
    #[serde(default)]
    pub settings: OverlapSideSettings,
    /// Error that ended it early, unless it was stopped.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Whether the failure is that the peer closed a connection: the peer has
    /// the cause.
    #[serde(default)]
    pub peer_closed: bool,
}

/// Event: one interval of work is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointMeasured {
    /// Test number.
    pub test: u64,
    /// Result of the interval.
    pub point: OverlapPoint,
}

impl CallEvent for PointMeasured {
    const NAME: &'static str = "overlap-point-measured";
    const DELIVERY: Delivery = Delivery::Queued;
}

/// Event: the client has measured all intervals, or has failed; [`Stop`] returns
/// which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Test number.
    pub test: u64,
}

impl CallEvent for Finished {
    const NAME: &'static str = "overlap-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
