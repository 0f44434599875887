//! Programs with the same task, run in turns: participants, rounds,
//! and the table that comes out.

use std::{
    fmt::Write,
    fs,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    error::BenchError,
    place::Ground,
    results::{range, spread},
    run::Running,
    tool::shown,
};

/// Timeout of a server's start, and of a client's run.
const RUN_TIMEOUT: Duration = Duration::from_secs(30);
/// A run that fails is retried: ports are still closing.
const ATTEMPTS: u32 = 3;

/// One program in one setting.
#[derive(Clone)]
pub(crate) struct Entry {
    /// As in the table.
    pub name: String,
    /// To be started first, and the port that it listens on.
    pub server: Option<(Line, u16)>,
    pub client: Line,
    /// Reads the figure out of what the client printed.
    pub read: fn(&str) -> Result<f64, String>,
}

/// A command line and its environment.
#[derive(Clone)]
pub(crate) struct Line {
    pub arguments: Vec<String>,
    pub environment: Vec<(&'static str, &'static str)>,
    /// Enters the lab by itself.
    pub enters: bool,
}

impl Line {
    /// On a core, by `taskset`.
    pub(crate) fn on_core(core: u32, arguments: &[&str]) -> Self {
        let core = core.to_string();
        Self::plain(&[&["taskset", "-c", &core], arguments].concat())
    }

    pub(crate) fn plain(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { arguments, environment: Vec::new(), enters: false }
    }

    fn command(&self, ground: &Ground) -> Result<Command, BenchError> {
        let mut command = Command::new(&self.arguments[0]);
        command.args(&self.arguments[1..]).envs(self.environment.iter().copied());
        if self.enters { Ok(command) } else { ground.inside(command) }
    }

    fn shown(&self) -> String {
        let mut command = Command::new(&self.arguments[0]);
        command.args(&self.arguments[1..]);
        let set: String = self.environment.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        // A provider's name may hold a semicolon.
        format!("{set}{}", shown(&command)).replace("tcp;ofi_rxm", "'tcp;ofi_rxm'")
    }
}

/// Target of a ratio.
#[derive(Clone, Copy)]
pub(crate) enum Bar {
    Most(f64),
    Least(f64),
    /// At least so much, or as much as another ratio of entries is.
    LeastOr(f64, usize, usize),
}

/// A figure of several programs, taken in rounds.
pub(crate) struct Contest {
    pub title: String,
    /// Unit of the figure.
    pub unit: &'static str,
    pub digits: usize,
    pub entries: Vec<Entry>,
    /// Entries that the others are divided into: one column of ratios each.
    pub over: Vec<usize>,
    /// (entry of `over`, other entry, what its ratio has to be).
    pub bars: Vec<(usize, usize, Bar)>,
    /// Figures by entry, one of each round; absent when the program failed.
    pub figures: Vec<Vec<Option<f64>>>,
    /// Errors of entries.
    pub failures: Vec<String>,
}

impl Contest {
    pub(crate) fn new(title: String, unit: &'static str, entries: Vec<Entry>) -> Self {
        let figures = entries.iter().map(|_| Vec::new()).collect();
        let digits = 2;
        Self { title, unit, digits, entries, over: vec![0], bars: Vec::new(), figures, failures: Vec::new() }
    }

    /// Every program once; the one that begins changes with the round.
    pub(crate) fn round(&mut self, ground: &Ground, round: u32, stop: &AtomicBool) -> Result<(), BenchError> {
        let count = self.entries.len();
        for turn in 0..count {
            // In alternating order, so that neighbours stay neighbours.
            let index = if round.is_multiple_of(2) { turn } else { count - 1 - turn };
            let entry = &self.entries[index];
            let figure = match run(entry, ground, stop) {
                Ok(figure) => Some(figure),
                Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                Err(error) => {
                    let failure = format!("{}: {}: {error}", self.title, entry.name);
                    println!("  {failure}");
                    self.failures.push(failure);
                    None
                }
            };
            if let Some(figure) = figure {
                println!("  {}: {figure:.3} {}", entry.name, self.unit);
            }
            self.figures[index].push(figure);
        }
        Ok(())
    }

    /// Ratios of two entries, round by round.
    fn ratios(&self, over: usize, under: usize) -> impl Iterator<Item = f64> {
        let pairs = self.figures[over].iter().zip(&self.figures[under]);
        pairs.filter_map(|(over, under)| Some(over.as_ref()? / under.as_ref()?))
    }

    /// Whether a ratio is as wanted, and what was wanted.
    fn judge(&self, bar: Bar, ratio: f64) -> (bool, String) {
        match bar {
            Bar::Most(most) => (ratio <= most, format!("at most {most:.2}")),
            Bar::Least(least) => (ratio >= least, format!("at least {least:.2}")),
            Bar::LeastOr(least, over, under) => {
                let other = spread(self.ratios(over, under)).median;
                (ratio >= least.min(other), format!("at least {least:.2}, or {other:.2} of bare TCP"))
            }
        }
    }

    fn verdict(&self, under: usize) -> String {
        let mut verdicts = Vec::new();
        for &(over, _, bar) in self.bars.iter().filter(|(_, other, _)| *other == under) {
            let ratio = spread(self.ratios(over, under)).median;
            if ratio.is_finite() {
                let (met, wanted) = self.judge(bar, ratio);
                let who =
                    if self.over.len() > 2 { format!("{} ", self.entries[over].name) } else { String::new() };
                verdicts.push(format!("{who}{wanted}: {}", if met { "met" } else { "**missed**" }));
            }
        }
        verdicts.join("; ")
    }

    /// The table and the command lines.
    pub(crate) fn page(&self) -> String {
        let mut page = format!("### {}\n\n| program | {} |", self.title, self.unit);
        for &over in &self.over {
            let _ = write!(page, " {} / it |", self.entries[over].name);
        }
        page.push_str(" bar |\n|---|---|");
        page.push_str(&"---|".repeat(self.over.len() + 1));
        page.push('\n');
        for (index, entry) in self.entries.iter().enumerate() {
            let figure = spread(self.figures[index].iter().filter_map(|figure| *figure));
            let _ = write!(page, "| {} | {} |", entry.name, range(figure, self.digits));
            for &over in &self.over {
                let ratio = spread(self.ratios(over, index));
                let text = if over == index { String::new() } else { range(ratio, 2) };
                let _ = write!(page, " {text} |");
            }
            let _ = writeln!(page, " {} |", self.verdict(index));
        }
        page.push_str("\n```\n");
        for entry in &self.entries {
            if let Some((server, _)) = &entry.server {
                let _ = writeln!(page, "{} &", server.shown());
            }
            let _ = writeln!(page, "{}", entry.client.shown());
        }
        page.push_str("```\n\n");
        page
    }
}

/// One run of one program.
pub(crate) fn run(entry: &Entry, ground: &Ground, stop: &AtomicBool) -> Result<f64, BenchError> {
    let mut attempt = 1;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        match once(entry, ground) {
            Err(BenchError::Run { .. }) if attempt < ATTEMPTS => attempt += 1,
            other => return other,
        }
    }
}

/// Output of a program that needs no server.
pub(crate) fn text(line: &Line, ground: &Ground, stop: &AtomicBool) -> Result<String, BenchError> {
    if stop.load(Ordering::Relaxed) {
        return Err(BenchError::Interrupted);
    }
    let fail = |message: String| BenchError::Run { line: line.shown(), message };
    let mut program = Running::start(line.command(ground)?)?;
    match program.wait(Instant::now() + 2 * RUN_TIMEOUT) {
        None => Err(fail("did not end".to_owned())),
        Some(reaped) if !reaped.status.success() => Err(fail(program.last_error())),
        Some(_) => Ok(program.printed()),
    }
}

fn once(entry: &Entry, ground: &Ground) -> Result<f64, BenchError> {
    let line = entry.client.shown();
    let fail = |message: String| BenchError::Run { line: line.clone(), message };
    let mut server = None;
    if let Some((serving, port)) = &entry.server {
        let mut running = Running::start(serving.command(ground)?)?;
        if !listens(&mut running, *port) {
            let error = running.last_error();
            return Err(fail(format!("its server does not listen: {error}")));
        }
        server = Some(running);
    }
    let mut client = Running::start(entry.client.command(ground)?)?;
    let ended = client.wait(Instant::now() + RUN_TIMEOUT);
    let outcome = match ended {
        None => Err(fail("did not end".to_owned())),
        Some(reaped) if !reaped.status.success() => {
            Err(fail(format!("{}: {}", reaped.status, client.last_error())))
        }
        Some(_) => (entry.read)(&client.printed()).map_err(fail),
    };
    drop(client);
    // Most end with their client; the others are terminated.
    if let Some(server) = &mut server {
        server.wait(Instant::now() + Duration::from_millis(200));
        server.end();
    }
    outcome
}

/// Waits until a socket listens on the port in the server's own namespace.
fn listens(server: &mut Running, port: u16) -> bool {
    let until = Instant::now() + RUN_TIMEOUT;
    // proc(5): local address as hexadecimal `address:port`, then the remote
    // one, then the state; 0A listens.
    let ending = format!(":{port:04X}");
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", server.id()));
    while Instant::now() < until && server.wait(Instant::now()).is_none() {
        for table in &tables {
            let text = fs::read_to_string(table).unwrap_or_default();
            let mut rows = text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
            let found = rows.any(|row| match row[..] {
                [_, local, _, state, ..] => local.ends_with(&ending) && state == "0A",
                _ => false,
            });
            if found {
                return true;
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry {
        let client = Line::on_core(1, &["program", "-p", "tcp;ofi_rxm"]);
        Entry { name: name.to_owned(), server: None, client, read: |_| Ok(1.0) }
    }

    #[test]
    fn ratios_are_of_one_round_and_bars_are_judged_by_their_median() {
        let entries = ["ours", "bare", "peer"].map(entry).into();
        let mut contest = Contest::new("64 bytes".to_owned(), "us", entries);
        contest.bars = vec![(0, 1, Bar::Most(1.15)), (0, 2, Bar::Most(1.0))];
        contest.figures = vec![
            vec![Some(3.6), Some(7.2), Some(3.9)],
            vec![Some(3.3), Some(6.6), Some(3.0)],
            vec![Some(3.0), None, Some(3.1)],
        ];
        let page = contest.page();
        assert!(
            page.contains("| bare | 3.30 (3.00 to 6.60) | 1.09 (1.09 to 1.30) | at most 1.15: met |"),
            "{page}"
        );
        assert!(
            page.contains("| peer | 3.05 (3.00 to 3.10) | 1.23 (1.20 to 1.26) | at most 1.00: **missed** |"),
            "{page}"
        );
        assert!(page.contains("taskset -c 1 program -p 'tcp;ofi_rxm'"), "{page}");
    }
}
