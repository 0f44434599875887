//! The verbs that measure by a workload: `probe`, `message`, `overlap`. There is one of them, made of the contract of a
//! workload ([`Verb`]): hosts and options, progress, events, table and document, exit code.

use std::{
    fmt::Debug,
    marker::PhantomData,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand, builder::PossibleValue};
use clearstream_schema::outcome::Outcome;
use clearstream_workload::{Context, Event, TrialError, Verb, run};

use crate::{
    endpoints::{Endpoints, HostArgs, PathArgs},
    exit::CommandError,
    interrupt,
    output::{Output, Paint, documents::Measured},
    workloads,
};

/// Longest time that progress is shown for.
const EXPECTED_MAX: Duration = Duration::from_secs(365 * 86_400);
/// Name of the option of [`Verb::formats`].
const FORMAT: &str = "table";

/// One of these verbs, with its options.
#[derive(Debug)]
pub struct Measure(Box<dyn Asked>);

impl Measure {
    /// Runs the measurement and prints it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        self.0.run(out)
    }
}

/// The verb of a workload.
pub trait MeasuringVerb {
    /// The verb of the command line, without its options.
    fn command(&self) -> Command;

    /// What was asked for.
    ///
    /// # Errors
    /// As of clap.
    fn read(&self, matches: &ArgMatches) -> Result<Box<dyn Asked>, clap::Error>;

    /// The schema of its document.
    #[cfg(debug_assertions)]
    fn published(&self) -> crate::output::schemas::Published;
}

/// What was asked for on the command line.
pub trait Asked: Debug {
    /// Runs the measurement and prints it.
    ///
    /// # Errors
    /// Why there is no result, or not a whole one.
    fn run(&self, out: &Output) -> Result<(), CommandError>;
}

/// The verb of a workload, by its type.
#[derive(Debug)]
pub struct Of<W>(PhantomData<W>);

impl<W> Default for Of<W> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<W: Verb> MeasuringVerb for Of<W> {
    fn command(&self) -> Command {
        Command::default().name(W::default().name()).about(W::ABOUT).defer(with_options::<W>)
    }

    fn read(&self, matches: &ArgMatches) -> Result<Box<dyn Asked>, clap::Error> {
        let has_format = !W::default().formats().is_empty();
        Ok(Box::new(Options::<W> {
            host: HostArgs::from_arg_matches(matches)?,
            path: PathArgs::from_arg_matches(matches)?,
            config: W::Config::from_arg_matches(matches)?,
            format: has_format.then(|| matches.get_one::<String>(FORMAT).cloned()).flatten(),
        }))
    }

    #[cfg(debug_assertions)]
    fn published(&self) -> crate::output::schemas::Published {
        crate::output::schemas::Published::measured::<W>()
    }
}

/// Adds the options of a verb.
fn with_options<W: Verb>(command: Command) -> Command {
    // Options bring the help of their types with them.
    let command = W::Config::augment_args(PathArgs::augment_args(HostArgs::augment_args(command)));
    let command = command.about(W::ABOUT).long_about(None);
    let formats = W::default().formats();
    if formats.is_empty() {
        return command;
    }
    let values = formats.iter().map(|(name, what)| PossibleValue::new(*name).help(*what));
    let option = Arg::new(FORMAT)
        .long(FORMAT)
        .value_name("FORMAT")
        .value_parser(values.collect::<Vec<_>>())
        .help("Print the results as another program does, for scripts that read its output");
    command.arg(option)
}

/// What was asked for of one workload.
#[derive(Debug)]
struct Options<W: Verb> {
    host: HostArgs,
    path: PathArgs,
    config: W::Config,
    /// One of [`Verb::formats`].
    format: Option<String>,
}

impl<W: Verb> Asked for Options<W> {
    fn run(&self, out: &Output) -> Result<(), CommandError> {
        let workload = W::default();
        workload.check_effect(&self.config).map_err(TrialError::from)?;
        if self.format.is_some() && !out.is_human() {
            return Err(CommandError::usage("--table is a text: leave out --json, or leave out --table"));
        }
        let stop = interrupt::stop_flag()?;
        let mut ends = Endpoints::open(self.host.name(), &self.path)?;
        out.set_hosts(ends.identities());
        let expected = workload.time(&self.config).to_std().saturating_add(workload.overhead().to_std());
        let on_event = &mut shown(out, expected.min(EXPECTED_MAX));
        let hosts = &mut ends.hosts()?;
        match run(&workload, &mut Context { hosts, stop: &stop, on_event }, &self.config) {
            Ok(outcome) => self.print(&workload, outcome, out)?,
            Err(mut error) => {
                // What was measured until an agent was lost, or until nobody waited for its reply any more, is kept.
                if let Some(partial) = error.partial.take() {
                    self.print(&workload, *partial, out)?;
                } else if error.stopped {
                    let message = format!("the {} was interrupted before it had a result", workload.name());
                    return Err(CommandError::Interrupted(message));
                }
                return Err(error.into());
            }
        }
        if stop.load(Ordering::Relaxed) {
            return Err(CommandError::Interrupted(
                "results cover what was measured up to the interruption".to_owned(),
            ));
        }
        Ok(())
    }
}

impl<W: Verb> Options<W> {
    fn print(&self, workload: &W, outcome: Outcome, out: &Output) -> Result<(), CommandError> {
        let document = outcome.detail.map(|detail| detail.document).unwrap_or_default();
        let document = clearstream_schema::json::from_value(document).map_err(TrialError::from)?;
        let document = Measured::<W>(document);
        Ok(out.result(&document, || match &self.format {
            Some(format) => workload.formatted(&document.0, format),
            None => workload.table(&document.0, Paint::for_stdout()),
        })?)
    }
}

/// Shows the events of a measurement of this length.
fn shown(out: &Output, expected: Duration) -> impl FnMut(Event) + '_ {
    let started = Instant::now();
    out.progress(expected, "measuring");
    move |event| match event {
        Event::Notice(notice) => out.notice(&notice),
        Event::Sample(sample) => {
            let step = sample.part.map_or_else(|| "measuring".to_owned(), |part| format!("{part} measured"));
            out.progress(expected.saturating_sub(started.elapsed()), &step);
            let document: Option<serde_json::Value> = clearstream_schema::json::from_str(&sample.json).ok();
            out.interval(&document, || None);
        }
    }
}

impl FromArgMatches for Measure {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let verbs = workloads::all().verbs;
        let asked = matches.subcommand().and_then(|(name, matches)| {
            verbs.iter().find(|verb| verb.command().get_name() == name).map(|verb| verb.read(matches))
        });
        asked.unwrap_or_else(|| Err(clap::Error::new(clap::error::ErrorKind::MissingSubcommand))).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for Measure {
    fn augment_subcommands(command: Command) -> Command {
        workloads::all().verbs.iter().fold(command, |command, verb| command.subcommand(verb.command()))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        workloads::all().verbs.iter().any(|verb| verb.command().get_name() == name)
    }
}
