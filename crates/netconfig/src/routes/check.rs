//! Validates what files may hold: names that end up in paths, shells and sections
//! are plain, and ids that routes refer to exist.

use std::collections::BTreeSet;

use clearstream_schema::routing::{HostRouting, NexthopTarget, RouteAction, RuleAction};

use super::RenderError;

pub(crate) fn host(routing: &HostRouting) -> Result<(), RenderError> {
    let check = Check { host: &routing.host };
    check.name("host name", &routing.host)?;
    for interface in &routing.interfaces {
        check.interface(&interface.name)?;
    }
    nexthops(check, routing)?;
    routes(check, routing)?;
    for rule in &routing.rules {
        let selector = &rule.selector;
        for interface in selector.input.iter().chain(&selector.output) {
            check.interface(interface)?;
        }
        for argument in &selector.other {
            check.rule_argument(argument)?;
        }
        if let RuleAction::Other(other) = &rule.action {
            check.rule_argument(other)?;
        }
        let of_family = |prefix: &clearstream_schema::prefix::Prefix| prefix.address.is_ipv6() == rule.ipv6;
        if !selector.from.iter().chain(&selector.to).all(of_family) {
            return Err(check.fault("a rule has an address of the other family".to_owned()));
        }
    }
    for mark in &routing.connection_marks {
        check.interface(&mark.interface)?;
        if !mark.gateway.is_empty() {
            check.name("gateway name", &mark.gateway)?;
        }
        if mark.link_address.is_empty() {
            return Err(check.fault(format!(
                "the link address of gateway {} is not known, and files cannot learn it: give link-addresses \
                 with the gateways' link in the fabric file",
                mark.gateway
            )));
        }
        if crate::read::values::link_address(&mark.link_address).is_none() {
            return Err(check.unwritable(
                "link address",
                &mark.link_address,
                "an Ethernet address such as 02:00:00:00:00:01; other links carry none to match",
            ));
        }
    }
    for (key, located) in &routing.sysctls {
        let is_key =
            key.contains('.') && key.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
        if !is_key {
            return Err(check.unwritable("sysctl", key, "a dotted name such as net.ipv4.ip_forward"));
        }
        if located.value.chars().any(|c| c.is_control() && c != '\t') || located.value.contains("{{") {
            return Err(check.unwritable("sysctl value", &located.value, "one line of plain text"));
        }
    }
    Ok(())
}

fn nexthops(check: Check<'_>, routing: &HostRouting) -> Result<(), RenderError> {
    let mut ids = BTreeSet::new();
    for nexthop in &routing.nexthops {
        if nexthop.id == 0 || !ids.insert(nexthop.id) {
            return Err(check.fault(format!("nexthop id {} is 0 or comes twice", nexthop.id)));
        }
        if let NexthopTarget::Gateway { interface, .. } = &nexthop.target {
            check.interface(interface)?;
        }
    }
    for nexthop in &routing.nexthops {
        if let NexthopTarget::Group { members, .. } = &nexthop.target {
            let missing = members.iter().find(|member| !ids.contains(&member.id) || member.weight == 0);
            if members.is_empty() || missing.is_some() {
                let id = nexthop.id;
                return Err(check.fault(format!("nexthop group {id} lacks a member, or one has weight 0")));
            }
        }
    }
    let missing = routing.routes.iter().find_map(|route| match route.action {
        RouteAction::Nexthop(id) if !ids.contains(&id) => Some((route.destination, id)),
        _ => None,
    });
    match missing {
        Some((destination, id)) => {
            Err(check.fault(format!("the route to {destination} goes by nexthop {id}, which is not there")))
        }
        None => Ok(()),
    }
}

fn routes(check: Check<'_>, routing: &HostRouting) -> Result<(), RenderError> {
    for route in &routing.routes {
        match &route.action {
            RouteAction::Link { interface } => check.interface(interface)?,
            RouteAction::Gateways(hops) => {
                for interface in hops.iter().filter_map(|hop| hop.interface.as_ref()) {
                    check.interface(interface)?;
                }
                if hops.is_empty() || hops.iter().any(|hop| hop.weight == 0 || hop.weight > 256) {
                    return Err(check.fault(format!(
                        "the route to {} has no gateway, or a weight outside of 1 to 256",
                        route.destination
                    )));
                }
            }
            _ => {}
        }
        if route.destination != route.destination.network() {
            return Err(check.fault(format!(
                "the route to {} has bits behind its prefix: the network is {}",
                route.destination,
                route.destination.network()
            )));
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct Check<'a> {
    host: &'a str,
}

impl Check<'_> {
    fn unwritable(self, what: &'static str, value: &str, expected: &'static str) -> RenderError {
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(80).collect::<String>();
        RenderError::Unwritable { host: plain(self.host), what, value: plain(value), expected }
    }

    fn fault(self, fault: String) -> RenderError {
        RenderError::Inconsistent { host: self.host.to_owned(), fault }
    }

    /// A name that becomes a part of a path.
    fn name(self, what: &'static str, name: &str) -> Result<(), RenderError> {
        let is_plain = name.len() <= 253
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if is_plain {
            return Ok(());
        }
        Err(self.unwritable(what, name, "letters, digits, dots, hyphens and underscores"))
    }

    /// The kernel takes up to 15 bytes without `/` and blanks (netdevice(7));
    /// patterns of networkd are rejected too.
    fn interface(self, name: &str) -> Result<(), RenderError> {
        let is_plain = (1..=15).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-@+".contains(c));
        if is_plain {
            return Ok(());
        }
        Err(self.unwritable("interface", name, "1 to 15 letters, digits, dots, hyphens and underscores"))
    }

    /// A selector that is kept as text, its value, or an action.
    fn rule_argument(self, text: &str) -> Result<(), RenderError> {
        let is_plain =
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || " ._-/:".contains(c));
        if is_plain {
            return Ok(());
        }
        Err(self.unwritable("argument of a rule", text, "an argument of ip-rule(8)"))
    }
}
