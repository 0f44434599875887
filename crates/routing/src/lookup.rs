//! Route lookup as the kernel does it: rules in the order of their
//! priorities, the table of each, its longest matching prefix, the next hops of
//! that route. It knows a host's routing and nothing of how it was planned
//! (ip-rule(8), ip-route(8), Documentation/networking/ip-sysctl.rst).

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::IpAddr,
};

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        HostRouting, MAIN_TABLE, NexthopTarget, Resilient, RouteAction, RouteEntry, RuleAction, RuleEntry,
        RuleSelector, files::FileFacts,
    },
};

/// Table of the kernel's last rule (`RT_TABLE_DEFAULT`).
pub const DEFAULT_TABLE: u32 = 253;
/// Priorities of the kernel's own rules (fib_default_rules_init).
const MAIN_PRIORITY: u32 = 32_766;
const DEFAULT_PRIORITY: u32 = 32_767;
/// Priority of the rule that the kernel makes with the first VRF (l3mdev, FIB_RULES `fib_default_rule_l3mdev`).
const VRF_PRIORITY: u32 = 1000;
/// Metric of IPv6 routes that name none (`IP6_RT_PRIO_USER`), and of those that
/// the kernel creates for an address (`IP6_RT_PRIO_ADDRCONF`).
const IPV6_METRIC: u32 = 1024;
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
}

/// A host's routing, ready for lookups.
#[derive(Debug)]
pub struct Lookup<'a> {
    local: HashSet<IpAddr>,
    rules: Vec<Rule<'a>>,
    tables: HashMap<(u32, bool), Table<'a>>,
    nexthops: HashMap<u32, &'a NexthopTarget>,
    files: &'a FileFacts,
}

#[derive(Debug)]
struct Rule<'a> {
    priority: u32,
    ipv6: bool,
    entry: Option<&'a RuleEntry>,
    action: Act<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Act<'a> {
    Table(u32),
    Other(&'a str),
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
}

impl<'a> Entry<'a> {
    fn route(&self) -> Option<&'a RouteEntry> {
        match self {
            Self::Connected(_) => None,
            Self::Route(route) => Some(route),
        }
    }

    fn metric(&self, ipv6: bool) -> u32 {
        match self {
            Self::Connected(_) if ipv6 => IPV6_CONNECTED_METRIC,
            Self::Connected(_) => 0,
            Self::Route(route) if ipv6 && route.metric == 0 => IPV6_METRIC,
            Self::Route(route) => route.metric,
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
            let at = entries.partition_point(|other| other.metric(ipv6) <= entry.metric(ipv6));
            entries.insert(at, entry);
        };
        let mut local = HashSet::new();
        for interface in &routing.interfaces {
            for address in &interface.addresses {
                local.insert(address.value.address);
                let table = routing.files.connected_table(&interface.name, address.value.address.is_ipv6());
                add(table, address.value, Entry::Connected(&interface.name));
            }
        }
        for route in routing.routes.iter().filter(|route| is_accepted(route)) {
            add(route.table, route.destination, Entry::Route(route));
        }
        let nexthops = routing.nexthops.iter().map(|nexthop| (nexthop.id, &nexthop.target)).collect();
        Self { local, rules: all_rules(&routing.rules), tables, nexthops, files: &routing.files }
    }

    /// Looks a packet up.
    pub fn find(&self, packet: &Packet<'_>) -> Found<'a> {
        let ipv6 = packet.destination.is_ipv6();
        // The rule of priority 0: the local table.
        if self.local.contains(&packet.destination) {
            return Found { verdict: Verdict::Local, priority: 0, table: 255, route: None, rule: None };
        }
        // Packets of an interface of a VRF come to its table first (net/l3mdev, a rule of priority 1000).
        let vrf = packet.input.and_then(|input| self.files.vrf_members.get(input).copied());
        if let Some((table, (verdict, route))) =
            vrf.and_then(|table| Some((table, self.in_table(table, packet.destination)?)))
        {
            return Found { verdict, priority: VRF_PRIORITY, table, route, rule: None };
        }
        for rule in self.rules.iter().filter(|rule| rule.ipv6 == ipv6) {
            let found = |verdict, table| Found {
                verdict,
                priority: rule.priority,
                table,
                route: None,
                rule: rule.entry,
            };
            if let Some(selector) = rule.entry.map(|entry| &entry.selector) {
                if !selector.other.is_empty() {
                    return found(Verdict::Unknown(selector.other.join(" ")), 0);
                }
                if !selects(selector, packet) {
                    continue;
                }
            }
            match rule.action {
                Act::Table(number) => {
                    if let Some((verdict, route)) = self.in_table(number, packet.destination) {
                        return Found { route, ..found(verdict, number) };
                    }
                }
                Act::Other("blackhole") => return found(Verdict::Refused("blackhole"), 0),
                Act::Other("unreachable") => return found(Verdict::Refused("unreachable"), 0),
                Act::Other("prohibit") => return found(Verdict::Refused("prohibit"), 0),
                Act::Other("nop") => {}
                Act::Other(action) => return found(Verdict::Unknown(action.to_owned()), 0),
            }
        }
        Found { verdict: Verdict::NoRoute, priority: DEFAULT_PRIORITY, table: 0, route: None, rule: None }
    }

    /// The verdict of one table; none where it has no route, or one that throws. Not known where a route that is not
    /// known completely may be at least as exact.
    fn in_table(&self, number: u32, destination: IpAddr) -> Option<(Verdict<'a>, Option<&'a RouteEntry>)> {
        let found = self.by_known_routes(number, destination);
        let length = found.as_ref().map_or(0, |(length, ..)| *length);
        let mut unknown = self.files.unknown_in(number).filter(|route| route.may_lead_to(destination));
        if let Some(route) = unknown.find(|route| route.destination.is_none_or(|it| it.length >= length)) {
            return Some((Verdict::Unknown(route.reason.clone()), None));
        }
        found.map(|(_, verdict, route)| (verdict, route))
    }

    fn by_known_routes(
        &self,
        number: u32,
        destination: IpAddr,
    ) -> Option<(u8, Verdict<'a>, Option<&'a RouteEntry>)> {
        let table = self.tables.get(&(number, destination.is_ipv6()))?;
        for (length, networks) in table.lengths.iter().rev() {
            let network = Prefix { address: destination, length: *length }.network().address;
            let Some(entries) = networks.get(&network) else { continue };
            match self.verdict(entries, destination.is_ipv6()) {
                Some(Verdict::Refused("throw")) => return None,
                Some(verdict) => {
                    let route = entries.first().and_then(Entry::route);
                    return Some((*length, verdict, route));
                }
                None => {}
            }
        }
        None
    }

    fn verdict(&self, entries: &[Entry<'a>], ipv6: bool) -> Option<Verdict<'a>> {
        let first = entries.first()?;
        let route = match first {
            Entry::Connected(interface) => return Some(Verdict::Link(interface)),
            Entry::Route(route) => route,
        };
        Some(match &route.action {
            RouteAction::Link { interface } => Verdict::Link(interface),
            RouteAction::Nexthop(id) => return self.nexthop(*id),
            RouteAction::Gateways(_) => {
                // IPv6 joins routes that differ in their gateway only.
                let alike = |entry: &&Entry<'a>| ipv6 && entry.metric(ipv6) == first.metric(ipv6);
                let siblings = entries[1..].iter().take_while(alike);
                let hops = std::iter::once(first).chain(siblings).filter_map(|entry| match entry {
                    Entry::Route(RouteEntry { action: RouteAction::Gateways(hops), .. }) => Some(hops),
                    _ => None,
                });
                let next_hop = |hop: &'a clearstream_schema::routing::Hop| NextHop {
                    via: hop.via,
                    interface: hop.interface.as_deref(),
                    weight: hop.weight,
                };
                Verdict::Gateways(hops.flatten().map(next_hop).collect(), None)
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

/// The rules of the files and the kernel's, in order. A rule without priority
/// gets one below the least that is there (fib_default_rule_pref), in the
/// order in which rules are added.
fn all_rules(rules: &[RuleEntry]) -> Vec<Rule<'_>> {
    let mut all: Vec<Rule<'_>> = Vec::with_capacity(rules.len() + 4);
    for ipv6 in [false, true] {
        for (priority, table) in [(MAIN_PRIORITY, MAIN_TABLE), (DEFAULT_PRIORITY, DEFAULT_TABLE)] {
            // IPv6 has no rule for a default table.
            if !ipv6 || table == MAIN_TABLE {
                all.push(Rule { priority, ipv6, entry: None, action: Act::Table(table) });
            }
        }
    }
    for rule in rules {
        let family = all.iter().filter(|other| other.ipv6 == rule.ipv6 && other.priority > 0);
        let least = family.map(|other| other.priority).min().unwrap_or(MAIN_PRIORITY);
        let action = match &rule.action {
            RuleAction::Table(number) => Act::Table(*number),
            RuleAction::Other(other) => Act::Other(other),
        };
        let priority = rule.priority.unwrap_or_else(|| least.saturating_sub(1));
        all.push(Rule { priority, ipv6: rule.ipv6, entry: Some(rule), action });
    }
    all.sort_by_key(|rule| rule.priority);
    all
}

fn selects(selector: &RuleSelector, packet: &Packet<'_>) -> bool {
    let from = selector.from.is_none_or(|from| match packet.source {
        Some(source) => from.contains(source),
        None => from.length == 0,
    });
    let to = selector.to.is_none_or(|to| to.contains(packet.destination));
    let mark = selector.mark.is_none_or(|(mark, mask)| packet.mark & mask == mark & mask);
    let input = selector.input.as_deref().is_none_or(|input| match packet.input {
        Some(interface) => interface == input,
        // What the host sends itself comes from `lo`.
        None => input == "lo",
    });
    let output = selector.output.is_none();
    (from && to && mark && input && output) != selector.inverted
}
