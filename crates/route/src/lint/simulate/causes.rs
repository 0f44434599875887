//! Causes of lost packets, counted: one cause is one finding, however many pairs of
//! addresses it affects.

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_schema::prefix::Prefix;

/// Cause of a lost packet. Hosts, routes and rules are given by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// No route to a network.
    NoRoute { network: Prefix },
    /// A route to part of a network only; what is left goes nowhere, or away.
    LeavesOut { route: usize, network: Prefix, is_certain: bool },
    /// A route or rule that discards.
    Refuses { kind: &'static str, route: Option<usize>, rule: Option<usize>, network: Prefix },
    /// The host receives packets for others and does not forward.
    DoesNotForward { ipv6: bool },
    /// A next hop that is a given host and does not lead there.
    WrongGateway { route: usize, via: IpAddr, owner: usize, network: Prefix },
    /// A next hop that no gateway of the fabric has, or none of the given hosts
    /// where others of them lead there.
    NobodyHas { route: usize, via: IpAddr, network: Prefix },
    /// The host is a gateway of the fabric, and lacks its address as one.
    LacksAddress { via: IpAddr },
    /// Strict or loose source validation drops what arrives.
    Filtered { interface: String, network: Prefix },
    /// A neighbour according to a route, and not on that link.
    NotOnLink { route: Option<usize>, interface: String, network: Prefix },
    /// A forwarding loop; the hosts in their order.
    Loop { route: Option<usize>, through: Vec<usize>, network: Prefix },
}

/// A cause, and its host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cause {
    pub(super) at: usize,
    /// The host is an end of the path and stands for its class.
    pub(super) is_end: bool,
    pub(super) what: What,
}

/// An address that a host cannot communicate with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Example {
    pub(super) client: usize,
    pub(super) server: usize,
    pub(super) address: IpAddr,
    /// The request arrives, and its reply does not.
    pub(super) is_reply: bool,
}

/// Number of pairs that a cause affects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Affected {
    /// Pairs, by the host that is the client: a pair is walked in both roles.
    counts: [u64; 2],
    pub(super) example: Example,
}

impl Affected {
    /// Pairs in the direction of the example.
    pub(super) fn pair_count(&self) -> u64 {
        self.counts[self.example.direction()]
    }
}

impl Example {
    fn direction(&self) -> usize {
        usize::from(self.client > self.server)
    }
}

/// Every cause that was found.
#[derive(Debug, Default)]
pub(super) struct Causes {
    pub(super) counted: BTreeMap<Cause, Affected>,
}

impl Causes {
    pub(super) fn add(&mut self, cause: Cause, example: Example, pair_count: u64) {
        let affected = self.counted.entry(cause).or_insert(Affected { counts: [0; 2], example });
        affected.counts[example.direction()] += pair_count;
    }

    /// Merges the causes of other pairs.
    pub(super) fn merge(&mut self, others: Causes) {
        for (cause, other) in others.counted {
            let affected =
                self.counted.entry(cause).or_insert(Affected { counts: [0; 2], example: other.example });
            for (count, more) in affected.counts.iter_mut().zip(other.counts) {
                *count += more;
            }
        }
    }
}
