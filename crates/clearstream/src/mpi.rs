//! This process as a rank of an MPI job.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use clearstream_mpirun::libraries;
use clearstream_ranks::{MPI_LIBRARY, Mpi, RankError};
use clearstream_schema::ExitCode;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::endpoints::own_program;

/// Maximum time between a request to end and the end: a rank may be waiting for one that was killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Joins the job that this process was started for. The rank does not outlive the launcher's process on this host, nor
/// `stop` by more than a few seconds.
pub fn join(library: Option<&Path>, stop: &Arc<AtomicBool>) -> Result<Mpi, RankError> {
    // Launchers that are killed leave their ranks behind (prctl(2), PR_SET_PDEATHSIG).
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    bound.map_err(|error| RankError::Load(format!("cannot be bound to the launcher: {error}")))?;
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        while !stop.load(Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
        thread::sleep(END_TIMEOUT);
        std::process::exit(ExitCode::Interrupted as i32);
    });
    Mpi::join(&mpi_library(library)?)
}

/// The library that was built with the site's `mpicc`: the one that was named, or this program's.
fn mpi_library(requested: Option<&Path>) -> Result<PathBuf, RankError> {
    if let Some(path) = requested {
        return Ok(path.to_owned());
    }
    let own = own_program().map_err(|error| RankError::Load(error.to_string()))?;
    libraries::find(&own, MPI_LIBRARY).ok_or_else(|| {
        RankError::Load(format!(
            "{MPI_LIBRARY} is found neither in {}: build it with the site's mpicc, by {}, or name it by --mpi-library",
            libraries::places(&own),
            libraries::build_with_mpi(&own)
        ))
    })
}
