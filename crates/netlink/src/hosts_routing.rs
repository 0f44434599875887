//! The routing state of this network namespace as one document.

use std::collections::BTreeMap;

use clearstream_schema::{
    prefix::Prefix,
    routing::{
        HostRouting, Located, MAIN_TABLE, RouteAction, RouteEntry, RoutingInterface, SpecialRoute,
        kernel::{AbsentNetwork, AbsentRule, KernelFacts, RoutePreference},
    },
};

use crate::{
    LiveAddress, LiveRoute, LiveRule, NetlinkError, RouteSocket, link::Interface, routes::Preference,
};

/// Table of a host's own addresses (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u32 = 255;
/// Priorities of the kernel's own rules by family (`fib_default_rules_init`, `fib6_rules_net_init`).
const OWN_RULES: [(bool, u32); 5] = [(false, 0), (false, 32_766), (false, 32_767), (true, 0), (true, 32_766)];

impl RouteSocket {
    /// Interfaces with their addresses, nexthop objects, routes and rules of the namespace, except what the
    /// kernel creates by itself for an address; what it would have created and lacks is in `kernel`. Sysctls,
    /// interface modes and connection marks are not read by this socket.
    pub fn host_routing(&mut self) -> Result<HostRouting, NetlinkError> {
        let addresses = self.all_addresses()?;
        let links = self.interfaces()?;
        let all = self.every_route()?;
        let rules = self.rules()?;
        let kernel = KernelFacts {
            absent_rules: absent_rules(&rules),
            absent_networks: absent_networks(&addresses, &all),
            preferences: all.iter().filter_map(preference).collect(),
            vrf_members: vrf_members(&links),
        };
        let interfaces = links.into_iter().map(|interface| RoutingInterface {
            addresses: addresses
                .iter()
                .filter(|address| address.interface == interface.name)
                .map(|address| Located::from(address.prefix))
                .collect(),
            name: interface.name,
            mtu: Some(Located::from(interface.mtu_bytes)),
            infiniband_mode: None,
            link_address: interface.link_address,
        });
        let interfaces = interfaces.collect();
        let nexthops = self.nexthops()?.into_iter().map(|nexthop| nexthop.entry).collect();
        let live = all.into_iter().filter(|route| !is_implied(route, &addresses));
        let (special, plain): (Vec<_>, Vec<_>) = live.partition(LiveRoute::is_special);
        let routes = plain.into_iter().map(|route| route.entry).collect();
        let special_routes = special
            .into_iter()
            // Kernels before 4.18 do not sign the local routes of IPv6 addresses.
            .filter(|route| {
                !addresses
                    .iter()
                    .any(|own| route.is_local && own.prefix.address == route.entry.destination.address)
            })
            .filter(|route| !route.entry.destination.address.is_multicast())
            .map(SpecialRoute::from)
            .collect();
        let rules = rules.into_iter().filter(|rule| !rule.is_kernels).map(|rule| rule.entry).collect();
        Ok(HostRouting {
            interfaces,
            nexthops,
            routes,
            special_routes,
            rules,
            kernel,
            ..HostRouting::default()
        })
    }
}

/// Whether the kernel made a route for an address, in the table where a reader of the address
/// expects it: programs sign routes of their own as the kernel's too.
fn is_implied(route: &LiveRoute, addresses: &[LiveAddress]) -> bool {
    let destination = route.entry.destination;
    if !route.is_kernels() {
        return false;
    }
    if route.is_local || route.entry.table == LOCAL_TABLE || destination.address.is_multicast() {
        return true;
    }
    match &route.entry.action {
        RouteAction::Link { interface } => {
            let is_of = |own: &LiveAddress| {
                own.interface == *interface && own.prefix.network() == destination.network()
            };
            let is_own = destination == Prefix::host(destination.address)
                && addresses.iter().any(|own| own.prefix.address == destination.address);
            let is_of_the_link = match destination.address {
                std::net::IpAddr::V6(address) => address.is_unicast_link_local(),
                std::net::IpAddr::V4(_) => false,
            };
            is_own || is_of_the_link || route.entry.table == MAIN_TABLE && addresses.iter().any(is_of)
        }
        // The null entry of IPv6 (`ip6_null_entry`).
        RouteAction::Unreachable => route.entry.metric == u32::MAX,
        _ => false,
    }
}

/// Own rules of each family that has rules at all: a kernel may be built without them.
fn absent_rules(rules: &[LiveRule]) -> Vec<AbsentRule> {
    let has_rules = |ipv6| rules.iter().any(|rule| rule.entry.ipv6 == ipv6);
    let is_there = |ipv6, priority| {
        rules
            .iter()
            .any(|rule| rule.is_kernels && (rule.entry.ipv6, rule.entry.priority) == (ipv6, Some(priority)))
    };
    let absent = OWN_RULES.into_iter().filter(|(ipv6, number)| has_rules(*ipv6) && !is_there(*ipv6, *number));
    absent.map(|(ipv6, priority)| AbsentRule { priority, ipv6 }).collect()
}

/// Networks of addresses without a route by their interface, as after `ip route del`, with an
/// interface that is down, or in a VRF.
fn absent_networks(addresses: &[LiveAddress], routes: &[LiveRoute]) -> Vec<AbsentNetwork> {
    let mut absent: Vec<AbsentNetwork> = Vec::new();
    for own in addresses {
        let network = own.prefix.network();
        let has_none = own.prefix == Prefix::host(own.prefix.address)
            // Its networks are in the table local.
            || own.interface == "lo"
            || matches!(network.address, std::net::IpAddr::V6(address) if address.is_unicast_link_local());
        let is_it = |route: &LiveRoute| {
            let by = match &route.entry.action {
                RouteAction::Link { interface } => *interface == own.interface,
                _ => false,
            };
            by && route.entry.table == MAIN_TABLE && route.entry.destination.network() == network
        };
        let found = AbsentNetwork { interface: own.interface.clone(), network };
        if !has_none && !routes.iter().any(is_it) && !absent.contains(&found) {
            absent.push(found);
        }
    }
    absent
}

fn preference(live: &LiveRoute) -> Option<RoutePreference> {
    let is_high = match live.preference? {
        Preference::High => true,
        Preference::Low => false,
    };
    let RouteEntry { destination, table, metric, action, .. } = live.entry.clone();
    Some(RoutePreference { destination, table, metric, action, is_high })
}

fn vrf_members(links: &[Interface]) -> BTreeMap<String, u32> {
    let table = |index: u32| links.iter().find(|link| link.index == index)?.vrf_table;
    let of_member = links.iter().filter_map(|link| Some((link.name.clone(), table(link.master?)?)));
    let of_vrf = links.iter().filter_map(|link| Some((link.name.clone(), link.vrf_table?)));
    of_member.chain(of_vrf).collect()
}

impl From<LiveRoute> for SpecialRoute {
    fn from(live: LiveRoute) -> Self {
        let LiveRoute { entry: route, from, type_of_service, is_local, .. } = live;
        let type_of_service = (type_of_service != 0).then_some(type_of_service);
        Self { route, from, type_of_service, is_local }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, name: &str, master: Option<u32>, vrf_table: Option<u32>) -> Interface {
        Interface {
            index,
            name: name.to_owned(),
            mtu_bytes: 1500,
            up: true,
            transmit_queue_count: 1000,
            link_address: None,
            master,
            vrf_table,
        }
    }

    fn route(destination: &str, table: u32, action: RouteAction) -> LiveRoute {
        let destination: Prefix = destination.parse().unwrap();
        let entry = RouteEntry {
            destination,
            table,
            metric: 0,
            action,
            source: None,
            mtu: None,
            protocol: 2,
            place: None,
        };
        LiveRoute {
            entry,
            unsupported: Vec::new(),
            from: None,
            type_of_service: 0,
            is_local: false,
            preference: None,
        }
    }

    #[test]
    fn what_addresses_imply_is_left_out_and_what_they_do_not_is_kept() {
        let on = |name: &str| RouteAction::Link { interface: name.to_owned() };
        let own = |interface: &str, prefix: &str| LiveAddress {
            interface: interface.to_owned(),
            prefix: prefix.parse().unwrap(),
            protocol: 0,
            makes_no_route: false,
            is_secondary: false,
        };
        let addresses = [own("eth0", "10.0.0.1/24"), own("eth1", "10.9.0.1/24"), own("lo", "127.0.0.1/8")];
        for (destination, table, action, is_wanted) in [
            ("10.0.0.0/24", MAIN_TABLE, on("eth0"), true),
            // Of a program that signs as the kernel.
            ("10.0.0.0/25", MAIN_TABLE, on("eth0"), false),
            ("10.0.0.0/24", MAIN_TABLE, on("eth1"), false),
            ("10.0.0.0/24", MAIN_TABLE, RouteAction::Nexthop(1), false),
            // Of a VRF.
            ("10.9.0.0/24", 10, on("eth1"), false),
            ("fe80::/64", MAIN_TABLE, on("eth0"), true),
            ("10.0.0.255/32", LOCAL_TABLE, on("eth0"), true),
        ] {
            let route = route(destination, table, action);
            assert_eq!(is_implied(&route, &addresses), is_wanted, "{route:?}");
        }
        let routes = [route("10.0.0.0/24", MAIN_TABLE, on("eth0")), route("10.9.0.0/24", 10, on("eth1"))];
        let absent = absent_networks(&addresses, &routes);
        assert!(absent.len() == 1 && absent[0].interface == "eth1", "{absent:?}");
        let links =
            [link(1, "lo", None, None), link(2, "eth1", Some(3), None), link(3, "blue", None, Some(10))];
        let members = BTreeMap::from([("blue".to_owned(), 10), ("eth1".to_owned(), 10)]);
        assert_eq!(vrf_members(&links), members);
    }
}
