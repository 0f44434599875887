//! Ranks as processes: this one as a rank of an MPI job, and the process that removes the files of ranks that were
//! killed.

use std::{
    io,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use clearstream_ranks::{RankError, World};
use clearstream_schema::{TimeSpan, storage::StorageLive};
use clearstream_storage::{
    Live, OnLive, Ran, StorageError,
    guard::{Guard, guard},
    has_lost_ranks,
    semantics::serve_operations,
    watched_rank,
};
use clearstream_sys::process::{bind_child_to_parent, keep_descriptors_from};

use crate::{
    exit::{CommandError, cannot},
    mpi,
    output::{Output, Unwritten, storage_live},
};

/// Options of ranks as processes.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RankArgs {
    /// Be one rank of an MPI job that has a process per rank, as in `mpirun -np 4 clearstream storage stream --mpi DIR`
    #[arg(long, conflicts_with_all = ["lab", "hosts", "tasks"])]
    pub(super) mpi: bool,
    /// Show once per second what all ranks do: rate, part of the phase, time left. With --json-stream it is an event
    #[arg(long)]
    pub(super) live: bool,
}

impl RankArgs {
    /// Shows what the ranks do.
    pub(super) fn on_live<'a>(&self, out: &'a Output) -> impl Fn(Option<&StorageLive>) + Sync + use<'a> {
        let (is_wanted, out) = (self.live, out.clone());
        move |live| {
            if is_wanted {
                out.live(live, || live.map(storage_live::line));
            }
        }
    }
}

/// Runs a benchmark as a rank of the job that this process was started for; rank 0 has the result, and prints it.
pub(super) fn as_rank<T>(
    library: Option<&str>,
    stop: &Arc<AtomicBool>,
    (out, on_live): (&Output, OnLive<'_>),
    run: impl FnOnce(&mut dyn World, &mut Guard, &Live) -> Result<Option<Ran<T>>, StorageError>,
    print: impl FnOnce(&T) -> Result<(), Unwritten>,
) -> Result<Option<Ran<T>>, CommandError> {
    let mut guard = guardian().and_then(Guard::start).map_err(cannot("start the guard of the files"))?;
    let mut world = mpi::join(library.map(Path::new), stop).map_err(CommandError::from)?;
    let found = watched_rank(&mut world, stop, on_live, |world, live| run(world, &mut guard, live));
    if has_lost_ranks(&found) {
        let ended = found.map(|ran| ran.map(|ran| (print(&ran.found), ran.error)));
        let error = match ended {
            Ok(ran) => ran.and_then(|(_, error)| error),
            Err(error) => Some(error),
        };
        let error = CommandError::from(error.unwrap_or(StorageError::Ranks(RankError::Lost { rank: 0 })));
        return Err(mpi::abandon(world, error, out));
    }
    guard.release();
    let is_first = world.rank() == 0;
    // Before it leaves: MPI_Finalize of MPICH 4.0 over UCX 1.13 does not return at times.
    let printed = match &found {
        Ok(Some(ran)) if is_first => print(&ran.found),
        _ => Ok(()),
    };
    mpi::leave(world, out)?;
    printed?;
    // Errors are the same at all ranks.
    if is_first { Ok(found?) } else { Ok(None) }
}

/// Sets the flag of an interrupt at the end of the time, too; whether it was the time is in the flag that this returns.
pub(super) fn stop_after(timeout: TimeSpan, stop: &Arc<AtomicBool>) -> Arc<AtomicBool> {
    let (is_over, stop) = (Arc::new(AtomicBool::new(false)), Arc::clone(stop));
    let returned = Arc::clone(&is_over);
    // Ends with the process.
    thread::spawn(move || {
        thread::sleep(timeout.to_std());
        is_over.store(true, Relaxed);
        stop.store(true, Relaxed);
    });
    returned
}

/// This program, as the guard of files.
pub fn guardian() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["storage", "guard"]);
    // A launcher waits for the end of a rank at a socket that the rank inherits.
    keep_descriptors_from(&mut command);
    Ok(command)
}

/// This program, as a process of the checks of file semantics.
pub fn operations() -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["storage", "operations"]);
    // It may wait for a lock, and does not see the end of its input then.
    bind_child_to_parent(&mut command);
    keep_descriptors_from(&mut command);
    Ok(command)
}

/// Process that carries out file operations, which come in.
#[derive(Debug, clap::Args)]
pub struct OperationsArgs {}

impl OperationsArgs {
    /// Runs it.
    pub fn run(self) -> Result<(), CommandError> {
        // Whoever reads them is gone, or wrote something else.
        let _ = serve_operations(operations, io::stdin(), io::stdout(), io::stderr());
        Ok(())
    }
}

/// Process that removes the files of ranks that were killed.
#[derive(Debug, clap::Args)]
pub struct GuardArgs {}

impl GuardArgs {
    /// Runs it.
    pub fn run(self) -> Result<(), CommandError> {
        guard(io::stdin());
        Ok(())
    }
}
