//! Packets in flight, in order, in memory that is allocated once.

use std::{collections::VecDeque, io};

use clearstream_sys::{memory::Buffer, tun::PACKET_MAX_BYTES};

/// Chunk size, one huge page; chunks are allocated as traffic requires.
const CHUNK_BYTES: usize = 2 << 20;

/// FIFO of packets; the kernel writes a packet directly into its place here and
/// reads it directly from it.
#[derive(Debug)]
pub struct Store {
    chunks: Vec<Chunk>,
    /// Unused chunks, the most recently used last: its memory is still in the
    /// cache.
    free: Vec<usize>,
    writing: usize,
    written_bytes: usize,
    queue: VecDeque<Slot>,
    chunk_limit: usize,
}

#[derive(Debug)]
struct Chunk {
    memory: Buffer,
    packets: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    leaves_ns: u64,
    chunk: usize,
    offset: usize,
    bytes: usize,
}

fn chunks_for(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX).div_ceil(CHUNK_BYTES - PACKET_MAX_BYTES).max(2)
}

impl Store {
    /// Creates a store for at least `bytes` bytes of packets.
    pub fn with_room_for(bytes: u64) -> io::Result<Self> {
        Ok(Self {
            chunks: vec![Chunk::new()?],
            free: Vec::new(),
            writing: 0,
            written_bytes: 0,
            queue: VecDeque::with_capacity(4096),
            chunk_limit: chunks_for(bytes),
        })
    }

    /// Makes room for this many bytes of packets, where there is less.
    pub fn grow_to(&mut self, bytes: u64) {
        self.chunk_limit = self.chunk_limit.max(chunks_for(bytes));
    }

    /// Returns room for one packet of any size; `None` when the store is full.
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if CHUNK_BYTES - self.written_bytes < PACKET_MAX_BYTES && !self.next_chunk() {
            return None;
        }
        let from = self.written_bytes;
        Some(&mut self.chunks[self.writing].memory[from..from + PACKET_MAX_BYTES])
    }

    fn next_chunk(&mut self) -> bool {
        if self.chunks[self.writing].packets == 0 {
            // All its packets have left.
        } else if let Some(free) = self.free.pop() {
            self.writing = free;
        } else if self.chunks.len() < self.chunk_limit
            && let Ok(chunk) = Chunk::new()
        {
            self.chunks.push(chunk);
            self.writing = self.chunks.len() - 1;
        } else {
            return false;
        }
        self.written_bytes = 0;
        true
    }

    /// Stores the first `bytes` of the buffer from [`Self::room`] until
    /// `leaves_ns`.
    pub fn keep(&mut self, bytes: usize, leaves_ns: u64) {
        self.queue.push_back(Slot { leaves_ns, chunk: self.writing, offset: self.written_bytes, bytes });
        self.chunks[self.writing].packets += 1;
        // Packets start on their own cache line.
        self.written_bytes += bytes.next_multiple_of(64);
    }

    /// Returns the departure time of the oldest packet.
    pub fn next_leaves_ns(&self) -> Option<u64> {
        self.queue.front().map(|slot| slot.leaves_ns)
    }

    /// Returns the oldest packet.
    pub fn oldest(&self) -> Option<&[u8]> {
        let slot = self.queue.front()?;
        Some(&self.chunks[slot.chunk].memory[slot.offset..slot.offset + slot.bytes])
    }

    /// Removes the oldest packet.
    pub fn remove_oldest(&mut self) {
        let Some(slot) = self.queue.pop_front() else { return };
        let chunk = &mut self.chunks[slot.chunk];
        chunk.packets -= 1;
        if chunk.packets > 0 {
            return;
        }
        if slot.chunk == self.writing {
            // The store is empty: start over in memory that is still in the
            // cache.
            self.written_bytes = 0;
        } else {
            self.free.push(slot.chunk);
        }
    }
}

impl Chunk {
    fn new() -> io::Result<Self> {
        Ok(Self { memory: Buffer::new(CHUNK_BYTES, None)?, packets: 0 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(store: &mut Store, number: u64, bytes: usize) -> bool {
        let Some(room) = store.room() else { return false };
        assert_eq!(room.len(), PACKET_MAX_BYTES);
        room[..bytes].fill(number as u8);
        store.keep(bytes, number);
        true
    }

    proptest! {
        /// For any order of arrivals and departures: FIFO, nothing overwritten,
        /// and memory within its limit.
        #[test]
        fn is_a_queue(steps in prop::collection::vec((any::<bool>(), 1..PACKET_MAX_BYTES), 1..400)) {
            let mut store = Store::with_room_for(4 << 20).unwrap();
            let mut model = VecDeque::new();
            for (number, (arrives, bytes)) in steps.into_iter().enumerate() {
                let number = number as u64;
                if arrives && put(&mut store, number, bytes) {
                    model.push_back((number, bytes));
                } else if let Some((number, bytes)) = model.pop_front() {
                    prop_assert_eq!(store.next_leaves_ns(), Some(number));
                    let packet = store.oldest().unwrap();
                    prop_assert_eq!(packet.len(), bytes);
                    prop_assert!(packet.iter().all(|&byte| byte == number as u8));
                    store.remove_oldest();
                }
                prop_assert!(store.chunks.len() <= store.chunk_limit);
            }
        }
    }

    #[test]
    fn reports_when_it_is_full_and_continues_when_it_is_not() {
        let mut store = Store::with_room_for(8 << 20).unwrap();
        let mut count = 0u64;
        while put(&mut store, count, 60_000) {
            count += 1;
        }
        assert!(count * 60_000 >= 8 << 20, "{count}");
        for _ in 0..count {
            store.remove_oldest();
        }
        assert!(store.oldest().is_none());
        assert!(put(&mut store, 0, PACKET_MAX_BYTES));
    }

    #[test]
    fn light_traffic_stays_in_one_chunk() {
        let mut store = Store::with_room_for(1 << 30).unwrap();
        for number in 0..100_000 {
            assert!(put(&mut store, number, 9000));
            store.remove_oldest();
        }
        assert_eq!(store.chunks.len(), 1);
    }
}
