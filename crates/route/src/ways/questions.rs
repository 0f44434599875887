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
    applied::led_by_gateways,
    conditions::Condition,
    splits::{Class, Splits},
};
use crate::{
    fabric::{Fabric, HostId},
    lint::is_of_the_link,
};

/// Pairs of classes of sources and destinations that a gateway is asked about, at most
/// for two networks; of more, those with the first source or the first destination.
const MOST_PAIRS: usize = 256;
/// Classes of destinations that are asked about for each rule of others, and of sources for each
/// own address.
const MOST_CLASSES: usize = 32;

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
                own.into_iter()
                    .flatten()
                    .for_each(|own| asked.received(fabric, population, interface, far, own));
            }
        }
    }
    asked.questions
}

/// Questions about what a host's own plan leads over gateways, where no fabric says who is at the
/// other end: one address of each class of destinations.
pub fn questions_of(wanted: &HostRouting, live: &HostRouting) -> Vec<Question> {
    let mut asked = Asked::new(wanted, live, true);
    let mut networks: Vec<Prefix> = Vec::new();
    for route in led_by_gateways(wanted) {
        // One that stands by for another has the same destination.
        if !networks.contains(&route.destination.network()) {
            networks.push(route.destination.network());
            asked.led(route.destination, &[]);
        }
    }
    // Whether anybody is there is not known.
    asked.questions.iter_mut().for_each(|question| question.destination_count = 1);
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

/// What distinguishes questions: network, source, destination, interface, mark, user, ports, output.
type Key = (
    Prefix,
    Option<IpAddr>,
    IpAddr,
    Option<String>,
    u32,
    Option<u32>,
    Option<(u8, u16, u16)>,
    Option<String>,
);

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
            self.led(route.destination, population.of(far));
        }
    }

    /// What the host sends to the destination of a route.
    fn led(&mut self, destination: Prefix, known: &[IpAddr]) {
        for class in self.destinations.classes(destination, known) {
            for source in self.own(destination.address.is_ipv6()) {
                self.ask(destination, source, class, None);
            }
            self.marked(destination, class);
        }
        self.of_foreign_rules(destination, known);
    }

    /// What arrives for one of the host's addresses: source validation may drop it.
    fn received(&mut self, fabric: &Fabric, population: &Population, input: &str, far: usize, own: IpAddr) {
        let alike = |from: &&Prefix| from.address.is_ipv6() == own.is_ipv6();
        for from in fabric.network(far).prefixes.iter().filter(alike) {
            let mut sources = self.sources.classes(*from, population.of(far));
            sources.extend(self.destinations.classes(*from, population.of(far)));
            let sources: BTreeMap<IpAddr, Class> =
                sources.into_iter().filter(|class| class.count > 0).map(|it| (it.address, it)).collect();
            for source in few_classes(sources.into_values()) {
                let class = Class { address: own, count: 1 };
                self.ask(Prefix::host(own), Some(source.address), class, Some(input));
            }
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
        let own = own.filter(|own| !is_of_the_link(Prefix::host(*own)));
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
        let sources = self.own(network.address.is_ipv6());
        for (rule, conditions) in self.conditional(network, None) {
            let selector = &rule.selector;
            let classes = self.destinations.classes(network, known);
            // Of an inverted rule, every address is meant.
            let is_meant =
                |class: &&Class| selector.inverted || selector.to.is_none_or(|to| to.contains(class.address));
            let is_from = |source: &&Option<IpAddr>| match (selector.from, source) {
                _ if selector.inverted => source.is_some(),
                (Some(from), Some(source)) => from.contains(*source),
                (from, _) => from.is_none(),
            };
            let Some(source) = sources.iter().rev().find(is_from) else { continue };
            for class in few_classes(classes.iter().filter(is_meant).copied()) {
                for condition in &conditions {
                    self.ask_with(network, *source, class, None, |question| condition.apply(question));
                }
            }
        }
    }

    /// Rules of others for packets of one kind, with what to ask for; of what arrives on an interface
    /// or is sent.
    fn conditional(&self, network: Prefix, input: Option<&str>) -> Vec<(&'a RuleEntry, Vec<Condition>)> {
        let ipv6 = network.address.is_ipv6();
        let of_family = self.foreign.iter().filter(|rule| rule.ipv6 == ipv6);
        let with_conditions = of_family.map(|rule| (*rule, Condition::all_of(rule, input)));
        with_conditions.filter(|(_, conditions)| !conditions.is_empty()).collect()
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
                for (rule, conditions) in self.conditional(*to, Some(input)) {
                    let selector = &rule.selector;
                    let fits = |prefix: Option<Prefix>, address: IpAddr| {
                        selector.inverted || prefix.is_none_or(|prefix| prefix.contains(address))
                    };
                    let Some(source) = sources.iter().find(|source| fits(selector.from, **source)) else {
                        continue;
                    };
                    let meant = destinations.iter().filter(|class| fits(selector.to, class.address));
                    for class in few_classes(meant.copied()) {
                        for condition in &conditions {
                            self.ask_with(*to, Some(*source), class, Some(input), |question| {
                                condition.apply(question);
                            });
                        }
                    }
                }
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
            output: None,
            only_if: None,
            planned: Way::Local,
            least_share: 1.0,
        };
        with(&mut question);
        let found = question.ask(&self.planned);
        // What the plan has no path for, or what is its own, it says nothing about; but what arrives
        // for the host it is to take.
        let is_received = question.input.is_some() && found.verdict == Verdict::Local && is_single(network);
        if !matches!(found.verdict, Verdict::Gateways(..) | Verdict::Link(_)) && !is_received {
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
        let Question { network, source, destination, input, mark, user, ports, output, .. } = &question;
        let key = (*network, *source, *destination, input.clone(), *mark, *user, *ports, output.clone());
        if self.asked.insert(key) {
            self.questions.push(question);
        }
    }
}

/// The classes with most hosts, in their order: of rules and of received packets few tell all.
fn few_classes(classes: impl Iterator<Item = Class>) -> Vec<Class> {
    let mut classes: Vec<Class> = classes.collect();
    classes.sort_by_key(|class| std::cmp::Reverse(class.count));
    classes.truncate(MOST_CLASSES);
    classes
}

fn is_single(destination: Prefix) -> bool {
    destination == Prefix::host(destination.address)
}
