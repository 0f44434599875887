//! What the lab's delay line costs: a flow over 1650 km without a rate limit beside the same
//! flow over a bare veth pair, in pairs.

use std::{
    fmt::Write,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::Value;

use crate::{
    error::BenchError,
    fingerprint, program,
    results::{range, spread},
    run::output_of,
    tool::shown,
};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# The lab's delay line";

const BARE: &str = "two-hosts";
const DELAYED: &str = "wan-1650km-unlimited";
/// Of the flow over bare veth.
const TARGET: f64 = 0.5;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outcome {
    gbps: f64,
    /// Longest smoothed round trip of the flow.
    round_trip_ms: f64,
}

/// Runs the pairs; returns this part of the page, also when it ended early.
pub(crate) fn compare(
    pairs: u32,
    seconds: u32,
    command: &str,
    stop: &AtomicBool,
) -> (String, Result<(), BenchError>) {
    let mut measured = Vec::new();
    let mut outcome = Ok(());
    for pair in 0..pairs {
        let order = if pair % 2 == 0 { [DELAYED, BARE] } else { [BARE, DELAYED] };
        match order.map(|lab| run(lab, seconds, stop)) {
            [Ok(first), Ok(second)] => {
                let (delayed, bare) = if pair % 2 == 0 { (first, second) } else { (second, first) };
                println!(
                    "  pair {}: {:.1} over the delay line, {:.1} Gb/s without ({:.2})",
                    pair + 1,
                    delayed.gbps,
                    bare.gbps,
                    delayed.gbps / bare.gbps
                );
                measured.push((delayed, bare));
            }
            [Err(error), _] | [_, Err(error)] => {
                outcome = Err(error);
                break;
            }
        }
    }
    (page(command, seconds, &measured, outcome.as_ref().err()), outcome)
}

fn line(lab: &str, seconds: u32) -> Command {
    let mut command = Command::new(program::path());
    command.args(["flow", "--lab", lab, "--duration", &format!("{seconds}s"), "--warm-up", "1s"]);
    command.args(["--congestion-control", "cubic", "--json"]);
    command
}

fn run(lab: &str, seconds: u32, stop: &AtomicBool) -> Result<Outcome, BenchError> {
    if stop.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    let command = line(lab, seconds);
    let line = shown(&command);
    read(&output_of(command, seconds)?).map_err(|message| BenchError::Run { line, message })
}

fn read(output: &str) -> Result<Outcome, String> {
    let document: Value = serde_json::from_str(output).map_err(|error| format!("no JSON: {error}"))?;
    let gbps = document["summary"]["goodput_bps"].as_f64().ok_or("no goodput")? / 1e9;
    let intervals = document["intervals"].as_array().ok_or("no intervals")?;
    let round_trips = intervals.iter().filter_map(|interval| interval["directions"][0]["rtt_ns"].as_f64());
    Ok(Outcome { gbps, round_trip_ms: round_trips.fold(0.0, f64::max) / 1e6 })
}

fn page(command: &str, seconds: u32, pairs: &[(Outcome, Outcome)], ended: Option<&BenchError>) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. One flow of {seconds} s over the lab `{DELAYED}` (8.5 ms in each direction, held by \
         the lab's delay line) and over the lab `{BARE}` (a veth pair), one after the other, taking turns in who \
         begins. Goodput at the receiver; medians with the least and the largest. Target: {TARGET} of the bare veth \
         pair.\n\n"
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    if !pairs.is_empty() {
        let ratio = spread(pairs.iter().map(|(delayed, bare)| delayed.gbps / bare.gbps));
        let verdict = if ratio.median >= TARGET { "met" } else { "missed" };
        page.push_str("| pairs | delay line Gb/s | bare veth Gb/s | ratio | longest round trip over the line, ms | target |\n|---|---|---|---|---|---|\n");
        let _ = writeln!(
            page,
            "| {} | {} | {} | **{}** | {} | {verdict} |\n",
            pairs.len(),
            range(spread(pairs.iter().map(|(delayed, _)| delayed.gbps)), 1),
            range(spread(pairs.iter().map(|(_, bare)| bare.gbps)), 1),
            range(ratio, 2),
            range(spread(pairs.iter().map(|(delayed, _)| delayed.round_trip_ms)), 1),
        );
        let lines = [line(DELAYED, seconds), line(BARE, seconds)].map(|command| shown(&command));
        let _ = writeln!(page, "```\n{}\n```\n", lines.join("\n"));
    }
    page.push_str(&fingerprint::table(&fingerprint::machine()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read() {
        let document = r#"{"summary": {"goodput_bps": 2e10}, "intervals": [
            {"directions": [{"rtt_ns": 17000000}]}, {"directions": [{"rtt_ns": 21500000}]}]}"#;
        assert_eq!(read(document), Ok(Outcome { gbps: 20.0, round_trip_ms: 21.5 }));
        assert!(read("{}").is_err() && read("").is_err());
    }

    #[test]
    fn the_ratio_is_of_pairs_and_the_target_is_judged_by_its_median() {
        let outcome = |gbps| Outcome { gbps, round_trip_ms: 20.0 };
        let pairs = [(10.0, 40.0), (30.0, 40.0), (24.0, 40.0)];
        let page_of = |pairs: &[(Outcome, Outcome)]| page("make bench", 5, pairs, None);
        let met = page_of(&pairs.map(|(delayed, bare)| (outcome(delayed), outcome(bare))));
        assert!(met.contains("**0.60 (0.25 to 0.75)**") && met.contains("| met |"), "{met}");
        let missed = page_of(&[(outcome(10.0), outcome(40.0))]);
        assert!(missed.contains("| missed |"), "{missed}");
        let early = page("make bench", 5, &[], Some(&BenchError::Interrupted));
        assert!(early.contains("not complete") && !early.contains("ratio |"), "{early}");
    }
}
