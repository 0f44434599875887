//! Calls of a controller at both agents of an RDMA measurement, and events of
//! the client's agent.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{CONNECT_WITHIN, Call, CallEvent, Delivery, Done, MARGIN};
use clearstream_schema::{
    control::{Cookie, Failure},
    rdma::{RdmaConfig, RdmaEffective, RdmaOperation, RdmaResult, RdmaSample, RdmaSummary},
    scope::Right,
};
use serde::{Deserialize, Serialize};

use crate::{
    client::Event,
    verbs::{VerbsConfig, VerbsSummary},
};

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
    /// Source address of the tests: defaults to the controller's own over TLS;
    /// required on standard streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<IpAddr>,
}

impl Call for Serve {
    const NAME: &'static str = "rdma-serve";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Address of an open server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// Address and port.
    pub address: SocketAddr,
}

/// Starts a measurement against a server; [`Progress`] events follow, of which the
/// last is [`Progress::Finished`] or [`Progress::Failed`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Address of the server.
    pub server: SocketAddr,
    /// Cookie that the server expects.
    pub cookie: Cookie,
    /// Measured operation.
    pub operation: RdmaOperation,
    /// Its options.
    pub config: RdmaConfig,
}

impl Call for Measure {
    const NAME: &'static str = "rdma-measure";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;

    fn reply_within(&self) -> Duration {
        CONNECT_WITHIN
    }
}

/// Times a call of the verbs interface on the agent's host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimeVerbs {
    /// Address of a server; required by calls that connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketAddr>,
    /// Cookie that the server expects.
    pub cookie: Cookie,
    /// Options of the timed call.
    pub config: VerbsConfig,
}

impl Call for TimeVerbs {
    const NAME: &'static str = "rdma-verbs";
    const NEEDS: Right = Right::Measure;
    type Reply = VerbsSummary;

    fn reply_within(&self) -> Duration {
        // Registration touches every page: a gigabyte a second is slow.
        let one = Duration::from_millis(1) + Duration::from_nanos(self.config.size.0);
        let count = self.config.count.saturating_add(self.config.warm_up_count);
        one.saturating_mul(count).saturating_add(CONNECT_WITHIN + MARGIN)
    }
}

/// Stops the measurement and closes the server, if any; the reply is sent when
/// their threads have exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {}

impl Call for Stop {
    const NAME: &'static str = "rdma-stop";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}

/// Progress of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Progress {
    /// Connected, with these settings.
    Ready(RdmaEffective),
    /// A sample of a run.
    Sample(RdmaSample),
    /// A size is complete.
    Size(RdmaResult),
    /// Last event: results, complete or up to the stop.
    Finished(RdmaSummary),
    /// Last event: the error.
    Failed(Failure),
}

impl Progress {
    /// Converts to the event of a measurement; `None` for the last one.
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
    // Low rate: a few per second.
    const DELIVERY: Delivery = Delivery::Queued;
}
