//! One path: from a client by every next hop that it and the hosts between may
//! take to a server, and back. Only what hosts route by is looked at.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
    ptr,
};

use clearstream_schema::{prefix::Prefix, routing::RouteEntry};

use super::{
    super::view::covers,
    causes::{Cause, Evidence, What},
    site::{Next, Site},
};
use crate::forwarding::{
    lookup::{Found, Packet, Verdict},
    node::Received,
};

/// Hosts on a path at most: the TTL that Linux gives (`ip_default_ttl`).
const MOST_HOPS: usize = 64;

/// What became of the packets of one pair.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Why some do not arrive; `true` for those of a reply.
    pub(super) causes: Vec<(Cause, bool)>,
    /// Next hops that no given host has, with who sends to them.
    pub(super) not_given: BTreeSet<(IpAddr, usize)>,
    /// Hosts with rules that are not understood.
    pub(super) not_understood: BTreeSet<usize>,
}

/// Packets of one source and destination, followed to a host.
struct Travel<'p> {
    source: IpAddr,
    destination: IpAddr,
    target: usize,
    mark: u32,
    /// Network of the destination.
    network: Prefix,
    /// Hosts that the packet has passed.
    trail: Vec<usize>,
    done: HashSet<(usize, &'p str)>,
    causes: Vec<Cause>,
    not_given: BTreeSet<(IpAddr, usize)>,
    not_understood: BTreeSet<usize>,
    /// Interfaces of arrival, with the last forwarder and its interface.
    arrivals: BTreeSet<(&'p str, Option<(usize, &'p str)>)>,
}

/// The sender's choice that brought a packet to a host.
#[derive(Clone, Copy)]
struct Taken<'r> {
    sender: usize,
    route: Option<&'r RouteEntry>,
    via: IpAddr,
    output: &'r str,
}

/// Walks paths of a site.
pub(super) struct Walker<'w, 's, 'a> {
    pub(super) site: &'w Site<'s, 'a>,
}

impl<'a> Walker<'_, '_, 'a> {
    /// A request to an address of a server, and its reply.
    pub(super) fn walk(&self, client: usize, server: usize, address: IpAddr) -> Outcome {
        let mut first = None;
        for source in self.sources(client, address) {
            let outcome = self.there_and_back(client, server, source, address);
            if outcome.causes.is_empty() {
                return outcome;
            }
            first.get_or_insert(outcome);
        }
        first.unwrap_or_default()
    }

    /// Source addresses that the kernel may choose: that of the route, else one
    /// of the interface (`inet_select_addr`, RFC 6724).
    fn sources(&self, client: usize, address: IpAddr) -> Vec<IpAddr> {
        let node = self.site.node(client);
        let found = node.lookup.find(&Packet { source: None, destination: address, mark: 0, input: None });
        if let Some(source) = found.route.and_then(|route| route.source) {
            return vec![source];
        }
        let outputs = node.outputs(&found.verdict);
        let own = |is_plain: bool| {
            let interfaces = node.routing.interfaces.iter().filter(|interface| {
                outputs.is_empty()
                    || outputs.iter().any(|output| output.is_none_or(|it| it == interface.name))
            });
            let addresses = interfaces.flat_map(|interface| &interface.addresses);
            let addresses = addresses.map(|own| own.value).filter(move |own| {
                own.address.is_ipv4() == address.is_ipv4()
                    && is_global(own.address)
                    && (!is_plain || *own != Prefix::host(own.address))
            });
            addresses.map(|own| own.address).collect::<Vec<_>>()
        };
        let mut sources = own(true);
        if sources.is_empty() {
            sources = own(false);
        }
        // IPv4 takes the first address of the network of the next hop; which one
        // IPv6 takes of several also depends on their age.
        if address.is_ipv4() {
            let towards = match &found.verdict {
                Verdict::Gateways(ways, _) => ways.first().map(|way| way.via),
                _ => Some(address),
            };
            let is_near = |source: &&IpAddr| {
                let mut near = node.attached.iter().filter(|(_, network)| network.contains(**source));
                near.any(|(_, network)| towards.is_some_and(|towards| network.contains(towards)))
            };
            let nearest = sources.iter().find(is_near).or(sources.first()).copied();
            return nearest.into_iter().collect();
        }
        sources
    }

    fn there_and_back(&self, client: usize, server: usize, source: IpAddr, address: IpAddr) -> Outcome {
        let mut outcome = Outcome::default();
        let there = self.follow(client, source, address, server, 0, true);
        let arrivals = there.arrivals.clone();
        outcome.take(there, false);
        let mut marks = BTreeSet::new();
        for (input, last) in arrivals {
            marks.insert(self.marks(server, input, last));
        }
        for marks in marks {
            let mut first = None;
            for mark in marks {
                let mut back = self.follow(server, address, source, client, mark, false);
                if back.causes.is_empty() {
                    outcome.take(back, true);
                    first = None;
                    break;
                }
                // Where the mark is not known, one route back that works is enough.
                back.causes.dedup();
                first.get_or_insert(back);
            }
            if let Some(back) = first {
                outcome.take(back, true);
            }
        }
        outcome
    }

    /// Marks that a reply may carry to what arrived by an interface.
    fn marks(&self, server: usize, input: &str, last: Option<(usize, &str)>) -> Vec<u32> {
        let routing = self.site.view(server).routing;
        let mut selected = routing.rules.iter().filter_map(|rule| rule.selector.mark).peekable();
        if selected.peek().is_none() {
            return vec![0];
        }
        if routing.connection_marks.is_empty() {
            // Of a host the firewall is not read: any mark of a rule may be set.
            return std::iter::once(0).chain(selected.map(|(mark, mask)| mark & mask)).collect();
        }
        let Some((gateway, output)) = last else { return vec![0] };
        let mut interfaces = self.site.view(gateway).routing.interfaces.iter();
        let sends = interfaces.find(|interface| interface.name == output);
        let hardware = sends.and_then(|interface| interface.link_address.as_deref());
        let on_it = || routing.connection_marks.iter().filter(|mark| mark.interface == input);
        let came_by = on_it().find(|mark| match hardware {
            Some(address) if !mark.link_address.is_empty() => mark.link_address.eq_ignore_ascii_case(address),
            _ => mark.gateway == self.site.name(gateway),
        });
        match came_by {
            Some(mark) => vec![mark.mark],
            None if hardware.is_some() => vec![0],
            None => std::iter::once(0).chain(on_it().map(|mark| mark.mark)).collect(),
        }
    }

    fn follow(
        &self,
        from: usize,
        source: IpAddr,
        destination: IpAddr,
        target: usize,
        mark: u32,
        is_request: bool,
    ) -> Travel<'a> {
        let network = self.site.network_of(destination).unwrap_or(Prefix::host(destination));
        let mut travel = Travel {
            source,
            destination,
            target,
            mark,
            network,
            trail: vec![from],
            done: HashSet::new(),
            causes: Vec::new(),
            not_given: BTreeSet::new(),
            not_understood: BTreeSet::new(),
            arrivals: BTreeSet::new(),
        };
        // A request over IPv6 keeps the route of the lookup without a source;
        // over IPv4 there is a second one with it (`ip_route_connect`).
        let is_without_source = is_request && destination.is_ipv6();
        let packet =
            Packet { source: (!is_without_source).then_some(source), destination, mark, input: None };
        self.step(&mut travel, from, &packet, None);
        travel
    }

    /// The lookup of one host on the path.
    fn step(&self, travel: &mut Travel<'a>, at: usize, packet: &Packet<'a>, taken: Option<Taken<'a>>) {
        let node = self.site.node(at);
        let found = node.lookup.find(packet);
        if let (Some(input), false) = (packet.input, matches!(found.verdict, Verdict::Local)) {
            let passes = node.outputs(&found.verdict).into_iter().all(|output| {
                let (source, destination) = (travel.source, Some(travel.destination));
                node.accepts(&Received { source, destination, mark: 0, input, output })
            });
            if !passes {
                self.filtered(travel, at, input);
                return;
            }
        }
        match &found.verdict {
            Verdict::Local => {}
            Verdict::Unknown(_) => {
                travel.not_understood.insert(at);
            }
            Verdict::NoRoute => self.no_route(travel, at, taken),
            Verdict::Refused(kind) => {
                let what = What::Refuses {
                    kind,
                    route: self.number_of(at, found.route),
                    rule: found.rule.and_then(|rule| {
                        self.site.view(at).routing.rules.iter().position(|other| ptr::eq(other, rule))
                    }),
                    network: travel.network,
                };
                travel.stop(at, what);
            }
            Verdict::Link(output) => self.deliver(travel, at, output, &found),
            Verdict::Gateways(ways, _) => {
                for way in ways {
                    let Some(output) = node.interface_to(way.interface, way.via) else { continue };
                    self.hand_over(travel, Taken { sender: at, route: found.route, via: way.via, output });
                }
                self.note_left_out(travel, at, &found);
            }
        }
    }

    /// The destination as a neighbour.
    fn deliver(&self, travel: &mut Travel<'a>, at: usize, output: &'a str, found: &Found<'a>) {
        match self.site.adjacent(at, output, travel.target, travel.destination) {
            Some(input) => {
                let last = (travel.trail.len() > 1).then_some((at, output));
                self.arrive(travel, input, last);
            }
            None => {
                let route = self.number_of(at, found.route);
                let network = travel.network;
                travel.stop(at, What::NotOnLink { route, interface: output.to_owned(), network });
            }
        }
    }

    /// To a next hop.
    fn hand_over(&self, travel: &mut Travel<'a>, taken: Taken<'a>) {
        let Taken { sender, via, output, .. } = taken;
        match self.site.next(sender, output, via) {
            // What the kernel refuses, or what the rule of own addresses says.
            Next::Own => {}
            Next::NotGiven => self.not_given(travel, taken),
            Next::OtherSide(owner) => self.wrong_gateway(travel, taken, owner),
            Next::Host(owner, input) if owner == travel.target => {
                let last = (travel.trail.len() > 1).then_some((sender, output));
                self.arrive(travel, input, last);
            }
            Next::Host(owner, input) => self.pass(travel, taken, owner, input),
        }
    }

    /// Through a host that is to forward.
    fn pass(&self, travel: &mut Travel<'a>, taken: Taken<'a>, owner: usize, input: &'a str) {
        if let Some(start) = travel.trail.iter().position(|host| *host == owner) {
            let mut through = travel.trail[start..].to_vec();
            let least = (0..through.len()).min_by_key(|at| through[*at]).unwrap_or(0);
            through.rotate_left(least);
            let at = through[0];
            let found = self.site.node(at).lookup.find(&Packet {
                source: Some(travel.source),
                destination: travel.destination,
                mark: 0,
                input: None,
            });
            let route = self.number_of(at, found.route);
            travel.stop(at, What::Loop { route, through, network: travel.network });
            return;
        }
        let ipv6 = travel.destination.is_ipv6();
        let forwards = self.site.node(owner).forwards(Some(input), ipv6);
        if forwards != Some(true) && !self.site.view(owner).may_lead(taken.via, travel.network) {
            self.wrong_gateway(travel, taken, owner);
            return;
        }
        if forwards == Some(false) {
            travel.stop(owner, What::DoesNotForward { ipv6 });
            return;
        }
        if travel.trail.len() > MOST_HOPS || !travel.done.insert((owner, input)) {
            return;
        }
        travel.trail.push(owner);
        let packet = Packet {
            source: Some(travel.source),
            destination: travel.destination,
            mark: 0,
            input: Some(input),
        };
        self.step(travel, owner, &packet, Some(taken));
        travel.trail.pop();
    }

    fn arrive(&self, travel: &mut Travel<'a>, input: &'a str, last: Option<(usize, &'a str)>) {
        let (source, destination, mark) = (travel.source, Some(travel.destination), travel.mark);
        let received = Received { source, destination, mark, input, output: None };
        if self.site.node(travel.target).accepts(&received) {
            travel.arrivals.insert((input, last));
        } else {
            self.filtered(travel, travel.target, input);
        }
    }

    fn filtered(&self, travel: &mut Travel<'a>, at: usize, input: &str) {
        let network = self.site.network_of(travel.source).unwrap_or(Prefix::host(travel.source));
        // Not the sender's fault, whichever end it is.
        let what = What::Filtered { interface: input.to_owned(), network };
        let is_end = at == travel.target;
        travel.causes.push(Cause { at, is_end, what });
    }

    fn no_route(&self, travel: &mut Travel<'a>, at: usize, taken: Option<Taken<'a>>) {
        let network = travel.network;
        if let Some(route) = self.site.partial_route(at, network) {
            travel.stop(at, What::LeavesOut { route, network, is_certain: true });
            return;
        }
        match taken {
            Some(taken)
                if !self.site.view(at).may_lead(taken.via, network)
                    && self.site.is_odd_choice(taken.sender, taken.via, network) =>
            {
                self.wrong_gateway(travel, taken, at);
            }
            _ => travel.stop(at, What::NoRoute { network }),
        }
    }

    fn wrong_gateway(&self, travel: &mut Travel<'a>, taken: Taken<'a>, owner: usize) {
        let Some(route) = self.number_of(taken.sender, taken.route) else { return };
        let network = travel.network;
        travel.stop(taken.sender, What::WrongGateway { route, via: taken.via, owner, network });
    }

    /// A next hop that no given host has.
    fn not_given(&self, travel: &mut Travel<'a>, taken: Taken<'a>) {
        let Taken { sender, via, .. } = taken;
        let network = travel.network;
        if let Some(gateway) = self.site.facts.fabric.gateway(via)
            && let Some(owner) =
                self.site.facts.hosts.iter().position(|host| host.subject.name == gateway.name)
            && self.site.view(owner).knows_addresses(None, via)
        {
            travel.stop(owner, What::LacksAddress { via });
            return;
        }
        match (self.number_of(sender, taken.route), self.evidence(taken, network)) {
            (Some(route), Some(evidence)) => {
                travel.stop(sender, What::NobodyHas { route, via, network, evidence });
            }
            _ => {
                travel.not_given.insert((via, sender));
            }
        }
    }

    /// Why a next hop that no given host has is nobody's; `None` where it may
    /// be a host that was not given.
    fn evidence(&self, taken: Taken<'a>, network: Prefix) -> Option<Evidence> {
        let Taken { sender, via, .. } = taken;
        let fabric = &self.site.facts.fabric;
        if fabric.networks.iter().any(|it| it.prefix.contains(via)) {
            return fabric.gateway(via).is_none().then_some(Evidence::Fabric);
        }
        let view = self.site.view(sender);
        let used = taken.route.map(|route| view.hops(route)).unwrap_or_default();
        let near: Vec<Prefix> = self.site.networks_of(sender).filter(|near| near.contains(via)).collect();
        if near.iter().any(|near| self.site.are_all_gateways_given(*near, network)) {
            return Some(Evidence::AllGiven);
        }
        let mut gateways = near.iter().flat_map(|near| self.site.gateways_between(*near, network));
        let is_left_out = gateways.any(|(_, gateway)| !used.iter().any(|hop| hop.via == gateway));
        is_left_out.then_some(Evidence::LeftOut)
    }

    /// A wider route takes what a route to part of the network leaves out to
    /// where nobody was given.
    fn note_left_out(&self, travel: &mut Travel<'a>, at: usize, found: &Found<'a>) {
        let network = travel.network;
        let is_wider = found.route.is_some_and(|route| {
            route.destination.length < network.length && covers(route.destination, network)
        });
        let is_lost = travel.arrivals.is_empty() && travel.causes.is_empty() && !travel.not_given.is_empty();
        if is_wider
            && is_lost
            && travel.trail.len() == 1
            && let Some(route) = self.site.partial_route(at, network)
        {
            travel.not_given.clear();
            travel.stop(at, What::LeavesOut { route, network, is_certain: false });
        }
    }

    fn number_of(&self, host: usize, route: Option<&RouteEntry>) -> Option<usize> {
        let route = route?;
        self.site.view(host).routing.routes.iter().position(|other| ptr::eq(other, route))
    }
}

impl Travel<'_> {
    fn stop(&mut self, at: usize, what: What) {
        let is_end = at == self.trail[0];
        self.causes.push(Cause { at, is_end, what });
    }
}

impl Outcome {
    fn take(&mut self, travel: Travel<'_>, is_reply: bool) {
        let causes = travel.causes.into_iter().map(|cause| (cause, is_reply));
        for cause in causes {
            if !self.causes.iter().any(|known| known.0 == cause.0) {
                self.causes.push(cause);
            }
        }
        self.not_given.extend(travel.not_given);
        self.not_understood.extend(travel.not_understood);
    }
}

fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_loopback() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}
