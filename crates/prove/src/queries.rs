//! What kernels say of many flows that nobody opens: shares that chance hardly
//! touches.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
};

use clearstream_schema::fabric::ReturnPath;

use super::{
    calls::{Lookup, MOST_WIRE_LOOKUPS, WireProtocol},
    crossing::Crossing,
    flows::{FIRST_PORT, LAST_PORT},
    hosts::{Hosts, ProofError, refusal},
    shares::enough_flows,
};

/// Most lookups of one direction: two seconds of one core.
const MOST_LOOKUPS: u64 = 300_000;

/// Flows by gateway; absent where ports choose nothing, or a kernel cannot be
/// asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) forward: Option<Vec<u64>>,
    pub(super) reply: Option<Vec<u64>>,
}

/// Asks every client for its flows to every server and, where replies choose a
/// gateway of their own, every server for its replies. `listening` is the port
/// of each server.
pub(super) fn ask(
    hosts: &mut Hosts<'_>,
    crossing: &Crossing,
    listening: &[u16],
) -> Result<Asked, ProofError> {
    if !crossing.spreads_by_ports() {
        return Ok(Asked::default());
    }
    let forward = counted(hosts, crossing, listening, false)?;
    let reply = match crossing.return_path {
        ReturnPath::None => counted(hosts, crossing, listening, true)?,
        // Otherwise replies follow the requests and choose nothing.
        _ => None,
    };
    Ok(Asked { forward, reply })
}

/// Requests one direction, all hosts at the same time.
fn counted(
    hosts: &mut Hosts<'_>,
    crossing: &Crossing,
    listening: &[u16],
    replies: bool,
) -> Result<Option<Vec<u64>>, ProofError> {
    let ends = crossing.gateways.iter().map(|ends| if replies { ends.server_side } else { ends.client_side });
    let places: HashMap<IpAddr, usize> = ends.enumerate().map(|(place, address)| (address, place)).collect();
    let mut counts = vec![0; crossing.gateways.len()];
    for (_, answers) in hosts.call_all(requests(crossing, listening, replies)) {
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => return refusal(error).map(|_| None),
        };
        for answer in answers {
            for via in (0..answer.choices.len()).filter_map(|flow| answer.gateway(flow)) {
                if let Some(place) = places.get(&via) {
                    counts[*place] += 1;
                }
            }
        }
    }
    Ok(Some(counts))
}

/// As many flows of each pair as chance requests, from consecutive ports.
fn requests(crossing: &Crossing, listening: &[u16], replies: bool) -> BTreeMap<String, Vec<Lookup>> {
    let pairs = (crossing.clients.len() * crossing.servers.len()).max(1) as u64;
    let all = enough_flows(&crossing.expected_ratios()).min(MOST_LOOKUPS);
    let each = usize::try_from(all.div_ceil(pairs)).unwrap_or(usize::MAX).min(MOST_WIRE_LOOKUPS);
    let mut requests: BTreeMap<String, Vec<Lookup>> = BTreeMap::new();
    for client in &crossing.clients {
        for (server, port) in crossing.servers.iter().zip(listening) {
            let first = rand::random_range(FIRST_PORT..=LAST_PORT);
            let own = (FIRST_PORT..=LAST_PORT).cycle().skip(usize::from(first - FIRST_PORT)).take(each);
            let (from, to) = if replies { (server, client) } else { (client, server) };
            let lookup = Lookup {
                source: from.address,
                destination: to.address,
                protocol: WireProtocol::Tcp,
                mark: None,
                ports: own.map(|own| if replies { (*port, own) } else { (own, *port) }).collect(),
            };
            requests.entry(from.host.clone()).or_default().push(lookup);
        }
    }
    requests
}
