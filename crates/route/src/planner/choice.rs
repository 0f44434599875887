//! Choice of the return path: the cost of each one in this fabric, and the
//! recommended one.

use clearstream_schema::{
    fabric::{HashPolicy, HostRole, NetworkKind, ReturnPath},
    route_plan::ReturnCost,
};
use clearstream_tune::KernelVersion;

use super::kernel::EQUAL_SEED_SINCE;
use crate::{fabric::Fabric, walk::meeting_share};

/// A return path for a route.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The one that is planned.
    pub return_path: ReturnPath,
    /// The one that the planner recommends.
    pub recommended: ReturnPath,
    /// Reason for the recommendation.
    pub because: String,
    /// Cost of each return path.
    pub costs: Vec<ReturnCost>,
}

/// Facts on which the choice depends.
struct Facts {
    gateways: usize,
    /// Share of flows for which two independent choices agree.
    meet_ratio: f64,
    stateful: Vec<String>,
    servers: u64,
    /// Families that servers have addresses of, all together.
    server_addresses: u64,
    /// Classes of servers without an alias for each gateway.
    without_aliases: Vec<String>,
    /// Networks of servers that are no Ethernet.
    no_ethernet: Vec<String>,
    /// Classes with kernels before the sysctl of the seed.
    old_kernels: Vec<String>,
    layer4: bool,
    has_ipv6: bool,
}

/// Chooses for a route of the fabric.
pub fn choose(fabric: &Fabric, route: usize) -> Choice {
    let facts = Facts::of(fabric, route);
    let costs = vec![facts.none(), facts.alias(), facts.connection_mark(), facts.equal_seed()];
    let can = |path: ReturnPath| costs.iter().any(|cost| cost.return_path == path && cost.obstacle.is_none());
    let (recommended, because) = facts.recommend(can);
    let configured = fabric.route(route).0.return_path;
    let return_path = if configured == ReturnPath::Auto { recommended } else { configured };
    Choice { return_path, recommended, because, costs }
}

impl Facts {
    fn of(fabric: &Fabric, route: usize) -> Self {
        let (configured, networks) = fabric.route(route);
        let gateways: Vec<_> = fabric.route_gateways(route).collect();
        let total: f64 = gateways.iter().map(|gateway| f64::from(gateway.weight)).sum();
        let share = |gateway: &&crate::fabric::Gateway| (gateway.number, f64::from(gateway.weight) / total);
        let shares: Vec<(usize, f64)> = gateways.iter().map(share).collect();
        let mut stateful: Vec<String> = Vec::new();
        for gateway in gateways.iter().filter(|gateway| gateway.stateful) {
            let class = &fabric.class(gateway.host).name;
            if !stateful.contains(class) {
                stateful.push(class.clone());
            }
        }
        let mut facts = Self {
            gateways: gateways.len(),
            meet_ratio: meeting_share(&shares, &shares),
            stateful,
            servers: 0,
            server_addresses: 0,
            without_aliases: Vec::new(),
            no_ethernet: Vec::new(),
            old_kernels: Vec::new(),
            layer4: configured.hash_policy == HashPolicy::Layer4,
            has_ipv6: networks.iter().all(|network| {
                fabric.network(*network).prefixes.iter().any(|prefix| prefix.address.is_ipv6())
            }),
        };
        for network in networks {
            for class in fabric.classes_on(network) {
                facts.add_class(fabric, network, class);
            }
        }
        facts
    }

    fn add_class(&mut self, fabric: &Fabric, network: usize, number: usize) {
        let class = &fabric.file().classes[number];
        let old = class.kernel.as_ref().and_then(|text| text.parse::<KernelVersion>().ok());
        if class.role != HostRole::Gateway && old.is_some_and(|kernel| kernel < EQUAL_SEED_SINCE) {
            self.old_kernels.push(class.name.clone());
        }
        if class.role != HostRole::Storage {
            return;
        }
        let on = fabric.network(network);
        if on.kind != NetworkKind::Ethernet && !self.no_ethernet.contains(&on.name) {
            self.no_ethernet.push(on.name.clone());
        }
        let count = fabric.class_count(number) as u64;
        self.servers += count;
        let Some(host) = fabric.class_hosts(number).next() else { return };
        let link = fabric.link_on(host, network).unwrap_or_default();
        let families = [false, true].into_iter().filter(|ipv6| fabric.address(host, link, *ipv6).is_some());
        let families: Vec<bool> = families.collect();
        self.server_addresses += count * families.len() as u64;
        if families.iter().any(|ipv6| fabric.aliases(host, link, *ipv6).is_empty()) {
            self.without_aliases.push(class.name.clone());
        }
    }

    fn cost(&self, return_path: ReturnPath, takes: &str) -> ReturnCost {
        let symmetric = return_path != ReturnPath::None;
        let one = 1.0 / self.gateways as f64;
        // A flow is hit in its one gateway, or in either of two.
        let twice = 2.0 * one - self.meet_ratio * one;
        ReturnCost {
            return_path,
            obstacle: None,
            other_gateway_ratio: if symmetric { 0.0 } else { 1.0 - self.meet_ratio },
            hit_ratio: if symmetric { one } else { twice },
            address_count: 0,
            rule_count: 0,
            client_route_count: 0,
            takes: takes.to_owned(),
        }
    }

    fn none(&self) -> ReturnCost {
        self.cost(ReturnPath::None, "nothing: both sides spread their flows")
    }

    fn alias(&self) -> ReturnCost {
        let gateways = self.gateways as u64;
        let mut price = self.cost(
            ReturnPath::Alias,
            "clients address a server by the address of the gateway they mean; flows that servers begin may return by another gateway",
        );
        price.address_count = self.server_addresses * gateways;
        price.rule_count = gateways * self.families();
        price.client_route_count = self.server_addresses * gateways;
        if self.servers == 0 {
            price.obstacle = Some("no class of role storage is on either network".to_owned());
        } else if !self.without_aliases.is_empty() {
            price.obstacle = Some(format!("{} has no alias-addresses", self.without_aliases.join(", ")));
        }
        price
    }

    fn families(&self) -> u64 {
        if self.servers == 0 { 1 } else { self.server_addresses.div_ceil(self.servers) }
    }

    fn connection_mark(&self) -> ReturnCost {
        let mut price = self.cost(
            ReturnPath::ConnectionMark,
            "connection tracking on the servers, an entry for each flow; flows that servers begin may return by another gateway",
        );
        price.rule_count = self.gateways as u64 * self.families();
        if self.servers == 0 {
            price.obstacle = Some("no class of role storage is on either network".to_owned());
        } else if !self.no_ethernet.is_empty() {
            price.obstacle = Some(format!(
                "{} is no Ethernet: packets do not show which gateway sent them",
                self.no_ethernet.join(", ")
            ));
        }
        price
    }

    fn equal_seed(&self) -> ReturnCost {
        let takes = if self.layer4 {
            "clients that bind their source ports, one seed and one order of gateways on all hosts, also while gateways come and go"
        } else {
            "one seed and one order of gateways on all hosts, also while gateways come and go; one gateway for each pair of hosts"
        };
        let mut price = self.cost(ReturnPath::EqualSeed, takes);
        if !self.old_kernels.is_empty() {
            price.obstacle = Some(format!(
                "{} has a kernel before {EQUAL_SEED_SINCE}, which brought the seed",
                self.old_kernels.join(", ")
            ));
        } else if self.has_ipv6 && !self.layer4 {
            let why = "IPv6 hashes the flow label without layer4, another one in each direction";
            price.obstacle = Some(why.to_owned());
        }
        price
    }

    fn recommend(&self, can: impl Fn(ReturnPath) -> bool) -> (ReturnPath, String) {
        if self.gateways == 1 {
            return (ReturnPath::None, "there is one gateway: every reply returns by it".to_owned());
        }
        if self.stateful.is_empty() {
            let why = format!(
                "no gateway keeps state, so nothing breaks when {:.0} % of the flows return by another gateway; the cost is that {:.0} % instead of {:.0} % of the flows are affected by one gateway failure",
                100.0 * (1.0 - self.meet_ratio),
                100.0 * self.none().hit_ratio,
                100.0 / self.gateways as f64,
            );
            return (ReturnPath::None, why);
        }
        let state = format!(
            "gateways of {} keep state and drop replies of flows they did not see begin",
            self.stateful.join(", ")
        );
        if can(ReturnPath::ConnectionMark) {
            let why = format!(
                "{state}; the servers' network is Ethernet, so they see which gateway a packet came by, and clients need nothing"
            );
            return (ReturnPath::ConnectionMark, why);
        }
        let obstacle = self.connection_mark().obstacle.unwrap_or_default();
        if can(ReturnPath::Alias) {
            return (
                ReturnPath::Alias,
                format!("{state}; {obstacle}, and the servers have an address for each gateway"),
            );
        }
        if can(ReturnPath::EqualSeed) {
            let why = format!(
                "{state}; {obstacle}, and there are no spare addresses: it holds for flows whose source port is bound"
            );
            return (ReturnPath::EqualSeed, why);
        }
        let why =
            format!("{state}, and nothing else can be had: {obstacle}; give the servers alias-addresses");
        (ReturnPath::None, why)
    }
}
