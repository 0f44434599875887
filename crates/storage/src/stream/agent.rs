//! Agent part: one test at a time, its ranks as threads.

use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use clearstream_control::{CallContext, Registration, Service};
use clearstream_ranks::threads;
use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::StreamConfig,
};
use clearstream_sys::process::host_name;

use super::{
    calls::{StreamEnded, StreamFinished, StreamMeasured, StreamRun, StreamStarted, StreamStop},
    check::check,
    engine::{StreamError, Test},
};
use crate::mount;

/// Runs tests of one controller. Dropping it stops a running one, and removes its files.
#[derive(Debug, Default)]
pub struct StreamAgent {
    running: Option<Running>,
}

/// A test that was started and may have ended.
#[derive(Debug)]
struct Running {
    test: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<StreamEnded>>,
}

impl Service for StreamAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::run).on(|agent, StreamStop { test }, _| agent.stop(test));
    }
}

impl StreamAgent {
    fn run(&mut self, call: StreamRun, context: &CallContext<'_>) -> Result<StreamStarted, Failure> {
        let StreamRun { test, folder, config } = call;
        check(&config)?;
        if let Some(running) = self.running.as_ref().filter(|running| running.is_alive()) {
            let message = format!("storage test {} still runs here: stop it first", running.test);
            return Err(failure(FailureKind::Busy, message));
        }
        self.running = None;
        let directory = Path::new(&config.directory);
        let folder = Folder::enter(directory, &folder, &config)?;
        let started = StreamStarted {
            file_system: mount::of(directory),
            memory_bytes: memory(),
            hosts: vec![host_name(); config.tasks as usize],
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (own, events) = (Arc::clone(&stop), context.events().clone());
        let thread = thread::Builder::new().name("storage-stream".to_owned()).spawn(move || {
            let result = ranks(&config, &folder.path, &own, &|point| {
                events.send(&StreamMeasured { test, point });
            });
            let remains = folder.leave().err();
            events.send(&StreamFinished { test });
            StreamEnded { failure: result.err(), remains }
        });
        let thread = thread.map_err(|error| Failure::of_system("start a thread", &error))?;
        self.running = Some(Running { test, stop, thread: Some(thread) });
        Ok(started)
    }

    fn stop(&mut self, test: u64) -> Result<StreamEnded, Failure> {
        let running = self.running.take_if(|running| running.test == test);
        let running = running.ok_or_else(|| {
            failure(FailureKind::Invalid, format!("there is no storage test {test}: start it first"))
        })?;
        Ok(running.end())
    }
}

impl Running {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(mut self) -> StreamEnded {
        self.stop.store(true, Relaxed);
        let panicked = || StreamEnded {
            failure: Some(failure(FailureKind::Internal, "a thread of the test panicked")),
            ..StreamEnded::default()
        };
        self.thread
            .take()
            .map_or_else(StreamEnded::default, |thread| thread.join().unwrap_or_else(|_| panicked()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic.
            drop(thread.join());
        }
    }
}

/// All ranks; the first problem of any.
fn ranks(
    config: &StreamConfig,
    folder: &Path,
    stop: &AtomicBool,
    on_point: &(impl Fn(clearstream_schema::storage::StreamPoint) + Sync),
) -> Result<(), Failure> {
    let results = threads(config.tasks as usize, |world| {
        Test::new(world, config, folder, stop)?.run(&mut |point| on_point(point))
    });
    let results = results.map_err(|error| failure(FailureKind::Internal, error.to_string()))?;
    // That of a rank itself comes before what the others see of it.
    let problems = || results.iter().filter_map(|result| result.as_ref().err());
    let own = problems().find(|error| matches!(error, StreamError::OfRank(_)));
    match own.or_else(|| problems().next()) {
        Some(error) => Err(failure(FailureKind::Internal, error.to_string())),
        None => Ok(()),
    }
}

/// The folder of a test's files.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    /// Creates it, or finds that of an earlier test, which is to be read.
    fn enter(directory: &Path, name: &str, config: &StreamConfig) -> Result<Self, Failure> {
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !directory.is_absolute() {
            let message = format!("\"{}\" is no directory: write its whole path", directory.display());
            return Err(failure(FailureKind::Invalid, message));
        }
        if name.is_empty() || name.starts_with('.') || !is_name {
            let message =
                format!("\"{name}\" is no name of a folder: write letters, digits, `-`, `_` and `.`");
            return Err(failure(FailureKind::Invalid, message));
        }
        let path = directory.join(name);
        let reads_only = config.read && !config.write;
        if reads_only {
            let found = std::fs::metadata(&path);
            let found =
                found.map_err(|error| Failure::of_system(&format!("open {}", path.display()), &error))?;
            if !found.is_dir() {
                return Err(failure(FailureKind::Invalid, format!("{} is no folder", path.display())));
            }
            return Ok(Self { path, is_kept: config.keep });
        }
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => failure(
                FailureKind::Invalid,
                format!("{} exists already: remove it, or choose another --name", path.display()),
            ),
            _ => Failure::of_system(&format!("make the folder {}", path.display()), &error),
        })?;
        Ok(Self { path, is_kept: config.keep })
    }

    /// Removes it when it is empty: files of others in it stay, and are reported.
    fn leave(&self) -> Result<(), String> {
        if self.is_kept {
            return Ok(());
        }
        std::fs::remove_dir(&self.path)
            .map_err(|error| format!("the folder {} remains: {error}", self.path.display()))
    }
}

/// Memory of this host (sysinfo(2)).
fn memory() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram as u64 * u64::from(found.mem_unit)
}

fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}
