//! What a controller calls at both agents of an RDMA measurement, and what the
//! client's sends while it runs.

use std::net::{IpAddr, SocketAddr};

use clearstream_control::{Call, CallEvent, Delivery, Done};
use clearstream_schema::{
    control::{Cookie, Failure},
    rdma::{
        RdmaConfig, RdmaEffective, RdmaOperation, RdmaResult, RdmaSample, RdmaSummary, VerbsConfig,
        VerbsSummary,
    },
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::client::Event;

/// Opens a server of RDMA measurements, until it is stopped or the session ends. Only
/// connections from `peer` whose private data carries the cookie are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serve {
    /// Address to listen on.
    pub address: IpAddr,
    /// Port to listen on; any free one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Cookie of the tests; without one nothing is opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<Cookie>,
    /// Address that the tests come from: over TLS the controller's own, which
    /// it is when absent; required on standard streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
}

impl Call for Serve {
    const NAME: &'static str = "rdma-serve";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Where RDMA tests may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port.
    pub address: SocketAddr,
}

/// Starts a measurement against a server; [`Progress`] events follow, of which the
/// last is [`Progress::Finished`] or [`Progress::Failed`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Where the server listens.
    pub server: SocketAddr,
    /// Cookie that the server expects.
    pub cookie: Cookie,
    /// What is measured.
    pub operation: RdmaOperation,
    /// Its options.
    pub config: RdmaConfig,
}

impl Call for Measure {
    const NAME: &'static str = "rdma-measure";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// Times a call of the verbs interface on the agent's host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeVerbs {
    /// Where a server listens; needed by calls that connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketAddr>,
    /// Cookie that the server expects.
    pub cookie: Cookie,
    /// What is timed.
    pub config: VerbsConfig,
}

impl Call for TimeVerbs {
    const NAME: &'static str = "rdma-verbs";
    const NEEDS: Right = Right::Measure;
    type Reply = VerbsSummary;
}

/// Ends the measurement that was started and closes the server that was opened;
/// replied to when their threads have ended. Nothing to end is no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {}

impl Call for Stop {
    const NAME: &'static str = "rdma-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// What happens during a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Connected, with these settings.
    Ready(RdmaEffective),
    /// Part of a run is over.
    Sample(RdmaSample),
    /// A size is complete.
    Size(RdmaResult),
    /// The last event: results, complete or up to when it was stopped.
    Finished(RdmaSummary),
    /// The last event: why there are no results.
    Failed(Failure),
}

impl Progress {
    /// The event of a measurement that this is; none at its end.
    #[must_use]
    pub fn event(&self) -> Option<Event<'_>> {
        match self {
            Self::Ready(effective) => Some(Event::Ready(effective)),
            Self::Sample(sample) => Some(Event::Sample(sample)),
            Self::Size(result) => Some(Event::Size(result)),
            Self::Finished(_) | Self::Failed(_) => None,
        }
    }
}

impl CallEvent for Progress {
    const NAME: &'static str = "rdma-progress";
    // A few in a second.
    const DELIVERY: Delivery = Delivery::Queued;
}
