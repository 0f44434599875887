//! Nexthop objects, routes and rules as settings of a plan: each has a place
//! ([`Setting`]) and a text in the words of `ip nexthop`, `ip route` and
//! `ip rule`. Texts are read back, so that a journal can be carried out.

use std::{fmt::Write as _, net::IpAddr};

use super::{
    GroupMember, Hop, Nexthop, NexthopTarget, Resilient, RouteAction, RouteEntry, RuleAction, RuleEntry,
    RuleSelector,
};
use crate::{plan::Setting, prefix::Prefix};

/// Metric of an IPv6 route that names none (`IP6_RT_PRIO_USER`).
pub const IPV6_METRIC: u32 = 1024;

/// A text that is not in the words of `ip`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not understood: {reason}")]
pub struct WordsError {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub reason: String,
}

impl Nexthop {
    /// Its place on a host.
    pub fn setting(&self) -> Setting {
        Setting::Nexthop { id: self.id }
    }

    /// What follows `ip nexthop add id N`.
    pub fn words(&self) -> String {
        let mut text = match &self.target {
            NexthopTarget::Gateway { via, interface } => format!("via {via} dev {interface}"),
            NexthopTarget::Blackhole => "blackhole".to_owned(),
            NexthopTarget::Group { members, resilient } => {
                let member = |member: &GroupMember| match member.weight {
                    1 => member.id.to_string(),
                    weight => format!("{},{weight}", member.id),
                };
                let mut text = format!("group {}", members.iter().map(member).collect::<Vec<_>>().join("/"));
                if let Some(Resilient { bucket_count, idle_seconds, unbalanced_seconds }) = resilient {
                    let _ = write!(
                        text,
                        " type resilient buckets {bucket_count} idle_timer {idle_seconds} \
                         unbalanced_timer {unbalanced_seconds}"
                    );
                }
                text
            }
        };
        add_protocol(&mut text, self.protocol);
        text
    }

    /// Reads [`Self::words`] back.
    pub fn from_words(id: u32, text: &str) -> Result<Self, WordsError> {
        let mut words = Words::of(text);
        let (mut via, mut interface, mut members, mut protocol) = (None, None, None, 0);
        let (mut is_blackhole, mut is_resilient) = (false, false);
        let mut resilient = Resilient { bucket_count: 0, idle_seconds: 0, unbalanced_seconds: 0 };
        while let Some(word) = words.next() {
            match word {
                "via" => via = Some(words.value()?),
                "dev" => interface = Some(words.word()?.to_owned()),
                "blackhole" => is_blackhole = true,
                "group" => members = Some(words.members()?),
                "type" => is_resilient = words.word()? == "resilient",
                "buckets" => resilient.bucket_count = words.value()?,
                "idle_timer" => resilient.idle_seconds = words.value()?,
                "unbalanced_timer" => resilient.unbalanced_seconds = words.value()?,
                "proto" => protocol = words.value()?,
                _ => return Err(words.unknown(word)),
            }
        }
        let target = match (members, via, interface) {
            (Some(members), None, None) => {
                NexthopTarget::Group { members, resilient: is_resilient.then_some(resilient) }
            }
            (None, Some(via), Some(interface)) => NexthopTarget::Gateway { via, interface },
            (None, None, None) if is_blackhole => NexthopTarget::Blackhole,
            _ => return Err(words.error("it needs \"via ADDRESS dev NAME\", \"group\" or \"blackhole\"")),
        };
        Ok(Self { id, target, protocol, place: None })
    }
}

impl RouteEntry {
    /// Its place on a host. An IPv6 route without metric has the kernel's.
    pub fn setting(&self) -> Setting {
        let metric = match self.metric {
            0 if self.destination.address.is_ipv6() => IPV6_METRIC,
            metric => metric,
        };
        Setting::Route { table: self.table, destination: self.destination.network(), metric }
    }

    /// What follows `ip route add DESTINATION table N metric N`; the words of a
    /// type (`blackhole`) come first, where `ip` wants them before the destination.
    pub fn words(&self) -> String {
        let mut text = match &self.action {
            RouteAction::Link { interface } => format!("dev {interface}"),
            RouteAction::Nexthop(id) => format!("nhid {id}"),
            RouteAction::Blackhole => "blackhole".to_owned(),
            RouteAction::Unreachable => "unreachable".to_owned(),
            RouteAction::Prohibit => "prohibit".to_owned(),
            RouteAction::Throw => "throw".to_owned(),
            RouteAction::Gateways(hops) => match hops.as_slice() {
                [hop] => self.hop(hop),
                _ => String::new(),
            },
        };
        add_protocol(&mut text, self.protocol);
        if let Some(source) = self.source {
            let _ = write!(text, " src {source}");
        }
        if let Some(mtu) = self.mtu {
            let _ = write!(text, " mtu {mtu}");
        }
        if let RouteAction::Gateways(hops) = &self.action
            && hops.len() != 1
        {
            for hop in hops {
                let _ = write!(text, " nexthop {} weight {}", self.hop(hop), hop.weight);
            }
        }
        text.trim_start().to_owned()
    }

    fn hop(&self, hop: &Hop) -> String {
        let family = if hop.via.is_ipv6() && self.destination.address.is_ipv4() { "inet6 " } else { "" };
        match &hop.interface {
            Some(interface) => format!("via {family}{} dev {interface}", hop.via),
            None => format!("via {family}{}", hop.via),
        }
    }

    /// Reads [`Self::words`] back.
    pub fn from_words(table: u32, destination: Prefix, metric: u32, text: &str) -> Result<Self, WordsError> {
        let mut words = Words::of(text);
        let mut route = Self {
            destination,
            table,
            metric,
            action: RouteAction::Gateways(Vec::new()),
            source: None,
            mtu: None,
            protocol: 0,
            place: None,
        };
        let (mut action, mut hops): (_, Vec<Hop>) = (None, Vec::new());
        while let Some(word) = words.next() {
            match word {
                "blackhole" => action = Some(RouteAction::Blackhole),
                "unreachable" => action = Some(RouteAction::Unreachable),
                "prohibit" => action = Some(RouteAction::Prohibit),
                "throw" => action = Some(RouteAction::Throw),
                "nhid" => action = Some(RouteAction::Nexthop(words.value()?)),
                "nexthop" => {}
                "via" => {
                    let via = words.address()?;
                    hops.push(Hop { via, interface: None, weight: 1, place: None });
                }
                "dev" => {
                    let interface = words.word()?.to_owned();
                    match hops.last_mut() {
                        Some(hop) => hop.interface = Some(interface),
                        None => action = Some(RouteAction::Link { interface }),
                    }
                }
                "weight" => {
                    let weight = words.value()?;
                    hops.last_mut().ok_or_else(|| words.error("a weight before its next hop"))?.weight =
                        weight;
                }
                "src" => route.source = Some(words.value()?),
                "mtu" => route.mtu = Some(words.value()?),
                "proto" => route.protocol = words.value()?,
                _ => return Err(words.unknown(word)),
            }
        }
        route.action = match (action, hops.is_empty()) {
            (Some(action), true) => action,
            (None, false) => RouteAction::Gateways(hops),
            _ => return Err(words.error("it needs next hops, \"dev\", \"nhid\" or a type, and one of them")),
        };
        Ok(route)
    }

    /// Whether a live route is as this one wants it. An interface that this one
    /// leaves to the kernel may be any.
    pub fn is_met_by(&self, live: &Self) -> bool {
        let hop = |wanted: &Hop, live: &Hop| {
            wanted.via == live.via
                && wanted.weight == live.weight
                && (wanted.interface.is_none() || wanted.interface == live.interface)
        };
        let same_action = match (&self.action, &live.action) {
            (RouteAction::Gateways(wanted), RouteAction::Gateways(live)) => {
                wanted.len() == live.len() && wanted.iter().zip(live).all(|(wanted, live)| hop(wanted, live))
            }
            (wanted, live) => wanted == live,
        };
        same_action
            && self.setting() == live.setting()
            && (self.source, self.mtu, self.protocol) == (live.source, live.mtu, live.protocol)
    }
}

impl RuleSelector {
    /// As `ip rule` has it: `from 10.0.0.1 fwmark 0x1b59`, `from all`.
    pub fn words(&self) -> String {
        let address = |prefix: &Prefix| {
            let most = if prefix.address.is_ipv4() { 32 } else { 128 };
            if prefix.length == most { prefix.address.to_string() } else { prefix.to_string() }
        };
        let mut text = if self.inverted { "not from " } else { "from " }.to_owned();
        text.push_str(&self.from.as_ref().map_or_else(|| "all".to_owned(), address));
        if let Some(to) = &self.to {
            let _ = write!(text, " to {}", address(to));
        }
        match self.mark {
            Some((mark, u32::MAX)) => drop(write!(text, " fwmark {mark:#x}")),
            Some((mark, mask)) => drop(write!(text, " fwmark {mark:#x}/{mask:#x}")),
            None => {}
        }
        if let Some(name) = &self.input {
            let _ = write!(text, " iif {name}");
        }
        if let Some(name) = &self.output {
            let _ = write!(text, " oif {name}");
        }
        for word in &self.other {
            let _ = write!(text, " {word}");
        }
        text
    }

    /// The same packets in one spelling: networks without host part, a length
    /// of zero as all.
    #[must_use]
    pub fn plain(&self) -> Self {
        let plain = |prefix: Option<Prefix>| prefix.map(Prefix::network).filter(|prefix| prefix.length > 0);
        Self { from: plain(self.from), to: plain(self.to), ..self.clone() }
    }
}

impl RuleEntry {
    /// Its place on a host; `None` for a rule whose priority is left to the kernel.
    pub fn setting(&self) -> Option<Setting> {
        let priority = self.priority?;
        Some(Setting::Rule { ipv6: self.ipv6, priority, selector: Box::new(self.selector.plain()) })
    }

    /// What follows `ip rule add pref N SELECTOR`.
    pub fn words(&self) -> String {
        let mut text = match &self.action {
            RuleAction::Table(table) => format!("lookup {table}"),
            RuleAction::Other(words) => words.clone(),
        };
        add_protocol(&mut text, self.protocol);
        text
    }

    /// Reads [`Self::words`] back.
    pub fn from_words(
        ipv6: bool,
        priority: u32,
        selector: &RuleSelector,
        text: &str,
    ) -> Result<Self, WordsError> {
        let mut words = Words::of(text);
        let (mut action, mut protocol) = (None, 0);
        while let Some(word) = words.next() {
            match word {
                "lookup" => action = Some(RuleAction::Table(words.value()?)),
                "goto" => action = Some(RuleAction::Other(format!("goto {}", words.value::<u32>()?))),
                "blackhole" | "unreachable" | "prohibit" | "nop" => {
                    action = Some(RuleAction::Other(word.to_owned()));
                }
                "proto" => protocol = words.value()?,
                _ => return Err(words.unknown(word)),
            }
        }
        let action = action.ok_or_else(|| words.error("it needs \"lookup TABLE\" or another action"))?;
        Ok(Self { ipv6, priority: Some(priority), selector: selector.clone(), action, protocol, place: None })
    }
}

fn add_protocol(text: &mut String, protocol: u8) {
    if protocol != 0 {
        let _ = write!(text, " proto {protocol}");
    }
}

/// The words of a text, one after the other.
struct Words<'a> {
    text: &'a str,
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, rest: text.split_whitespace() }
    }

    fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    fn error(&self, reason: &str) -> WordsError {
        WordsError { text: self.text.to_owned(), reason: reason.to_owned() }
    }

    fn unknown(&self, word: &str) -> WordsError {
        self.error(&format!("the word \"{word}\" says more than is kept of it"))
    }

    fn word(&mut self) -> Result<&'a str, WordsError> {
        self.rest.next().ok_or_else(|| self.error("it ends too early"))
    }

    fn value<T: std::str::FromStr>(&mut self) -> Result<T, WordsError> {
        let word = self.word()?;
        word.parse().map_err(|_| self.error(&format!("\"{word}\" is no such value")))
    }

    fn address(&mut self) -> Result<IpAddr, WordsError> {
        match self.word()? {
            "inet6" | "inet" => self.value(),
            word => word.parse().map_err(|_| self.error(&format!("\"{word}\" is no address"))),
        }
    }

    fn members(&mut self) -> Result<Vec<GroupMember>, WordsError> {
        let member = |text: &str| {
            let (id, weight) = text.split_once(',').unwrap_or((text, "1"));
            Some(GroupMember { id: id.parse().ok()?, weight: weight.parse().ok()? })
        };
        let members: Option<Vec<_>> = self.word()?.split('/').map(member).collect();
        members.ok_or_else(|| self.error("members are written as ID,WEIGHT/ID,WEIGHT"))
    }
}
