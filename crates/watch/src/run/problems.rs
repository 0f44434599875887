//! Operations that fail and are tried again: each is reported when it begins to fail, when its error is another one,
//! and never again as long as it is the same.

use std::collections::BTreeMap;

use clearstream_schema::watch::WatchEventKind;

use super::Watch;

/// An operation that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Problem {
    Priority,
    Generation,
    Neighbours,
    Addresses,
    NextHops,
    Buckets,
    Refresh,
    Drained,
}

impl Problem {
    fn text(self, error: &str) -> String {
        match self {
            Self::Priority => format!(
                "this thread has no real-time priority ({error}): a busy machine may delay its decisions"
            ),
            Self::Generation => format!("sockets with IPv6 flows may keep dead routes: {error}"),
            Self::Neighbours => format!("links and neighbours could not be read: {error}"),
            Self::Addresses => format!("the addresses could not be read: {error}"),
            Self::NextHops => format!("the next hops could not be changed: {error}"),
            Self::Buckets => format!("the buckets of a group could not be read: {error}"),
            Self::Refresh => format!("established flows may move to a returning gateway: {error}"),
            Self::Drained => format!("drained gateways cannot be stored for a restart: {error}"),
        }
    }
}

/// Those that failed last, with their errors.
#[derive(Debug, Default)]
pub(super) struct Problems(BTreeMap<Problem, String>);

impl Problems {
    /// Notes how an operation ended; the text where there is something new to report.
    fn note(&mut self, problem: Problem, ended: Result<(), String>) -> Option<String> {
        match ended {
            Ok(()) => {
                self.0.remove(&problem);
                None
            }
            Err(error) if self.0.get(&problem) == Some(&error) => None,
            Err(error) => {
                let text = problem.text(&error);
                self.0.insert(problem, error);
                Some(text)
            }
        }
    }

    /// The text of one that failed last.
    pub(super) fn of(&self, problem: Problem) -> Option<String> {
        self.0.get(&problem).map(|error| problem.text(error))
    }
}

impl Watch<'_> {
    /// Notes how an operation ended, and reports what is new.
    pub(super) fn attempted(&mut self, problem: Problem, ended: Result<(), String>) {
        if let Some(message) = self.problems.note(problem, ended) {
            self.report(WatchEventKind::Failed { message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_that_fail_in_turns_are_reported_once_each_and_again_after_they_worked() {
        let mut problems = Problems::default();
        let mut reported = 0;
        for _ in 0..10 {
            for problem in [Problem::Neighbours, Problem::NextHops] {
                reported += usize::from(problems.note(problem, Err("it is down".to_owned())).is_some());
            }
        }
        assert_eq!(reported, 2);
        assert!(problems.note(Problem::Neighbours, Err("something else".to_owned())).is_some());
        assert!(problems.note(Problem::Neighbours, Ok(())).is_none());
        assert!(problems.note(Problem::Neighbours, Err("something else".to_owned())).is_some());
        assert!(problems.of(Problem::NextHops).unwrap().contains("it is down"));
    }
}
