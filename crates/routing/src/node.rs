//! A host that packets pass: whether it forwards, and whether it takes a
//! packet from the interface that it arrives on.

use std::net::IpAddr;

use clearstream_schema::{
    prefix::Prefix,
    routing::{HostRouting, Located},
};

use crate::lookup::{Lookup, NextHop, Packet, Verdict};

/// Reverse-path filter in effect on an interface (ip-sysctl.rst, `rp_filter`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReverseFilter {
    /// No source validation.
    Off,
    /// The route back must leave by the interface of arrival (RFC 3704, section 2.2).
    Strict,
    /// Some route back must exist (RFC 3704, section 2.4).
    Loose,
}

/// Where the route back to a packet's source leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouteBack {
    /// By the interface of arrival, or it cannot be known.
    SameInterface,
    /// By another interface.
    OtherInterface,
    /// Nowhere.
    None,
}

/// A received packet, as source validation sees it.
#[derive(Debug, Clone, Copy)]
pub struct Received<'p> {
    /// Source address.
    pub source: IpAddr,
    /// Destination; absent where any of the host's addresses may be meant.
    pub destination: Option<IpAddr>,
    /// Mark, 0 for none.
    pub mark: u32,
    /// Interface of arrival.
    pub input: &'p str,
    /// Interface that it is forwarded to; absent for what the host itself gets.
    pub output: Option<&'p str>,
}

/// A host's routing, ready to be walked through.
#[derive(Debug)]
pub struct Node<'a> {
    /// What it routes by.
    pub routing: &'a HostRouting,
    /// The same, ready for lookups.
    pub lookup: Lookup<'a>,
    /// Networks that its interfaces are on.
    pub attached: Vec<(&'a str, Prefix)>,
}

impl<'a> Node<'a> {
    /// Makes a host ready.
    pub fn new(routing: &'a HostRouting) -> Self {
        Self::with(routing, Lookup::new(routing))
    }

    /// The same with a lookup of part of the routes.
    pub fn with(routing: &'a HostRouting, lookup: Lookup<'a>) -> Self {
        let mut attached = Vec::new();
        for interface in &routing.interfaces {
            for address in &interface.addresses {
                let network = (interface.name.as_str(), address.value.network());
                let is_host = address.value == Prefix::host(address.value.address);
                if !is_host && !attached.contains(&network) {
                    attached.push(network);
                }
            }
        }
        Self { routing, lookup, attached }
    }

    /// The interface that has an address.
    pub fn interface_with(&self, address: IpAddr) -> Option<&'a str> {
        let mut interfaces = self.routing.interfaces.iter();
        let has = interfaces.find(|it| it.addresses.iter().any(|own| own.value.address == address));
        has.map(|interface| interface.name.as_str())
    }

    /// Interface of a next hop: the route's, else that of the network it is in.
    pub fn interface_to(&self, given: Option<&'a str>, via: IpAddr) -> Option<&'a str> {
        let in_network = || self.attached.iter().find(|(_, network)| network.contains(via));
        given.or_else(|| in_network().map(|(interface, _)| *interface))
    }

    /// Interfaces that a packet may leave by; absent ones are not known.
    pub fn outputs(&self, verdict: &Verdict<'a>) -> Vec<Option<&'a str>> {
        match verdict {
            Verdict::Link(interface) => vec![Some(interface)],
            Verdict::Gateways(next_hops, _) => {
                next_hops.iter().map(|hop: &NextHop<'a>| self.interface_to(hop.interface, hop.via)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether it forwards what arrives on an interface; absent where no sysctl is known.
    pub fn forwards(&self, input: Option<&str>, ipv6: bool) -> Option<bool> {
        let of_interface =
            |family: &str, name: &str| self.number(&format!("net.{family}.conf.{}.{name}", escaped(input?)));
        // IPv4 forwards by the interface of arrival, IPv6 by `all` alone, unless
        // the interface forces it (ip-sysctl.rst, `forwarding`, `force_forwarding`).
        if ipv6 {
            let is_forced = of_interface("ipv6", "force_forwarding") == Some(1);
            let all = self.number("net.ipv6.conf.all.forwarding");
            return if is_forced { Some(true) } else { all.map(|value| value != 0) };
        }
        let all =
            || self.number("net.ipv4.ip_forward").or_else(|| self.number("net.ipv4.conf.all.forwarding"));
        of_interface("ipv4", "forwarding").or_else(all).map(|value| value != 0)
    }

    /// Whether it replies to ARP or neighbour solicitations for addresses that it forwards to: by the
    /// sysctl of `all` or of the interface (ip-sysctl.rst, `proxy_arp`; of IPv6,
    /// `proxy_ndp`, which replies for listed addresses alone, is taken for the same).
    pub fn is_proxy(&self, input: &str, ipv6: bool) -> bool {
        let (family, name) = if ipv6 { ("ipv6", "proxy_ndp") } else { ("ipv4", "proxy_arp") };
        let of = |of: &str| self.number(&format!("net.{family}.conf.{of}.{name}"));
        of("all") == Some(1) || of(&escaped(input)) == Some(1)
    }

    /// The filter in effect: the larger of `all` and the interface's own value,
    /// which is that of `default` where the interface has none (ip-sysctl.rst).
    pub fn reverse_filter(&self, interface: &str) -> ReverseFilter {
        let of = |name: &str| self.number(&format!("net.ipv4.conf.{name}.rp_filter"));
        let own = of(&escaped(interface)).or_else(|| of("default")).unwrap_or(0);
        match of("all").unwrap_or(0).max(own) {
            0 => ReverseFilter::Off,
            1 => ReverseFilter::Strict,
            _ => ReverseFilter::Loose,
        }
    }

    /// Whether source validation sees the mark of a packet (`src_valid_mark`).
    pub fn validates_mark(&self, interface: &str) -> bool {
        let of = |name: &str| self.number(&format!("net.ipv4.conf.{name}.src_valid_mark"));
        of("all") == Some(1) || of(&escaped(interface)).or_else(|| of("default")) == Some(1)
    }

    /// Where the route back to the source of a packet leads: a lookup with source
    /// and destination exchanged (`__fib_validate_source`, net/ipv4/fib_frontend.c).
    fn route_back(&self, packet: &Received<'_>) -> RouteBack {
        let reversed = Packet {
            source: packet.destination,
            destination: packet.source,
            mark: packet.mark,
            input: packet.output,
        };
        match self.lookup.find(&reversed).verdict {
            Verdict::Unknown(_) => RouteBack::SameInterface,
            Verdict::NoRoute | Verdict::Refused(_) | Verdict::Local => RouteBack::None,
            verdict => {
                let outputs = self.outputs(&verdict);
                let is_it = |output: &Option<&str>| output.is_none_or(|output| output == packet.input);
                if outputs.iter().any(is_it) { RouteBack::SameInterface } else { RouteBack::OtherInterface }
            }
        }
    }

    /// Whether source validation lets a packet pass. IPv6 has none.
    pub fn accepts(&self, packet: &Received<'_>) -> bool {
        if packet.source.is_ipv6() {
            return true;
        }
        let mark = if self.validates_mark(packet.input) { packet.mark } else { 0 };
        self.passes(self.reverse_filter(packet.input), &Received { mark, ..*packet })
    }

    /// Whether a packet passes a filter that sees this mark.
    pub fn passes(&self, filter: ReverseFilter, packet: &Received<'_>) -> bool {
        match (filter, self.route_back(packet)) {
            (ReverseFilter::Off, _) | (_, RouteBack::SameInterface) => true,
            (ReverseFilter::Loose, RouteBack::OtherInterface) => true,
            (ReverseFilter::Strict, RouteBack::OtherInterface) | (_, RouteBack::None) => false,
        }
    }

    fn number(&self, key: &str) -> Option<i64> {
        let value: &Located<String> = self.routing.sysctls.get(key)?;
        value.value.trim().parse().ok()
    }
}

/// A dot inside a name is written as a slash (sysctl(8)).
fn escaped(interface: &str) -> String {
    interface.replace('.', "/")
}
