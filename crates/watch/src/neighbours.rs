//! Where the gateways are on their links, as the kernel knows it.

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_netlink::{NetlinkError, RouteSocket};
use clearstream_schema::watch::NeighbourState;

use super::{setup::WatchedWay, sockets::LinkPlace};

/// The gateways of all ways as neighbours.
#[derive(Debug)]
pub(super) struct Neighbours {
    ways: Vec<NearWay>,
}

#[derive(Debug)]
struct NearWay {
    interface: String,
    running: bool,
    gateways: Vec<Near>,
}

#[derive(Debug)]
struct Near {
    address: IpAddr,
    place: LinkPlace,
    word: NeighbourState,
}

impl Neighbours {
    /// Nobody is known yet.
    pub(super) fn new(ways: &[WatchedWay]) -> Self {
        let near = |address| Near { address, place: LinkPlace::default(), word: NeighbourState::Unknown };
        let ways = ways.iter().map(|way| NearWay {
            interface: way.interface.clone(),
            running: true,
            gateways: way.gateways.iter().map(|gateway| near(gateway.near)).collect(),
        });
        Self { ways: ways.collect() }
    }

    /// Has the kernel confirm every gateway, and reads what it knows. A link
    /// address that was known once is kept: a gateway that is silent for a
    /// while is most often still there.
    pub(super) fn look(&mut self, socket: &mut RouteSocket) -> Result<(), NetlinkError> {
        let carriers = socket.carriers()?;
        for way in &mut self.ways {
            let carrier = carriers.get(&way.interface);
            way.running = carrier.is_some_and(|carrier| carrier.running);
            let Some(carrier) = carrier.filter(|carrier| carrier.running) else { continue };
            for near in &mut way.gateways {
                near.place.interface_index = carrier.index;
                socket.resolve_neighbour(carrier.index, near.address)?;
            }
        }
        let found = socket.neighbours()?;
        let found: BTreeMap<(&str, IpAddr), _> =
            found.iter().map(|entry| ((entry.interface.as_str(), entry.address), entry)).collect();
        for way in &mut self.ways {
            for near in &mut way.gateways {
                let entry = found.get(&(way.interface.as_str(), near.address));
                near.word = match entry {
                    Some(entry) if entry.failed => NeighbourState::Failed,
                    Some(entry) if entry.link_address.is_some() => NeighbourState::Known,
                    _ => NeighbourState::Unknown,
                };
                let octets = entry.and_then(|entry| octets(entry.link_address.as_deref()?));
                if let Some(octets) = octets {
                    near.place.link_address = octets;
                }
            }
        }
        Ok(())
    }

    /// Whether every gateway was found at some time, or is known not to answer.
    pub(super) fn all_known(&self) -> bool {
        self.ways
            .iter()
            .flat_map(|way| &way.gateways)
            .all(|near| !near.place.link_address.is_empty() || near.word == NeighbourState::Failed)
    }

    /// Where a gateway is; absent while that is not known.
    pub(super) fn place(&self, way: usize, gateway: usize) -> Option<&LinkPlace> {
        let place = &self.ways.get(way)?.gateways.get(gateway)?.place;
        (!place.link_address.is_empty()).then_some(place)
    }

    /// What the kernel knows of a gateway.
    pub(super) fn word(&self, way: usize, gateway: usize) -> NeighbourState {
        self.ways[way].gateways[gateway].word
    }

    /// Whether the interface to the gateways of a way carries packets.
    pub(super) fn running(&self, way: usize) -> bool {
        self.ways[way].running
    }
}

/// `02:00:00:00:00:01` as octets.
fn octets(text: &str) -> Option<Vec<u8>> {
    text.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect()
}
