//! Integer arithmetic of the BPF program against the published formulas in
//! floating point, implemented here from the authors' description, independent
//! of the C code.

use std::{
    cell::RefCell,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use proptest::prelude::*;

const ONE: f64 = 1024.0;

/// Increase function f of the draft; time in seconds.
fn increase(delta: f64) -> f64 {
    if delta <= 1.0 { 1.0 } else { 1.0 + 10.0 * (delta - 1.0) + ((delta - 1.0) / 2.0).powi(2) }
}

/// Growth in segments per round trip, with RTT scaling to 100 ms.
fn alpha(delta: f64, beta: f64, rtt: f64) -> f64 {
    2.0 * (1.0 - beta) * (increase(delta) / (0.1 / rtt).clamp(0.5, 10.0)).max(1.0)
}

/// Adaptive back-off with the bandwidth test.
fn beta(rate_before: f64, rate: f64, rtt_min: f64, rtt_max: f64) -> f64 {
    if ((rate - rate_before) / rate_before).abs() > 0.2 { 0.5 } else { (rtt_min / rtt_max).clamp(0.5, 0.8) }
}

/// The C code of the program, compiled for this machine.
struct Program {
    child: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
    _folder: tempfile::TempDir,
}

impl Program {
    fn start() -> RefCell<Self> {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("arithmetic");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/arithmetic.c");
        let compiler = Command::new("cc")
            .args(["-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover"])
            .arg("-o")
            .args([&program, &source])
            .status()
            .unwrap();
        assert!(compiler.success());
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let requests = child.stdin.take().unwrap();
        let responses = BufReader::new(child.stdout.take().unwrap());
        RefCell::new(Self { child, requests, responses, _folder: folder })
    }

    fn query(&mut self, what: &str, numbers: [u64; 4]) -> Vec<u64> {
        let [a, b, c, d] = numbers;
        writeln!(self.requests, "{what} {a} {b} {c} {d}").unwrap();
        let mut line = String::new();
        self.responses.read_line(&mut line).unwrap();
        line.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    fn ratio(&mut self, what: &str, numbers: [u64; 4]) -> f64 {
        self.query(what, numbers)[0] as f64 / ONE
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Converts to the program's fixed point.
fn fixed(ratio: f64) -> u64 {
    (ratio * ONE) as u64
}

#[test]
fn the_increase_is_that_of_the_draft() {
    let program = Program::start();
    // By hand: f(2 s) = 1 + 10 + 0.25; f(3 s) = 1 + 20 + 1; f(11 s) = 1 + 100 + 25; f(101 s) = 1 + 1000 + 2500.
    for (seconds, expected) in [(0, 1.0), (1, 1.0), (2, 11.25), (3, 22.0), (11, 126.0), (101, 3501.0)] {
        let found = program.borrow_mut().ratio("increase", [seconds * 1_000_000, 0, 0, 0]);
        assert!((found - expected).abs() < 0.01, "f({seconds} s) is {found}, not {expected}");
    }
    // No discontinuity at the end of the period with standard TCP's increase.
    let found = program.borrow_mut().ratio("increase", [1_001_000, 0, 0, 0]);
    assert!((1.0..1.02).contains(&found), "{found}");
}

#[test]
fn a_window_is_regained_in_the_time_the_formula_gives() {
    let program = Program::start();
    // The integral of f from 0 to t is W * 100 ms / 2 where RTT scaling is not
    // clamped: 1 + d + 5 d^2 + d^3 / 12 with d = t - 1 s, whatever beta is.
    // Windows of 19, 40 and 100 Gb/s at 17 ms, 100 Gb/s at 100 ms, 400 Gb/s at
    // 50 ms in segments of 8948 bytes, solved by hand to 0.1 s.
    let paths =
        [(4512, 17, 7.3), (9499, 17, 10.0), (23748, 17, 14.8), (139_696, 100, 31.4), (279_392, 50, 41.7)];
    for (window, rtt_ms, expected) in paths {
        for beta in [0.5, 0.65, 0.8] {
            let request = [window, rtt_ms * 1000, fixed(beta), 0];
            let found = program.borrow_mut().query("recovery", request)[0] as f64 / 1e6;
            assert!(
                (found - expected).abs() < 0.05 + 2.5 * rtt_ms as f64 / 1000.0 + expected * 0.01,
                "{window} segments at {rtt_ms} ms, beta {beta}: {found} s, not {expected} s"
            );
        }
    }
}

#[test]
fn the_back_off_follows_round_trips_and_halves_when_the_rate_changed() {
    let program = Program::start();
    let beta = |rate_before, rate, rtt_min, rtt_max| {
        program.borrow_mut().ratio("beta", [rate_before, rate, rtt_min, rtt_max])
    };
    // (rates before and now, round trips least and most) and beta
    for (case, expected) in [
        ((1000, 1000, 17_000, 17_000), 0.8),   // no queue: not above 0.8
        ((1000, 1000, 17_000, 25_500), 0.667), // a queue of half the path
        ((1000, 1000, 17_000, 51_000), 0.5),   // a long queue: not below 0.5
        ((1000, 1200, 17_000, 17_000), 0.8),   // 20 % is not more than 20 %
        ((1000, 1201, 17_000, 17_000), 0.5),
        ((1000, 800, 17_000, 17_000), 0.8),
        ((1000, 799, 17_000, 17_000), 0.5),
        ((0, 1000, 17_000, 17_000), 0.5), // the first event: nothing to compare with
        ((1000, 1000, 0, 0), 0.5),        // no round trip measured yet
    ] {
        let found = beta(case.0, case.1, case.2, case.3);
        assert!((found - expected).abs() < 0.002, "{case:?}: {found}, not {expected}");
    }
}

#[test]
fn small_windows_keep_two_segments_and_fractions_are_not_lost() {
    let program = Program::start();
    assert_eq!(program.borrow_mut().query("backoff", [100, 512, 0, 0]), [50]);
    assert_eq!(program.borrow_mut().query("backoff", [3, 512, 0, 0]), [2], "RFC 5681 section 3.1");
    // alpha = 0.4 at a window of 1000: a segment after 2.5 round trips.
    let (mut window, mut credit, mut rounds) = (1000, 0, 0);
    while window == 1000 {
        for _ in 0..1000 {
            let response = program.borrow_mut().query("growth", [window, 1, 410, credit]);
            credit = response[0];
            window += response[1];
        }
        rounds += 1;
    }
    assert_eq!((window, rounds), (1001, 3));
}

#[test]
fn integers_agree_with_the_model_everywhere() {
    let program = Program::start();
    // Ten minutes, a round trip of 1 us to 10 s.
    let inputs = (
        0u64..600_000_000,
        0.5f64..=0.8,
        1u64..10_000_000,
        0u64..8_000_000,
        0u64..8_000_000,
        1u64..10_000_000,
    );
    proptest!(|((delta_us, back_off, rtt_us, rate_before, rate, rtt_max_us) in inputs)| {
        let mut program = program.borrow_mut();
        let fixed_beta = fixed(back_off);
        let found = program.ratio("alpha", [delta_us, fixed_beta, rtt_us, 0]);
        let expected = alpha(delta_us as f64 / 1e6, fixed_beta as f64 / ONE, rtt_us as f64 / 1e6);
        // Milliseconds and 1/1024 are what the integers resolve.
        prop_assert!((found - expected).abs() <= 0.05 + expected * 0.003, "alpha {found}, not {expected}");

        let rtt_min_us = rtt_us.min(rtt_max_us);
        let found = program.ratio("beta", [rate_before, rate, rtt_min_us, rtt_max_us]);
        let [rate_before, rate] = [rate_before, rate].map(|rate| rate as f64);
        let expected = beta(rate_before.max(f64::MIN_POSITIVE), rate, rtt_min_us as f64, rtt_max_us as f64);
        prop_assert!((found - expected).abs() < 0.002, "beta {found}, not {expected}");
    });
}
