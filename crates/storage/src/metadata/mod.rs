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
mod phase;
mod tree;
mod workload;

use std::{
    cell::RefCell,
    path::Path,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use clearstream_control::Peer;
use clearstream_ranks::{THREADS_TRANSPORT, World, threads};
use clearstream_schema::{
    control::{Failure, FailureKind},
    flow::Notice,
    storage::{
        ClientCache, host_names,
        metadata::{MetadataConfig, MetadataKind, MetadataOperation, MetadataPhase, StorageMetadata},
    },
};
use serde::{Deserialize, Serialize};

use agreement::{Next, agreed, agreement};
use document::{Facts, document};
pub use error::MetadataError;
use error::file_error;
use folder::Items;
use phase::{RankPhase, Task};
use tree::Tree;
pub use workload::StorageMetadataWorkload;

use crate::{
    StorageError,
    calls::{Benchmark, Measured, StorageEnded},
    clock::{Clocks, Spans},
    collective::{gather, share},
    controller::{Driven, Ran, drive, remains},
    folder::{Folder, Remains, clear_left_over},
    guard::Guard,
    job::{self, JobOptions, JobPlace},
    mount::Mount,
};

/// Largest content of a file: a buffer of it is in memory.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum number of ranks of one process.
const TASKS_MAX: u32 = 1024;

/// Runs it at an agent. When `stop` is set or `timeout` is over, the phases are those until then.
///
/// # Errors
/// [`StorageError`].
pub fn run(
    agent: &mut Peer,
    config: &MetadataConfig,
    timeout: Duration,
    stop: &AtomicBool,
    on_phase: &mut dyn FnMut(&MetadataPhase),
) -> Result<Ran<StorageMetadata>, StorageError> {
    check(config).map_err(StorageError::Invalid)?;
    let benchmark = Benchmark::Metadata(config.clone());
    let mut phases = Vec::new();
    let driven = drive(agent, benchmark, timeout, stop, &mut |measured| {
        if let Measured::Metadata(phase) = measured {
            on_phase(&phase);
            phases.push(*phase);
        }
    })?;
    let Driven { started, is_finished, ended, error } = driven;
    let facts = Facts { hosts: started.hosts, mount: started.mount, transport: THREADS_TRANSPORT.to_owned() };
    let notices = started.left_over.into_iter().chain(ended.notices);
    ran(config, facts, phases, (is_finished, error), notices)
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
    Tree::new(config).map(|_| ()).map_err(|error| invalid(error.to_string()))
}

/// All ranks as threads.
pub(crate) fn run_threads(
    config: &MetadataConfig,
    stop: &AtomicBool,
    guard: &mut Guard,
    on_phase: &(impl Fn(&MetadataPhase) + Sync),
) -> StorageEnded {
    // The folder is the same one for all threads: rank 0, which makes it, is the first to come here.
    let guard = Mutex::new(Some(guard));
    let results = threads(config.tasks as usize, |world| {
        let watch = |folder: &Folder| {
            let first = guard.lock().unwrap_or_else(PoisonError::into_inner).take();
            first.into_iter().for_each(|guard| watched(folder, guard));
        };
        measure(world, config, stop, &watch, on_phase)
    });
    let first = results.map_err(MetadataError::from).and_then(|all| all.into_iter().next().transpose());
    match first.map(Option::flatten) {
        Ok(Some(ended)) => StorageEnded {
            failure: ended.error.map(MetadataError::failure),
            notices: ended.others.map(remains).into_iter().collect(),
        },
        Ok(None) => StorageEnded::default(),
        Err(error) => StorageEnded { failure: Some(error.failure()), notices: Vec::new() },
    }
}

/// Has a folder removed after a death of this process.
fn watched(folder: &Folder, guard: &mut Guard) {
    // Without the guard the next start removes it.
    let _ = guard.watch(folder);
}

/// What rank 0 has prepared for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Prepared {
    folder: String,
    tree: Tree,
    hosts: Vec<String>,
    is_memory: bool,
}

/// Runs it by ranks on the hosts of the options, processes of an MPI job. When `stop` is set or `timeout` is over, the
/// phases are those until then.
///
/// # Errors
/// [`StorageError`].
pub fn run_job(
    place: JobPlace<'_>,
    config: &MetadataConfig,
    timeout: Duration,
    stop: &AtomicBool,
    on_phase: &mut dyn FnMut(&MetadataPhase),
) -> Result<Ran<StorageMetadata>, StorageError> {
    check(config).map_err(StorageError::Invalid)?;
    let options = JobOptions {
        verb: "metadata",
        directory: &config.directory,
        hosts: config.hosts.as_deref().unwrap_or_default(),
        tasks: config.tasks,
        mpirun: config.mpirun.as_deref(),
    };
    let mut phases = Vec::new();
    let found = job::run(place, &options, config, timeout, stop, &mut |phase: MetadataPhase| {
        on_phase(&phase);
        phases.push(phase);
    });
    let (found, error) = match found {
        Ok(found) => (found, None),
        Err(error) => (None, Some(error)),
    };
    let Some(found): Option<StorageMetadata> = found else {
        // The ranks were stopped, or lost, before rank 0 could say more.
        let transport = "unknown".to_owned();
        let facts = Facts { hosts: host_names(options.hosts), mount: Mount::unknown(), transport };
        return ran(config, facts, phases, (false, error), None);
    };
    job::check_ranks(found.requested.tasks, config.rank_count())?;
    let error = error.or_else(|| found.failure.clone().map(StorageError::Failed));
    Ok(Ran { found: StorageMetadata { requested: config.clone(), ..found }, error })
}

/// One process of an MPI job as a rank; every rank calls it with the same configuration. Rank 0 has the result, and
/// `on_phase` sees each phase there.
///
/// # Errors
/// [`StorageError`]: the same one at every rank, unless a rank was lost.
pub fn run_rank(
    world: &mut dyn World,
    config: &MetadataConfig,
    stop: &AtomicBool,
    guard: &mut Guard,
    on_phase: &mut dyn FnMut(&MetadataPhase),
) -> Result<Option<Ran<StorageMetadata>>, StorageError> {
    let tasks = u32::try_from(world.size()).unwrap_or(u32::MAX);
    let config = MetadataConfig { tasks, ..config.clone() };
    check(&config).map_err(StorageError::Invalid)?;
    let guard = RefCell::new(guard);
    let measured = RefCell::new((Vec::new(), on_phase));
    let watch = |folder: &Folder| watched(folder, &mut guard.borrow_mut());
    let left_over = (world.rank() == 0).then(|| clear_left_over(Path::new(&config.directory))).flatten();
    let ended = measure(world, &config, stop, &watch, &|phase| {
        let (phases, on_phase) = &mut *measured.borrow_mut();
        on_phase(phase);
        phases.push(phase.clone());
    })?;
    let Some(Ended { complete, hosts, error, others }) = ended else { return Ok(None) };
    let facts = Facts {
        hosts,
        mount: Mount::of(Path::new(&config.directory)),
        transport: world.transport().to_owned(),
    };
    let notices = left_over.into_iter().chain(others.map(remains));
    ran(&config, facts, measured.into_inner().0, (complete, error.map(StorageError::from)), notices).map(Some)
}

/// How it ended, at rank 0.
struct Ended {
    complete: bool,
    /// Host of each rank.
    hosts: Vec<String>,
    /// Why it ended early, or the folder stays.
    error: Option<MetadataError>,
    /// Files of others keep the folder.
    others: Option<String>,
}

/// Runs the measurement; every rank calls it with the same arguments. Rank 0 knows how it ended. `on_phase` sees each
/// phase there, `watch` the folder as soon as it exists.
///
/// # Errors
/// [`MetadataError`]: the same one at every rank, unless a rank was lost.
fn measure(
    world: &mut dyn World,
    config: &MetadataConfig,
    stop: &AtomicBool,
    watch: &dyn Fn(&Folder),
    on_phase: &dyn Fn(&MetadataPhase),
) -> Result<Option<Ended>, MetadataError> {
    let directory = Path::new(&config.directory);
    let host = world.host().to_owned();
    let hosts = gather(world, &host)?;
    // Held until this rank has it open as the others: what nobody holds is left over.
    let mut made = None;
    let prepared = (world.rank() == 0).then(|| Next::of(prepare(directory, config, hosts, &mut made)));
    made.as_ref().into_iter().for_each(watch);
    let Some(prepared) = share(world, prepared.as_ref())?.value()? else { return Ok(None) };
    let entered = Items::enter(directory, &prepared.folder);
    drop(made);
    if world.rank() != 0 {
        entered.iter().for_each(|items| watch(&items.0));
    }
    agreement(world, entered.as_ref().err().cloned())?;
    let Ok(folder) = entered else { return Ok(None) };
    let clocks = Clocks::join(world)?;
    let mut run = Run {
        world,
        config,
        stop,
        clocks,
        folder: &folder,
        prepared: &prepared,
        on_phase,
        iteration: 0,
        made: [0; 3],
    };
    let complete = run.iterations();
    let cleaned = run.clean(!matches!(complete, Ok(true)));
    if world.rank() != 0 {
        return complete.map(|_| None);
    }
    let (left, others) = match folder.leave() {
        Ok(()) => (Ok(()), None),
        Err(Remains::Own(message)) => (Err(MetadataError::Remains(message)), None),
        Err(Remains::Others(message)) => (Ok(()), Some(message)),
    };
    let (complete, error) = match error::joined(complete, cleaned.and(left)) {
        Ok(complete) => (complete, None),
        Err(error) => (false, Some(error)),
    };
    Ok(Some(Ended { complete, hosts: prepared.hosts, error, others }))
}

fn prepare(
    directory: &Path,
    config: &MetadataConfig,
    hosts: Vec<String>,
    made: &mut Option<Folder>,
) -> Result<Prepared, MetadataError> {
    let tree = Tree::new(config)?;
    let is_memory = Mount::of(directory).is_memory();
    let folder = made.insert(folder::create(directory)?).name.clone();
    Ok(Prepared { folder, tree, hosts, is_memory })
}

struct Run<'a, 'w> {
    world: &'a mut (dyn World + 'w),
    config: &'a MetadataConfig,
    stop: &'a AtomicBool,
    clocks: Clocks,
    folder: &'a Items,
    prepared: &'a Prepared,
    on_phase: &'a dyn Fn(&MetadataPhase),
    iteration: u32,
    /// Directories of the tree, directories and files that this rank has made, with one that it may have made.
    made: [u64; 3],
}

impl Run<'_, '_> {
    /// Whether the run came to its end.
    fn iterations(&mut self) -> Result<bool, MetadataError> {
        let kinds: &[MetadataKind] = match (self.config.files_only, self.config.directories_only) {
            (true, _) => &[MetadataKind::File],
            (_, true) => &[MetadataKind::Directory],
            _ => &[MetadataKind::Directory, MetadataKind::File],
        };
        for iteration in 0..self.config.iterations {
            self.iteration = iteration;
            let tree = self.tree();
            if self.phase(MetadataKind::Tree, MetadataOperation::Create, tree)?.is_none() {
                return Ok(false);
            }
            for kind in kinds {
                if !self.kind(*kind)? {
                    return Ok(false);
                }
            }
            if self.phase(MetadataKind::Tree, MetadataOperation::Remove, tree)?.is_none() {
                return Ok(false);
            }
            self.made = [0; 3];
        }
        Ok(true)
    }

    /// All phases of a kind; whether to go on.
    fn kind(&mut self, kind: MetadataKind) -> Result<bool, MetadataError> {
        let size = self.world.size();
        let mut counts = vec![self.prepared.tree.items; size];
        let operations =
            MetadataOperation::ALL.into_iter().filter(|operation| self.config.has_phase(*operation));
        for (number, operation) in operations.enumerate() {
            let shift = number * self.config.stride as usize;
            let owner = (self.world.rank() + shift) % size;
            let Some(done) = self.phase(kind, operation, (owner, counts[owner]))? else { return Ok(false) };
            if operation == MetadataOperation::Create {
                counts = done;
            }
        }
        if !self.config.has_phase(MetadataOperation::Remove) {
            let removed = self.clean_items(kind);
            agreement(self.world, removed.err())?;
        }
        Ok(true)
    }

    /// This rank, and the directories of the tree that it makes.
    fn tree(&self) -> (usize, u64) {
        let rank = self.world.rank();
        let has_tree = self.config.unique_directory || rank == 0;
        (rank, if has_tree { self.prepared.tree.directories } else { 0 })
    }

    fn phase(
        &mut self,
        kind: MetadataKind,
        operation: MetadataOperation,
        (owner, limit): (usize, u64),
    ) -> Result<Option<Vec<u64>>, MetadataError> {
        let task = Task {
            config: self.config,
            tree: self.prepared.tree,
            stop: self.stop,
            iteration: self.iteration,
            kind,
            operation,
            owner,
            limit,
        };
        let (own, spans) = phase::run(self.world, &self.clocks, self.folder, task)?;
        if operation == MetadataOperation::Create {
            self.made[kind as usize] = (own.operations + u64::from(!own.is_foreign)).min(limit);
        }
        let ranks = gather(self.world, &own)?;
        let next = spans.map(|spans| self.collect(task, &ranks, spans));
        share(self.world, next.as_ref())?.value()
    }

    fn collect(&mut self, task: Task<'_>, ranks: &[RankPhase], spans: Spans) -> Next<Vec<u64>> {
        let failures: Vec<_> = ranks.iter().map(|rank| rank.failure.clone()).collect();
        if let Next::Failed(message) = agreed(&failures) {
            return Next::Failed(message);
        }
        let mut phase = phase::figures(task, ranks, spans);
        if matches!(task.operation, MetadataOperation::Stat | MetadataOperation::Read) {
            let is_memory = self.prepared.is_memory;
            phase.client_cache = Some(if is_memory { ClientCache::Memory } else { ClientCache::Possible });
        }
        (self.on_phase)(&phase);
        if ranks.iter().any(|rank| rank.is_over) {
            return Next::Over;
        }
        Next::Go(ranks.iter().map(|rank| rank.operations).collect())
    }

    /// Removes the items of this rank that are there.
    fn clean_items(&self, kind: MetadataKind) -> Result<(), Failure> {
        let (tree, rank, iteration) = (self.prepared.tree, self.world.rank(), self.iteration);
        (0..self.made[kind as usize])
            .try_for_each(|number| self.folder.clean(kind, &tree.item(iteration, rank, kind, number)))
    }

    /// Removes what this rank has made where phases did not; rank 0 then the trees. All ranks call it together.
    fn clean(&mut self, is_needed: bool) -> Result<(), MetadataError> {
        let (tree, rank, iteration) = (self.prepared.tree, self.world.rank(), self.iteration);
        let mut kinds = [MetadataKind::Directory, MetadataKind::File].into_iter().filter(|_| is_needed);
        let items = kinds.try_for_each(|kind| self.clean_items(kind));
        // A directory is empty when all ranks have removed their items. A lost rank keeps its own.
        let all = self.world.barrier();
        let mut directories = (0..self.made[MetadataKind::Tree as usize]).rev().filter(|_| is_needed);
        let directories = directories.try_for_each(|number| {
            self.folder.clean(MetadataKind::Directory, &tree.directory(iteration, rank, number))
        });
        let removed = items.and(directories);
        let (folder, failure) =
            (self.folder.path().display().to_string(), removed.err().map(|failure| failure.message));
        all?;
        let all = gather(self.world, &failure)?;
        let first = all.into_iter().chain([failure]).flatten().next();
        first.map_or(Ok(()), |message| {
            Err(MetadataError::Remains(format!("the folder {folder} remains: {message}")))
        })
    }
}
