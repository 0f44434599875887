//! `clearstream live`: what hosts do now.

mod record;
mod served;
mod sources;

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use clearstream_control::{Call as _, PeerError};
use clearstream_live::{CollectorOptions, ReadLive};
use clearstream_schema::{
    TimeSpan,
    live::{LIVE_SUMMARY_SCHEMA, LiveSummary},
};

use crate::{
    endpoints::FamilyArgs,
    exit::{CommandError, cannot},
    interrupt,
    output::{
        Output, Unwritten,
        live::{Board, Screen, ScreenEvent, line},
    },
};
use record::Record;
use served::Served;
use sources::{Sources, Update};

/// Show what hosts do now: interfaces, cores, TCP, and the busiest connections with what limits each.
#[derive(Debug, clap::Args)]
pub struct LiveArgs {
    /// Hosts, as ssh knows them, or `localhost`; with --lab hosts of the lab, all of them by default (default: this host)
    #[arg(value_name = "HOST")]
    hosts: Vec<String>,
    /// Show hosts of this lab (started for the command when it is not running)
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Interval between two samples
    #[arg(short, long, value_name = "TIME", default_value = "1s")]
    interval: TimeSpan,
    /// End after this time (default: run until stopped)
    #[arg(short = 't', long, value_name = "TIME")]
    duration: Option<TimeSpan>,
    /// Connections to show, the busiest; 0 leaves them out
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 8)]
    connections: u16,
    /// Print a line per sample on a terminal, too, instead of the screen
    #[arg(long)]
    lines: bool,
    /// Keep all samples as a record in this folder, of which `clearstream report` draws the rates over time
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// Serve the page here and print its link (default address: a free port of loopback)
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:0", require_equals = true)]
    web: Option<SocketAddr>,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Option for ssh: as it is when it begins with a dash (`-p2222`), else for `-o` (`Port=2222`)
    #[arg(long = "ssh-option", value_name = "OPTION", allow_hyphen_values = true)]
    ssh_options: Vec<String>,
    /// Name or path of clearstream on the other hosts
    #[arg(long, value_name = "PROGRAM", default_value = "clearstream")]
    remote_program: String,
    /// Address family of control.
    #[command(flatten)]
    family: FamilyArgs,
}

/// Bounds of `--interval`: those of an agent.
const INTERVALS: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(60);
/// Longest wait for a key or a signal.
const TICK: Duration = Duration::from_millis(50);

impl LiveArgs {
    /// Shows samples until the end.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let interval = self.interval.to_std();
        if !INTERVALS.contains(&interval) {
            let message = format!("--interval is from {:?} to {:?}", INTERVALS.start(), INTERVALS.end());
            return Err(CommandError::Usage(message));
        }
        let stop = interrupt::stop_flag()?;
        let options = CollectorOptions { interval_ns: self.interval.0, connection_count: self.connections };
        let is_over = Arc::new(AtomicBool::new(false));
        let (sources, updates) = Sources::start(&self, options, &is_over)?;
        let begun = Instant::now();
        let record = self.record.as_deref().map(|folder| Record::create(folder, &sources, self.interval));
        let mut session = Session {
            board: Board::new(sources.names(), interval),
            record: record.transpose()?,
            served: Served::start(&self, &sources)?,
            out,
            duration: self.duration.map(TimeSpan::to_std),
            // Samples end a little after their interval, and a host that is lost has none.
            until: self.duration.map(|duration| Instant::now() + duration.to_std() + interval),
            stop,
        };
        session.announce();
        let on_screen =
            out.is_human() && !self.lines && io::stdout().is_terminal() && io::stdin().is_terminal();
        if on_screen {
            session.on_screen(&updates)?
        } else {
            session.in_lines(&updates)?
        }
        let interrupted = session.stop.load(Ordering::Relaxed);
        is_over.store(true, Ordering::Relaxed);
        let silent = self.duration.and_then(|duration| session.board.silent(duration.to_std()));
        let summary = LiveSummary {
            schema: LIVE_SUMMARY_SCHEMA.to_owned(),
            version: 1,
            hosts: session.board.totals(),
            record: session.record.map(|record| record.finish(&session.board)).transpose()?,
        };
        out.result(&summary, || crate::output::live::summary(&summary))?;
        if interrupted && self.duration.is_some() {
            return Err(CommandError::Interrupted("the samples are those up to the interruption".to_owned()));
        }
        match silent.filter(|_| !interrupted) {
            Some((name, Some(reason))) => Err(PeerError::Lost { name, reason }.into()),
            Some((name, None)) => {
                let awaited = format!("reply to `{}`", ReadLive::NAME);
                Err(PeerError::Unanswered { name, awaited, after: begun.elapsed() }.into())
            }
            None => Ok(()),
        }
    }
}

/// A running command.
struct Session<'a> {
    board: Board,
    record: Option<Record>,
    served: Served,
    out: &'a Output,
    duration: Option<Duration>,
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Session<'_> {
    /// Where the page and the metrics are.
    fn announce(&mut self) {
        let links = self.served.links();
        for (name, link) in &links {
            let text = format!("{name}: {link}");
            self.out.state(name, Some(serde_json::Value::String(link.clone())), || Some(text));
        }
        self.board.show_links(links.into_iter().map(|(name, link)| format!("{name}: {link}")).collect());
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.duration.is_some_and(|duration| self.board.covers(duration))
            || self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// A line per sample, or an event.
    fn in_lines(&mut self, updates: &Receiver<Update>) -> Result<(), CommandError> {
        while !self.is_over() {
            match updates.recv_timeout(TICK) {
                Ok(update) => self.take(update, true)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Ok(())
    }

    fn on_screen(&mut self, updates: &Receiver<Update>) -> Result<(), CommandError> {
        let mut screen = Screen::open().map_err(cannot("use this terminal"))?;
        while !self.is_over() {
            let mut is_new = false;
            while let Ok(update) = updates.try_recv() {
                self.take(update, false)?;
                is_new = true;
            }
            match screen.wait(TICK).map_err(cannot("read the keyboard"))? {
                Some(ScreenEvent::Quit) => break,
                Some(ScreenEvent::Redraw) => is_new = true,
                None => {}
            }
            if is_new {
                screen.draw(&self.board).map_err(Unwritten::from)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, update: Update, prints: bool) -> Result<(), CommandError> {
        match update {
            Update::Sample(host, sample) => {
                if let Some(record) = &mut self.record {
                    record.add(&sample)?;
                }
                self.served.add(&sample)?;
                if prints {
                    self.out.interval(&*sample, || Some(line(&sample)));
                }
                self.board.add(host, *sample);
            }
            Update::Lost(host, reason) => {
                self.served.lose(self.board.name(host), &reason);
                if prints && !self.board.is_lost(host) {
                    let text = format!("{}: no samples: {reason}", self.board.name(host));
                    self.out.state("host-lost", Some(serde_json::Value::String(text.clone())), || {
                        Some(text.clone())
                    });
                }
                self.board.lose(host, reason);
            }
        }
        Ok(())
    }
}
