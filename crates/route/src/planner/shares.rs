//! Simulated load of the gateways: a population of flows, hashed as the kernel
//! does.

use clearstream_routing::multipath::{Buckets, FlowKey, HashKey, choose, multipath_hash, thresholds};
use clearstream_schema::{
    fabric::{Multipath, ReturnPath},
    route_plan::{GatewayShare, GatewayShares},
};

use super::{
    Hop, Planner, Route,
    pairs::{Pair, Pairs},
};
use crate::fabric::HostId;

/// TCP.
const PROTOCOL: u8 = 6;
/// First port that a client may get (ip-sysctl, `ip_local_port_range`).
const FIRST_PORT: u16 = 32_768;
/// Ports that a client may get, by default.
const PORT_COUNT: u64 = 28_232;

/// Flows to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Population {
    /// Flows of each pair of a client and a server.
    pub flows_per_pair: u32,
    /// Port of the servers.
    pub port: u16,
    /// Maximum number of flows; of more pairs, evenly spaced ones are used.
    pub most_flows: u64,
}

impl Default for Population {
    fn default() -> Self {
        // 1191 is the port of the Spectrum Scale daemon (mmfsd).
        Self { flows_per_pair: 8, port: 1191, most_flows: 100_000 }
    }
}

/// Simulates the gateways that a population of flows takes.
pub(super) fn simulate(planner: &Planner<'_>, index: usize, population: &Population) -> GatewayShares {
    let selection = Selection::of(planner, index);
    let pairs = Pairs::of(planner, index);
    let mut counts = vec![[0_u64; 2]; selection.hops.len()];
    let (mut flows, mut walked, mut elsewhere) = (0_u64, 0_u64, 0_u64);
    let wanted = (population.most_flows / u64::from(population.flows_per_pair.max(1))).max(1);
    let step = pairs.count().div_ceil(wanted).max(1);
    for number in (0..pairs.count()).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
        let Some((pair, flow)) = pairs.nth(number).and_then(|pair| Some((pair, selection.flow(&pair)?)))
        else {
            continue;
        };
        walked += 1;
        for count in 0..population.flows_per_pair {
            let port = FIRST_PORT + (drawn(number, u64::from(count)) % PORT_COUNT) as u16;
            let flow = FlowKey { source_port: port, destination_port: population.port, ..flow };
            let (forward, back) = selection.both(&pair, &flow);
            counts[forward][0] += 1;
            counts[back][1] += 1;
            flows += 1;
            elsewhere += u64::from(forward != back);
        }
    }
    let ratio = |count: u64| if flows == 0 { 0.0 } else { count as f64 / flows as f64 };
    let total: f64 = selection.hops.iter().map(|hop| f64::from(hop.weight)).sum();
    let share = |(hop, counts): (&Hop, &[u64; 2])| GatewayShare {
        name: planner.fabric.gateways()[hop.gateway].name.clone(),
        expected_ratio: f64::from(hop.weight) / total,
        forward_ratio: ratio(counts[0]),
        return_ratio: ratio(counts[1]),
    };
    GatewayShares {
        flow_count: flows,
        pair_count: walked,
        seed_is_known: selection.route.seed.is_some(),
        gateways: selection.hops.iter().zip(&counts).map(share).collect(),
        other_gateway_ratio: ratio(elsewhere),
    }
}

/// Next hop selection by the hosts of a route.
struct Selection<'p, 'a> {
    planner: &'p Planner<'a>,
    index: usize,
    route: &'p Route,
    ipv6: bool,
    hops: &'p [Hop],
    thresholds: Vec<u32>,
    buckets: Buckets,
}

impl<'p, 'a> Selection<'p, 'a> {
    fn of(planner: &'p Planner<'a>, index: usize) -> Self {
        let route = &planner.routes[index];
        // IPv6 only where gateways carry nothing else.
        let ipv6 = route.hops[0][0].is_empty();
        let hops = route.hops[usize::from(ipv6)][0].as_slice();
        let weights: Vec<u16> = hops.iter().map(|hop| hop.weight).collect();
        Self {
            planner,
            index,
            route,
            ipv6,
            hops,
            thresholds: thresholds(&weights),
            buckets: Buckets::new(planner.bucket_count(index), &weights),
        }
    }

    /// A flow of a pair, without ports.
    fn flow(&self, pair: &Pair) -> Option<FlowKey> {
        let address = |host: HostId, end: usize| {
            let link = self.planner.fabric.link_on(host, self.route.networks[end])?;
            self.planner.fabric.address(host, link, self.ipv6)
        };
        Some(FlowKey {
            source: address(pair.client, pair.client_end)?,
            destination: address(pair.server, 1 - pair.client_end)?,
            protocol: PROTOCOL,
            source_port: 0,
            destination_port: 0,
        })
    }

    /// Gateways of a flow: of the request and of the reply.
    fn both(&self, pair: &Pair, flow: &FlowKey) -> (usize, usize) {
        let forward = match self.route.return_path() {
            // Models a client that uses the server's addresses evenly.
            ReturnPath::Alias => choose(
                &self.thresholds,
                (drawn(u64::from(flow.source_port), pair.client.index as u64) >> 33) as u32,
            ),
            _ => self.one(pair.client, flow),
        };
        let back = match self.route.return_path() {
            ReturnPath::Alias | ReturnPath::ConnectionMark => forward,
            _ => self.one(pair.server, &flow.reversed()),
        };
        (forward, back)
    }

    fn one(&self, host: HostId, flow: &FlowKey) -> usize {
        let key = match self.route.seed {
            Some(seed) => HashKey::of_seed(seed),
            None => {
                let (class, number) = (host.class as u64, host.index as u64);
                HashKey::from_raw([drawn(class, number), drawn(number, !class)])
            }
        };
        let policy = self.planner.fabric.route(self.index).0.hash_policy;
        let hash = multipath_hash(flow, policy, key);
        if self.planner.multipath(self.index, host.class).0 != Multipath::Resilient {
            return choose(&self.thresholds, hash);
        }
        let bucket = hash as usize % self.buckets.owners.len().max(1);
        self.buckets.owners.get(bucket).copied().flatten().unwrap_or(0)
    }
}

/// A number drawn from two others: the same every time (SplitMix64, Steele and
/// others 2014).
fn drawn(one: u64, other: u64) -> u64 {
    let mut value = one
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(other.wrapping_mul(0xd1b5_4a32_d192_ed03))
        .wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
