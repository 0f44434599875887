//! File semantics that a mount really gives, by operations of several processes on it, and on another mount of
//! the same file system: locks, atomicity, coherence, features.
//!
//! Processes are agents ([`SemanticsAgent`]): each carries out single operations ([`calls`]) in one folder,
//! and the checks ([`run`]) say which process does what, and compare the results with the standard. A file
//! system that does not respond therefore stops an agent, and never the controller.

mod actor;
mod agent;
pub mod calls;
mod checks;
mod features;
mod folder;

mod races;
mod workload;

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError};
use clearstream_schema::semantics::{
    STORAGE_SEMANTICS_SCHEMA, SemanticsConfig, SemanticsMount, StorageSemantics,
};
use rustix::io::Errno;

use actor::{Actor, CheckError};
pub use agent::SemanticsAgent;
use calls::Leave;
use checks::{Actors, Step, schedule};
pub use workload::StorageSemanticsWorkload;

use crate::folder::SEMANTICS_PREFIX;

/// Maximum time of removing the folder.
const CLEAN_UP_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval of the thread that stops the checks.
const STOP_INTERVAL: Duration = Duration::from_millis(10);

/// The other mount.
#[derive(Debug)]
pub struct PeerMount {
    /// The agent on its host.
    pub peer: Peer,
    /// Its host; none for this one.
    pub host: Option<String>,
    /// Absolute path of the directory on that host.
    pub directory: String,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum SemanticsError {
    /// An agent could not be started, or could not use its directory.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The two directories are not of one file system.
    #[error(
        "{directory} does not show a folder that was created in the other directory: both have to be the same \
         directory of one file system, by two mounts ({source})"
    )]
    NotShared {
        /// The peer's directory.
        directory: String,
        /// What opening it returned.
        source: PeerError,
    },
    /// The folder could not be removed.
    #[error("the folder {folder} remains in {directory}: {source}")]
    Remains {
        /// The directory.
        directory: String,
        /// The folder.
        folder: String,
        /// Cause.
        source: PeerError,
    },
}

/// Runs all checks in `config.directory`, an absolute path on the host of the agents that `start` gives. A verdict against the mount is a result; an interruption leaves later checks without one.
///
/// # Errors
/// [`SemanticsError`], where no check could run or the folder could not be removed.
pub fn run(
    config: &SemanticsConfig,
    start: &dyn Fn() -> Result<Peer, PeerError>,
    peer: Option<PeerMount>,
    stop: &AtomicBool,
    on_check: &mut dyn FnMut(usize, usize),
) -> Result<StorageSemantics, SemanticsError> {
    let (checks_stop, clean_up_stop, is_done) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| watch(config.timeout.to_std(), stop, &checks_stop, &clean_up_stop, &is_done));
        let result = checked(config, start, peer, &checks_stop, &clean_up_stop, on_check);
        is_done.store(true, Relaxed);
        result
    })
}

/// Raises the flag of the checks at the timeout or when interrupted, and that of cleaning up later.
fn watch(
    timeout: Duration,
    stop: &AtomicBool,
    checks: &AtomicBool,
    clean_up: &AtomicBool,
    is_done: &AtomicBool,
) {
    let begun = Instant::now();
    let mut stopped_at = None;
    while !is_done.load(Relaxed) {
        if stopped_at.is_none() && (stop.load(Relaxed) || begun.elapsed() >= timeout) {
            checks.store(true, Relaxed);
            stopped_at = Some(Instant::now());
        }
        if stopped_at.is_some_and(|time| time.elapsed() >= CLEAN_UP_TIMEOUT) {
            clean_up.store(true, Relaxed);
        }
        thread::sleep(STOP_INTERVAL);
    }
}

fn checked(
    config: &SemanticsConfig,
    start: &dyn Fn() -> Result<Peer, PeerError>,
    peer: Option<PeerMount>,
    stop: &AtomicBool,
    clean_up_stop: &AtomicBool,
    on_check: &mut dyn FnMut(usize, usize),
) -> Result<StorageSemantics, SemanticsError> {
    let folder = format!("{SEMANTICS_PREFIX}{:016x}", rand::random::<u64>());
    let (directory, wait) = (config.directory.as_str(), config.wait.to_std());
    // Its agent creates the folder and does nothing else, so that no check can take it along.
    let keeper = Actor::enter(start()?, directory, &folder, true, wait, stop)?;
    let result = in_folder(config, &folder, start, peer, stop, on_check);
    let mut keeper = keeper.into_peer();
    let removed = keeper.call_unless(&Leave {}, clean_up_stop);
    keeper.shutdown();
    let document = result?;
    match removed {
        Ok(_) => Ok(document),
        Err(source) => Err(SemanticsError::Remains { directory: directory.to_owned(), folder, source }),
    }
}

fn in_folder(
    config: &SemanticsConfig,
    folder: &str,
    start: &dyn Fn() -> Result<Peer, PeerError>,
    peer: Option<PeerMount>,
    stop: &AtomicBool,
    on_check: &mut dyn FnMut(usize, usize),
) -> Result<StorageSemantics, SemanticsError> {
    let (begun, wait) = (Instant::now(), config.wait.to_std());
    let local = || Actor::enter(start()?, &config.directory, folder, false, wait, stop);
    let (first, second) = (local()?, local()?);
    let mount = SemanticsMount {
        host: None,
        directory: config.directory.clone(),
        file_system: first.file_system.clone(),
    };
    let other = peer.map(|peer| entered(peer, folder, wait, stop)).transpose()?;
    let (peer_mount, peer) = other.map_or((None, None), |(mount, actor)| (Some(mount), Some(actor)));
    let mut actors = Actors { first, second, peer, start: &local, wait };
    let steps = schedule(actors.peer.is_some());
    let mut checks = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        on_check(number, steps.len());
        let found = step.run(number, &mut actors);
        let is_over = is_over(found.as_ref().err(), stop);
        checks.push(step.row(found.as_ref().map(Clone::clone)));
        if is_over {
            checks.extend(not_run(&steps[number + 1..]));
            break;
        }
        if matches!(found, Err(CheckError::Peer(_))) {
            // Later checks need processes that respond.
            (actors.first, actors.second) = (local()?, local()?);
        }
    }
    Ok(StorageSemantics {
        schema: STORAGE_SEMANTICS_SCHEMA.to_owned(),
        version: 1,
        mount,
        peer: peer_mount,
        wait_ns: nanoseconds(wait),
        complete: !stop.load(Relaxed),
        duration_ns: nanoseconds(begun.elapsed()),
        checks,
    })
}

fn is_over(error: Option<&CheckError>, stop: &AtomicBool) -> bool {
    stop.load(Relaxed) || matches!(error, Some(CheckError::Peer(PeerError::Stopped { .. })))
}

fn not_run(steps: &[Step]) -> impl Iterator<Item = clearstream_schema::semantics::SemanticsCheck> {
    let error = CheckError::Precondition("it did not run before the end".to_owned());
    steps.iter().map(move |step| step.row(Err(&error)))
}

fn entered<'a>(
    other: PeerMount,
    folder: &str,
    wait: Duration,
    stop: &'a AtomicBool,
) -> Result<(SemanticsMount, Actor<'a>), SemanticsError> {
    let PeerMount { peer, host, directory } = other;
    match Actor::enter(peer, &directory, folder, false, wait, stop) {
        Ok(actor) => {
            let file_system = actor.file_system.clone();
            Ok((SemanticsMount { host, directory, file_system }, actor))
        }
        Err(source @ PeerError::Refused { .. }) => Err(SemanticsError::NotShared { directory, source }),
        Err(error) => Err(error.into()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Symbol of an error code, as errno(3) lists it.
fn errno_name(errno: i32) -> String {
    let name = match Errno::from_raw_os_error(errno) {
        Errno::PERM => "EPERM",
        Errno::NOENT => "ENOENT",
        Errno::IO => "EIO",
        Errno::NXIO => "ENXIO",
        Errno::BADF => "EBADF",
        Errno::AGAIN => "EAGAIN",
        Errno::NOMEM => "ENOMEM",
        Errno::ACCESS => "EACCES",
        Errno::BUSY => "EBUSY",
        Errno::EXIST => "EEXIST",
        Errno::XDEV => "EXDEV",
        Errno::NODEV => "ENODEV",
        Errno::NOTDIR => "ENOTDIR",
        Errno::ISDIR => "EISDIR",
        Errno::INVAL => "EINVAL",
        Errno::TXTBSY => "ETXTBSY",
        Errno::FBIG => "EFBIG",
        Errno::NOSPC => "ENOSPC",
        Errno::ROFS => "EROFS",
        Errno::MLINK => "EMLINK",
        Errno::DEADLK => "EDEADLK",
        Errno::NAMETOOLONG => "ENAMETOOLONG",
        Errno::NOLCK => "ENOLCK",
        Errno::NOSYS => "ENOSYS",
        Errno::NOTTY => "ENOTTY",
        Errno::NODATA => "ENODATA",
        Errno::BADMSG => "EBADMSG",
        Errno::OPNOTSUPP => "EOPNOTSUPP",
        Errno::STALE => "ESTALE",
        Errno::DQUOT => "EDQUOT",
        Errno::NOTCONN => "ENOTCONN",
        Errno::TIMEDOUT => "ETIMEDOUT",
        _ => return format!("errno {errno}"),
    };
    name.to_owned()
}
