//! Distributed exploration of states: two ranks of an MPI job, and two threads, beside the sequential run of the
//! same model, in rounds.

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
pub(crate) const TITLE: &str = "# Exploration of states";

/// Models with their parameters: of seconds each.
const MODELS: [&[&str]; 3] = [
    &["philosophers", "-D", "N=16"],
    &["leader", "-D", "N=10"],
    &["sliding_window", "-D", "W=4", "-D", "C=4"],
];
const RANKS: u32 = 2;
/// Of the states per second of the sequential run, times ranks.
const TARGET: f64 = 0.7;
/// Time that a run takes at most, in seconds.
const SECONDS: u32 = 120;

/// How the ranks of a run are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ranks {
    One,
    Threads,
    Mpi,
}

const KINDS: [Ranks; 3] = [Ranks::One, Ranks::Threads, Ranks::Mpi];

/// States per second of each of [`KINDS`], and the states.
#[derive(Debug, Clone, PartialEq)]
struct Round {
    rates: [f64; 3],
    state_count: u64,
}

/// Whether there is a launcher.
pub(crate) fn has_launcher() -> bool {
    program::is_in_path("mpirun")
}

/// Runs the rounds; returns this part of the page, also when it ended early.
pub(crate) fn compare(rounds: u32, command: &str, stop: &AtomicBool) -> (String, Result<(), BenchError>) {
    let mut measured: Vec<(&[&str], Vec<Round>)> = Vec::new();
    let mut outcome = Ok(());
    'models: for model in MODELS {
        println!("  {}", model.join(" "));
        measured.push((model, Vec::new()));
        for number in 0..rounds {
            match round(model, number as usize, stop) {
                Ok(one) => measured.last_mut().into_iter().for_each(|(_, all)| all.push(one.clone())),
                Err(error) => {
                    outcome = Err(error);
                    break 'models;
                }
            }
        }
    }
    (page(command, &measured, outcome.as_ref().err()), outcome)
}

/// Each once. Another one begins in each round.
fn round(model: &[&str], number: usize, stop: &AtomicBool) -> Result<Round, BenchError> {
    let mut round = Round { rates: [0.0; 3], state_count: 0 };
    for turn in 0..KINDS.len() {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let place = (turn + number) % KINDS.len();
        let command = line(model, KINDS[place]);
        let line = shown(&command);
        let failed = |message: String| BenchError::Run { line: line.clone(), message };
        let (rate, state_count) = read(&output_of(command, SECONDS)?).map_err(failed)?;
        if turn > 0 && state_count != round.state_count {
            return Err(failed(format!("{state_count} states, the one before had {}", round.state_count)));
        }
        round.rates[place] = rate;
        round.state_count = state_count;
    }
    Ok(round)
}

fn line(model: &[&str], ranks: Ranks) -> Command {
    let mut command = match ranks {
        Ranks::Mpi => {
            let mut command = Command::new("mpirun");
            let count = RANKS.to_string();
            command.args(["-H", &format!("localhost:{count}"), "-np", &count, "--bind-to", "core"]);
            command.arg(program::path());
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command
        }
        Ranks::One | Ranks::Threads => Command::new(program::path()),
    };
    command.arg("explore").args(model).arg("--json");
    match ranks {
        Ranks::One => {}
        Ranks::Threads => {
            command.args(["--ranks", &RANKS.to_string()]);
        }
        Ranks::Mpi => {
            command.arg("--mpi");
        }
    }
    command
}

fn read(output: &str) -> Result<(f64, u64), String> {
    let document: Value = serde_json::from_str(output).map_err(|error| format!("no JSON: {error}"))?;
    let rate = document["states_per_second"].as_f64().ok_or("no rate")?;
    Ok((rate, document["state_count"].as_u64().ok_or("no states")?))
}

fn page(command: &str, measured: &[(&[&str], Vec<Round>)], ended: Option<&BenchError>) -> String {
    let mut page = format!(
        "{TITLE}\n\nMade by `{command}`. The states of a model by {RANKS} ranks, as threads and as processes of an MPI job \
         (Open MPI, shared memory), beside the sequential run, one after the other, taking turns in who begins. \
         Millions of states per second, medians with the least and the largest; ratios are those within a round. \
         Target: {TARGET} of the sequential rate per rank.\n\n"
    );
    if let Some(error) = ended {
        let _ = writeln!(page, "**Note:** not complete: {error}\n");
    }
    page.push_str(
        "| model | states | rounds | sequential | threads | MPI | threads, per rank | MPI, per rank | verdict |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for (model, rounds) in measured.iter().filter(|(_, rounds)| !rounds.is_empty()) {
        let rates = |place: usize| spread(rounds.iter().map(|round| round.rates[place] / 1e6));
        let ratio = |place: usize| {
            spread(rounds.iter().map(|round| round.rates[place] / round.rates[0] / f64::from(RANKS)))
        };
        let is_met = [1, 2].into_iter().all(|place| ratio(place).median >= TARGET);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | **{}** | **{}** | {} |",
            model.join(" ").replace("-D ", ""),
            rounds[0].state_count,
            rounds.len(),
            range(rates(0), 2),
            range(rates(1), 2),
            range(rates(2), 2),
            range(ratio(1), 2),
            range(ratio(2), 2),
            if is_met { "met" } else { "missed" }
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
    fn the_target_is_of_the_sequential_rate_per_rank() {
        let round = |threads, mpi| Round { rates: [1e6, threads, mpi], state_count: 5 };
        let page_of = |threads, mpi| page("make bench", &[(MODELS[0], vec![round(threads, mpi)])], None);
        assert!(page_of(1.4e6, 1.5e6).contains("| met |"), "{}", page_of(1.4e6, 1.5e6));
        assert!(page_of(1.3e6, 1.5e6).contains("| missed |"));
        assert!(page_of(1.5e6, 1.3e6).contains("| missed |"));
        assert_eq!(read(r#"{"states_per_second": 2.0, "state_count": 3}"#), Ok((2.0, 3)));
        assert!(read("{}").is_err());
    }
}
