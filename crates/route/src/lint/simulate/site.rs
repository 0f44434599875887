//! The given hosts as one site: shared networks, owners of addresses, forwarders,
//! and routes of files that the kernel refuses.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
};

use clearstream_routing::{lookup::Packet, node::Node};
use clearstream_schema::{
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteEntry, SourceTranslation},
};

use super::super::{
    Facts, View,
    rules::is_refused,
    view::{covers, is_of_the_link, is_private, overlap},
};
use crate::walk::{Hosts, Next};

/// An address of a host in a network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) host: usize,
    pub(super) address: IpAddr,
    /// Position among the host's own addresses.
    pub(super) position: usize,
}

/// The given hosts and their relations.
#[derive(Debug)]
pub(super) struct Site<'s, 'a> {
    pub(super) facts: &'s Facts<'a>,
    /// Nodes of hosts some of whose routes the kernel refuses.
    reduced: HashMap<usize, Node<'a>>,
    owners: HashMap<IpAddr, Vec<usize>>,
    pub(super) networks: BTreeMap<Prefix, Vec<Member>>,
    /// By host and family: it forwards for others, so that it is no end of paths.
    gateways: Vec<[bool; 2]>,
}

impl<'s, 'a> Site<'s, 'a> {
    pub(super) fn new(facts: &'s Facts<'a>) -> Self {
        let mut owners: HashMap<IpAddr, Vec<usize>> = HashMap::new();
        let mut networks: BTreeMap<Prefix, Vec<Member>> = BTreeMap::new();
        let mut reduced = HashMap::new();
        for (host, view) in facts.hosts.iter().enumerate() {
            for address in view.own.iter().filter(|own| !own.is_loopback()) {
                owners.entry(*address).or_default().push(host);
            }
            for (position, (address, network)) in addresses(view).enumerate() {
                networks.entry(network).or_default().push(Member { host, address, position });
            }
            let is_accepted = |route: &'a RouteEntry| !is_refused(facts, view, route);
            if !view.is_whole() && !view.routing.routes.iter().all(is_accepted) {
                let lookup = view.subject.lookup(view.prefers_source, is_accepted);
                reduced.insert(host, Node::with(view.routing, lookup));
            }
        }
        networks.retain(|_, members| !is_private(members.iter().map(|member| (member.host, member.address))));
        let mut site = Self { facts, reduced, owners, networks, gateways: Vec::new() };
        site.gateways =
            (0..facts.hosts.len()).map(|host| [false, true].map(|ipv6| site.carries(host, ipv6))).collect();
        site
    }

    pub(super) fn view(&self, host: usize) -> &'s View<'a> {
        &self.facts.hosts[host]
    }

    pub(super) fn name(&self, host: usize) -> &'s str {
        &self.view(host).subject.name
    }

    /// The host with the routes that its kernel takes.
    pub(super) fn node(&self, host: usize) -> &Node<'a> {
        self.reduced.get(&host).unwrap_or(&self.view(host).node)
    }

    /// Routes over gateways that the kernel refuses.
    pub(super) fn refuses(&self, host: usize, route: &'a RouteEntry) -> bool {
        self.reduced.contains_key(&host) && is_refused(self.facts, self.view(host), route)
    }

    /// It forwards for others, so that it is no end of paths.
    pub(super) fn is_gateway(&self, host: usize, ipv6: bool) -> bool {
        self.gateways[host][usize::from(ipv6)]
    }

    fn carries(&self, host: usize, ipv6: bool) -> bool {
        let view = self.view(host);
        if self.facts.fabric.is_gateway(&view.subject.name)
            || self.facts.fabric.is_gateway(&view.routing.host)
        {
            return true;
        }
        let mut own = view.own.iter().filter(|own| own.is_ipv6() == ipv6);
        let is_next_hop = own.any(|own| {
            let senders = self.facts.senders.get(own);
            senders.is_some_and(|senders| senders.iter().any(|sender| sender.host != host))
        });
        let networks = self.networks_of(host).filter(|network| network.address.is_ipv6() == ipv6);
        is_next_hop && (networks.count() > 1 || view.node.forwards(None, ipv6) == Some(true))
    }

    /// Networks that a host is on and that it shares or may share with others.
    pub(super) fn networks_of(&self, host: usize) -> impl Iterator<Item = Prefix> {
        let attached: BTreeSet<Prefix> =
            self.view(host).attached.iter().map(|(_, network)| *network).collect();
        attached.into_iter().filter(|network| self.networks.contains_key(network))
    }

    /// Networks of an interface.
    fn on(&self, host: usize, interface: &str) -> impl Iterator<Item = Prefix> {
        let attached = self.view(host).attached.iter().filter(move |(name, _)| *name == interface);
        attached.map(|(_, network)| *network).filter(|network| self.networks.contains_key(network))
    }

    pub(super) fn is_on(&self, host: usize, network: Prefix) -> bool {
        self.view(host).attached.iter().any(|(_, attached)| *attached == network)
    }

    /// The network of an address that some host has.
    pub(super) fn network_of(&self, address: IpAddr) -> Option<Prefix> {
        let containing = self.networks.keys().filter(|network| network.contains(address));
        containing.copied().max_by_key(|network| network.length)
    }

    /// Given hosts that may forward from one network to another: their
    /// addresses in the first.
    pub(super) fn gateways_between(&self, from: Prefix, to: Prefix) -> Vec<(usize, IpAddr)> {
        let members = self.networks.get(&from).map_or(&[][..], Vec::as_slice);
        let mut seen = BTreeSet::new();
        let leads = |member: &&Member| {
            self.node(member.host).forwards(None, to.address.is_ipv6()) == Some(true)
                && self.is_on(member.host, to)
                && seen.insert(member.host)
        };
        members.iter().filter(leads).map(|member| (member.host, member.address)).collect()
    }

    /// Whether fewer than half of the ends on a host's networks send by a next hop
    /// to a network, so that these, and not the next hop, are wrong.
    pub(super) fn is_odd_choice(&self, sender: usize, via: IpAddr, network: Prefix) -> bool {
        let ipv6 = via.is_ipv6();
        let near = self.networks_of(sender).find(|near| near.contains(via));
        let Some(members) = near.and_then(|near| self.networks.get(&near)) else { return false };
        let ends: BTreeSet<usize> =
            members.iter().map(|member| member.host).filter(|host| !self.is_gateway(*host, ipv6)).collect();
        let sends = |host: &&usize| {
            let view = self.view(**host);
            let mut routes = view.routing.routes.iter().filter(|route| overlap(route.destination, network));
            routes.any(|route| view.hops(route).iter().any(|hop| hop.via == via))
        };
        ends.iter().filter(sends).count() * 2 < ends.len()
    }

    /// A route to part of a network only, over gateways, that is no single
    /// address: what a prefix too long leaves out.
    pub(super) fn partial_route(&self, host: usize, network: Prefix) -> Option<usize> {
        let view = self.view(host);
        let used_tables = view.tables_of_rules();
        view.routing.routes.iter().position(|route| {
            let destination = route.destination;
            destination.length > network.length
                && destination != Prefix::host(destination.address)
                && covers(network, destination)
                && (route.table == MAIN_TABLE || used_tables.contains(&route.table))
                && !view.hops(route).is_empty()
        })
    }
}

/// The site as the walker sees it. Hosts of files are known in part: the networks of
/// their interfaces, whether they forward and what their firewalls do may be unknown.
impl<'a> Hosts<'a> for Site<'_, 'a> {
    fn node(&self, host: usize) -> &Node<'a> {
        Site::node(self, host)
    }

    fn name(&self, host: usize) -> &str {
        Site::name(self, host)
    }

    fn next(&self, at: usize, output: &'a str, via: IpAddr) -> Next<'a> {
        let owners = self.owners.get(&via).map_or(&[][..], Vec::as_slice);
        if owners.contains(&at) {
            return Next::Own;
        }
        let reached =
            owners.iter().find_map(|owner| Some((*owner, self.neighbour(at, output, *owner, via)?)));
        match (reached, owners) {
            (Some((owner, input)), _) => Next::Host(owner, input),
            (None, [owner, ..]) => Next::OtherSide(*owner),
            (None, []) => Next::NotGiven,
        }
    }

    /// Where the networks of the sender's interface are not known, the one with the address.
    fn neighbour(&self, at: usize, output: &str, other: usize, to: IpAddr) -> Option<&'a str> {
        let mine: Vec<Prefix> = self.on(at, output).collect();
        let with_address = self.view(other).node.interface_with(to);
        if mine.is_empty() {
            return with_address;
        }
        let is_shared = |name: &str| {
            self.on(other, name).any(|network| mine.iter().any(|own| overlap(*own, network)))
                || with_address == Some(name) && mine.iter().any(|own| own.contains(to))
        };
        let names = self.view(other).routing.interfaces.iter().map(|interface| interface.name.as_str());
        with_address.filter(|name| is_shared(name)).or_else(|| names.into_iter().find(|name| is_shared(name)))
    }

    /// Those that forward to it by another interface (ip-sysctl.rst, `proxy_arp`,
    /// `proxy_ndp`).
    fn proxies(&self, at: usize, output: &str, to: IpAddr) -> Vec<(usize, &'a str)> {
        let leads = |host: usize, input: &str| {
            let node = self.node(host);
            let packet = Packet { source: None, destination: to, mark: 0, input: Some(input) };
            let outputs = node.outputs(&node.lookup.find(&packet).verdict);
            node.forwards(Some(input), to.is_ipv6()) == Some(true)
                && outputs.iter().any(|output| output.is_some_and(|output| output != input))
        };
        let mine: Vec<Prefix> = self.on(at, output).collect();
        let hosts = (0..self.facts.hosts.len()).filter(|host| *host != at);
        let inputs = hosts.flat_map(|host| {
            let interfaces = self.view(host).routing.interfaces.iter();
            interfaces.map(move |interface| (host, interface.name.as_str()))
        });
        let is_proxy = |(host, input): &(usize, &str)| {
            self.node(*host).is_proxy(input, to.is_ipv6())
                && self.on(*host, input).any(|network| mine.contains(&network))
                && leads(*host, input)
        };
        inputs.filter(is_proxy).collect()
    }

    fn may_forward(&self, host: usize, via: IpAddr, destination: IpAddr) -> bool {
        let network = self.network_of(destination).unwrap_or(Prefix::host(destination));
        self.view(host).may_lead(via, network)
    }

    fn source_translations(&self, host: usize) -> Option<&'a [SourceTranslation]> {
        self.view(host).source_translations()
    }

    fn knows_marks(&self) -> bool {
        false
    }
}

/// Addresses that may be ends of paths, each with the network that it is in.
pub(super) fn addresses<'v>(view: &'v View<'_>) -> impl Iterator<Item = (IpAddr, Prefix)> + use<'v> {
    view.routing.interfaces.iter().filter(|interface| interface.name != "lo").flat_map(|interface| {
        interface.addresses.iter().filter_map(|address| {
            let address = address.value.address;
            let mut networks = view.attached.iter().filter(|(name, _)| *name == interface.name);
            let network = networks.find(|(_, network)| network.contains(address))?.1;
            (!is_of_the_link(Prefix::host(address))).then_some((address, network))
        })
    })
}
