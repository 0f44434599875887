//! Progress with the time left, on standard error, for everything that takes
//! more than two seconds. Nothing is drawn when standard error is no terminal;
//! then one plain line is written now and then.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::{quantity::long_time, terminal::is_for_people};

/// How often a log gets a line.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// A running piece of work.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    total_ms: u64,
    started: Instant,
    logged: Option<Instant>,
}

impl Progress {
    /// Work that is thought to take this long.
    pub fn start(expected: Duration) -> Self {
        let total_ms = u64::try_from(expected.as_millis()).unwrap_or(u64::MAX).max(1);
        let bar = is_for_people(&std::io::stderr()).then(|| {
            let bar = ProgressBar::new(total_ms);
            if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, total_ms, started: Instant::now(), logged: None }
    }

    /// What is being done, and how much is left.
    pub fn update(&mut self, left: Duration, what: &str) {
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        let message = format!("{} left  {what}", long_time(left_ms.div_ceil(1000)));
        match &self.bar {
            Some(bar) => {
                let done = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(0);
                self.total_ms = done.saturating_add(left_ms).max(1);
                bar.set_length(self.total_ms);
                bar.set_position(done);
                bar.set_message(super::escaped(&message));
            }
            None if self.logged.is_none_or(|last| last.elapsed() >= LOG_PERIOD) => {
                self.logged = Some(Instant::now());
                super::log(&message);
            }
            None => {}
        }
    }

    /// What goes on now, as often as it is called.
    pub fn live(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(super::escaped(what)),
            None => super::log(what),
        }
    }

    /// Runs a function that writes to standard output, with the bar hidden.
    pub fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Writes a line above the bar.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| super::log(text)),
            None => super::log(text),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
