//! This process as one of two ranks of an MPI job, which measure by themselves: rank 0 is the client, rank 1 the server.

use std::process;

use clearstream_mpirun::{Line, Started};
use clearstream_schema::{
    control::{Failure, FailureKind},
    mpi::MpiRank,
};
use clearstream_sys::{affinity, mpi::MpiProcess};

/// Says a line of rank 0.
pub type Say<'a, P> = &'a mut dyn FnMut(&Line<P>) -> Result<(), Failure>;

/// Tag by which rank 1 introduces itself.
const INTRODUCTION: u8 = 0;
/// Tag of the last words of each rank.
const PARTING: u8 = 3;

/// The number of the other rank.
pub(crate) fn other(process: &MpiProcess) -> usize {
    1 - process.rank().min(1)
}

/// Pins this rank to its core, and says at rank 0 who takes part: a rank that dies can be named then.
pub(crate) fn introduce<P>(
    process: &MpiProcess,
    cores: [Option<u32>; 2],
    say: Say<'_, P>,
) -> Result<(), Failure> {
    if let Some(core) = cores[process.rank().min(1)] {
        let invalid =
            |_| Failure::new(FailureKind::Invalid, format!("core {core} cannot be used on this host"));
        affinity::pin_to(core).map_err(invalid)?;
    }
    let rank = u32::try_from(process.rank()).unwrap_or(u32::MAX);
    let own = MpiRank { rank, host: process.host().to_owned(), process: process::id() };
    let unreadable = |error: serde_json::Error| Failure::new(FailureKind::Internal, error.to_string());
    let library = |message| Failure::new(FailureKind::Connection, message);
    if process.rank() > 0 {
        let words = clearstream_schema::json::to_vec(&own).map_err(unreadable)?;
        return process.send_whole(&words, 0, INTRODUCTION).map_err(library);
    }
    let mut words = Vec::new();
    while process.receive(INTRODUCTION, &mut words).map_err(library)?.is_none() {}
    let second = clearstream_schema::json::from_slice(&words).map_err(unreadable)?;
    let started = Started {
        library: process.library_version().to_owned(),
        standard: process.standard().to_owned(),
        ranks: vec![own, second],
    };
    say(&Line::Ranks(started))
}

/// Returns when the other rank has called it, too: with MPICH 4.0 over UCX's TCP a rank in MPI_Finalize waits for
/// acknowledgements that the other one no longer sends from there.
pub(crate) fn part(process: &MpiProcess) -> Result<(), Failure> {
    let tell = || process.send_whole(&[0], other(process), PARTING);
    let hear = || process.receive_whole(&mut [0], other(process), PARTING);
    let parted =
        if process.rank() == 0 { tell().and_then(|()| hear()) } else { hear().and_then(|()| tell()) };
    parted.map_err(|message| Failure::new(FailureKind::Connection, message))
}

/// Measures at rank 0, and says each result and the end.
pub(crate) fn tell_results<P>(
    say: Say<'_, P>,
    measure: impl FnOnce(&mut dyn FnMut(P)) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut written = Ok(());
    measure(&mut |point| {
        if written.is_ok() {
            written = say(&Line::Point(Box::new(point)));
        }
    })?;
    written?;
    say(&Line::End)
}
