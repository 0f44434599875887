//! Builds the plan of one host: interfaces, next hops, routes, rules, marks. Every
//! item has a reason, which is formatted on request only.

use std::net::IpAddr;

use clearstream_schema::{
    fabric::{HostRole, Multipath, ReturnPath},
    prefix::Prefix,
    route_plan::{PlannedHost, Reason},
    routing::{
        ConnectionMark, GroupMember, Hop as RouteHop, HostRouting, MAIN_TABLE, Nexthop, NexthopTarget,
        Resilient, RouteAction, RouteEntry, RoutingInterface, RuleAction, RuleEntry, RuleSelector,
    },
};

use super::{Hop, Planner, Route, prefixes, sysctls};
use crate::fabric::HostId;

/// A plan under construction.
pub(super) struct Draft<'p, 'a> {
    pub(super) planner: &'p Planner<'a>,
    pub(super) host: HostId,
    pub(super) routing: HostRouting,
    reasons: Option<Vec<Reason>>,
    /// Destinations that an earlier link reaches.
    reached: Vec<Prefix>,
}

/// A host's link on one end of a route.
#[derive(Clone, Copy)]
struct End<'p> {
    index: usize,
    route: &'p Route,
    link: usize,
    near: usize,
    far: usize,
    /// Which end of the route it is.
    end: usize,
    multipath: Multipath,
}

/// Metric of the route below one by nexthop objects: the next worse one. IPv6 reads none as 1024 (`IP6_RT_PRIO_USER`).
fn below_metric(ipv6: bool) -> u32 {
    if ipv6 { 1025 } else { 1 }
}

/// What happens to busy flows when a gateway comes back.
fn on_return(resilient: &Resilient) -> String {
    match resilient.unbalanced_seconds {
        0 => {
            "; no established flow moves to a gateway that comes back, however long it stays busy".to_owned()
        }
        seconds => format!(
            "; a gateway that comes back has its share after {seconds} s, and busy flows of that share move to it once"
        ),
    }
}

impl<'p, 'a> Draft<'p, 'a> {
    pub(super) fn new(planner: &'p Planner<'a>, host: HostId, with_reasons: bool) -> Self {
        let name = planner.fabric.host_name(host);
        Self {
            planner,
            host,
            routing: HostRouting { host: name, ..HostRouting::default() },
            reasons: with_reasons.then(Vec::new),
            reached: Vec::new(),
        }
    }

    pub(super) fn finish(mut self) -> PlannedHost {
        self.interfaces();
        let planner = self.planner;
        let forwards = planner.fabric.class(self.host).role == HostRole::Gateway;
        for link in 0..planner.fabric.class(self.host).links.len() {
            let near = planner.fabric.link_network(self.host, link);
            for (index, route) in planner.routes.iter().enumerate() {
                let Some(end) = route.end(near).filter(|_| !forwards) else { continue };
                let far = route.networks[1 - end];
                // A host on both networks needs no gateway.
                if planner.fabric.link_on(self.host, far).is_none() {
                    let multipath = planner.multipath(index, self.host.class).0;
                    self.route(End { index, route, link, near, far, end, multipath });
                }
            }
        }
        sysctls::add(&mut self);
        PlannedHost {
            class: planner.fabric.class(self.host).name.clone(),
            routing: self.routing,
            reasons: self.reasons.unwrap_or_default(),
        }
    }

    /// Records the reason for an item.
    pub(super) fn because(&mut self, item: impl FnOnce() -> String, why: impl FnOnce() -> String) {
        if let Some(reasons) = &mut self.reasons {
            reasons.push(Reason { item: item(), why: why() });
        }
    }

    fn interface_name(&self, link: usize) -> &'p str {
        &self.planner.fabric.class(self.host).links[link].interface
    }

    fn gateway_name(&self, number: usize) -> &'p str {
        &self.planner.fabric.gateways()[number].name
    }

    /// Whether this host is a server, which sends replies.
    fn serves(&self) -> bool {
        self.planner.fabric.class(self.host).role == HostRole::Storage
    }

    fn interfaces(&mut self) {
        let fabric = self.planner.fabric;
        for link in 0..fabric.class(self.host).links.len() {
            let number = fabric.link_network(self.host, link);
            let network = fabric.network(number);
            let own = [false, true].into_iter().filter_map(|ipv6| fabric.address(self.host, link, ipv6));
            let with_length = |address: IpAddr| {
                let length = fabric.prefix_of(number, address).map_or(32, |prefix| prefix.length);
                Prefix { address, length }
            };
            let mut addresses: Vec<_> = own.map(|address| with_length(address).into()).collect();
            let returns =
                |route: &Route| route.end(number).is_some() && route.return_path() == ReturnPath::Alias;
            if self.serves() && self.planner.routes.iter().any(returns) {
                let aliases =
                    [false, true].into_iter().flat_map(|ipv6| fabric.aliases(self.host, link, ipv6));
                addresses.extend(aliases.map(|address| Prefix::host(address).into()));
            }
            let interface = RoutingInterface {
                name: self.interface_name(link).to_owned(),
                addresses,
                mtu: network.mtu.map(Into::into),
                infiniband_mode: network.infiniband_mode.map(Into::into),
                link_address: fabric.link_address(self.host, link),
            };
            let aliases = interface
                .addresses
                .iter()
                .filter(|address| address.value == Prefix::host(address.value.address))
                .count();
            self.because(
                || format!("interface {}", interface.name),
                || match aliases {
                    0 => format!("its link on network {}", network.name),
                    count => format!(
                        "its link on network {}; {count} further addresses, one for each gateway and family: a request to one gets its reply over its gateway",
                        network.name
                    ),
                },
            );
            self.routing.interfaces.push(interface);
        }
    }

    fn route(&mut self, at: End<'p>) {
        for ipv6 in [false, true] {
            let fabric = self.planner.fabric;
            let Some(source) = fabric.address(self.host, at.link, ipv6) else { continue };
            let hops = &at.route.hops[usize::from(ipv6)][at.end];
            let far: Vec<Prefix> = prefixes(fabric, at.far, ipv6).collect();
            if hops.is_empty() || far.is_empty() || far.iter().any(|prefix| self.reached.contains(prefix)) {
                continue;
            }
            let (action, below) = match hops.as_slice() {
                [only] => (self.single(at, only), None),
                _ if at.multipath == Multipath::Classic => (self.classic(at, hops), None),
                _ => {
                    hops.iter().for_each(|hop| self.nexthop(at, ipv6, hop));
                    (RouteAction::Nexthop(self.group(at, ipv6, hops)), Some(self.classic(at, hops)))
                }
            };
            let serves_aliases = at.route.return_path() == ReturnPath::Alias && self.serves();
            for destination in far {
                self.reached.push(destination);
                let entry = RouteEntry {
                    // The kernel must not choose an alias as the source.
                    source: serves_aliases.then_some(source),
                    ..self.entry(at, destination, MAIN_TABLE, action.clone())
                };
                let below = below.clone().map(|action| RouteEntry {
                    action,
                    metric: below_metric(ipv6),
                    ..entry.clone()
                });
                self.routing.routes.push(entry);
                let far = &fabric.network(at.far).name;
                let count = hops.len();
                self.because(
                    || format!("route {destination}"),
                    || {
                        let mtu_reason = mtu_reason(self.planner, at.near, at.far);
                        format!("network {far}, over {count} gateways{mtu_reason}")
                    },
                );
                if let Some(below) = below {
                    self.because(
                        || format!("route {destination} metric {}", below.metric),
                        || {
                            "the kernel removes nexthop objects, and what goes by them, when their link has no carrier; \
                             this one stays, and carries the traffic until they are there again"
                                .to_owned()
                        },
                    );
                    self.routing.routes.push(below);
                }
            }
            self.client_aliases(at, ipv6, hops);
            self.per_gateway(at, ipv6, hops);
        }
    }

    fn entry(&self, at: End<'_>, destination: Prefix, table: u32, action: RouteAction) -> RouteEntry {
        RouteEntry {
            destination,
            table,
            metric: 0,
            action,
            source: None,
            mtu: narrower(self.planner, at.near, at.far),
            protocol: self.planner.fabric.file().numbers.protocol,
            place: None,
        }
    }

    /// The route action for a single gateway. It has no nexthop object, which would not outlive a loss of carrier.
    fn single(&self, at: End<'_>, hop: &Hop) -> RouteAction {
        RouteAction::Gateways(vec![self.classic_hop(at, hop, 1)])
    }

    fn classic_hop(&self, at: End<'_>, hop: &Hop, weight: u16) -> RouteHop {
        let interface = Some(self.interface_name(at.link).to_owned());
        RouteHop { via: hop.via, interface, weight, place: None }
    }

    fn classic(&self, at: End<'_>, hops: &[Hop]) -> RouteAction {
        RouteAction::Gateways(hops.iter().map(|hop| self.classic_hop(at, hop, hop.weight)).collect())
    }

    /// Ids count gateways within each family and link of the host.
    fn nexthop_id(&self, at: End<'_>, ipv6: bool, hop: &Hop) -> u32 {
        let all = self.planner.fabric.gateways().len();
        let block = 2 * at.link + usize::from(ipv6);
        self.planner.fabric.file().numbers.first_nexthop + (block * all + hop.gateway) as u32
    }

    fn nexthop(&mut self, at: End<'_>, ipv6: bool, hop: &Hop) {
        let id = self.nexthop_id(at, ipv6, hop);
        if self.routing.nexthops.iter().any(|nexthop| nexthop.id == id) {
            return;
        }
        let interface = self.interface_name(at.link).to_owned();
        let gateway = self.gateway_name(hop.gateway);
        self.routing.nexthops.push(Nexthop {
            id,
            target: NexthopTarget::Gateway { via: hop.via, interface },
            protocol: self.planner.fabric.file().numbers.protocol,
            place: None,
        });
        self.because(
            || format!("nexthop {id}"),
            || format!("gateway {gateway}; every route over it changes with it in one step"),
        );
    }

    fn group(&mut self, at: End<'_>, ipv6: bool, hops: &[Hop]) -> u32 {
        let numbers = &self.planner.fabric.file().numbers;
        let links = self.planner.fabric.class(self.host).links.len();
        let all = self.planner.fabric.gateways().len();
        let block = 2 * links * all + 2 * at.index + usize::from(ipv6);
        let id = numbers.first_nexthop + block as u32;
        let member = |hop: &Hop| GroupMember { id: self.nexthop_id(at, ipv6, hop), weight: hop.weight };
        let resilient = (at.multipath == Multipath::Resilient).then_some(Resilient {
            bucket_count: self.planner.bucket_count(at.index),
            idle_seconds: numbers.idle_seconds,
            unbalanced_seconds: self.planner.unbalanced_seconds(at.index),
        });
        let members = hops.iter().map(member).collect();
        self.routing.nexthops.push(Nexthop {
            id,
            target: NexthopTarget::Group { members, resilient },
            protocol: numbers.protocol,
            place: None,
        });
        let planner = self.planner;
        let (class, index) = (self.host.class, at.index);
        self.because(
            || format!("group {id}"),
            || {
                let moves = resilient.map_or_else(String::new, |resilient| on_return(&resilient));
                format!("all gateways by their weights; {}{moves}", planner.multipath(index, class).1)
            },
        );
        id
    }

    /// Clients choose a gateway by the server address that they connect to.
    fn client_aliases(&mut self, at: End<'p>, ipv6: bool, hops: &[Hop]) {
        let aliases = &at.route.aliases[1 - at.end];
        let mut count = 0;
        for alias in aliases.iter().filter(|alias| alias.address.is_ipv6() == ipv6) {
            let Some(hop) = hops.iter().find(|hop| hop.gateway == alias.gateway) else { continue };
            let destination = Prefix::host(alias.address);
            let entry = self.entry(at, destination, MAIN_TABLE, self.single(at, hop));
            self.routing.routes.push(entry);
            count += 1;
        }
        if count > 0 {
            let far = &self.planner.fabric.network(at.far).name;
            let length = if ipv6 { 128 } else { 32 };
            self.because(
                || format!("{count} routes of length {length}"),
                || format!("an address of a server on {far} for each gateway: requests to it go over that gateway"),
            );
        }
    }

    /// A table for each gateway, and the rules that lead replies there.
    fn per_gateway(&mut self, at: End<'p>, ipv6: bool, hops: &[Hop]) {
        let path = at.route.return_path();
        if !self.serves() || !matches!(path, ReturnPath::Alias | ReturnPath::ConnectionMark) {
            return;
        }
        let fabric = self.planner.fabric;
        let aliases = fabric.aliases(self.host, at.link, ipv6);
        let order: Vec<usize> = fabric.network_gateways(at.near).map(|gateway| gateway.number).collect();
        for hop in hops {
            let selector = match path {
                ReturnPath::ConnectionMark => {
                    let mark = fabric.file().numbers.first_mark + hop.gateway as u32;
                    self.connection_mark(at, hop, mark);
                    RuleSelector { mark: Some((mark, u32::MAX)), ..RuleSelector::default() }
                }
                _ => {
                    let place = order.iter().position(|number| *number == hop.gateway);
                    let Some(alias) = place.and_then(|place| aliases.get(place)) else { continue };
                    RuleSelector { from: Some(Prefix::host(*alias)), ..RuleSelector::default() }
                }
            };
            self.table(at, ipv6, hop);
            self.rule(ipv6, hop, selector);
        }
    }

    fn connection_mark(&mut self, at: End<'_>, hop: &Hop, mark: u32) {
        let interface = self.interface_name(at.link);
        let is_same = |other: &ConnectionMark| other.mark == mark && other.interface == interface;
        if self.routing.connection_marks.iter().any(is_same) {
            return;
        }
        let gateway = self.gateway_name(hop.gateway);
        let link_address = self.planner.hardware(hop.gateway, at.near).unwrap_or_default();
        let (shown, name) = (link_address.clone(), gateway);
        self.routing.connection_marks.push(ConnectionMark {
            interface: interface.to_owned(),
            link_address,
            gateway: gateway.to_owned(),
            mark,
        });
        self.because(
            || format!("mark {mark}"),
            || match shown.as_str() {
                "" => {
                    format!("connections that {name} brought; its link address is learnt from the neighbours")
                }
                address => format!("connections that {name} ({address}) brought"),
            },
        );
    }

    /// The remote network over one gateway, and nothing else: other destinations
    /// continue to the main table, and no more specific route hides the gateway.
    fn table(&mut self, at: End<'_>, ipv6: bool, hop: &Hop) {
        let table = self.planner.fabric.file().numbers.first_table + hop.gateway as u32;
        for destination in prefixes(self.planner.fabric, at.far, ipv6) {
            let entry = self.entry(at, destination, table, self.single(at, hop));
            self.routing.routes.push(entry);
        }
        let (gateway, far) = (self.gateway_name(hop.gateway), &self.planner.fabric.network(at.far).name);
        self.because(
            || format!("table {table}"),
            || format!("replies to {far} over {gateway}; all else goes on to the main table"),
        );
    }

    fn rule(&mut self, ipv6: bool, hop: &Hop, selector: RuleSelector) {
        let numbers = &self.planner.fabric.file().numbers;
        let (priority, table) =
            (numbers.first_priority + hop.gateway as u32, numbers.first_table + hop.gateway as u32);
        let is_same = |rule: &RuleEntry| {
            rule.ipv6 == ipv6 && rule.priority == Some(priority) && rule.selector == selector
        };
        if self.routing.rules.iter().any(is_same) {
            return;
        }
        let gateway = self.gateway_name(hop.gateway);
        let who = match (&selector.from, selector.mark) {
            (Some(from), _) => format!("from {}", from.address),
            (None, Some((mark, _))) => format!("marked {mark}"),
            (None, None) => String::new(),
        };
        self.routing.rules.push(RuleEntry {
            ipv6,
            priority: Some(priority),
            selector,
            action: RuleAction::Table(table),
            protocol: numbers.protocol,
            place: None,
        });
        self.because(
            || format!("rule {priority}"),
            || format!("packets {who} are replies to what came over {gateway}"),
        );
    }
}

/// MTU that routes to a network with a smaller one carry.
fn narrower(planner: &Planner<'_>, near: usize, far: usize) -> Option<u32> {
    let (near, far) = (planner.fabric.network(near).mtu?, planner.fabric.network(far).mtu?);
    (far < near).then_some(far)
}

fn mtu_reason(planner: &Planner<'_>, near: usize, far: usize) -> String {
    match narrower(planner, near, far) {
        Some(mtu) => {
            format!("; packets of {mtu} bytes, which is the MTU there: nothing waits for path MTU discovery")
        }
        None => String::new(),
    }
}
