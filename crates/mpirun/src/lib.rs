//! Jobs of MPI ranks: `mpirun` or `srun` starts this program as each rank, one on the client's and one on the server's
//! host or several on hosts that were named, and rank 0 prints a JSON document per line.
//!
//! A job is started by the controller and not by an agent, so that no peer can have a command of its
//! choice started: the client is this host, or one of a lab.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod failure;
mod iwarp;
mod job;
mod launcher;
pub mod libraries;
mod lines;
mod ranks;

use std::{path::Path, sync::atomic::AtomicBool, time::Duration};

use clearstream_schema::{
    control::{Failure, FailureKind},
    mpi::{InterfaceBytes, MpiJob},
    notice::Notice,
};
use clearstream_workload::{HostSet, TrialError};
use serde::Serialize;

pub use failure::Text;
pub use iwarp::connection_count;
pub use job::Ending;
use job::Job;
use launcher::Launcher;
pub use lines::{Line, Started};
pub use ranks::{Placement, Ranks};

/// Maximum time until both ranks have started: ssh logs in.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A job as requested; `P` is a point.
#[derive(Debug)]
pub struct JobConfig<'a, P> {
    /// Command of the launcher with options; `mpirun` when absent.
    pub mpirun: Option<&'a str>,
    /// Reads a line that rank 0 prints.
    pub read: fn(&str) -> Option<Line<P>>,
    /// Over software iWARP, by the verbs library.
    pub over_iwarp: bool,
    /// Command line of this program as a rank.
    pub arguments: Vec<String>,
    /// Maximum time until the next point.
    pub point_timeout: Duration,
    /// What does not come then, for people: `result`.
    pub awaited: &'a str,
}

/// A job that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub ending: Ending,
    /// Who took part, when both ranks had started.
    pub job: Option<MpiJob>,
    /// What a rank had reported when the job was stopped: the launcher was still ending the others. An interruption of
    /// the operator reaches the ranks too, which report that.
    pub reported: Option<Failure>,
}

/// Why a job has no result.
#[derive(Debug)]
pub enum JobError {
    /// Nothing was started.
    Invalid(Failure),
    /// The job failed.
    Failed(Failure),
}

impl From<JobError> for TrialError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Invalid(failure) => failure.into(),
            JobError::Failed(failure) => {
                Failure { kind: failure.kind, message: format!("MPI job: {}", failure.message) }.into()
            }
        }
    }
}

impl<P: Send + 'static> JobConfig<'_, P> {
    /// Runs the job on the client and the server of a set of hosts, until its end or until `stop` is
    /// set.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn run(
        self,
        hosts: &mut HostSet<'_>,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(P),
    ) -> Result<Ended, JobError> {
        let ranks = Ranks::of(hosts).map_err(JobError::Invalid)?;
        self.run_with(&ranks, stop, on_point)
    }

    /// Runs the job on the ranks of a set of hosts, which may be used for something else meanwhile.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn run_with(
        self,
        ranks: &Ranks<'_>,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(P),
    ) -> Result<Ended, JobError> {
        self.start(ranks, &ranks.program, stop, on_point)
    }

    /// Whether the launcher and the program of the ranks are there.
    ///
    /// # Errors
    /// What is missing.
    pub fn check(&self, ranks: &Ranks<'_>) -> Result<(), Failure> {
        self.prepare(ranks, &ranks.program).map(drop)
    }

    /// Runs the job on hosts that were named, until its end or until `stop` is set.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn run_on(
        self,
        placement: Placement<'_>,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(P),
    ) -> Result<Ended, JobError> {
        let ranks = Ranks::on(placement).map_err(JobError::Invalid)?;
        self.start(&ranks, placement.program, stop, on_point)
    }

    fn start(
        self,
        ranks: &Ranks<'_>,
        program: &Path,
        stop: &AtomicBool,
        on_point: &mut dyn FnMut(P),
    ) -> Result<Ended, JobError> {
        let (command, line) = self.prepare(ranks, program).map_err(JobError::Invalid)?;
        let job = Job {
            command,
            read: self.read,
            hosts: ranks.hosts.clone(),
            start_timeout: START_TIMEOUT,
            point_timeout: self.point_timeout,
            awaited: self.awaited.to_owned(),
        };
        let ended = job.run(stop, on_point).map_err(JobError::Failed)?;
        if self.over_iwarp && ended.ending != Ending::Stopped && ended.rdma_connection_count == 0 {
            return Err(JobError::Failed(iwarp::no_connection()));
        }
        let job = ended.ranks.map(|found| MpiJob {
            library: found.library,
            standard: found.standard,
            command: line,
            ranks: found.ranks,
        });
        Ok(Ended { ending: ended.ending, job, reported: ended.reported })
    }

    fn prepare(&self, ranks: &Ranks<'_>, own: &Path) -> Result<(launcher::Prepared, Vec<String>), Failure> {
        let launcher = Launcher::find(self.mpirun)?;
        let library = self.over_iwarp.then(|| iwarp::find_library(own)).transpose()?;
        let fabric = library.map(|library| iwarp::options(launcher.kind, &library)).transpose()?;
        launcher.command(ranks, &fabric.unwrap_or_default(), own, &self.arguments)
    }
}

/// Command line of this program as a rank that measures a workload by itself, with the library of its MPI; the hidden
/// verb `rank` reads it.
///
/// # Errors
/// The configuration cannot be written.
pub fn rank_arguments(
    workload: &str,
    library: Option<&str>,
    config: &impl Serialize,
) -> Result<Vec<String>, Failure> {
    let config = clearstream_schema::json::to_string(config)
        .map_err(|error| Failure::new(FailureKind::Internal, error.to_string()))?;
    let library = library.into_iter().flat_map(|library| ["--mpi-library", library]);
    let fields = ["rank", "--mpi"].into_iter().chain(library).chain([workload, &config]);
    Ok(fields.map(str::to_owned).collect())
}

/// Caveat of a job that did not end by itself.
pub fn ending_notice(ending: Ending) -> Option<Notice> {
    (ending == Ending::Forced).then(|| Notice {
        id: "mpirun-killed".to_owned(),
        message: "mpirun did not end after the last result (MPI_Finalize), and was ended".to_owned(),
    })
}

/// Caveat of a point whose messages, so many bytes in the direction that has most, went past the
/// interfaces.
pub fn network_notice(interfaces: Option<InterfaceBytes>, sent_bytes: u64, what: &str) -> Option<Notice> {
    let carried = interfaces.map_or(0, |bytes| bytes.client_sent_bytes.max(bytes.server_sent_bytes));
    (carried < sent_bytes).then(|| Notice {
        id: "not-on-the-network".to_owned(),
        message: format!(
            "the network interfaces carried fewer bytes than the messages {what} have: the MPI library used shared \
             memory, loopback or a path around the kernel"
        ),
    })
}
