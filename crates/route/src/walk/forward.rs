//! One direction: the lookup of each host on the way, and whether the next one takes
//! the packets and passes them on.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
};

use clearstream_routing::{
    lookup::{Found, Packet, Verdict},
    node::{Node, Received},
};

use super::{Arrival, Branch, End, Hosts, Next, Taken, Translated, Walk};

/// Hosts on a path at most: the TTL that Linux gives (`ip_default_ttl`).
const MOST_HOPS: usize = 64;

/// Header of packets, as their sender makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    /// Mark that the sender gives, 0 for none. No other host sees it.
    pub(crate) mark: u32,
    /// The socket has its source before it looks a route up, as for a reply.
    pub(crate) is_bound: bool,
}

impl Flow {
    /// What the sender looks up. A socket without a source keeps, over IPv6, the route
    /// of the lookup without one; over IPv4 there is a second lookup with it
    /// (`ip_route_connect`). Where IPv6 finds none, the lookup is repeated with the source
    /// (`ip6_dst_lookup_tail`).
    fn looked_up<'a>(&self, node: &Node<'a>) -> Found<'a> {
        let Self { source, destination, mark, is_bound } = *self;
        let find = |source| node.lookup.find(&Packet { source, destination, mark, input: None });
        if !is_bound && destination.is_ipv6() {
            let bare = find(None);
            if bare.verdict != Verdict::NoRoute {
                return bare;
            }
        }
        find(Some(source))
    }
}

/// Walks over hosts.
#[derive(Clone, Copy)]
pub(crate) struct Walker<'w, 'a> {
    pub(crate) hosts: &'w dyn Hosts<'a>,
    /// Hosts that may replace sources do.
    pub(crate) assumes_translation: bool,
}

/// Packets on their way.
pub(super) struct Travel<'a> {
    pub(super) walk: Walk<'a>,
    /// Hosts that they have passed.
    pub(super) trail: Vec<usize>,
    /// Their source now.
    pub(super) source: IpAddr,
    /// Sources that were replaced so far.
    pub(super) translated: Vec<Translated>,
    /// Hosts that were passed, with the interface and the source of what came by it.
    done: HashSet<(usize, &'a str, IpAddr)>,
}

impl<'a> Travel<'a> {
    pub(super) fn at(&self) -> usize {
        self.trail[self.trail.len() - 1]
    }

    fn ends(&mut self, taken: Option<Taken<'a>>, end: End<'a>) {
        let (trail, source) = (self.trail.clone(), self.source);
        self.walk.branches.push(Branch { trail, taken, source, end });
    }
}

impl<'w, 'a> Walker<'w, 'a> {
    pub(crate) fn new(hosts: &'w dyn Hosts<'a>) -> Self {
        Self { hosts, assumes_translation: false }
    }

    /// Follows packets from a host to another by every next hop; of those of the sender
    /// by one in turn alone where `turn` is given.
    pub(crate) fn follow(&self, from: usize, target: usize, flow: Flow, turn: Option<usize>) -> Walk<'a> {
        let found = flow.looked_up(self.hosts.node(from));
        let mut travel = Travel {
            trail: vec![from],
            source: flow.source,
            translated: Vec::new(),
            done: HashSet::new(),
            walk: Walk {
                flow,
                sender: from,
                target,
                found: found.clone(),
                branches: Vec::new(),
                may_translate: BTreeSet::new(),
            },
        };
        let mut taken = found;
        if let (Some(turn), Verdict::Gateways(hops, _)) = (turn, &mut taken.verdict) {
            *hops = hops.get(turn % hops.len().max(1)).copied().into_iter().collect();
        }
        self.step(&mut travel, &taken, None);
        travel.walk
    }

    /// What the last host of the trail found; `by` is how packets came there.
    fn step(&self, travel: &mut Travel<'a>, found: &Found<'a>, by: Option<Taken<'a>>) {
        let at = travel.at();
        let node = self.hosts.node(at);
        match &found.verdict {
            Verdict::Local => travel.ends(by, End::Local),
            Verdict::Unknown(_) => travel.ends(by, End::NotUnderstood),
            Verdict::NoRoute => travel.ends(by, End::NoRoute),
            Verdict::Refused(kind) => {
                travel.ends(by, End::Refused { kind, route: found.route, rule: found.rule });
            }
            Verdict::Link(output) => {
                let before = self.translate(travel, output, travel.walk.flow.destination);
                self.deliver(travel, output, found);
                travel.restore(before);
            }
            Verdict::Gateways(hops, _) => {
                for hop in hops {
                    let Some(output) = node.interface_to(hop.interface, hop.via) else {
                        travel.ends(by, End::NoNextHop);
                        continue;
                    };
                    let before = self.translate(travel, output, hop.via);
                    self.hand_over(travel, Taken { sender: at, route: found.route, via: hop.via, output });
                    travel.restore(before);
                }
            }
        }
    }

    /// The destination as a neighbour.
    fn deliver(&self, travel: &mut Travel<'a>, output: &'a str, found: &Found<'a>) {
        let (at, target, via) = (travel.at(), travel.walk.target, travel.walk.flow.destination);
        let taken = Taken { sender: at, route: found.route, via, output };
        if let Some(input) = self.hosts.neighbour(at, output, target, via) {
            self.arrive(travel, taken, input);
            return;
        }
        let proxies = self.hosts.proxies(at, output, via);
        for (owner, input) in &proxies {
            self.pass(travel, taken, *owner, input);
        }
        if proxies.is_empty() {
            travel.ends(Some(taken), End::NotOnLink { route: found.route, output });
        }
    }

    /// To a next hop.
    fn hand_over(&self, travel: &mut Travel<'a>, taken: Taken<'a>) {
        match self.hosts.next(taken.sender, taken.output, taken.via) {
            Next::Own => travel.ends(Some(taken), End::NoNextHop),
            Next::NotGiven => travel.ends(Some(taken), End::NotGiven),
            Next::OtherSide(owner) => travel.ends(Some(taken), End::OtherSide(owner)),
            Next::Host(owner, input) if owner == travel.walk.target => self.arrive(travel, taken, input),
            Next::Host(owner, input) => self.pass(travel, taken, owner, input),
        }
    }

    /// Through a host that is to forward.
    fn pass(&self, travel: &mut Travel<'a>, taken: Taken<'a>, owner: usize, input: &'a str) {
        if let Some(start) = travel.trail.iter().position(|host| *host == owner) {
            let through = travel.trail[start..].to_vec();
            travel.ends(Some(taken), End::Loop(through));
            return;
        }
        let destination = travel.walk.flow.destination;
        let node = self.hosts.node(owner);
        let may = || self.hosts.may_forward(owner, taken.via, destination);
        if !node.forwards(Some(input), destination.is_ipv6()).unwrap_or_else(may) {
            travel.ends(Some(taken), End::NotForwarded { host: owner, input });
            return;
        }
        if travel.trail.len() > MOST_HOPS || !travel.done.insert((owner, input, travel.source)) {
            return;
        }
        travel.trail.push(owner);
        let source = travel.source;
        let found =
            node.lookup.find(&Packet { source: Some(source), destination, mark: 0, input: Some(input) });
        let takes = |output| {
            node.accepts(&Received { source, destination: Some(destination), mark: 0, input, output })
        };
        if found.verdict == Verdict::Local || node.outputs(&found.verdict).into_iter().all(takes) {
            self.step(travel, &found, Some(taken));
        } else {
            travel.ends(Some(taken), End::Filtered { at: owner, input });
        }
        travel.trail.pop();
    }

    /// At the host that is meant. A mark is the sender's own: the packet arrives without.
    fn arrive(&self, travel: &mut Travel<'a>, taken: Taken<'a>, input: &'a str) {
        let (target, destination) = (travel.walk.target, Some(travel.walk.flow.destination));
        let received = Received { source: travel.source, destination, mark: 0, input, output: None };
        let end = if self.hosts.node(target).accepts(&received) {
            let last = (travel.trail.len() > 1).then_some((taken.sender, taken.output));
            End::Arrived(Arrival { input, last, translated: travel.translated.clone() })
        } else {
            End::Filtered { at: target, input }
        };
        travel.ends(Some(taken), end);
    }
}
