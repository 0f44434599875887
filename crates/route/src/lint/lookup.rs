//! Which route a packet takes, by the rules and tables of a host: what the
//! kernel's `fib_lookup` does (`net/core/fib_rules.c`, `net/ipv4/fib_trie.c`),
//! without what no file tells (link states, neighbours).

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteAction, RouteEntry, RuleAction, RuleEntry, RuleSelector},
};

use super::view::{ResolvedHop, View};

/// Table of the kernel's last rule (`RT_TABLE_DEFAULT`).
pub(super) const DEFAULT_TABLE: u32 = 253;

/// A packet as rules see it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'p> {
    /// Source; absent while a socket has chosen none.
    pub(super) source: Option<IpAddr>,
    pub(super) destination: IpAddr,
    pub(super) mark: u32,
    /// Interface of arrival; `lo` for packets of the host itself.
    pub(super) input: &'p str,
}

/// Where a packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way<'a> {
    /// To the host itself.
    Local,
    /// To a neighbour, over an interface that is on its network.
    Attached(&'a str),
    /// By a route.
    Route(&'a RouteEntry),
    /// Nowhere: no route, or a rule or route that refuses.
    Nowhere,
}

impl<'a> View<'a> {
    /// Finds the way of a packet.
    pub(super) fn way(&self, packet: Packet<'_>) -> Way<'a> {
        if self.own.contains(&packet.destination) {
            return Way::Local;
        }
        let mut order: Vec<(u32, usize)> =
            self.priorities.iter().copied().enumerate().map(|(at, priority)| (priority, at)).collect();
        order.sort_unstable();
        let (before, after): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|(priority, _)| *priority <= 32766);
        let found = self.by_rules(&before, packet);
        let found = found.or_else(|| self.in_table(MAIN_TABLE, packet.destination));
        let found = found.or_else(|| self.by_rules(&after, packet));
        found.or_else(|| self.in_table(DEFAULT_TABLE, packet.destination)).unwrap_or(Way::Nowhere)
    }

    fn by_rules(&self, order: &[(u32, usize)], packet: Packet<'_>) -> Option<Way<'a>> {
        order.iter().find_map(|(_, at)| {
            let rule = &self.routing.rules[*at];
            if rule.ipv6 == packet.destination.is_ipv4() || !matches(&rule.selector, packet) {
                return None;
            }
            match &rule.action {
                RuleAction::Table(table) => self.in_table(*table, packet.destination),
                RuleAction::Other(words) => refuses(words).then_some(Way::Nowhere),
            }
        })
    }

    /// The way by one table; absent when the next rule is asked.
    pub(super) fn in_table(&self, table: u32, destination: IpAddr) -> Option<Way<'a>> {
        let routes = self.tables.get(&table).map_or(&[][..], Vec::as_slice);
        let matching = routes.iter().filter(|route| route.destination.contains(destination));
        let route =
            matching.copied().min_by_key(|route| (std::cmp::Reverse(route.destination.length), route.metric));
        if table == MAIN_TABLE {
            let attached = self.attached.iter().filter(|(_, network)| network.contains(destination));
            // The first interface's route is in front of equal ones.
            let best = attached.rev().max_by_key(|(_, network)| network.length);
            if let Some((interface, network)) = best
                && route.is_none_or(|route| route.destination.length < network.length)
            {
                return Some(Way::Attached(interface));
            }
        }
        match &route?.action {
            RouteAction::Throw => None,
            RouteAction::Blackhole | RouteAction::Unreachable | RouteAction::Prohibit => Some(Way::Nowhere),
            _ => route.map(Way::Route),
        }
    }

    /// Interfaces that a way leaves by.
    pub(super) fn outputs(&self, way: &Way<'a>) -> Vec<&'a str> {
        match way {
            Way::Attached(interface) => vec![interface],
            Way::Route(route) => match &route.action {
                RouteAction::Link { interface } => vec![interface],
                _ => self.hops(route).iter().filter_map(|hop| self.interface_of(hop)).collect(),
            },
            Way::Local | Way::Nowhere => Vec::new(),
        }
    }

    /// The interface of a gateway: as said, else that of the network it is in.
    pub(super) fn interface_of(&self, hop: &ResolvedHop<'a>) -> Option<&'a str> {
        let in_network = || self.attached.iter().find(|(_, network)| network.contains(hop.via));
        hop.interface.or_else(|| in_network().map(|(interface, _)| *interface))
    }

    /// Gateways of a way; none when it needs none.
    pub(super) fn gateways(&self, way: &Way<'a>) -> Vec<ResolvedHop<'a>> {
        match way {
            Way::Route(route) => self.hops(route),
            _ => Vec::new(),
        }
    }
}

/// Actions that end the search (`fib_rules` `FR_ACT_BLACKHOLE` and the like).
pub(super) fn refuses(words: &str) -> bool {
    matches!(words.split_whitespace().next(), Some("blackhole" | "unreachable" | "prohibit"))
}

/// `fib_rule_match`. What cannot be told from addresses and marks (`other`) is
/// taken not to match, so that no claim rests on it.
fn matches(selector: &RuleSelector, packet: Packet<'_>) -> bool {
    if !selector.other.is_empty() {
        return false;
    }
    let from = selector
        .from
        .is_none_or(|from| from.length == 0 || packet.source.is_some_and(|source| from.contains(source)));
    let to = selector.to.is_none_or(|to| to.contains(packet.destination));
    let mark = selector.mark.is_none_or(|(mark, mask)| packet.mark & mask == mark & mask);
    let input = selector.input.as_deref().is_none_or(|input| input == packet.input);
    let all = from && to && mark && input && selector.output.is_none();
    all != selector.inverted
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
        (Some(outer), Some(inner)) => super::view::covers(outer, inner),
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
