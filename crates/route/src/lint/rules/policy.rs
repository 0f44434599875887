//! Policy rules without effect, or with another effect than they seem to have.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use clearstream_routing::lookup::{DEFAULT_TABLE, LOCAL_TABLE};
use clearstream_schema::{
    human::list,
    prefix::Prefix,
    routing::{MAIN_TABLE, RouteAction, RuleAction, RuleEntry, RuleSelector, files::Loader},
    tune::{Finding, FindingClass, Severity},
};

use super::super::{
    Facts, View, With, finding, ip_syntax,
    lookup::{refuses, selects_all_of},
};

const RULE: &str = "rule";
/// Numbers of the kernel's own tables (rtnetlink(7)): unspecified, default, main, local.
pub(super) const KERNEL_TABLES: [u32; 4] = [0, DEFAULT_TABLE, MAIN_TABLE, LOCAL_TABLE];

/// The same rule twice: the second is never reached, and each further run of the
/// file adds one more.
pub(super) fn duplicate(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut seen: HashMap<(bool, &RuleSelector), Vec<&RuleEntry>> = HashMap::new();
    for rule in &host.routing.rules {
        let alike = seen.entry((rule.ipv6, &rule.selector)).or_default();
        let Some(first) = alike.iter().find(|other| other.action == rule.action) else {
            alike.push(rule);
            continue;
        };
        let message = format!(
            "the same rule is there already{}: one of them is never reached, and anyone who removes a rule once \
             still has the other",
            place(first)
        );
        found.push(
            finding(host, RULE, FindingClass::NoOp, "duplicate", Severity::Warning, message)
                .of(ip_syntax::rule(rule))
                .at(rule.place.as_ref())
                .advise("delete one of them")
                .sourced("ip-rule(8)"),
        );
    }
}

/// A rule after one that selects all its packets, for a table with a route for
/// each.
pub(super) fn shadowed(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let rules = &host.routing.rules;
    let shades: Vec<usize> = (0..rules.len()).filter(|at| ends_every_lookup(host, &rules[*at])).collect();
    for (at, rule) in rules.iter().enumerate().filter(|(_, rule)| !is_last_resort(rule)) {
        let is_before = |other: usize| (host.priorities[other], other) < (host.priorities[at], at);
        let hides = |other: usize| {
            let shade = &rules[other];
            other != at
                && is_before(other)
                && (&shade.selector, &shade.action) != (&rule.selector, &rule.action)
                && selects_all_of(shade, rule)
        };
        let Some(shade) = shades.iter().copied().find(|other| hides(*other)) else { continue };
        let order = match (rule.priority, rules[shade].priority) {
            (None, None) => {
                "; of rules without priority the kernel puts each one before those that are there".to_owned()
            }
            _ => format!("; it has priority {}, this one {}", host.priorities[shade], host.priorities[at]),
        };
        let message = format!(
            "never applies: \"{}\"{} takes the same packets first, and its table has a route for every \
             destination{order}",
            ip_syntax::rule(&rules[shade]),
            place(&rules[shade]),
        );
        found.push(
            finding(host, RULE, FindingClass::NoOp, "shadowed", Severity::Warning, message)
                .of(ip_syntax::rule(rule))
                .at(rule.place.as_ref())
                .advise("delete the one that is not meant, and give each rule a priority of its own")
                .sourced("ip-rule(8); net/core/fib_rules.c, fib_default_rule_pref"),
        );
    }
}

/// A rule that is meant for when the table before it has no route: one that drops, or for the kernel's own last table.
fn is_last_resort(rule: &RuleEntry) -> bool {
    match &rule.action {
        RuleAction::Table(table) => *table == DEFAULT_TABLE,
        RuleAction::Other(action) => matches!(&**action, "unreachable" | "prohibit" | "blackhole"),
    }
}

/// A rule for a source address that no packet of this host carries.
pub(super) fn address_nobody_has(facts: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for rule in &host.routing.rules {
        let Some(from) = rule.selector.from.filter(|from| *from == Prefix::host(from.address)) else {
            continue;
        };
        if rule.selector.inverted || rule.selector.input.is_some() || host.own.contains(&from.address) {
            continue;
        }
        let Some(reason) = not_own(facts, host, rule, from.address) else { continue };
        let message = format!(
            "{reason}, and a rule by source address is about packets that this host sends: it matches none \
             of them, and replies do not take {}",
            match rule.action {
                RuleAction::Table(table) => format!("table {table}"),
                RuleAction::Other(_) => "this rule".to_owned(),
            }
        );
        found.push(
            finding(host, RULE, FindingClass::NoOp, "address-nobody-has", Severity::Warning, message)
                .of(ip_syntax::rule(rule))
                .at(rule.place.as_ref())
                .advise(
                    "give this host an address for each gateway and name that address in the rule, or mark \
                     connections by the gateway that they came by",
                )
                .sourced("ip-rule(8)"),
        );
    }
}

/// Why an address is not one that this host sends from; absent where it may be.
fn not_own(facts: &Facts<'_>, host: &View<'_>, rule: &RuleEntry, address: IpAddr) -> Option<String> {
    // Packets of others pass a router, a host of containers, one that holds an address in turns.
    if forwards(host) || leads_inside(host, address) {
        return None;
    }
    if host.all_hops().any(|(_, hop)| hop.via == address) {
        return Some(format!("{address} is a gateway in this host's own routes"));
    }
    if let Some(gateway) = facts.fabric.gateway(address) {
        return Some(format!("{address} is the address of gateway {}", gateway.name));
    }
    if let Some(other) = facts.owner(address) {
        return Some(format!("{address} is an address of {}", other.subject.name));
    }
    if let Some(rest) = super::gateways::missing_ones(host).find(|missing| missing.address == address) {
        return Some(format!("{address} is a gateway as the others are ({})", list(rest.others)));
    }
    // Files and printed tables do not show whether the host forwards; a slip is an address of a network of its own.
    let is_printed = !host.is_whole() && host.loader(rule.place.as_ref()) == Loader::Kernel;
    let is_known = host.is_whole()
        || !is_printed && host.knows_addresses(None, address) && host.is_attached(address, None);
    is_known.then(|| format!("no interface of this host has {address}"))
}

/// Whether a route to the one address, or a network of containers, leads to it from this host.
fn leads_inside(host: &View<'_>, address: IpAddr) -> bool {
    let of_containers = [
        "docker", "cni", "br-", "virbr", "cali", "veth", "eni", "lxc", "podman", "flannel", "cilium", "tap",
        "vnet",
    ];
    let is_inside = |name: &str| of_containers.iter().any(|prefix| name.starts_with(prefix));
    host.routing.routes.iter().any(|route| {
        matches!(&route.action, RouteAction::Link { interface }
            if route.destination.contains(address)
                && (route.destination == Prefix::host(address) || is_inside(interface)))
    }) || host.attached.iter().any(|(name, network)| is_inside(name) && network.contains(address))
}

/// Whether some packet that this host sends may match a rule.
pub(super) fn may_match(facts: &Facts<'_>, host: &View<'_>, rule: &RuleEntry) -> bool {
    match rule.selector.from {
        None => true,
        Some(from) if from == Prefix::host(from.address) => {
            host.own.contains(&from.address) || not_own(facts, host, rule, from.address).is_none()
        }
        Some(from) => {
            !host.knows_addresses(None, from.address)
                || host.own.iter().any(|own| from.contains(*own))
                || rule.selector.inverted
        }
    }
}

/// Whether packets of others pass this host, for which such rules may be.
fn forwards(host: &View<'_>) -> bool {
    let keys = ["net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding", "net.ipv6.conf.all.forwarding"];
    keys.iter().any(|key| host.number(key) == Some(1))
        || host.forwards_on_some(false)
        || host.forwards_on_some(true)
}

/// A rule that refers to a table without routes.
pub(super) fn empty_table(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    for rule in &host.routing.rules {
        let RuleAction::Table(table) = rule.action else { continue };
        if KERNEL_TABLES.contains(&table) || host.tables.contains_key(&table) || may_have_others(host, table)
        {
            continue;
        }
        let there = if host.is_whole() { "has no route" } else { "has no route in what was given" };
        let message = format!(
            "table {table} {there}: the search goes on with the next rule as if this one were not there, and \
             these packets take the path of the main table"
        );
        found.push(
            finding(host, RULE, FindingClass::NoOp, "empty-table", Severity::Warning, message)
                .of(ip_syntax::rule(rule))
                .at(rule.place.as_ref())
                .advise(format!("add the routes of table {table}, or delete the rule"))
                .sourced("ip-rule(8)"),
        );
    }
}

/// Whether a table may have routes beside those that were read: to an interface's own networks, or not known ones.
fn may_have_others(host: &View<'_>, table: u32) -> bool {
    let files = &host.routing.files;
    files.connected.values().any(|connected| *connected == table)
        || files.vrf_tables.contains(&table)
        || files.unknown_in(table).next().is_some()
}

/// Rules whose order is left to the kernel; one finding for a file.
pub(super) fn no_priority(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let mut by_file: BTreeMap<Option<&str>, Vec<&RuleEntry>> = BTreeMap::new();
    for rule in host.routing.rules.iter().filter(|rule| rule.priority.is_none()) {
        by_file.entry(rule.place.as_ref().map(|place| place.file.as_str())).or_default().push(rule);
    }
    for rules in by_file.values() {
        let [first, ..] = &rules[..] else { continue };
        let (subject, verb) = match rules.len() {
            1 => ("1 rule has".to_owned(), "it"),
            count => (format!("{count} rules have"), "each"),
        };
        let message = format!(
            "{subject} no priority: {verb} gets one below the lowest there is, so that the last line comes \
             first, and each further run of the file adds the same rules with new priorities"
        );
        found.push(
            finding(host, RULE, FindingClass::Order, "no-priority", Severity::Warning, message)
                .of(ip_syntax::rule(first))
                .at(first.place.as_ref())
                .advise("write a priority into each rule, as in \"priority 101 from 10.0.0.1 table 1\"")
                .sourced("ip-rule(8); net/core/fib_rules.c, fib_default_rule_pref"),
        );
    }
}

/// A rule for a mark that nothing sets, of the firewall that was read; without one it is set elsewhere.
pub(super) fn mark_never_set(_: &Facts<'_>, host: &View<'_>, found: &mut Vec<Finding>) {
    let files = &host.routing.files;
    let has_firewall = files.has_firewall || !host.routing.connection_marks.is_empty();
    if host.is_whole() && !has_firewall {
        return;
    }
    for rule in &host.routing.rules {
        let Some((mark, mask)) = rule.selector.mark.filter(|(mark, mask)| mark & mask != 0) else { continue };
        let marks = &host.routing.connection_marks;
        let is_set = marks.iter().any(|entry| entry.mark & mask == mark & mask)
            || files.marks.iter().any(|set| set & mask == mark & mask);
        // A kernel that printed the rule showed no firewall.
        let is_printed = !host.is_whole() && host.loader(rule.place.as_ref()) == Loader::Kernel;
        if is_set || rule.selector.inverted || is_printed {
            continue;
        }
        let severity = if has_firewall && !host.is_whole() { Severity::Warning } else { Severity::Note };
        let message = format!(
            "nothing that was read gives packets the mark {mark:#x}: unless a firewall rule or a program \
             (SO_MARK) does, this rule matches none"
        );
        found.push(
            finding(host, RULE, FindingClass::NoOp, "mark-never-set", severity, message)
                .of(ip_syntax::rule(rule))
                .at(rule.place.as_ref())
                .advise(
                    "set the mark: \"ct mark set\" by the gateway's link address where packets arrive, and \
                     \"meta mark set ct mark\" in a chain of type route at the output hook",
                )
                .sourced("ip-rule(8), nft(8)"),
        );
    }
}

/// Whether a rule ends the search for every destination.
fn ends_every_lookup(host: &View<'_>, rule: &RuleEntry) -> bool {
    match &rule.action {
        RuleAction::Other(action) => refuses(action),
        RuleAction::Table(table) => {
            let routes = host.tables.get(table).map_or(&[][..], Vec::as_slice);
            routes.iter().any(|route| {
                route.destination.length == 0
                    && route.destination.address.is_ipv4() != rule.ipv6
                    && route.action != RouteAction::Throw
            })
        }
    }
}

/// ` (rule-ib1:4)`, where that is known.
fn place(rule: &RuleEntry) -> String {
    rule.place.as_ref().map_or_else(String::new, |place| match place.line {
        Some(line) => format!(" ({}:{line})", place.file),
        None => format!(" ({})", place.file),
    })
}
