//! Unauthenticated connections: a bounded number, in which a flood evicts its own connections rather than a
//! controller's.
//!
//! A handshake takes two round trips, so over a long path evicting the oldest would lock a controller out
//! under a flood of some hundred connections a second. Here the victim is chosen at random (as sshd's
//! MaxStartups does, sshd_config(5)), among those of the source that has the most: a flood from few addresses
//! evicts its own, one from many evicts each connection with a probability of one in [`CONNECTIONS`] per new
//! connection.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Maximum unauthenticated connections.
pub(super) const CONNECTIONS: usize = 256;

/// Maximum entries whose thread has not ended yet, evicted ones included: beyond this the machine cannot keep
/// up, and new connections are closed unread.
const THREADS: usize = 2 * CONNECTIONS;

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Stage {
    /// Unauthenticated until the handshake is done.
    Stranger,
    /// Paired; no longer evicted.
    Known,
    /// Evicted; its thread is about to notice.
    Evicted,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    socket: Arc<TcpStream>,
    stage: Stage,
}

/// Key of a source: an IPv4 address, or the /64 of an IPv6 one, within which a host chooses its addresses
/// freely (RFC 4291 section 2.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Source(u64);

impl Source {
    fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64),
        }
    }
}

/// Table of unauthenticated connections.
#[derive(Debug, Default)]
pub(super) struct PendingConnections {
    entries: Mutex<HashMap<u64, Entry>>,
    random: RandomState,
}

impl PendingConnections {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection, evicting another one when the table is full. False when it has to be closed at
    /// once.
    pub(super) fn enter(&self, number: u64, socket: Arc<TcpStream>, address: SocketAddr) -> bool {
        let mut entries = self.lock();
        if entries.len() >= THREADS {
            return false;
        }
        let strangers = entries.values().filter(|entry| entry.stage == Stage::Stranger).count();
        if strangers >= CONNECTIONS {
            evict(&mut entries, self.random.hash_one(number));
        }
        entries.insert(number, Entry { source: Source::of(address), socket, stage: Stage::Stranger });
        true
    }

    /// Evicts one connection, for instance when descriptors have run out.
    pub(super) fn evict_one(&self, number: u64) {
        evict(&mut self.lock(), self.random.hash_one(number));
    }

    /// Marks a connection as authenticated: it is no longer evicted, and closed only with the daemon. False
    /// when it was evicted before.
    pub(super) fn authenticate(&self, number: u64) -> bool {
        let mut entries = self.lock();
        match entries.get_mut(&number) {
            Some(entry) if entry.stage != Stage::Evicted => {
                entry.stage = Stage::Known;
                true
            }
            _ => false,
        }
    }

    pub(super) fn leave(&self, number: u64) {
        self.lock().remove(&number);
    }

    pub(super) fn close(&self) {
        for entry in self.lock().values() {
            // Already closed is fine.
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Closes one unauthenticated connection: at random among those of the source, or the sources, with the most
/// of them.
fn evict(entries: &mut HashMap<u64, Entry>, random: u64) {
    let mut counts: HashMap<Source, usize> = HashMap::new();
    for entry in entries.values().filter(|entry| entry.stage == Stage::Stranger) {
        *counts.entry(entry.source).or_default() += 1;
    }
    let Some(most) = counts.values().max().copied() else { return };
    let mut candidates: Vec<u64> = entries
        .iter()
        .filter(|(_, entry)| entry.stage == Stage::Stranger && counts.get(&entry.source) == Some(&most))
        .map(|(number, _)| *number)
        .collect();
    candidates.sort_unstable();
    let chosen = candidates[(random % candidates.len() as u64) as usize];
    if let Some(entry) = entries.get_mut(&chosen) {
        entry.stage = Stage::Evicted;
        // Already closed is fine.
        let _ = entry.socket.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    /// Connections to a listener that never accepts.
    struct Sockets(TcpListener);

    impl Sockets {
        fn new() -> Self {
            Self(TcpListener::bind("127.0.0.1:0").unwrap())
        }

        fn connect(&self) -> Arc<TcpStream> {
            let ours = TcpStream::connect(self.0.local_addr().unwrap()).unwrap();
            drop(self.0.accept().unwrap());
            Arc::new(ours)
        }
    }

    fn evicted(pending: &PendingConnections) -> Vec<u64> {
        let entries = pending.lock();
        entries.iter().filter(|(_, entry)| entry.stage == Stage::Evicted).map(|(number, _)| *number).collect()
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    #[test]
    fn flood_from_one_source_evicts_its_own() {
        let (pending, sockets) = (PendingConnections::default(), Sockets::new());
        let socket = sockets.connect();
        assert!(pending.enter(0, Arc::clone(&socket), address(1)));
        for number in 1..=3 * CONNECTIONS as u64 {
            pending.enter(number, Arc::clone(&socket), address(2));
            for gone in evicted(&pending) {
                assert_ne!(gone, 0, "the only connection of its source");
                pending.leave(gone);
            }
        }
        assert!(pending.authenticate(0));
        assert_eq!(pending.lock().len(), CONNECTIONS);
    }

    #[test]
    fn one_of_many_sources_survives_a_round_trip_of_a_flood() {
        // 600 new connections a second, each from its own source: 30 within the 50 ms
        // that a handshake takes over a path of 17 ms. (255/256)^30 = 0.89.
        let (sockets, mut stayed) = (Sockets::new(), 0);
        let socket = sockets.connect();
        for _ in 0..100 {
            let pending = PendingConnections::default();
            for number in 0..CONNECTIONS as u64 {
                pending.enter(number, Arc::clone(&socket), SocketAddr::from(([10, 0, 1, number as u8], 1)));
            }
            pending.enter(1000, Arc::clone(&socket), address(1));
            for number in 0..30 {
                pending.enter(
                    2000 + number,
                    Arc::clone(&socket),
                    SocketAddr::from(([10, 0, 2, number as u8], 1)),
                );
            }
            stayed += u32::from(pending.authenticate(1000));
        }
        // Four standard deviations below the 89 of 100 that are expected.
        assert!(stayed >= 76, "{stayed} of 100");
    }

    #[test]
    fn evicted_connection_is_closed_and_not_authenticated() {
        let (pending, sockets) = (PendingConnections::default(), Sockets::new());
        let socket = sockets.connect();
        assert!(pending.enter(1, Arc::clone(&socket), address(1)));
        pending.evict_one(7);
        assert_eq!(evicted(&pending), [1]);
        assert!(!pending.authenticate(1));
        assert_eq!((&*socket).read(&mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:9"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:1"));
    }
}
