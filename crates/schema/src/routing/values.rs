//! Values of the settings of a host's routing, without their place: types with
//! `Display` and `FromStr` in the syntax of `ip`. Text is at the edge only: in the
//! file of a plan or journal, and in output.

use std::{
    fmt::{self, Write as _},
    net::IpAddr,
    str::FromStr,
};

use super::{
    GroupMember, Hop, Nexthop, NexthopTarget, Resilient, RouteAction, RouteEntry, RuleAction, RuleEntry,
    RuleSelector,
    ip_arguments::{IpArgumentsError, Tokens},
};
use crate::prefix::Prefix;

/// Arguments after `ip nexthop add id N`: `via 10.0.0.1 dev eth0 proto 117`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NexthopValue {
    /// A gateway or a group.
    pub target: NexthopTarget,
    /// Protocol number of its owner; 0 when unknown.
    pub protocol: u8,
}

/// Arguments after `ip route add DESTINATION table N metric N`: `nhid 7010 proto 117`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteValue {
    /// How it goes on.
    pub action: RouteAction,
    /// Preferred source address.
    pub source: Option<IpAddr>,
    /// MTU of the route, bytes.
    pub mtu: Option<u32>,
    /// Protocol number of its owner; 0 when unknown.
    pub protocol: u8,
    /// The destination is IPv4 and a gateway IPv6, for which `ip` has a keyword:
    /// `via inet6 fe80::1` (RFC 8950).
    pub is_mixed: bool,
}

/// Arguments after `ip rule add pref N SELECTOR`: `lookup 7001 proto 117`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleValue {
    /// What it does.
    pub action: RuleAction,
    /// Protocol number of its owner; 0 when unknown.
    pub protocol: u8,
}

/// Arguments after `ip address add PREFIX dev NAME`: `proto 117`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressValue {
    /// Protocol number of its owner; 0 when unknown.
    pub protocol: u8,
}

impl NexthopValue {
    /// The nexthop object of this number.
    pub fn at(self, id: u32) -> Nexthop {
        Nexthop { id, target: self.target, protocol: self.protocol, place: None }
    }
}

impl RouteValue {
    /// The route of this place.
    pub fn at(self, table: u32, destination: Prefix, metric: u32) -> RouteEntry {
        let Self { action, source, mtu, protocol, is_mixed: _ } = self;
        RouteEntry { destination, table, metric, action, source, mtu, protocol, place: None }
    }

    fn hop(&self, hop: &Hop) -> String {
        let family = if self.is_mixed && hop.via.is_ipv6() { "inet6 " } else { "" };
        match &hop.interface {
            Some(interface) => format!("via {family}{} dev {interface}", hop.via),
            None => format!("via {family}{}", hop.via),
        }
    }
}

impl RuleValue {
    /// The rule of this place.
    pub fn at(self, ipv6: bool, priority: u32, selector: &RuleSelector) -> RuleEntry {
        let (priority, selector) = (Some(priority), selector.clone());
        RuleEntry { ipv6, priority, selector, action: self.action, protocol: self.protocol, place: None }
    }
}

impl fmt::Display for NexthopValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.target {
            NexthopTarget::Gateway { via, interface } => write!(f, "via {via} dev {interface}")?,
            NexthopTarget::Blackhole => f.write_str("blackhole")?,
            NexthopTarget::Group { members, resilient } => {
                let member = |member: &GroupMember| match member.weight {
                    1 => member.id.to_string(),
                    weight => format!("{},{weight}", member.id),
                };
                write!(f, "group {}", members.iter().map(member).collect::<Vec<_>>().join("/"))?;
                if let Some(Resilient { bucket_count, idle_seconds, unbalanced_seconds }) = resilient {
                    write!(
                        f,
                        " type resilient buckets {bucket_count} idle_timer {idle_seconds} \
                         unbalanced_timer {unbalanced_seconds}"
                    )?;
                }
            }
        }
        f.write_str(&owner(self.protocol))
    }
}

impl FromStr for NexthopValue {
    type Err = IpArgumentsError;

    fn from_str(text: &str) -> Result<Self, IpArgumentsError> {
        let mut tokens = Tokens::of(text);
        let (mut via, mut interface, mut members, mut protocol) = (None, None, None, 0);
        let (mut is_blackhole, mut is_resilient) = (false, false);
        let mut resilient = Resilient { bucket_count: 0, idle_seconds: 0, unbalanced_seconds: 0 };
        while let Some(token) = tokens.next() {
            match token {
                "via" => via = Some(tokens.value()?),
                "dev" => interface = Some(tokens.token()?.to_owned()),
                "blackhole" => is_blackhole = true,
                "group" => members = Some(tokens.members()?),
                "type" => is_resilient = tokens.token()? == "resilient",
                "buckets" => resilient.bucket_count = tokens.value()?,
                "idle_timer" => resilient.idle_seconds = tokens.value()?,
                "unbalanced_timer" => resilient.unbalanced_seconds = tokens.value()?,
                "proto" => protocol = tokens.value()?,
                _ => return Err(tokens.unknown(token)),
            }
        }
        let target = match (members, via, interface) {
            (Some(members), None, None) => {
                NexthopTarget::Group { members, resilient: is_resilient.then_some(resilient) }
            }
            (None, Some(via), Some(interface)) => NexthopTarget::Gateway { via, interface },
            (None, None, None) if is_blackhole => NexthopTarget::Blackhole,
            _ => return Err(tokens.error("it needs \"via ADDRESS dev NAME\", \"group\" or \"blackhole\"")),
        };
        Ok(Self { target, protocol })
    }
}

impl fmt::Display for RouteValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = match &self.action {
            RouteAction::Link { interface } => format!("dev {interface}"),
            RouteAction::Nexthop(id) => format!("nhid {id}"),
            RouteAction::Gateways(hops) => match hops.as_slice() {
                [hop] => self.hop(hop),
                _ => String::new(),
            },
            action => action.type_keyword().unwrap_or_default().to_owned(),
        };
        text.push_str(&owner(self.protocol));
        if let Some(source) = self.source {
            write!(text, " src {source}")?;
        }
        if let Some(mtu) = self.mtu {
            write!(text, " mtu {mtu}")?;
        }
        if let RouteAction::Gateways(hops) = &self.action
            && hops.len() != 1
        {
            for hop in hops {
                write!(text, " nexthop {} weight {}", self.hop(hop), hop.weight)?;
            }
        }
        f.write_str(text.trim_start())
    }
}

impl FromStr for RouteValue {
    type Err = IpArgumentsError;

    fn from_str(text: &str) -> Result<Self, IpArgumentsError> {
        let mut tokens = Tokens::of(text);
        let (mut source, mut mtu, mut protocol, mut is_mixed) = (None, None, 0, false);
        let (mut action, mut hops): (_, Vec<Hop>) = (None, Vec::new());
        while let Some(token) = tokens.next() {
            match token {
                "blackhole" | "unreachable" | "prohibit" | "throw" => action = RouteAction::of_type(token),
                "nhid" => action = Some(RouteAction::Nexthop(tokens.value()?)),
                "nexthop" => {}
                "via" => {
                    let (via, is_named) = tokens.address()?;
                    is_mixed |= is_named && via.is_ipv6();
                    hops.push(Hop { via, interface: None, weight: 1, place: None });
                }
                "dev" => {
                    let interface = tokens.token()?.to_owned();
                    match hops.last_mut() {
                        Some(hop) => hop.interface = Some(interface),
                        None => action = Some(RouteAction::Link { interface }),
                    }
                }
                "weight" => {
                    let weight = tokens.value()?;
                    hops.last_mut().ok_or_else(|| tokens.error("a weight before its next hop"))?.weight =
                        weight;
                }
                "src" => source = Some(tokens.value()?),
                "mtu" => mtu = Some(tokens.value()?),
                "proto" => protocol = tokens.value()?,
                _ => return Err(tokens.unknown(token)),
            }
        }
        let action = match (action, hops.is_empty()) {
            (Some(action), true) => action,
            (None, false) => RouteAction::Gateways(hops),
            _ => return Err(tokens.error("it needs next hops, \"dev\", \"nhid\" or a type, and one of them")),
        };
        Ok(Self { action, source, mtu, protocol, is_mixed })
    }
}

impl fmt::Display for RuleValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.action {
            RuleAction::Table(table) => write!(f, "lookup {table}")?,
            RuleAction::Other(text) => f.write_str(text)?,
        }
        f.write_str(&owner(self.protocol))
    }
}

impl FromStr for RuleValue {
    type Err = IpArgumentsError;

    fn from_str(text: &str) -> Result<Self, IpArgumentsError> {
        let mut tokens = Tokens::of(text);
        let (mut action, mut protocol) = (None, 0);
        while let Some(token) = tokens.next() {
            match token {
                "lookup" => action = Some(RuleAction::Table(tokens.value()?)),
                "goto" => action = Some(RuleAction::Other(format!("goto {}", tokens.value::<u32>()?))),
                "blackhole" | "unreachable" | "prohibit" | "nop" => {
                    action = Some(RuleAction::Other(token.to_owned()));
                }
                "proto" => protocol = tokens.value()?,
                _ => return Err(tokens.unknown(token)),
            }
        }
        let action = action.ok_or_else(|| tokens.error("it needs \"lookup TABLE\" or another action"))?;
        Ok(Self { action, protocol })
    }
}

impl fmt::Display for AddressValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proto {}", self.protocol)
    }
}

impl FromStr for AddressValue {
    type Err = IpArgumentsError;

    fn from_str(text: &str) -> Result<Self, IpArgumentsError> {
        let protocol = text.strip_prefix("proto ").and_then(|number| number.trim().parse().ok());
        let protocol = protocol.ok_or_else(|| Tokens::of(text).error("write \"proto NUMBER\""))?;
        Ok(Self { protocol })
    }
}

/// ` proto 117`, or nothing where the owner is not known.
fn owner(protocol: u8) -> String {
    if protocol == 0 { String::new() } else { format!(" proto {protocol}") }
}

impl fmt::Display for RuleSelector {
    /// As `ip rule` has it: `from 10.0.0.1 fwmark 0x1b59`, `from all`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = |prefix: &Prefix| match *prefix == Prefix::host(prefix.address) {
            true => prefix.address.to_string(),
            false => prefix.to_string(),
        };
        let from = self.from.as_ref().map_or_else(|| "all".to_owned(), address);
        write!(f, "{}from {from}", if self.inverted { "not " } else { "" })?;
        if let Some(to) = &self.to {
            write!(f, " to {}", address(to))?;
        }
        match self.mark {
            Some((mark, u32::MAX)) => write!(f, " fwmark {mark:#x}")?,
            Some((mark, mask)) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
            None => {}
        }
        if let Some(name) = &self.input {
            write!(f, " iif {name}")?;
        }
        if let Some(name) = &self.output {
            write!(f, " oif {name}")?;
        }
        self.other.iter().try_for_each(|option| write!(f, " {option}"))
    }
}

impl FromStr for RuleSelector {
    type Err = IpArgumentsError;

    /// Tokens of `ip rule` that have no field are kept as they are.
    fn from_str(text: &str) -> Result<Self, IpArgumentsError> {
        let mut tokens = Tokens::of(text);
        let mut selector = Self::default();
        while let Some(token) = tokens.next() {
            match token {
                "not" => selector.inverted = true,
                "from" => selector.from = tokens.prefix()?,
                "to" => selector.to = tokens.prefix()?,
                "fwmark" => selector.mark = Some(tokens.mark()?),
                "iif" => selector.input = Some(tokens.token()?.to_owned()),
                "oif" => selector.output = Some(tokens.token()?.to_owned()),
                other => selector.other.push(other.to_owned()),
            }
        }
        Ok(selector)
    }
}
