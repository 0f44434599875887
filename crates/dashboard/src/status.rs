//! The state of a daemon as tables, made while a page is open.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde::Serialize;

/// Between two states for a page.
pub(crate) const STATE_INTERVAL: Duration = Duration::from_secs(1);

/// The state of now; made on the server's thread, so it must not wait for long.
pub type StateSource = Arc<dyn Fn() -> Vec<StateTable> + Send + Sync>;

/// A table of a state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StateTable {
    /// Its title.
    pub title: String,
    /// Columns; those that begin with `>` are of numbers.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<StateRow>,
}

/// A row of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StateRow {
    /// A cell for each column.
    pub cells: Vec<String>,
    /// Whether it shows a fault.
    pub bad: bool,
}

/// States for one page.
pub(crate) struct States {
    source: StateSource,
    shown: String,
    made: Option<Instant>,
}

impl States {
    pub(crate) fn of(source: StateSource) -> Self {
        Self { source, shown: String::new(), made: None }
    }

    /// The state as a server-sent event, where one is due and differs from the one before.
    pub(crate) fn next(&mut self) -> Option<String> {
        if self.made.is_some_and(|made| made.elapsed() < STATE_INTERVAL) {
            return None;
        }
        self.made = Some(Instant::now());
        // Strings and booleans alone: they can be written.
        let state = clearstream_schema::json::to_string(&(self.source)())
            .ok()
            .filter(|state| *state != self.shown)?;
        let event = format!("event: state\ndata: {state}\n\n");
        self.shown = state;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_state_is_not_repeated() {
        let source: StateSource =
            Arc::new(|| vec![StateTable { title: "a\nb".to_owned(), ..Default::default() }]);
        let mut states = States::of(source);
        let first = states.next().unwrap();
        assert_eq!(first, "event: state\ndata: [{\"title\":\"a\\nb\",\"head\":[],\"rows\":[]}]\n\n");
        assert_eq!(states.next(), None, "not due");
        states.made = None;
        assert_eq!(states.next(), None, "equal");
    }
}
