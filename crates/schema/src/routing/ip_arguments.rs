//! Nexthop objects, routes and rules as settings of a plan: each has a place
//! ([`Setting`]) and a [value](super::values), the arguments of `ip nexthop`,
//! `ip route` and `ip rule`. Texts are parsed when a journal is carried out.

use std::net::IpAddr;

use super::{
    GroupMember, Hop, Nexthop, RouteAction, RouteEntry, RuleEntry, RuleSelector,
    values::{NexthopValue, RouteValue, RuleValue},
};
use crate::{plan::Setting, prefix::Prefix};

/// Metric of an IPv6 route that names none (`IP6_RT_PRIO_USER`).
pub const IPV6_METRIC: u32 = 1024;

/// A text that is not in the syntax of `ip`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not understood: {reason}")]
pub struct IpArgumentsError {
    /// The text.
    pub text: String,
    /// Reason.
    pub reason: String,
}

impl Nexthop {
    /// Its place on a host.
    pub fn setting(&self) -> Setting {
        Setting::Nexthop { id: self.id }
    }

    /// Its value, without the id.
    pub fn value(&self) -> NexthopValue {
        NexthopValue { target: self.target.clone(), protocol: self.protocol }
    }

    /// Arguments after `ip nexthop add id N`.
    pub fn ip_arguments(&self) -> String {
        self.value().to_string()
    }
}

impl RouteEntry {
    /// Its metric in a kernel, which gives an IPv6 route without one its own.
    pub fn kernel_metric(&self) -> u32 {
        match self.metric {
            0 if self.destination.address.is_ipv6() => IPV6_METRIC,
            metric => metric,
        }
    }

    /// Its place on a host.
    pub fn setting(&self) -> Setting {
        let (destination, metric) = (self.destination.network(), self.kernel_metric());
        Setting::Route { table: self.table, destination, metric }
    }

    /// Its value, without the place.
    pub fn value(&self) -> RouteValue {
        let is_mixed = self.destination.address.is_ipv4()
            && matches!(&self.action, RouteAction::Gateways(hops) if hops.iter().any(|hop| hop.via.is_ipv6()));
        RouteValue {
            action: self.action.clone(),
            source: self.source,
            mtu: self.mtu,
            protocol: self.protocol,
            is_mixed,
        }
    }

    /// Arguments after `ip route add DESTINATION table N metric N`; the keyword of a
    /// type (`blackhole`) comes first, where `ip` wants them before the destination.
    pub fn ip_arguments(&self) -> String {
        self.value().to_string()
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
    pub fn ip_arguments(&self) -> String {
        self.to_string()
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

    /// Its value, without the place.
    pub fn value(&self) -> RuleValue {
        RuleValue { action: self.action.clone(), protocol: self.protocol }
    }

    /// Arguments after `ip rule add pref N SELECTOR`.
    pub fn ip_arguments(&self) -> String {
        self.value().to_string()
    }
}

/// Tokens of a text.
pub(super) struct Tokens<'a> {
    text: &'a str,
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Tokens<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { text, rest: text.split_whitespace() }
    }

    pub(super) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    pub(super) fn error(&self, reason: &str) -> IpArgumentsError {
        IpArgumentsError { text: self.text.to_owned(), reason: reason.to_owned() }
    }

    pub(super) fn unknown(&self, token: &str) -> IpArgumentsError {
        self.error(&format!("the token \"{token}\" is not supported"))
    }

    pub(super) fn token(&mut self) -> Result<&'a str, IpArgumentsError> {
        self.rest.next().ok_or_else(|| self.error("it ends too early"))
    }

    pub(super) fn value<T: std::str::FromStr>(&mut self) -> Result<T, IpArgumentsError> {
        let token = self.token()?;
        token.parse().map_err(|_| self.error(&format!("\"{token}\" is no such value")))
    }

    /// An address, and whether the keyword `inet6` precedes it.
    pub(super) fn address(&mut self) -> Result<(IpAddr, bool), IpArgumentsError> {
        match self.token()? {
            family @ ("inet6" | "inet") => Ok((self.value()?, family == "inet6")),
            token => {
                let address = token.parse().map_err(|_| self.error(&format!("\"{token}\" is no address")))?;
                Ok((address, false))
            }
        }
    }

    /// A network, or an address for itself; `all` is none.
    pub(super) fn prefix(&mut self) -> Result<Option<Prefix>, IpArgumentsError> {
        let token = self.token()?;
        if token == "all" {
            return Ok(None);
        }
        let found = token.parse::<Prefix>().or_else(|_| token.parse::<IpAddr>().map(Prefix::host));
        found.map(Some).map_err(|_| self.error(&format!("\"{token}\" is no address and no network")))
    }

    /// A mark and its mask (default: all bits).
    pub(super) fn mark(&mut self) -> Result<(u32, u32), IpArgumentsError> {
        let token = self.token()?;
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let found = match token.split_once('/') {
            Some((mark, mask)) => number(mark).zip(number(mask)),
            None => number(token).map(|mark| (mark, u32::MAX)),
        };
        found.ok_or_else(|| self.error(&format!("\"{token}\" is no mark: write it as 0x1b59 or 0x1/0xff")))
    }

    pub(super) fn members(&mut self) -> Result<Vec<GroupMember>, IpArgumentsError> {
        let member = |text: &str| {
            let (id, weight) = text.split_once(',').unwrap_or((text, "1"));
            Some(GroupMember { id: id.parse().ok()?, weight: weight.parse().ok()? })
        };
        let members: Option<Vec<_>> = self.token()?.split('/').map(member).collect();
        members.ok_or_else(|| self.error("members are written as ID,WEIGHT/ID,WEIGHT"))
    }
}
