//! What trials of both workloads have in common: where the directory is, and how long one may take.

use std::time::Duration;

use clearstream_schema::TimeSpan;
use clearstream_workload::HostSet;

/// A trial that takes this many times as long as assumed is ended.
const OVERTIME: u32 = 20;
/// At least.
const TIMEOUT_MIN: Duration = Duration::from_secs(60);

/// The whole path; in a lab the name of a mount is one.
pub(crate) fn directory(hosts: &HostSet<'_>, directory: &str) -> String {
    hosts.lab().map_or_else(
        || directory.to_owned(),
        |lab| lab.mounts().join(directory).to_string_lossy().into_owned(),
    )
}

/// Maximum time of a trial that is assumed to take `expected`.
pub(crate) fn timeout(expected: TimeSpan) -> Duration {
    expected.to_std().saturating_mul(OVERTIME).max(TIMEOUT_MIN)
}
