//! Controller part: drives an agent through a benchmark, within a bounded time.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use clearstream_control::{Call, Peer, PeerError};
use clearstream_ranks::RankError;
use clearstream_schema::control::{Failure, FailureKind};
use clearstream_workload::TrialError;

use crate::calls::{
    Benchmark, Measured, StorageEnded, StorageFinished, StorageMeasured, StorageRun, StorageStarted,
    StorageStop,
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
    /// The agent did not end within its time: the file system does not respond.
    #[error(
        "{directory} does not respond: the test could not be begun or stopped within its time, and its folder there \
         may remain"
    )]
    Silent {
        /// The directory.
        directory: String,
    },
}

impl StorageError {
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
            StorageError::Silent { .. } => Failure { kind: FailureKind::Unreachable, message }.into(),
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
}

/// Runs a benchmark at an agent, until its end, until `stop` is set or `timeout` is over.
pub(crate) fn drive(
    agent: &mut Peer,
    benchmark: Benchmark,
    timeout: Duration,
    stop: &AtomicBool,
    on_measured: &mut dyn FnMut(Measured),
) -> Result<Driven, StorageError> {
    let directory = match &benchmark {
        Benchmark::Stream { config, .. } => config.directory.clone(),
        Benchmark::Metadata(config) => config.directory.clone(),
    };
    let test = rand::random();
    let silent = |error| match error {
        PeerError::Stopped { .. } => StorageError::Silent { directory: directory.clone() },
        error => error.into(),
    };
    let deadline = Instant::now() + timeout;
    let started = call_within(agent, &StorageRun { test, benchmark }, timeout, stop).map_err(silent)?;
    let is_finished = loop {
        if let Some(event) = agent.next_event(POLL_INTERVAL)? {
            if let Some(StorageMeasured { test: of, measured }) = event.read()?
                && of == test
            {
                on_measured(measured);
            }
            if event.read()?.is_some_and(|StorageFinished { test: of }| of == test) {
                break true;
            }
        }
        if stop.load(Relaxed) || Instant::now() >= deadline {
            break false;
        }
    };
    let never = AtomicBool::new(false);
    let ended = call_within(agent, &StorageStop { test }, STOP_TIMEOUT, &never).map_err(silent)?;
    match ended.failure.clone().filter(|_| is_finished) {
        Some(failure) => Err(StorageError::Failed(failure)),
        None => Ok(Driven { started, is_finished, ended }),
    }
}

/// Calls the agent; gives up at the end of `limit`, or when `stop` is set.
fn call_within<C: Call + Sync>(
    agent: &mut Peer,
    call: &C,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<C::Reply, PeerError> {
    let (gives_up, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let deadline = Instant::now() + limit;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) && !stop.load(Relaxed) && Instant::now() < deadline {
                thread::sleep(POLL_INTERVAL / 10);
            }
            gives_up.store(true, Relaxed);
        });
        let reply = agent.call_unless(call, &gives_up);
        is_done.store(true, Relaxed);
        reply
    })
}
