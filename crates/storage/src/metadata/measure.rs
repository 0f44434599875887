//! A measurement by all ranks: the folders that rank 0 makes or finds, the phases in them, and what is left.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_ranks::World;
use clearstream_schema::{
    control::Failure,
    notice::Notice,
    storage::metadata::{MetadataConfig, MetadataKind, MetadataPhase},
};
use serde::{Deserialize, Serialize};

use super::{
    MetadataError,
    agreement::{Next, agreement},
    error,
    folder::Places,
    identity,
    kept::KeptItems,
    run::Run,
    tree::Tree,
};
use crate::{
    calls::ItemShape,
    clock::Clocks,
    collective::{gather, share},
    controller::remains,
    folder::{METADATA_PREFIX, Remains},
    kept,
    live::Live,
    made::Marks,
    mount::Mount,
    operations_log::OperationsLog,
    test_folder::{Purpose, TestFolder},
};

/// Time after an interruption in which kept items are looked up once more.
const IDENTITY_TIMEOUT: Duration = Duration::from_secs(4);

/// What rank 0 has prepared for all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Prepared {
    /// Name of the folders.
    folder: String,
    /// In the order in which ranks have them, with the marks of what is made there.
    places: Vec<(String, Marks)>,
    pub(super) tree: Tree,
    pub(super) kinds: Vec<MetadataKind>,
    pub(super) hosts: Vec<String>,
    pub(super) is_memory: bool,
    /// A process or another host has the files.
    pub(super) is_remote: bool,
    /// What an earlier run left.
    pub(super) earlier: Option<KeptItems>,
}

/// How it ended, at rank 0.
pub(super) struct Ended {
    pub(super) complete: bool,
    /// Host of each rank.
    pub(super) hosts: Vec<String>,
    /// Of items of an earlier run.
    pub(super) shape: Option<ItemShape>,
    /// Name of the folder, where it stays with its items.
    pub(super) kept_folder: Option<String>,
    /// Why it ended early, or the folder stays.
    pub(super) error: Option<MetadataError>,
    /// What to know of the items.
    pub(super) notices: Vec<Notice>,
}

/// The directories, the first one first.
pub(crate) fn directories(config: &MetadataConfig) -> Vec<String> {
    [&config.directory].into_iter().chain(&config.more_directories).cloned().collect()
}

/// Name of the folder: a new one, unless it was chosen. One that is to stay is not taken for one that is left over.
pub(super) fn folder_name(config: &MetadataConfig) -> String {
    let prefix = if config.keep { "clearstream-kept-" } else { METADATA_PREFIX };
    config.name.clone().unwrap_or_else(|| format!("{prefix}{:016x}", rand::random::<u64>()))
}

/// Runs the measurement; every rank calls it with the same arguments. Rank 0 knows how it ended. `on_phase` sees each
/// phase there, `watch` the folders as soon as they exist.
///
/// # Errors
/// [`MetadataError`]: the same one at every rank, unless a rank was lost.
pub(super) fn measure(
    world: &mut dyn World,
    config: &MetadataConfig,
    (stop, live): (&AtomicBool, &Live),
    watch: &dyn Fn(&[TestFolder]),
    on_phase: &dyn Fn(&MetadataPhase),
) -> Result<Option<Ended>, MetadataError> {
    let purpose = Purpose { is_new: !config.uses_earlier(), is_kept: config.keep };
    let log = OperationsLog::open(world, config.operations.as_deref())?.map_err(MetadataError::File)?;
    let host = world.host().to_owned();
    let hosts = gather(world, &host)?;
    // Held until this rank has them open as the others: what nobody holds is left over.
    let mut made = Vec::new();
    let prepared = (world.rank() == 0).then(|| Next::of(prepare(config, purpose, hosts, &mut made)));
    watch(&made);
    let Some(prepared) = share(world, prepared.as_ref())?.value()? else { return Ok(None) };
    let entered = Places::enter(&prepared.places, &prepared.folder, purpose);
    if world.rank() != 0 {
        entered
            .iter()
            .for_each(|places| places.0.iter().for_each(|items| watch(std::slice::from_ref(&items.0))));
    }
    let agreed = agreement(world, entered.as_ref().err().cloned());
    if agreed.is_err() {
        // What remains has nothing of the test in it.
        made.iter().for_each(|folder| drop(folder.leave()));
    }
    drop(made);
    agreed?;
    let Ok(places) = entered else { return Ok(None) };
    let clocks = Clocks::join(world)?;
    let mut run = Run::new(world, config, (stop, live), (clocks, log), &places, &prepared, on_phase);
    let complete = run.iterations();
    let is_lost = matches!(complete, Err(MetadataError::Ranks(_)));
    let cleaned = match config.keep {
        true if is_lost => Ok(()),
        true => run.identify(stop.load(Relaxed).then(|| Instant::now() + IDENTITY_TIMEOUT)),
        false => run.clean(!matches!(complete, Ok(true))),
    };
    let (is_removed, mut notices) = (run.is_removed, std::mem::take(&mut run.notices));
    notices.extend(run.log.as_ref().and_then(OperationsLog::notice));
    if world.rank() != 0 {
        return complete.map(|_| None);
    }
    let (left, others) = leave(&places, &prepared, is_removed);
    notices.extend(others.map(remains));
    let (complete, error) = match error::joined(complete, cleaned.and(left)) {
        Ok(complete) => (complete, None),
        Err(error) => (false, Some(error)),
    };
    let stays = config.keep || (prepared.earlier.is_some() && !is_removed);
    let kept_folder = stays.then_some(prepared.folder);
    let shape = prepared.earlier.map(|earlier| earlier.item_shape());
    Ok(Some(Ended { complete, hosts: prepared.hosts, shape, kept_folder, error, notices }))
}

fn prepare(
    config: &MetadataConfig,
    purpose: Purpose,
    hosts: Vec<String>,
    made: &mut Vec<TestFolder>,
) -> Result<Prepared, MetadataError> {
    let (mut directories, folder) = (directories(config), folder_name(config));
    let earlier = match config.uses_earlier() {
        true => {
            let (found, order) = KeptItems::load(&directories, &folder).map_err(MetadataError::File)?;
            directories = order;
            Some(found)
        }
        false => None,
    };
    let (tree, kinds) = match &earlier {
        Some(earlier) => (earlier.tree, earlier.kinds(config).map_err(MetadataError::File)?),
        None => (Tree::new(config)?, config.kinds().to_vec()),
    };
    let mounts: Vec<Mount> = directories.iter().map(|directory| Mount::of(Path::new(directory))).collect();
    let (is_memory, is_remote) = (mounts.iter().all(Mount::is_memory), mounts.iter().any(Mount::is_remote));
    let of_mount = |mount: &Mount| Marks { is_remote: mount.is_remote(), ..Marks::NONE };
    let mut places: Vec<_> = directories.into_iter().zip(mounts.iter().map(of_mount)).collect();
    for (directory, marks) in places.iter_mut().filter(|_| purpose.is_new) {
        match TestFolder::enter(Path::new(directory), &folder, purpose) {
            Ok(found) => {
                *marks = found.folder.marks;
                made.push(found);
            }
            Err(failure) => {
                made.drain(..).for_each(|folder| drop(folder.folder.leave()));
                return Err(MetadataError::File(failure));
            }
        }
    }
    Ok(Prepared { folder, places, tree, kinds, hosts, is_memory, is_remote, earlier })
}

/// Removes the folders that are not to stay; what keeps one that is empty of this test is others'.
fn leave(
    places: &Places,
    prepared: &Prepared,
    is_removed: bool,
) -> (Result<(), MetadataError>, Option<String>) {
    let records = || -> Result<(), Failure> {
        let ranks = prepared.earlier.as_ref().map_or(0, |earlier| earlier.ranks);
        identity::forget(places, ranks)?;
        places.0.iter().try_for_each(|items| kept::remove(&items.0.folder))
    };
    if is_removed && let Err(failure) = records() {
        return (Err(MetadataError::File(failure)), None);
    }
    let (mut own, mut others) = (None, None);
    for items in &places.0 {
        let left = match is_removed {
            true => items.0.folder.leave_to_others(),
            false => items.0.leave(),
        };
        match left {
            Ok(()) => {}
            Err(Remains::Own(message)) => own = own.or(Some(message)),
            Err(Remains::Others(message)) => others = others.or(Some(message)),
        }
    }
    (own.map_or(Ok(()), |message| Err(MetadataError::Remains(message))), others)
}
