//! Expected load of the gateways from route lookups for many flows that are not opened:
//! the sample is large enough that chance hardly affects it.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use clearstream_schema::fabric::ReturnPath;

use super::{
    calls::{Lookup, MOST_WIRE_LOOKUPS, WireProtocol},
    flows::{FIRST_PORT, LAST_PORT},
    hosts::{Hosts, ProofError, refusal},
    shares::enough_flows,
    tested_route::TestedRoute,
};

/// Maximum number of lookups of one direction: two seconds of one core.
const MOST_LOOKUPS: u64 = 300_000;

/// Lookups by gateway; absent where ports do not affect the choice, or a kernel
/// cannot be queried.
#[derive(Debug, Default)]
pub(super) struct LookupCounts {
    pub(super) forward: Option<Vec<u64>>,
    pub(super) reply: Option<Vec<u64>>,
}

/// Queries every client for its flows to every server and, where the route of replies
/// is chosen independently, every server for its replies. `listening` is the port of
/// each server.
pub(super) fn count(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    listening: &[u16],
) -> Result<LookupCounts, ProofError> {
    if !route.spreads_by_ports() {
        return Ok(LookupCounts::default());
    }
    let forward = count_direction(hosts, route, listening, false)?;
    let reply = match route.return_path {
        ReturnPath::None => count_direction(hosts, route, listening, true)?,
        // Otherwise replies follow the requests.
        _ => None,
    };
    Ok(LookupCounts { forward, reply })
}

/// Queries one direction, all hosts in parallel.
fn count_direction(
    hosts: &mut Hosts<'_>,
    route: &TestedRoute,
    listening: &[u16],
    replies: bool,
) -> Result<Option<Vec<u64>>, ProofError> {
    let ends = route.gateways.iter().map(|ends| if replies { ends.server_side } else { ends.client_side });
    let places: HashMap<IpAddr, usize> = ends.enumerate().map(|(place, address)| (address, place)).collect();
    let mut counts = vec![0; route.gateways.len()];
    for (_, results) in hosts.call_all(requests(route, listening, replies)) {
        let results = match results {
            Ok(results) => results,
            Err(error) => return refusal(error).map(|_| None),
        };
        for result in results {
            for via in (0..result.choices.len()).filter_map(|flow| result.gateway(flow)) {
                if let Some(place) = places.get(&via) {
                    counts[*place] += 1;
                }
            }
        }
    }
    Ok(Some(counts))
}

/// As many flows of each pair as the test needs, from consecutive ports.
fn requests(route: &TestedRoute, listening: &[u16], replies: bool) -> BTreeMap<String, Vec<Lookup>> {
    let pairs = (route.clients.len() * route.servers.len()).max(1) as u64;
    let all = enough_flows(&route.expected_ratios()).min(MOST_LOOKUPS);
    let each = usize::try_from(all.div_ceil(pairs)).unwrap_or(usize::MAX).min(MOST_WIRE_LOOKUPS);
    let mut requests: BTreeMap<String, Vec<Lookup>> = BTreeMap::new();
    for client in &route.clients {
        for (server, port) in route.servers.iter().zip(listening) {
            let first = rand::random_range(FIRST_PORT..=LAST_PORT);
            let own = (FIRST_PORT..=LAST_PORT).cycle().skip(usize::from(first - FIRST_PORT)).take(each);
            let (from, to) = if replies { (server, client) } else { (client, server) };
            let lookup = Lookup {
                source: from.address,
                destination: to.address,
                protocol: WireProtocol::Tcp,
                mark: None,
                ports: own.map(|own| if replies { (*port, own) } else { (own, *port) }).collect(),
                input: None,
                explain: false,
            };
            requests.entry(from.host.clone()).or_default().push(lookup);
        }
    }
    requests
}
