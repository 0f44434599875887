//! A request and its replies: each follows the mark that its request got, and passes
//! the gateways that have replaced its source.

use std::collections::BTreeMap;

use super::{Arrival, Flow, Translated, Walk, Walker};

/// A request, and the replies to what of it arrives.
#[derive(Debug)]
pub(crate) struct RoundTrip<'a> {
    pub(crate) there: Walk<'a>,
    pub(crate) replies: Vec<Reply<'a>>,
}

/// The reply to requests that arrive alike.
#[derive(Debug)]
pub(crate) struct Reply<'a> {
    /// The requests.
    pub(crate) to: Vec<Arrival<'a>>,
    /// The way back: to each gateway that has replaced the source, the last first, and
    /// from there on to the client. Ends at the first part that fails.
    pub(crate) legs: Vec<Walk<'a>>,
}

impl<'a> Walker<'_, 'a> {
    /// A request of a client to a server, by one next hop in turn where `turn` is given,
    /// and its replies. Where the mark of a reply is not known, one that brings it back is
    /// enough; `is_whole` says of a walk whether it loses no packet.
    pub(crate) fn there_and_back(
        &self,
        (client, server): (usize, usize),
        flow: Flow,
        turn: Option<usize>,
        is_whole: &dyn Fn(&Walk<'a>) -> bool,
    ) -> RoundTrip<'a> {
        let there = self.follow(client, server, flow, turn);
        let mut alike: BTreeMap<(Vec<u32>, &[Translated]), Vec<Arrival<'a>>> = BTreeMap::new();
        for arrival in there.arrivals() {
            let key = (self.marks(server, arrival), arrival.translated.as_slice());
            alike.entry(key).or_default().push(arrival.clone());
        }
        let mut replies = Vec::new();
        for ((marks, translated), to) in alike {
            let mut first = None;
            let whole = marks.into_iter().find_map(|mark| {
                let legs = self.back((client, server), &flow, mark, translated, is_whole);
                if legs.iter().all(is_whole) {
                    return Some(legs);
                }
                first.get_or_insert(legs);
                None
            });
            replies.push(Reply { to, legs: whole.or(first).unwrap_or_default() });
        }
        RoundTrip { there, replies }
    }

    fn back(
        &self,
        (client, server): (usize, usize),
        request: &Flow,
        mark: u32,
        translated: &[Translated],
        is_whole: &dyn Fn(&Walk<'a>) -> bool,
    ) -> Vec<Walk<'a>> {
        let ends = translated.iter().rev().map(|it| (it.gateway, it.source));
        let (mut at, mut legs) = (server, Vec::new());
        for (to, destination) in ends.chain([(client, request.source)]) {
            let mark = if at == server { mark } else { 0 };
            let flow = Flow { source: request.destination, destination, mark, is_bound: true };
            let leg = self.follow(at, to, flow, None);
            let is_over = !is_whole(&leg) || leg.arrivals().next().is_none();
            legs.push(leg);
            if is_over {
                break;
            }
            at = to;
        }
        legs
    }

    /// Marks that the reply to what arrived may carry.
    fn marks(&self, server: usize, arrival: &Arrival<'_>) -> Vec<u32> {
        let routing = self.hosts.node(server).routing;
        let mut selected = routing.rules.iter().filter_map(|rule| rule.selector.mark).peekable();
        if selected.peek().is_none() {
            return vec![0];
        }
        let is_known = self.hosts.knows_marks();
        if routing.connection_marks.is_empty() && !is_known {
            // The firewall of a host is not read: any mark of a rule may be set.
            return std::iter::once(0).chain(selected.map(|(mark, mask)| mark & mask)).collect();
        }
        let Some((gateway, output)) = arrival.last else { return vec![0] };
        let mut interfaces = self.hosts.node(gateway).routing.interfaces.iter();
        let sends = interfaces.find(|interface| interface.name == output);
        let hardware = sends.and_then(|interface| interface.link_address.as_deref());
        let on_it = || routing.connection_marks.iter().filter(|mark| mark.interface == arrival.input);
        let came_by = on_it().find(|mark| match hardware {
            Some(address) if !mark.link_address.is_empty() => mark.link_address.eq_ignore_ascii_case(address),
            _ => mark.gateway == self.hosts.name(gateway),
        });
        match came_by {
            Some(mark) => vec![mark.mark],
            None if hardware.is_some() || is_known => vec![0],
            None => std::iter::once(0).chain(on_it().map(|mark| mark.mark)).collect(),
        }
    }
}
