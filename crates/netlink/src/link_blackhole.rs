//! Silent discard: interfaces that send nothing, hosts that forward nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    rule::{RuleAction, RuleAttribute, RuleMessage},
    tc::TcAttribute,
};

use crate::{NetlinkError, RouteSocket, address::family};

/// Right after the rule for local addresses, which has priority 0: packets for the host itself are still
/// delivered.
const PRIORITY: u32 = 1;

impl RouteSocket {
    /// Makes an interface discard its egress packets silently (`tc qdisc replace dev X root blackhole`).
    /// Deleting the root discipline reverts it.
    pub fn set_blackhole(&mut self, interface: &str) -> Result<(), NetlinkError> {
        let mut message = self.root_message(interface)?;
        message.attributes = vec![TcAttribute::Kind("blackhole".to_owned())];
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            format!("discard the egress packets of {interface}")
        })
    }

    /// Makes the host silently discard transit packets arriving on an interface, of both families (`ip rule
    /// add pref 1 iif X blackhole`); `false` reverts it. Sysctls are unchanged.
    pub fn set_transit_discard(&mut self, interface: &str, discard: bool) -> Result<(), NetlinkError> {
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let mut rule = RuleMessage::default();
            rule.header.family = family(any);
            rule.header.action = RuleAction::Blackhole;
            rule.attributes =
                vec![RuleAttribute::Iifname(interface.to_owned()), RuleAttribute::Priority(PRIORITY)];
            let (message, flags) = if discard {
                (RouteNetlinkMessage::NewRule(rule), NLM_F_CREATE | NLM_F_EXCL)
            } else {
                (RouteNetlinkMessage::DelRule(rule), 0)
            };
            self.change(message, flags, || {
                let verb = if discard { "discard" } else { "stop discarding" };
                format!("{verb} transit packets arriving on {interface}")
            })?;
        }
        Ok(())
    }
}
