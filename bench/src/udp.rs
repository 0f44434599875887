//! UDP as fast as it goes, over loopback: what arrives and what is lost, beside iperf3 with
//! segmentation and receive offload (`--gsro`), in pairs.

use std::{
    fmt::Write,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::Value;

use crate::{
    error::BenchError,
    fingerprint, program,
    results::{range, spread},
    run::{Running, output_of},
    tool::shown,
};

/// Heading of this part of the page.
pub(crate) const TITLE: &str = "# UDP";

/// Time for iperf3's server to start listening.
const SETTLE: Duration = Duration::from_millis(500);

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Outcome {
    /// At the receiver.
    gbps: f64,
    loss_percent: f64,
}

/// Runs the pairs; returns this part of the page, also when it ended early.
pub(crate) fn compare(
    pairs: u32,
    seconds: u32,
    port: u16,
    command: &str,
    stop: &AtomicBool,
) -> (String, Result<(), BenchError>) {
    let mut measured = Vec::new();
    let mut outcome = Ok(());
    for pair in 0..pairs {
        let runs = if pair % 2 == 0 {
            ours(seconds, stop).and_then(|ours| Ok((ours, peer(seconds, port, stop)?)))
        } else {
            peer(seconds, port, stop).and_then(|peer| Ok((ours(seconds, stop)?, peer)))
        };
        match runs {
            Ok((ours, peer)) => {
                println!(
                    "  pair {}: {:.1} Gb/s with {:.1} % lost, iperf3 {:.1} Gb/s with {:.1} % lost",
                    pair + 1,
                    ours.gbps,
                    ours.loss_percent,
                    peer.gbps,
                    peer.loss_percent
                );
                measured.push((ours, peer));
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
    }
    (page(seconds, port, command, &measured, outcome.as_ref().err()), outcome)
}

/// Whether the iperf3 in PATH has the option.
pub(crate) fn peer_is_current() -> bool {
    Command::new("iperf3")
        .arg("--help")
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("--gsro"))
}

fn our_line(seconds: u32) -> Command {
    let mut command = Command::new(program::path());
    command.args(["flow", "localhost", "--protocol", "udp", "--duration", &format!("{seconds}s"), "--json"]);
    command
}

fn ours(seconds: u32, stop: &AtomicBool) -> Result<Outcome, BenchError> {
    stopped(stop)?;
    let command = our_line(seconds);
    let line = shown(&command);
    read_ours(&output_of(command, seconds)?).map_err(|message| BenchError::Run { line, message })
}

fn peer_line(seconds: u32, port: u16) -> Command {
    let mut command = Command::new("iperf3");
    command.args(["-c", "127.0.0.1", "-p", &port.to_string(), "-u", "-b", "0", "--gsro"]);
    command.args(["-t", &seconds.to_string(), "-O", "1", "-J"]);
    command
}

fn peer(seconds: u32, port: u16, stop: &AtomicBool) -> Result<Outcome, BenchError> {
    stopped(stop)?;
    let mut server = Command::new("iperf3");
    server.args(["-s", "-1", "-p", &port.to_string()]);
    let _server = Running::start(server)?;
    std::thread::sleep(SETTLE);
    let command = peer_line(seconds, port);
    let line = shown(&command);
    read_peer(&output_of(command, seconds)?).map_err(|message| BenchError::Run { line, message })
}

fn stopped(stop: &AtomicBool) -> Result<(), BenchError> {
    if stop.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
}

fn document(output: &str) -> Result<Value, String> {
    serde_json::from_str(output).map_err(|error| format!("no JSON: {error}"))
}

fn read_ours(output: &str) -> Result<Outcome, String> {
    let summary = &document(output)?["summary"]["directions"][0];
    Ok(Outcome {
        gbps: summary["goodput_bps"].as_f64().ok_or("no goodput")? / 1e9,
        loss_percent: summary["loss_ratio"].as_f64().ok_or("no loss")? * 100.0,
    })
}

fn read_peer(output: &str) -> Result<Outcome, String> {
    let received = &document(output)?["end"]["sum_received"];
    Ok(Outcome {
        gbps: received["bits_per_second"].as_f64().ok_or("no goodput")? / 1e9,
        loss_percent: received["lost_percent"].as_f64().ok_or("no loss")?,
    })
}

fn page(
    seconds: u32,
    port: u16,
    command: &str,
    pairs: &[(Outcome, Outcome)],
    ended: Option<&BenchError>,
) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. One flow of {seconds} s over loopback after a second of warm-up, without a rate limit: \
         `flow --protocol udp` without further options beside iperf3 with `--gsro`, one after the other, taking turns in \
         who begins. Goodput at the receiver; medians with the least and the largest. Targets: goodput at least \
         iperf3's, no more loss.\n\n"
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    if !pairs.is_empty() {
        let ratio = spread(pairs.iter().map(|(ours, peer)| ours.gbps / peer.gbps));
        let difference = spread(pairs.iter().map(|(ours, peer)| ours.loss_percent - peer.loss_percent));
        let verdict = |is_met: bool| if is_met { "met" } else { "missed" };
        page.push_str("| pairs | ours Gb/s | iperf3 Gb/s | ratio | ours lost % | iperf3 lost % | difference | goodput | loss |\n|---|---|---|---|---|---|---|---|---|\n");
        let _ = writeln!(
            page,
            "| {} | {} | {} | **{}** | {} | {} | **{}** | {} | {} |\n",
            pairs.len(),
            range(spread(pairs.iter().map(|(ours, _)| ours.gbps)), 1),
            range(spread(pairs.iter().map(|(_, peer)| peer.gbps)), 1),
            range(ratio, 2),
            range(spread(pairs.iter().map(|(ours, _)| ours.loss_percent)), 1),
            range(spread(pairs.iter().map(|(_, peer)| peer.loss_percent)), 1),
            range(difference, 1),
            verdict(ratio.median >= 1.0),
            verdict(difference.median <= 0.0),
        );
        let lines = [our_line(seconds), peer_line(seconds, port)].map(|command| shown(&command));
        let _ = writeln!(page, "```\n{}\n```\n", lines.join("\n"));
    }
    let mut rows = fingerprint::machine();
    rows.extend(fingerprint::flow_peers().into_iter().filter(|(name, _)| *name == "iperf3"));
    page.push_str(&fingerprint::table(&rows));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_of_both_programs_are_read() {
        let ours = r#"{"summary": {"directions": [{"goodput_bps": 3e10, "loss_ratio": 0.25}]}}"#;
        assert_eq!(read_ours(ours), Ok(Outcome { gbps: 30.0, loss_percent: 25.0 }));
        let peer = r#"{"end": {"sum_received": {"bits_per_second": 2e10, "lost_percent": 40}}}"#;
        assert_eq!(read_peer(peer), Ok(Outcome { gbps: 20.0, loss_percent: 40.0 }));
        assert!(read_ours("{}").is_err() && read_peer("").is_err());
    }

    #[test]
    fn goodput_and_loss_have_their_own_verdicts() {
        let run = |gbps, loss_percent| Outcome { gbps, loss_percent };
        let page = page(5, 5301, "make bench", &[(run(30.0, 50.0), run(20.0, 40.0))], None);
        assert!(page.contains("**1.50"), "{page}");
        assert!(page.contains("**10.0"), "{page}");
        assert!(page.contains("| met | missed |"), "{page}");
    }
}
