//! Calls of a controller at both agents, and events of the client's agent.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done};
use clearstream_schema::{control::Cookie, scope::Right};
use serde::{Deserialize, Serialize};

use super::{Side, TwoSided};

/// Names of the calls and events of a measurement on the wire.
#[derive(Debug, Clone, Copy)]
pub struct CallNames {
    /// Name of the workload.
    pub workload: &'static str,
    /// Name of [`Listen`].
    pub listen: &'static str,
    /// Name of [`Run`].
    pub run: &'static str,
    /// Name of [`Stop`].
    pub stop: &'static str,
    /// Name of [`PointMeasured`].
    pub measured: &'static str,
    /// Name of [`Finished`].
    pub finished: &'static str,
}

/// The [`CallNames`] of a workload, from its name.
#[macro_export]
macro_rules! call_names {
    ($name:literal) => {
        $crate::two_sided::CallNames {
            workload: $name,
            listen: concat!($name, "-listen"),
            run: concat!($name, "-run"),
            stop: concat!($name, "-stop"),
            measured: concat!($name, "-point-measured"),
            finished: concat!($name, "-finished"),
        }
    };
}

/// Waits for the client's connections and serves it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Listen<W: TwoSided> {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the connections.
    pub cookie: Cookie,
    /// Address to bind; any when absent.
    pub address: Option<IpAddr>,
    /// The whole measurement; each side uses its part.
    pub config: W::Config,
}

impl<W: TwoSided> Call for Listen<W> {
    const NAME: &'static str = W::NAMES.listen;
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Ports of the waiting server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// In the order in which the measurement names them.
    pub ports: Vec<u16>,
}

/// Connects and measures; the reply is sent when the server has admitted the connections, [`Finished`] when all is
/// measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Run<W: TwoSided> {
    /// Test number, chosen by the controller.
    pub test: u64,
    /// Cookie of the connections.
    pub cookie: Cookie,
    /// Addresses of the server, one for each of its ports.
    pub server: Vec<SocketAddr>,
    /// The whole measurement; each side uses its part.
    pub config: W::Config,
}

impl<W: TwoSided> Call for Run<W> {
    const NAME: &'static str = W::NAMES.run;
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN
    }
}

/// Stops this side, early or after its end; the reply is sent when its thread has exited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Stop<W: TwoSided> {
    /// Test number.
    pub test: u64,
    /// Which measurement; nothing on the wire, where the call's name says it.
    #[serde(skip)]
    pub of: W,
}

impl<W: TwoSided> Call for Stop<W> {
    const NAME: &'static str = W::NAMES.stop;
    const NEEDS: Right = Right::Measure;
    type Reply = Side<W::Report>;
}

/// Event: one result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct PointMeasured<W: TwoSided> {
    /// Test number.
    pub test: u64,
    /// The result.
    pub point: W::Point,
}

impl<W: TwoSided> CallEvent for PointMeasured<W> {
    const NAME: &'static str = W::NAMES.measured;
    const DELIVERY: Delivery = Delivery::Queued;
}

/// Event: the client has measured all, or has failed; [`Stop`] returns which.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Finished<W: TwoSided> {
    /// Test number.
    pub test: u64,
    /// Which measurement; nothing on the wire, where the event's name says it.
    #[serde(skip)]
    pub of: W,
}

impl<W: TwoSided> CallEvent for Finished<W> {
    const NAME: &'static str = W::NAMES.finished;
    const DELIVERY: Delivery = Delivery::Queued;
}
