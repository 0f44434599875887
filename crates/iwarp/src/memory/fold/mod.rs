//! CRC32C of memory with concurrent accesses, by one pass over it: the words
//! are loaded, added and, if requested, copied.
//!
//! Memory that others write cannot be borrowed as a slice, so that a digest of
//! slices needs a copy of it first, and with it a second pass through the
//! caches. The wide instructions fold: bytes are replaced by fewer ones with the
//! same remainder (V. Gopal et al., Fast CRC Computation for Generic Polynomials
//! Using PCLMULQDQ Instruction, Intel, 2009).

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::is_x86_feature_detected;
use std::{
    mem::MaybeUninit,
    ops::Range,
    ptr,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
};

use super::atomic_copy::{self, Holder};
use crate::mpa::Crc;

/// Bytes of a step.
const STEP_BYTES: usize = 256;
/// Least length that is worth it: to continue a digest costs as much as some
/// hundred bytes.
const MIN_BYTES: usize = 1024;
/// Bytes that are copied before a digest reads them: its pass hits the L1 cache.
const BLOCK_BYTES: usize = 8192;

/// Adds a range to a running CRC.
///
/// # Safety
/// `holder` fulfils the contract of its type.
pub(super) unsafe fn crc(holder: Holder, at: usize, length: usize, running: &mut Crc) {
    let instructions = Instructions::current();
    let steps = steps(holder, at, length, instructions);
    // SAFETY: upheld by the caller.
    unsafe {
        digest(holder, at, steps.start, running);
        add(instructions, holder, at, &steps, ptr::null_mut(), running);
        digest(holder, at + steps.end, length - steps.end, running);
    }
}

/// Copies from `at` into `into`, which is then fully initialised, and adds the
/// bytes to a running CRC.
///
/// # Safety
/// `holder` fulfils the contract of its type.
pub(super) unsafe fn load(holder: Holder, at: usize, into: &mut [MaybeUninit<u8>], running: &mut Crc) {
    let instructions = Instructions::current();
    let steps = steps(holder, at, into.len(), instructions);
    let (head, rest) = into.split_at_mut(steps.start);
    let (middle, tail) = rest.split_at_mut(steps.len());
    // SAFETY: upheld by the caller.
    unsafe {
        load_blocks(holder, at, head, running);
        add(instructions, holder, at, &steps, middle.as_mut_ptr().cast(), running);
        load_blocks(holder, at + steps.end, tail, running);
    }
}

/// Returns the part of a range that is read by words: whole steps. Empty where
/// that gains nothing, and without the instructions.
fn steps(holder: Holder, at: usize, length: usize, instructions: Instructions) -> Range<usize> {
    if length < MIN_BYTES || instructions == Instructions::None {
        return 0..0;
    }
    let head = atomic_copy::head_length(holder, at, length);
    head..head + (length - head) / STEP_BYTES * STEP_BYTES
}

/// What a CRC of registered memory is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Instructions {
    /// A digest of plain bytes, which needs a copy first.
    None,
    /// CRC32C of a word (SSE 4.2), three streams at a time, beside carry-less
    /// multiplication of 16 bytes (PCLMULQDQ).
    Crc32,
    /// Carry-less multiplication of 64 bytes (VPCLMULQDQ and AVX-512).
    Wide,
}

impl Instructions {
    /// All, the fastest last.
    pub const ALL: [Self; 3] = [Self::None, Self::Crc32, Self::Wide];

    /// Whether this processor has them.
    #[must_use]
    pub fn is_available(self) -> bool {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return match self {
            Self::None => true,
            Self::Crc32 => is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq"),
            Self::Wide => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("vpclmulqdq")
                    && is_x86_feature_detected!("sse4.2")
            }
        };
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        return self == Self::None;
    }

    /// The fastest that this processor has, up to the limit.
    fn current() -> Self {
        let limit = FASTEST.load(Relaxed);
        let allowed = |instructions: &&Self| **instructions as u8 <= limit && instructions.is_available();
        Self::ALL.iter().rev().find(allowed).copied().unwrap_or(Self::None)
    }
}

/// Instructions not to exceed.
static FASTEST: AtomicU8 = AtomicU8::new(Instructions::Wide as u8);

/// Limits what CRCs of registered memory are computed with, in this process
/// from now on: tests and measurements take the paths of other processors by
/// it. The CRCs are the same.
pub fn limit_instructions(fastest: Instructions) {
    FASTEST.store(fastest as u8, Relaxed);
}

/// Adds a range to a running CRC by way of a copy.
///
/// # Safety
/// As for [`crc`].
unsafe fn digest(holder: Holder, at: usize, length: usize, running: &mut Crc) {
    let mut block = [const { MaybeUninit::uninit() }; BLOCK_BYTES];
    let mut done = 0;
    while done < length {
        let most = BLOCK_BYTES.min(length - done);
        // SAFETY: upheld by the caller.
        unsafe { load_blocks(holder, at + done, &mut block[..most], running) };
        done += most;
    }
}

/// As [`load`], by a digest.
///
/// # Safety
/// As for [`load`].
unsafe fn load_blocks(holder: Holder, at: usize, into: &mut [MaybeUninit<u8>], running: &mut Crc) {
    let mut at = at;
    for block in into.chunks_mut(BLOCK_BYTES) {
        // SAFETY: upheld by the caller; `load` initialises all of it.
        unsafe {
            atomic_copy::load(holder, at, block);
            running.update(block.assume_init_ref());
        }
        at += block.len();
    }
}

/// Adds the steps of the range at `at` to a running CRC, and copies them to
/// `into` unless it is null.
///
/// # Safety
/// As for [`crc`]; the steps are what [`steps`] returned for the range and the
/// instructions, and `into` is null or can be written.
unsafe fn add(
    instructions: Instructions,
    holder: Holder,
    at: usize,
    steps: &Range<usize>,
    into: *mut u8,
    running: &mut Crc,
) {
    if steps.is_empty() {
        return;
    }
    assert!(holder.contains(at + steps.start, steps.len()), "a range was checked when its span was made");
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: the words are inside the holder, whose memory is alive and
        // accessed atomically; the instructions are available, or there were no
        // steps.
        let remainder = unsafe {
            let from = holder.base.add(at + steps.start);
            x86::remainder(instructions, running.remainder(), from, into, steps.len())
        };
        running.resume(remainder);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unreachable!("no steps with {instructions:?}, and no bytes to {into:?} and {running:?}");
}
