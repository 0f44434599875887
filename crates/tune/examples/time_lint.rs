//! Time to lint 2000 settings:
//! `cargo run --release -p clearstream-tune --example time_lint`
#![allow(clippy::print_stdout, reason = "it is run for its figure")]

use std::{fmt::Write as _, time::Instant};

use clearstream_lint::MuteList;
use clearstream_schema::{BitRate, TimeSpan, tune::PathGoal};
use clearstream_tune::{Assumed, HostState, knowledge::Knowledge, lint};

/// Lines of the set.
const LINE_COUNT: usize = 2000;

fn main() {
    let known: Vec<&str> = {
        let mut names: Vec<&str> = Knowledge::embedded().keys().map(|key| key.name.as_str()).collect();
        names.sort_unstable();
        names
    };
    let mut text = String::new();
    for at in 0..LINE_COUNT {
        // One in four is known, one misspelt, one of another folder, one a slip.
        let name = known[at % known.len()];
        let _ = match at % 4 {
            0 => writeln!(text, "{name} = 4096 87380 268435456"),
            1 => writeln!(text, "{name}{at} = 1"),
            2 => writeln!(text, "net.ipv6.conf.eth{at}.accept_ra = 0"),
            _ => writeln!(text, "line {at} is no setting"),
        };
    }
    let goal = PathGoal { rate: BitRate(40_000_000_000), rtt: TimeSpan::from_millis(17), flow_count: 2 };
    let mut best = f64::INFINITY;
    let mut count = 0;
    for _ in 0..20 {
        let start = Instant::now();
        let assumed = Assumed { release: Some("6.12".to_owned()), ..Assumed::default() };
        let state = HostState::of_file("set.conf", &text, assumed);
        count = lint(&state, Some(&goal), &MuteList::default()).findings.len();
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("{LINE_COUNT} lines, {count} findings: {:.2} ms", best * 1e3);
}
