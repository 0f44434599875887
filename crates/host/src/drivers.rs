//! State reported by drivers over ethtool netlink and ioctl, and the root queueing discipline: queried on the
//! running host, read from `ethtool.json` in a capture.

use std::collections::BTreeMap;

use clearstream_netlink::{
    RouteSocket,
    ethtool::{Ethtool, EthtoolError},
    netdev::Netdev,
};
use clearstream_schema::host::{CoalescingValue, DriverInformation, NowAndMax, Rss};
use serde::{Deserialize, Serialize};

/// The state of one interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DriverState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) link_speed_bps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receive_ring: Option<NowAndMax>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transmit_ring: Option<NowAndMax>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) combined_channels: Option<NowAndMax>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receive_channels: Option<NowAndMax>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) transmit_channels: Option<NowAndMax>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) features: BTreeMap<String, bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rss: Option<Rss>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) driver_information: Option<DriverInformation>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) coalescing: BTreeMap<String, CoalescingValue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) receive_napi: BTreeMap<u32, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) root_qdisc: Option<String>,
    /// Queries that failed, with the reason.
    #[serde(default, rename = "untold", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unavailable: BTreeMap<String, String>,
}

/// Source of driver state.
#[derive(Debug)]
pub(crate) enum Drivers {
    /// Ethtool queries; NAPI instances of the queues where the kernel reports them; queueing disciplines.
    Live(Ethtool, Option<Netdev>, Option<RouteSocket>),
    /// A captured file.
    Captured(BTreeMap<String, DriverState>),
}

impl Drivers {
    /// Queries the state of an interface with this index; `None` when a capture has none.
    pub(crate) fn query(&mut self, interface: &str, index: Option<u32>) -> Option<DriverState> {
        match self {
            Self::Captured(state) => state.get(interface).cloned(),
            Self::Live(ethtool, netdev, routes) => {
                let mut state = query(ethtool, interface);
                if let (Some(netdev), Some(index)) = (netdev, index) {
                    state.receive_napi = netdev.receive_napi(index);
                }
                let root = routes.as_mut().and_then(|routes| routes.discipline(interface).ok());
                state.root_qdisc = root.map(|root| root.text);
                Some(state)
            }
        }
    }
}

fn query(ethtool: &mut Ethtool, interface: &str) -> DriverState {
    let mut state = DriverState::default();
    let mut unavailable = BTreeMap::new();
    let mut failed = |what: &str, error: EthtoolError| {
        unavailable.insert(what.to_owned(), reason(&error));
    };
    match ethtool.link_speed_bps(interface) {
        Ok(speed) => state.link_speed_bps = speed,
        // Virtual and downed interfaces have no speed, in sysfs as well.
        Err(EthtoolError::NotSupported { .. }) => {}
        Err(error) => failed("link speed", error),
    }
    match ethtool.rings(interface) {
        Ok(rings) => (state.receive_ring, state.transmit_ring) = (rings.receive, rings.transmit),
        Err(error) => failed("rings", error),
    }
    match ethtool.channels(interface) {
        Ok(channels) => {
            state.combined_channels = channels.combined;
            (state.receive_channels, state.transmit_channels) = (channels.receive, channels.transmit);
        }
        Err(error) => failed("channels", error),
    }
    match ethtool.features(interface) {
        Ok(features) => state.features = features,
        Err(error) => failed("offloads", error),
    }
    match ethtool.rss(interface) {
        Ok(rss) => state.rss = Some(rss),
        Err(error) => failed("receive side scaling", error),
    }
    match ethtool.coalescing(interface) {
        Ok(coalescing) => state.coalescing = coalescing,
        Err(error) => failed("interrupt coalescing", error),
    }
    match ethtool.driver_information(interface) {
        Ok(information) => state.driver_information = Some(information),
        Err(error) => failed("driver version", error),
    }
    state.unavailable = unavailable;
    state
}

/// The reason without the interface, which the caller names already.
fn reason(error: &EthtoolError) -> String {
    match error {
        EthtoolError::NotSupported { .. } => "the driver does not report it".to_owned(),
        EthtoolError::Refused { source, .. } => source.to_string(),
        EthtoolError::Control { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
