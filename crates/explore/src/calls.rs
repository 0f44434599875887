//! Calls of a controller at the agents of two ranks, and the event of the first one.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use crate::document::{ExplorationConfig, Explored};
use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done};
use clearstream_schema::{
    TimeSpan,
    control::{Cookie, Failure},
    scope::Right,
};
use serde::{Deserialize, Serialize};

/// Waits for rank 0 and explores with it, as rank 1, as often as rank 0 does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listen {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the connection.
    pub cookie: Cookie,
    /// Address to bind; any when absent.
    pub address: Option<IpAddr>,
    /// What to explore.
    pub config: ExplorationConfig,
}

impl Call for Listen {
    const NAME: &'static str = "explore-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Address of the waiting rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port of its socket.
    pub address: SocketAddr,
}

/// Connects to rank 1 and explores as rank 0; the reply is sent when the ranks are joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the connection.
    pub cookie: Cookie,
    /// Address of rank 1.
    pub server: SocketAddr,
    /// What to explore.
    pub config: ExplorationConfig,
    /// Explores repeatedly until it is stopped, with this pause in between; once when absent.
    #[serde(default)]
    pub pause: Option<TimeSpan>,
}

impl Call for Run {
    const NAME: &'static str = "explore-run";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN
    }
}

/// Stops this rank, early or after its end; the reply is sent when its thread has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Test number.
    pub test: u64,
}

impl Call for Stop {
    const NAME: &'static str = "explore-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Side;
}

/// What a rank did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// At rank 0.
    #[serde(default)]
    pub explored: Explored,
    /// Error that ended it early.
    #[serde(default)]
    pub failure: Option<Failure>,
    /// Whether the failure is that the other rank was lost, which has the cause.
    #[serde(default)]
    pub peer_closed: bool,
}

/// Event: rank 0 has ended; [`Stop`] returns how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Test number.
    pub test: u64,
}

impl CallEvent for Finished {
    const NAME: &'static str = "explore-finished";
    const DELIVERY: Delivery = Delivery::Queued;
}
