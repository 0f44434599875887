//! What the histogram of latencies costs storage's ranks: a loop of file operations as they have it, without the
//! histogram, and without reading the clock, in turns.
//!
//! Operations are on a file in memory, where they are shortest and the cost the largest share.

use std::{
    fmt::Write,
    fs::File,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use clearstream_storage::Latency;
use quanta::Instant;
use rustix::{
    fs::{AtFlags, Mode, OFlags, openat, statat, unlinkat},
    io::pread,
};

use crate::{
    error::BenchError,
    fingerprint,
    results::{range, spread},
};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# Histograms of storage operations";

/// Of the rate without the histogram.
const TARGET: f64 = 0.95;
/// Rounds for each pair that was requested: they are short.
const ROUNDS_PER_PAIR: u32 = 8;
/// Of one loop.
const DURATION: Duration = Duration::from_millis(50);
/// Operations between two looks at the clock that ends a loop.
const BATCH: u32 = 64;

const FILES: u64 = 10_000;

/// What a loop does around an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loop {
    /// Its latency is added to the histogram: what ranks do.
    Recorded,
    /// The clock is read, as for the end of a stonewall, and nothing recorded.
    Timed,
    /// The operation alone.
    Bare,
}

const LOOPS: [Loop; 3] = [Loop::Recorded, Loop::Timed, Loop::Bare];

/// An operation of streaming or of metadata.
#[derive(Debug, Clone, Copy)]
enum Operation {
    /// Of one file again and again.
    Stat,
    /// Of alternating files, whose names are made from their numbers, as in a phase of metadata.
    StatAlternating,
    Create,
    Read(usize),
}

const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::Stat, "stat of one file"),
    (Operation::StatAlternating, "stat of 10000 files, alternating"),
    (Operation::Create, "create, close and remove a file"),
    (Operation::Read(4 << 10), "pread of 4 KiB"),
    (Operation::Read(64 << 10), "pread of 64 KiB"),
    (Operation::Read(1 << 20), "pread of 1 MiB"),
];

/// A directory in memory with one file.
struct Place {
    directory: PathBuf,
    own: File,
    file: File,
}

impl Place {
    fn new() -> Result<Self, BenchError> {
        let directory = Path::new("/dev/shm").join(format!("clearstream-bench-{}", std::process::id()));
        let made = || {
            std::fs::create_dir(&directory)?;
            std::fs::write(directory.join("file"), vec![0x5a; 1 << 20])?;
            (0..FILES).try_for_each(|number| std::fs::write(directory.join(name(number)), ""))?;
            Ok((File::open(&directory)?, File::open(directory.join("file"))?))
        };
        let (own, file) = made().map_err(|source| BenchError::File { path: directory.clone(), source })?;
        Ok(Self { directory, own, file })
    }

    fn operate(&self, operation: Operation, name: &str, buffer: &mut [u8]) -> rustix::io::Result<()> {
        match operation {
            Operation::StatAlternating => statat(&self.own, name, AtFlags::SYMLINK_NOFOLLOW).map(drop),
            Operation::Stat => statat(&self.own, "file", AtFlags::SYMLINK_NOFOLLOW).map(drop),
            Operation::Create => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                drop(openat(&self.own, "new", flags, Mode::RUSR | Mode::WUSR)?);
                unlinkat(&self.own, "new", AtFlags::empty())
            }
            Operation::Read(bytes) => pread(self.file.as_fd(), &mut buffer[..bytes], 0).map(drop),
        }
    }

    /// Operations per second.
    fn rate(&self, operation: Operation, kind: Loop) -> rustix::io::Result<f64> {
        let mut buffer = vec![0; 1 << 20];
        let mut latency = Latency::default();
        let (begin, mut count, mut number) = (Instant::now(), 0.0, 0);
        loop {
            let mut now = Instant::now();
            for _ in 0..BATCH {
                let name = match operation {
                    Operation::StatAlternating => name(number % FILES),
                    _ => String::new(),
                };
                number += 1;
                if kind == Loop::Bare {
                    self.operate(operation, &name, &mut buffer)?;
                    continue;
                }
                // Transfers follow one another; before an operation on a name that name is made.
                let before = if matches!(operation, Operation::Read(_)) { now } else { Instant::now() };
                self.operate(operation, &name, &mut buffer)?;
                now = Instant::now();
                if kind == Loop::Recorded {
                    latency.add(now - before);
                } else {
                    std::hint::black_box(now - before);
                }
            }
            count += f64::from(BATCH);
            let elapsed = begin.elapsed();
            if elapsed >= DURATION {
                std::hint::black_box(&latency);
                return Ok(count / elapsed.as_secs_f64());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is in memory, and has the name of this process.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// As phases of metadata name files.
fn name(number: u64) -> String {
    format!("file.0.{number}")
}

/// Rates of the three loops, in their order.
type Round = [f64; 3];

/// Runs the rounds; returns this part of the page, also when it ended early.
pub(crate) fn compare(pairs: u32, command: &str, stop: &AtomicBool) -> (String, Result<(), BenchError>) {
    let mut measured: Vec<(&str, Vec<Round>)> = Vec::new();
    let mut all = || {
        let place = Place::new()?;
        for (operation, title) in OPERATIONS {
            let mut rounds = Vec::new();
            for number in 0..(pairs * ROUNDS_PER_PAIR) as usize {
                if stop.load(Ordering::Relaxed) {
                    return Err(BenchError::Interrupted);
                }
                rounds.push(round(&place, operation, number).map_err(|error| BenchError::Run {
                    line: title.to_owned(),
                    message: error.to_string(),
                })?);
            }
            println!("  {title}: {}", range(spread(rounds.iter().map(|round| round[0] / round[1])), 3));
            measured.push((title, rounds));
        }
        Ok(())
    };
    let outcome = all();
    (page(command, &measured, outcome.as_ref().err()), outcome)
}

/// Every loop once. Another one begins in each round.
fn round(place: &Place, operation: Operation, number: usize) -> rustix::io::Result<Round> {
    let mut round = [0.0; 3];
    for turn in 0..LOOPS.len() {
        let next = (turn + number) % LOOPS.len();
        round[next] = place.rate(operation, LOOPS[next])?;
    }
    Ok(round)
}

fn page(command: &str, measured: &[(&str, Vec<Round>)], ended: Option<&BenchError>) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. A loop of one file operation in memory by one thread, {} ms each: with its \
         latency in the histogram as the ranks of `storage` have it, with the clock read but nothing recorded, and \
         bare, taking turns in who begins. Thousand operations per second; medians with the least and the largest, \
         ratios of the loops of a round. Target: {TARGET} of the rate without the histogram.\n\n",
        DURATION.as_millis()
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    page.push_str(
        "| operation | rounds | with histogram | clock only | bare | to clock only | to bare | verdict |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for (title, rounds) in measured {
        let rate = |place: usize| range(spread(rounds.iter().map(|round| round[place] / 1e3)), 1);
        let ratio = |place: usize| spread(rounds.iter().map(|round| round[0] / round[place]));
        let verdicts = [1, 2].map(|place| if ratio(place).median >= TARGET { "met" } else { "missed" });
        let _ = writeln!(
            page,
            "| {title} | {} | {} | {} | {} | **{}** | **{}** | {}, {} |",
            rounds.len(),
            rate(0),
            rate(1),
            rate(2),
            range(ratio(1), 3),
            range(ratio(2), 3),
            verdicts[0],
            verdicts[1],
        );
    }
    page.push('\n');
    page.push_str(&fingerprint::table(&fingerprint::machine()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_below_the_target_is_missed() {
        let measured = [("stat", vec![[94.0, 95.0, 100.0], [96.0, 100.0, 104.0]])];
        let page = page("make bench", &measured, Some(&BenchError::Interrupted));
        assert!(
            page.contains("**0.975 (0.960 to 0.989)** | **0.932 (0.923 to 0.940)** | met, missed |"),
            "{page}"
        );
        assert!(page.contains("not complete"), "{page}");
    }

    #[test]
    fn every_operation_works_in_every_loop() {
        let place = Place::new().unwrap();
        for (operation, title) in OPERATIONS {
            for kind in LOOPS {
                let mut buffer = vec![0; 1 << 20];
                assert_eq!(place.operate(operation, &name(7), &mut buffer), Ok(()), "{title} {kind:?}");
            }
        }
        let directory = place.directory.clone();
        drop(place);
        assert!(!directory.exists());
    }
}
