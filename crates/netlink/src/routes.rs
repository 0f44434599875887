//! Routes of all tables, as in `ip route show table all`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clearstream_schema::routing::{Hop, RouteAction, RouteEntry};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHop,
        RouteNextHopFlags, RoutePreference, RouteProtocol, RouteScope, RouteType, RouteVia,
    },
};

use crate::{NetlinkError, Prefix, RouteSocket, address::family, lookup::ip, names::Names};

/// Number of the table maintained by the kernel (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u32 = 255;
/// `RTPROT_KERNEL`: created for an address.
const KERNEL: u8 = 2;

/// A route of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRoute {
    /// The supported attributes.
    pub entry: RouteEntry,
    /// Attributes in the syntax of `ip route` that the entry cannot hold: written back without them, the
    /// route would be another one.
    pub unsupported: Vec<String>,
    /// Only packets from here (source-specific routes of IPv6).
    pub from: Option<Prefix>,
    /// Only packets of this type of service; 0 for all.
    pub type_of_service: u8,
    /// It delivers to the host itself.
    pub is_local: bool,
    /// Router preference (RFC 4191), where it is not medium.
    pub preference: Option<Preference>,
}

/// A router preference, by which IPv6 chooses among routes of one metric (`rt6_score_route`,
/// net/ipv6/route.c).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preference {
    /// Before the others.
    High,
    /// After the others.
    Low,
}

impl LiveRoute {
    /// Whether the kernel created it for an address.
    pub fn is_kernels(&self) -> bool {
        self.entry.protocol == KERNEL
    }

    /// Whether it applies only to packets of one type of service or source, so that it coexists with another
    /// one of the same destination, table and metric.
    pub fn is_for_some_packets(&self) -> bool {
        self.type_of_service != 0 || self.from.is_some()
    }

    /// Whether a route entry does not describe it.
    pub(crate) fn is_special(&self) -> bool {
        self.is_for_some_packets() || self.is_local || self.entry.table == LOCAL_TABLE
    }
}

impl RouteSocket {
    /// Unicast and unreachable-type routes of all tables except `local`, both families.
    pub fn all_routes(&mut self) -> Result<Vec<LiveRoute>, NetlinkError> {
        let mut routes = self.every_route()?;
        routes.retain(|route| !route.is_local && route.entry.table != LOCAL_TABLE);
        Ok(routes)
    }

    /// Those of the table `local` too, and routes that deliver to the host.
    pub(crate) fn every_route(&mut self) -> Result<Vec<LiveRoute>, NetlinkError> {
        let names = self.names()?;
        let query = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let replies = self.dump(query, || "list routes".to_owned())?;
        let read = |reply| match reply {
            RouteNetlinkMessage::NewRoute(message) => read(&message, &names),
            _ => None,
        };
        Ok(replies.into_iter().filter_map(read).collect())
    }

    /// The same of one owner and family; the kernel leaves out the others, of which a router has many.
    pub fn routes_of(&mut self, protocol: u8, ipv6: bool) -> Result<Vec<LiveRoute>, NetlinkError> {
        let names = self.names()?;
        let mut message = RouteMessage::default();
        message.header.address_family = if ipv6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        message.header.protocol = RouteProtocol::from(protocol);
        let query = RouteNetlinkMessage::GetRoute(message);
        let replies = self.dump_matching(query, || format!("list routes of protocol {protocol}"))?;
        let read = |reply| match reply {
            RouteNetlinkMessage::NewRoute(message) => read(&message, &names),
            _ => None,
        };
        let found = replies.into_iter().filter_map(read);
        Ok(found.filter(|route| route.entry.protocol == protocol).collect())
    }

    /// Adds a route, or with `replace` replaces the one with the same destination, table and metric
    /// atomically.
    pub fn set_route(&mut self, route: &RouteEntry, replace: bool) -> Result<(), NetlinkError> {
        let message = written(route, &self.names()?)?;
        let flags = NLM_F_CREATE | if replace { NLM_F_REPLACE } else { NLM_F_EXCL };
        self.change(RouteNetlinkMessage::NewRoute(message), flags, || format!("set {}", named(route)))
    }

    /// Removes a route, identified by destination, table, metric, owner and next hops.
    pub fn remove_route(&mut self, route: &RouteEntry) -> Result<(), NetlinkError> {
        let mut message = written(route, &self.names()?)?;
        // Any scope (`ip route delete`): it follows from the rest.
        message.header.scope = RouteScope::NoWhere;
        self.change(RouteNetlinkMessage::DelRoute(message), 0, || format!("remove {}", named(route)))
    }
}

fn named(route: &RouteEntry) -> String {
    format!("the route to {} in table {}", route.destination, route.table)
}

pub(crate) fn read(message: &RouteMessage, names: &Names) -> Option<LiveRoute> {
    let header = &message.header;
    let ipv6 = match header.address_family {
        AddressFamily::Inet => false,
        AddressFamily::Inet6 => true,
        _ => return None,
    };
    let any: IpAddr = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    // Cached exceptions are no routes.
    if header.flags.contains(RouteFlags::Cloned) {
        return None;
    }
    let mut parts = Parts::new(Prefix { address: any, length: header.destination_prefix_length }, header);
    for attribute in &message.attributes {
        parts.take(attribute, names);
    }
    let action = match header.kind {
        RouteType::Unicast | RouteType::Local => parts.action(header, ipv6)?,
        RouteType::BlackHole => RouteAction::Blackhole,
        RouteType::Unreachable => RouteAction::Unreachable,
        RouteType::Prohibit => RouteAction::Prohibit,
        RouteType::Throw => RouteAction::Throw,
        // Broadcast, anycast and multicast routes are the kernel's.
        _ => return None,
    };
    let from = (header.source_prefix_length > 0)
        .then(|| Prefix { address: parts.from.unwrap_or(any), length: header.source_prefix_length });
    let Parts { destination, table, metric, source, mtu, unsupported, preference, .. } = parts;
    let protocol = u8::from(header.protocol);
    let entry = RouteEntry { destination, table, metric, action, source, mtu, protocol, place: None };
    let (type_of_service, is_local) = (header.tos, header.kind == RouteType::Local);
    Some(LiveRoute { entry, unsupported, from, type_of_service, is_local, preference })
}

/// Attributes of a route.
struct Parts {
    destination: Prefix,
    from: Option<IpAddr>,
    table: u32,
    metric: u32,
    source: Option<IpAddr>,
    mtu: Option<u32>,
    nexthop: Option<u32>,
    via: Option<IpAddr>,
    interface: Option<String>,
    hops: Option<Vec<Hop>>,
    unsupported: Vec<String>,
    preference: Option<Preference>,
}

impl Parts {
    fn new(destination: Prefix, header: &RouteHeader) -> Self {
        let mut unsupported = Vec::new();
        if header.tos != 0 {
            unsupported.push(format!("tos {:#x}", header.tos));
        }
        if header.source_prefix_length != 0 {
            unsupported.push("from".to_owned());
        }
        if header.flags.contains(RouteFlags::Onlink) {
            unsupported.push("onlink".to_owned());
        }
        Self {
            destination,
            from: None,
            table: u32::from(header.table),
            metric: 0,
            source: None,
            mtu: None,
            nexthop: None,
            via: None,
            interface: None,
            hops: None,
            unsupported,
            preference: None,
        }
    }

    fn take(&mut self, attribute: &RouteAttribute, names: &Names) {
        match attribute {
            RouteAttribute::Destination(address) => {
                self.destination.address = ip(address).unwrap_or(self.destination.address);
            }
            RouteAttribute::Source(address) => self.from = ip(address),
            RouteAttribute::Table(table) => self.table = *table,
            RouteAttribute::Priority(metric) => self.metric = *metric,
            RouteAttribute::PrefSource(address) => self.source = ip(address),
            RouteAttribute::Metrics(metrics) => self.metrics(metrics),
            RouteAttribute::NhId(id) => self.nexthop = Some(*id),
            RouteAttribute::Gateway(address) => self.via = ip(address),
            RouteAttribute::Via(RouteVia::Inet6(address)) => self.via = Some((*address).into()),
            RouteAttribute::Oif(index) => self.interface = Some(names.of(*index)),
            RouteAttribute::MultiPath(hops) => {
                let hops = hops.iter().map(|hop| read_hop(hop, names, &mut self.unsupported)).collect();
                self.hops = Some(hops);
            }
            RouteAttribute::Preference(preference) if *preference != RoutePreference::Medium => {
                self.unsupported.push("pref".to_owned());
                self.preference = match preference {
                    RoutePreference::High => Some(Preference::High),
                    RoutePreference::Low => Some(Preference::Low),
                    _ => None,
                };
            }
            RouteAttribute::Encap(_) => self.unsupported.push("encap".to_owned()),
            RouteAttribute::Realm(_) => self.unsupported.push("realms".to_owned()),
            RouteAttribute::CacheInfo(cache) if cache.expires != 0 => {
                self.unsupported.push("expires".to_owned());
            }
            _ => {}
        }
    }

    fn metrics(&mut self, metrics: &[RouteMetric]) {
        for metric in metrics {
            match metric {
                RouteMetric::Mtu(mtu) => self.mtu = Some(*mtu),
                RouteMetric::CcAlgo(name) => self.unsupported.push(format!("congctl {name}")),
                RouteMetric::Lock(0) => {}
                other => self.unsupported.push(format!("metric {other:?}")),
            }
        }
    }

    /// The action of a route; `None` for one without next hop.
    fn action(&mut self, header: &RouteHeader, ipv6: bool) -> Option<RouteAction> {
        if let Some(id) = self.nexthop {
            return Some(RouteAction::Nexthop(id));
        }
        if let Some(hops) = self.hops.take() {
            return Some(RouteAction::Gateways(hops));
        }
        let interface = self.interface.take()?;
        Some(match self.via {
            Some(via) => {
                let hop = Hop { via, interface: Some(interface), weight: 1, place: None };
                RouteAction::Gateways(vec![hop])
            }
            None => {
                if !ipv6 && header.scope != RouteScope::Link {
                    self.unsupported.push(format!("scope {}", u8::from(header.scope)));
                }
                RouteAction::Link { interface }
            }
        })
    }
}

fn read_hop(hop: &RouteNextHop, names: &Names, unsupported: &mut Vec<String>) -> Hop {
    let via = hop.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet6(address)) => Some((*address).into()),
        _ => None,
    });
    if hop.flags.contains(RouteNextHopFlags::Onlink) {
        unsupported.push("onlink".to_owned());
    }
    if via.is_none() {
        unsupported.push("next hop without gateway".to_owned());
    }
    Hop {
        via: via.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
        interface: Some(names.of(hop.interface_index)),
        // `rtnh_hops` is the weight less one.
        weight: u16::from(hop.hops) + 1,
        place: None,
    }
}

pub(crate) fn written(route: &RouteEntry, names: &Names) -> Result<RouteMessage, NetlinkError> {
    let to = route.destination.network();
    let mut message = RouteMessage::default();
    let header = &mut message.header;
    header.address_family = family(to.address);
    header.destination_prefix_length = to.length;
    // A number that exceeds the field is in the attribute alone.
    header.table = u8::try_from(route.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    header.protocol = RouteProtocol::from(route.protocol);
    header.scope = RouteScope::Universe;
    header.kind = match &route.action {
        RouteAction::Blackhole => RouteType::BlackHole,
        RouteAction::Unreachable => RouteType::Unreachable,
        RouteAction::Prohibit => RouteType::Prohibit,
        RouteAction::Throw => RouteType::Throw,
        RouteAction::Link { .. } | RouteAction::Gateways(_) | RouteAction::Nexthop(_) => RouteType::Unicast,
    };
    if matches!(route.action, RouteAction::Link { .. }) {
        header.scope = RouteScope::Link;
    }
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Table(route.table));
    if to.length > 0 {
        attributes.push(RouteAttribute::Destination(RouteAddress::from(to.address)));
    }
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    attributes.extend(route.source.map(|source| RouteAttribute::PrefSource(RouteAddress::from(source))));
    attributes.extend(route.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
    match &route.action {
        RouteAction::Link { interface } => attributes.push(RouteAttribute::Oif(names.index(interface)?)),
        RouteAction::Nexthop(id) => attributes.push(RouteAttribute::NhId(*id)),
        RouteAction::Gateways(hops) => match hops.as_slice() {
            [hop] => {
                attributes.push(gateway(hop.via, to));
                if let Some(interface) = &hop.interface {
                    attributes.push(RouteAttribute::Oif(names.index(interface)?));
                }
            }
            hops => {
                let hops = hops.iter().map(|hop| written_hop(hop, to, names)).collect::<Result<_, _>>()?;
                attributes.push(RouteAttribute::MultiPath(hops));
            }
        },
        RouteAction::Blackhole | RouteAction::Unreachable | RouteAction::Prohibit | RouteAction::Throw => {}
    }
    Ok(message)
}

fn written_hop(hop: &Hop, to: Prefix, names: &Names) -> Result<RouteNextHop, NetlinkError> {
    let mut message = RouteNextHop::default();
    message.hops = u8::try_from(hop.weight.saturating_sub(1)).map_err(|_| NetlinkError::Unfit {
        subject: format!("the next hop {}", hop.via),
        reason: format!("weight {} is more than 256", hop.weight),
    })?;
    if let Some(interface) = &hop.interface {
        message.interface_index = names.index(interface)?;
    }
    message.attributes.push(gateway(hop.via, to));
    Ok(message)
}

/// A gateway of the other family has its own attribute (RFC 5549).
fn gateway(via: IpAddr, to: Prefix) -> RouteAttribute {
    match via {
        IpAddr::V6(address) if to.address.is_ipv4() => RouteAttribute::Via(RouteVia::Inet6(address)),
        _ => RouteAttribute::Gateway(RouteAddress::from(via)),
    }
}
