//! Copies into and out of memory, checksums and atomics on it.

use std::ptr::NonNull;

use clearstream_iwarp::{
    memory::{Access, AccessError, Instructions, Region, Span, limit_instructions, raw},
    mpa::Crc,
    work::Segment,
};
use proptest::prelude::*;

use crate::memory::{PAIR, all, table};

/// Memory with arbitrary alignment: the bytes around it must not change.
struct Odd {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

impl Odd {
    fn new(start: usize, length: usize) -> Self {
        Self { bytes: vec![0xee; start + length + 8], start, length }
    }

    /// Passes the memory to `act` as a span, then returns its bytes.
    fn with(&mut self, act: impl FnOnce(Span)) -> &[u8] {
        let (table, domain) = table();
        let base = NonNull::new(self.bytes.as_mut_ptr()).unwrap();
        // SAFETY: inside the vector, which is not accessed until it is
        // deregistered.
        let stag = unsafe {
            let base = base.add(self.start);
            raw::register(&table, domain, base, self.length, 0x1000, all(), 0, None)
        };
        let segment = Segment { stag: stag.unwrap(), address: 0x1000, length: self.length as u32 };
        act(table.local(domain, segment, true).unwrap());
        table.deregister(segment.stag).unwrap();
        let (before, rest) = self.bytes.split_at(self.start);
        let (inside, after) = rest.split_at(self.length);
        assert!(before.iter().chain(after).all(|byte| *byte == 0xee), "a neighbour's byte changed");
        inside
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 256 }, ..Default::default() })]

    /// Any pieces into any part of memory at any alignment.
    #[test]
    fn written_data_is_read_back(
        start in 0_usize..16,
        length in 1_usize..200,
        writes in prop::collection::vec((0_usize..200, prop::collection::vec(any::<u8>(), 0..200)), 1..6),
        from in 0_usize..200,
    ) {
        let mut memory = Odd::new(start, length);
        let mut model = vec![0xee; length];
        let model = &mut model;
        let inside = memory.with(|span| {
            for (at, bytes) in &writes {
                let at = at % length;
                let bytes = &bytes[..bytes.len().min(length - at)];
                span.write(at, bytes).unwrap();
                model[at..at + bytes.len()].copy_from_slice(bytes);
            }
            let from = from % length;
            let part = span.slice(from, length - from);
            let mut read = vec![0; part.len()];
            part.read(0, &mut read).unwrap();
            assert_eq!(read, model[from..]);
            let mut appended = vec![1, 2, 3];
            part.append_to(&mut appended).unwrap();
            assert_eq!(appended[3..], model[from..]);
            assert_eq!(appended[..3], [1, 2, 3]);
        });
        prop_assert_eq!(inside, &model[..]);
    }
}

#[test]
fn long_copies_are_whole() {
    let length = if cfg!(miri) { 2_000 } else { 300_000 };
    let region = Region::new(length + 1).unwrap();
    let bytes: Vec<u8> = (0..length as u32 - 10).map(|index| (index * 7 % 251) as u8).collect();
    for at in [0, 1, 7, 8, 9] {
        region.write(at, &bytes);
        assert!(region.to_vec(at, bytes.len()) == bytes);
        let part = region.span().slice(at + 5, length / 3 + 3);
        let mut chunks = Vec::new();
        part.each_chunk(|chunk| chunks.extend_from_slice(chunk)).unwrap();
        assert!(chunks == bytes[5..length / 3 + 8]);
    }
}

#[test]
fn the_crc_of_a_span_is_that_of_its_bytes() {
    // RFC 3720, appendix B.4: CRC32C examples, stored least significant byte
    // first.
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    let published = [
        (vec![0; 32], 0x8a91_36aa_u32),
        (vec![0xff; 32], 0x62a8_ab43),
        (ascending, 0x46dd_794e),
        (descending, 0x113f_db5c),
    ];
    for (bytes, expected) in published {
        for at in 0..8 {
            let region = Region::new(64).unwrap();
            region.write(at, &bytes);
            let span = region.span().slice(at, 32);
            let mut crc = Crc::new();
            span.slice(0, 13).crc32c(&mut crc).unwrap();
            span.slice(13, 19).crc32c(&mut crc).unwrap();
            assert_eq!(crc.finish(), expected);
        }
    }
}

/// CRC32C bit by bit (RFC 3720, section 12.1): the polynomial 0x1edc6f41,
/// reflected.
fn crc32c_by_bits(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |remainder, byte| {
        (0..8).fold(remainder ^ u32::from(*byte), |remainder, _| {
            if remainder & 1 == 0 { remainder >> 1 } else { remainder >> 1 ^ 0x82f6_3b78 }
        })
    })
}

#[test]
fn the_crc_of_a_long_span_is_that_of_its_bytes_and_of_its_copy() {
    let bytes: Vec<u8> = (0..20_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let region = Region::new(bytes.len()).unwrap();
    region.write(0, &bytes);
    // Around the lengths from which on bytes are folded, by how many at a time,
    // and copied at a time.
    let lengths = [
        1, 255, 256, 1023, 1024, 1025, 1279, 1280, 1281, 1287, 2048, 2304, 4096, 8191, 8193, 8448, 16_641,
        19_900,
    ];
    let kinds = Instructions::ALL.into_iter().filter(|instructions| instructions.is_available());
    let ranges = || (0..9).flat_map(|at| lengths.map(|length| (at, length)));
    for (instructions, (at, length)) in
        kinds.flat_map(|instructions| ranges().map(move |range| (instructions, range)))
    {
        limit_instructions(instructions);
        let expected = crc32c_by_bits(&[&b"before"[..], &bytes[at..at + length]].concat());
        let span = region.span().slice(at, length);
        let mut crc = Crc::new();
        crc.update(b"before");
        span.crc32c(&mut crc).unwrap();
        assert_eq!(crc.finish(), expected, "{length} bytes at {at}, {instructions:?}");
        let mut copied = b"before".to_vec();
        crc.restart();
        crc.update(&copied);
        span.append_checked(&mut copied, &mut crc).unwrap();
        assert_eq!(crc.finish(), expected, "{length} bytes at {at}, copied, {instructions:?}");
        assert_eq!(copied[6..], bytes[at..at + length], "{length} bytes at {at}, {instructions:?}");
        crc.restart();
        crc.update(b"123456789");
        assert_eq!(crc.finish(), 0xe306_9283, "a restarted CRC, of the catalogue's check string");
    }
    limit_instructions(Instructions::Wide);
}

/// Reference for RFC 7306, section 5.1.1, bit by bit: a carry goes to the next
/// bit unless the mask marks the end of a field.
fn add_by_fields(old: u64, add: u64, mask: u64) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..64 {
        let digits = (old >> bit & 1) + (add >> bit & 1) + carry;
        sum |= (digits & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { digits >> 1 };
    }
    sum
}

proptest! {
    #[test]
    fn fetch_and_add_keeps_carries_inside_fields(old: u64, add: u64, mask: u64, no_mask: bool) {
        let mask = if no_mask { 0 } else { mask };
        let region = Region::new(16).unwrap();
        region.store(8, old);
        prop_assert_eq!(region.span().slice(8, 8).fetch_add(add, mask), Ok(old));
        prop_assert_eq!(region.load(8), add_by_fields(old, add, mask));
        prop_assert_eq!(region.load(0), 0);
        if mask == 0 {
            prop_assert_eq!(region.load(8), old.wrapping_add(add));
        }
    }

    #[test]
    fn compare_and_swap_keeps_to_its_masks(
        old: u64, differing: u64, compare_mask: u64, swap: u64, swap_mask: u64, equal: bool,
    ) {
        let region = Region::new(8).unwrap();
        region.store(0, old);
        let compare = if equal { old ^ (differing & !compare_mask) } else { old ^ differing };
        let swaps = (0..64).all(|bit| compare_mask >> bit & 1 == 0 || (old ^ compare) >> bit & 1 == 0);
        prop_assert_eq!(region.span().compare_swap(compare, compare_mask, swap, swap_mask), Ok(old));
        for bit in 0..64 {
            let source = if swaps && swap_mask >> bit & 1 == 1 { swap } else { old };
            prop_assert_eq!(region.load(0) >> bit & 1, source >> bit & 1, "bit {}", bit);
        }
    }
}

#[test]
fn atomics_need_eight_aligned_bytes() {
    let region = Region::new(24).unwrap();
    let span = region.span();
    for (at, length) in [(1, 8), (4, 8), (0, 7), (0, 16), (0, 0)] {
        assert_eq!(span.slice(at, length).fetch_add(1, 0), Err(AccessError::Misaligned));
        assert_eq!(span.slice(at, length).compare_swap(0, 0, 0, 0), Err(AccessError::Misaligned));
    }
    assert_eq!(region.to_vec(0, 24), [0; 24]);
}

#[test]
fn spans_outlive_their_tag_and_their_region() {
    let (table, domain) = table();
    let (region, stag) = crate::memory::region(&table, domain, 4096, all());
    let address = region.address();
    let span = table.remote(domain, PAIR, stag, address, 4096, Access::REMOTE_WRITE).unwrap();
    let part = span.slice(1000, 8);
    table.deregister(stag).unwrap();
    drop((region, table, span));
    part.write(0, b"still it").unwrap();
    let mut bytes = Vec::new();
    part.append_to(&mut bytes).unwrap();
    assert_eq!(bytes, b"still it");
}

#[test]
#[should_panic(expected = "bytes 60..+5 of a span of 64")]
fn accesses_outside_a_span_panic() {
    Region::new(64).unwrap().write(60, b"12345");
}

#[test]
#[cfg_attr(miri, ignore = "the interpreter aborts where the system call fails")]
fn exhausted_memory_is_an_error() {
    for length in [usize::MAX, usize::MAX - 7, isize::MAX as usize, 1 << 60] {
        assert!(Region::new(length).is_err(), "{length:#x}");
    }
    assert!(Region::new(0).unwrap().is_empty());
}
