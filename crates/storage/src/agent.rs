//! Agent part: one benchmark at a time, its ranks as threads.

use std::{
    io,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use clearstream_control::{CallContext, Registration, Service};
use clearstream_schema::{
    control::{Failure, FailureKind},
    storage::StorageLive,
};
use clearstream_sys::process::host_name;

use crate::{
    calls::{
        Benchmark, Measured, StorageEnded, StorageFinished, StorageMeasured, StorageNow, StorageRun,
        StorageStarted, StorageStop,
    },
    data::pool_bytes,
    folder::clear_left_over,
    guard::Guard,
    live::Live,
    metadata,
    mount::Mount,
    operations_log::room_bytes,
    resources::{self, Need, buffer_bytes},
    stream,
};

/// Runs benchmarks of one controller. Dropping it stops a running one, and removes its files; where this process is
/// killed, another one removes them.
#[derive(Debug)]
pub struct StorageAgent {
    /// Command of that process ([`crate::guard`]).
    guardian: fn() -> io::Result<Command>,
    running: Option<Running>,
}

/// A benchmark that was started and may have ended.
#[derive(Debug)]
struct Running {
    test: u64,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<StorageEnded>>,
}

impl Service for StorageAgent {
    fn register(calls: &mut Registration<Self>) {
        calls.on(Self::run).on(|agent, StorageStop { test }, _| agent.stop(test));
    }
}

impl StorageAgent {
    /// `guardian` is the command of a process that calls [`crate::guard::guard`].
    pub fn new(guardian: fn() -> io::Result<Command>) -> Self {
        Self { guardian, running: None }
    }

    fn run(&mut self, call: StorageRun, context: &CallContext<'_>) -> Result<StorageStarted, Failure> {
        let StorageRun { test, benchmark } = call;
        if let Some(running) = self.running.as_ref().filter(|running| running.is_alive()) {
            let message = format!("storage test {} still runs here: stop it first", running.test);
            return Err(Failure::new(FailureKind::Busy, message));
        }
        self.running = None;
        let (directories, tasks) = match &benchmark {
            Benchmark::Stream { config, .. } => (vec![config.directory.clone()], config.tasks),
            Benchmark::Metadata(config) => (metadata::directories(config), config.tasks),
        };
        if let Some(directory) = directories.iter().find(|directory| !Path::new(directory).is_absolute()) {
            let message = format!("\"{directory}\" is no directory: write its whole path");
            return Err(Failure::new(FailureKind::Invalid, message));
        }
        resources::check(need(&benchmark))?;
        // Before there is anything to guard: it takes a moment to start.
        let guard = (self.guardian)().and_then(Guard::start);
        let mut guard = guard.map_err(|error| Failure::of_system("start the guard of the files", &error))?;
        let left_over = clear_left_over(&directories);
        let prepared = match prepare(benchmark) {
            Ok(prepared) => prepared,
            Err(failure) => {
                guard.release();
                return Err(failure);
            }
        };
        let mut mounts = directories.iter().map(|directory| Mount::of(Path::new(directory)));
        let mount = mounts.next().unwrap_or_else(Mount::unknown);
        let hosts = vec![host_name(); tasks as usize];
        let started = StorageStarted {
            more_mounts: mounts.collect(),
            memory_bytes: memory(),
            left_over,
            ..StorageStarted::of(mount, hosts)
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (own, events) = (Arc::clone(&stop), context.events().clone());
        let thread = thread::Builder::new().name("storage".to_owned()).spawn(move || {
            let live = Live::new(tasks as usize);
            let see = |live: Option<&StorageLive>| events.send(&StorageNow { test, live: live.cloned() });
            let measured = |measured| events.send(&StorageMeasured { test, measured });
            let ended = live.watched(&see, || prepared(&own, &mut guard, &live, &measured));
            guard.release();
            events.send(&StorageFinished { test });
            ended
        });
        let thread = thread.map_err(|error| Failure::of_system("start a thread", &error))?;
        self.running = Some(Running { test, stop, thread: Some(thread) });
        Ok(started)
    }

    fn stop(&mut self, test: u64) -> Result<StorageEnded, Failure> {
        let running = self.running.take_if(|running| running.test == test);
        let running = running.ok_or_else(|| {
            Failure::new(FailureKind::Invalid, format!("there is no storage test {test}: start it first"))
        })?;
        Ok(running.end())
    }
}

/// What its ranks need of this host.
fn need(benchmark: &Benchmark) -> Need {
    match benchmark {
        Benchmark::Stream { config, .. } => stream::need(config),
        Benchmark::Metadata(config) => {
            let bytes =
                config.write_bytes.0.max(config.read_bytes.0).max(pool_bytes(config.tasks as usize) as u64);
            let items = config.items_per_directory.unwrap_or(config.items);
            let log = config.operations.as_ref().map_or(0, |_| room_bytes(config.tasks as usize, items));
            // Each has a file, or a folder, open at a time.
            Need {
                ranks: config.tasks.into(),
                bytes: buffer_bytes(bytes).saturating_add(log),
                descriptors: 1,
            }
        }
    }
}

/// A benchmark that can run: with a stop flag, the guard of its files, counters and a receiver of phases.
type Prepared =
    Box<dyn FnOnce(&AtomicBool, &mut Guard, &Live, &(dyn Fn(Measured) + Sync)) -> StorageEnded + Send>;

/// Checks the options, and makes the folder of streaming.
fn prepare(benchmark: Benchmark) -> Result<Prepared, Failure> {
    Ok(match benchmark {
        Benchmark::Stream { folder, config } => {
            let test = stream::Prepared::new(&folder, config)?;
            Box::new(move |stop, guard, live, events| {
                test.run(stop, Some(guard), live, &|point| events(Measured::Stream(Box::new(point))))
            })
        }
        Benchmark::Metadata(config) => {
            metadata::check(&config)?;
            Box::new(move |stop, guard, live, events| {
                metadata::run_threads(&config, stop, guard, live, &|phase| {
                    events(Measured::Metadata(Box::new(phase.clone())));
                })
            })
        }
    })
}

impl Running {
    fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    fn end(mut self) -> StorageEnded {
        self.stop.store(true, Relaxed);
        let panicked = || StorageEnded {
            failure: Some(Failure::new(FailureKind::Internal, "a thread of the test panicked")),
            ..StorageEnded::default()
        };
        self.thread
            .take()
            .map_or_else(StorageEnded::default, |thread| thread.join().unwrap_or_else(|_| panicked()))
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

/// Memory of this host (sysinfo(2)).
pub(crate) fn memory() -> u64 {
    let found = rustix::system::sysinfo();
    found.totalram as u64 * u64::from(found.mem_unit)
}
