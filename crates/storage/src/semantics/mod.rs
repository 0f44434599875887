//! File semantics that a mount really gives, by operations of several processes on it, and on another mount of
//! the same file system: locks, atomicity, coherence, features.
//!
//! Agents ([`SemanticsAgent`]) have processes, each of which carries out single operations ([`calls`]) in one folder by one
//! thread ([`serve_operations`]), and the checks ([`run`]) say which process does what, and compare the results with the
//! standard. A file system that does not respond therefore holds a process, and neither the agent nor the controller.

mod actor;
mod agent;
pub mod calls;
mod checks;
mod faults;
mod folder;
mod operations;
mod process;
mod races;
mod workload;

use std::{
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Peer, PeerError};
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
    semantics::{
        NOT_RUN, STORAGE_SEMANTICS_SCHEMA, SemanticsConfig, SemanticsFound, SemanticsMount, SemanticsVerdict,
        StorageSemantics,
    },
};
use rustix::io::Errno;

use actor::{Agent, CheckError, Checked};
pub use agent::{ProcessCommands, SemanticsAgent};
use calls::{Enter, Leave, Left};
use checks::{Actors, Step, schedule};
use faults::{Fault, is_of_dead_server};
pub use operations::serve_operations;
pub use workload::StorageSemanticsWorkload;

use crate::{Ran, controller::remains as remaining, folder::SEMANTICS_PREFIX};

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
    /// The server of the mount ended during the checks.
    #[error("{}", .0.message)]
    Gone(Failure),
    /// The file system does not respond.
    #[error(
        "the folder {folder} in {directory} is not removed: its file system does not respond; its guard goes on"
    )]
    Silent {
        /// The directory.
        directory: String,
        /// The folder.
        folder: String,
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

impl Classified for SemanticsError {
    fn failure_kind(&self) -> FailureKind {
        match self {
            Self::Peer(error) => error.failure_kind(),
            Self::NotShared { .. } => FailureKind::Invalid,
            Self::Gone(failure) => failure.kind,
            Self::Silent { .. } | Self::Remains { .. } => FailureKind::File,
        }
    }
}

/// Runs all checks in `config.directory`, an absolute path on the host of the agents that `start` gives. A verdict against the
/// mount is a result; an interruption, or an agent that is lost, leaves later checks without one.
///
/// # Errors
/// [`SemanticsError`], where no check could run.
pub fn run(
    config: &SemanticsConfig,
    start: &dyn Fn() -> Result<Peer, PeerError>,
    peer: Option<PeerMount>,
    stop: &AtomicBool,
    on_check: &mut dyn FnMut(usize, usize),
) -> Result<Ran<StorageSemantics, SemanticsError>, SemanticsError> {
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
) -> Result<Ran<StorageSemantics, SemanticsError>, SemanticsError> {
    let folder = format!("{SEMANTICS_PREFIX}{:016x}", rand::random::<u64>());
    let (directory, wait) = (config.directory.as_str(), config.wait.to_std());
    let call = Enter {
        directory: directory.to_owned(),
        folder: folder.clone(),
        create: true,
        is_alone: peer.is_none(),
    };
    let mut agent = Agent::enter(start()?, &call, wait, stop)?;
    let left_over = agent.left_over.take();
    let mut moved = Vec::new();
    let result = match peer.map(|peer| entered(peer, &folder, wait, stop)).transpose() {
        Ok(other) => {
            let document = in_folder(config, &agent, other.as_ref(), stop, on_check);
            // What it has open may keep the folder from being removed, and it knows best what its processes made.
            if let Some((_, agent)) = other {
                let mut peer = agent.into_peer();
                let left = peer.call_unless(&Leave { moved: Vec::new() }, clean_up_stop);
                moved = left.map(|left| left.moved).unwrap_or_default();
                peer.shutdown();
            }
            Ok(document)
        }
        Err(error) => Err(error),
    };
    let mut peer = agent.into_peer();
    let left = peer.call_unless(&Leave { moved }, clean_up_stop);
    peer.shutdown();
    let (mut found, lost) = result?;
    found.notices.extend(left_over);
    let (of_others, remains) = match left {
        Ok(Left { remains, .. }) => (remains, None),
        Err(source) => {
            let directory = directory.to_owned();
            let error = match source {
                PeerError::Stopped { .. } => SemanticsError::Silent { directory, folder },
                source => SemanticsError::Remains { directory, folder, source },
            };
            (None, Some(error))
        }
    };
    found.notices.extend(of_others.map(remaining));
    // An agent that is lost, or has no mount any more, could not remove the folder either; its guard goes on.
    let error = lost.or(remains);
    found.failure = error.as_ref().map(SemanticsError::to_failure);
    Ok(Ran { found, error })
}

fn in_folder(
    config: &SemanticsConfig,
    agent: &Agent<'_>,
    other: Option<&(SemanticsMount, Agent<'_>)>,
    stop: &AtomicBool,
    on_check: &mut dyn FnMut(usize, usize),
) -> (StorageSemantics, Option<SemanticsError>) {
    let (begun, wait) = (Instant::now(), config.wait.to_std());
    let steps = schedule(other.is_some());
    let (mut actors, mut lost, mut is_whole) = (None, None, true);
    let mut checks = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        on_check(number, steps.len());
        let mut found = run_step(*step, number, &mut actors, agent, other.map(|(_, agent)| agent), wait);
        let is_stopped = stop.load(Relaxed);
        match &found {
            Err(CheckError::Peer(error)) => {
                is_whole = false;
                lost = (!is_stopped).then(|| SemanticsError::Peer(error.clone()));
            }
            ended if is_doubtful(ended) => {
                let own = (config.directory.as_str(), agent);
                let peers = other.map(|(mount, agent)| (mount.directory.as_str(), agent));
                let gone =
                    [Some(own), peers].into_iter().flatten().find_map(|(place, agent)| gone(place, agent));
                if let Some((fault, error)) = gone {
                    // What was found in the meantime is of no mount.
                    found = Err(CheckError::System(fault));
                    (is_whole, lost) = (false, Some(error));
                }
            }
            _ => {}
        }
        checks.push(step.row(&found));
        if is_stopped || !is_whole {
            is_whole = false;
            let none = Err(CheckError::Precondition(NOT_RUN.to_owned()));
            checks.extend(steps[number + 1..].iter().map(|step| step.row(&none)));
            break;
        }
    }
    let directory = config.directory.clone();
    let found = StorageSemantics {
        schema: STORAGE_SEMANTICS_SCHEMA.to_owned(),
        version: 1,
        mount: SemanticsMount { host: None, directory, file_system: agent.file_system.clone() },
        peer: other.map(|(mount, _)| mount.clone()),
        wait_ns: nanoseconds(wait),
        complete: is_whole,
        failure: None,
        duration_ns: nanoseconds(begun.elapsed()),
        checks,
        notices: Vec::new(),
    };
    (found, lost)
}

/// Whether a mount that is gone may be the cause.
fn is_doubtful(found: &Checked<SemanticsFound>) -> bool {
    match found {
        Ok(found) => matches!(found.verdict, SemanticsVerdict::No | SemanticsVerdict::Inconclusive),
        Err(CheckError::System(_) | CheckError::Deviates(_) | CheckError::Precondition(_)) => true,
        // A process of a mount that does not respond would be waited for.
        Err(_) => false,
    }
}

/// Whether the server of a mount has ended: another process cannot open the folder there.
fn gone(directory: &str, agent: &Agent<'_>) -> Option<(Fault, SemanticsError)> {
    let Err(CheckError::System(fault)) = agent.start() else { return None };
    is_of_dead_server(fault.errno).then(|| {
        // After the first calls, which were under way, the kernel has one answer (fuse(4)).
        let error = io::Error::from(Errno::NOTCONN);
        let failure = Failure::of_file(&format!("go on in the directory {directory}"), &error);
        (fault, SemanticsError::Gone(failure))
    })
}

/// Runs a check, by new processes where those of the check before have ended or hang.
fn run_step<'s>(
    step: Step,
    number: usize,
    actors: &mut Option<Actors<'s>>,
    agent: &'s Agent<'_>,
    other: Option<&'s Agent<'_>>,
    wait: Duration,
) -> Checked<SemanticsFound> {
    let present = match actors {
        Some(present) => present,
        None => actors.insert(Actors::start(agent, other, wait)?),
    };
    let found = step.run(number, present);
    if matches!(found, Err(CheckError::Ended { .. } | CheckError::Hangs { .. })) {
        *actors = None;
    }
    found
}

fn entered<'a>(
    other: PeerMount,
    folder: &str,
    wait: Duration,
    stop: &'a AtomicBool,
) -> Result<(SemanticsMount, Agent<'a>), SemanticsError> {
    let PeerMount { peer, host, directory } = other;
    let call =
        Enter { directory: directory.clone(), folder: folder.to_owned(), create: false, is_alone: false };
    match Agent::enter(peer, &call, wait, stop) {
        Ok(agent) => {
            let file_system = agent.file_system.clone();
            Ok((SemanticsMount { host, directory, file_system }, agent))
        }
        Err(source @ PeerError::Refused { .. }) => Err(SemanticsError::NotShared { directory, source }),
        Err(error) => Err(error.into()),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
