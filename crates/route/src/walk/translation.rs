//! Gateways that replace the source of what they forward (masquerade, SNAT): the
//! reply then goes to the gateway, and the server needs no route to the network
//! behind it.

use std::net::IpAddr;

use clearstream_schema::prefix::Prefix;

use super::{Hosts, Walker, forward::Travel};

/// A source address that a gateway has substituted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Translated {
    pub(crate) gateway: usize,
    pub(crate) source: IpAddr,
}

/// The source that packets had before a host, and how often it was replaced.
pub(super) struct Before {
    source: IpAddr,
    count: usize,
}

impl Travel<'_> {
    /// Restores the state before [`Walker::translate`].
    pub(super) fn restore(&mut self, before: Before) {
        self.source = before.source;
        self.translated.truncate(before.count);
    }
}

impl<'a> Walker<'_, 'a> {
    /// Replaces the source of packets that a host forwards by an interface to a
    /// next hop or neighbour, where its rules match.
    pub(super) fn translate(&self, travel: &mut Travel<'a>, output: &str, towards: IpAddr) -> Before {
        let at = travel.at();
        let before = Before { source: travel.source, count: travel.translated.len() };
        // What a host sends itself has an address of its own.
        if travel.trail.len() < 2 {
            return before;
        }
        let Some(found) = translation(self.hosts, at, output, travel.source, towards) else { return before };
        if !found.is_certain {
            travel.walk.may_translate.insert(at);
        }
        if found.is_certain || self.assumes_translation {
            travel.source = found.source;
            travel.translated.push(Translated { gateway: at, source: found.source });
        }
        before
    }
}

/// The new source.
struct Found {
    source: IpAddr,
    /// Else it depends on what was not read.
    is_certain: bool,
}

fn translation(
    hosts: &dyn Hosts<'_>,
    at: usize,
    output: &str,
    source: IpAddr,
    towards: IpAddr,
) -> Option<Found> {
    let masquerade = || masquerade_address(hosts, at, output, towards);
    let Some(rules) = hosts.source_translations(at) else {
        return Some(Found { source: masquerade()?, is_certain: false });
    };
    let mut applying = rules.iter().filter(|rule| {
        rule.ipv6.is_none_or(|ipv6| ipv6 == source.is_ipv6())
            && rule.output.as_deref().is_none_or(|name| name == output)
            && rule.from.is_none_or(|from| from.contains(source))
    });
    let first = applying.next()?;
    let certain = std::iter::once(first).chain(applying).find(|rule| !rule.is_conditional);
    let rule = certain.unwrap_or(first);
    let to = rule.to.filter(|to| to.is_ipv6() == source.is_ipv6());
    Some(Found { source: to.or_else(masquerade)?, is_certain: certain.is_some() })
}

/// The address that masquerade takes: of the output interface the one in the
/// network of the next hop, else its first (`inet_select_addr`).
fn masquerade_address(hosts: &dyn Hosts<'_>, at: usize, output: &str, towards: IpAddr) -> Option<IpAddr> {
    let interfaces = || hosts.node(at).routing.interfaces.iter();
    let of_output = interfaces().filter(|interface| interface.name == output);
    let of_family = |own: &Prefix| own.address.is_ipv6() == towards.is_ipv6();
    let own: Vec<_> =
        of_output.flat_map(|it| it.addresses.iter().map(|own| own.value)).filter(of_family).collect();
    let near = own.iter().find(|own| own.contains(towards)).or(own.first());
    near.map(|own| own.address)
}
