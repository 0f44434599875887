//! The packets worth asking about: to every class of destinations of every planned route,
//! from every source that a rule tells apart, and on gateways what they carry, both ways.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
};

use clearstream_routing::lookup::{Lookup, Verdict};
use clearstream_schema::{
    fabric::HostRole,
    prefix::Prefix,
    routing::{HostRouting, MAIN_TABLE, RouteEntry, RoutingInterface, RuleAction, RuleEntry},
};

use super::{
    Question, Way,
    splits::{Class, Splits},
};
use crate::fabric::{Fabric, HostId};

/// Pairs of classes of sources and destinations that a gateway is asked about, at most
/// for two networks; of more, those with the first source or the first destination.
const MOST_PAIRS: usize = 256;

/// Addresses of the hosts of a fabric that send and receive, sorted.
#[derive(Debug, Default)]
pub struct Population {
    /// By network.
    ends: BTreeMap<usize, Vec<IpAddr>>,
}

impl Population {
    /// All hosts that are no gateways, with their aliases.
    pub fn new(fabric: &Fabric) -> Self {
        let mut population = Self::default();
        for network in 0..fabric.file().networks.len() {
            let mut all = Vec::new();
            for class in fabric.classes_on(network) {
                if fabric.file().classes[class].role == HostRole::Gateway {
                    continue;
                }
                for host in fabric.class_hosts(class) {
                    let Some(link) = fabric.link_on(host, network) else { continue };
                    for ipv6 in [false, true] {
                        all.extend(fabric.address(host, link, ipv6));
                        all.extend(fabric.aliases(host, link, ipv6));
                    }
                }
            }
            all.sort_unstable();
            population.ends.insert(network, all);
        }
        population
    }

    fn of(&self, network: usize) -> &[IpAddr] {
        self.ends.get(&network).map_or(&[], Vec::as_slice)
    }
}

/// Questions about a host of a fabric: `wanted` is its plan, `live` its routing. Of the plan's
/// routes to single addresses, of which there may be thousands, `is_every` also asks about those
/// that nothing else of the host is for.
pub fn questions(
    fabric: &Fabric,
    population: &Population,
    host: HostId,
    wanted: &HostRouting,
    live: &HostRouting,
    is_every: bool,
) -> Vec<Question> {
    let mut asked = Asked::new(wanted, live, is_every);
    for link in 0..fabric.class(host).links.len() {
        let near = fabric.link_network(host, link);
        // By the address: a host may call its interface otherwise than the fabric.
        let own = [false, true].map(|ipv6| fabric.address(host, link, ipv6));
        let has_it = |it: &&RoutingInterface| {
            it.addresses.iter().any(|address| own.contains(&Some(address.value.address)))
        };
        let interface = live.interfaces.iter().find(has_it).map(|interface| &interface.name);
        let interface = interface.unwrap_or(&fabric.class(host).links[link].interface);
        for route in 0..fabric.file().routes.len() {
            let (_, networks) = fabric.route(route);
            let Some(end) = networks.iter().position(|network| *network == near) else { continue };
            let far = networks[1 - end];
            if fabric.class(host).role == HostRole::Gateway {
                if fabric.route_gateways(route).any(|gateway| gateway.host == host) {
                    asked.forwarded(fabric, population, interface, near, far);
                }
            } else if fabric.link_on(host, far).is_none() {
                asked.sent(fabric, population, far);
            }
        }
    }
    asked.questions
}

struct Asked<'a> {
    wanted: &'a HostRouting,
    planned: Lookup<'a>,
    /// Rules that are not in the plan, for packets of one kind.
    foreign: Vec<&'a RuleEntry>,
    destinations: Splits,
    sources: Splits,
    /// Number of the host's routes to single addresses; absent where all are asked about.
    live_routes: Option<HashMap<Prefix, usize>>,
    questions: Vec<Question>,
    asked: HashSet<Key>,
}

/// What distinguishes questions: network, source, destination, interface, mark, user, ports.
type Key = (Prefix, Option<IpAddr>, IpAddr, Option<String>, u32, Option<u32>, Option<(u8, u16, u16)>);

impl<'a> Asked<'a> {
    fn new(wanted: &'a HostRouting, live: &'a HostRouting, is_every: bool) -> Self {
        let is_planned = |rule: &&RuleEntry| {
            let mut planned = wanted.rules.iter();
            planned.any(|it| (&it.action, &it.selector, it.ipv6) == (&rule.action, &rule.selector, rule.ipv6))
        };
        let mut destinations = Splits::destinations(live, live.routes.iter());
        destinations.add(Splits::destinations(wanted, wanted.routes.iter()));
        let mut sources = Splits::sources(live);
        sources.add(Splits::sources(wanted));
        let live_routes = (!is_every).then(|| {
            let mut count: HashMap<Prefix, usize> = HashMap::new();
            for route in live.routes.iter().filter(|route| is_single(route.destination)) {
                *count.entry(route.destination).or_default() += 1;
            }
            count
        });
        Self {
            live_routes,
            asked: HashSet::new(),
            wanted,
            planned: Lookup::new(wanted),
            foreign: live.rules.iter().filter(|rule| !is_planned(rule)).collect(),
            destinations,
            sources,
            questions: Vec::new(),
        }
    }

    /// What the host sends to a network.
    fn sent(&mut self, fabric: &Fabric, population: &Population, far: usize) {
        let wanted = self.wanted;
        let is_there = |route: &&&RouteEntry| {
            fabric.network(far).prefixes.iter().any(|prefix| prefix.contains(route.destination.address))
        };
        let main = wanted.routes.iter().filter(|route| route.table == MAIN_TABLE);
        let main: Vec<&RouteEntry> = main.collect();
        let mut is_first = true;
        for route in main.iter().filter(is_there) {
            if is_single(route.destination) && !std::mem::take(&mut is_first) && self.is_undisputed(route) {
                continue;
            }
            let classes = self.destinations.classes(route.destination, population.of(far));
            let ipv6 = route.destination.address.is_ipv6();
            for class in classes {
                for source in self.own(ipv6) {
                    self.ask(route.destination, source, class, None);
                }
                self.marked(route.destination, class);
            }
            self.of_foreign_rules(route.destination, population.of(far));
        }
    }

    /// Whether the host has one route to the address, the plan's or one in its place.
    fn is_undisputed(&self, route: &RouteEntry) -> bool {
        self.live_routes.as_ref().is_some_and(|count| count.get(&route.destination) == Some(&1))
    }

    /// Sources of what the host sends: none yet, and its planned addresses.
    fn own(&self, ipv6: bool) -> Vec<Option<IpAddr>> {
        let addresses = self.wanted.interfaces.iter().flat_map(|interface| &interface.addresses);
        let own = addresses.map(|own| own.value.address).filter(|own| own.is_ipv6() == ipv6);
        std::iter::once(None).chain(own.map(Some)).collect()
    }

    /// Replies by the marks of the plan.
    fn marked(&mut self, network: Prefix, class: Class) {
        let ipv6 = network.address.is_ipv6();
        let marks: Vec<u32> = self
            .wanted
            .rules
            .iter()
            .filter(|rule| rule.ipv6 == ipv6 && matches!(rule.action, RuleAction::Table(_)))
            .filter_map(|rule| rule.selector.mark.map(|(mark, _)| mark))
            .collect();
        let source = self.own(ipv6).into_iter().flatten().next();
        for mark in marks {
            self.ask_with(network, source, class, None, |question| question.mark = mark);
        }
    }

    /// Packets that rules of others select by more than addresses.
    fn of_foreign_rules(&mut self, network: Prefix, known: &[IpAddr]) {
        let ipv6 = network.address.is_ipv6();
        for rule in self.foreign.clone() {
            let selector = &rule.selector;
            let Some(condition) = Condition::of(rule).filter(|_| rule.ipv6 == ipv6) else { continue };
            let classes = self.destinations.classes(network, known);
            let is_meant = |class: &&Class| selector.to.is_none_or(|to| to.contains(class.address));
            let Some(class) = classes.iter().filter(is_meant).max_by_key(|class| class.count) else {
                continue;
            };
            let sources = self.own(ipv6);
            let is_from = |source: &&Option<IpAddr>| match (selector.from, source) {
                (Some(from), Some(source)) => from.contains(*source),
                (from, _) => from.is_none(),
            };
            let Some(source) = sources.iter().rev().find(is_from) else { continue };
            self.ask_with(network, *source, *class, None, |question| condition.apply(question));
        }
    }

    /// What a gateway takes on from one network to another.
    fn forwarded(&mut self, fabric: &Fabric, population: &Population, input: &str, near: usize, far: usize) {
        for from in &fabric.network(near).prefixes {
            let alike = |to: &&Prefix| to.address.is_ipv6() == from.address.is_ipv6();
            for to in fabric.network(far).prefixes.iter().filter(alike) {
                let mut sources = self.sources.classes(*from, population.of(near));
                // Source validation and rules by destination see the source too.
                sources.extend(self.destinations.classes(*from, population.of(near)));
                let is_own = |address: &IpAddr| {
                    let mut own = self.wanted.interfaces.iter().flat_map(|interface| &interface.addresses);
                    own.any(|own| own.value.address == *address)
                };
                // Nobody sends from an address that no host has, or from the gateway's.
                let is_host = |class: &&Class| class.count > 0 && !is_own(&class.address);
                let sources: BTreeSet<IpAddr> =
                    sources.iter().filter(is_host).map(|class| class.address).collect();
                let destinations = self.destinations.classes(*to, population.of(far));
                let is_cut = sources.len() * destinations.len() > MOST_PAIRS;
                for (row, source) in sources.into_iter().enumerate() {
                    for (column, class) in destinations.iter().enumerate() {
                        if !is_cut || row == 0 || column == 0 {
                            self.ask(*to, Some(source), *class, Some(input));
                        }
                    }
                }
            }
        }
    }

    fn ask(&mut self, network: Prefix, source: Option<IpAddr>, class: Class, input: Option<&str>) {
        self.ask_with(network, source, class, input, |_| {});
    }

    fn ask_with(
        &mut self,
        network: Prefix,
        source: Option<IpAddr>,
        class: Class,
        input: Option<&str>,
        with: impl FnOnce(&mut Question),
    ) {
        let mut question = Question {
            network,
            source,
            destination: class.address,
            destination_count: class.count,
            input: input.map(str::to_owned),
            mark: 0,
            user: None,
            ports: None,
            is_certain: true,
            planned: Way::Local,
            least_share: 1.0,
        };
        with(&mut question);
        let found = question.ask(&self.planned);
        // What the plan has no path for, or what is its own, it says nothing about.
        if !matches!(found.verdict, Verdict::Gateways(..) | Verdict::Link(_)) {
            return;
        }
        // A more exact route of the plan has questions of its own.
        if question.input.is_none() && found.matched != Some(network.network()) {
            return;
        }
        if let Verdict::Gateways(hops, _) = &found.verdict {
            let all: f64 = hops.iter().map(|hop| f64::from(hop.weight)).sum();
            let shares = hops.iter().map(|hop| f64::from(hop.weight) / all);
            question.least_share = shares.fold(1.0, f64::min);
        }
        question.planned = Way::of(&found.verdict);
        let Question { network, source, destination, input, mark, user, ports, .. } = &question;
        let key = (*network, *source, *destination, input.clone(), *mark, *user, *ports);
        if self.asked.insert(key) {
            self.questions.push(question);
        }
    }
}

fn is_single(destination: Prefix) -> bool {
    destination == Prefix::host(destination.address)
}

/// What a rule asks of packets beyond addresses and interface, one value of it.
#[derive(Debug, Default)]
struct Condition {
    mark: Option<u32>,
    user: Option<u32>,
    protocol: Option<u8>,
    source_port: Option<u16>,
    destination_port: Option<u16>,
}

impl Condition {
    fn of(rule: &RuleEntry) -> Option<Self> {
        let selector = &rule.selector;
        if selector.inverted || selector.input.is_some() || selector.output.is_some() {
            return None;
        }
        let mut condition = Self { mark: selector.mark.map(|(mark, mask)| mark & mask), ..Self::default() };
        let mut words = selector.other.iter().map(String::as_str);
        while let Some(word) = words.next() {
            let first =
                |range: Option<&str>| range.map(|range| range.split('-').next().unwrap_or(range).to_owned());
            match word {
                "uidrange" => condition.user = first(words.next())?.parse().ok(),
                "ipproto" => {
                    condition.protocol = match words.next()? {
                        "tcp" => Some(6),
                        "udp" => Some(17),
                        number => Some(number.parse().ok()?),
                    }
                }
                "sport" => condition.source_port = first(words.next())?.parse().ok(),
                "dport" => condition.destination_port = first(words.next())?.parse().ok(),
                "suppress_prefixlength" | "suppress_ifgroup" | "realms" => drop(words.next()),
                // Packets of another type of service, VRF or tunnel are not the fabric's.
                _ => return None,
            }
        }
        let Self { mark, user, protocol, source_port, destination_port } = &condition;
        let is_plain = (mark.is_none() || *mark == Some(0))
            && (user, protocol, source_port, destination_port) == (&None, &None, &None, &None);
        // Neither TCP nor UDP: not what storage goes by.
        let is_other = protocol.is_some_and(|protocol| !matches!(protocol, 6 | 17));
        (!is_plain && !is_other).then_some(condition)
    }

    fn apply(self, question: &mut Question) {
        question.user = self.user;
        if let Some(mark) = self.mark.filter(|mark| *mark != 0) {
            (question.mark, question.is_certain) = (mark, false);
        }
        if self.protocol.is_some() || self.source_port.is_some() || self.destination_port.is_some() {
            const ANY: (u16, u16) = (40_000, 40_001);
            let (source, destination) =
                (self.source_port.unwrap_or(ANY.0), self.destination_port.unwrap_or(ANY.1));
            question.ports = Some((self.protocol.unwrap_or(6), source, destination));
        }
    }
}
