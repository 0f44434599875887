//! What a running kernel has otherwise than its addresses, and the rules that it starts
//! with, imply.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{RouteAction, RouteEntry};
use crate::{JsonSchema, prefix::Prefix};

/// Deviations from what follows from addresses; empty for files and for plans.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct KernelFacts {
    /// Rules of its own (priorities 0, 32766, 32767) that somebody removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent_rules: Vec<AbsentRule>,
    /// Networks of addresses to which the main table has no route by their interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent_networks: Vec<AbsentNetwork>,
    /// Routes of IPv6 that come before or after others of their metric (`pref`, RFC 4191).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub preferences: Vec<RoutePreference>,
    /// Interfaces of VRFs, with the table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vrf_members: BTreeMap<String, u32>,
}

/// The router preference of a route, where it is not `medium`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RoutePreference {
    /// Destination.
    pub destination: Prefix,
    /// Table.
    pub table: u32,
    /// Metric.
    pub metric: u32,
    /// What tells it from others of this destination and metric.
    pub action: RouteAction,
    /// `high`, not `low`.
    pub is_high: bool,
}

impl RoutePreference {
    /// Whether it is that of a route.
    pub fn is_of(&self, route: &RouteEntry) -> bool {
        (self.destination, self.table, self.metric, &self.action)
            == (route.destination, route.table, route.metric, &route.action)
    }
}

/// A rule that a kernel starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbsentRule {
    /// Its priority.
    pub priority: u32,
    /// It is for IPv6.
    pub ipv6: bool,
}

/// The network of an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbsentNetwork {
    /// Interface that has the address.
    pub interface: String,
    /// Its network.
    pub network: Prefix,
}

impl KernelFacts {
    /// Whether it has nothing to say.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the main table has the network of an interface's address.
    pub fn has_network(&self, interface: &str, address: Prefix) -> bool {
        let network = address.network();
        !self.absent_networks.iter().any(|absent| absent.interface == interface && absent.network == network)
    }
}
