//! The next hops among which an IPv4 packet's source leaves a choice: since Linux 6.16
//! `fib_select_multipath` (net/ipv4/fib_semantics.c) prefers those whose own source
//! (`nh_saddr`) is that of the packet. It is so for what the host sends itself, and for
//! classic multipath routes: of nexthop groups the hash alone decides.

use std::{collections::HashMap, net::IpAddr};

use clearstream_schema::{prefix::Prefix, routing::HostRouting};

use super::{NextHop, Packet};

/// Addresses of interfaces, in their order.
#[derive(Debug, Default)]
pub(super) struct Sources<'a> {
    /// The kernel chooses by them.
    pub(super) decide: bool,
    addresses: HashMap<&'a str, Vec<Prefix>>,
}

impl<'a> Sources<'a> {
    pub(super) fn new(routing: &'a HostRouting) -> Self {
        let of_ipv4 = |interface: &'a clearstream_schema::routing::RoutingInterface| {
            let addresses = interface.addresses.iter().map(|address| address.value);
            (interface.name.as_str(), addresses.filter(|own| own.address.is_ipv4()).collect())
        };
        Self { decide: false, addresses: routing.interfaces.iter().map(of_ipv4).collect() }
    }

    /// Those of several next hops that the packet may take.
    pub(super) fn preferred(&self, hops: Vec<NextHop<'a>>, packet: &Packet<'_>) -> Vec<NextHop<'a>> {
        if !self.decide || hops.len() < 2 || packet.input.is_some() {
            return hops;
        }
        let Some(source @ IpAddr::V4(_)) = packet.source else { return hops };
        let preferred: Vec<_> =
            hops.iter().copied().filter(|hop| self.source_of(hop) == Some(source)).collect();
        if preferred.is_empty() { hops } else { preferred }
    }

    /// `inet_select_addr` (net/ipv4/devinet.c): the first address of the interface in whose
    /// network the gateway is, else the first one.
    fn source_of(&self, hop: &NextHop<'_>) -> Option<IpAddr> {
        let near = |own: &&Prefix| own.contains(hop.via);
        let of = match hop.interface {
            Some(interface) => self.addresses.get(interface)?,
            None => self.addresses.values().find(|of| of.iter().any(|own| own.contains(hop.via)))?,
        };
        of.iter().find(near).or(of.first()).map(|own| own.address)
    }
}
