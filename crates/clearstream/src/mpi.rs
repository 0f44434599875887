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
use clearstream_ranks::{MPI_LIBRARY, Mpi, RankError, World as _, load, unwatch};
use clearstream_schema::ExitCode;
use clearstream_sys::mpi::{MpiProcess, Threads};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::{
    endpoints::own_program,
    exit::CommandError,
    output::{Output, log},
};

/// The option by which a process is a rank of an MPI job.
pub const OPTION: &str = "--mpi";
/// Maximum time between a request to end and the end: a rank may be waiting for one that was killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Joins the job that this process was started for. The rank does not outlive the launcher's process on this host, nor
/// `stop` by more than a few seconds.
pub fn join(library: Option<&Path>, stop: &Arc<AtomicBool>) -> Result<Mpi, RankError> {
    bind_to_launcher()?;
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        while !stop.load(Relaxed) {
            thread::sleep(POLL_INTERVAL);
        }
        thread::sleep(END_TIMEOUT);
        std::process::exit(ExitCode::Interrupted as i32);
    });
    let world = Mpi::join(&mpi_library(library)?)?;
    match check_launcher(world.size(), variable) {
        Ok(()) => Ok(world),
        Err(error) => {
            // A world that is dropped is aborted, before anything is said; nobody waits for this one.
            let _ = world.leave();
            Err(error)
        }
    }
}

/// As [`join`], for a rank that measures MPI itself: it has one thread, and no second hand.
pub fn join_alone(library: Option<&Path>) -> Result<MpiProcess, RankError> {
    bind_to_launcher()?;
    let process = load(&mpi_library(library)?, Threads::One)?;
    match check_launcher(process.size(), variable) {
        Ok(()) => Ok(process),
        Err(error) => {
            let _ = process.finish();
            Err(error)
        }
    }
}

/// Launchers that are killed leave their ranks behind (prctl(2), PR_SET_PDEATHSIG).
fn bind_to_launcher() -> Result<(), RankError> {
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    bound.map_err(|error| RankError::Load(format!("cannot be bound to the launcher: {error}")))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Leaves the job, when all ranks have done and said everything.
pub fn leave(mut world: Mpi, out: &Output) -> Result<(), CommandError> {
    match unwatch(&mut world) {
        Ok(()) => world.leave().map_err(CommandError::from),
        Err(error) => Err(abandon(world, CommandError::from(error), out)),
    }
}

/// Says that this rank cannot reach the others, and takes them along. MPI_Abort does not return: all is said before.
pub fn abandon(world: Mpi, error: CommandError, out: &Output) -> CommandError {
    log(&format!("clearstream: {error}"));
    let _ = out.failed(&error);
    world.abandon(error.exit_code() as u8);
    error
}

/// Refuses a library of another MPI than the launcher's, with which every process is alone: the launcher says how many
/// ranks it started.
fn check_launcher(size: usize, variable: impl Fn(&str) -> Option<String>) -> Result<(), RankError> {
    // Open MPI; Hydra of MPICH and Intel MPI, and Slurm with PMI-1 and PMI-2; Slurm's own of a step, which `mpirun` in
    // a job has as well, but of its daemons, behind its own.
    const COUNTS: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];
    let is_rank = |name: &str| name != "SLURM_STEP_NUM_TASKS" || variable("SLURM_PROCID").is_some();
    let said = COUNTS.iter().filter(|name| is_rank(name)).find_map(|name| Some((name, variable(name)?)));
    let Some((name, count)) = said.and_then(|(name, text)| Some((name, text.parse::<usize>().ok()?))) else {
        return Ok(());
    };
    if size == count {
        return Ok(());
    }
    Err(RankError::Load(format!(
        "the launcher started {count} ranks ({name}), and the MPI library finds {size}: the library of --mpi-library is of \
         another MPI than the launcher, or srun needs --mpi=pmix or pmi2 (extras/mpi/library/build makes one with the \
         site's mpicc)"
    )))
}

/// The library that was built with the site's `mpicc`: the one that was named, or this program's for the launcher.
fn mpi_library(requested: Option<&Path>) -> Result<PathBuf, RankError> {
    let own = own_program().map_err(|error| RankError::Load(error.to_string()))?;
    let found = match requested {
        Some(path) => path.is_file().then(|| path.to_owned()),
        None => names_of_library(variable).iter().find_map(|name| libraries::find(&own, name)),
    };
    found.ok_or_else(|| {
        let places = match requested {
            Some(path) => format!("there is no MPI library {}", path.display()),
            None => format!("the MPI library {MPI_LIBRARY} is found neither in {}", libraries::places(&own)),
        };
        let build = libraries::build_with_mpi(&own);
        RankError::Load(format!(
            "{places}: build it with the site's mpicc, by {build} (apt-get install libopenmpi-dev or libmpich-dev), or \
             name it by --mpi-library"
        ))
    })
}

/// Where there are several MPI, that of the launcher comes first; Slurm's is of none.
fn names_of_library(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is_set = |name: &str| variable(name).is_some();
    let family = match (is_set("OMPI_COMM_WORLD_SIZE"), is_set("PMI_SIZE") && !is_set("SLURM_PROCID")) {
        (true, _) => Some("openmpi"),
        (false, true) => Some("mpich"),
        (false, false) => None,
    };
    let of_family = family.map(|family| MPI_LIBRARY.replace(".so", &format!(".{family}.so")));
    of_family.into_iter().chain([MPI_LIBRARY.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launcher_of_another_mpi_is_recognised_whichever_it_is() {
        let check = |size: usize, variables: &[(&str, &str)]| {
            let of = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            check_launcher(size, of).is_ok()
        };
        assert!(check(1, &[]));
        for name in ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"] {
            assert!(check(4, &[(name, "4")]) && !check(1, &[(name, "4")]), "{name}");
        }
        let step = ("SLURM_STEP_NUM_TASKS", "4");
        assert!(!check(1, &[step, ("SLURM_PROCID", "0")]) && check(4, &[step, ("SLURM_PROCID", "3")]));
        let names = |variables: &[&str]| names_of_library(|name| variables.contains(&name).then(String::new));
        assert_eq!(names(&["OMPI_COMM_WORLD_SIZE", "SLURM_PROCID"])[0], "libclearstream_mpi.openmpi.so");
        assert_eq!(names(&["PMI_SIZE"]), ["libclearstream_mpi.mpich.so", MPI_LIBRARY]);
        assert_eq!(names(&["PMI_SIZE", "SLURM_PROCID"]), [MPI_LIBRARY]);
        // The shell of a batch job is no rank; mpirun in it has its own count.
        assert!(check(1, &[step]));
        assert!(check(
            8,
            &[("OMPI_COMM_WORLD_SIZE", "8"), ("SLURM_STEP_NUM_TASKS", "2"), ("SLURM_PROCID", "1")]
        ));
    }
}
