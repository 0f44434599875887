//! One path: from a client by every next hop that it and the hosts between may take
//! to a server, and back. Only the routing of the hosts is considered.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
    ptr,
};

use clearstream_routing::{
    lookup::{Found, Packet, Verdict},
    node::Received,
};
use clearstream_schema::{prefix::Prefix, routing::RouteEntry};

use super::{
    super::view::{covers, is_of_the_link, overlap},
    causes::{Cause, What},
    site::{Next, Site},
    translation::Translated,
};

/// Hosts on a path at most: the TTL that Linux gives (`ip_default_ttl`).
const MOST_HOPS: usize = 64;

/// Outcome for the packets of one pair.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Causes of losses; `true` for those of a reply.
    pub(super) causes: Vec<(Cause, bool)>,
    /// Next hops that no given host has, with their senders.
    pub(super) not_given: BTreeSet<(IpAddr, usize)>,
    /// Hosts with rules that are not understood.
    pub(super) not_understood: BTreeSet<usize>,
    /// A gateway replaces the source of the requests.
    pub(super) is_translated: bool,
    /// Gateways that may do so: their rules depend on more than is read, or
    /// were not read.
    pub(super) may_translate: BTreeSet<usize>,
    /// Only if those do, the rest of this outcome is so.
    pub(super) needs_translation: bool,
}

/// How packets arrive at a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Arrival<'p> {
    /// Interface of the host.
    pub(super) input: &'p str,
    /// The last forwarder, and its interface.
    pub(super) last: Option<(usize, &'p str)>,
    /// Translations of the source, in the order of the gateways.
    pub(super) translated: Vec<Translated>,
}

/// Packets of one source and destination, followed to a host.
pub(super) struct Travel<'p> {
    pub(super) source: IpAddr,
    destination: IpAddr,
    target: usize,
    mark: u32,
    /// Network of the destination.
    network: Prefix,
    /// Hosts that the packet has passed.
    pub(super) trail: Vec<usize>,
    done: HashSet<(usize, &'p str, IpAddr)>,
    /// Sources that were replaced so far.
    pub(super) translated: Vec<Translated>,
    pub(super) may_translate: BTreeSet<usize>,
    pub(super) causes: Vec<Cause>,
    not_given: BTreeSet<(IpAddr, usize)>,
    not_understood: BTreeSet<usize>,
    pub(super) arrivals: BTreeSet<Arrival<'p>>,
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
    /// Gateways that may replace sources do.
    pub(super) assumes_translation: bool,
}

impl<'w, 's, 'a> Walker<'w, 's, 'a> {
    /// For paths of a site, with what is known of its gateways.
    pub(super) fn new(site: &'w Site<'s, 'a>) -> Self {
        Self { site, assumes_translation: false }
    }

    /// A request to an address of a server, and its reply. Where a gateway on the
    /// path may replace sources, only what fails with and without it is a cause.
    pub(super) fn walk(&self, client: usize, server: usize, address: IpAddr) -> Outcome {
        let plain = self.by_any_source(client, server, address);
        if plain.causes.is_empty() || plain.may_translate.is_empty() {
            return plain;
        }
        let assuming = Self { site: self.site, assumes_translation: true };
        let mut outcome = assuming.by_any_source(client, server, address);
        outcome.causes.retain(|cause| plain.causes.contains(cause));
        outcome.needs_translation = outcome.causes.len() < plain.causes.len();
        outcome
    }

    fn by_any_source(&self, client: usize, server: usize, address: IpAddr) -> Outcome {
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
                    && !is_of_the_link(Prefix::host(own.address))
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
                Verdict::Gateways(hops, _) => hops.first().map(|hop| hop.via),
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

    pub(super) fn follow(
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
            translated: Vec::new(),
            may_translate: BTreeSet::new(),
            causes: Vec::new(),
            not_given: BTreeSet::new(),
            not_understood: BTreeSet::new(),
            arrivals: BTreeSet::new(),
        };
        // A request over IPv6 keeps the route of the lookup without a source;
        // over IPv4 there is a second one with it (`ip_route_connect`).
        // Where that finds none, it is repeated with the source (ip6_dst_lookup_tail).
        let bare = Packet { source: None, destination, mark, input: None };
        let is_without_source = is_request
            && destination.is_ipv6()
            && self.site.node(from).lookup.find(&bare).verdict != Verdict::NoRoute;
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
            Verdict::Link(output) => {
                let kept = self.translate(travel, at, output, travel.destination);
                self.deliver(travel, at, output, &found);
                travel.restore(kept);
            }
            Verdict::Gateways(hops, _) => {
                for hop in hops {
                    let Some(output) = node.interface_to(hop.interface, hop.via) else { continue };
                    let kept = self.translate(travel, at, output, hop.via);
                    self.hand_over(travel, Taken { sender: at, route: found.route, via: hop.via, output });
                    travel.restore(kept);
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
                let proxies = self.site.proxies(at, output, travel.destination);
                for (owner, input) in &proxies {
                    let via = travel.destination;
                    self.pass(travel, Taken { sender: at, route: found.route, via, output }, *owner, input);
                }
                if proxies.is_empty() {
                    let (route, network) = (self.number_of(at, found.route), travel.network);
                    travel.stop(at, What::NotOnLink { route, interface: output.to_owned(), network });
                }
            }
        }
    }

    /// To a next hop.
    fn hand_over(&self, travel: &mut Travel<'a>, taken: Taken<'a>) {
        let Taken { sender, via, output, .. } = taken;
        match self.site.next(sender, output, via) {
            // Refused by the kernel, or reported by the rule about own addresses.
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
        if travel.trail.len() > MOST_HOPS || !travel.done.insert((owner, input, travel.source)) {
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
            let translated = travel.translated.clone();
            travel.arrivals.insert(Arrival { input, last, translated });
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
        // Only the fabric names every gateway; else it may be a host that was not given.
        let fabric = &self.site.facts.fabric;
        let is_unowned = fabric.gateway(via).is_none()
            && (fabric.networks.iter().any(|it| it.prefix.contains(via))
                || self.leads_nowhere(travel, taken));
        match self.number_of(sender, taken.route).filter(|_| is_unowned) {
            Some(route) => travel.stop(sender, What::NobodyHas { route, via, network }),
            None => drop(travel.not_given.insert((via, sender))),
        }
    }

    /// Whether a client's route leads to nobody although gateways to the network were
    /// given: no given host is a next hop of its routes there, and the reply would come by given
    /// hosts. A router or a virtual address (VRRP) that is not in the files would be the
    /// next hop of replies too.
    fn leads_nowhere(&self, travel: &Travel<'a>, taken: Taken<'a>) -> bool {
        let (site, network) = (self.site, travel.network);
        let Some(route) = taken.route.filter(|_| travel.trail.len() == 1) else { return false };
        let is_given =
            |via: IpAddr| site.facts.owner(via).is_some() || site.facts.fabric.gateway(via).is_some();
        let view = site.view(taken.sender);
        let mut routes = view
            .routing
            .routes
            .iter()
            .filter(|it| it.destination.length > 0 && overlap(it.destination, network));
        // Behind a default route may be any router, and beside a given gateway another one.
        if route.destination.length == 0
            || routes.any(|route| view.hops(route).iter().any(|hop| is_given(hop.via)))
        {
            return false;
        }
        let near = site.networks_of(taken.sender).filter(|near| near.contains(taken.via));
        let gateways: Vec<usize> =
            near.flat_map(|near| site.gateways_between(near, network)).map(|(host, _)| host).collect();
        let (source, destination) = (Some(travel.destination), travel.source);
        let back = Packet { source, destination, mark: 0, input: None };
        let is_reached = match site.node(travel.target).lookup.find(&back).verdict {
            Verdict::Gateways(hops, _) => hops.iter().all(|hop| is_given(hop.via)),
            Verdict::NoRoute => {
                let translates = |host: &usize| site.view(*host).source_translations() != Some(&[]);
                !gateways.iter().any(translates)
            }
            _ => false,
        };
        is_reached && !gateways.is_empty()
    }

    /// A wider route leads what a route to part of the network leaves out to a host
    /// that was not given.
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
    pub(super) fn take(&mut self, travel: Travel<'_>, is_reply: bool) {
        let causes = travel.causes.into_iter().map(|cause| (cause, is_reply));
        for cause in causes {
            if !self.causes.iter().any(|known| known.0 == cause.0) {
                self.causes.push(cause);
            }
        }
        self.not_given.extend(travel.not_given);
        self.not_understood.extend(travel.not_understood);
        self.may_translate.extend(travel.may_translate);
    }
}
