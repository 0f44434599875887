//! Connections that have not yet shown who they are: a bounded number, in
//! which a flood displaces itself and not a controller.
//!
//! A handshake takes two round trips, so over a long path "the oldest gives
//! way" locks a controller out under a flood of some hundred connections a
//! second. Here the one that gives way is chosen at random (as sshd's
//! MaxStartups does, sshd_config(5)), among those of the source that has the
//! most: a flood from few addresses displaces its own, one from many displaces
//! each connection with a probability of one in [`CONNECTIONS`] per newcomer.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Connections on their way in at one time.
pub(super) const CONNECTIONS: usize = 256;

/// Entries whose thread has not ended yet, evicted ones included: beyond this
/// the machine cannot keep up, and newcomers are closed unseen.
const THREADS: usize = 2 * CONNECTIONS;

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Stage {
    /// A stranger until the handshake is done.
    Stranger,
    /// Paired; no longer displaced.
    Known,
    /// Displaced; its thread is about to notice.
    Evicted,
}

#[derive(Debug)]
struct Entry {
    source: Source,
    socket: Arc<TcpStream>,
    stage: Stage,
}

/// What counts as one source: an IPv4 address, or the /64 of an IPv6 one,
/// within which a host chooses its addresses freely (RFC 4291 section 2.5.1).
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

/// Connections on their way in.
#[derive(Debug, Default)]
pub(super) struct Doorway {
    entries: Mutex<HashMap<u64, Entry>>,
    random: RandomState,
}

impl Doorway {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a connection, displacing another when there are too many.
    /// False when it has to be closed at once.
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

    /// Displaces one connection, for instance when descriptors have run out.
    pub(super) fn evict_one(&self, number: u64) {
        evict(&mut self.lock(), self.random.hash_one(number));
    }

    /// The connection has shown who it is: it is no longer displaced, and
    /// closed only with the daemon. False when it was displaced before.
    pub(super) fn recognise(&self, number: u64) -> bool {
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
            // Closed already is as good.
            let _ = entry.socket.shutdown(Shutdown::Both);
        }
    }
}

/// Closes one of the strangers: at random among those of the source, or the
/// sources, with the most of them.
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
        // Closed already is as good.
        let _ = entry.socket.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, net::TcpListener};

    use super::*;

    /// Connections to a listener, without anybody who accepts them.
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

    fn evicted(doorway: &Doorway) -> Vec<u64> {
        let entries = doorway.lock();
        entries.iter().filter(|(_, entry)| entry.stage == Stage::Evicted).map(|(number, _)| *number).collect()
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 1))
    }

    #[test]
    fn flood_from_one_source_displaces_its_own() {
        let (doorway, sockets) = (Doorway::default(), Sockets::new());
        let socket = sockets.connect();
        assert!(doorway.enter(0, Arc::clone(&socket), address(1)));
        for number in 1..=3 * CONNECTIONS as u64 {
            doorway.enter(number, Arc::clone(&socket), address(2));
            for gone in evicted(&doorway) {
                assert_ne!(gone, 0, "the only connection of its source");
                doorway.leave(gone);
            }
        }
        assert!(doorway.recognise(0));
        assert_eq!(doorway.lock().len(), CONNECTIONS);
    }

    #[test]
    fn one_of_many_sources_outlives_a_round_trip_of_a_flood() {
        // 600 newcomers a second, each from its own source: 30 within the 50 ms
        // that a handshake takes over a path of 17 ms. (255/256)^30 = 0.89.
        let (sockets, mut stayed) = (Sockets::new(), 0);
        let socket = sockets.connect();
        for _ in 0..100 {
            let doorway = Doorway::default();
            for number in 0..CONNECTIONS as u64 {
                doorway.enter(number, Arc::clone(&socket), SocketAddr::from(([10, 0, 1, number as u8], 1)));
            }
            doorway.enter(1000, Arc::clone(&socket), address(1));
            for number in 0..30 {
                doorway.enter(
                    2000 + number,
                    Arc::clone(&socket),
                    SocketAddr::from(([10, 0, 2, number as u8], 1)),
                );
            }
            stayed += u32::from(doorway.recognise(1000));
        }
        // Four standard deviations below the 89 of 100 that are expected.
        assert!(stayed >= 76, "{stayed} of 100");
    }

    #[test]
    fn displaced_connection_is_closed_and_no_longer_recognised() {
        let (doorway, sockets) = (Doorway::default(), Sockets::new());
        let socket = sockets.connect();
        assert!(doorway.enter(1, Arc::clone(&socket), address(1)));
        doorway.evict_one(7);
        assert_eq!(evicted(&doorway), [1]);
        assert!(!doorway.recognise(1));
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
