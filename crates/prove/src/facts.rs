//! Routing-related state of the hosts of a verification.

use std::{collections::BTreeMap, net::IpAddr};

use super::{
    calls::{self, HostRouteFacts},
    hosts::{Hosts, ProofError},
};

/// By host.
#[derive(Debug, Default)]
pub(super) struct Facts(BTreeMap<String, HostRouteFacts>);

impl Facts {
    /// Queries every host.
    pub(super) fn gather(hosts: &mut Hosts<'_>) -> Result<Self, ProofError> {
        let names: Vec<String> = hosts.peers.keys().cloned().collect();
        let requests = names.into_iter().map(|name| (name, vec![calls::Facts {}])).collect();
        let mut facts = BTreeMap::new();
        for (host, replies) in hosts.call_all(requests) {
            facts.extend(replies?.pop().map(|found| (host, found)));
        }
        Ok(Self(facts))
    }

    /// Name of the interface that has an address.
    pub(super) fn interface(&self, host: &str, address: IpAddr) -> Option<&str> {
        Some(self.0.get(host)?.interface_of(address)?.name.as_str())
    }

    /// MTU of the interface that has an address.
    pub(super) fn mtu_bytes(&self, host: &str, address: IpAddr) -> Option<u32> {
        Some(self.0.get(host)?.interface_of(address)?.mtu_bytes)
    }

    pub(super) fn speed_bps(&self, host: &str, address: IpAddr) -> Option<u64> {
        self.0.get(host)?.interface_of(address)?.speed_bps
    }

    /// A sysctl by its dotted name.
    pub(super) fn sysctl(&self, host: &str, name: &str) -> Option<&str> {
        self.0.get(host)?.sysctls.get(name).map(String::as_str)
    }

    /// Whether two hosts are namespaces of one machine.
    pub(super) fn one_machine(&self, one: &str, other: &str) -> bool {
        let boot = |host: &str| self.0.get(host).and_then(|facts| facts.boot_id.as_deref());
        boot(one).is_some() && boot(one) == boot(other)
    }
}
