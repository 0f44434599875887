//! Linter for routing: mistakes of one host, or of several that belong together,
//! read from files, captured or live.
//!
//! Rules are small functions over a [`HostRouting`] and the facts that follow from
//! it (`view`, `lookup`); they change nothing. Findings are those of `tune lint`,
//! with the same ids, mute lists and SARIF; mistakes in sysctls are found by its
//! rules.

mod among;
mod fabric;
mod identity;
mod ip_syntax;
mod kernels;
mod lookup;
mod rules;
mod simulate;
mod subjects;
mod view;

use std::{
    collections::{BTreeSet, HashMap},
    net::IpAddr,
};

use clearstream_lint::{Checked, MuteList, With, report};
use clearstream_routing::lookup::Lookup;
use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{HostRouting, RouteEntry},
    tune::{CheckedRouting, Finding, FindingClass, LintReport, Severity},
};
use clearstream_tune::HostState;

use crate::fabric::Fabric;

pub use self::subjects::{of_files, of_host};
pub(crate) use self::view::is_of_the_link;
use self::{
    among::{Compared, MOST_COMPARED, Sender},
    fabric::FabricFacts,
    identity::Identities,
    rules::Plans,
    view::{ResolvedHop, View},
};

/// Hosts of a report that are named one by one.
const MOST_NAMED: usize = 4;

/// Connections that a kernel tracks; only there, and above 0, where it does.
pub const CONNECTION_COUNT: &str = "net.netfilter.nf_conntrack_count";

/// A host to check.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Name for findings: the host's, or that of its folder or bundle.
    pub name: String,
    /// Its routing.
    pub routing: HostRouting,
    /// The routing was read completely, from a kernel: a route, rule or address
    /// that is not in `routing` does not exist. Files contain only what they set.
    pub is_whole: bool,
    /// Its settings, for the rules of `tune lint`.
    pub settings: Option<HostState>,
    /// Parts that could not be read, with the reason.
    pub missing: Vec<String>,
}

impl Subject {
    /// Lookups as its kernel does them, with some of its routes.
    fn lookup<'a>(
        &'a self,
        prefers_source: bool,
        is_accepted: impl Fn(&'a RouteEntry) -> bool,
    ) -> Lookup<'a> {
        Lookup::of_routes(&self.routing, is_accepted).preferring_source(prefers_source)
    }
}

/// Facts that the rules use.
#[derive(Debug)]
struct Facts<'a> {
    hosts: Vec<View<'a>>,
    /// Hosts by their addresses.
    by_address: HashMap<IpAddr, usize>,
    /// Every address that some host has.
    addresses: BTreeSet<IpAddr>,
    /// Hosts that send packets for others to an address.
    senders: HashMap<IpAddr, Vec<Sender<'a>>>,
    compared: Compared,
    fabric: FabricFacts,
    /// Plans of the fabric's hosts.
    plans: Option<Plans<'a>>,
    /// Networks of the given hosts that forward.
    forwarding: BTreeSet<Prefix>,
}

impl<'a> Facts<'a> {
    /// The gateway that an address is of, as its host or the fabric calls it.
    fn gateway_name(&self, address: IpAddr) -> Option<&str> {
        let host = self.owner(address).map(|host| host.subject.name.as_str());
        host.or_else(|| Some(self.fabric.gateway(address)?.name.as_str()))
    }

    /// Whether next hops are those of no host that was given and of no gateway of the
    /// fabric, while gateways of their network are known.
    fn is_nobody(&self, hops: &[ResolvedHop<'_>]) -> bool {
        let is_among_known = |hop: &ResolvedHop<'_>| {
            self.forwarding.iter().any(|network| network.contains(hop.via))
                || self.fabric.networks.iter().any(|network| network.prefix.contains(hop.via))
        };
        hops.iter().all(|hop| self.gateway_name(hop.via).is_none()) && hops.iter().any(is_among_known)
    }

    /// Whether some host has an address in a network.
    fn has_address_in(&self, network: Prefix) -> bool {
        let after = self.addresses.range(network.network().address..).next();
        after.is_some_and(|address| network.contains(*address))
    }

    /// The host that has an address.
    fn owner(&self, address: IpAddr) -> Option<&View<'a>> {
        self.by_address.get(&address).map(|at| &self.hosts[*at])
    }

    /// The first other host that sends packets for others to one of a host's
    /// addresses of a family.
    fn sender_to(&self, host: &View<'_>, is_ipv4: bool) -> Option<(&View<'a>, &Sender<'a>)> {
        let own = host.own.iter().filter(|own| own.is_ipv4() == is_ipv4);
        let senders = own.filter_map(|own| self.senders.get(own)).flatten();
        // Where hosts at the destination were given, the simulation decides whether
        // the next hop or a sender is wrong.
        let others = senders.filter(|sender| {
            let destination = sender.route.destination;
            !std::ptr::eq(&self.hosts[sender.host], host)
                && (host.may_lead(sender.via, destination) || !self.has_address_in(destination))
        });
        let first = others.min_by_key(|sender| (sender.host, sender.hop))?;
        Some((&self.hosts[first.host], first))
    }

    /// Pairs of hosts on different networks that are worth comparing.
    fn pairs(&self) -> impl Iterator<Item = (&View<'a>, &View<'a>)> {
        self.compared.pairs.iter().map(|(left, right)| (&self.hosts[*left], &self.hosts[*right]))
    }

    /// The name of a gateway that keeps connection state: by the fabric, or because
    /// its kernel counts connections.
    fn stateful_gateway(&self, address: IpAddr) -> Option<String> {
        let counts = |host: &&View<'_>| host.number(CONNECTION_COUNT).is_some_and(|count| count > 0);
        let by_host = self.owner(address).filter(counts).map(|host| host.subject.name.clone());
        let by_fabric = self.fabric.gateway(address).filter(|gateway| gateway.stateful);
        by_host.or_else(|| by_fabric.map(|gateway| gateway.name.clone()))
    }

    /// The one that serves first: by the fabric, else as they were given.
    fn server_first<'v>(&self, left: &'v View<'a>, right: &'v View<'a>) -> (&'v View<'a>, &'v View<'a>) {
        if self.fabric.is_storage(&right.subject.name) { (right, left) } else { (left, right) }
    }
}

/// Checks hosts, each alone and all together; a fabric file describes the networks
/// and their gateways.
pub fn lint(hosts: &[Subject], fabric: Option<&Fabric>, mute: &MuteList) -> LintReport {
    let identities = fabric.map(Identities::new);
    let (hosts, unplaced) = identity::named(hosts, identities.as_ref());
    let hosts = &hosts[..];
    let (mut findings, mut open) = findings(hosts, fabric, false);
    if hosts.iter().any(kernels::is_open) {
        let (since, _) = self::findings(hosts, fabric, true);
        findings = kernels::joined(findings, since);
    }
    open.extend(unplaced);
    if hosts.len() == 1 {
        findings.iter_mut().for_each(|finding| finding.host = None);
    }
    let kernels: Vec<_> = hosts.iter().filter_map(|host| host.settings.as_ref()?.release.clone()).collect();
    let counts = counts(hosts);
    let checked = Checked {
        subject: subject(hosts),
        kernel: kernels.first().filter(|first| kernels.iter().all(|kernel| kernel == *first)).cloned(),
        goal: None,
        setting_count: counts.setting_count(),
        routing: Some(counts),
        missing: missing(hosts, open),
    };
    report(checked, findings, mute)
}

/// What all rules find, and notices about what they could not check; hosts of which the kernel's
/// release is not known prefer a next hop by the source or not.
fn findings(hosts: &[Subject], fabric: Option<&Fabric>, prefers_source: bool) -> (Vec<Finding>, Vec<String>) {
    let views: Vec<View<'_>> = hosts.iter().map(|host| View::new(host, prefers_source)).collect();
    let mut by_address = HashMap::new();
    for (at, view) in views.iter().enumerate() {
        for own in view.own.iter().filter(|own| !own.is_loopback()) {
            by_address.entry(*own).or_insert(at);
        }
    }
    let facts = Facts {
        forwarding: views.iter().flat_map(forwarding).collect(),
        addresses: views.iter().flat_map(|view| view.own.iter().copied()).collect(),
        senders: among::senders(&views),
        compared: among::compared(&views),
        hosts: views,
        by_address,
        fabric: fabric.map_or_else(FabricFacts::default, FabricFacts::new),
        plans: fabric.map(Plans::new),
    };
    let mut findings = rules::run(&facts);
    let simulated = simulate::simulate(&facts, &findings);
    findings.extend(simulated.findings);
    findings.extend(rules::led_away(&facts, &findings));
    let cut = facts.compared.is_cut.then(|| {
        format!(
            "so many hosts differ that each was compared with {MOST_COMPARED} on other networks, the commonest \
             kinds first: what only two rare kinds show together was not checked"
        )
    });
    (findings, cut.into_iter().chain(simulated.notices).collect())
}

/// Networks of a host that forwards.
fn forwarding(host: &View<'_>) -> Vec<Prefix> {
    let networks = host.attached.iter().map(|(_, network)| *network);
    let forwards = |network: &Prefix| host.node.forwards(None, network.address.is_ipv6()) == Some(true);
    networks.filter(|network| !is_of_the_link(*network) && forwards(network)).collect()
}

/// The hosts by name, of many the first and the last.
fn subject(hosts: &[Subject]) -> String {
    match hosts {
        [first, .., last] if hosts.len() > MOST_NAMED => {
            format!("{} hosts, {} to {}", hosts.len(), first.name, last.name)
        }
        _ => list(hosts.iter().map(|host| &host.name)),
    }
}

/// What was checked of all hosts.
fn counts(hosts: &[Subject]) -> CheckedRouting {
    let mut counts = CheckedRouting { host_count: hosts.len() as u64, ..CheckedRouting::default() };
    for host in hosts {
        let routing = &host.routing;
        let addresses: usize = routing.interfaces.iter().map(|interface| interface.addresses.len()).sum();
        let given = host.settings.as_ref().map_or(0, |state| state.given.len());
        counts.file_count += routing.files.read_files.len() as u64;
        counts.address_count += addresses as u64;
        counts.route_count += (routing.routes.len() + routing.special_routes.len()) as u64;
        counts.unknown_route_count += routing.files.unknown_routes.len() as u64;
        counts.rule_count += routing.rules.len() as u64;
        counts.nexthop_count += routing.nexthops.len() as u64;
        counts.sysctl_count += given.max(routing.sysctls.len()) as u64;
    }
    counts
}

fn missing(hosts: &[Subject], notices: Vec<String>) -> Vec<String> {
    let named = |host: &Subject, part: &String| match hosts.len() {
        1 => part.clone(),
        _ => format!("{}: {part}", host.name),
    };
    let parts = hosts.iter().flat_map(|host| host.missing.iter().map(move |part| named(host, part)));
    parts.chain(notices).collect()
}

/// A finding about a host, to be completed.
fn finding(
    host: &View<'_>,
    key: &str,
    class: FindingClass,
    cause: &str,
    severity: Severity,
    message: String,
) -> Finding {
    let name = host.subject.name.clone();
    Finding { host: Some(name), ..clearstream_lint::finding(key, class, cause, severity, message) }
}

#[cfg(test)]
mod tests;
