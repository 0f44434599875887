//! Work: a loop of counted iterations, and its time alone.

use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Instant,
};

use super::EngineError;

/// Iterations between two checks of the stop flag: some milliseconds.
const CHUNK: u64 = 1 << 22;
/// Parts in which the time alone is measured.
const PARTS: u64 = 8;

/// Work of one thread: every step needs the last one.
#[derive(Debug)]
pub(super) struct Work {
    value: u64,
}

impl Work {
    pub(super) fn new() -> Self {
        Self { value: 1 }
    }

    /// Works for so many iterations.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    #[inline]
    pub(super) fn run(&mut self, iterations: u64, stop: &AtomicBool) -> Result<(), EngineError> {
        let mut left = iterations;
        loop {
            let part = left.min(CHUNK);
            self.value = iterate(part, self.value);
            left -= part;
            if left == 0 {
                return Ok(());
            }
            if stop.load(Relaxed) {
                return Err(EngineError::Stopped);
            }
        }
    }

    /// Time of `cycles` times `iterations` without messages, in nanoseconds: by
    /// the fastest of some equal parts, since what interrupts the others is no
    /// part of the work.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub(super) fn alone_ns(
        &mut self,
        cycles: u64,
        iterations: u64,
        stop: &AtomicBool,
    ) -> Result<u64, EngineError> {
        let parts = cycles.clamp(1, PARTS);
        let mut fastest = f64::INFINITY;
        for part in 0..parts {
            let count = cycles / parts + u64::from(part < cycles % parts);
            let begun = Instant::now();
            for _ in 0..count {
                self.run(iterations, stop)?;
            }
            fastest = fastest.min(begun.elapsed().as_nanos() as f64 / count.max(1) as f64);
        }
        Ok((fastest * cycles as f64) as u64)
    }
}

/// A linear congruential generator (Knuth, MMIX). The compiler can neither
/// remove nor shorten the loop: it does not know the constants, and each step
/// needs the last.
#[inline(never)]
fn iterate(iterations: u64, value: u64) -> u64 {
    let (multiplier, increment) = black_box((6_364_136_223_846_793_005_u64, 1_442_695_040_888_963_407_u64));
    let mut value = value;
    for _ in 0..iterations {
        value = value.wrapping_mul(multiplier).wrapping_add(increment);
    }
    black_box(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_iteration_is_a_step_of_the_generator() {
        // Three steps by hand: v * a + c modulo 2^64, with v = 1, 7806831264735756412, ...
        assert_eq!(iterate(0, 1), 1);
        assert_eq!(iterate(1, 1), 7_806_831_264_735_756_412);
        assert_eq!(iterate(2, 1), 9_396_908_728_118_811_419);
        assert_eq!(iterate(3, 1), iterate(1, 9_396_908_728_118_811_419));
        let stop = AtomicBool::new(false);
        let mut work = Work::new();
        work.run(CHUNK + 5, &stop).unwrap();
        assert_eq!(work.value, iterate(CHUNK + 5, 1), "chunks change nothing");
    }

    #[test]
    fn a_stop_ends_long_work_and_short_work_is_done() {
        let stop = AtomicBool::new(true);
        assert!(matches!(Work::new().run(u64::MAX, &stop), Err(EngineError::Stopped)));
        Work::new().run(CHUNK, &stop).unwrap();
        assert!(matches!(Work::new().alone_ns(1, u64::MAX, &stop), Err(EngineError::Stopped)));
    }

    #[test]
    fn the_time_alone_does_all_the_work() {
        let stop = AtomicBool::new(false);
        for cycles in [1, 7, 8, 19] {
            let mut work = Work::new();
            assert!(work.alone_ns(cycles, 1000, &stop).unwrap() > 0);
            assert_eq!(work.value, iterate(cycles * 1000, 1), "{cycles} cycles");
        }
    }
}
