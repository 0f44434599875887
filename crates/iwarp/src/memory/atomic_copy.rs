//! Copies into and out of memory with concurrent accesses.
//!
//! Every access to a byte of a holder (a region, a lent buffer) has one size,
//! in every thread: a byte of an aligned word that lies wholly inside the
//! holder is accessed with its word as an `AtomicU64`; the few bytes before the
//! first and after the last such word are accessed as `AtomicU8`. So there are
//! neither data races nor racing atomic accesses of different sizes, which the
//! memory model of Rust does not define. Part of a word is changed by compare
//! and swap, so that adjacent bytes are preserved.
//!
//! All accesses are relaxed; [`super::Span`] adds the fences.

use std::{
    mem::MaybeUninit,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
};

/// Bytes of a word being loaded.
type U64Bytes = [MaybeUninit<u8>; U64_BYTES];

/// Bytes of a word.
pub(super) const U64_BYTES: usize = size_of::<u64>();

/// A holder's range: `length` bytes at `base`, one allocation, alive during the
/// call and never borrowed as a plain reference meanwhile.
#[derive(Clone, Copy)]
pub(super) struct Holder {
    pub(super) base: *mut u8,
    pub(super) length: usize,
}

impl Holder {
    /// Offset in its word of the byte at `at`.
    fn phase(self, at: usize) -> usize {
        self.base.addr().wrapping_add(at) % U64_BYTES
    }

    /// Returns the whole word around the byte at `at`, if the holder contains
    /// all of it.
    fn whole(self, at: usize) -> Option<*mut u8> {
        let start = at.checked_sub(self.phase(at))?;
        // SAFETY: `start` is at most `at`, and the word ends inside.
        (start + U64_BYTES <= self.length).then(|| unsafe { self.base.add(start) })
    }

    /// Whether the range is inside.
    pub(super) fn contains(self, at: usize, length: usize) -> bool {
        at.checked_add(length).is_some_and(|end| end <= self.length)
    }
}

/// Copies `bytes` to `at`.
///
/// # Safety
/// `holder` fulfils the contract of its type.
pub(super) unsafe fn store(holder: Holder, at: usize, bytes: &[u8]) {
    assert!(holder.contains(at, bytes.len()), "a range was checked when its span was made");
    let head = head_length(holder, at, bytes.len());
    let (head, rest) = bytes.split_at(head);
    let (middle, tail) = rest.as_chunks::<U64_BYTES>();
    // SAFETY: the three parts follow one another inside the range checked above;
    // the words begin at a multiple of their size.
    unsafe {
        store_part(holder, at, head);
        let first = holder.base.add(at + head.len()).cast::<u64>();
        for (index, bytes) in middle.iter().enumerate() {
            atomic_u64(first.add(index)).store(u64::from_ne_bytes(*bytes), Relaxed);
        }
        store_part(holder, at + bytes.len() - tail.len(), tail);
    }
}

/// Copies from `at` into `into`, which is then fully initialised.
///
/// # Safety
/// `holder` fulfils the contract of its type.
pub(super) unsafe fn load(holder: Holder, at: usize, into: &mut [MaybeUninit<u8>]) {
    assert!(holder.contains(at, into.len()), "a range was checked when its span was made");
    let length = into.len();
    let head = head_length(holder, at, length);
    let (head, rest) = into.split_at_mut(head);
    let (middle, tail) = rest.as_chunks_mut::<U64_BYTES>();
    // SAFETY: as in `store`.
    unsafe {
        load_part(holder, at, head);
        load_aligned(holder.base.add(at + head.len()).cast(), middle);
        load_part(holder, at + length - tail.len(), tail);
    }
}

/// Returns the eight aligned bytes at `at`; `None` unless they are a whole word
/// of the holder.
///
/// # Safety
/// `holder` fulfils the contract of its type as long as the word is used.
pub(super) unsafe fn u64_at<'a>(holder: Holder, at: usize) -> Option<&'a AtomicU64> {
    if holder.phase(at) != 0 {
        return None;
    }
    let place = holder.whole(at)?;
    // SAFETY: a whole aligned word of a live holder.
    Some(unsafe { atomic_u64(place.cast()) })
}

/// Loads consecutive whole words.
///
/// # Safety
/// That many words at `first` are aligned, alive and accessed atomically by all
/// threads.
unsafe fn load_aligned(first: *mut u64, into: &mut [U64Bytes]) {
    let mut done = 0;
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if into.len() >= BLOCK && std::arch::is_x86_feature_detected!("avx") {
        let (blocks, _) = into.as_chunks_mut::<BLOCK>();
        // SAFETY: upheld by the caller, for the words of these blocks; AVX is
        // available.
        unsafe { load_blocks(first, blocks) };
        done = blocks.len() * BLOCK;
    }
    for bytes in &mut into[done..] {
        // SAFETY: upheld by the caller.
        *bytes = unsafe { atomic_u64(first.add(done)) }.load(Relaxed).to_ne_bytes().map(MaybeUninit::new);
        done += 1;
    }
}

/// Words of a block.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const BLOCK: usize = 8;

/// Loads blocks of words with 32-byte AVX loads. The compiler does not merge
/// atomic loads, which halves the speed of a CRC. One instruction reads four
/// words; each eight aligned bytes of it are read atomically (Intel SDM, volume
/// 3, section 9.1.1; AMD APM, volume 2, section 7.3.2), as by four relaxed
/// loads.
///
/// # Safety
/// As for [`load_aligned`], and the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn load_blocks(first: *const u64, blocks: &mut [[U64Bytes; BLOCK]]) {
    // SAFETY: reads the words, writes the blocks, at least one, and nothing
    // else.
    unsafe {
        std::arch::asm!(
            "2:",
            "vmovdqu {a}, [{from}]",
            "vmovdqu {b}, [{from} + 32]",
            "vmovdqu [{into}], {a}",
            "vmovdqu [{into} + 32], {b}",
            "add {from}, 64",
            "add {into}, 64",
            "dec {left}",
            "jnz 2b",
            from = inout(reg) first => _,
            into = inout(reg) blocks.as_mut_ptr() => _,
            left = inout(reg) blocks.len() => _,
            a = out(ymm_reg) _,
            b = out(ymm_reg) _,
            options(nostack),
        );
    }
    // The code that follows may use SSE without AVX.
    std::arch::x86_64::_mm256_zeroupper();
}

/// Returns the number of bytes before the first word that begins in the range.
pub(super) fn head_length(holder: Holder, at: usize, length: usize) -> usize {
    ((U64_BYTES - holder.phase(at)) % U64_BYTES).min(length)
}

/// # Safety
/// `place` is aligned, alive and accessed atomically by all threads.
unsafe fn atomic_u64<'a>(place: *mut u64) -> &'a AtomicU64 {
    // SAFETY: upheld by the caller.
    unsafe { AtomicU64::from_ptr(place) }
}

/// Stores less than a word, all in one word.
///
/// # Safety
/// As for [`store`], with the range inside.
unsafe fn store_part(holder: Holder, at: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let phase = holder.phase(at);
    if let Some(place) = holder.whole(at) {
        // SAFETY: a whole aligned word of a live holder.
        let atomic = unsafe { atomic_u64(place.cast()) };
        let mut now = atomic.load(Relaxed);
        loop {
            let mut changed = now.to_ne_bytes();
            changed[phase..phase + bytes.len()].copy_from_slice(bytes);
            match atomic.compare_exchange_weak(now, u64::from_ne_bytes(changed), Relaxed, Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: inside the holder, and not part of a whole word.
        unsafe { AtomicU8::from_ptr(holder.base.add(at + index)) }.store(*byte, Relaxed);
    }
}

/// Loads less than a word, all in one word.
///
/// # Safety
/// As for [`load`], with the range inside.
unsafe fn load_part(holder: Holder, at: usize, into: &mut [MaybeUninit<u8>]) {
    if into.is_empty() {
        return;
    }
    let phase = holder.phase(at);
    if let Some(place) = holder.whole(at) {
        // SAFETY: a whole aligned word of a live holder.
        let whole = unsafe { atomic_u64(place.cast()) }.load(Relaxed).to_ne_bytes();
        into.write_copy_of_slice(&whole[phase..phase + into.len()]);
        return;
    }
    for (index, byte) in into.iter_mut().enumerate() {
        // SAFETY: inside the holder, and not part of a whole word.
        byte.write(unsafe { AtomicU8::from_ptr(holder.base.add(at + index)) }.load(Relaxed));
    }
}
