//! What the ends of a walk say about hosts: causes of losses, and paths that cannot
//! be followed. An end is where packets are lost; the mistake may be another host's.

use std::{net::IpAddr, ptr};

use clearstream_routing::lookup::{Packet, Verdict};
use clearstream_schema::{prefix::Prefix, routing::RouteEntry};

use super::{
    super::view::{covers, overlap},
    causes::{Cause, What},
    pair::{Outcome, Pair},
    site::Site,
};
use crate::walk::{Branch, End, Taken, Walk};

/// Explains the ends of a walk of a pair's packets.
pub(super) fn explain(pair: &Pair<'_, '_, '_>, walk: &Walk<'_>, is_reply: bool) -> Outcome {
    let destination = walk.flow.destination;
    let network = pair.site.network_of(destination).unwrap_or(Prefix::host(destination));
    let outcome = Outcome { may_translate: walk.may_translate.clone(), ..Outcome::default() };
    let mut explainer = Explainer { pair, site: pair.site, walk, network, is_reply, outcome };
    for branch in &walk.branches {
        explainer.branch(branch);
    }
    explainer.note_left_out();
    explainer.outcome
}

struct Explainer<'e, 's, 'a> {
    pair: &'e Pair<'e, 's, 'a>,
    site: &'e Site<'s, 'a>,
    walk: &'e Walk<'a>,
    /// Network of the destination.
    network: Prefix,
    is_reply: bool,
    outcome: Outcome,
}

impl<'a> Explainer<'_, '_, 'a> {
    fn branch(&mut self, branch: &Branch<'a>) {
        let (network, at) = (self.network, branch.trail[branch.trail.len() - 1]);
        match (&branch.end, branch.taken) {
            // Refused by the kernel, or reported by the rule about own addresses.
            (End::Arrived(_) | End::Local | End::NoNextHop, _) => {}
            (End::NotUnderstood, _) => drop(self.outcome.not_understood.insert(at)),
            (End::NoRoute, taken) => self.no_route(at, taken),
            (End::Refused { kind, route, rule }, _) => {
                let rules = || self.site.view(at).routing.rules.iter();
                let rule = rule.and_then(|rule| rules().position(|other| ptr::eq(other, rule)));
                let route = self.number_of(at, *route);
                self.stop(at, What::Refuses { kind, route, rule, network });
            }
            (End::Filtered { at, input }, _) => self.filtered(*at, input, branch.source),
            (End::NotOnLink { route, output }, _) => {
                let (route, interface) = (self.number_of(at, *route), (*output).to_owned());
                self.stop(at, What::NotOnLink { route, interface, network });
            }
            (End::Loop(through), _) => self.loops(through, branch.source),
            (End::NotForwarded { host, .. }, Some(taken)) => {
                if self.site.view(*host).may_lead(taken.via, network) {
                    self.stop(*host, What::DoesNotForward { ipv6: network.address.is_ipv6() });
                } else {
                    self.wrong_gateway(taken, *host);
                }
            }
            (End::OtherSide(owner), Some(taken)) => self.wrong_gateway(taken, *owner),
            (End::NotGiven, Some(taken)) => self.not_given(branch, taken),
            (End::NotForwarded { .. } | End::OtherSide(_) | End::NotGiven, None) => {}
        }
    }

    /// Packets are lost by a host's mistake; it is an end where it is their sender.
    fn stop(&mut self, at: usize, what: What) {
        self.lose(at, at == self.walk.sender, what);
    }

    fn lose(&mut self, at: usize, is_end: bool, what: What) {
        // A gateway that replaces sources is no end point that represents its class.
        let is_end = is_end && (at == self.pair.client || at == self.pair.server);
        self.outcome.add(Cause { at, is_end, what }, self.is_reply);
    }

    /// Not the sender's fault, whichever end it is.
    fn filtered(&mut self, at: usize, input: &str, source: IpAddr) {
        let network = self.site.network_of(source).unwrap_or(Prefix::host(source));
        let what = What::Filtered { interface: input.to_owned(), network };
        self.lose(at, at == self.walk.target, what);
    }

    /// A loop is the same one wherever packets come into it.
    fn loops(&mut self, through: &[usize], source: IpAddr) {
        let mut through = through.to_vec();
        let least = (0..through.len()).min_by_key(|at| through[*at]).unwrap_or(0);
        through.rotate_left(least);
        let at = through[0];
        let packet = Packet::sent(source, self.walk.flow.destination);
        let route = self.number_of(at, self.site.node(at).lookup.find(&packet).route);
        self.stop(at, What::Loop { route, through, network: self.network });
    }

    fn no_route(&mut self, at: usize, taken: Option<Taken<'a>>) {
        let network = self.network;
        if let Some(route) = self.site.partial_route(at, network) {
            self.stop(at, What::LeavesOut { route, network, is_certain: true });
            return;
        }
        match taken {
            Some(taken)
                if !self.site.view(at).may_lead(taken.via, network)
                    && self.site.is_odd_choice(taken.sender, taken.via, network) =>
            {
                self.wrong_gateway(taken, at);
            }
            _ => self.stop(at, What::NoRoute { network }),
        }
    }

    fn wrong_gateway(&mut self, taken: Taken<'a>, owner: usize) {
        let Some(route) = self.number_of(taken.sender, taken.route) else { return };
        let network = self.network;
        self.stop(taken.sender, What::WrongGateway { route, via: taken.via, owner, network });
    }

    /// A next hop that no given host has.
    fn not_given(&mut self, branch: &Branch<'a>, taken: Taken<'a>) {
        let Taken { sender, via, .. } = taken;
        let (site, network) = (self.site, self.network);
        if let Some(gateway) = site.facts.fabric.gateway(via)
            && let Some(owner) = site.facts.hosts.iter().position(|host| host.subject.name == gateway.name)
            && site.view(owner).knows_addresses(None, via)
        {
            self.stop(owner, What::LacksAddress { via });
            return;
        }
        // Only the fabric names every gateway; else it may be a host that was not given.
        let fabric = &site.facts.fabric;
        let is_unowned = fabric.gateway(via).is_none()
            && (fabric.networks.iter().any(|it| it.prefix.contains(via))
                || branch.trail.len() == 1 && self.leads_nowhere(taken));
        match self.number_of(sender, taken.route).filter(|_| is_unowned) {
            Some(route) => self.stop(sender, What::NobodyHas { route, via, network }),
            None => drop(self.outcome.not_given.insert((via, sender))),
        }
    }

    /// Whether a client's route leads to nobody although gateways to the network were
    /// given: no given host is a next hop of its routes there, and the reply would come by given
    /// hosts. A router or a virtual address (VRRP) that is not in the files would be the
    /// next hop of replies too.
    fn leads_nowhere(&self, taken: Taken<'a>) -> bool {
        let (site, network, walk) = (self.site, self.network, self.walk);
        let Some(route) = taken.route else { return false };
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
        let back = Packet::sent(walk.flow.destination, walk.flow.source);
        let is_reached = match site.node(walk.target).lookup.find(&back).verdict {
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
    fn note_left_out(&mut self) {
        let (network, found) = (self.network, &self.walk.found);
        let is_wider = matches!(found.verdict, Verdict::Gateways(..))
            && found.route.is_some_and(|route| {
                route.destination.length < network.length && covers(route.destination, network)
            });
        let Outcome { causes, not_given, .. } = &mut self.outcome;
        let is_lost = self.walk.arrivals().next().is_none() && causes.is_empty() && !not_given.is_empty();
        let sender = self.walk.sender;
        if is_wider
            && is_lost
            && let Some(route) = self.site.partial_route(sender, network)
        {
            not_given.clear();
            self.stop(sender, What::LeavesOut { route, network, is_certain: false });
        }
    }

    fn number_of(&self, host: usize, route: Option<&RouteEntry>) -> Option<usize> {
        let route = route?;
        self.site.view(host).routing.routes.iter().position(|other| ptr::eq(other, route))
    }
}
