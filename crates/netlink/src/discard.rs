//! Silent loss: interfaces that send nothing, hosts that forward nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    RouteNetlinkMessage,
    rule::{RuleAction, RuleAttribute, RuleMessage},
    tc::TcAttribute,
};

use crate::{NetlinkError, RouteSocket, address::family};

/// Right after the rule for local addresses, which is 0: what is for the host
/// itself still arrives.
const PRIORITY: u32 = 1;

impl RouteSocket {
    /// Lets an interface discard what it should send, and say nothing about it
    /// (`tc qdisc replace dev X root blackhole`). Deleting the root discipline
    /// ends it.
    pub fn set_blackhole(&mut self, interface: &str) -> Result<(), NetlinkError> {
        let mut message = self.root_message(interface)?;
        message.attributes = vec![TcAttribute::Kind("blackhole".to_owned())];
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        self.change(RouteNetlinkMessage::NewQueueDiscipline(message), flags, || {
            format!("let {interface} discard what it sends")
        })
    }

    /// Lets the host discard, without a word, what arrives on an interface and
    /// is for somebody else, of both families (`ip rule add pref 1 iif X
    /// blackhole`); `false` ends it. Sysctls stay as they are.
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
                let word = if discard { "discard" } else { "forward again" };
                format!("{word} what arrives on {interface} for others")
            })?;
        }
        Ok(())
    }
}
