//! Why a job failed, from what the ranks and the launcher printed.

use std::collections::VecDeque;

use clearstream_schema::control::FailureKind;

/// Lines that are kept.
const LINES_MAX: usize = 60;
/// Lines of an unknown failure that are reported.
const LINES_REPORTED: usize = 3;
/// Begin of the lines of the ranks' program.
const PROGRAM: &str = "clearstream-mpi: ";
/// Of its supervisor: the cause, where other ranks only see the connection close.
const ENDED_BY_SIGNAL: &str = ": ended by signal ";

/// The last lines that are no results.
#[derive(Debug, Default)]
pub(crate) struct Text(VecDeque<String>);

impl Text {
    pub(crate) fn push(&mut self, line: String) {
        if self.0.len() == LINES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(line);
    }

    /// Whether a rank reported that it fails, or that another one was killed.
    pub(crate) fn has_report(&self) -> bool {
        self.reports().next().is_some()
    }

    fn reports(&self) -> impl Iterator<Item = &str> {
        // A launcher may write the rank in front.
        self.0.iter().filter_map(|line| line.split_once(PROGRAM).map(|(_, report)| report))
    }

    /// The cause, in the words of who knows it best.
    pub(crate) fn cause(&self, ending: &str) -> (FailureKind, String) {
        if let Some(killed) = self.reports().find(|report| report.contains(ENDED_BY_SIGNAL)) {
            return (FailureKind::Connection, killed.to_owned());
        }
        if let Some(report) = self.reports().next() {
            return (kind(report), report.to_owned());
        }
        let has = |text: &str| self.0.iter().any(|line| line.contains(text));
        if has("execvp error on file") || has("could not access") || has("No such file or directory") {
            let detail =
                self.0.iter().find(|line| line.contains("No such file") || line.contains("Executable:"));
            let message = format!(
                "clearstream-mpi is not on each host: the path has to be the same on both ({})",
                detail.map_or(ending, |line| line.trim())
            );
            return (FailureKind::Unsupported, message);
        }
        (FailureKind::Connection, format!("{ending}{}", self.last_lines()))
    }

    fn last_lines(&self) -> String {
        let is_text = |line: &&String| line.chars().any(char::is_alphanumeric);
        let lines: Vec<&str> = self.0.iter().filter(is_text).map(|line| line.trim()).collect();
        // Launchers print the cause first, then what they did about it.
        let shown = &lines[..lines.len().min(LINES_REPORTED)];
        if shown.is_empty() { String::new() } else { format!(": {}", shown.join(" ")) }
    }
}

fn kind(report: &str) -> FailureKind {
    if report.contains("built for another MPI") {
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
        let (kind, message) = cause(&[
            "clearstream-mpi: rank 0 on here: cannot send a message: MPI_ERR_OTHER",
            "clearstream-mpi: rank 1 on there: ended by signal 9 (Killed)",
        ]);
        assert_eq!(
            (kind, message.as_str()),
            (FailureKind::Connection, "rank 1 on there: ended by signal 9 (Killed)")
        );
    }

    #[test]
    fn a_program_that_is_missing_and_unknown_text_are_reported() {
        let (kind, message) =
            cause(&["[proxy:0:1@there] launch.c:73): execvp error on file /x (No such file or directory)"]);
        assert!(kind == FailureKind::Unsupported && message.contains("the same on both"), "{message}");
        let (_, message) = cause(&["-----", "ssh: Could not resolve hostname nobody"]);
        assert_eq!(message, "mpirun ended with exit status: 1: ssh: Could not resolve hostname nobody");
        assert_eq!(cause(&[]).1, "mpirun ended with exit status: 1");
    }
}
