//! Walks of packets over hosts, by lookups in what each routes by: from a sender by
//! every next hop that it and the hosts between may take to the host that is meant,
//! and the reply. How routes came to be plays no part: the planner walks over what it
//! planned (its symmetry check), the linter over what hosts have.
//!
//! [`Hosts`] is what a caller knows of the hosts and the links between them. A [`Walk`]
//! is one direction: the branches of the packets of a [`Flow`], each with the hosts that
//! it passed and its [`End`]. A [`RoundTrip`] is a request and its replies.

mod forward;
mod reply;
mod translation;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_routing::{lookup::Found, node::Node};
use clearstream_schema::routing::{RouteEntry, RuleEntry, SourceTranslation};

pub(crate) use self::{
    forward::{Flow, Walker},
    reply::RoundTrip,
    translation::Translated,
};

/// The hosts as a caller knows them, each by its number. What has a default is so where
/// everything is known of hosts that translate nothing and reply for themselves alone.
pub(crate) trait Hosts<'a> {
    /// A host, ready for lookups.
    fn node(&self, host: usize) -> &Node<'a>;

    /// The name of a host, by which connection marks of others call it as a gateway.
    fn name(&self, host: usize) -> &str;

    /// Who takes what a host sends by an interface to a next hop.
    fn next(&self, at: usize, output: &'a str, via: IpAddr) -> Next<'a>;

    /// The interface by which `target` takes what a host sends by an interface to its
    /// address; absent where it is on another link.
    fn neighbour(&self, at: usize, output: &str, target: usize, address: IpAddr) -> Option<&'a str>;

    /// Hosts that reply for an address on the link of a host's interface, since they
    /// forward to it, with the interfaces by which they receive.
    fn proxies(&self, _at: usize, _output: &str, _address: IpAddr) -> Vec<(usize, &'a str)> {
        Vec::new()
    }

    /// Whether a host with this address may forward, where no sysctl of it is known.
    fn may_forward(&self, _host: usize, _via: IpAddr, _destination: IpAddr) -> bool {
        false
    }

    /// Rules of a host that replace sources; absent where they are not known.
    fn source_translations(&self, _host: usize) -> Option<&'a [SourceTranslation]> {
        Some(&[])
    }

    /// Whether hosts set no marks but their `connection_marks`.
    fn knows_marks(&self) -> bool {
        true
    }
}

/// Owner of a next hop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next<'a> {
    /// A known host, and the interface by which it receives.
    Host(usize, &'a str),
    /// A known host that is on no common link.
    OtherSide(usize),
    /// The sender itself.
    Own,
    /// No known host has the address.
    NotGiven,
}

/// One direction: packets of a flow, followed to a host.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) flow: Flow,
    pub(crate) sender: usize,
    /// The host that is meant.
    pub(crate) target: usize,
    /// What the sender looked up.
    pub(crate) found: Found<'a>,
    /// Ways that the packets may take, in the order of the next hops. A host that some
    /// branch has passed is passed by no later one: the rest of it would be the same.
    pub(crate) branches: Vec<Branch<'a>>,
    /// Hosts that may replace the source: their rules depend on more than is read, or
    /// were not read.
    pub(crate) may_translate: BTreeSet<usize>,
}

impl<'a> Walk<'a> {
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = &Arrival<'a>> {
        self.branches.iter().filter_map(|branch| match &branch.end {
            End::Arrived(arrival) => Some(arrival),
            _ => None,
        })
    }
}

/// One way of packets.
#[derive(Debug)]
pub(crate) struct Branch<'a> {
    /// The sender, and the hosts that passed the packets on or were to.
    pub(crate) trail: Vec<usize>,
    /// The choice that brought them where they end, or that leads nowhere.
    pub(crate) taken: Option<Taken<'a>>,
    /// The source that they have at the end.
    pub(crate) source: IpAddr,
    pub(crate) end: End<'a>,
}

/// A host's choice of a next hop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub(crate) sender: usize,
    pub(crate) route: Option<&'a RouteEntry>,
    pub(crate) via: IpAddr,
    pub(crate) output: &'a str,
}

/// Why a branch ends; at the last host of its trail where no other is named.
#[derive(Debug)]
pub(crate) enum End<'a> {
    /// The host that is meant takes the packets.
    Arrived(Arrival<'a>),
    /// Source validation of a host drops what arrives by an interface.
    Filtered { at: usize, input: &'a str },
    /// No route.
    NoRoute,
    /// A route or rule of this type discards.
    Refused { kind: &'static str, route: Option<&'a RouteEntry>, rule: Option<&'a RuleEntry> },
    /// A rule or route is not understood.
    NotUnderstood,
    /// The destination is an address of the host itself.
    Local,
    /// The destination is taken for a neighbour on a link, and is not there.
    NotOnLink { route: Option<&'a RouteEntry>, output: &'a str },
    /// The next hop is on none of the host's links, or is the host itself: the kernel
    /// refuses such a route (`fib_check_nh`).
    NoNextHop,
    /// No known host has the next hop.
    NotGiven,
    /// The next hop is this host, which is on no common link.
    OtherSide(usize),
    /// The next hop is this host, which does not forward what arrives by the interface.
    NotForwarded { host: usize, input: &'a str },
    /// A forwarding loop of these hosts, in their order.
    Loop(Vec<usize>),
}

/// How packets arrive at a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival<'a> {
    /// Interface of the host.
    pub(crate) input: &'a str,
    /// The last forwarder, and its interface.
    pub(crate) last: Option<(usize, &'a str)>,
    /// Translations of the source, in the order of the gateways.
    pub(crate) translated: Vec<Translated>,
}

/// Share of the flows, 0 to 1, for which two hosts that each choose by a hash of their
/// own choose the same gateway. Both are given as gateways with their shares, which add
/// up to 1; one may be there twice.
pub(crate) fn meeting_share<G: Ord + Copy>(there: &[(G, f64)], back: &[(G, f64)]) -> f64 {
    let mut whole: BTreeMap<G, f64> = BTreeMap::new();
    for (gateway, share) in back {
        *whole.entry(*gateway).or_default() += share;
    }
    there.iter().filter_map(|(gateway, share)| Some(share * whole.get(gateway)?)).sum()
}
