//! A request and its reply: the reply follows the mark that the request got, and
//! passes the gateways that have replaced its source.

use std::{collections::BTreeSet, net::IpAddr};

use super::{
    translation::Translated,
    walk::{Arrival, Outcome, Travel, Walker},
};

impl<'a> Walker<'_, '_, 'a> {
    pub(super) fn there_and_back(
        &self,
        client: usize,
        server: usize,
        source: IpAddr,
        address: IpAddr,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        let there = self.follow(client, source, address, server, 0, true);
        let arrivals = there.arrivals.clone();
        outcome.take(there, false);
        let mut replies = BTreeSet::new();
        for Arrival { input, last, translated } in arrivals {
            outcome.is_translated |= !translated.is_empty();
            replies.insert((self.marks(server, input, last), translated));
        }
        for (marks, translated) in replies {
            let mut first = None;
            for mark in marks {
                let mut back = self.back(&translated, (server, address), (client, source), mark);
                let is_whole = back.iter().all(|leg| leg.causes.is_empty());
                if !is_whole {
                    back.iter_mut().for_each(|leg| leg.causes.dedup());
                    // Where the mark is not known, one route back that works is enough.
                    first.get_or_insert(back);
                    continue;
                }
                back.into_iter().for_each(|leg| outcome.take(leg, true));
                first = None;
                break;
            }
            first.into_iter().flatten().for_each(|leg| outcome.take(leg, true));
        }
        outcome
    }

    /// The reply: to each gateway that has replaced the source, the last first,
    /// and from there on to the source that it had before. Ends at the first leg
    /// that fails.
    fn back(
        &self,
        translated: &[Translated],
        (server, address): (usize, IpAddr),
        (client, source): (usize, IpAddr),
        mark: u32,
    ) -> Vec<Travel<'a>> {
        let ends = translated.iter().rev().map(|it| (it.gateway, it.source)).chain([(client, source)]);
        let (mut at, mut legs) = (server, Vec::new());
        for (to, destination) in ends {
            let mark = if at == server { mark } else { 0 };
            let mut leg = self.follow(at, address, destination, to, mark, false);
            // A gateway in between is no end point that represents its class.
            leg.causes.iter_mut().filter(|cause| cause.at != server && cause.at != client).for_each(
                |cause| {
                    cause.is_end = false;
                },
            );
            let is_over = !leg.causes.is_empty() || leg.arrivals.is_empty();
            legs.push(leg);
            if is_over {
                break;
            }
            at = to;
        }
        legs
    }

    /// Marks that a reply may carry to what arrived by an interface.
    fn marks(&self, server: usize, input: &str, last: Option<(usize, &str)>) -> Vec<u32> {
        let routing = self.site.view(server).routing;
        let mut selected = routing.rules.iter().filter_map(|rule| rule.selector.mark).peekable();
        if selected.peek().is_none() {
            return vec![0];
        }
        if routing.connection_marks.is_empty() {
            // The firewall of a host is not read: any mark of a rule may be set.
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
}
