//! The packets of one pair: from a client, by each source that it may choose, to an
//! address of a server, and back. Only the routing of the hosts is considered.

use std::{collections::BTreeSet, net::IpAddr};

use clearstream_routing::lookup::{Packet, Verdict};
use clearstream_schema::prefix::Prefix;

use super::{super::view::is_of_the_link, causes::Cause, explain::explain, site::Site};
use crate::walk::{Flow, Walk, Walker};

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

impl Outcome {
    pub(super) fn add(&mut self, cause: Cause, is_reply: bool) {
        if !self.causes.iter().any(|known| known.0 == cause) {
            self.causes.push((cause, is_reply));
        }
    }

    fn merge(&mut self, other: Self) {
        other.causes.into_iter().for_each(|(cause, is_reply)| self.add(cause, is_reply));
        self.not_given.extend(other.not_given);
        self.not_understood.extend(other.not_understood);
        self.may_translate.extend(other.may_translate);
    }
}

/// A client, and an address of a server that it is to reach.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'w, 's, 'a> {
    pub(super) site: &'w Site<'s, 'a>,
    pub(super) client: usize,
    pub(super) server: usize,
    pub(super) address: IpAddr,
}

impl Pair<'_, '_, '_> {
    /// Walks a request and its reply. Where a gateway on the path may replace sources,
    /// only what fails with and without it is a cause.
    pub(super) fn walk(&self) -> Outcome {
        let plain = self.by_any_source(false);
        if plain.causes.is_empty() || plain.may_translate.is_empty() {
            return plain;
        }
        let mut outcome = self.by_any_source(true);
        outcome.causes.retain(|cause| plain.causes.contains(cause));
        outcome.needs_translation = outcome.causes.len() < plain.causes.len();
        outcome
    }

    fn by_any_source(&self, assumes_translation: bool) -> Outcome {
        let mut first = None;
        for source in self.sources() {
            let outcome = self.there_and_back(source, assumes_translation);
            if outcome.causes.is_empty() {
                return outcome;
            }
            first.get_or_insert(outcome);
        }
        first.unwrap_or_default()
    }

    fn there_and_back(&self, source: IpAddr, assumes_translation: bool) -> Outcome {
        let flow = Flow { source, destination: self.address, mark: 0, is_bound: false };
        let walker = Walker { assumes_translation, ..Walker::new(self.site) };
        let is_whole = |walk: &Walk<'_>| explain(self, walk, false).causes.is_empty();
        let trip = walker.there_and_back((self.client, self.server), flow, None, &is_whole);
        let mut outcome = explain(self, &trip.there, false);
        outcome.is_translated = trip.there.arrivals().any(|arrival| !arrival.translated.is_empty());
        for leg in trip.replies.iter().flat_map(|reply| &reply.legs) {
            outcome.merge(explain(self, leg, true));
        }
        outcome
    }

    /// Source addresses that the kernel may choose: that of the route, else one
    /// of the interface (`inet_select_addr`, RFC 6724).
    fn sources(&self) -> Vec<IpAddr> {
        let (node, address) = (self.site.node(self.client), self.address);
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
}
