//! The routing state of this network namespace as one document.

use clearstream_schema::routing::{HostRouting, Located, RoutingInterface, SpecialRoute};

use crate::{LiveRoute, NetlinkError, RouteSocket};

impl RouteSocket {
    /// Interfaces with their addresses, nexthop objects, routes and rules of the namespace, except what the
    /// kernel creates by itself. Sysctls, interface modes and connection marks are not read by this socket.
    pub fn host_routing(&mut self) -> Result<HostRouting, NetlinkError> {
        let addresses = self.all_addresses()?;
        let interfaces = self.interfaces()?.into_iter().map(|interface| RoutingInterface {
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
        let live = self.every_route()?.into_iter().filter(|route| !route.is_kernels());
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
        let rules = self.rules()?;
        let rules = rules.into_iter().filter(|rule| !rule.is_kernels).map(|rule| rule.entry).collect();
        Ok(HostRouting { interfaces, nexthops, routes, special_routes, rules, ..HostRouting::default() })
    }
}

impl From<LiveRoute> for SpecialRoute {
    fn from(live: LiveRoute) -> Self {
        let LiveRoute { entry: route, from, type_of_service, is_local, .. } = live;
        let type_of_service = (type_of_service != 0).then_some(type_of_service);
        Self { route, from, type_of_service, is_local }
    }
}
