//! File system metadata by several ranks, in the model of mdtest: a tree of directories, in it directories and
//! files that are created, looked up, read, renamed and removed, each operation as one phase.
//!
//! Names follow from numbers, so that memory does not grow with the items. Every iteration has a tree of its own:
//! file systems may pass over names and inodes that were removed shortly before, and repetitions in the same
//! directory would measure that.

mod agreement;
mod document;
mod error;
mod folder;
mod identity;
mod kept;
mod measure;
mod own;
mod owned;
mod phase;
mod run;
mod tree;
mod workload;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use clearstream_control::{Peer, PeerError};
use clearstream_ranks::{THREADS_TRANSPORT, World, threads};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
    notice::Notice,
    outcome::Outcome,
    storage::{
        host_names,
        metadata::{MetadataConfig, MetadataOperation, MetadataPhase, StorageMetadata},
    },
};

use document::{Facts, document};
pub(crate) use error::MetadataError;
use error::file_error;
pub(crate) use measure::directories;
use measure::{Ended, folder_name, measure};
use tree::Tree;
pub use workload::StorageMetadataWorkload;

use crate::{
    CommonOptions, RankBenchmark, RankSummary, StorageError,
    calls::{Benchmark, Measured, StorageEnded},
    controller::{Driven, Ran, drive},
    folder::clear_left_over,
    guard::Guard,
    job::{self, JobOptions, JobPlace},
    live::{Live, OnLive},
    mount::Mount,
    test_folder::TestFolder,
};

/// Largest content of a file: a buffer of it is in memory.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum number of ranks of one process.
const TASKS_MAX: u32 = 1024;

impl RankBenchmark for StorageMetadataWorkload {
    type Point = MetadataPhase;
    type Summary = StorageMetadata;

    fn at_agent(
        agent: &mut Peer,
        config: &MetadataConfig,
        timeout: Duration,
        stop: &AtomicBool,
        on_phase: &mut dyn FnMut(&MetadataPhase),
        on_live: OnLive<'_>,
    ) -> Result<Ran<StorageMetadata>, StorageError> {
        check(config).map_err(StorageError::Invalid)?;
        let of_ranks = with_name(config);
        let kept = |reported: Option<String>| kept_name(&of_ranks, reported);
        let mut phases = Vec::new();
        let mut on_measured = |measured| {
            if let Measured::Metadata(phase) = measured {
                on_phase(&phase);
                phases.push(*phase);
            }
        };
        let benchmark = Benchmark::Metadata(of_ranks.clone());
        let driven = drive(agent, benchmark, timeout, stop, &mut on_measured, on_live);
        let driven = driven.map_err(|error| match error {
            // Nothing was made.
            StorageError::Peer(PeerError::Refused { .. }) => error,
            error => error.with_kept(&config.directory, kept(None).as_deref()),
        })?;
        let Driven { started, is_finished, ended, error } = driven;
        let error = error.map(|error| match error {
            // Nothing was made.
            StorageError::Failed(_) if ended.kept_folder.is_none() => error,
            error => error.with_kept(&config.directory, kept(None).as_deref()),
        });
        let facts = Facts {
            hosts: started.hosts,
            mounts: [started.mount].into_iter().chain(started.more_mounts).collect(),
            transport: THREADS_TRANSPORT.to_owned(),
            kept_folder: kept(ended.kept_folder),
            shape: ended.shape,
        };
        let notices = started.left_over.into_iter().chain(ended.notices);
        ran(config, facts, phases, (is_finished, error), notices)
    }

    fn as_job(
        place: JobPlace<'_>,
        config: &MetadataConfig,
        timeout: Duration,
        stop: &AtomicBool,
        on_phase: &mut dyn FnMut(&MetadataPhase),
        on_live: OnLive<'_>,
    ) -> Result<Ran<StorageMetadata>, StorageError> {
        check(config).map_err(StorageError::Invalid)?;
        let (of_ranks, all) = (with_name(config), directories(config));
        let options = JobOptions {
            verb: "metadata",
            directories: all.iter().map(String::as_str).collect(),
            hosts: config.hosts.as_deref().unwrap_or_default(),
            tasks: config.tasks,
            mpirun: config.mpirun.as_deref(),
        };
        let mut phases = Vec::new();
        let mut on_phases = |phase: MetadataPhase| {
            on_phase(&phase);
            phases.push(phase);
        };
        let found = job::run(place, &options, &of_ranks, timeout, stop, &mut on_phases, on_live);
        let (found, error) = match found {
            Ok(found) => (found, None),
            // What a rank reports has the folder, where there are items.
            Err(StorageError::Failed(failure))
                if failure.kind == FailureKind::Connection
                    && config.keep
                    && of_ranks.name.as_ref().is_some_and(|name| !failure.message.contains(name)) =>
            {
                let error = StorageError::Failed(failure);
                (None, Some(error.with_kept(&config.directory, of_ranks.name.as_deref())))
            }
            Err(error) => (None, Some(error)),
        };
        let Some(found): Option<StorageMetadata> = found else {
            // The ranks were stopped, or lost, before rank 0 could say more.
            let facts = Facts {
                hosts: host_names(options.hosts),
                mounts: vec![Mount::unknown()],
                transport: "unknown".to_owned(),
                kept_folder: kept_name(&of_ranks, None),
                shape: None,
            };
            return ran(config, facts, phases, (false, error), None);
        };
        job::check_ranks(found.requested.tasks, config.rank_count())?;
        let error = error.or_else(|| found.failure.clone().map(StorageError::Failed));
        Ok(Ran { found: StorageMetadata { requested: config.clone(), ..found }, error })
    }

    fn as_rank(
        world: &mut dyn World,
        config: &MetadataConfig,
        stop: &AtomicBool,
        guard: &mut Guard,
        live: &Live,
        on_phase: &mut dyn FnMut(&MetadataPhase),
    ) -> Result<Option<Ran<StorageMetadata>>, StorageError> {
        let tasks = u32::try_from(world.size()).unwrap_or(u32::MAX);
        let config = MetadataConfig { tasks, ..config.clone() };
        check(&config).map_err(StorageError::Invalid)?;
        let guard = RefCell::new(guard);
        let measured = RefCell::new((Vec::new(), on_phase));
        let watch = |folders: &[TestFolder]| watched(folders, &mut guard.borrow_mut());
        let all = directories(&config);
        let left_over = (world.rank() == 0).then(|| clear_left_over(&all)).flatten();
        let ended = measure(world, &config, (stop, live), &watch, &|phase| {
            let (phases, on_phase) = &mut *measured.borrow_mut();
            on_phase(phase);
            phases.push(phase.clone());
        });
        let kept = |error: MetadataError, folder: Option<&str>| {
            StorageError::from(error).with_kept(&config.directory, folder.filter(|_| config.keep))
        };
        let ended = ended.map_err(|error| match error {
            error @ MetadataError::Ranks(_) => kept(error, config.name.as_deref()),
            // Nothing was made.
            error => error.into(),
        })?;
        let Some(Ended { complete, hosts, shape, kept_folder, error, notices }) = ended else {
            return Ok(None);
        };
        let error = error.map(|error| kept(error, kept_folder.as_deref()));
        let facts = Facts {
            hosts,
            mounts: all.iter().map(|directory| Mount::of(Path::new(directory))).collect(),
            transport: world.transport().to_owned(),
            kept_folder,
            shape,
        };
        let notices = left_over.into_iter().chain(notices);
        ran(&config, facts, measured.into_inner().0, (complete, error), notices).map(Some)
    }

    fn common(config: &MetadataConfig) -> CommonOptions<'_> {
        CommonOptions {
            directory: &config.directory,
            hosts: config.hosts.as_deref(),
            mpi_library: config.mpi_library.as_deref(),
            iterations: config.iterations,
        }
    }

    fn once_in(config: &MetadataConfig, directory: &str) -> MetadataConfig {
        MetadataConfig { directory: directory.to_owned(), iterations: 1, ..config.clone() }
    }
}

impl RankSummary for StorageMetadata {
    fn is_complete(&self) -> bool {
        self.complete
    }

    fn notices(&self) -> &[Notice] {
        &self.notices
    }

    fn file_system(&self) -> &str {
        &self.file_system
    }

    fn outcome(&self) -> Result<Outcome, serde_json::Error> {
        self.outcome()
    }
}

/// With the name of the folder, where it is to be known also when its ranks cannot report it.
fn with_name(config: &MetadataConfig) -> MetadataConfig {
    let name = if config.keep { Some(folder_name(config)) } else { config.name.clone() };
    MetadataConfig { name, ..config.clone() }
}

/// The folder that stays.
fn kept_name(config: &MetadataConfig, reported: Option<String>) -> Option<String> {
    reported.or_else(|| config.name.clone().filter(|_| config.keep))
}

/// A run, complete or not.
fn ran(
    config: &MetadataConfig,
    facts: Facts,
    phases: Vec<MetadataPhase>,
    (is_finished, error): (bool, Option<StorageError>),
    more: impl IntoIterator<Item = Notice>,
) -> Result<Ran<StorageMetadata>, StorageError> {
    let is_complete = is_finished && error.is_none();
    let found = document(config, facts, phases, is_complete, more)?;
    Ran::of(found.phases.is_empty(), error, |failure| StorageMetadata { failure, ..found })
}

/// Rejects invalid options, with a suggested correction.
pub(crate) fn check(config: &MetadataConfig) -> Result<(), Failure> {
    let invalid = |message: String| Failure { kind: FailureKind::Invalid, message };
    if !(1..=TASKS_MAX).contains(&config.tasks) {
        return Err(invalid(format!("tasks must be 1 to {TASKS_MAX}, not {}", config.tasks)));
    }
    if config.iterations == 0 {
        return Err(invalid("iterations must be at least 1".to_owned()));
    }
    if config.phases.is_empty() {
        return Err(invalid("phases is empty: name create, stat, read, rename or remove".to_owned()));
    }
    if config.write_bytes.0 > MAX_BYTES || config.read_bytes.0 > MAX_BYTES {
        return Err(invalid("write-bytes and read-bytes must be at most 1GiB".to_owned()));
    }
    if config.wear_out && config.stonewall.is_none() {
        return Err(invalid(
            "wear-out is of a stonewall: add it, as in 30s, or leave wear-out out".to_owned(),
        ));
    }
    if config.files_only && config.directories_only {
        return Err(invalid("files-only and directories-only exclude each other: leave one out".to_owned()));
    }
    if config.keep && config.phases.contains(&MetadataOperation::Remove) && !config.has_all_phases() {
        return Err(invalid("keep and the phase remove exclude each other: leave one out".to_owned()));
    }
    if config.uses_earlier() && config.stonewall.is_some() {
        let message = "a stonewall is of creating: leave it out of a run on items of an earlier one";
        return Err(invalid(message.to_owned()));
    }
    check_directories(config).map_err(invalid)?;
    Tree::new(config).map(|_| ()).map_err(|error| invalid(error.to_string()))
}

/// The bounds of mdtest (its `md_validate_tests`), in which each rank stays in one directory.
fn check_directories(config: &MetadataConfig) -> Result<(), String> {
    let all = directories(config);
    let count = all.len() as u64;
    if count == 1 {
        return Ok(());
    }
    if all.iter().collect::<BTreeSet<_>>().len() < all.len() {
        return Err("a directory is named twice: name each of them once".to_owned());
    }
    if !config.unique_directory && !config.uses_earlier() {
        return Err("several directories have a tree per rank: add --unique-directory (-u)".to_owned());
    }
    if config.stride > 0 {
        return Err("with several directories each rank stays in its own: leave the stride out".to_owned());
    }
    if count > config.rank_count() {
        return Err(format!(
            "{count} directories need as many ranks, not {}: add --tasks",
            config.rank_count()
        ));
    }
    Ok(())
}

/// All ranks as threads.
pub(crate) fn run_threads(
    config: &MetadataConfig,
    stop: &AtomicBool,
    guard: &mut Guard,
    live: &Live,
    on_phase: &(impl Fn(&MetadataPhase) + Sync),
) -> StorageEnded {
    // The folders are the same ones for all threads: rank 0, which makes them, is the first to come here with some.
    let guard = Mutex::new(Some(guard));
    let results = threads(config.tasks as usize, |world| {
        let watch = |folders: &[TestFolder]| {
            let first = if folders.is_empty() {
                None
            } else {
                guard.lock().unwrap_or_else(PoisonError::into_inner).take()
            };
            first.into_iter().for_each(|guard| watched(folders, guard));
        };
        measure(world, config, (stop, live), &watch, on_phase)
    });
    let first = results.map_err(MetadataError::from).and_then(|all| all.into_iter().next().transpose());
    match first.map(Option::flatten) {
        Ok(Some(ended)) => StorageEnded {
            failure: ended.error.map(|error| error.to_failure()),
            notices: ended.notices,
            kept_folder: ended.kept_folder,
            shape: ended.shape,
        },
        Ok(None) => StorageEnded::default(),
        Err(error) => StorageEnded { failure: Some(error.to_failure()), ..StorageEnded::default() },
    }
}

/// Has folders removed after a death of this process, unless they are to stay.
fn watched(folders: &[TestFolder], guard: &mut Guard) {
    folders.iter().for_each(|folder| folder.watch(Some(guard)));
}

#[cfg(test)]
mod tests;
