//! What trials of both workloads have in common: where the directory is, and how long one may take.

use std::{path::PathBuf, time::Duration};

use clearstream_control::Peer;
use clearstream_lab::LabError;
use clearstream_schema::{
    TimeSpan,
    control::{Failure, FailureKind},
    storage::host_names,
};
use clearstream_workload::{CLIENT, HostSet, SERVER, TrialError};

/// A trial that takes this many times as long as assumed is ended.
const OVERTIME: u32 = 20;
/// At least.
const TIMEOUT_MIN: Duration = Duration::from_secs(60);

/// Where a trial is measured.
pub(crate) struct Place {
    /// The whole path.
    pub(crate) directory: String,
    /// Role of the host that has it, for ranks that are threads.
    pub(crate) role: &'static str,
}

/// Finds the directory; in a lab the name of a mount is one, and the client or else the server has it, or all of `job`,
/// the hosts of an MPI job.
pub(crate) fn place(
    hosts: &mut HostSet<'_>,
    directory: &str,
    job: Option<&str>,
) -> Result<Place, TrialError> {
    let Some(lab) = hosts.lab() else { return Ok(Place { directory: directory.to_owned(), role: CLIENT }) };
    let invalid = |error: LabError| Failure { kind: FailureKind::Invalid, message: error.to_string() };
    let found = |path: PathBuf, role| Place { directory: path.to_string_lossy().into_owned(), role };
    if let Some(job) = job {
        let paths =
            host_names(job).iter().map(|host| lab.directory(host, directory)).collect::<Result<Vec<_>, _>>();
        let first = paths.map_err(invalid)?.into_iter().next().unwrap_or_default();
        return Ok(found(first, CLIENT));
    }
    let (client, server) = hosts.client_and_server()?;
    match (lab.directory(client.peer.name(), directory), lab.directory(server.peer.name(), directory)) {
        (Ok(path), _) => Ok(found(path, CLIENT)),
        (Err(_), Ok(path)) => Ok(found(path, SERVER)),
        (Err(error), Err(_)) => Err(invalid(error).into()),
    }
}

/// Each trial would write over the log of the one before.
pub(crate) fn check(operations: Option<&str>) -> Result<(), Failure> {
    let message = "operations is of `clearstream storage`: a study has a record of its trials".to_owned();
    operations.map_or(Ok(()), |_| Err(Failure { kind: FailureKind::Invalid, message }))
}

/// The agent of a place.
pub(crate) fn agent<'h>(hosts: &'h mut HostSet<'_>, place: &Place) -> Result<&'h mut Peer, TrialError> {
    let (client, server) = hosts.client_and_server()?;
    Ok(if place.role == CLIENT { client.peer } else { server.peer })
}

/// Maximum time of a trial that is assumed to take `expected`.
pub(crate) fn timeout(expected: TimeSpan) -> Duration {
    expected.to_std().saturating_mul(OVERTIME).max(TIMEOUT_MIN)
}
