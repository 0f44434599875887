//! Route lookup as the kernel does it: rules in the order of their
//! priorities, the table of each, its longest matching prefix, the next hops of
//! that route. It knows a host's routing and nothing of how it was planned
//! (ip-rule(8), ip-route(8), Documentation/networking/ip-sysctl.rst).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

mod rules;
mod sources;

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        HostRouting, NexthopTarget, Resilient, RouteAction, RouteEntry, RuleEntry, SpecialRoute,
        files::FileFacts,
        kernel::{AbsentNetwork, KernelFacts},
    },
};

pub use self::rules::{Kind, priorities};
use self::{
    rules::{Act, DEFAULT_PRIORITY, Rule, Selection, all_rules, is_of_vrf, selection},
    sources::Sources,
};

/// Table of the kernel's last rule (`RT_TABLE_DEFAULT`).
pub const DEFAULT_TABLE: u32 = 253;
/// Table of the first rule (`RT_TABLE_LOCAL`).
pub const LOCAL_TABLE: u32 = 255;
/// Metric of IPv6 routes that the kernel creates for an address (`IP6_RT_PRIO_ADDRCONF`).
const IPV6_CONNECTED_METRIC: u32 = 256;

/// A packet, as far as rules and routes select by it.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Source address; absent before a socket has one. IPv6 then lets rules
    /// with a source choose an address of the host first, which is not done
    /// here: give the source where there are such rules.
    pub source: Option<IpAddr>,
    /// Destination.
    pub destination: IpAddr,
    /// Mark, 0 for none.
    pub mark: u32,
    /// Interface of arrival; absent for what the host sends itself.
    pub input: Option<&'a str>,
}

impl Packet<'_> {
    /// A packet of the host itself without a mark.
    pub fn sent(source: IpAddr, destination: IpAddr) -> Self {
        Self { source: Some(source), destination, mark: 0, input: None }
    }
}

/// A next hop that a packet may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextHop<'a> {
    /// Gateway.
    pub via: IpAddr,
    /// Interface; absent where the route leaves it to the kernel.
    pub interface: Option<&'a str>,
    /// Share of flows relative to the other next hops.
    pub weight: u16,
}

/// Where a packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// To this host itself.
    Local,
    /// To a neighbour on a link.
    Link(&'a str),
    /// By one of these; by buckets when the group is resilient, else by thresholds.
    Gateways(Vec<NextHop<'a>>, Option<Resilient>),
    /// Nowhere: discarded by a route or rule of this type, as `ip` names it.
    Refused(&'static str),
    /// Nowhere: no route.
    NoRoute,
    /// Not known: a rule before the first match has a selector or an action that is
    /// not supported here.
    Unknown(String),
}

/// What was found, and by which rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'a> {
    /// Where the packet goes.
    pub verdict: Verdict<'a>,
    /// Priority of the rule that led there.
    pub priority: u32,
    /// Its table; 0 where none was looked up.
    pub table: u32,
    /// The route that matched; absent for the host's own addresses and networks.
    pub route: Option<&'a RouteEntry>,
    /// The rule that matched; absent for the kernel's own.
    pub rule: Option<&'a RuleEntry>,
    /// Destination of the route, also of one that the kernel made for an address.
    pub matched: Option<Prefix>,
    /// The same route, where it takes some packets only or delivers to the host.
    pub special: Option<&'a SpecialRoute>,
    /// What led past tables or routes on the way, the first.
    pub passed: Option<Passed<'a>>,
}

/// What leads a lookup on, so that a later rule decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passed<'a> {
    /// A route of type `throw` ended the lookup in its table.
    Throw(&'a RouteEntry),
    /// A rule jumped over others, or passed over what its table has (`suppress_prefixlength`).
    Rule(&'a RuleEntry),
    /// A rule of the kernel's own is gone, with this priority; of IPv6 or not.
    Absent(u32, bool),
    /// The route to the network of an address is gone, as while its interface is down.
    Network(&'a AbsentNetwork),
}

/// A host's routing, ready for lookups.
#[derive(Debug)]
pub struct Lookup<'a> {
    local: HashSet<IpAddr>,
    rules: Vec<Rule<'a>>,
    tables: HashMap<(u32, bool), Table<'a>>,
    nexthops: HashMap<u32, &'a NexthopTarget>,
    sources: Sources<'a>,
    files: &'a FileFacts,
    kernel: &'a KernelFacts,
}

/// Routes by length of their prefix, the longest last.
#[derive(Debug, Default)]
struct Table<'a> {
    lengths: BTreeMap<u8, HashMap<IpAddr, Vec<Entry<'a>>>>,
}

#[derive(Debug, Clone, Copy)]
enum Entry<'a> {
    Connected(&'a str),
    Route(&'a RouteEntry),
    Special(&'a SpecialRoute),
}

impl<'a> Entry<'a> {
    fn route(&self) -> Option<&'a RouteEntry> {
        match self {
            Self::Connected(_) => None,
            Self::Route(route) => Some(route),
            Self::Special(special) => Some(&special.route),
        }
    }

    fn special(&self) -> Option<&'a SpecialRoute> {
        match self {
            Self::Special(special) => Some(special),
            _ => None,
        }
    }

    /// Bits of the source that it is for; `None` for a packet that it does not take. Packets
    /// are taken for ones of the usual type of service, 0.
    fn source_bits(&self, packet: &Packet<'_>) -> Option<u8> {
        let Self::Special(special) = self else { return Some(0) };
        let is_from = |from: Prefix| packet.source.is_some_and(|source| from.contains(source));
        let takes = special.type_of_service.is_none() && special.from.is_none_or(is_from);
        takes.then_some(special.from.map_or(0, |from| from.length))
    }

    fn metric(&self, ipv6: bool) -> u32 {
        match self.route() {
            None if ipv6 => IPV6_CONNECTED_METRIC,
            None => 0,
            Some(route) => route.kernel_metric(),
        }
    }
}

impl<'a> Lookup<'a> {
    /// Indexes a host's routing.
    pub fn new(routing: &'a HostRouting) -> Self {
        Self::of_routes(routing, |_| true)
    }

    /// The same with some of the routes only, as where the kernel refuses the others.
    pub fn of_routes(routing: &'a HostRouting, is_accepted: impl Fn(&'a RouteEntry) -> bool) -> Self {
        let mut tables: HashMap<(u32, bool), Table<'a>> = HashMap::new();
        let mut add = |table, destination: Prefix, entry: Entry<'a>| {
            let ipv6 = destination.address.is_ipv6();
            let network = destination.network().address;
            let table = tables.entry((table, ipv6)).or_default();
            let entries = table.lengths.entry(destination.length).or_default().entry(network).or_default();
            // The first of its metric is taken, by IPv6 the first of the best preference.
            let rank = |entry: &Entry<'a>| (entry.metric(ipv6), -preference(&routing.kernel, entry.route()));
            let at = entries.partition_point(|other| rank(other) <= rank(&entry));
            entries.insert(at, entry);
        };
        let mut local = HashSet::new();
        for interface in &routing.interfaces {
            for address in &interface.addresses {
                local.insert(address.value.address);
                if !routing.kernel.has_network(&interface.name, address.value) {
                    continue;
                }
                let table = routing.files.connected_table(&interface.name, address.value.address.is_ipv6());
                add(table, address.value, Entry::Connected(&interface.name));
            }
        }
        for route in routing.routes.iter().filter(|route| is_accepted(route)) {
            add(route.table, route.destination, Entry::Route(route));
        }
        for special in &routing.special_routes {
            add(special.route.table, special.route.destination, Entry::Special(special));
        }
        let nexthops = routing.nexthops.iter().map(|nexthop| (nexthop.id, &nexthop.target)).collect();
        let sources = Sources::new(routing);
        let rules = all_rules(&routing.rules, &routing.kernel, !routing.files.vrf_members.is_empty());
        Self { local, rules, tables, nexthops, sources, files: &routing.files, kernel: &routing.kernel }
    }

    /// For a kernel that prefers, of several IPv4 next hops, one by which the packet's
    /// source would be chosen: Linux 6.16 and later (`fib_select_multipath`).
    #[must_use]
    pub fn preferring_source(mut self, prefers: bool) -> Self {
        self.sources.decide = prefers;
        self
    }

    /// Looks a packet up.
    pub fn find(&self, packet: &Packet<'_>) -> Found<'a> {
        self.find_of(packet, &Kind::default())
    }

    /// Looks a packet up of which more is known.
    pub fn find_of(&self, packet: &Packet<'_>, kind: &Kind<'_>) -> Found<'a> {
        let found = self.by_rules(packet, kind);
        let length = found.matched.map_or(0, |matched| matched.length);
        let is_nothing = found.verdict == Verdict::NoRoute;
        let mut absent = self.kernel.absent_networks.iter();
        let gone = absent.find(|absent| {
            let network = absent.network;
            network.contains(packet.destination) && (is_nothing || network.length > length)
        });
        Found { passed: gone.map(Passed::Network).or(found.passed), ..found }
    }

    fn by_rules(&self, packet: &Packet<'_>, kind: &Kind<'_>) -> Found<'a> {
        let ipv6 = packet.destination.is_ipv6();
        let nothing = Found {
            verdict: Verdict::NoRoute,
            priority: DEFAULT_PRIORITY,
            table: 0,
            route: None,
            rule: None,
            matched: None,
            special: None,
            passed: None,
        };
        let mut passed = None;
        let mut at = 0;
        while let Some(rule) = self.rules.get(at) {
            at += 1;
            if rule.ipv6 != ipv6 {
                continue;
            }
            let found = Found { priority: rule.priority, rule: rule.entry, passed, ..nothing.clone() };
            let vrf = if is_of_vrf(rule) { self.vrf_table(packet, kind) } else { Vrf::Open };
            if vrf == Vrf::None {
                continue;
            }
            let is_known = vrf != Vrf::Open;
            let selects = |entry: &RuleEntry| selection(&entry.selector, packet, kind, is_known);
            match rule.entry.map_or(Selection::Taken, selects) {
                Selection::Taken => {}
                Selection::Passed => continue,
                Selection::Unknown(what) => return Found { verdict: Verdict::Unknown(what), ..found },
            }
            match rule.action {
                Act::Absent => passed = passed.or(Some(Passed::Absent(rule.priority, ipv6))),
                Act::Table(_) | Act::VrfTable => {
                    let number = match (vrf, rule.action) {
                        (Vrf::Table(table), _) | (_, Act::Table(table)) => table,
                        _ => continue,
                    };
                    match self.in_table(number, packet) {
                        None => {}
                        Some(answer) if answer.verdict == Verdict::Refused("throw") => {
                            passed = passed.or(answer.route.map(Passed::Throw));
                        }
                        Some(answer) if rule.suppresses(&answer) => {
                            passed = passed.or(rule.entry.map(Passed::Rule));
                        }
                        Some(answer) => return answer.found(Found { table: number, ..found }),
                    }
                }
                Act::Other("blackhole") => return Found { verdict: Verdict::Refused("blackhole"), ..found },
                Act::Other("unreachable") => {
                    return Found { verdict: Verdict::Refused("unreachable"), ..found };
                }
                Act::Other("prohibit") => return Found { verdict: Verdict::Refused("prohibit"), ..found },
                Act::Other("nop") => {}
                Act::Other(action) => match self.target(action, ipv6) {
                    Some(target) => {
                        passed = passed.or(rule.entry.filter(|_| target > at).map(Passed::Rule));
                        at = target.max(at);
                    }
                    None => return Found { verdict: Verdict::Unknown(action.to_owned()), ..found },
                },
            }
        }
        Found { passed, ..nothing }
    }

    /// The table to which a rule for VRFs leads (`l3mdev_fib_rule_match`).
    fn vrf_table(&self, packet: &Packet<'_>, kind: &Kind<'_>) -> Vrf {
        let Some(interface) = packet.input.or(kind.output) else { return Vrf::None };
        let members = [&self.files.vrf_members, &self.kernel.vrf_members];
        match members.iter().find_map(|members| members.get(interface)) {
            Some(table) => Vrf::Table(*table),
            None if members.iter().any(|members| !members.is_empty()) => Vrf::None,
            None => Vrf::Open,
        }
    }

    /// The rule that `goto` names; the next one where it is not there (`fib_rules_lookup`,
    /// net/core/fib_rules.c).
    fn target(&self, action: &str, ipv6: bool) -> Option<usize> {
        let priority: u32 = action.strip_prefix("goto ")?.trim().parse().ok()?;
        let is_it = |rule: &Rule<'_>| rule.ipv6 == ipv6 && rule.priority == priority;
        Some(self.rules.iter().position(is_it).unwrap_or(0))
    }

    /// What one table answers; none where it has no route. Not known where a route that is not
    /// known completely may be at least as exact.
    fn in_table(&self, number: u32, packet: &Packet<'_>) -> Option<Answer<'a>> {
        if number == LOCAL_TABLE && self.local.contains(&packet.destination) {
            let matched = Prefix::host(packet.destination);
            return Some(Answer { verdict: Verdict::Local, matched, route: None, special: None });
        }
        let found = self.by_known_routes(number, packet);
        let length = found.as_ref().map_or(0, |answer| answer.matched.length);
        let mut unknown = self.files.unknown_in(number).filter(|route| route.may_lead_to(packet.destination));
        match unknown.find(|route| route.destination.is_none_or(|it| it.length >= length)) {
            Some(route) => Some(Answer {
                verdict: Verdict::Unknown(route.reason.clone()),
                matched: route
                    .destination
                    .unwrap_or(Prefix { address: packet.destination, length: 0 }.network()),
                route: None,
                special: None,
            }),
            None => found,
        }
    }

    fn by_known_routes(&self, number: u32, packet: &Packet<'_>) -> Option<Answer<'a>> {
        let destination = packet.destination;
        let table = self.tables.get(&(number, destination.is_ipv6()))?;
        for (length, networks) in table.lengths.iter().rev() {
            let matched = Prefix { address: destination, length: *length }.network();
            let Some(all) = networks.get(&matched.address) else { continue };
            // Of one destination, the routes of the longest source prefix come first.
            let bits = all.iter().filter_map(|entry| entry.source_bits(packet)).max();
            let entries: Vec<Entry<'a>> = match all.iter().any(|entry| entry.special().is_some()) {
                true => all
                    .iter()
                    .copied()
                    .filter(|it| bits.is_some() && it.source_bits(packet) == bits)
                    .collect(),
                false => all.clone(),
            };
            if let Some(verdict) = self.verdict(&entries, packet) {
                let first = entries.first();
                let route = first.and_then(Entry::route);
                return Some(Answer { verdict, matched, route, special: first.and_then(Entry::special) });
            }
        }
        None
    }

    fn verdict(&self, entries: &[Entry<'a>], packet: &Packet<'_>) -> Option<Verdict<'a>> {
        let ipv6 = packet.destination.is_ipv6();
        let first = entries.first()?;
        let route = match *first {
            Entry::Connected(interface) => return Some(Verdict::Link(interface)),
            Entry::Special(special) if special.is_local => return Some(Verdict::Local),
            Entry::Special(special) => &special.route,
            Entry::Route(route) => route,
        };
        Some(match &route.action {
            RouteAction::Link { interface } => Verdict::Link(interface),
            RouteAction::Nexthop(id) => return self.nexthop(*id),
            RouteAction::Gateways(_) => {
                // IPv6 joins routes that differ in their gateway only.
                let alike = |entry: &&Entry<'a>| {
                    let of = |entry: &Entry<'a>| (entry.metric(ipv6), preference(self.kernel, entry.route()));
                    ipv6 && of(entry) == of(first)
                };
                let siblings = entries[1..].iter().take_while(alike);
                let hops = std::iter::once(first).chain(siblings).filter_map(|entry| match entry.route() {
                    Some(RouteEntry { action: RouteAction::Gateways(hops), .. }) => Some(hops),
                    _ => None,
                });
                let next_hop = |hop: &'a clearstream_schema::routing::Hop| NextHop {
                    via: hop.via,
                    interface: hop.interface.as_deref(),
                    weight: hop.weight,
                };
                let hops = hops.flatten().map(next_hop).collect();
                Verdict::Gateways(self.sources.preferred(hops, packet), None)
            }
            action => Verdict::Refused(action.type_keyword()?),
        })
    }

    fn nexthop(&self, id: u32) -> Option<Verdict<'a>> {
        match self.nexthops.get(&id)? {
            NexthopTarget::Blackhole => Some(Verdict::Refused("blackhole")),
            NexthopTarget::Gateway { via, interface } => {
                let next_hop = NextHop { via: *via, interface: Some(interface), weight: 1 };
                Some(Verdict::Gateways(vec![next_hop], None))
            }
            NexthopTarget::Group { members, resilient } => {
                let next_hop = |member: &clearstream_schema::routing::GroupMember| {
                    let NexthopTarget::Gateway { via, interface } = self.nexthops.get(&member.id)? else {
                        return None;
                    };
                    Some(NextHop { via: *via, interface: Some(interface), weight: member.weight })
                };
                let next_hops: Vec<NextHop<'a>> = members.iter().filter_map(next_hop).collect();
                (!next_hops.is_empty()).then_some(Verdict::Gateways(next_hops, *resilient))
            }
        }
    }
}

/// 1 for routes that come before others of their metric, -1 for those that come after.
fn preference(kernel: &KernelFacts, route: Option<&RouteEntry>) -> i8 {
    let Some(route) = route.filter(|_| !kernel.preferences.is_empty()) else { return 0 };
    let found = kernel.preferences.iter().find(|preference| preference.is_of(route));
    found.map_or(0, |preference| if preference.is_high { 1 } else { -1 })
}

/// Where a rule for VRFs leads a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vrf {
    /// To this table.
    Table(u32),
    /// On, as it is of no VRF.
    None,
    /// The rule is another one, or which interfaces are of VRFs is not known.
    Open,
}

/// What a table has for a packet.
struct Answer<'a> {
    verdict: Verdict<'a>,
    matched: Prefix,
    route: Option<&'a RouteEntry>,
    special: Option<&'a SpecialRoute>,
}

impl<'a> Answer<'a> {
    fn found(self, by: Found<'a>) -> Found<'a> {
        let Self { verdict, matched, route, special } = self;
        Found { verdict, route, matched: Some(matched), special, ..by }
    }
}

#[cfg(test)]
mod tests;
