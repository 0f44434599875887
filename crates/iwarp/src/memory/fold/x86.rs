//! The instructions: carry-less multiplication of 64 bytes at a time, or of 16
//! beside the CRC32C of eight.

use std::{
    arch::x86_64::{
        __m128i, _MM_HINT_T0, _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi32_si128, _mm_cvtsi64_si128,
        _mm_cvtsi128_si64, _mm_prefetch, _mm_set_epi64x, _mm_storeu_si128, _mm_unpackhi_epi64, _mm_xor_si128,
        _mm256_zeroupper,
    },
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::Instructions;

/// Multipliers of the halves of 16 bytes by x^(8 d), for a distance of d bytes:
/// x^(8 d + 31) and x^(8 d - 33) modulo the polynomial.
const DISTANCE_256: [u64; 2] = [power(8 * 256 + 31), power(8 * 256 - 33)];
const DISTANCE_64: [u64; 2] = [power(8 * 64 + 31), power(8 * 64 - 33)];
const DISTANCE_16: [u64; 2] = [power(8 * 16 + 31), power(8 * 16 - 33)];

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

/// Rounds of [`fused`]. The longer, the fewer combinations; one of the long ones is nearly the payload of a frame of
/// 9000 bytes.
const LONG: usize = 63;
const SHORT: usize = 14;
/// Words of each of three streams where that is too long.
const REST: usize = 32;

/// # Safety
/// As for [`remainder`], for so many words; `into` is null unless they are
/// copied.
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn streams<const COPY: bool>(remainder: u32, from: *const u64, into: *mut u8, count: usize) -> u32 {
    let (mut remainder, mut done) = (u64::from(remainder), 0);
    // SAFETY: these words are among those of the caller.
    unsafe {
        while count - done >= fused_count(LONG) {
            remainder = fused::<COPY, LONG>(remainder, from.add(done), into.wrapping_add(8 * done));
            done += fused_count(LONG);
        }
        while count - done >= fused_count(SHORT) {
            remainder = fused::<COPY, SHORT>(remainder, from.add(done), into.wrapping_add(8 * done));
            done += fused_count(SHORT);
        }
        while count - done >= 3 * REST {
            remainder = three::<COPY, REST>(remainder, from.add(done), into.wrapping_add(8 * done));
            done += 3 * REST;
        }
        while done < count {
            let bytes = loaded::<COPY>(from.add(done), into.wrapping_add(8 * done));
            remainder = _mm_crc32_u64(remainder, bytes);
            done += 1;
        }
    }
    remainder as u32
}

/// Distance of a store to the line that is fetched for a later one.
const AHEAD_BYTES: usize = 512;

/// Words of [`fused`].
const fn fused_count(rounds: usize) -> usize {
    8 * (rounds + 1) + 9 * rounds
}

/// 64 bytes that are folded, and three words of each of three streams behind all of those, in every round: the
/// multiplication and the CRC instruction are of different execution units, and one of each can begin every cycle.
///
/// # Safety
/// As for [`streams`], for [`fused_count`] of the rounds.
#[target_feature(enable = "sse4.2,pclmulqdq")]
unsafe fn fused<const COPY: bool, const ROUNDS: usize>(
    remainder: u64,
    from: *const u64,
    into: *mut u8,
) -> u64 {
    let each = 3 * ROUNDS;
    let behind_folded = 8 * (ROUNDS + 1);
    let (streams_from, streams_into) =
        (from.wrapping_add(behind_folded), into.wrapping_add(8 * behind_folded));
    let [mut first, mut second, mut third] = [0; 3];
    // SAFETY: bytes and words of the caller's.
    let mut folded = unsafe { four_loaded::<COPY>(from, into) };
    folded[0] = _mm_xor_si128(folded[0], _mm_cvtsi32_si128(remainder as i32));
    for round in 0..ROUNDS {
        // SAFETY: as above.
        let next =
            unsafe { four_loaded::<COPY>(from.add(8 * (round + 1)), into.wrapping_add(64 * (round + 1))) };
        for (folded, next) in folded.iter_mut().zip(next) {
            *folded = _mm_xor_si128(fold(*folded, DISTANCE_64), next);
        }
        if COPY {
            // Measured: copies of more than the L1 cache are a third faster with it (`crc_speed`, 65500 bytes).
            let ahead = [into.wrapping_add(64 * round), streams_into.wrapping_add(24 * round)];
            let [second, third] = [1, 2].map(|stream| ahead[1].wrapping_add(8 * each * stream));
            for line in [ahead[0], ahead[1], second, third] {
                _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(AHEAD_BYTES).cast());
            }
        }
        for at in 3 * round..3 * round + 3 {
            // SAFETY: as above.
            let [one, two, three] = [at, at + each, at + 2 * each]
                .map(|at| unsafe { loaded::<COPY>(streams_from.add(at), streams_into.wrapping_add(8 * at)) });
            first = _mm_crc32_u64(first, one);
            second = _mm_crc32_u64(second, two);
            third = _mm_crc32_u64(third, three);
        }
    }
    let [a, b, c, d] = folded;
    let b = _mm_xor_si128(fold(a, DISTANCE_16), b);
    let c = _mm_xor_si128(fold(b, DISTANCE_16), c);
    let d = _mm_xor_si128(fold(c, DISTANCE_16), d);
    let low = _mm_cvtsi128_si64(d).cast_unsigned();
    let high = _mm_cvtsi128_si64(_mm_unpackhi_epi64(d, d)).cast_unsigned();
    let before = _mm_crc32_u64(_mm_crc32_u64(0, low), high);
    let powers = const { [power_behind(9 * ROUNDS), power_behind(6 * ROUNDS), power_behind(3 * ROUNDS)] };
    let sum = behind(before, powers[0]) ^ behind(first, powers[1]) ^ behind(second, powers[2]);
    _mm_crc32_u64(0, sum) ^ third
}

/// Moves 16 bytes on by a distance.
///
/// # Safety
/// The processor has the instructions.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn fold(bytes: __m128i, distance: [u64; 2]) -> __m128i {
    let by = _mm_set_epi64x(distance[1].cast_signed(), distance[0].cast_signed());
    _mm_xor_si128(_mm_clmulepi64_si128(bytes, by, 0), _mm_clmulepi64_si128(bytes, by, 17))
}

/// The remainder multiplied by a power, not reduced: the CRC instruction itself multiplies by x^32 and does that.
///
/// # Safety
/// The processor has the instructions.
#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn behind(remainder: u64, power: u64) -> u64 {
    let [remainder, power] = [remainder, power].map(|factor| _mm_cvtsi64_si128(factor.cast_signed()));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128(remainder, power, 0)).cast_unsigned()
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
    let [far, near] = const { [power_behind(2 * EACH), power_behind(EACH)] };
    _mm_crc32_u64(0, behind(first, far) ^ behind(second, near)) ^ third
}

/// Power for [`behind`] so many words.
const fn power_behind(count: usize) -> u64 {
    power(64 * count as u32 - 33)
}

/// Loads 64 bytes, and copies them if requested. Each word is loaded atomically
/// (as in [`super::super::atomic_copy`]).
///
/// # Safety
/// As for [`streams`], for these bytes.
#[inline]
#[target_feature(enable = "sse4.2")]
unsafe fn four_loaded<const COPY: bool>(from: *const u64, into: *mut u8) -> [__m128i; 4] {
    let (a, b, c, d): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: reads the bytes, and nothing else.
    unsafe {
        std::arch::asm!(
            "movdqu {a}, [{from}]",
            "movdqu {b}, [{from} + 16]",
            "movdqu {c}, [{from} + 32]",
            "movdqu {d}, [{from} + 48]",
            from = in(reg) from,
            a = out(xmm_reg) a,
            b = out(xmm_reg) b,
            c = out(xmm_reg) c,
            d = out(xmm_reg) d,
            options(nostack, readonly, preserves_flags),
        );
    }
    let loaded = [a, b, c, d];
    if COPY {
        for (at, bytes) in loaded.into_iter().enumerate() {
            // SAFETY: upheld by the caller.
            unsafe { _mm_storeu_si128(into.add(16 * at).cast(), bytes) };
        }
    }
    loaded
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
