//! Memory use of writing and reading is bounded by one line, not by the run.
//!
//! The full matrix of a 48-core host has 2304 trials of 300 one-second samples; here it has fewer samples, to
//! save time. `RECORD_SECONDS=300` uses all.
// The child reports to its parent over standard output.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]

use std::{fs, path::Path, process::Command};

use clearstream_record::synthetic::{Shape, clearstream_40ge};
use clearstream_schema::{flow::Interval, host::HostReport};
use tempfile::TempDir;

const CHILD: &str = "RECORD_MEMORY_CHILD";

/// Highest resident memory of this process, KiB (proc_pid_status(5): "VmHWM: Peak resident set size").
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn write_and_read(folder: &Path, shape: &Shape) -> (u64, u64) {
    let host = HostReport::default();
    let reader = clearstream_40ge(folder, &host, &host, shape).unwrap();
    let (mut trials, mut samples) = (0, 0);
    for trial in reader.trials().unwrap() {
        let trial = trial.unwrap();
        trials += 1;
        samples += reader
            .samples::<Interval>(&trial)
            .unwrap()
            .map(|interval| u64::from(interval.unwrap().goodput_bps > 0.0))
            .sum::<u64>();
    }
    (trials, samples)
}

/// Does nothing unless started by the test below, as a separate process.
#[test]
fn child() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let (size, seconds) = text.split_once(' ').unwrap();
    let shape = Shape {
        matrices: vec![size.parse().unwrap()],
        seconds: seconds.parse().unwrap(),
        ..Shape::default()
    };
    // Thousands of syncs measure the disk, not memory: the folder is in memory where possible.
    let folder = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let (trials, samples) = write_and_read(&folder.path().join("run"), &shape);
    println!("\nmeasured {trials} {samples} {}", peak_kib());
}

/// Trials, samples and peak memory (KiB) of a separate run.
fn measured(matrix: u32, seconds: u32) -> [u64; 3] {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{matrix} {seconds}"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line =
        text.lines().find_map(|line| line.strip_prefix("measured ")).unwrap_or_else(|| panic!("{text}"));
    let mut numbers = line.split(' ').map(|number| number.parse().unwrap());
    [(); 3].map(|()| numbers.next().unwrap())
}

#[test]
fn memory_grows_neither_with_trials_nor_with_samples() {
    let seconds = std::env::var("RECORD_SECONDS").map_or(2, |text| text.parse().unwrap());
    let small = measured(8, 2);
    let many_samples = measured(8, 40);
    let many_trials = measured(48, seconds);
    eprintln!("trials, samples, peak KiB: {small:?} {many_samples:?} {many_trials:?}");
    assert!(many_samples[1] > 15 * small[1], "{many_samples:?}");
    assert!(many_trials[0] > 2304, "{many_trials:?}");
    for found in [small, many_samples, many_trials] {
        assert!(found[2] < 32 << 10, "under 32 MiB: {found:?}");
        assert!(found[2] < small[2] + (4 << 10), "{found:?} beside {small:?}");
    }
}
