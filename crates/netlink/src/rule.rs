//! Policy rules (`ip rule`, linux/fib_rules.h).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearstream_schema::routing::{RuleAction, RuleEntry, RuleSelector};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::RouteProtocol,
    rule::{RuleAction as Action, RuleAttribute, RuleFlags, RuleMessage},
};

use crate::{NetlinkError, Prefix, RouteSocket};

/// The mask of all bits.
const WHOLE_MARK: u32 = u32::MAX;

/// A policy rule of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRule {
    /// The rule; unsupported selectors are in its `other` text.
    pub entry: RuleEntry,
    /// The kernel created it (priorities 0, 32766, 32767).
    pub is_kernels: bool,
}

impl RouteSocket {
    /// Policy rules of both families, in order of evaluation.
    pub fn rules(&mut self) -> Result<Vec<LiveRule>, NetlinkError> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut query = RuleMessage::default();
            query.header.family = family;
            let replies = match self.dump(RouteNetlinkMessage::GetRule(query), || "list rules".to_owned()) {
                // A kernel without policy routing, or without IPv6.
                Err(error) if is_unknown(&error) => continue,
                other => other?,
            };
            found.extend(replies.into_iter().filter_map(|reply| match reply {
                // Without IPv6, or without its rules, the kernel replies with another family's.
                RouteNetlinkMessage::NewRule(message) if message.header.family == family => {
                    Some(read(&message))
                }
                _ => None,
            }));
        }
        Ok(found)
    }

    /// Adds a rule; fails with `EEXIST` where an equal one exists.
    pub fn add_rule(&mut self, rule: &RuleEntry) -> Result<(), NetlinkError> {
        let message = written(rule)?;
        self.change(RouteNetlinkMessage::NewRule(message), NLM_F_CREATE | NLM_F_EXCL, || {
            format!("add {}", named(rule))
        })
    }

    /// Removes a rule, identified by all its attributes.
    pub fn remove_rule(&mut self, rule: &RuleEntry) -> Result<(), NetlinkError> {
        let message = written(rule)?;
        self.change(RouteNetlinkMessage::DelRule(message), 0, || format!("remove {}", named(rule)))
    }
}

fn named(rule: &RuleEntry) -> String {
    let family = if rule.ipv6 { "IPv6" } else { "IPv4" };
    match rule.priority {
        Some(priority) => format!("the {family} rule of priority {priority}"),
        None => format!("an {family} rule"),
    }
}

fn is_unknown(error: &NetlinkError) -> bool {
    let unknown = [rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::AFNOSUPPORT];
    unknown.iter().any(|errno| error.refused_with() == Some(errno.raw_os_error()))
}

fn read(message: &RuleMessage) -> LiveRule {
    let header = &message.header;
    let ipv6 = header.family == AddressFamily::Inet6;
    let mut selector =
        RuleSelector { inverted: header.flags.contains(RuleFlags::Invert), ..RuleSelector::default() };
    let (mut priority, mut protocol, mut table) = (0, 0, u32::from(header.table));
    let (mut mark, mut mask, mut target) = (None, WHOLE_MARK, None);
    let other = &mut selector.other;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(found) => priority = *found,
            RuleAttribute::Protocol(found) => protocol = u8::from(*found),
            RuleAttribute::Table(found) => table = *found,
            RuleAttribute::FwMark(found) => mark = Some(*found),
            RuleAttribute::FwMask(found) => mask = *found,
            RuleAttribute::Goto(found) => target = Some(*found),
            RuleAttribute::Source(address) => {
                selector.from = Some(Prefix { address: *address, length: header.src_len });
            }
            RuleAttribute::Destination(address) => {
                selector.to = Some(Prefix { address: *address, length: header.dst_len });
            }
            RuleAttribute::Iifname(name) => selector.input = Some(name.clone()),
            RuleAttribute::Oifname(name) => selector.output = Some(name.clone()),
            // Unset: every value of a length or group is -1.
            RuleAttribute::SuppressPrefixLen(u32::MAX) | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            RuleAttribute::SuppressPrefixLen(length) => {
                other.extend(["suppress_prefixlength".to_owned(), length.to_string()]);
            }
            RuleAttribute::SuppressIfGroup(group) => {
                other.extend(["suppress_ifgroup".to_owned(), group.to_string()]);
            }
            RuleAttribute::L3MDev(true) => other.push("l3mdev".to_owned()),
            RuleAttribute::L3MDev(false) => {}
            RuleAttribute::UidRange(range) => {
                other.extend(["uidrange".to_owned(), format!("{}-{}", range.start, range.end)]);
            }
            RuleAttribute::IpProtocol(found) => {
                other.extend(["ipproto".to_owned(), u8::from(*found).to_string()]);
            }
            RuleAttribute::SourcePortRange(range) => {
                other.extend(["sport".to_owned(), format!("{}-{}", range.start, range.end)]);
            }
            RuleAttribute::DestinationPortRange(range) => {
                other.extend(["dport".to_owned(), format!("{}-{}", range.start, range.end)]);
            }
            RuleAttribute::TunId(found) => other.extend(["tun_id".to_owned(), found.to_string()]),
            RuleAttribute::Realm(_) => other.push("realms".to_owned()),
            _ => {}
        }
    }
    if header.tos != 0 {
        other.extend(["tos".to_owned(), format!("{:#x}", header.tos)]);
    }
    selector.mark =
        mark.filter(|mark| (*mark, mask) != (0, WHOLE_MARK) && mask != 0).map(|mark| (mark, mask));
    let action = match header.action {
        Action::ToTable => RuleAction::Table(table),
        Action::Goto => RuleAction::Other(format!("goto {}", target.unwrap_or(0))),
        Action::Nop => RuleAction::Other("nop".to_owned()),
        Action::Blackhole => RuleAction::Other("blackhole".to_owned()),
        Action::Unreachable => RuleAction::Other("unreachable".to_owned()),
        Action::Prohibit => RuleAction::Other("prohibit".to_owned()),
        other => RuleAction::Other(format!("action {}", u8::from(other))),
    };
    let is_plain = selector == RuleSelector::default();
    // fib_default_rules_init, fib6_rules_net_init: local, main, default (IPv4).
    let is_kernels = is_plain
        && matches!(
            (priority, &action),
            (0, RuleAction::Table(255)) | (32766, RuleAction::Table(254)) | (32767, RuleAction::Table(253))
        );
    LiveRule {
        entry: RuleEntry { ipv6, priority: Some(priority), selector, action, protocol, place: None },
        is_kernels,
    }
}

fn written(rule: &RuleEntry) -> Result<RuleMessage, NetlinkError> {
    let unfit = |reason: String| NetlinkError::Unfit { subject: named(rule), reason };
    let selector = &rule.selector;
    if let [selector_text, ..] = selector.other.as_slice() {
        return Err(unfit(format!("the selector \"{selector_text}\" is not supported here")));
    }
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
    if selector.inverted {
        message.header.flags |= RuleFlags::Invert;
    }
    let attributes = &mut message.attributes;
    attributes.extend(rule.priority.map(RuleAttribute::Priority));
    if let Some(from) = selector.from {
        message.header.src_len = from.length;
        attributes.push(RuleAttribute::Source(of_family(from.network().address, rule.ipv6, &unfit)?));
    }
    if let Some(to) = selector.to {
        message.header.dst_len = to.length;
        attributes.push(RuleAttribute::Destination(of_family(to.network().address, rule.ipv6, &unfit)?));
    }
    if let Some((mark, mask)) = selector.mark {
        attributes.extend([RuleAttribute::FwMark(mark), RuleAttribute::FwMask(mask)]);
    }
    attributes.extend(selector.input.clone().map(RuleAttribute::Iifname));
    attributes.extend(selector.output.clone().map(RuleAttribute::Oifname));
    if rule.protocol != 0 {
        attributes.push(RuleAttribute::Protocol(RouteProtocol::from(rule.protocol)));
    }
    message.header.action = match &rule.action {
        RuleAction::Table(table) => {
            attributes.push(RuleAttribute::Table(*table));
            Action::ToTable
        }
        RuleAction::Other(text) => match text.as_str() {
            "nop" => Action::Nop,
            "blackhole" => Action::Blackhole,
            "unreachable" => Action::Unreachable,
            "prohibit" => Action::Prohibit,
            text => match text.strip_prefix("goto ").and_then(|target| target.parse().ok()) {
                Some(target) => {
                    attributes.push(RuleAttribute::Goto(target));
                    Action::Goto
                }
                None => return Err(unfit(format!("\"{text}\" is no action of a rule"))),
            },
        },
    };
    Ok(message)
}

fn of_family(
    address: IpAddr,
    ipv6: bool,
    unfit: &impl Fn(String) -> NetlinkError,
) -> Result<IpAddr, NetlinkError> {
    match (address, ipv6) {
        (IpAddr::V6(_), true) | (IpAddr::V4(_), false) => Ok(address),
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), true) => Ok(Ipv6Addr::UNSPECIFIED.into()),
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), false) => Ok(Ipv4Addr::UNSPECIFIED.into()),
        _ => Err(unfit(format!("{address} is of the other family"))),
    }
}
