//! Nexthop objects, routes, rules and addresses as settings: their values have
//! the syntax of `ip` (`clearstream_schema::routing::values`).

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::{
    plan::{Setting, Value},
    prefix::Prefix,
    routing::{Nexthop, NexthopTarget, RouteAction, RouteEntry, RuleEntry, values::AddressValue},
};

use crate::{
    Fault, SettingError,
    host::{netlink_error, refused},
};

/// Separates arguments that a text does not support; they show why it cannot be
/// written back.
const UNSUPPORTED: &str = "and";
/// Separates two objects in one place.
const NEXT_OBJECT: &str = ";";

/// Current text; `None` when there is none.
pub(crate) fn read(setting: &Setting, socket: &mut RouteSocket) -> Result<Option<String>, SettingError> {
    let texts = texts(setting, socket).map_err(netlink_error(setting))?;
    Ok((!texts.is_empty()).then(|| texts.join(&format!(" {NEXT_OBJECT} "))))
}

fn texts(setting: &Setting, socket: &mut RouteSocket) -> Result<Vec<String>, NetlinkError> {
    let with = |text: String, unsupported: &[String]| match unsupported {
        [] => text,
        unsupported => format!("{text} {UNSUPPORTED} {}", unsupported.join(" ")),
    };
    Ok(match setting {
        Setting::Nexthop { id } => {
            let all = socket.nexthops()?.into_iter();
            all.filter(|found| found.entry.id == *id)
                .map(|found| with(found.entry.value().to_string(), &found.unsupported))
                .collect()
        }
        Setting::Route { .. } => {
            let all = socket.all_routes()?.into_iter();
            all.filter(|found| found.entry.setting() == *setting && !found.is_for_some_packets())
                .map(|found| with(found.entry.value().to_string(), &found.unsupported))
                .collect()
        }
        Setting::Rule { .. } => rules(setting, socket)?.iter().map(|rule| rule.value().to_string()).collect(),
        Setting::Address { interface, prefix } => {
            let all = socket.all_addresses()?.into_iter();
            all.filter(|found| found.interface == *interface && found.prefix == *prefix)
                .map(|found| {
                    let value = AddressValue { protocol: found.protocol };
                    with(value.to_string(), unsupported_of_address(found.makes_no_route))
                })
                .collect()
        }
        _ => Vec::new(),
    })
}

fn unsupported_of_address(makes_no_route: bool) -> &'static [String] {
    use std::sync::LazyLock;
    static NO_ROUTE: LazyLock<[String; 1]> = LazyLock::new(|| ["noprefixroute".to_owned()]);
    if makes_no_route { NO_ROUTE.as_slice() } else { &[] }
}

/// Rules of the same family, priority and selector.
fn rules(setting: &Setting, socket: &mut RouteSocket) -> Result<Vec<RuleEntry>, NetlinkError> {
    let all = socket.rules()?.into_iter().map(|found| found.entry);
    Ok(all.filter(|rule| rule.setting().as_ref() == Some(setting)).collect())
}

/// A text parsed for its setting.
enum Entry {
    Nexthop(Nexthop),
    Route(RouteEntry),
    Rule(RuleEntry),
    Address(String, Prefix, AddressValue),
}

fn entry(setting: &Setting, text: &str) -> Result<Entry, SettingError> {
    let invalid = |reason: String| Fault::Invalid { reason }.of(setting);
    let value = Value::of(setting, text).map_err(|error| invalid(error.to_string()))?;
    match (setting, value) {
        (Setting::Nexthop { id }, Value::Nexthop(value)) => Ok(Entry::Nexthop(value.at(*id))),
        (Setting::Route { table, destination, metric }, Value::Route(value)) => {
            Ok(Entry::Route(value.at(*table, *destination, *metric)))
        }
        (Setting::Rule { ipv6, priority, selector }, Value::Rule(value)) => {
            Ok(Entry::Rule(value.at(*ipv6, *priority, selector)))
        }
        (Setting::Address { interface, prefix }, Value::Address(value)) => {
            Ok(Entry::Address(interface.clone(), *prefix, value))
        }
        _ => Err(invalid("is no part of a host's routing".to_owned())),
    }
}

/// Fails for a text that is no valid value.
pub(crate) fn check(setting: &Setting, text: &str) -> Result<(), SettingError> {
    entry(setting, text).map(|_| ())
}

/// Whether two texts have the same meaning.
pub(crate) fn same(setting: &Setting, wanted: &str, live: &str) -> bool {
    match (entry(setting, wanted), entry(setting, live)) {
        (Ok(Entry::Nexthop(wanted)), Ok(Entry::Nexthop(live))) => wanted == live,
        (Ok(Entry::Route(wanted)), Ok(Entry::Route(live))) => wanted.is_met_by(&live),
        (Ok(Entry::Rule(wanted)), Ok(Entry::Rule(live))) => wanted == live,
        // Kernels before 5.18 do not keep the owner.
        (Ok(Entry::Address(_, _, wanted)), Ok(Entry::Address(_, _, live))) => {
            wanted == live || live.protocol == 0
        }
        _ => false,
    }
}

/// Writes a setting. A nexthop object and a route are replaced in place, so that
/// packets see the old or the new one; a new rule is added before the old one is
/// removed.
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
        Entry::Address(interface, prefix, AddressValue { protocol }) => {
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

/// Removes a setting. Removing what does not exist is no error.
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

/// With a nexthop the kernel would remove routes and groups of others that use it.
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
            let reason = format!("{user} still uses it: change that one first");
            Err(Fault::Invalid { reason }.of(setting))
        }
    }
}

/// With the first address of a network the kernel would remove the others of that
/// network (`promote_secondaries`, ip-sysctl.rst).
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
            let reason = format!("{} was added after it and would be removed with it", other.prefix);
            Err(Fault::Invalid { reason }.of(setting))
        }
        _ => Ok(()),
    }
}
