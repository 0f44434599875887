//! The instructions: carry-less multiplication of 64 bytes at a time, or the
//! CRC32C of eight.

use std::{
    arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64, _mm256_zeroupper,
    },
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::Instructions;

/// Multipliers of the halves of 16 bytes by x^(8 d), for a distance of d bytes:
/// x^(8 d + 31) and x^(8 d - 33) modulo the polynomial.
const DISTANCE_256: [u64; 2] = [power(8 * 256 + 31), power(8 * 256 - 33)];
const DISTANCE_64: [u64; 2] = [power(8 * 64 + 31), power(8 * 64 - 33)];

/// Returns a power of x modulo the polynomial, bits reversed.
const fn power(exponent: u32) -> u64 {
    let mut power: u64 = 1 << 31;
    let mut left = exponent;
    while left > 0 {
        power = power >> 1 ^ if power & 1 == 0 { 0 } else { 0x82f6_3b78 };
        left -= 1;
    }
    power
}

/// Returns the remainder of the bytes behind those of `remainder`, and copies
/// them to `into` unless it is null.
///
/// # Safety
/// There are `length` bytes of aligned words at `from`, at least one step and
/// whole steps, alive and accessed atomically by all threads; `into` is null or
/// can be written; the processor has the instructions, which are not none.
pub(super) unsafe fn remainder(
    instructions: Instructions,
    remainder: u32,
    from: *const u8,
    into: *mut u8,
    length: usize,
) -> u32 {
    // SAFETY: upheld by the caller.
    unsafe {
        match instructions {
            Instructions::Wide => wide(remainder, from, into, length / super::STEP_BYTES),
            Instructions::Crc32 if into.is_null() => {
                streams::<false>(remainder, from.cast(), into, length / 8)
            }
            Instructions::Crc32 => streams::<true>(remainder, from.cast(), into, length / 8),
            Instructions::None => unreachable!("nothing is added without instructions"),
        }
    }
}

/// Four registers of 64 bytes are folded over the distance of a step, in the end
/// into one. One instruction loads eight words, each of them atomically (as in
/// [`super::super::atomic_copy`]).
///
/// # Safety
/// As for [`remainder`], for so many steps of [`super::STEP_BYTES`].
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
unsafe fn wide(remainder: u32, from: *const u8, into: *mut u8, steps: usize) -> u32 {
    let mut folded = [0_u64; 8];
    // SAFETY: reads the words and the constants, writes `into` and `folded`,
    // and nothing else.
    unsafe {
        std::arch::asm!(
            "vbroadcasti32x4 {k}, [{far}]",
            "vmovd {first}, {remainder:e}",
            "vmovdqu64 {a}, [{from}]",
            "vmovdqu64 {b}, [{from} + 64]",
            "vmovdqu64 {c}, [{from} + 128]",
            "vmovdqu64 {d}, [{from} + 192]",
            "test {into}, {into}",
            "jz 4f",
            "vmovdqu64 [{into}], {a}",
            "vmovdqu64 [{into} + 64], {b}",
            "vmovdqu64 [{into} + 128], {c}",
            "vmovdqu64 [{into} + 192], {d}",
            "add {into}, 256",
            "4:",
            "vpxorq {a}, {a}, {first:z}",
            "jmp 3f",
            "2:",
            "vpclmulqdq {t}, {a}, {k}, 0",
            "vpclmulqdq {a}, {a}, {k}, 17",
            "vmovdqu64 {e}, [{from}]",
            "vpclmulqdq {u}, {b}, {k}, 0",
            "vpclmulqdq {b}, {b}, {k}, 17",
            "vmovdqu64 {f}, [{from} + 64]",
            "vpternlogq {a}, {t}, {e}, 150",
            "vpternlogq {b}, {u}, {f}, 150",
            "vpclmulqdq {t}, {c}, {k}, 0",
            "vpclmulqdq {c}, {c}, {k}, 17",
            "vmovdqu64 {g}, [{from} + 128]",
            "vpclmulqdq {u}, {d}, {k}, 0",
            "vpclmulqdq {d}, {d}, {k}, 17",
            "vmovdqu64 {h}, [{from} + 192]",
            "vpternlogq {c}, {t}, {g}, 150",
            "vpternlogq {d}, {u}, {h}, 150",
            "test {into}, {into}",
            "jz 3f",
            "vmovdqu64 [{into}], {e}",
            "vmovdqu64 [{into} + 64], {f}",
            "vmovdqu64 [{into} + 128], {g}",
            "vmovdqu64 [{into} + 192], {h}",
            "add {into}, 256",
            "3:",
            "add {from}, 256",
            "dec {left}",
            "jnz 2b",
            "vbroadcasti32x4 {k}, [{near}]",
            "vpclmulqdq {t}, {a}, {k}, 0",
            "vpclmulqdq {a}, {a}, {k}, 17",
            "vpternlogq {b}, {t}, {a}, 150",
            "vpclmulqdq {t}, {b}, {k}, 0",
            "vpclmulqdq {b}, {b}, {k}, 17",
            "vpternlogq {c}, {t}, {b}, 150",
            "vpclmulqdq {t}, {c}, {k}, 0",
            "vpclmulqdq {c}, {c}, {k}, 17",
            "vpternlogq {d}, {t}, {c}, 150",
            "vmovdqu64 [{folded}], {d}",
            far = in(reg) DISTANCE_256.as_ptr(),
            near = in(reg) DISTANCE_64.as_ptr(),
            remainder = in(reg) remainder,
            from = inout(reg) from => _,
            into = inout(reg) into => _,
            left = inout(reg) steps => _,
            folded = in(reg) folded.as_mut_ptr(),
            k = out(zmm_reg) _,
            first = out(xmm_reg) _,
            a = out(zmm_reg) _,
            b = out(zmm_reg) _,
            c = out(zmm_reg) _,
            d = out(zmm_reg) _,
            e = out(zmm_reg) _,
            f = out(zmm_reg) _,
            g = out(zmm_reg) _,
            h = out(zmm_reg) _,
            t = out(zmm_reg) _,
            u = out(zmm_reg) _,
            options(nostack),
        );
    }
    // The code that follows may use SSE without AVX.
    _mm256_zeroupper();
    folded.iter().fold(0, |remainder, bytes| _mm_crc32_u64(remainder, *bytes)) as u32
}

/// Words of each of three streams: the instruction takes three cycles, and one
/// can begin every cycle. The longer, the fewer combinations.
const LONG: usize = 256;
const SHORT: usize = 32;

/// # Safety
/// As for [`remainder`], for so many words; `into` is null unless they are
/// copied.
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn streams<const COPY: bool>(remainder: u32, from: *const u64, into: *mut u8, count: usize) -> u32 {
    let (mut remainder, mut done) = (u64::from(remainder), 0);
    // SAFETY: these words are among those of the caller.
    unsafe {
        while count - done >= 3 * LONG {
            remainder = three::<COPY, LONG>(remainder, from.add(done), into.wrapping_add(8 * done));
            done += 3 * LONG;
        }
        while count - done >= 3 * SHORT {
            remainder = three::<COPY, SHORT>(remainder, from.add(done), into.wrapping_add(8 * done));
            done += 3 * SHORT;
        }
        while done < count {
            let bytes = loaded::<COPY>(from.add(done), into.wrapping_add(8 * done));
            remainder = _mm_crc32_u64(remainder, bytes);
            done += 1;
        }
    }
    remainder as u32
}

/// Three streams of `EACH` words, one behind the other.
///
/// # Safety
/// As for [`streams`], for three times as many words.
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn three<const COPY: bool, const EACH: usize>(remainder: u64, from: *const u64, into: *mut u8) -> u64 {
    let (mut first, mut second, mut third) = (remainder, 0, 0);
    for at in 0..EACH {
        // SAFETY: three words of the caller's.
        let [one, two, three] = [at, at + EACH, at + 2 * EACH]
            .map(|at| unsafe { loaded::<COPY>(from.add(at), into.wrapping_add(8 * at)) });
        first = _mm_crc32_u64(first, one);
        second = _mm_crc32_u64(second, two);
        third = _mm_crc32_u64(third, three);
    }
    // The instruction itself multiplies by x^32 and takes the remainder.
    let behind = |remainder: u64, power: u64| {
        let [remainder, power] = [remainder, power].map(|factor| _mm_cvtsi64_si128(factor.cast_signed()));
        _mm_cvtsi128_si64(_mm_clmulepi64_si128(remainder, power, 0)).cast_unsigned()
    };
    let far = const { power(128 * EACH as u32 - 33) };
    let near = const { power(64 * EACH as u32 - 33) };
    _mm_crc32_u64(0, behind(first, far) ^ behind(second, near)) ^ third
}

/// Loads a word, and copies it if requested.
///
/// # Safety
/// As for [`streams`], for this word.
#[inline]
unsafe fn loaded<const COPY: bool>(from: *const u64, into: *mut u8) -> u64 {
    // SAFETY: upheld by the caller.
    let bytes = unsafe { AtomicU64::from_ptr(from.cast_mut()) }.load(Relaxed);
    if COPY {
        // SAFETY: upheld by the caller.
        unsafe { into.cast::<u64>().write_unaligned(bytes) };
    }
    bytes
}
