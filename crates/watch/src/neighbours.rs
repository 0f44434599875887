//! Link addresses of the gateways, from the kernel's neighbour table.

use std::{collections::BTreeMap, net::IpAddr};

use clearstream_netlink::{NeighbourChange, NetlinkError, RouteSocket};
use clearstream_schema::watch::NeighbourState;

use super::{setup::WatchedPath, sockets::LinkPlace};

/// The gateways of all paths as neighbours.
#[derive(Debug)]
pub(super) struct Neighbours {
    paths: Vec<PathNeighbours>,
}

#[derive(Debug)]
struct PathNeighbours {
    interface: String,
    running: bool,
    mtu_bytes: Option<u32>,
    gateways: Vec<Neighbour>,
}

#[derive(Debug)]
struct Neighbour {
    address: IpAddr,
    place: LinkPlace,
    state: NeighbourState,
}

impl Neighbours {
    /// All states are unknown at first.
    pub(super) fn new(paths: &[WatchedPath]) -> Self {
        let unknown =
            |address| Neighbour { address, place: LinkPlace::default(), state: NeighbourState::Unknown };
        let paths = paths.iter().map(|path| PathNeighbours {
            interface: path.interface.clone(),
            running: true,
            mtu_bytes: None,
            gateways: path.gateways.iter().map(|gateway| unknown(gateway.local_address)).collect(),
        });
        Self { paths: paths.collect() }
    }

    /// Reads the neighbour table, and makes the kernel confirm every gateway but those whose entry is
    /// [fixed](clearstream_netlink::Neighbour::is_fixed): such an entry is of whoever set it. A link address that was
    /// once known is kept: a gateway that is silent for a while is usually still there.
    pub(super) fn update(&mut self, socket: &mut RouteSocket) -> Result<(), NetlinkError> {
        let carriers = socket.carriers()?;
        let found = socket.neighbours()?;
        let found: BTreeMap<(&str, IpAddr), _> =
            found.iter().map(|entry| ((entry.interface.as_str(), entry.address), entry)).collect();
        for path in &mut self.paths {
            let carrier = carriers.get(&path.interface);
            path.running = carrier.is_some_and(|carrier| carrier.running);
            path.mtu_bytes = carrier.map(|carrier| carrier.mtu_bytes);
            for neighbour in &mut path.gateways {
                let entry = found.get(&(path.interface.as_str(), neighbour.address));
                neighbour.note(entry.copied());
                let Some(carrier) = carrier.filter(|carrier| carrier.running) else { continue };
                neighbour.place.interface_index = carrier.index;
                if entry.is_none_or(|entry| !entry.is_fixed) {
                    socket.resolve_neighbour(carrier.index, neighbour.address, entry.is_some())?;
                }
            }
        }
        Ok(())
    }

    /// Notes what the kernel says of its neighbour table: a gateway's address may be another host's from now on. Returns
    /// the places (path, gateway) of those concerned.
    pub(super) fn told(&mut self, changes: &[NeighbourChange]) -> Vec<(usize, usize)> {
        let mut concerned = Vec::new();
        for change in changes {
            for (index, path) in self.paths.iter_mut().enumerate() {
                let is_here = |neighbour: &Neighbour| {
                    neighbour.address == change.neighbour.address
                        && neighbour.place.interface_index == change.interface_index
                };
                let Some(gateway) = path.gateways.iter().position(is_here) else { continue };
                path.gateways[gateway].note(Some(&change.neighbour).filter(|_| change.is_there));
                concerned.push((index, gateway));
            }
        }
        concerned
    }

    /// Whether every gateway was resolved at some time, or its resolution failed.
    pub(super) fn all_known(&self) -> bool {
        self.paths.iter().flat_map(|path| &path.gateways).all(|neighbour| {
            !neighbour.place.link_address.is_empty() || neighbour.state == NeighbourState::Failed
        })
    }

    /// Interface and link address of a gateway; absent while unknown.
    pub(super) fn place(&self, path: usize, gateway: usize) -> Option<&LinkPlace> {
        let place = &self.paths.get(path)?.gateways.get(gateway)?.place;
        (!place.link_address.is_empty()).then_some(place)
    }

    /// State of a gateway.
    pub(super) fn state(&self, path: usize, gateway: usize) -> NeighbourState {
        self.paths[path].gateways[gateway].state
    }

    /// MTU of the interface to the gateways of a path; absent while unknown.
    pub(super) fn mtu_bytes(&self, path: usize) -> Option<u32> {
        self.paths[path].mtu_bytes
    }

    /// Whether the interface to the gateways of a path carries packets.
    pub(super) fn running(&self, path: usize) -> bool {
        self.paths[path].running
    }
}

impl Neighbour {
    fn note(&mut self, entry: Option<&clearstream_netlink::Neighbour>) {
        self.state = match entry {
            Some(entry) if entry.failed => NeighbourState::Failed,
            Some(entry) if entry.link_address.is_some() => NeighbourState::Known,
            _ => NeighbourState::Unknown,
        };
        let octets = entry.and_then(|entry| octets(entry.link_address.as_deref()?));
        if let Some(octets) = octets {
            self.place.link_address = octets;
        }
    }
}

/// `02:00:00:00:00:01` as octets.
fn octets(text: &str) -> Option<Vec<u8>> {
    text.split(':').map(|octet| u8::from_str_radix(octet, 16).ok()).collect()
}
