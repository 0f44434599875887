//! Contents of what is written: by default nothing that a file system or a disk could compress, or has seen before.
//!
//! Operations take their bytes in turn from a pool. It is larger than the reach of compression in one record of the
//! usual file systems (LZ4 looks back 64 KiB; records have 128 KiB to 1 MiB), and when all of it was used, the first
//! bytes of every 4 KiB change: no two blocks of a run, or of two runs, are alike (deduplication compares blocks of
//! 4 KiB and more). Changing them costs one store for 4 KiB, between two operations, never within the time of one.

use std::{io, ops::Range};

use clearstream_schema::DataKind;
use clearstream_sys::memory::Buffer;

/// Size of a pool, where there are few ranks and where there are many.
const POOL_BYTES: usize = 1 << 20;
const POOL_BYTES_OF_MANY: usize = 64 << 10;
/// More ranks than these are many: their pools together stay in 64 MiB.
const FEW_RANKS: usize = 64;
/// What differs from each other.
const BLOCK_BYTES: usize = 4096;

/// Bytes to write, in pieces of one size.
#[derive(Debug)]
pub(crate) struct Source {
    pool: Buffer,
    kind: DataKind,
    length: usize,
    at: usize,
    lap: u64,
    key: u64,
}

impl Source {
    /// For pieces of `length`, with other bytes than any other source.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(kind: DataKind, length: usize, ranks: usize) -> io::Result<Self> {
        let bytes = pool_bytes(ranks);
        let bytes = if kind == DataKind::Zero { length } else { bytes.max(length) };
        let mut pool = Buffer::new(bytes, None)?;
        let key = rand::random();
        fill(kind, key, &mut pool);
        Ok(Self { pool, kind, length, at: 0, lap: 0, key })
    }

    /// Whether all of the pool was written: call [`Self::renew`] before the next piece.
    pub(crate) fn is_used(&self) -> bool {
        self.at + self.length > self.pool.len()
    }

    /// Makes its blocks differ from those that were written.
    pub(crate) fn renew(&mut self) {
        self.at = 0;
        self.lap += 1;
        if self.kind != DataKind::Zero {
            stamp(self.key ^ self.lap << 32, &mut self.pool);
        }
    }

    /// The next piece.
    pub(crate) fn next(&mut self) -> &[u8] {
        let range = self.range();
        self.at = range.end;
        self.pool.get(range).unwrap_or_default()
    }

    fn range(&self) -> Range<usize> {
        self.at..self.at + self.length
    }
}

/// Bytes of which a rank's pieces are taken in turn.
pub(crate) fn pool_bytes(ranks: usize) -> usize {
    if ranks > FEW_RANKS { POOL_BYTES_OF_MANY } else { POOL_BYTES }
}

/// Contents of one buffer that is written again and again ([`renew_buffer`] between).
pub(crate) fn fill(kind: DataKind, key: u64, bytes: &mut [u8]) {
    let kept = match kind {
        DataKind::Zero => 0,
        DataKind::Random => BLOCK_BYTES,
        DataKind::Compress(part) => BLOCK_BYTES / part as usize,
    };
    for (number, block) in (0_u64..).zip(bytes.chunks_mut(BLOCK_BYTES)) {
        let (random, zero) = block.split_at_mut(kept.min(block.len()));
        for (place, chunk) in (0_u64..).zip(random.chunks_mut(8)) {
            let value = mixed(key ^ number << 16 ^ place).to_le_bytes();
            chunk.copy_from_slice(value.get(..chunk.len()).unwrap_or_default());
        }
        zero.fill(0);
    }
}

/// Makes the blocks of a buffer that [`fill`] has filled differ from what they were.
pub(crate) fn renew_buffer(kind: DataKind, key: u64, bytes: &mut [u8]) {
    if kind != DataKind::Zero {
        stamp(key, bytes);
    }
}

fn stamp(key: u64, bytes: &mut [u8]) {
    for (number, block) in (0_u64..).zip(bytes.chunks_mut(BLOCK_BYTES)) {
        if let Some((first, _)) = block.split_first_chunk_mut::<8>() {
            *first = mixed(key ^ number).to_le_bytes();
        }
    }
}

/// SplitMix64's output function (G. Steele, D. Lea, C. Flood, 2014).
pub(crate) fn mixed(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, io::Write as _};

    use flate2::{Compression, write::ZlibEncoder};

    use super::*;

    fn written(kind: DataKind, length: usize, count: usize) -> Vec<u8> {
        let mut source = Source::new(kind, length, 1).unwrap();
        let mut all = Vec::new();
        for _ in 0..count {
            if source.is_used() {
                source.renew();
            }
            all.extend_from_slice(source.next());
        }
        all
    }

    /// By a compressor that we did not write, over more than a pool.
    #[test]
    fn what_is_written_compresses_as_asked_and_no_block_is_there_twice() {
        for (kind, part) in
            [(DataKind::Random, 1.0), (DataKind::Compress(4), 4.0), (DataKind::Zero, f64::MAX)]
        {
            for (length, count) in [(4096, 600), (47_008, 60), (3 << 20, 2)] {
                let bytes = written(kind, length, count);
                let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
                packed.write_all(&bytes).unwrap();
                let ratio = bytes.len() as f64 / packed.finish().unwrap().len() as f64;
                match kind {
                    DataKind::Zero => assert!(ratio > 500.0, "{length}: {ratio}"),
                    _ => assert!((ratio / part - 1.0).abs() < 0.1, "{kind} {length}: {ratio}"),
                }
                if kind != DataKind::Zero && length.is_multiple_of(BLOCK_BYTES) {
                    let blocks: BTreeSet<&[u8]> = bytes.chunks(BLOCK_BYTES).collect();
                    assert_eq!(blocks.len(), bytes.len() / BLOCK_BYTES, "{kind} {length}");
                }
            }
        }
    }
}
