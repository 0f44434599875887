//! Calls of a controller to both agents of a probe.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use clearstream_control::{Call, Done, MARGIN};
use clearstream_schema::{
    control::Cookie,
    probe::{ProbeConfig, ProbeDirection},
    scope::Right,
};
use serde::{Deserialize, Serialize};

/// Opens the responder's sockets for probes; earlier ones are closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// Address to bind, loopback when absent.
    pub address: Option<IpAddr>,
    /// Port of both sockets, free ones when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Cookie that probes must carry.
    pub cookie: Cookie,
}

impl Call for Listen {
    const NAME: &'static str = "probe-listen";
    const NEEDS: Right = Right::Measure;
    type Reply = Listening;
}

/// Addresses of the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// UDP address.
    pub udp: SocketAddr,
    /// TCP address.
    pub tcp: SocketAddr,
}

/// Sends probes to a listening agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What to measure.
    pub config: ProbeConfig,
    /// The listening agent's UDP address.
    pub udp: SocketAddr,
    /// The listening agent's TCP address.
    pub tcp: SocketAddr,
    /// Cookie to carry.
    pub cookie: Cookie,
    /// UDP round trips only: no TCP, no search for the path MTU.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub udp_only: bool,
}

impl Call for Run {
    const NAME: &'static str = "probe-run";
    const NEEDS: Right = Right::Measure;
    type Reply = ProbeDirection;

    fn reply_within(&self) -> Duration {
        // Series over UDP and TCP, and a search for the path MTU that waits for what never comes at half of its steps.
        let series = self.config.interval.to_std().saturating_mul(self.config.count);
        series.saturating_mul(2).saturating_add(self.config.timeout.to_std().saturating_mul(24)) + MARGIN
    }
}

/// Closes the responder's sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {}

impl Call for Close {
    const NAME: &'static str = "probe-close";
    const NEEDS: Right = Right::Measure;
    type Reply = Done;
}
