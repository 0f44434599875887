//! `clearstream storage metadata`

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use clearstream_schema::{
    TimeSpan,
    storage::metadata::{MetadataConfig, MetadataOperation, MetadataPhase, StorageMetadata},
};
use clearstream_storage::StorageMetadataWorkload;

use super::{
    against::AgainstArgs,
    benchmark::Asked,
    place::{Place, PlaceArgs},
    ranks::RankArgs,
};
use crate::{
    endpoints::agent_command,
    exit::CommandError,
    interrupt,
    output::{Output, Paint, storage_metadata},
};

/// Measure operations on files and directories by many ranks, with mdtest's model and options.
#[derive(Debug, clap::Args)]
pub struct MetadataArgs {
    /// Directory; trees are made in a new folder in it, which is removed at the end. Of several, ranks have them in turns
    #[arg(value_name = "DIR", required_unless_present = "joined")]
    directories: Vec<PathBuf>,
    /// The same as DIR, with @ between several (mdtest)
    #[arg(short = 'd', value_name = "DIR@DIR", value_delimiter = '@', conflicts_with = "directories")]
    joined: Vec<PathBuf>,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    against: AgainstArgs,
    #[command(flatten)]
    config: MetadataConfig,
    /// Only create, with -T, -E and -r what these name; without -r the items stay as with --keep (mdtest)
    #[arg(short = 'C', conflicts_with = "phases")]
    create: bool,
    /// Only look up, without -C what an earlier run left in --name (mdtest)
    #[arg(short = 'T', conflicts_with = "phases")]
    stat: bool,
    /// Only read, without -C what an earlier run left in --name (mdtest)
    #[arg(short = 'E', conflicts_with = "phases")]
    read: bool,
    /// Only remove, without -C what an earlier run left in --name (mdtest)
    #[arg(short = 'r', conflicts_with_all = ["phases", "keep"])]
    remove: bool,
    /// Maximum duration of all phases
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::above_zero, default_value = "1h")]
    timeout: TimeSpan,
    /// Print the summary as mdtest does
    #[arg(long)]
    mdtest: bool,
}

impl MetadataArgs {
    /// Runs the measurement and prints it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        // Reported as what it is, before the first agent.
        drop(agent_command()?);
        let place = self.place.open()?;
        let config = self.config(&place)?;
        if let Some(other) = &self.against.against {
            check_turns(&config)?;
            return self.asked(&config, &place, &stop, out).compare(other);
        }
        let started = Instant::now();
        let mut has_head = false;
        let mut on_phase = |phase: &MetadataPhase| {
            let (iteration, kind, operation) =
                (phase.iteration + 1, phase.kind.name(), phase.operation.name());
            let step = format!("iteration {iteration} of {}: {kind} {operation}", config.iterations);
            // Of an iteration as long as those before; the first one has no estimate.
            let left = started.elapsed().checked_div(phase.iteration).map_or(Duration::ZERO, |mean| {
                mean.saturating_mul(config.iterations).saturating_sub(started.elapsed())
            });
            out.interval(phase, || self.lines(&config, phase, !std::mem::replace(&mut has_head, true)));
            out.progress(left, &step);
        };
        let text = |found: &StorageMetadata| match self.mdtest {
            true => storage_metadata::mdtest(found),
            false => storage_metadata::end(found, Paint::for_stdout()),
        };
        self.asked(&config, &place, &stop, out).measure(self.mdtest, text, &mut on_phase)
    }

    fn asked<'a>(
        &'a self,
        config: &'a MetadataConfig,
        place: &'a Place,
        stop: &'a Arc<AtomicBool>,
        out: &'a Output,
    ) -> Asked<'a, StorageMetadataWorkload> {
        Asked { config, place, ranks: &self.ranks, timeout: self.timeout, stop, out }
    }

    /// The options, with those that are letters of mdtest.
    fn config(&self, place: &Place) -> Result<MetadataConfig, CommandError> {
        let mut config = self.config.clone();
        let given = if self.joined.is_empty() { &self.directories } else { &self.joined };
        let directories = given.iter().map(|directory| place.directory(directory, config.hosts.as_deref()));
        let mut directories = directories.collect::<Result<Vec<_>, _>>()?.into_iter();
        config.directory = directories.next().unwrap_or_default();
        config.more_directories = directories.collect();
        config.operations = super::absolute_file(config.operations.as_deref())?;
        let letters = [
            (self.create, MetadataOperation::Create),
            (self.stat, MetadataOperation::Stat),
            (self.read, MetadataOperation::Read),
            (self.remove, MetadataOperation::Remove),
        ];
        let chosen = letters.iter().filter(|(is_chosen, _)| *is_chosen).map(|(_, operation)| *operation);
        let chosen: Vec<MetadataOperation> = chosen.collect();
        if !chosen.is_empty() {
            config.phases = chosen;
            config.keep |= self.create && !self.remove;
            if !self.create && config.name.is_none() {
                let message = "-T, -E and -r without -C use what an earlier run has kept: write --name NAME";
                return Err(CommandError::usage(message));
            }
        }
        Ok(config)
    }

    /// A phase for people, the first one with the heads of its columns; mdtest has a summary alone.
    fn lines(&self, config: &MetadataConfig, phase: &MetadataPhase, is_first: bool) -> Option<String> {
        let row = storage_metadata::row(phase);
        let lines = if is_first {
            format!("{}\n{row}", storage_metadata::head(config, phase.rank_counts.len() as u64))
        } else {
            row
        };
        (!self.mdtest).then_some(lines)
    }
}

/// What cannot be done on two directories in turns.
fn check_turns(config: &MetadataConfig) -> Result<(), CommandError> {
    if config.keep || config.uses_earlier() || !config.more_directories.is_empty() {
        let message = "--against compares runs with items of their own in one directory each: leave --keep, the name of an \
                       earlier run and further directories out";
        return Err(CommandError::usage(message));
    }
    super::without_operations(config.operations.as_deref())
}
