//! What `clearstream live` costs a flow of full rate on the same machine, in pairs.

use std::{
    fmt::Write,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
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
pub(crate) const TITLE: &str = "# Live beside a flow";

/// Of the flow alone.
const TARGET: f64 = 0.99;
/// Until it samples.
const START: Duration = Duration::from_millis(1200);

/// Goodput in Gb/s.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    beside: f64,
    alone: f64,
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
        let beside_first = pair % 2 == 0;
        match [beside_first, !beside_first].map(|is_beside| run(is_beside, seconds, stop)) {
            [Ok(first), Ok(second)] => {
                let (beside, alone) = if beside_first { (first, second) } else { (second, first) };
                println!(
                    "  pair {}: {beside:.1} beside live, {alone:.1} Gb/s alone ({:.3})",
                    pair + 1,
                    beside / alone
                );
                measured.push(Pair { beside, alone });
            }
            [Err(error), _] | [_, Err(error)] => {
                outcome = Err(error);
                break;
            }
        }
    }
    (page(command, seconds, &measured, outcome.as_ref().err()), outcome)
}

fn flow(seconds: u32) -> Command {
    let mut command = Command::new(program::path());
    command.args(["flow", "localhost", "--duration", &format!("{seconds}s"), "--warm-up", "500ms", "--json"]);
    command
}

fn live() -> Command {
    let mut command = Command::new(program::path());
    command.args(["live", "--lines"]);
    command
}

/// `live` until it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(is_beside: bool, seconds: u32, stop: &AtomicBool) -> Result<f64, BenchError> {
    if stop.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    let mut beside = live();
    beside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = |source| BenchError::Start { program: shown(&live()), source };
    let _running = is_beside.then(|| beside.spawn().map(Running).map_err(start)).transpose()?;
    // Both halves of a pair have the same pause.
    thread::sleep(START);
    let command = flow(seconds);
    let line = shown(&command);
    read(&output_of(command, seconds)?).map_err(|message| BenchError::Run { line, message })
}

fn read(output: &str) -> Result<f64, String> {
    let document: Value = serde_json::from_str(output).map_err(|error| format!("no JSON: {error}"))?;
    document["summary"]["goodput_bps"].as_f64().map(|bps| bps / 1e9).ok_or_else(|| "no goodput".to_owned())
}

fn page(command: &str, seconds: u32, pairs: &[Pair], ended: Option<&BenchError>) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. A flow of {seconds} s over loopback at the rate that the machine carries, \
         beside `live` with a sample each second and alone, one after the other, taking turns in who begins. \
         Goodput at the receiver; medians with the least and the largest. Target: {TARGET} of the flow alone.\n\n"
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    if !pairs.is_empty() {
        let ratio = spread(pairs.iter().map(|pair| pair.beside / pair.alone));
        let verdict = if ratio.median >= TARGET { "met" } else { "missed" };
        page.push_str("| pairs | beside live Gb/s | alone Gb/s | ratio | target |\n|---|---|---|---|---|\n");
        let _ = writeln!(
            page,
            "| {} | {} | {} | **{}** | {verdict} |\n",
            pairs.len(),
            range(spread(pairs.iter().map(|pair| pair.beside)), 1),
            range(spread(pairs.iter().map(|pair| pair.alone)), 1),
            range(ratio, 3),
        );
        let _ = writeln!(page, "```\n{}\n{}\n```\n", shown(&live()), shown(&flow(seconds)));
    }
    page.push_str(&fingerprint::table(&fingerprint::machine()));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_is_judged_by_the_median_of_the_ratios() {
        assert_eq!(read(r#"{"summary": {"goodput_bps": 2e10}}"#), Ok(20.0));
        assert!(read("{}").is_err() && read("").is_err());
        let pairs = [(39.0, 40.0), (39.8, 40.0), (41.0, 40.0)].map(|(beside, alone)| Pair { beside, alone });
        let met = page("make bench", 5, &pairs, None);
        assert!(met.contains("**0.995 (0.975 to 1.025)** | met |"), "{met}");
        let missed = page("make bench", 5, &pairs[..1], Some(&BenchError::Interrupted));
        assert!(missed.contains("| missed |") && missed.contains("not complete"), "{missed}");
    }
}
