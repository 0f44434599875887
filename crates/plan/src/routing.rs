//! Nexthop objects, routes, rules and addresses as settings: their texts are in
//! the words of `ip` (`clearstream_schema::routing::words`).

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    plan::Setting,
    prefix::Prefix,
    routing::{Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleEntry, words::WordsError},
};

use crate::{
    Fault, SettingError,
    host::{netlink_error, refused},
};

/// Stands before words that have no place in a text, so that it cannot be
/// written back and says why.
const BESIDES: &str = "and";
/// Stands between two things in one place.
const SEVERAL: &str = ";";

/// What is there; `None` when nothing is.
pub(crate) fn read(setting: &Setting, socket: &mut RouteSocket) -> Result<Option<String>, SettingError> {
    let texts = texts(setting, socket).map_err(netlink_error(setting))?;
    Ok((!texts.is_empty()).then(|| texts.join(&format!(" {SEVERAL} "))))
}

fn texts(setting: &Setting, socket: &mut RouteSocket) -> Result<Vec<String>, NetlinkError> {
    let with = |words: String, unsaid: &[String]| match unsaid {
        [] => words,
        unsaid => format!("{words} {BESIDES} {}", unsaid.join(" ")),
    };
    Ok(match setting {
        Setting::Nexthop { id } => {
            let all = socket.nexthops()?.into_iter();
            all.filter(|found| found.entry.id == *id)
                .map(|found| with(found.entry.words(), &found.unsaid))
                .collect()
        }
        Setting::Route { .. } => {
            let all = socket.all_routes()?.into_iter();
            all.filter(|found| found.entry.setting() == *setting && !found.is_for_some_packets())
                .map(|found| with(found.entry.words(), &found.unsaid))
                .collect()
        }
        Setting::Rule { .. } => rules(setting, socket)?.iter().map(RuleEntry::words).collect(),
        Setting::Address { interface, prefix } => {
            let all = socket.all_addresses()?.into_iter();
            all.filter(|found| found.interface == *interface && found.prefix == *prefix)
                .map(|found| with(address_words(found.protocol), unsaid_of_address(found.makes_no_route)))
                .collect()
        }
        _ => Vec::new(),
    })
}

/// Text of an address: its owner, 0 when unknown.
fn address_words(protocol: u8) -> String {
    format!("proto {protocol}")
}

fn unsaid_of_address(makes_no_route: bool) -> &'static [String] {
    use std::sync::LazyLock;
    static NO_ROUTE: LazyLock<[String; 1]> = LazyLock::new(|| ["noprefixroute".to_owned()]);
    if makes_no_route { NO_ROUTE.as_slice() } else { &[] }
}

/// Rules of the same family, priority and selector.
fn rules(setting: &Setting, socket: &mut RouteSocket) -> Result<Vec<RuleEntry>, NetlinkError> {
    let all = socket.rules()?.into_iter().map(|found| found.entry);
    Ok(all.filter(|rule| rule.setting().as_ref() == Some(setting)).collect())
}

/// What a text says.
enum Entry {
    Nexthop(Nexthop),
    Route(RouteEntry),
    Rule(RuleEntry),
    /// Protocol number of the owner.
    Address(String, Prefix, u8),
}

fn entry(setting: &Setting, text: &str) -> Result<Entry, SettingError> {
    let unfit = |error: WordsError| Fault::Invalid { reason: error.to_string() }.of(setting);
    match setting {
        Setting::Nexthop { id } => Nexthop::from_words(*id, text).map(Entry::Nexthop).map_err(unfit),
        Setting::Route { table, destination, metric } => {
            RouteEntry::from_words(*table, *destination, *metric, text).map(Entry::Route).map_err(unfit)
        }
        Setting::Rule { ipv6, priority, selector } => {
            RuleEntry::from_words(*ipv6, *priority, selector, text).map(Entry::Rule).map_err(unfit)
        }
        Setting::Address { interface, prefix } => {
            let protocol = text.strip_prefix("proto ").and_then(|number| number.trim().parse().ok());
            let protocol = protocol.ok_or_else(|| {
                let reason = format!("\"{text}\" is not understood: write \"proto NUMBER\"");
                Fault::Invalid { reason }.of(setting)
            })?;
            Ok(Entry::Address(interface.clone(), *prefix, protocol))
        }
        _ => Err(Fault::Invalid { reason: "is no part of a host's routing".to_owned() }.of(setting)),
    }
}

/// Fails for a text that is not written through here.
pub(crate) fn check(setting: &Setting, text: &str) -> Result<(), SettingError> {
    entry(setting, text).map(|_| ())
}

/// Whether two texts say the same.
pub(crate) fn same(setting: &Setting, wanted: &str, live: &str) -> bool {
    match (entry(setting, wanted), entry(setting, live)) {
        (Ok(Entry::Nexthop(wanted)), Ok(Entry::Nexthop(live))) => wanted == live,
        (Ok(Entry::Route(wanted)), Ok(Entry::Route(live))) => wanted.is_met_by(&live),
        (Ok(Entry::Rule(wanted)), Ok(Entry::Rule(live))) => wanted == live,
        // Kernels before 5.18 do not keep the owner.
        (Ok(Entry::Address(_, _, wanted)), Ok(Entry::Address(_, _, live))) => wanted == live || live == 0,
        _ => false,
    }
}

/// Makes it so. A nexthop object and a route are replaced in place, so that
/// packets find the old or the new one; of a rule the new one comes first.
pub(crate) fn write(setting: &Setting, text: &str, socket: &mut RouteSocket) -> Result<(), SettingError> {
    let unread = |error: NetlinkError| netlink_error(setting)(error);
    let result = match entry(setting, text)? {
        Entry::Nexthop(nexthop) => socket.set_nexthop(&nexthop),
        Entry::Route(route) => {
            let replace = !texts(setting, socket).map_err(unread)?.is_empty();
            socket.set_route(&route, replace)
        }
        Entry::Rule(rule) => {
            let old = rules(setting, socket).map_err(unread)?;
            let added = if old.contains(&rule) { Ok(()) } else { socket.add_rule(&rule) };
            let others = old.iter().filter(|old| **old != rule);
            added.and_then(|()| remove_rules(others, socket))
        }
        Entry::Address(interface, prefix, protocol) => {
            let is_there = !texts(setting, socket).map_err(unread)?.is_empty();
            let removed = if is_there { socket.remove_address(&interface, prefix) } else { Ok(()) };
            removed.and_then(|()| socket.add_owned_address(&interface, prefix, protocol))
        }
    };
    result.map_err(refused(setting, text))
}

fn remove_rules<'a>(
    rules: impl Iterator<Item = &'a RuleEntry>,
    socket: &mut RouteSocket,
) -> Result<(), NetlinkError> {
    for rule in rules {
        socket.remove_rule(rule)?;
    }
    Ok(())
}

/// Takes it away. What is not there is away already.
pub(crate) fn remove(setting: &Setting, socket: &mut RouteSocket) -> Result<(), SettingError> {
    let unread = |error: NetlinkError| netlink_error(setting)(error);
    let live = texts(setting, socket).map_err(unread)?;
    for text in live {
        let result = match entry(setting, &text)? {
            Entry::Nexthop(nexthop) => {
                refuse_used(setting, nexthop.id, socket)?;
                socket.remove_nexthop(nexthop.id)
            }
            Entry::Route(route) => socket.remove_route(&route),
            Entry::Rule(rule) => socket.remove_rule(&rule),
            Entry::Address(interface, prefix, _) => {
                refuse_first(setting, &interface, prefix, socket)?;
                socket.remove_address(&interface, prefix)
            }
        };
        result.map_err(refused(setting, "absent"))?;
    }
    Ok(())
}

/// Without its nexthop the kernel would take others' routes and groups away too.
fn refuse_used(setting: &Setting, id: u32, socket: &mut RouteSocket) -> Result<(), SettingError> {
    let unread = |error: NetlinkError| netlink_error(setting)(error);
    let routes = socket.all_routes().map_err(unread)?;
    let user = routes.iter().find(|route| route.entry.action == RouteAction::Nexthop(id));
    let mut user = user.map(|route| route.entry.setting());
    for nexthop in socket.nexthops().map_err(unread)? {
        if let NexthopTarget::Group { members, .. } = &nexthop.entry.target
            && members.iter().any(|member| member.id == id)
        {
            user = Some(nexthop.entry.setting());
        }
    }
    match user {
        None => Ok(()),
        Some(user) => {
            let reason = format!("{user} still goes by it: move that one first");
            Err(Fault::Invalid { reason }.of(setting))
        }
    }
}

/// With the first address of a network the kernel would take the others of that
/// network away (`promote_secondaries`, ip-sysctl.rst).
fn refuse_first(
    setting: &Setting,
    interface: &str,
    prefix: Prefix,
    socket: &mut RouteSocket,
) -> Result<(), SettingError> {
    let all = socket.all_addresses().map_err(netlink_error(setting))?;
    let same_network = |other: &Prefix| other.network() == prefix.network() && *other != prefix;
    let is_secondary =
        all.iter().any(|found| found.interface == interface && found.prefix == prefix && found.is_secondary);
    let other = all
        .iter()
        .find(|found| found.interface == interface && found.is_secondary && same_network(&found.prefix));
    match other {
        Some(other) if prefix.address.is_ipv4() && !is_secondary => {
            let reason = format!("{} was given after it and would go with it", other.prefix);
            Err(Fault::Invalid { reason }.of(setting))
        }
        _ => Ok(()),
    }
}
