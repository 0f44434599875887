//! `clearstream storage stream`

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::{Duration, Instant},
};

use clearstream_schema::{
    DataKind, TimeSpan, human,
    notice::Notice,
    storage::{StreamConfig, StreamPhase, StreamPoint, StreamReorder, StreamSummary},
};
use clearstream_storage::StorageStream;
use clearstream_workload::Workload as _;

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
    output::{Output, Paint, quantity, storage_ior, storage_stream},
};

/// Measure streaming to and from files by many ranks, with IOR's model and options.
#[derive(Debug, clap::Args)]
pub struct StreamArgs {
    /// Directory; the files are in a new folder in it, which is removed at the end
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    place: PlaceArgs,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    against: AgainstArgs,
    #[command(flatten)]
    config: StreamConfig,
    /// The same as --reorder constant (IOR)
    #[arg(short = 'C', conflicts_with = "reorder")]
    constant: bool,
    /// The same as --reorder random (IOR)
    #[arg(short = 'Z', conflicts_with_all = ["reorder", "constant"])]
    random: bool,
    /// Maximum duration of all phases
    #[arg(long, value_name = "TIME", value_parser = TimeSpan::above_zero, default_value = "1h")]
    timeout: TimeSpan,
    /// Print the tables as IOR does
    #[arg(long)]
    ior: bool,
}

impl StreamArgs {
    /// Runs the measurement and prints it.
    pub fn run(self, out: &Output) -> Result<(), CommandError> {
        let stop = interrupt::stop_flag()?;
        // Reported as what it is, before the first agent.
        drop(agent_command()?);
        let place = self.place.open()?;
        let mut config = self.config.clone();
        config.directory = place.directory(&self.directory, config.hosts.as_deref())?;
        config.reorder = match (self.constant, self.random) {
            (true, _) => StreamReorder::Constant,
            (_, true) => StreamReorder::Random,
            _ => config.reorder,
        };
        config.operations = super::absolute_file(config.operations.as_deref())?;
        if let Some(other) = &self.against.against {
            check_turns(&config)?;
            return self.asked(&config, &place, &stop, out).compare(other);
        }
        if !self.ranks.mpi && place.lab().is_none() && config.hosts.is_none() {
            too_large(&config).iter().for_each(|notice| out.notice(notice));
        }
        let expected = StorageStream.time(&config).to_std().min(Duration::from_secs(365 * 86_400));
        let started = Instant::now();
        let count = config.phases().len() * config.iterations as usize;
        let mut done = 0_u32;
        if !self.ranks.mpi {
            out.progress(expected, &format!("phase 1 of {count}"));
        }
        let mut on_point = |point: &StreamPoint| {
            done += 1;
            // Of the time of those before.
            let left = started.elapsed().checked_div(done).unwrap_or_default();
            let more = count.saturating_sub(done as usize);
            out.interval(point, || Some(self.lines(&config, point, done == 1)));
            out.progress(
                left.saturating_mul(more as u32),
                &format!("{} measured", quantity::count(u64::from(done), "phase")),
            );
        };
        let text = |summary: &StreamSummary| match self.ior {
            true => storage_ior::end(summary),
            false => storage_stream::end(summary, Paint::for_stdout()),
        };
        self.asked(&config, &place, &stop, out).measure(self.ior, text, &mut on_point)
    }

    fn asked<'a>(
        &'a self,
        config: &'a StreamConfig,
        place: &'a Place,
        stop: &'a Arc<AtomicBool>,
        out: &'a Output,
    ) -> Asked<'a, StorageStream> {
        Asked { config, place, ranks: &self.ranks, timeout: self.timeout, stop, out }
    }

    /// A phase for people, the first one with the heads of its columns.
    fn lines(&self, config: &StreamConfig, point: &StreamPoint, is_first: bool) -> String {
        let (head, row) = match self.ior {
            true => (storage_ior::head(config, &point.ranks), storage_ior::row(config, point)),
            false => (storage_stream::head(config, point.ranks.len() as u64), storage_stream::row(point)),
        };
        if is_first { format!("{head}\n{row}") } else { row }
    }
}

/// What cannot be done on two directories in turns.
fn check_turns(config: &StreamConfig) -> Result<(), CommandError> {
    if config.keep || config.name.is_some() || (config.read && !config.write) {
        let message =
            "--against compares runs with files of their own: leave --keep, --name and a lone --read out";
        return Err(CommandError::usage(message));
    }
    super::without_operations(config.operations.as_deref())
}

/// Said before it begins: what is to be written has no room, and nothing ends it before.
fn too_large(config: &StreamConfig) -> Option<Notice> {
    let writes = config.phases().contains(&StreamPhase::Write) && !config.existing;
    if !writes || config.stonewall.is_some() || config.data != DataKind::Random {
        return None;
    }
    let needed =
        config.transfer_count().saturating_mul(config.transfer.0).saturating_mul(config.rank_count());
    let found = rustix::fs::statvfs(Path::new(&config.directory)).ok()?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let message = format!(
        "{} are to be written, and {} has {} free: choose smaller blocks, or a --stonewall",
        human::bytes(needed),
        config.directory,
        human::bytes(free)
    );
    (needed > free).then(|| Notice { id: "too-large".to_owned(), message })
}
