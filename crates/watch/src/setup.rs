//! From a fabric to what one host watches: its ways, the gateways on each, far
//! hosts to probe, and how often.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use clearstream_route::fabric::{Fabric, HostId};
use clearstream_schema::{
    fabric::{HostRole, WatchSettings},
    prefix::Prefix,
    watch::{Family, NetworkPath},
};

use super::packet::fabric_number;

/// Far hosts that are kept ready as targets.
const MOST_CANDIDATES: usize = 64;

/// A way as one host has it.
#[derive(Debug, Clone)]
pub struct WatchedWay {
    /// Where to.
    pub way: NetworkPath,
    /// Own interface to the gateways.
    pub interface: String,
    /// Own address there.
    pub address: IpAddr,
    /// The gateways, in the order of the next hops.
    pub gateways: Vec<WatchedGateway>,
    /// Networks of the far hosts.
    pub far: Vec<Prefix>,
    /// Far hosts to probe, in an order that differs from host to host.
    pub candidates: Vec<IpAddr>,
    /// Time between rounds while nothing fails.
    pub steady: Duration,
}

/// A gateway of a way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedGateway {
    /// Name.
    pub name: String,
    /// Address on this side.
    pub near: IpAddr,
    /// Address on the remote side, by which answers come back.
    pub far: IpAddr,
    /// Weight.
    pub weight: u16,
}

/// The ways of a host; none for a gateway, and for a host that is on all networks.
pub fn ways(fabric: &Fabric, host: HostId) -> Vec<WatchedWay> {
    let mut found: Vec<WatchedWay> = Vec::new();
    if fabric.class(host).role == HostRole::Gateway {
        return found;
    }
    for link in 0..fabric.class(host).links.len() {
        let near = fabric.link_network(host, link);
        for route in 0..fabric.file().routes.len() {
            let (_, networks) = fabric.route(route);
            let Some(end) = networks.iter().position(|network| *network == near) else { continue };
            let far = networks[1 - end];
            if fabric.link_on(host, far).is_some() {
                continue;
            }
            for ipv6 in [false, true] {
                if let Some(way) = read_way(fabric, host, link, route, far, ipv6)
                    && !found.iter().any(|other| other.way == way.way)
                {
                    found.push(way);
                }
            }
        }
    }
    found
}

fn read_way(
    fabric: &Fabric,
    host: HostId,
    link: usize,
    route: usize,
    far: usize,
    ipv6: bool,
) -> Option<WatchedWay> {
    let near = fabric.link_network(host, link);
    let address = fabric.address(host, link, ipv6)?;
    let at = |gateway: HostId, network| fabric.address(gateway, fabric.link_on(gateway, network)?, ipv6);
    let gateways: Vec<WatchedGateway> = fabric
        .route_gateways(route)
        .filter_map(|gateway| {
            Some(WatchedGateway {
                name: gateway.name.clone(),
                near: at(gateway.host, near)?,
                far: at(gateway.host, far)?,
                weight: gateway.weight,
            })
        })
        .collect();
    let prefixes = fabric.network(far).prefixes.iter().copied();
    let far_prefixes: Vec<Prefix> = prefixes.filter(|prefix| prefix.address.is_ipv6() == ipv6).collect();
    let candidates = candidates(fabric, host, far, ipv6);
    if gateways.is_empty() || far_prefixes.is_empty() || candidates.is_empty() {
        return None;
    }
    let both = |network: usize| {
        let count =
            |wanted| fabric.network(network).prefixes.iter().any(|prefix| prefix.address.is_ipv6() == wanted);
        count(false) && count(true)
    };
    let load = ProbeLoad {
        near_hosts: end_hosts(fabric, near),
        far_hosts: end_hosts(fabric, far),
        gateways: gateways.len(),
        families: if both(near) && both(far) { 2 } else { 1 },
    };
    Some(WatchedWay {
        way: NetworkPath {
            network: fabric.network(far).name.clone(),
            family: if ipv6 { Family::Ipv6 } else { Family::Ipv4 },
        },
        interface: fabric.class(host).links[link].interface.clone(),
        address,
        gateways,
        far: far_prefixes,
        candidates,
        steady: load.interval(&fabric.file().watch),
    })
}

fn end_hosts(fabric: &Fabric, network: usize) -> usize {
    end_classes(fabric, network).map(|class| fabric.class_count(class)).sum()
}

/// Classes on a network that do not forward.
fn end_classes(fabric: &Fabric, network: usize) -> impl Iterator<Item = usize> + '_ {
    let forwards = |class: usize| fabric.file().classes[class].role == HostRole::Gateway;
    fabric.classes_on(network).filter(move |class| !forwards(*class))
}

/// Far hosts, spread over all of them; the name of the host decides where it
/// begins, so that every far host is asked by as many.
fn candidates(fabric: &Fabric, host: HostId, far: usize, ipv6: bool) -> Vec<IpAddr> {
    let total = end_hosts(fabric, far);
    if total == 0 {
        return Vec::new();
    }
    let count = total.min(MOST_CANDIDATES);
    let start = (fabric_number(&fabric.host_name(host)) % total as u64) as usize;
    let places: BTreeSet<usize> = (0..count).map(|index| (start + index * total / count) % total).collect();
    let mut found = Vec::with_capacity(count);
    let mut first = 0;
    for class in end_classes(fabric, far) {
        let here = fabric.class_count(class);
        for place in places.range(first..first + here) {
            let other = HostId { class, index: place - first };
            let address = fabric.link_on(other, far).and_then(|link| fabric.address(other, link, ipv6));
            found.extend(address.map(|address| (*place, address)));
        }
        first += here;
    }
    // From the own start on, around the end.
    let turn = found.iter().position(|(place, _)| *place >= start).unwrap_or(0);
    found.rotate_left(turn);
    found.into_iter().map(|(_, address)| address).collect()
}

/// What decides how often may be probed.
#[derive(Debug, Clone, Copy)]
struct ProbeLoad {
    /// End hosts on this side, all of which probe.
    near_hosts: usize,
    /// End hosts on the other side.
    far_hosts: usize,
    /// Gateways between them.
    gateways: usize,
    /// Families that are probed.
    families: usize,
}

impl ProbeLoad {
    /// Time between rounds that keeps the probes through one gateway, and those
    /// to one far host, below the limit of the fabric:
    /// (near + far hosts) / interval, and near hosts x gateways / far hosts / interval,
    /// for each family.
    fn interval(&self, settings: &WatchSettings) -> Duration {
        let limit = f64::from(settings.probe_limit.max(1));
        let families = self.families.max(1) as f64;
        let (near, far) = (self.near_hosts as f64, self.far_hosts.max(1) as f64);
        let through_gateway = (near + far) * families / limit;
        let to_target = near * self.gateways as f64 * families / (far * limit);
        let least = Duration::from_secs_f64(through_gateway.max(to_target));
        least.max(settings.interval.to_std())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_fabrics_probe_at_their_interval_and_large_ones_within_the_limit() {
        let settings = WatchSettings::default();
        let small = ProbeLoad { near_hosts: 112, far_hosts: 6, gateways: 6, families: 1 };
        assert_eq!(small.interval(&settings), Duration::from_millis(20));
        for load in [
            ProbeLoad { near_hosts: 10_000, far_hosts: 128, gateways: 64, families: 1 },
            ProbeLoad { near_hosts: 128, far_hosts: 10_000, gateways: 64, families: 2 },
            ProbeLoad { near_hosts: 4096, far_hosts: 2, gateways: 6, families: 2 },
        ] {
            let per_second = load.families as f64 / load.interval(&settings).as_secs_f64();
            let (near, far) = (load.near_hosts as f64, load.far_hosts as f64);
            assert!((near + far) * per_second <= 10_001.0, "{load:?}");
            assert!(near * load.gateways as f64 / far * per_second <= 10_001.0, "{load:?}");
        }
    }
}
