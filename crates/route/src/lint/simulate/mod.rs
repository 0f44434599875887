//! Forwarding simulation with the routing of all given hosts: from every class of
//! hosts to every class of addresses that they are meant to reach, by every next
//! hop, and back. A lost packet is a finding about the host that loses it; a path
//! that cannot be followed, because a host was not given, is reported once.

mod causes;
mod classes;
mod explain;
mod intent;
mod pair;
mod report;
mod site;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use clearstream_schema::{human::few, prefix::Prefix, tune::Finding};

use self::{
    causes::{Causes, Example},
    classes::Classes,
    intent::Intent,
    pair::Pair,
    site::{Member, Site},
};
use super::Facts;

/// Maximum number of pairs of classes to walk; of more, evenly spaced ones are
/// walked.
const MOST_PAIRS: usize = 6_400;

/// Results of the simulation.
#[derive(Debug, Default)]
pub(super) struct Simulated {
    pub(super) findings: Vec<Finding>,
    /// Paths that could not be followed.
    pub(super) notices: Vec<String>,
}

/// Hosts of one class, or addresses of such hosts, as one end of paths.
#[derive(Debug, Clone, Copy)]
struct End {
    host: usize,
    address: IpAddr,
    /// How many it stands for.
    count: u64,
}

/// Walks all paths of the given hosts. `local` are findings of the rules on single
/// hosts: what these explain is not reported twice.
pub(super) fn simulate(facts: &Facts<'_>, local: &[Finding]) -> Simulated {
    // Of one host alone nothing can be followed.
    if facts.hosts.len() < 2 {
        return Simulated::default();
    }
    let site = Site::new(facts);
    let classes = Classes::new(facts);
    let mut run =
        Run { site: &site, classes: &classes, causes: Causes::default(), unknown: Unknown::default() };
    let intents = intent::intents(&site, &classes);
    run.every(&intents);
    let mut notices = run.unknown.notices(&site);
    notices.extend(unused_forwarders(&site, &intents));
    let mut findings = report::duplicates(&site);
    findings.extend(report::findings(&site, &classes, &run.causes, local));
    Simulated { findings, notices }
}

struct Run<'w, 's, 'a> {
    site: &'w Site<'s, 'a>,
    classes: &'w Classes,
    causes: Causes,
    unknown: Unknown,
}

impl Run<'_, '_, '_> {
    fn every(&mut self, intents: &BTreeSet<Intent>) {
        let ends: Vec<(Vec<End>, Vec<End>)> =
            intents.iter().map(|intent| (self.clients(intent), self.servers(intent))).collect();
        let pairs: usize = ends.iter().map(|(clients, servers)| clients.len() * servers.len()).sum();
        let step = pairs.div_ceil(MOST_PAIRS).max(1);
        let mut walked = Vec::new();
        for (clients, servers) in &ends {
            let mut of_intent = Walked::default();
            for (at, client) in clients.iter().enumerate() {
                for server in servers.iter().skip(at % step).step_by(step) {
                    if client.host != server.host {
                        self.pair(*client, *server, &mut of_intent);
                    }
                }
            }
            walked.push(of_intent);
        }
        self.unknown.is_cut = step > 1;
        // A host with a gateway's address is not reachable from beyond the gateway.
        let hidden: BTreeSet<(Prefix, Prefix)> = intents
            .iter()
            .zip(&walked)
            .filter(|(_, walked)| walked.is_translated)
            .map(|(intent, _)| (intent.to, intent.from))
            .collect();
        for (intent, Walked { causes, unknown, .. }) in intents.iter().zip(walked) {
            if !hidden.contains(&(intent.from, intent.to)) {
                self.causes.merge(causes);
                self.unknown.merge(unknown);
            }
        }
    }

    /// Hosts that are to reach the other network, one of each class.
    fn clients(&self, intent: &Intent) -> Vec<End> {
        let members = self.members(intent.from, intent.to);
        let mut seen = BTreeSet::new();
        let hosts = members.filter(|member| seen.insert(member.host));
        self.ends(hosts, |_| 0)
    }

    /// Addresses that are to be reached, one of each class.
    fn servers(&self, intent: &Intent) -> Vec<End> {
        let members = self.members(intent.to, intent.from);
        self.ends(members.filter(|member| intent.within.contains(member.address)), |member| member.position)
    }

    /// Hosts on one network only that do not forward.
    fn members(&self, on: Prefix, other: Prefix) -> impl Iterator<Item = Member> {
        let members = self.site.networks.get(&on).map_or(&[][..], Vec::as_slice);
        members.iter().copied().filter(move |member| {
            !self.site.is_gateway(member.host, on.address.is_ipv6()) && !self.site.is_on(member.host, other)
        })
    }

    fn ends(&self, members: impl Iterator<Item = Member>, part: impl Fn(&Member) -> usize) -> Vec<End> {
        let mut ends: BTreeMap<(usize, usize), End> = BTreeMap::new();
        for member in members {
            let key = (self.classes.of[member.host], part(&member));
            let first = End { host: member.host, address: member.address, count: 0 };
            ends.entry(key).or_insert(first).count += 1;
        }
        ends.into_values().collect()
    }

    fn pair(&self, client: End, server: End, walked: &mut Walked) {
        let Run { site, .. } = *self;
        let pair = Pair { site, client: client.host, server: server.host, address: server.address };
        let outcome = pair.walk();
        let example = |is_reply: bool| Example {
            client: client.host,
            server: server.host,
            address: server.address,
            is_reply,
        };
        for (cause, is_reply) in outcome.causes {
            // A host of a class is one of many; what it cannot reach is counted.
            let pair_count = match cause.at {
                at if cause.is_end && at == client.host => server.count,
                at if cause.is_end && at == server.host => client.count,
                _ => client.count * server.count,
            };
            walked.causes.add(cause, example(is_reply), pair_count);
        }
        walked.is_translated |= outcome.is_translated || outcome.needs_translation;
        walked.unknown.not_given.extend(outcome.not_given);
        walked.unknown.not_understood.extend(outcome.not_understood);
        if outcome.needs_translation {
            for gateway in outcome.may_translate {
                walked.unknown.translating.entry(gateway).or_insert(example(true));
            }
        }
    }
}

/// Results of the pairs of one intent.
#[derive(Debug, Default)]
struct Walked {
    causes: Causes,
    unknown: Unknown,
    /// Sources are replaced on the path, or paths work only if they are.
    is_translated: bool,
}

/// Paths that could not be followed.
#[derive(Debug, Default)]
struct Unknown {
    not_given: BTreeSet<(IpAddr, usize)>,
    not_understood: BTreeSet<usize>,
    /// Gateways without whose translation, which is not known, paths do not
    /// work, with the first such path.
    translating: BTreeMap<usize, Example>,
    is_cut: bool,
}

impl Unknown {
    fn merge(&mut self, other: Self) {
        self.not_given.extend(other.not_given);
        self.not_understood.extend(other.not_understood);
        for (gateway, example) in other.translating {
            self.translating.entry(gateway).or_insert(example);
        }
    }

    fn notices(&self, site: &Site<'_, '_>) -> Vec<String> {
        let mut notices = Vec::new();
        let addresses: BTreeSet<IpAddr> = self.not_given.iter().map(|(via, _)| *via).collect();
        if !addresses.is_empty() {
            let senders: BTreeSet<usize> = self.not_given.iter().map(|(_, host)| *host).collect();
            notices.push(format!(
                "paths over {}, next hop{} of {}: no host with {} was given",
                few(&addresses),
                if addresses.len() == 1 { "" } else { "s" },
                few(senders.iter().map(|host| site.name(*host))),
                if addresses.len() == 1 { "this address" } else { "these addresses" },
            ));
        }
        if !self.not_understood.is_empty() {
            let hosts = self.not_understood.iter().map(|host| site.name(*host));
            notices.push(format!(
                "paths by rules of {} that select packets by more than addresses, marks and interfaces, or by routes \
                 that are not known completely",
                few(hosts)
            ));
        }
        if let Some(first) = self.translating.values().next() {
            let (client, server) = (site.name(first.client), site.name(first.server));
            notices.push(format!(
                "whether {} replace{} source addresses (masquerade, SNAT): paths through work only then, first \
                 from {client} to {} of {server}; as root the rules of nftables are read, and what they \
                 depend on beyond addresses and interfaces is not followed",
                few(self.translating.keys().map(|host| site.name(*host))),
                if self.translating.len() == 1 { "s" } else { "" },
                first.address,
            ));
        }
        if self.is_cut {
            notices.push(format!(
                "some paths: so many hosts differ that {MOST_PAIRS} pairs of them were walked, each host with some of the others"
            ));
        }
        notices
    }
}

/// Hosts that forward between networks without an intent.
fn unused_forwarders(site: &Site<'_, '_>, intents: &BTreeSet<Intent>) -> Option<String> {
    let networks: Vec<Prefix> = site.networks.keys().copied().collect();
    let is_end = |on: Prefix, other: Prefix| {
        site.networks[&on].iter().any(|member| {
            !site.is_on(member.host, other)
                && site.node(member.host).forwards(None, on.address.is_ipv6()) != Some(true)
        })
    };
    for (at, from) in networks.iter().enumerate() {
        for to in networks[at + 1..].iter().filter(|to| to.address.is_ipv4() == from.address.is_ipv4()) {
            let is_meant = intents.iter().any(|it| (it.from, it.to) == (*from, *to));
            let between = site.gateways_between(*from, *to);
            if is_meant || between.is_empty() || !is_end(*from, *to) || !is_end(*to, *from) {
                continue;
            }
            return Some(format!(
                "paths between {from} and {to}: {} forward{} between them, and no route of a host on either \
                 leads there; give the fabric (--fabric) if they are to reach each other",
                few(between.iter().map(|(host, _)| site.name(*host))),
                if between.len() == 1 { "s" } else { "" },
            ));
        }
    }
    None
}
