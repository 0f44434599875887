//! Speed of CRC32C on one core, with every set of instructions that
//! this processor has: of registered memory, of a copy of it made in the
//! same pass, and of plain bytes. 10^9 bytes per second, medians of rounds that
//! take turns, with the least and the largest.
//!
//! `cargo run --release -p clearstream-iwarp --example crc_speed [BYTES...]`
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::hint::black_box;
use std::time::Instant;

use clearstream_iwarp::memory::{Access, Instructions, MemoryTable, Region, Span, limit_instructions};
use clearstream_iwarp::mpa::Crc;
use clearstream_iwarp::work::Segment;

const ROUNDS: usize = 15;
/// Bytes of a round, roughly.
const AMOUNT: usize = 64 << 20;

/// What is read, and whether it is copied.
const VARIANTS: [&str; 3] = ["registered", "registered, copied", "plain"];

fn once(variant: usize, span: &Span, plain: &[u8], copy: &mut Vec<u8>, crc: &mut Crc) {
    match variant {
        0 => span.crc32c(crc).unwrap(),
        1 => {
            copy.clear();
            span.append_checked(copy, crc).unwrap();
        }
        _ => crc.update(plain),
    }
}

fn measure(length: usize) {
    let region = Region::new(length).unwrap();
    let plain: Vec<u8> = (0..length).map(|at| (at.wrapping_mul(31) >> 3) as u8).collect();
    region.write(0, &plain);
    let table = MemoryTable::new();
    let domain = table.allocate_domain();
    let stag = table.register(domain, region.memory(), Access::LOCAL_WRITE, 1).unwrap();
    let segment = Segment { stag, address: region.address(), length: length as u32 };
    let span = table.local(domain, segment, false).unwrap();
    let expected = Crc::of(&plain);
    let mut copy = Vec::with_capacity(length);
    let kinds: Vec<Instructions> =
        Instructions::ALL.into_iter().filter(|instructions| instructions.is_available()).collect();
    let mut figures = vec![[const { Vec::<f64>::new() }; VARIANTS.len()]; kinds.len()];
    for _ in 0..ROUNDS {
        for (instructions, row) in kinds.iter().zip(&mut figures) {
            limit_instructions(*instructions);
            for (variant, figures) in row.iter_mut().enumerate() {
                let times = (AMOUNT / length).max(1);
                let mut crc = Crc::new();
                let began = Instant::now();
                for _ in 0..times {
                    crc.restart();
                    once(variant, &span, black_box(&plain), &mut copy, &mut crc);
                    assert_eq!(crc.finish(), expected);
                }
                figures.push((times * length) as f64 / began.elapsed().as_secs_f64() / 1e9);
            }
        }
    }
    for (instructions, row) in kinds.iter().zip(&mut figures) {
        for (variant, figures) in VARIANTS.iter().zip(row) {
            figures.sort_by(f64::total_cmp);
            println!(
                "{length:>8} bytes  {instructions:<5?} {variant:<20} {:>6.1} ({:.1} to {:.1}) GB/s",
                figures[ROUNDS / 2],
                figures[0],
                figures[ROUNDS - 1]
            );
        }
    }
}

fn main() {
    let lengths: Vec<usize> = std::env::args().skip(1).filter_map(|length| length.parse().ok()).collect();
    for length in if lengths.is_empty() { vec![1024, 65_500, 1 << 20] } else { lengths } {
        measure(length.max(1));
    }
}
