//! Scope of a verification: for each route of a fabric and address family, the hosts
//! that open flows, the hosts that respond, and the gateways between them.

use std::net::IpAddr;

use clearstream_route::{
    fabric::{Fabric, FabricError, HostId},
    planner::Planner,
};
use clearstream_schema::{
    fabric::{HashPolicy, HostRole, ReturnPath},
    prefix::Prefix,
};

/// All hosts of a side take part up to this number.
const ALL_HOSTS: usize = 16;
/// Of each class on a larger side: the first, the last and some between.
const HOSTS_OF_CLASS: usize = 4;
/// Maximum number of named hosts per side.
const MOST_HOSTS: usize = 64;

/// One route of a fabric in one address family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestedRoute {
    /// Networks: the clients' and the servers'.
    pub between: [String; 2],
    /// Prefixes of the two networks, of the family.
    pub prefixes: [Vec<Prefix>; 2],
    /// Whether it is the IPv6 part.
    pub ipv6: bool,
    /// Hosts that open flows.
    pub clients: Vec<End>,
    /// Hosts that respond.
    pub servers: Vec<End>,
    /// Gateways, in the order of the next hops.
    pub gateways: Vec<GatewayEnds>,
    /// Return path of the plan; never `auto`.
    pub return_path: ReturnPath,
    /// Hash policy of the plan.
    pub hash_policy: HashPolicy,
    /// MTU of both networks, if the fabric specifies it.
    pub mtu_bytes: Option<u32>,
    /// Hosts of both sides that were left out.
    pub left_out_count: usize,
}

/// A host at one end of flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// Host name.
    pub host: String,
    /// Its class.
    pub class: String,
    /// Its address.
    pub address: IpAddr,
    /// Addresses of a server with one address per gateway, in the order of the
    /// gateways. Empty otherwise.
    pub aliases: Vec<IpAddr>,
}

/// A gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayEnds {
    /// Host name.
    pub host: String,
    /// Its weight.
    pub weight: u16,
    /// Address on the clients' network.
    pub client_side: IpAddr,
    /// Address on the servers' network.
    pub server_side: IpAddr,
}

/// Which hosts take part.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Names of classes; all if empty.
    pub classes: Vec<String>,
    /// Names of hosts; chosen automatically if empty.
    pub hosts: Vec<String>,
}

impl TestedRoute {
    /// Whether replies are to return through the gateway of the request.
    pub fn promises_symmetry(&self) -> bool {
        !matches!(self.return_path, ReturnPath::None | ReturnPath::Auto)
    }

    /// `IPv4` or `IPv6`.
    pub(super) fn family(&self) -> &'static str {
        if self.ipv6 { "IPv6" } else { "IPv4" }
    }

    /// Whether flows of one pair of hosts spread by their ports.
    pub fn spreads_by_ports(&self) -> bool {
        self.return_path != ReturnPath::Alias && self.hash_policy == HashPolicy::Layer4
    }

    /// Expected fraction of the flows per gateway, by weight.
    pub fn expected_ratios(&self) -> Vec<f64> {
        let total: f64 = self.gateways.iter().map(|gateway| f64::from(gateway.weight)).sum();
        self.gateways.iter().map(|gateway| f64::from(gateway.weight) / total).collect()
    }

    /// Every host that takes part, each once.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let ends = self.clients.iter().chain(&self.servers).map(|end| end.host.as_str());
        ends.chain(self.gateways.iter().map(|gateway| gateway.host.as_str()))
    }

    /// The routes of a fabric that have hosts at both ends, one per address family.
    ///
    /// # Errors
    /// A class or host that the fabric does not have.
    pub fn of_fabric(fabric: &Fabric, selection: &Selection) -> Result<Vec<Self>, FabricError> {
        for class in &selection.classes {
            fabric.find_class(class)?;
        }
        for host in &selection.hosts {
            fabric.find(host)?;
        }
        let planner = Planner::new(fabric);
        let mut tested = Vec::new();
        for route in 0..fabric.file().routes.len() {
            for servers_end in server_ends(fabric, route) {
                for ipv6 in [false, true] {
                    let read = Reading { fabric, selection, route, servers_end, ipv6 };
                    tested.extend(read.tested(planner.choice(route).return_path));
                }
            }
        }
        Ok(tested)
    }
}

/// Ends of a route that servers are on; the second one where there are none.
fn server_ends(fabric: &Fabric, route: usize) -> Vec<usize> {
    let (_, networks) = fabric.route(route);
    let has = |end: &usize, role: fn(HostRole) -> bool| {
        fabric.classes_on(networks[*end]).any(|class| role(fabric.file().classes[class].role))
    };
    let serves = |end: &usize| has(end, |role| role == HostRole::Storage);
    let has_clients = |end: &usize| has(end, |role| matches!(role, HostRole::Compute | HostRole::Login));
    let ends: Vec<usize> = [0, 1].into_iter().filter(|end| serves(end) && has_clients(&(1 - end))).collect();
    if ends.is_empty() { vec![1] } else { ends }
}

struct Reading<'a> {
    fabric: &'a Fabric,
    selection: &'a Selection,
    route: usize,
    servers_end: usize,
    ipv6: bool,
}

impl Reading<'_> {
    fn tested(&self, return_path: ReturnPath) -> Option<TestedRoute> {
        let (config, networks) = self.fabric.route(self.route);
        let (client_network, server_network) = (networks[1 - self.servers_end], networks[self.servers_end]);
        let gateways: Vec<(usize, GatewayEnds)> = self.gateways(client_network, server_network);
        let order: Vec<usize> =
            self.fabric.network_gateways(server_network).map(|gateway| gateway.number).collect();
        let places: Vec<Option<usize>> =
            gateways.iter().map(|(number, _)| order.iter().position(|other| other == number)).collect();
        let (clients, clients_left) = self.side(client_network, server_network, false);
        let (servers, servers_left) = self.side(server_network, client_network, true);
        let end = |host: HostId, network: usize| {
            let link = self.fabric.link_on(host, network)?;
            let all = self.fabric.aliases(host, link, self.ipv6);
            let is_alias = return_path == ReturnPath::Alias && network == server_network;
            let own = places.iter().filter_map(|place| all.get((*place)?).copied());
            Some(End {
                host: self.fabric.host_name(host),
                class: self.fabric.class(host).name.clone(),
                address: self.fabric.address(host, link, self.ipv6)?,
                aliases: if is_alias { own.collect() } else { Vec::new() },
            })
        };
        let tested = TestedRoute {
            between: [client_network, server_network]
                .map(|network| self.fabric.network(network).name.clone()),
            prefixes: [client_network, server_network].map(|network| {
                let prefixes = self.fabric.network(network).prefixes.iter().copied();
                prefixes.filter(|prefix| prefix.address.is_ipv6() == self.ipv6).collect()
            }),
            ipv6: self.ipv6,
            clients: clients.into_iter().filter_map(|host| end(host, client_network)).collect(),
            servers: servers.into_iter().filter_map(|host| end(host, server_network)).collect(),
            gateways: gateways.into_iter().map(|(_, ends)| ends).collect(),
            return_path,
            hash_policy: config.hash_policy,
            mtu_bytes: self.fabric.network(client_network).mtu.min(self.fabric.network(server_network).mtu),
            left_out_count: clients_left + servers_left,
        };
        let is_empty = tested.clients.is_empty() || tested.servers.is_empty() || tested.gateways.is_empty();
        (!is_empty).then_some(tested)
    }

    fn gateways(&self, client_network: usize, server_network: usize) -> Vec<(usize, GatewayEnds)> {
        let address = |host: HostId, network: usize| {
            self.fabric.address(host, self.fabric.link_on(host, network)?, self.ipv6)
        };
        let ends = |gateway: &clearstream_route::fabric::Gateway| {
            let ends = GatewayEnds {
                host: gateway.name.clone(),
                weight: gateway.weight,
                client_side: address(gateway.host, client_network)?,
                server_side: address(gateway.host, server_network)?,
            };
            Some((gateway.number, ends))
        };
        self.fabric.route_gateways(self.route).filter_map(ends).collect()
    }

    /// Hosts of one side that take part, and how many do not.
    fn side(&self, network: usize, other: usize, servers: bool) -> (Vec<HostId>, usize) {
        let role = |class: usize| self.fabric.file().classes[class].role;
        let has_storage = self.fabric.classes_on(network).any(|class| role(class) == HostRole::Storage);
        let fits = |class: &usize| match role(*class) {
            HostRole::Gateway => false,
            HostRole::Storage => servers,
            HostRole::Compute | HostRole::Login => !servers || !has_storage,
        };
        let wanted = |class: &usize| {
            let name = &self.fabric.file().classes[*class].name;
            self.selection.classes.is_empty() || self.selection.classes.contains(name)
        };
        let on_this_side: Vec<usize> = self
            .fabric
            .classes_on(network)
            .filter(fits)
            // A host on both networks needs no gateway.
            .filter(|class| !self.fabric.classes_on(other).any(|there| there == *class))
            .collect();
        // Possibly only classes of the other side were named.
        let named: Vec<usize> = on_this_side.iter().copied().filter(wanted).collect();
        let classes = if named.is_empty() { on_this_side } else { named };
        let total: usize = classes.iter().map(|class| self.fabric.class_count(*class)).sum();
        let all = || classes.iter().flat_map(|class| self.fabric.class_hosts(*class));
        let named: Vec<HostId> = all()
            .filter(|host| self.selection.hosts.contains(&self.fabric.host_name(*host)))
            .take(MOST_HOSTS)
            .collect();
        let chosen: Vec<HostId> = if !named.is_empty() {
            named
        } else if total <= ALL_HOSTS {
            all().collect()
        } else {
            classes
                .iter()
                .flat_map(|class| spread(*class, self.fabric.class_count(*class)))
                .take(MOST_HOSTS)
                .collect()
        };
        let left = total - chosen.len();
        (chosen, left)
    }
}

/// Some hosts of a class, evenly from the first to the last.
fn spread(class: usize, count: usize) -> Vec<HostId> {
    let taken = count.min(HOSTS_OF_CLASS);
    let last = taken.saturating_sub(1).max(1);
    (0..taken).map(|place| HostId { class, index: place * (count - 1) / last }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_a_large_class_are_spread_from_first_to_last() {
        let places = |count| spread(0, count).into_iter().map(|host| host.index).collect::<Vec<_>>();
        assert_eq!(places(4096), [0, 1365, 2730, 4095]);
        assert_eq!(places(3), [0, 1, 2]);
        assert_eq!(places(1), [0]);
    }

    fn lab(selection: &Selection) -> Vec<TestedRoute> {
        let fabric = clearstream_route::fabric::load("gateways-6").unwrap();
        TestedRoute::of_fabric(&fabric, selection).unwrap()
    }

    #[test]
    fn every_host_of_the_lab_takes_part_in_both_families() {
        let tested = lab(&Selection::default());
        assert_eq!(tested.len(), 2);
        for (tested, ipv6) in tested.iter().zip([false, true]) {
            assert_eq!((tested.ipv6, tested.left_out_count), (ipv6, 0));
            assert_eq!(tested.between, ["compute", "storage"]);
            assert_eq!((tested.clients.len(), tested.servers.len()), (9, 2), "login-1 is a client too");
            let names: Vec<&str> = tested.gateways.iter().map(|gateway| gateway.host.as_str()).collect();
            assert_eq!(names, ["gw1", "gw2", "gw3", "gw4", "gw5", "gw6"]);
            assert_eq!(tested.expected_ratios(), vec![1.0 / 6.0; 6]);
        }
        // The addresses of the published table.
        assert_eq!(tested[0].gateways[2].client_side, "10.100.0.93".parse::<IpAddr>().unwrap());
        assert_eq!(tested[0].gateways[2].server_side, "10.10.0.13".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn classes_and_hosts_are_chosen_by_name() {
        let by_class = lab(&Selection { classes: vec!["login".to_owned()], ..Selection::default() });
        assert_eq!(by_class[0].clients.len(), 1);
        assert_eq!((by_class[0].servers.len(), by_class[0].left_out_count), (2, 0));
        let hosts = vec!["compute-3".to_owned(), "storage-2".to_owned()];
        let by_host = lab(&Selection { hosts, ..Selection::default() });
        assert_eq!(by_host[0].clients[0].host, "compute-3");
        assert_eq!((by_host[0].clients.len(), by_host[0].servers.len()), (1, 1));
        let fabric = clearstream_route::fabric::load("gateways-6").unwrap();
        let wrong = Selection { hosts: vec!["compute-99".to_owned()], ..Selection::default() };
        assert!(TestedRoute::of_fabric(&fabric, &wrong).is_err());
    }
}
