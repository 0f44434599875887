//! The rules. Their order has no effect; findings are sorted afterwards.

mod existence;
mod filters;
mod gateways;
mod interfaces;
mod links;
mod planned;
mod policy;
mod prefixes;
mod refused;
mod settings;
mod sides;
mod tables;
mod weights;

use clearstream_schema::{
    routing::RouteEntry,
    tune::{Finding, Severity},
};

use super::{Facts, View};

/// A rule about one host; the other hosts provide facts about it.
type HostRule = fn(&Facts<'_>, &View<'_>, &mut Vec<Finding>);
/// A rule that compares hosts.
type SidesRule = fn(&Facts<'_>, &mut Vec<Finding>);

const OF_ONE_HOST: &[HostRule] = &[
    policy::duplicate,
    policy::shadowed,
    policy::address_nobody_has,
    policy::empty_table,
    policy::no_priority,
    policy::mark_never_set,
    tables::no_rule,
    tables::no_rules_given,
    tables::used_twice,
    tables::on_link_hides_default,
    tables::not_in_the_fabric,
    gateways::outside_every_subnet,
    gateways::missing_from_multipath,
    gateways::listed_twice,
    gateways::no_interface,
    gateways::unknown_object,
    interfaces::same_network_twice,
    interfaces::no_default_in_main,
    interfaces::own_network_only,
    interfaces::network_left_main,
    refused::refused,
    existence::source,
    existence::interface,
    existence::own_gateway,
    filters::reverse_path,
    filters::forwarding,
    filters::hash_policy,
    sides::own_tables_unused,
    settings::sysctls,
];

const OF_SEVERAL: &[SidesRule] = &[
    sides::asymmetric,
    sides::gateways_differ,
    sides::not_the_other_network,
    links::on_one_link,
    prefixes::leaves_hosts_out,
    prefixes::swallows,
    links::along_the_path,
];

pub(super) use self::{
    filters::{filter_place, is_reported},
    planned::{Plans, led_away},
};

/// Whether the kernel is certain to refuse a route of a file; one of these rules
/// reports it.
pub(super) fn is_refused<'a>(facts: &Facts<'_>, host: &View<'a>, route: &'a RouteEntry) -> bool {
    let is_outside = |hop| {
        gateways::outside(facts, host, route, hop).is_some_and(|(severity, _)| severity == Severity::Error)
    };
    !host.is_whole() && (existence::is_refused(host, route) || host.hops(route).iter().any(is_outside))
}

/// Runs every rule.
pub(super) fn run(facts: &Facts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for host in &facts.hosts {
        for rule in OF_ONE_HOST {
            rule(facts, host, &mut findings);
        }
    }
    for rule in OF_SEVERAL {
        rule(facts, &mut findings);
    }
    findings
}
