//! A key-value store with a passive server: clients access its memory by RDMA
//! Read, Write and atomics.
//!
//! ```text
//! key_value serve 127.0.0.1:7175
//! key_value 127.0.0.1:7175 put colour blue
//! key_value 127.0.0.1:7175 get colour
//! key_value 127.0.0.1:7175 add visits 1
//! key_value                                 both ends here, a few clients at once
//! ```
//!
//! The server registers a table of slots for remote access and sends its
//! location in the private data of each connection that it accepts. Its RNIC
//! has offloaded progress, so that an engine serves the clients while the
//! program sleeps.
//!
//! - A lookup is one RDMA Read of a slot. A Read is not atomic: a slot that is
//!   being written may be read partly old and partly new, which its checksum
//!   detects, and the Read is retried.
//! - A slot is changed under its lock, which is its version: CompareSwap makes
//!   an even version odd, the entry is written, and another Write makes the
//!   version even again. Writes of a queue pair are placed in order (RFC 5040,
//!   section 5.5), so that no client sees the slot unlocked with the old entry.
//! - A counter is a slot whose value is eight bytes, changed by FetchAdd: no
//!   lock, no second round trip.
#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use clearstream_iwarp::{
    memory::MemoryError,
    stag::Stag,
    verbs::{
        AcceptOptions, Access, Buffer, CompletionQueue, ConnectError, ConnectOptions, Listener, Progress,
        ProtectionDomain, QueuePair, QueuePairOptions, Refused, Region, Rnic, RnicOptions, SendOptions,
        State, VerbsError,
    },
    work::{Remote, Status},
};

/// Number of slots.
const SLOTS: usize = 1024;
/// Bytes of a slot: version, counter, entry.
const SLOT_BYTES: usize = 128;
/// Offset of the entry in a slot: after its version and its counter.
const ENTRY_AT: usize = 16;
/// Bytes of an entry: checksum, lengths, key and value.
const ENTRY_BYTES: usize = SLOT_BYTES - ENTRY_AT;
/// Bytes for key and value together.
const TEXT_BYTES: usize = ENTRY_BYTES - 10;
/// Number of slots that a key may be in, starting with its own.
const PROBES: usize = 8;
/// Timeout of a request, and of a locked slot.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Errors of the store.
#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the server's private data has no table location: is it a key_value?")]
    NoTable,
    #[error("a request ended with {0:?}")]
    Failed(Status),
    #[error("no response within {} s", TIMEOUT.as_secs())]
    Silent,
    #[error("key and value have {0} bytes together, and {TEXT_BYTES} fit")]
    TooLong(usize),
    #[error("no room for another key here: {PROBES} slots are occupied")]
    Full,
    #[error("a slot stays locked: its client has probably died")]
    Locked,
    #[error("usage: key_value serve ADDRESS | key_value ADDRESS get KEY | put KEY VALUE | add KEY NUMBER")]
    Usage,
}

/// The server's table.
struct Server {
    table: Region,
    listener: Listener,
    domain: ProtectionDomain,
    completions: CompletionQueue,
    clients: Vec<QueuePair>,
}

impl Server {
    fn bind(address: SocketAddr) -> Result<Self, StoreError> {
        let progress = Progress::Offloaded { cores: Vec::new() };
        let rnic = Rnic::open(RnicOptions { progress, ..RnicOptions::default() })?;
        let domain = ProtectionDomain::new(&rnic);
        let shown = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        Ok(Self {
            table: Region::new(&domain, SLOTS * SLOT_BYTES, shown)?,
            listener: Listener::bind(&rnic, address)?,
            completions: CompletionQueue::new(&rnic, 64)?,
            domain,
            clients: Vec::new(),
        })
    }

    /// Accepts clients for a while. Their accesses to the table are served by
    /// the RNIC alone.
    fn accept_clients(&mut self, time: Duration) -> Result<(), StoreError> {
        if let Some(request) = self.listener.accept(Some(time))? {
            let pair = QueuePair::new(&self.domain, &QueuePairOptions::new(&self.completions))?;
            let private_data = encode(self.table.remote(0));
            pair.accept(request, &AcceptOptions { private_data, crc: true, ..AcceptOptions::default() })?;
            self.clients.push(pair);
        }
        self.clients.retain(|pair| matches!(pair.state(), State::Rts | State::Closing));
        Ok(())
    }
}

/// Encodes a location in memory as private data.
fn encode(place: Remote) -> Vec<u8> {
    [place.stag.0.to_be_bytes().as_slice(), &place.address.to_be_bytes()].concat()
}

fn decode(bytes: &[u8]) -> Option<Remote> {
    let (stag, address) = bytes.split_at_checked(4)?;
    Some(Remote {
        stag: Stag(u32::from_be_bytes(stag.try_into().ok()?)),
        address: u64::from_be_bytes(address.try_into().ok()?),
    })
}

/// A client of the table.
struct Store {
    pair: QueuePair,
    completions: CompletionQueue,
    table: Remote,
    /// Buffer for reading slots; `None` while in flight.
    slot: Option<Buffer>,
    /// Buffer for the results of atomics; `None` while in flight.
    result: Option<Buffer>,
}

/// Contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    version: u64,
    counter: u64,
    /// `None` while the slot is free.
    entry: Option<(Vec<u8>, Vec<u8>)>,
}

impl Store {
    fn connect(server: SocketAddr) -> Result<Self, StoreError> {
        let rnic = Rnic::open(RnicOptions::default())?;
        let domain = ProtectionDomain::new(&rnic);
        let completions = CompletionQueue::new(&rnic, 64)?;
        let pair = QueuePair::new(&domain, &QueuePairOptions::new(&completions))?;
        let negotiated = pair.connect(server, &ConnectOptions::default())?;
        let table = decode(&negotiated.private_data).ok_or(StoreError::NoTable)?;
        let (slot, result) = (Some(domain.buffer(SLOT_BYTES)?), Some(domain.buffer(8)?));
        Ok(Self { pair, completions, table, slot, result })
    }

    /// The value of a key.
    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.find(key)?;
        Ok(found.and_then(|(_, slot)| slot.entry).map(|(_, value)| value))
    }

    /// Sets the value of a key.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let entry = entry(key, value)?;
        let since = Instant::now();
        loop {
            let (number, slot) = self.find_or_free(key)?;
            if self.lock(number, slot.version)? {
                return self.unlock(number, slot.version, &entry);
            }
            // Another client was first: the slot may have another key now, so
            // search again.
            if since.elapsed() > TIMEOUT {
                return Err(StoreError::Locked);
            }
        }
    }

    /// Adds to the counter of a key, creating it if needed; returns its
    /// previous value.
    fn add(&mut self, key: &[u8], number: u64) -> Result<u64, StoreError> {
        let slot = match self.find(key)? {
            Some((slot, _)) => slot,
            None => {
                self.put(key, b"")?;
                self.find(key)?.ok_or(StoreError::Full)?.0
            }
        };
        self.fetch_add(self.place(slot, 8), number)
    }

    /// The counter of a key.
    fn count(&mut self, key: &[u8]) -> Result<u64, StoreError> {
        Ok(self.find(key)?.map_or(0, |(_, slot)| slot.counter))
    }

    /// Returns the slot of an existing key.
    fn find(&mut self, key: &[u8]) -> Result<Option<(usize, Slot)>, StoreError> {
        for number in probes(key) {
            let slot = self.read_slot(number)?;
            match &slot.entry {
                Some((there, _)) if there == key => return Ok(Some((number, slot))),
                Some(_) => {}
                // Keys are never removed: none follows a free slot.
                None => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Returns the slot of a key, or the first free one of its probe sequence.
    fn find_or_free(&mut self, key: &[u8]) -> Result<(usize, Slot), StoreError> {
        for number in probes(key) {
            let slot = self.read_slot(number)?;
            if slot.entry.as_ref().is_none_or(|(there, _)| there == key) {
                return Ok((number, slot));
            }
        }
        Err(StoreError::Full)
    }

    /// Reads a slot until it is consistent and unlocked.
    fn read_slot(&mut self, number: usize) -> Result<Slot, StoreError> {
        let since = Instant::now();
        while since.elapsed() < TIMEOUT {
            let buffer = self.slot.take().ok_or(StoreError::Silent)?;
            self.pair.read(1, buffer, self.place(number, 0), SendOptions::default())?;
            let buffer = self.done()?;
            let slot = parse(&buffer);
            self.slot = Some(buffer);
            if let Some(slot) = slot.filter(|slot| slot.version.is_multiple_of(2)) {
                return Ok(slot);
            }
        }
        Err(StoreError::Locked)
    }

    /// Locks the slot if it is unlocked and has this version; returns whether
    /// it did.
    fn lock(&mut self, number: usize, version: u64) -> Result<bool, StoreError> {
        let result = self.result.take().ok_or(StoreError::Silent)?;
        let place = self.place(number, 0);
        self.pair.compare_swap(2, result, place, version, version + 1, SendOptions::default())?;
        Ok(self.original()? == version)
    }

    /// Writes the entry, and then the next even version.
    fn unlock(&mut self, number: usize, version: u64, entry: &[u8]) -> Result<(), StoreError> {
        let unsignaled = SendOptions { signaled: false, ..SendOptions::default() };
        self.pair.write(3, entry, self.place(number, ENTRY_AT), unsignaled)?;
        let next = (version + 2).to_ne_bytes();
        self.pair.write(4, next.as_slice(), self.place(number, 0), SendOptions::default())?;
        self.finished().map(drop)
    }

    fn fetch_add(&mut self, place: Remote, number: u64) -> Result<u64, StoreError> {
        let result = self.result.take().ok_or(StoreError::Silent)?;
        self.pair.fetch_add(5, result, place, number, SendOptions::default())?;
        self.original()
    }

    /// Returns the result of an atomic operation.
    fn original(&mut self) -> Result<u64, StoreError> {
        let result = self.done()?;
        let value = number_at(&result, 0);
        self.result = Some(result);
        Ok(value)
    }

    /// Waits for the request in flight, and returns its buffer.
    fn done(&mut self) -> Result<Buffer, StoreError> {
        self.finished()?.ok_or(StoreError::Silent)
    }

    fn finished(&mut self) -> Result<Option<Buffer>, StoreError> {
        let finished = self.completions.wait(TIMEOUT).ok().flatten().ok_or(StoreError::Silent)?;
        match finished.completion.status {
            Status::Success => Ok(finished.buffers.into_iter().next()),
            status => Err(StoreError::Failed(status)),
        }
    }

    fn place(&self, slot: usize, at: usize) -> Remote {
        let offset = slot * SLOT_BYTES + at;
        Remote { stag: self.table.stag, address: self.table.address + offset as u64 }
    }
}

/// Returns the probe sequence of a key.
fn probes(key: &[u8]) -> impl Iterator<Item = usize> + use<> {
    let first = checksum(key) as usize;
    (first..first + PROBES).map(|number| number % SLOTS)
}

/// FNV-1a: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Encodes an entry: checksum of what follows, presence flag, lengths, key,
/// value.
fn entry(key: &[u8], value: &[u8]) -> Result<Vec<u8>, StoreError> {
    let length = key.len() + value.len();
    let (Ok(key_length), Ok(value_length), true) =
        (u16::try_from(key.len()), u16::try_from(value.len()), length <= TEXT_BYTES)
    else {
        return Err(StoreError::TooLong(length));
    };
    let mut body = 1u16.to_be_bytes().to_vec();
    body.extend(key_length.to_be_bytes());
    body.extend(value_length.to_be_bytes());
    body.extend([key, value].concat());
    body.resize(ENTRY_BYTES - 4, 0);
    Ok([checksum(&body).to_be_bytes().as_slice(), &body].concat())
}

/// Decodes a slot; `None` when the checksum is wrong.
fn parse(bytes: &[u8]) -> Option<Slot> {
    let (version, counter) = (number_at(bytes, 0), number_at(bytes, 8));
    let (sum, body) = bytes.get(ENTRY_AT..)?.split_at_checked(4)?;
    if version == 0 {
        return Some(Slot { version, counter, entry: None });
    }
    if sum != checksum(body).to_be_bytes() {
        return None;
    }
    let length = |at: usize| Some(usize::from(u16::from_be_bytes([*body.get(at)?, *body.get(at + 1)?])));
    let (key, rest) = body.get(6..)?.split_at_checked(length(2)?)?;
    let value = rest.get(..length(4)?)?;
    Some(Slot { version, counter, entry: Some((key.to_vec(), value.to_vec())) })
}

/// Versions and counters are in the server's byte order: as with all atomics
/// over RDMA, both hosts must have the same.
fn number_at(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).unwrap_or_default();
    u64::from_ne_bytes(bytes)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => println!("{}", demonstrate(4, 1000)?),
        ["serve", address] => {
            let mut server = Server::bind(address.parse()?)?;
            println!("a table of {SLOTS} slots at {}; stop with Ctrl-C", server.listener.local_address());
            loop {
                server.accept_clients(Duration::from_secs(1))?;
            }
        }
        [address, "get", key] => match Store::connect(address.parse()?)?.get(key.as_bytes())? {
            Some(value) => println!("{}", String::from_utf8_lossy(&value)),
            None => println!("no such key"),
        },
        [address, "put", key, value] => {
            Store::connect(address.parse()?)?.put(key.as_bytes(), value.as_bytes())?;
        }
        [address, "add", key, number] => {
            let before = Store::connect(address.parse()?)?.add(key.as_bytes(), number.parse()?)?;
            println!("{before}");
        }
        _ => return Err(StoreError::Usage.into()),
    }
    Ok(())
}

/// Clients that concurrently count and write the same keys: nothing is lost.
fn demonstrate(clients: u64, rounds: u64) -> Result<String, StoreError> {
    let mut server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = server.listener.local_address();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let work = move |client: u64| {
            let mut store = Store::connect(address)?;
            for round in 0..rounds {
                store.add(b"visits", 1)?;
                store.put(b"last", format!("client {client} in round {round}").as_bytes())?;
                let last = store.get(b"last")?.unwrap_or_default();
                assert!(last.starts_with(b"client "), "a torn value: {last:?}");
            }
            Ok::<_, StoreError>(())
        };
        let threads: Vec<_> = (0..clients).map(|client| scope.spawn(move || work(client))).collect();
        while threads.iter().any(|thread| !thread.is_finished()) {
            server.accept_clients(Duration::from_millis(20))?;
        }
        for thread in threads {
            thread.join().unwrap_or(Err(StoreError::Silent))?;
        }
        Ok::<_, StoreError>(())
    })?;
    let mut watcher = std::thread::scope(|scope| {
        let watcher = scope.spawn(move || Store::connect(address));
        while !watcher.is_finished() {
            server.accept_clients(Duration::from_millis(20))?;
        }
        watcher.join().unwrap_or(Err(StoreError::Silent))
    })?;
    let visits = watcher.count(b"visits")?;
    let last = watcher.get(b"last")?.unwrap_or_default();
    Ok(format!(
        "{clients} clients: {visits} visits counted of {}, last: {}, {:.0} operations per second",
        clients * rounds,
        String::from_utf8_lossy(&last),
        (3 * clients * rounds) as f64 / begun.elapsed().as_secs_f64()
    ))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_clients_lose_nothing() {
        let summary = demonstrate(3, 50).unwrap();
        assert!(summary.contains("150 visits counted of 150"), "{summary}");
    }

    #[test]
    fn values_are_found_replaced_and_missed() {
        let mut server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = server.listener.local_address();
        let client = std::thread::spawn(move || {
            let mut store = Store::connect(address).unwrap();
            for number in 0..100 {
                let key = format!("key {number}");
                assert_eq!(store.get(key.as_bytes()).unwrap(), None, "{key}");
                store.put(key.as_bytes(), &[number; 20]).unwrap();
                assert_eq!(store.get(key.as_bytes()).unwrap().as_deref(), Some([number; 20].as_slice()));
            }
            store.put(b"key 5", b"another").unwrap();
            assert_eq!(store.get(b"key 5").unwrap().as_deref(), Some(b"another".as_slice()));
            assert_eq!(store.get(b"key 6").unwrap().as_deref(), Some([6; 20].as_slice()));
            assert_eq!((store.add(b"n", 7).unwrap(), store.add(b"n", 5).unwrap()), (0, 7));
            assert_eq!(store.count(b"n").unwrap(), 12);
            assert!(matches!(store.put(b"k", &[0; TEXT_BYTES]), Err(StoreError::TooLong(_))));
        });
        while !client.is_finished() {
            server.accept_clients(Duration::from_millis(20)).unwrap();
        }
        client.join().unwrap();
    }

    #[test]
    fn a_half_written_entry_is_rejected() {
        let mut bytes = vec![0; SLOT_BYTES];
        assert_eq!(parse(&bytes).unwrap().entry, None, "nobody was here");
        bytes[..8].copy_from_slice(&2u64.to_ne_bytes());
        bytes[ENTRY_AT..].copy_from_slice(&entry(b"key", b"value").unwrap());
        assert_eq!(parse(&bytes).unwrap().entry, Some((b"key".to_vec(), b"value".to_vec())));
        bytes[ENTRY_AT + 12] ^= 1;
        assert_eq!(parse(&bytes), None);
    }
}
