//! The paths that one host of a fabric watches: the gateways on each, remote hosts
//! to probe, and the probe interval.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use clearstream_route::fabric::{Fabric, HostId};
use clearstream_schema::{
    fabric::{HostRole, WatchSettings},
    prefix::Prefix,
    watch::{Family, NetworkPath},
};

use super::packet::fabric_number;

/// Maximum number of candidate targets per path.
const MOST_CANDIDATES: usize = 64;

/// A network path of one host.
#[derive(Debug, Clone)]
pub struct WatchedPath {
    /// Remote network and address family.
    pub id: NetworkPath,
    /// Local interface to the gateways.
    pub interface: String,
    /// Local address on that interface.
    pub address: IpAddr,
    /// The gateways, in the order of the next hops.
    pub gateways: Vec<WatchedGateway>,
    /// Prefixes of the remote network.
    pub remote_prefixes: Vec<Prefix>,
    /// Remote hosts to probe, in an order that differs from host to host.
    pub candidates: Vec<IpAddr>,
    /// Time between rounds that the load on the fabric allows.
    pub steady: Duration,
    /// MTU of its networks in the fabric, bytes of layer 3, whichever is less; absent where the fabric names none.
    pub mtu_bytes: Option<u32>,
}

/// A gateway of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedGateway {
    /// Name.
    pub name: String,
    /// Address on the local network.
    pub local_address: IpAddr,
    /// Address on the remote network, by which replies return.
    pub remote_address: IpAddr,
    /// Weight.
    pub weight: u16,
}

/// The paths of a host; none for a gateway and for a host on all networks.
pub fn watched_paths(fabric: &Fabric, host: HostId) -> Vec<WatchedPath> {
    let mut found: Vec<WatchedPath> = Vec::new();
    if fabric.class(host).role == HostRole::Gateway {
        return found;
    }
    for link in 0..fabric.class(host).links.len() {
        let local = fabric.link_network(host, link);
        for route in 0..fabric.file().routes.len() {
            let (_, networks) = fabric.route(route);
            let Some(end) = networks.iter().position(|network| *network == local) else { continue };
            let remote = networks[1 - end];
            if fabric.link_on(host, remote).is_some() {
                continue;
            }
            for ipv6 in [false, true] {
                if let Some(path) = watched_path(fabric, host, link, route, remote, ipv6)
                    && !found.iter().any(|other| other.id == path.id)
                {
                    found.push(path);
                }
            }
        }
    }
    found
}

fn watched_path(
    fabric: &Fabric,
    host: HostId,
    link: usize,
    route: usize,
    remote: usize,
    ipv6: bool,
) -> Option<WatchedPath> {
    let local = fabric.link_network(host, link);
    let address = fabric.address(host, link, ipv6)?;
    let at = |gateway: HostId, network| fabric.address(gateway, fabric.link_on(gateway, network)?, ipv6);
    let gateways: Vec<WatchedGateway> = fabric
        .route_gateways(route)
        .filter_map(|gateway| {
            Some(WatchedGateway {
                name: gateway.name.clone(),
                local_address: at(gateway.host, local)?,
                remote_address: at(gateway.host, remote)?,
                weight: gateway.weight,
            })
        })
        .collect();
    let prefixes = fabric.network(remote).prefixes.iter().copied();
    let remote_prefixes: Vec<Prefix> = prefixes.filter(|prefix| prefix.address.is_ipv6() == ipv6).collect();
    let candidates = candidates(fabric, host, remote, ipv6);
    if gateways.is_empty() || remote_prefixes.is_empty() || candidates.is_empty() {
        return None;
    }
    let both = |network: usize| {
        let count =
            |wanted| fabric.network(network).prefixes.iter().any(|prefix| prefix.address.is_ipv6() == wanted);
        count(false) && count(true)
    };
    let load = ProbeLoad {
        local_hosts: end_hosts(fabric, local),
        remote_hosts: end_hosts(fabric, remote),
        gateways: gateways.len(),
        families: if both(local) && both(remote) { 2 } else { 1 },
    };
    Some(WatchedPath {
        id: NetworkPath {
            network: fabric.network(remote).name.clone(),
            family: if ipv6 { Family::Ipv6 } else { Family::Ipv4 },
        },
        interface: fabric.class(host).links[link].interface.clone(),
        address,
        gateways,
        remote_prefixes,
        candidates,
        steady: load.interval(&fabric.file().watch),
        mtu_bytes: [local, remote].into_iter().filter_map(|network| fabric.network(network).mtu).min(),
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

/// Remote hosts, evenly distributed over all of them. The host's name determines the
/// first one, so that every remote host is probed by equally many.
fn candidates(fabric: &Fabric, host: HostId, remote: usize, ipv6: bool) -> Vec<IpAddr> {
    let total = end_hosts(fabric, remote);
    if total == 0 {
        return Vec::new();
    }
    let count = total.min(MOST_CANDIDATES);
    let start = (fabric_number(&fabric.host_name(host)) % total as u64) as usize;
    let places: BTreeSet<usize> = (0..count).map(|index| (start + index * total / count) % total).collect();
    let mut found = Vec::with_capacity(count);
    let mut first = 0;
    for class in end_classes(fabric, remote) {
        let here = fabric.class_count(class);
        for place in places.range(first..first + here) {
            let other = HostId { class, index: place - first };
            let address = fabric.link_on(other, remote).and_then(|link| fabric.address(other, link, ipv6));
            found.extend(address.map(|address| (*place, address)));
        }
        first += here;
    }
    // Rotated so that the own start is first.
    let turn = found.iter().position(|(place, _)| *place >= start).unwrap_or(0);
    found.rotate_left(turn);
    found.into_iter().map(|(_, address)| address).collect()
}

/// Inputs of the probe rate limit.
#[derive(Debug, Clone, Copy)]
struct ProbeLoad {
    /// End hosts on the local network, all of which probe.
    local_hosts: usize,
    /// End hosts on the remote network.
    remote_hosts: usize,
    /// Gateways between them.
    gateways: usize,
    /// Address families that are probed.
    families: usize,
}

impl ProbeLoad {
    /// Interval between rounds that keeps the probes through one gateway, and those
    /// to one remote host, below the limit of the fabric:
    /// (local + remote hosts) / interval, and
    /// local hosts x gateways / remote hosts / interval, for each family.
    fn interval(&self, settings: &WatchSettings) -> Duration {
        let limit = f64::from(settings.probe_limit.max(1));
        let families = self.families.max(1) as f64;
        let (local, remote) = (self.local_hosts as f64, self.remote_hosts.max(1) as f64);
        let through_gateway = (local + remote) * families / limit;
        let to_target = local * self.gateways as f64 * families / (remote * limit);
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
        let small = ProbeLoad { local_hosts: 112, remote_hosts: 6, gateways: 6, families: 1 };
        assert_eq!(small.interval(&settings), Duration::from_millis(20));
        for load in [
            ProbeLoad { local_hosts: 10_000, remote_hosts: 128, gateways: 64, families: 1 },
            ProbeLoad { local_hosts: 128, remote_hosts: 10_000, gateways: 64, families: 2 },
            ProbeLoad { local_hosts: 4096, remote_hosts: 2, gateways: 6, families: 2 },
        ] {
            let per_second = load.families as f64 / load.interval(&settings).as_secs_f64();
            let (local, remote) = (load.local_hosts as f64, load.remote_hosts as f64);
            assert!((local + remote) * per_second <= 10_001.0, "{load:?}");
            assert!(local * load.gateways as f64 / remote * per_second <= 10_001.0, "{load:?}");
        }
    }
}
