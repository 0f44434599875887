//! Controller part: drives an agent through a benchmark, within a bounded time.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use clearstream_control::{Call, Peer, PeerError};
use clearstream_ranks::RankError;
use clearstream_schema::{
    control::{Failure, FailureKind},
    failure::Classified,
    notice::Notice,
};
use clearstream_workload::TrialError;

use crate::{
    calls::{
        Benchmark, Measured, StorageEnded, StorageFinished, StorageMeasured, StorageNow, StorageRun,
        StorageStarted, StorageStop,
    },
    live::OnLive,
};

/// Interval of checks of the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum time of an agent to stop and remove its files.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The configuration is invalid; nothing was started.
    #[error("{0}")]
    Invalid(Failure),
    /// The agent rejected a call, or was lost.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// A rank failed.
    #[error("{0}")]
    Failed(Failure),
    /// A rank of an MPI job was lost, or MPI fails.
    #[error(transparent)]
    Ranks(#[from] RankError),
    /// It failed, and its files were to be kept.
    #[error("{error}; with --keep the files written until then stay in {folder}")]
    Kept {
        /// Why it failed.
        error: Box<Self>,
        /// Path of the folder.
        folder: String,
    },
    /// The agent did not reply within its time: the file system does not respond.
    #[error(
        "{directory} does not respond: the test could not be begun or stopped, and its folder there may remain; {source}"
    )]
    Silent {
        /// The directory.
        directory: String,
        /// Which reply did not come.
        source: PeerError,
    },
}

impl Classified for StorageError {
    fn failure_kind(&self) -> FailureKind {
        match self.root() {
            Self::Invalid(failure) | Self::Failed(failure) => failure.kind,
            Self::Peer(error) | Self::Silent { source: error, .. } => error.failure_kind(),
            Self::Ranks(error) => error.failure_kind(),
            Self::Kept { .. } => FailureKind::File,
        }
    }
}

impl StorageError {
    /// With where the files are that were to be kept, if any.
    pub(crate) fn with_kept(self, directory: &str, folder: Option<&str>) -> Self {
        match (self, folder) {
            (error @ (Self::Failed(_) | Self::Peer(_) | Self::Ranks(_)), Some(folder)) => {
                let folder = Path::new(directory).join(folder).display().to_string();
                Self::Kept { error: Box::new(error), folder }
            }
            (error, _) => error,
        }
    }

    /// Without what remains of the test.
    pub fn root(&self) -> &Self {
        match self {
            Self::Kept { error, .. } => error.root(),
            error => error,
        }
    }
}

impl From<StorageError> for TrialError {
    fn from(error: StorageError) -> Self {
        let message = error.to_string();
        match error {
            StorageError::Invalid(failure) | StorageError::Failed(failure) => failure.into(),
            StorageError::Peer(error) => error.into(),
            StorageError::Ranks(_) => Failure { kind: FailureKind::Connection, message }.into(),
            StorageError::Kept { error, .. } => {
                let inner = Self::from(*error);
                Self { failure: Failure { message, ..inner.failure }, ..inner }
            }
            StorageError::Silent { .. } => Failure { kind: FailureKind::Connection, message }.into(),
        }
    }
}

/// A benchmark that has ended.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) started: StorageStarted,
    /// It ended by itself.
    pub(crate) is_finished: bool,
    pub(crate) ended: StorageEnded,
    /// What ended it early, after it had begun.
    pub(crate) error: Option<StorageError>,
}

/// What was measured, complete or not, and what ended it early.
#[derive(Debug)]
pub struct Ran<T, E = StorageError> {
    /// Everything that was measured until then.
    pub found: T,
    /// The error, after which there was nothing more.
    pub error: Option<E>,
}

impl<T> Ran<T> {
    /// Of what was measured; an error alone where that is nothing.
    pub(crate) fn of(
        is_empty: bool,
        error: Option<StorageError>,
        found: impl FnOnce(Option<Failure>) -> T,
    ) -> Result<Self, StorageError> {
        match error {
            Some(error) if is_empty => Err(error),
            error => Ok(Self { found: found(error.as_ref().map(StorageError::to_failure)), error }),
        }
    }
}

impl<T, E> Ran<T, E> {
    /// As a trial, which has all of its points or fails.
    ///
    /// # Errors
    /// What ended it early.
    pub fn whole(self) -> Result<T, E> {
        self.error.map_or(Ok(self.found), Err)
    }
}

/// Runs a benchmark at an agent, until its end, until `stop` is set or `timeout` is over.
pub(crate) fn drive(
    agent: &mut Peer,
    benchmark: Benchmark,
    timeout: Duration,
    stop: &AtomicBool,
    on_measured: &mut dyn FnMut(Measured),
    on_live: OnLive<'_>,
) -> Result<Driven, StorageError> {
    let (directory, stays) = match &benchmark {
        Benchmark::Stream { config, .. } => (config.directory.clone(), config.keep || config.existing),
        Benchmark::Metadata(config) => (config.directory.clone(), config.keep || config.uses_earlier()),
    };
    let test = rand::random();
    let silent = |error| match error {
        source @ PeerError::Unanswered { .. } => {
            StorageError::Silent { directory: directory.clone(), source }
        }
        error => error.into(),
    };
    let deadline = Instant::now() + timeout;
    let run = StorageRun { test, benchmark };
    let within = timeout.min(run.reply_within());
    let started = agent.call_within(&run, within, stop).map_err(silent)?;
    let heard = loop {
        match next(agent, test, POLL_INTERVAL, on_measured, on_live) {
            Ok(Some(Heard::Finished)) => break Ok(true),
            Ok(_) if stop.load(Relaxed) || Instant::now() >= deadline => break Ok(false),
            Ok(_) => {}
            Err(error) => break Err(error),
        }
    };
    let is_finished = match heard {
        Ok(is_finished) => is_finished,
        // What was measured until then is there.
        Err(error) => {
            let ended = StorageEnded::default();
            return Ok(Driven { started, is_finished: false, ended, error: Some(error.into()) });
        }
    };
    let never = AtomicBool::new(false);
    let (ended, error) = match agent.call_within(&StorageStop { test }, STOP_TIMEOUT, &never) {
        Ok(ended) => (ended, None),
        // A person who asked to stop does not wait for millions of files to be removed.
        Err(PeerError::Stopped { .. }) => {
            let notices = if stays { Vec::new() } else { vec![remains(still_removed(&directory))] };
            (StorageEnded { notices, ..StorageEnded::default() }, None)
        }
        Err(error) => (StorageEnded::default(), Some(silent(error))),
    };
    // What was measured while it stopped.
    let mut more = || next(agent, test, Duration::ZERO, on_measured, &|_| ());
    while !is_finished && more().is_ok_and(|heard| heard.is_some()) {}
    let error = error.or_else(|| ended.failure.clone().map(StorageError::Failed));
    Ok(Driven { started, is_finished, ended, error })
}

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Finished,
    Other,
}

/// Handles the next event, if one comes in time.
fn next(
    agent: &mut Peer,
    test: u64,
    within: Duration,
    on_measured: &mut dyn FnMut(Measured),
    on_live: OnLive<'_>,
) -> Result<Option<Heard>, PeerError> {
    let Some(event) = agent.next_event(within)? else { return Ok(None) };
    if let Some(StorageMeasured { test: of, measured }) = event.read()?
        && of == test
    {
        on_measured(measured);
    }
    if let Some(StorageNow { test: of, live }) = event.read()?
        && of == test
    {
        on_live(live.as_ref());
    }
    let is_finished = event.read()?.is_some_and(|StorageFinished { test: of }| of == test);
    Ok(Some(if is_finished { Heard::Finished } else { Heard::Other }))
}

/// The notice that a folder stays.
pub(crate) fn remains(message: String) -> Notice {
    Notice { id: "folder-remains".to_owned(), message }
}

fn still_removed(directory: &str) -> String {
    format!(
        "the files of the test in {directory} were still being removed: the process that guards them goes on, and \
         what it cannot remove the next test there does"
    )
}
