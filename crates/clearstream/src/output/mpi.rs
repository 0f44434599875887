//! MPI jobs for people.

use clearstream_schema::mpi::MpiJob;

/// The library, and where its ranks ran.
pub(super) fn job(job: &MpiJob) -> String {
    // Open MPI adds where and when it was built.
    let library = job.library.split(", package").next().unwrap_or(&job.library);
    let ranks: Vec<String> =
        job.ranks.iter().map(|rank| format!("rank {} on {}", rank.rank, rank.host)).collect();
    format!("{library}: {}", ranks.join(", "))
}
