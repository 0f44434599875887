//! What a running kernel has otherwise than its addresses, and the rules that it starts
//! with, imply.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Interfaces of VRFs, with the table.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vrf_members: BTreeMap<String, u32>,
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
