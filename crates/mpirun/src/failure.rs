//! Why a job failed, from what the ranks and the launcher printed.

use std::collections::VecDeque;

use clearstream_schema::{control::FailureKind, mpi::MpiRank};

/// Lines that are kept.
const LINES_MAX: usize = 60;
/// Lines of an unknown failure that are reported.
const LINES_REPORTED: usize = 3;
/// Begin of the lines of ranks.
const PROGRAM: &str = "clearstream: ";
/// What a signal has ended is the cause, where other ranks only see the connection close.
const ENDED_BY_SIGNAL: &str = ": ended by signal ";

/// The last lines that are no results, and who takes part, where that was said.
#[derive(Debug, Default)]
pub struct Text {
    lines: VecDeque<String>,
    ranks: Vec<MpiRank>,
}

impl Text {
    /// Adds a line; of many the first ones are dropped.
    pub fn push(&mut self, line: String) {
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Keeps who takes part: a launcher may name a process alone.
    pub(crate) fn keep_ranks(&mut self, ranks: &[MpiRank]) {
        self.ranks = ranks.to_vec();
    }

    /// Whether a rank reported that it fails, or that another one was killed.
    pub fn has_report(&self) -> bool {
        self.reports().next().is_some() || self.killed().is_some()
    }

    /// A rank that a signal has ended, as the launcher names it.
    fn killed(&self) -> Option<String> {
        self.lines.iter().find_map(|line| killed(line)).or_else(|| self.killed_of_hydra())
    }

    fn reports(&self) -> impl Iterator<Item = &str> {
        // A launcher may write the rank in front.
        self.lines.iter().filter_map(|line| line.find(PROGRAM).map(|at| &line[at + PROGRAM.len()..]))
    }

    /// The cause, in the words of who knows it best.
    pub fn cause(&self, ending: &str) -> (FailureKind, String) {
        if let Some(killed) = self.killed() {
            return (FailureKind::Connection, killed);
        }
        if let Some(report) = self.reports().next() {
            return (kind(report), report.to_owned());
        }
        let has = |text: &str| self.lines.iter().any(|line| line.contains(text));
        if has("execvp error on file") || has("could not access") || has("No such file or directory") {
            let detail =
                self.lines.iter().find(|line| line.contains("No such file") || line.contains("Executable:"));
            let message = format!(
                "this program is not on each host: its path has to be the same on all ({})",
                detail.map_or(ending, |line| line.trim())
            );
            return (FailureKind::Unsupported, message);
        }
        (FailureKind::Connection, format!("{ending}{}", self.last_lines()))
    }

    /// Hydra has a line for each fact: process and host, then the signal.
    fn killed_of_hydra(&self) -> Option<String> {
        let fact = |name: &str| {
            self.lines.iter().find_map(|line| line.split_once(name).map(|(_, fact)| fact.trim()))
        };
        let (process, host) = fact("=   PID ")?.split_once(" RUNNING AT ")?;
        let signal: u32 = fact("=   EXIT CODE: ")?.parse().ok()?;
        let process: u32 = process.trim().parse().ok()?;
        let rank = self.ranks.iter().find(|rank| rank.process == process && rank.host == host);
        let rank = rank.map_or_else(|| "a rank".to_owned(), |rank| format!("rank {}", rank.rank));
        Some(format!("{rank} on {host}{ENDED_BY_SIGNAL}{signal}"))
    }

    fn last_lines(&self) -> String {
        let is_text = |line: &&String| line.chars().any(char::is_alphanumeric);
        let lines: Vec<&str> = self.lines.iter().filter(is_text).map(|line| line.trim()).collect();
        // Launchers print the cause first, then what they did about it.
        let shown = lines.get(..LINES_REPORTED).unwrap_or(&lines);
        if shown.is_empty() { String::new() } else { format!(": {}", shown.join(" ")) }
    }
}

/// What Open MPI's launcher and Slurm's say of a rank that a signal has ended.
fn killed(line: &str) -> Option<String> {
    if let Some((_, found)) = line.split_once(" noticed that process rank ") {
        let (rank, rest) = found.split_once(' ')?;
        let (host, signal) = rest.split_once(" on node ")?.1.split_once(" exited on signal ")?;
        return Some(format!("rank {rank} on {host}{ENDED_BY_SIGNAL}{}", signal.trim_end_matches('.')));
    }
    let (host, rest) = line.strip_prefix("srun: error: ")?.split_once(": task ")?;
    let rank = rest.strip_suffix(": Killed")?;
    Some(format!("rank {rank} on {host}{ENDED_BY_SIGNAL}9 (Killed)"))
}

fn kind(report: &str) -> FailureKind {
    if report.contains("MPI library") {
        FailureKind::Unsupported
    } else if report.contains("cannot be used on this host") || report.contains("must be") {
        FailureKind::Invalid
    } else {
        FailureKind::Connection
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(lines: &[&str]) -> (FailureKind, String) {
        let mut text = Text::default();
        lines.iter().for_each(|line| text.push((*line).to_owned()));
        text.cause("mpirun ended with exit status: 1")
    }

    #[test]
    fn the_killed_rank_is_the_cause_and_not_who_lost_it() {
        let mut text = Text::default();
        for line in [
            "clearstream: rank 0 on here: MPI_ERR_OTHER",
            "=   PID 31200 RUNNING AT there",
            "=   EXIT CODE: 9",
        ] {
            text.push(line.to_owned());
        }
        let found = |text: &Text| text.cause("mpirun ended").1;
        assert_eq!(found(&text), "a rank on there: ended by signal 9");
        let rank = |rank, host: &str, process| MpiRank { rank, host: host.to_owned(), process };
        text.keep_ranks(&[rank(0, "here", 31200), rank(1, "there", 31200)]);
        assert_eq!(found(&text), "rank 1 on there: ended by signal 9");
    }

    /// As the launchers print it: Open MPI 4.1.4, Open MPI 5.0.11, Slurm 22.05.8, MPICH 4.0.2.
    #[test]
    fn a_killed_rank_is_named_where_the_launcher_names_it() {
        for (lines, expected) in [
            (
                &[
                    "mpirun noticed that process rank 2 with PID 30260 on node compute-2 exited on signal 9 (Killed).",
                ][..],
                "rank 2 on compute-2: ended by signal 9 (Killed)",
            ),
            (
                &[
                    "prterun noticed that process rank 1 with PID 7 on node there exited on signal 9 (Killed).",
                ],
                "rank 1 on there: ended by signal 9 (Killed)",
            ),
            (&["srun: error: there: task 1: Killed"], "rank 1 on there: ended by signal 9 (Killed)"),
            (
                &[
                    "=   PID 31200 RUNNING AT there",
                    "=   EXIT CODE: 9",
                    "=   CLEANING UP REMAINING PROCESSES",
                ],
                "a rank on there: ended by signal 9",
            ),
        ] {
            assert_eq!(cause(lines), (FailureKind::Connection, expected.to_owned()));
        }
    }

    #[test]
    fn a_program_that_is_missing_and_unknown_text_are_reported() {
        let (kind, message) =
            cause(&["[proxy:0:1@there] launch.c:73): execvp error on file /x (No such file or directory)"]);
        assert!(kind == FailureKind::Unsupported && message.contains("the same on all"), "{message}");
        let (_, message) = cause(&["-----", "ssh: Could not resolve hostname nobody"]);
        assert_eq!(message, "mpirun ended with exit status: 1: ssh: Could not resolve hostname nobody");
        assert_eq!(cause(&[]).1, "mpirun ended with exit status: 1");
    }
}
