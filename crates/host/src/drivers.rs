//! What drivers report over ethtool netlink and by ioctl: on the running host
//! by requests, in a captured one out of `ethtool.json`.

use std::collections::BTreeMap;

use clearstream_netlink::{
    ethtool::{Ethtool, EthtoolError},
    netdev::Netdev,
};
use clearstream_schema::host::{CoalescingValue, DriverInformation, NowAndMax, Rss};
use serde::{Deserialize, Serialize};

/// The answers about one interface.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answers {
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
    /// What was asked for in vain, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) untold: BTreeMap<String, String>,
}

/// Who answers.
#[derive(Debug)]
pub(crate) enum Drivers {
    /// The drivers themselves; who serves the queues where the kernel tells.
    Live(Ethtool, Option<Netdev>),
    /// A captured file.
    Captured(BTreeMap<String, Answers>),
}

impl Drivers {
    /// The answers about an interface with this index; `None` when a capture has none.
    pub(crate) fn ask(&mut self, interface: &str, index: Option<u32>) -> Option<Answers> {
        match self {
            Self::Captured(answers) => answers.get(interface).cloned(),
            Self::Live(ethtool, netdev) => {
                let mut answers = ask(ethtool, interface);
                if let (Some(netdev), Some(index)) = (netdev, index) {
                    answers.receive_napi = netdev.receive_napi(index);
                }
                Some(answers)
            }
        }
    }
}

fn ask(ethtool: &mut Ethtool, interface: &str) -> Answers {
    let mut answers = Answers::default();
    let mut untold = BTreeMap::new();
    let mut refused = |what: &str, error: EthtoolError| {
        untold.insert(what.to_owned(), reason(&error));
    };
    match ethtool.link_speed_bps(interface) {
        Ok(speed) => answers.link_speed_bps = speed,
        // Virtual and downed interfaces have no speed, which sysfs says too.
        Err(EthtoolError::NotSupported { .. }) => {}
        Err(error) => refused("link speed", error),
    }
    match ethtool.rings(interface) {
        Ok(rings) => (answers.receive_ring, answers.transmit_ring) = (rings.receive, rings.transmit),
        Err(error) => refused("rings", error),
    }
    match ethtool.channels(interface) {
        Ok(channels) => {
            answers.combined_channels = channels.combined;
            (answers.receive_channels, answers.transmit_channels) = (channels.receive, channels.transmit);
        }
        Err(error) => refused("channels", error),
    }
    match ethtool.features(interface) {
        Ok(features) => answers.features = features,
        Err(error) => refused("offloads", error),
    }
    match ethtool.rss(interface) {
        Ok(rss) => answers.rss = Some(rss),
        Err(error) => refused("receive side scaling", error),
    }
    match ethtool.coalescing(interface) {
        Ok(coalescing) => answers.coalescing = coalescing,
        Err(error) => refused("interrupt coalescing", error),
    }
    match ethtool.driver_information(interface) {
        Ok(information) => answers.driver_information = Some(information),
        Err(error) => refused("driver version", error),
    }
    answers.untold = untold;
    answers
}

/// The reason without the interface, which the part names already.
fn reason(error: &EthtoolError) -> String {
    match error {
        EthtoolError::NotSupported { .. } => "the driver does not report it".to_owned(),
        EthtoolError::Refused { source, .. } => source.to_string(),
        EthtoolError::Control { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
