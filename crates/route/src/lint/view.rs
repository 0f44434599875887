//! A host as the rules see it: addresses, networks and tables indexed for lookups,
//! and nexthop objects resolved to their gateways.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use clearstream_routing::{lookup::priorities, node::Node};
use clearstream_schema::{
    prefix::Prefix,
    routing::{
        HostRouting, Located, MAIN_TABLE, Nexthop, NexthopTarget, Place, RouteAction, RouteEntry, RuleAction,
        RuleEntry, SourceTranslation, files::Loader,
    },
};

use super::{CONNECTION_COUNT, Subject};

/// A gateway of a route, whatever the form of the route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResolvedHop<'a> {
    pub(super) via: IpAddr,
    pub(super) interface: Option<&'a str>,
    pub(super) weight: u16,
    pub(super) place: Option<&'a Place>,
}

/// A host with the facts derived from its routing.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) subject: &'a Subject,
    /// Its kernel prefers, of several next hops, one by the packet's source.
    pub(super) prefers_source: bool,
    pub(super) routing: &'a HostRouting,
    /// Addresses of its own.
    pub(super) own: BTreeSet<IpAddr>,
    /// Networks that its interfaces are on, with the interface.
    pub(super) attached: Vec<(&'a str, Prefix)>,
    /// Routes by table, in their order.
    pub(super) tables: BTreeMap<u32, Vec<&'a RouteEntry>>,
    /// Priority that each rule has or gets, in the order of `routing.rules`.
    pub(super) priorities: Vec<u32>,
    /// Lookups and source validation.
    pub(super) node: Node<'a>,
    nexthops: HashMap<u32, &'a Nexthop>,
}

impl<'a> View<'a> {
    /// `prefers_source` is for a kernel whose release is not known.
    pub(super) fn new(subject: &'a Subject, prefers_source: bool) -> Self {
        let prefers_source = subject.prefers_source().unwrap_or(prefers_source);
        let routing = &subject.routing;
        let addresses = routing.interfaces.iter().flat_map(|interface| &interface.addresses);
        let own = addresses.map(|address| address.value.address).collect();
        let node = Node::with(routing, subject.lookup(prefers_source, |_| true));
        let attached = node.attached.clone();
        let mut tables: BTreeMap<u32, Vec<&RouteEntry>> = BTreeMap::new();
        for route in &routing.routes {
            tables.entry(route.table).or_default().push(route);
        }
        let nexthops = routing.nexthops.iter().map(|nexthop| (nexthop.id, nexthop)).collect();
        let priorities = priorities(&routing.rules);
        Self { prefers_source, subject, routing, own, attached, tables, priorities, node, nexthops }
    }

    /// Gateways of a route, in their order; none for one on the link.
    pub(super) fn hops(&self, route: &'a RouteEntry) -> Vec<ResolvedHop<'a>> {
        match &route.action {
            RouteAction::Gateways(hops) => hops
                .iter()
                .map(|hop| ResolvedHop {
                    via: hop.via,
                    interface: hop.interface.as_deref(),
                    weight: hop.weight.max(1),
                    place: hop.place.as_ref().or(route.place.as_ref()),
                })
                .collect(),
            RouteAction::Nexthop(id) => self.object(*id),
            _ => Vec::new(),
        }
    }

    fn object(&self, id: u32) -> Vec<ResolvedHop<'a>> {
        let one = |id: u32, weight: u16| {
            let nexthop = self.nexthops.get(&id)?;
            let NexthopTarget::Gateway { via, interface } = &nexthop.target else { return None };
            let place = nexthop.place.as_ref();
            Some(ResolvedHop { via: *via, interface: Some(interface.as_str()), weight, place })
        };
        match self.nexthops.get(&id).map(|nexthop| &nexthop.target) {
            // A group has no groups as members (nexthop.c, nh_check_attr_group).
            Some(NexthopTarget::Group { members, .. }) => {
                members.iter().filter_map(|member| one(member.id, member.weight.max(1))).collect()
            }
            Some(NexthopTarget::Gateway { .. }) => one(id, 1).into_iter().collect(),
            Some(NexthopTarget::Blackhole) | None => Vec::new(),
        }
    }

    /// Every gateway of every route with the route.
    pub(super) fn all_hops(&self) -> impl Iterator<Item = (&'a RouteEntry, ResolvedHop<'a>)> {
        self.routing.routes.iter().flat_map(|route| self.hops(route).into_iter().map(move |hop| (route, hop)))
    }

    /// Routes over at least two gateways.
    pub(super) fn multipaths(&self) -> impl Iterator<Item = (&'a RouteEntry, Vec<ResolvedHop<'a>>)> {
        let routes = self.routing.routes.iter().map(|route| (route, self.hops(route)));
        routes.filter(|(_, hops)| hops.len() > 1)
    }

    /// Whether an address lies in a network that the host is on; on that
    /// interface where one is given.
    pub(super) fn is_attached(&self, address: IpAddr, interface: Option<&str>) -> bool {
        self.attached.iter().any(|(name, network)| {
            interface.is_none_or(|interface| interface == *name) && network.contains(address)
        })
    }

    /// Whether the host can take packets for others on that are sent to one of
    /// its addresses: it is on the network that they are for, has a route
    /// there, or is on several networks where they may be for any.
    pub(super) fn may_lead(&self, via: IpAddr, destination: Prefix) -> bool {
        let mut beyond = self.attached.iter().filter(|(_, network)| {
            network.address.is_ipv4() == via.is_ipv4() && !network.contains(via) && !is_of_the_link(*network)
        });
        // A route back by the link that packets come from is an end's own.
        let leaves = |hop: &ResolvedHop<'_>| {
            !self.attached.iter().any(|(_, network)| network.contains(via) && network.contains(hop.via))
        };
        let has_route = || {
            let mut routes = self.routing.routes.iter().filter(|route| route.destination.length > 0);
            routes.any(|route| overlap(route.destination, destination) && self.hops(route).iter().any(leaves))
        };
        beyond.any(|(_, network)| destination.length == 0 || overlap(*network, destination)) || has_route()
    }

    /// Whether any address of an interface is known; of any interface for `None`.
    pub(super) fn knows_addresses(&self, interface: Option<&str>, like: IpAddr) -> bool {
        let mut open = self.routing.files.dynamic.iter();
        // More of them come at run time.
        if open.any(|(name, ipv6)| *ipv6 == like.is_ipv6() && interface.is_none_or(|it| it == name)) {
            return false;
        }
        self.attached.iter().any(|(name, network)| {
            interface.is_none_or(|interface| interface == *name)
                && network.address.is_ipv4() == like.is_ipv4()
        })
    }

    /// Whether an interface has single addresses alone, and a tool's files state all of them: it is on no network.
    pub(super) fn is_on_no_network(&self, interface: &str, like: IpAddr) -> bool {
        let ipv6 = like.is_ipv6();
        let files = &self.routing.files;
        let mut interfaces = self.routing.interfaces.iter().filter(|it| it.name == interface);
        let mut addresses = interfaces.clone().flat_map(|it| &it.addresses);
        files.complete.contains(&(interface.to_owned(), ipv6))
            && !files.dynamic.contains(&(interface.to_owned(), ipv6))
            && interfaces.any(|it| it.addresses.iter().any(|own| own.value.address.is_ipv6() == ipv6))
            && addresses.all(|own| {
                own.value.address.is_ipv6() != ipv6 || own.value == Prefix::host(own.value.address)
            })
    }

    /// Whether it forwards what arrives on some interface, by a sysctl of that interface.
    pub(super) fn forwards_on_some(&self, ipv6: bool) -> bool {
        let family = if ipv6 { "ipv6" } else { "ipv4" };
        let mut names = self.routing.interfaces.iter().map(|interface| interface.name.replace('.', "/"));
        names.any(|name| self.number(&format!("net.{family}.conf.{name}.forwarding")) == Some(1))
    }

    /// What brings a route into the kernel.
    pub(super) fn loader(&self, place: Option<&Place>) -> Loader {
        match place {
            _ if self.is_whole() => Loader::Kernel,
            Some(place) => place.by,
            None => Loader::Command,
        }
    }

    /// Whether a rule of a firewall that was read sets a mark.
    pub(super) fn sets_mark(&self, mark: u32) -> bool {
        self.routing.connection_marks.iter().any(|entry| entry.mark == mark)
            || self.routing.files.marks.contains(&mark)
    }

    /// The host's own addresses of the family of `like`.
    pub(super) fn own_like(&self, like: IpAddr) -> impl Iterator<Item = IpAddr> {
        self.own.iter().copied().filter(move |own| own.is_ipv4() == like.is_ipv4())
    }

    /// Own addresses by which hosts on other links reach it.
    pub(super) fn reachable(&self) -> impl Iterator<Item = IpAddr> {
        self.own.iter().copied().filter(|own| !is_of_the_link(Prefix::host(*own)))
    }

    /// Those of the family of `like`.
    pub(super) fn reachable_like(&self, like: IpAddr) -> impl Iterator<Item = IpAddr> {
        self.reachable().filter(move |own| own.is_ipv4() == like.is_ipv4())
    }

    /// Text of a sysctl.
    pub(super) fn sysctl(&self, key: &str) -> Option<&'a Located<String>> {
        self.routing.sysctls.get(key)
    }

    /// A sysctl that is a whole number.
    pub(super) fn number(&self, key: &str) -> Option<i64> {
        self.sysctl(key)?.value.trim().parse().ok()
    }

    /// The seed of the hash that chooses a gateway, where one is set: 0 means random.
    pub(super) fn hash_seed(&self) -> Option<i64> {
        self.number("net.ipv4.fib_multipath_hash_seed").filter(|seed| *seed != 0)
    }

    /// Whether the routing was read completely: objects that it lacks do not exist.
    pub(super) fn is_whole(&self) -> bool {
        self.subject.is_whole
    }

    /// Rules that replace sources of forwarded packets; `None` if a kernel may have
    /// them and they could not be read. Files contain what they set, and a kernel
    /// that tracks no connections translates nothing.
    pub(super) fn source_translations(&self) -> Option<&'a [SourceTranslation]> {
        match &self.routing.source_translations {
            Some(translations) => Some(translations),
            None if self.is_whole() && self.sysctl(CONNECTION_COUNT).is_some() => None,
            None => Some(&[]),
        }
    }

    /// The main table's routes.
    pub(super) fn main(&self) -> &[&'a RouteEntry] {
        self.tables.get(&MAIN_TABLE).map_or(&[], Vec::as_slice)
    }

    /// Tables that some rule refers to.
    pub(super) fn tables_of_rules(&self) -> BTreeSet<u32> {
        let table = |rule: &RuleEntry| match rule.action {
            RuleAction::Table(table) => Some(table),
            RuleAction::Other(_) => None,
        };
        self.routing.rules.iter().filter_map(table).collect()
    }
}

/// Loopback and link-local networks: no two hosts share one by having it (RFC 3927,
/// RFC 4291, section 2.5.6).
pub(crate) fn is_of_the_link(network: Prefix) -> bool {
    match network.address {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

/// Whether a network is one that each host has for itself, as the bridges of
/// container engines are: one address, the same on several hosts. `members` are
/// hosts, by number, with their addresses in it.
pub(super) fn is_private(members: impl Iterator<Item = (usize, IpAddr)>) -> bool {
    let (hosts, addresses): (BTreeSet<usize>, BTreeSet<IpAddr>) = members.unzip();
    hosts.len() > 1 && addresses.len() == 1
}

/// Whether two networks have addresses in common.
pub(super) fn overlap(left: Prefix, right: Prefix) -> bool {
    left.contains(right.address) || right.contains(left.address)
}

/// Whether all of `inner` lies in `outer`.
pub(super) fn covers(outer: Prefix, inner: Prefix) -> bool {
    outer.length <= inner.length && outer.contains(inner.address)
}
