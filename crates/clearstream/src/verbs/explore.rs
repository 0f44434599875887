//! `clearstream explore`, a verb of its own because its ranks are no agents:
//! they are threads of this process, or processes that `mpirun` or `srun` started: then each of them is
//! this command, and rank 0 prints.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clearstream_configfile::did_you_mean;
use clearstream_explore::document::Exploration;
use clearstream_explore::{ExploreConfig, ExploreError, MODELS, Program, explore};
use clearstream_ranks::{self as ranks, RankError, World as _, threads};
use clearstream_schema::ByteCount;
use serde_json::json;

use crate::{
    exit::CommandError,
    files, interrupt, mpi,
    output::{self, Output},
};

/// Between two lines of progress, for people.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Explore the states of a model, by threads or by the ranks of an MPI job.
#[derive(Debug, clap::Args)]
pub struct ExploreArgs {
    /// Model: philosophers, peterson, bakery, leader, sliding_window, or a file
    model: String,
    /// Value of a parameter, as in `-D N=8`
    #[arg(short = 'D', long = "define", value_name = "NAME=VALUE", value_parser = definition)]
    define: Vec<(String, i64)>,
    /// Ranks, each a thread of this process
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024), conflicts_with = "mpi")]
    ranks: u16,
    /// Be one rank of an MPI job: `mpirun -np 4 clearstream explore --mpi MODEL`
    #[arg(long)]
    mpi: bool,
    /// Library with this site's MPI, built by `make extras` (default: beside this program)
    #[arg(long, value_name = "FILE", requires = "mpi")]
    mpi_library: Option<PathBuf>,
    /// Search for cycles with an accepting state
    #[arg(long)]
    cycles: bool,
    /// Bytes that a message between ranks holds at most
    #[arg(short, long, value_name = "BYTES", default_value = "16KiB")]
    message_size: ByteCount,
    /// Memory that the states of each rank take at most
    #[arg(long, value_name = "BYTES", default_value = "4GiB")]
    memory: ByteCount,
}

fn definition(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    let value = value.trim().parse().map_err(|_| format!("{value} is no whole number"))?;
    Ok((name.trim().to_owned(), value))
}

impl ExploreArgs {
    /// Runs it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let (source, text) = self.source()?;
        let program = Program::read(&text, &self.define)
            .map_err(|error| CommandError::Usage(format!("{source}: {error}")))?;
        if self.cycles && !program.has_accepting() {
            let message =
                format!("{source} has no accepting states: add `accepting when ...`, or leave --cycles out");
            return Err(CommandError::Usage(message));
        }
        let config = ExploreConfig {
            message_bytes: usize::try_from(self.message_size.0).unwrap_or(usize::MAX).clamp(1, 1 << 30),
            memory_bytes: usize::try_from(self.memory.0).unwrap_or(usize::MAX),
            cycles: self.cycles,
        };
        let stop = interrupt::stop_flag()?;
        if self.mpi {
            return self.by_mpi(&source, &program, &config, &stop, out);
        }
        let found = self.by_threads(&program, &config, &stop, out).map_err(|error| failed(&source, error))?;
        found.map_or(Ok(()), |found| show(&found, out))
    }

    /// Place and text of the model.
    fn source(&self) -> Result<(String, String), CommandError> {
        if let Some((name, text)) = MODELS.iter().find(|(name, _)| *name == self.model) {
            return Ok((format!("models/{name}.model"), (*text).to_owned()));
        }
        if !self.model.contains('/') && !self.model.ends_with(".model") {
            let names = MODELS.iter().map(|(name, _)| *name);
            let hint = did_you_mean(&self.model, names.clone());
            let known = names.collect::<Vec<_>>().join(", ");
            let message =
                format!("there is no model `{}`{hint} (known: {known}; or the path of a file)", self.model);
            return Err(CommandError::Usage(message));
        }
        Ok((self.model.clone(), files::read_text(Path::new(&self.model))?))
    }

    fn by_threads(
        &self,
        program: &Program,
        config: &ExploreConfig,
        stop: &AtomicBool,
        out: &Output,
    ) -> Result<Option<Exploration>, ExploreError> {
        let (count, ranks) = (AtomicU64::new(0), u64::from(self.ranks));
        let mut results = thread::scope(|scope| {
            let all = scope.spawn(|| {
                threads(usize::from(self.ranks), |world| {
                    let is_first = world.rank() == 0;
                    explore(world, program, config, stop, &mut |states| {
                        if is_first {
                            count.store(states, Ordering::Relaxed);
                        }
                    })
                })
            });
            let mut progress = Progress::new(ranks);
            while !all.is_finished() {
                thread::sleep(Duration::from_millis(2));
                progress.show(count.load(Ordering::Relaxed), out);
            }
            all.join().unwrap_or(Err(RankError::Lost { rank: 0 }))
        })?;
        // Each rank returns an error when one has it: that of the rank itself is the one to show.
        let place = results.iter().position(|result| {
            result.as_ref().is_err_and(|error| !matches!(error, ExploreError::OfRank { .. }))
        });
        results.swap_remove(place.unwrap_or(0))
    }

    fn by_mpi(
        &self,
        source: &str,
        program: &Program,
        config: &ExploreConfig,
        stop: &Arc<AtomicBool>,
        out: &Output,
    ) -> Result<(), CommandError> {
        let mut world = mpi::join(self.mpi_library.as_deref(), stop).map_err(CommandError::from)?;
        let (is_first, ranks) = (world.rank() == 0, world.size() as u64);
        let mut progress = Progress::new(ranks);
        let watched = ranks::watched(&mut world, &|| 0, &mut |_| {}, &|| (), |world| {
            let found = explore(world, program, config, stop, &mut |states| {
                if is_first {
                    progress.show(states, out);
                }
            });
            // Ranks are watched until all are done.
            let is_lost = matches!(found, Err(ExploreError::Ranks(_)));
            let together = if is_lost { Ok(()) } else { world.barrier() };
            (found, together)
        });
        let (found, together) = match watched {
            Ok((Err(ExploreError::Ranks(error)), _)) | Err(error) => {
                return Err(mpi::abandon(world, CommandError::from(error), out));
            }
            Ok(ended) => ended,
        };
        // What was found is said, whatever becomes of the job.
        let shown = match found {
            Ok(found) => found.map_or(Ok(()), |found| show(&found, out)),
            Err(error) => Err(failed(source, error)),
        };
        if let Err(error) = together {
            return Err(mpi::abandon(world, CommandError::from(error), out));
        }
        mpi::leave(world, out)?;
        shown
    }
}

/// The result; counts of a part are an interruption.
fn show(found: &Exploration, out: &Output) -> Result<(), CommandError> {
    out.result(found, || output::explore::summary(found))?;
    match found.complete {
        true => Ok(()),
        false => {
            let what = "counts are of the states found up to the interruption";
            Err(CommandError::Interrupted(what.to_owned()))
        }
    }
}

/// Lines for people and states for streams, every so often.
struct Progress {
    begun: Instant,
    last: Instant,
    ranks: u64,
}

impl Progress {
    fn new(ranks: u64) -> Self {
        Self { begun: Instant::now(), last: Instant::now(), ranks }
    }

    /// The total is not known before the end, and so is no time left.
    fn show(&mut self, states: u64, out: &Output) {
        if self.last.elapsed() < LINE_INTERVAL {
            return;
        }
        self.last = Instant::now();
        let (about, seconds) = (states * self.ranks, self.begun.elapsed().as_secs());
        out.state("exploring", Some(json!({ "about_state_count": about })), || {
            Some(format!("about {about} states after {seconds} s"))
        });
    }
}

fn failed(source: &str, error: ExploreError) -> CommandError {
    match error {
        ExploreError::Fault { .. } => CommandError::Usage(format!("{source}: {error}")),
        ExploreError::Ranks(error) => CommandError::from(error),
        error => CommandError::Partial(error.to_string()),
    }
}
