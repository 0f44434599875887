//! The routing state of this network namespace as one document.

use clearstream_schema::routing::{HostRouting, Located, RoutingInterface};

use crate::{NetlinkError, RouteSocket};

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
        let routes = self.all_routes()?;
        let routes =
            routes.into_iter().filter(|route| !route.is_kernels()).map(|route| route.entry).collect();
        let rules = self.rules()?;
        let rules = rules.into_iter().filter(|rule| !rule.is_kernels).map(|rule| rule.entry).collect();
        Ok(HostRouting { interfaces, nexthops, routes, rules, ..HostRouting::default() })
    }
}
