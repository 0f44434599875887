//! Diagnostics of agents and daemons on standard error, as requested by `--log`
//! or `CLEARSTREAM_LOG`. Results and events never go here. Nothing is
//! logged unless it is requested.

use std::{
    fmt,
    io::{self, Write},
    process::Command,
    sync::OnceLock,
};

use clearstream_control::AGENT_LOG;
use jiff::{Timestamp, Unit};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{
    Layer as _,
    filter::Targets,
    fmt::{format::Writer, time::FormatTime},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use super::{stderr, terminal::escaped};
use crate::exit::CommandError;

/// Environment variable with the same text as `--log`.
pub const VARIABLE: &str = "CLEARSTREAM_LOG";

/// The requested filter, for the processes that this one starts.
static REQUESTED: OnceLock<String> = OnceLock::new();

/// Starts the log that the option or the environment requests.
///
/// # Errors
/// A filter that cannot be read.
pub fn start(option: Option<&str>) -> Result<(), CommandError> {
    let requested = option.map(str::to_owned).or_else(|| std::env::var(VARIABLE).ok());
    let Some(requested) = requested.filter(|text| !text.is_empty()) else { return Ok(()) };
    let filter = filter(&requested).map_err(|reason| {
        CommandError::Usage(format!(
            "`{requested}` is no filter of a log ({reason}): write a level (error, warn, info, debug, trace), or \
             levels of parts as in control=debug,lab=info"
        ))
    })?;
    // The tests of this crate may start it more than once in a process.
    drop(REQUESTED.set(requested));
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_timer(Utc).with_writer(|| Escaped);
    drop(tracing_subscriber::registry().with(layer.with_filter(filter)).try_init());
    Ok(())
}

/// Passes the filter on to a child process of this program.
pub fn pass_on(command: &mut Command) {
    if let Some(requested) = REQUESTED.get() {
        command.env(VARIABLE, requested);
    }
}

/// A level for all parts, or levels of parts by the name of their crate.
fn filter(text: &str) -> Result<Targets, String> {
    let mut targets = Targets::new();
    for part in text.split(',').map(str::trim) {
        let level = |name: &str| {
            // An empty name would be read as a level.
            let known = if name.is_empty() { None } else { name.parse::<LevelFilter>().ok() };
            known.ok_or_else(|| format!("there is no level `{name}`"))
        };
        targets = match part.split_once('=') {
            None => targets.with_default(level(part)?),
            Some((part, name)) => {
                let whole = part == AGENT_LOG || part.starts_with("clearstream");
                let target = if whole { part.to_owned() } else { format!("clearstream_{part}") };
                targets.with_target(target, level(name)?)
            }
        };
    }
    // Lines of agents have passed the same filter in the agent.
    Ok(targets.with_target(AGENT_LOG, LevelFilter::TRACE))
}

/// RFC 3339 in UTC to the millisecond, as events have it.
struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let now = Timestamp::now();
        write!(writer, "{}", now.round(Unit::Millisecond).unwrap_or(now))
    }
}

/// Standard error, a line per call: names and messages come from peers, so
/// that neither control characters nor line ends in them pass.
struct Escaped;

impl Write for Escaped {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        stderr::write(printable(&String::from_utf8_lossy(line)));
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn printable(line: &str) -> String {
    escaped(line.trim_end_matches('\n')).replace('\n', "\\n") + "\n"
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_names_levels_and_parts() {
        let all = filter("info").expect("a level");
        assert!(all.would_enable("clearstream_control::agent", &Level::INFO));
        assert!(!all.would_enable("clearstream_control::agent", &Level::DEBUG));
        let some = filter("warn,control=debug").expect("levels");
        assert!(some.would_enable("clearstream_control::agent", &Level::DEBUG));
        assert!(!some.would_enable("clearstream_lab::keeper", &Level::INFO));
        for wrong in ["loud", "control=loud", "control=", ",", "3x"] {
            assert!(filter(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_a_peer_wrote_stays_one_harmless_line() {
        let line = printable("called name=\u{1b}[2J\nforged\r\u{9b}31m\n");
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
        assert!(line.contains("\\nforged"), "{line:?}");
    }
}
