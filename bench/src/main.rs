//! ClearStream against its peers, interleaved on one machine; writes
//! `bench/RESULTS.md`: the flow engine against iperf3, iperf and nuttcp, UDP against iperf3, the
//! software RNIC against bare TCP, libfabric and UCX, storage against IOR, mdtest and elbencho, its
//! histograms against loops without them, exploration of states against
//! its sequential run, the lab's delay line against a bare veth pair, and flows beside `live`. `diagnosis` instead injects
//! causes with standard tools and counts the verdicts of `clearstream diagnose`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod delay_line;
mod diagnosis;
mod error;
mod explore;
mod fingerprint;
mod histograms;
mod iperf3;
mod live;
mod parse;
mod part;
mod place;
mod program;
mod rdma;
mod results;
mod run;
mod storage;
mod storage_program;
mod summary;
mod tool;
mod udp;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
};

use error::BenchError;
use part::Part;
use place::{Ground, Place};
use results::{Cell, Pairing};
use tool::{Settings, Tool, shown};

const USAGE: &str = "usage: clearstream-bench [summary] [--only flow|udp|rdma|storage|histograms|explore|delay-line|live] [--matching TITLE] [--quick] [--pairs COUNT] [--seconds SECONDS] [--output FILE]";
/// Control port of peers; their data ports follow it.
const PORT: u16 = 5301;
/// Cells of a grid that are repeated.
const FINALISTS: usize = 3;

/// Command line options.
struct Options {
    /// Pairs of each comparison.
    pairs: u32,
    /// Length of a run of a pair.
    seconds: u32,
    /// Approximate length of a run against RDMA's peers.
    rdma_seconds: u32,
    /// Length of a run of the grid.
    grid_seconds: u32,
    /// Further runs of the best cells of the grid.
    repeats: u32,
    flows: &'static [u32],
    quick: bool,
    part: Part,
    /// Only RDMA's comparisons whose titles contain it.
    matching: String,
    /// Nothing is run: the summary is regenerated from the existing tables.
    summary: bool,
    output: PathBuf,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, BenchError> {
        let output = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md"));
        let mut options = Self {
            pairs: 5,
            seconds: 5,
            rdma_seconds: 1,
            grid_seconds: 2,
            repeats: 2,
            flows: &[1, 2],
            quick: false,
            part: Part::All,
            matching: String::new(),
            summary: false,
            output,
        };
        let (mut pairs, mut seconds) = (None, None);
        let usage = |what: String| BenchError::Usage(format!("{what}; {USAGE}"));
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| usage(format!("{argument} needs a value")));
            let number = |text: String| match text.parse::<u32>() {
                Ok(number) if number > 0 => Ok(number),
                _ => Err(usage(format!("{text} is no count"))),
            };
            match argument.as_str() {
                "summary" => options.summary = true,
                "--quick" => {
                    options =
                        Self { pairs: 2, seconds: 1, grid_seconds: 1, repeats: 0, quick: true, ..options }
                }
                "--pairs" => pairs = Some(number(value()?)?),
                "--seconds" => seconds = Some(number(value()?)?),
                "--only" => {
                    let name = value()?;
                    options.part = Part::named(&name).ok_or_else(|| usage(format!("no part {name}")))?;
                }
                "--matching" => options.matching = value()?,
                "--output" => options.output = PathBuf::from(value()?),
                _ => return Err(usage(format!("unknown option {argument}"))),
            }
        }
        options.pairs = pairs.unwrap_or(options.pairs);
        options.rdma_seconds = seconds.unwrap_or(1);
        options.seconds = seconds.unwrap_or(options.seconds);
        Ok(options)
    }

    /// As it is typed.
    fn command(&self) -> String {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        if arguments.is_empty() {
            "make bench".to_owned()
        } else {
            format!("make bench BENCH=\"{}\"", arguments.join(" "))
        }
    }

    /// Puts a part into the page, whose other parts stay.
    fn write(&self, title: &str, part: &str) -> Result<(), BenchError> {
        let file = |source| BenchError::File { path: self.output.clone(), source };
        let page = match std::fs::read_to_string(&self.output) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            page => page.map_err(file)?,
        };
        let titles = [
            summary::TITLE,
            results::TITLE,
            udp::TITLE,
            rdma::TITLE,
            storage::TITLE,
            histograms::TITLE,
            explore::TITLE,
            delay_line::TITLE,
            live::TITLE,
            diagnosis::PASSIVE_TITLE,
        ];
        let page = results::with_part(&page, &titles, title, part);
        let page = results::with_part(&page, &titles, summary::TITLE, &summary::summary(&page));
        std::fs::write(&self.output, page).map_err(file)
    }

    /// Writes the summary of what is in the file.
    fn summarize(&self) -> Result<(), BenchError> {
        self.write(summary::TITLE, "")
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Ends of the RDMA part are subcommands of this program.
    let end = match arguments.split_first() {
        Some((command, rest)) if command == "bare" => Some(rdma::bare::main(rest)),
        Some((command, rest)) if command == "iwarp" => Some(rdma::ours::main(rest)),
        Some((command, _)) if command == "calls" => Some(rdma::calls::main()),
        Some((command, rest)) if command == "diagnosis" => return finish(diagnosis::main(rest)),
        _ => None,
    };
    if let Some(outcome) = end {
        return outcome.map_or_else(
            |error| {
                eprintln!("bench: {error}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    finish(
        Options::read(arguments.into_iter())
            .and_then(|options| if options.summary { options.summarize() } else { compare(&options) }),
    )
}

fn finish(outcome: Result<(), BenchError>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            match error {
                BenchError::Usage(_) => ExitCode::from(2),
                BenchError::Interrupted => ExitCode::from(130),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// All parts; measured results are written also when it ends early.
fn compare(options: &Options) -> Result<(), BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| BenchError::File { path: "signal handler".into(), source })?;
    }
    if options.part.includes(Part::Flow) || options.part.includes(Part::Rdma) {
        compare_with_peers(options, &stop)?;
    }
    if options.part.includes(Part::Udp) {
        if udp::peer_is_current() {
            println!("UDP over loopback");
            let (part, outcome) =
                udp::compare(options.pairs, options.seconds, PORT, &options.command(), &stop);
            options.write(udp::TITLE, &part)?;
            outcome?;
        } else {
            println!("no iperf3 with --gsro: UDP is left out");
        }
    }
    if options.part.includes(Part::Storage) {
        if storage::has_peers() {
            println!("storage");
            let (part, outcome) =
                storage::compare(options.pairs, &options.matching, &options.command(), &stop);
            options.write(storage::TITLE, &part)?;
            outcome?;
        } else {
            println!("no ior, mdtest and mpirun in PATH: storage is left out");
        }
    }
    if options.part.includes(Part::Histograms) {
        println!("histograms of storage operations");
        let (part, outcome) = histograms::compare(options.pairs, &options.command(), &stop);
        options.write(histograms::TITLE, &part)?;
        outcome?;
    }
    if options.part.includes(Part::Explore) {
        if explore::has_launcher() {
            println!("exploration of states");
            let (part, outcome) = explore::compare(options.pairs, &options.command(), &stop);
            options.write(explore::TITLE, &part)?;
            outcome?;
        } else {
            println!("no mpirun in PATH: exploration is left out");
        }
    }
    if options.part.includes(Part::DelayLine) {
        if rustix::process::geteuid().is_root() {
            println!("the lab's delay line");
            let (part, outcome) =
                delay_line::compare(options.pairs, options.seconds, &options.command(), &stop);
            options.write(delay_line::TITLE, &part)?;
            outcome?;
        } else {
            println!("not root: the lab's delay line is left out");
        }
    }
    if options.part.includes(Part::Live) {
        println!("live beside a flow");
        let (part, outcome) = live::compare(options.pairs, options.seconds, &options.command(), &stop);
        options.write(live::TITLE, &part)?;
        outcome?;
    }
    println!("\nwritten to {}", options.output.display());
    Ok(())
}

fn compare_with_peers(options: &Options, stop: &AtomicBool) -> Result<(), BenchError> {
    let ground = Ground::open()?;
    if options.part.includes(Part::Flow) {
        compare_flow(options, &ground, stop)?;
    }
    if options.part.includes(Part::Rdma) {
        let amount = rdma::Amount {
            rounds: options.pairs,
            seconds: if options.quick { 1 } else { options.rdma_seconds },
        };
        let (part, outcome) = rdma::compare(amount, &options.matching, &options.command(), &ground, stop);
        options.write(rdma::TITLE, &part)?;
        outcome?;
    }
    Ok(())
}

fn compare_flow(options: &Options, ground: &Ground, stop: &AtomicBool) -> Result<(), BenchError> {
    let mut session =
        Session { options, ground, stop, cells: Vec::new(), pairings: Vec::new(), notes: Vec::new() };
    if options.quick {
        session.notes.push("a quick run: every cell of the grid ran once, for one second.".to_owned());
    }
    if ground.iperf3_of_one_thread() {
        session.notes.push(iperf3::PROCESSES.to_owned());
    }
    let outcome = session.all();
    if let Err(error) = &outcome {
        session.notes.push(format!("not complete: {error}"));
    }
    let Session { notes, pairings, cells, .. } = &session;
    let page = results::page(&options.command(), &ground.described(), notes, pairings, cells);
    options.write(results::TITLE, &page)?;
    outcome
}

struct Session<'a> {
    options: &'a Options,
    ground: &'a Ground,
    stop: &'a AtomicBool,
    cells: Vec<Cell>,
    pairings: Vec<Pairing>,
    notes: Vec<String>,
}

impl Session<'_> {
    fn all(&mut self) -> Result<(), BenchError> {
        let peers = self.ground.peers();
        for &place in self.ground.places() {
            for &flows in self.options.flows {
                println!("{}, flows: {flows}", place.title());
                let mut tools = vec![Tool::Clearstream];
                tools.extend(&peers);
                self.grid(place, flows, &tools)?;
                self.pair(place, flows, Tool::Iperf3, Settings::DEFAULT, Settings::DEFAULT)?;
                let ours = self.best(place, flows, Tool::Clearstream);
                for &peer in &peers {
                    let theirs = self.best(place, flows, peer);
                    self.pair(place, flows, peer, ours, theirs)?;
                }
            }
        }
        Ok(())
    }

    fn run(
        &self,
        place: Place,
        flows: u32,
        tool: Tool,
        settings: Settings,
        seconds: u32,
    ) -> Result<run::Outcome, BenchError> {
        let shape = self.ground.shape(place, flows, seconds, PORT)?;
        run::run(self.ground, place, tool, settings, &shape, self.stop)
    }

    /// Every cell once, programs taking turns; then the best ones repeatedly.
    fn grid(&mut self, place: Place, flows: u32, tools: &[Tool]) -> Result<(), BenchError> {
        let grids: Vec<(Tool, Vec<Settings>)> = tools.iter().map(|&tool| (tool, tool.grid())).collect();
        let longest = grids.iter().map(|(_, grid)| grid.len()).max().unwrap_or(0);
        let first = self.cells.len();
        for index in 0..longest {
            for (tool, grid) in &grids {
                let Some(&settings) = grid.get(index) else { continue };
                let outcome = self.run(place, flows, *tool, settings, self.options.grid_seconds)?;
                println!("  {} {settings}: {:.1} Gb/s", tool.program(), outcome.gbps);
                self.cells.push(Cell { place, flows, tool: *tool, settings, outcomes: vec![outcome] });
            }
        }
        for _ in 0..self.options.repeats {
            for &tool in tools {
                for index in self.finalists(first, tool) {
                    let settings = self.cells[index].settings;
                    let outcome = self.run(place, flows, tool, settings, self.options.grid_seconds)?;
                    self.cells[index].outcomes.push(outcome);
                }
            }
        }
        Ok(())
    }

    /// The best cells by their first run, which does not change.
    fn finalists(&self, first: usize, tool: Tool) -> Vec<usize> {
        let mut indexes: Vec<usize> =
            (first..self.cells.len()).filter(|&index| self.cells[index].tool == tool).collect();
        indexes.sort_by(|&a, &b| self.cells[b].outcomes[0].gbps.total_cmp(&self.cells[a].outcomes[0].gbps));
        indexes.truncate(FINALISTS);
        indexes
    }

    /// Settings with the best median among those measured most often.
    fn best(&self, place: Place, flows: u32, tool: Tool) -> Settings {
        self.cells
            .iter()
            .filter(|cell| (cell.place, cell.flows, cell.tool) == (place, flows, tool))
            .max_by(|a, b| {
                let key = |cell: &Cell| (cell.outcomes.len(), cell.goodput().median);
                let ((runs_a, a), (runs_b, b)) = (key(a), key(b));
                runs_a.cmp(&runs_b).then(a.total_cmp(&b))
            })
            .map_or(Settings::DEFAULT, |cell| cell.settings)
    }

    fn pair(
        &mut self,
        place: Place,
        flows: u32,
        peer: Tool,
        ours: Settings,
        theirs: Settings,
    ) -> Result<(), BenchError> {
        let shape = self.ground.shape(place, flows, self.options.seconds, PORT)?;
        let mut pairing = Pairing {
            place,
            flows,
            peer,
            ours_settings: ours,
            peer_settings: theirs,
            ours_line: shown(&Tool::Clearstream.client(ours, &shape)),
            peer_line: shown(&peer.client(theirs, &shape)),
            pairs: Vec::new(),
        };
        let mut outcome = Ok(());
        for turn in 0..self.options.pairs {
            match self.one_pair(&pairing, turn % 2 == 0) {
                Ok(pair) => {
                    println!(
                        "  pair {}: {:.1} against {} {:.1} Gb/s ({:.2})",
                        turn + 1,
                        pair.0.gbps,
                        peer.program(),
                        pair.1.gbps,
                        pair.0.gbps / pair.1.gbps
                    );
                    pairing.pairs.push(pair);
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if !pairing.pairs.is_empty() {
            self.pairings.push(pairing);
        }
        outcome
    }

    fn one_pair(
        &self,
        pairing: &Pairing,
        ours_first: bool,
    ) -> Result<(run::Outcome, run::Outcome), BenchError> {
        let Pairing { place, flows, peer, ours_settings, peer_settings, .. } = *pairing;
        let seconds = self.options.seconds;
        let ours = || self.run(place, flows, Tool::Clearstream, ours_settings, seconds);
        let theirs = || self.run(place, flows, peer, peer_settings, seconds);
        if ours_first {
            let first = ours()?;
            Ok((first, theirs()?))
        } else {
            let first = theirs()?;
            Ok((ours()?, first))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Result<Options, BenchError> {
        Options::read(arguments.iter().map(|&argument| argument.to_owned()))
    }

    #[test]
    fn options_are_read_and_mistakes_are_reported() {
        let usual = options(&[]).unwrap();
        assert!(usual.pairs >= 5 && usual.output.ends_with("bench/RESULTS.md"));
        let quick = options(&["--pairs", "3", "--quick", "--output", "/dev/null"]).unwrap();
        assert_eq!((quick.pairs, quick.quick, quick.seconds), (3, true, 1));
        assert_eq!((usual.part, options(&["--only", "rdma"]).unwrap().part), (Part::All, Part::Rdma));
        for arguments in
            [&["--pairs"][..], &["--only", "disk"], &["--pairs", "0"], &["--fast"], &["--seconds", "x"]]
        {
            let error = options(arguments).err().unwrap().to_string();
            assert!(error.contains("usage:"), "{error}");
        }
    }
}
