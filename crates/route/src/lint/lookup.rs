//! The route that a packet takes, by the routing model, and the packets that one
//! rule takes before another.

use std::net::IpAddr;

use clearstream_routing::lookup::{Packet, Verdict};
use clearstream_schema::{
    prefix::Prefix,
    routing::{RouteEntry, RuleEntry},
};

use super::view::{ResolvedHop, View, covers};

impl<'a> View<'a> {
    /// The route over gateways by which the host sends to an address; absent when
    /// it sends to a neighbour, to no host, or by a rule that is not understood.
    pub(super) fn sends_by(&self, source: Option<IpAddr>, destination: IpAddr) -> Option<&'a RouteEntry> {
        let found = self.node.lookup.find(&Packet { source, destination, mark: 0, input: None });
        matches!(found.verdict, Verdict::Gateways(..)).then_some(found.route)?
    }

    /// The same with the next hops that a packet from this source may take.
    pub(super) fn sends_over(
        &self,
        source: Option<IpAddr>,
        destination: IpAddr,
    ) -> Option<(&'a RouteEntry, Vec<ResolvedHop<'a>>)> {
        let found = self.node.lookup.find(&Packet { source, destination, mark: 0, input: None });
        let (Verdict::Gateways(taken, _), Some(route)) = (&found.verdict, found.route) else { return None };
        let mut hops = self.hops(route);
        hops.retain(|hop| taken.iter().any(|it| it.via == hop.via));
        Some((route, hops))
    }

    /// The interface of a gateway: the given one, else that of its network.
    pub(super) fn interface_of(&self, hop: &ResolvedHop<'a>) -> Option<&'a str> {
        self.node.interface_to(hop.interface, hop.via)
    }
}

/// Actions that end the search (`fib_rules` `FR_ACT_BLACKHOLE` and the like).
pub(super) fn refuses(action: &str) -> bool {
    matches!(action.split_whitespace().next(), Some("blackhole" | "unreachable" | "prohibit"))
}

/// Whether every packet of `inner` is one of `outer` too.
pub(super) fn selects_all_of(outer: &RuleEntry, inner: &RuleEntry) -> bool {
    let (left, right) = (&outer.selector, &inner.selector);
    if outer.ipv6 != inner.ipv6 {
        return false;
    }
    if left.inverted || right.inverted || !left.other.is_empty() || !right.other.is_empty() {
        return left == right;
    }
    let within = |outer: Option<Prefix>, inner: Option<Prefix>| match (outer, inner) {
        (None, _) => true,
        (Some(outer), Some(inner)) => covers(outer, inner),
        (Some(outer), None) => outer.length == 0,
    };
    let mark = match (left.mark, right.mark) {
        (None, _) => true,
        (Some((mark, mask)), Some((inner, inner_mask))) => {
            mask & inner_mask == mask && mark & mask == inner & mask
        }
        (Some((_, mask)), None) => mask == 0,
    };
    let same = |outer: &Option<String>, inner: &Option<String>| outer.is_none() || outer == inner;
    within(left.from, right.from)
        && within(left.to, right.to)
        && mark
        && same(&left.input, &right.input)
        && same(&left.output, &right.output)
}
